"""Word senses by layer: the nearest mean vector of a sense, as in the paper's Table 5.

Arrives: a text with senses to learn from (SemCor), evaluation sets, WordNet's first senses, sources of vectors. Leaves:
F1 per set and over all of them, for each row, beside the first sense of everything. Nothing is fitted: a sense is the
mean of its training vectors, an instance takes the nearest sense of its lemma by cosine (of equally near senses the
first in WordNet's order), and a lemma that the training text does not have takes its first sense in WordNet.

Shapes: N instances, S senses, D width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from elmokit.embed.layers import scale_to_unit_length
from elmokit.errors import InputError
from elmokit.probe.frozen import each_mix
from elmokit.probe.report import Report
from elmokit.probe.sense_data import Instance, SenseText, WordNet, split_sense
from elmokit.probe.sources import VectorSource

__all__ = ["FIRST_SENSE", "SenseMeans", "f1_by_set", "probe_senses"]

FIRST_SENSE = "first sense"
ALL = "ALL"
# Cosines closer than this are equal. Vectors without context give all senses of a word the same mean, but for the last
# digits of float32, which must not decide.
TIE = 1e-6


class SenseMeans:
    """The mean vector of each sense of a training text.

    Arguments:
        instances: N annotated words.
        vectors_ND: (N, D) their vectors.
        wordnet: whose order of senses decides between means that are equally near.
    """

    def __init__(self, instances: Sequence[Instance], vectors_ND: np.ndarray, wordnet: WordNet) -> None:
        places_of: dict[str, list[int]] = {}
        for place, instance in enumerate(instances):
            for sense in instance.senses:
                places_of.setdefault(sense, []).append(place)
        self.senses = sorted(places_of, key=lambda sense: (wordnet.numbers[sense], sense))
        # Cosine leaves lengths out, so means may be scaled now.
        self._means_SD = scale_to_unit_length(
            np.stack([vectors_ND[places_of[sense]].mean(axis=0) for sense in self.senses])
        )
        self._rows_of: dict[tuple[str, str], list[int]] = {}
        for row, sense in enumerate(self.senses):
            self._rows_of.setdefault(split_sense(sense), []).append(row)

    def nearest(self, instance: Instance, vector_D: np.ndarray) -> str | None:
        """The sense of the instance's lemma whose mean is nearest; `None` for a lemma that was never seen."""
        rows = self._rows_of.get((instance.lemma, instance.pos))
        if rows is None:
            return None
        cosines = self._means_SD[rows] @ scale_to_unit_length(vector_D)
        return self.senses[rows[int(np.argmax(cosines > cosines.max() - TIE))]]  # the first that is as near as any


def f1_by_set(instances: Sequence[Instance], answers: Sequence[str | None]) -> dict[str, float]:
    """F1 of each set and over all: an answer is right if it is one of the gold senses; no answer costs recall.

    Example:
        >>> from elmokit.probe.frozen import WordSpan
        >>> dog = Instance("a", WordSpan(0, 0, 1), "dog", "NOUN", ("dog%1:05:00::",))
        >>> f1_by_set([dog, dog], ["dog%1:05:00::", None])
        {'a': 0.6666666666666666, 'ALL': 0.6666666666666666}
    """
    counts: dict[str, list[int]] = {}
    for instance, answer in zip(instances, answers, strict=True):
        for name in (instance.dataset, ALL):
            right, answered, total = counts.get(name, (0, 0, 0))
            counts[name] = [right + (answer in instance.senses), answered + (answer is not None), total + 1]
    # 2PR / (P + R) with P = right / answered and R = right / total.
    scores = {name: 2 * right / (answered + total) for name, (right, answered, total) in counts.items()}
    scores[ALL] = scores.pop(ALL)  # last
    return scores


def probe_senses(
    sources: Sequence[VectorSource],
    *,
    train: SenseText,
    test: SenseText,
    wordnet: WordNet,
    folder: Path,
) -> Report:
    """F1 of the nearest sense mean, for each row of each source.

    Arguments:
        sources: what to probe.
        train: the text that sense means are taken from.
        test: the instances to be scored on, of one set or several.
        wordnet: its first sense is the answer for a lemma that `train` has not; keys of `train` that it does not
            have, from other versions of it, are left out.
        folder: where vectors are kept.
    """
    instances = test.instances
    learned = _with_senses_of(wordnet, train.instances)
    first = [wordnet.first.get((instance.lemma, instance.pos)) for instance in instances]
    if not any(first):
        raise InputError("none of the test words is in the list of first senses: is it WordNet's index.sense?")
    seen = {split_sense(sense) for instance in learned for sense in instance.senses}
    num_backed_off = sum((instance.lemma, instance.pos) not in seen for instance in instances)
    baseline = f1_by_set(instances, first)
    report = Report(
        "wsd",
        f"word senses by the nearest mean, F1: {len(learned):,} training and {len(instances):,} test words",
        list(baseline) if len(baseline) > 2 else [ALL],
        rows={FIRST_SENSE: baseline},
        facts={
            "instances": {"train": len(learned), **_sizes(instances)},
            "train_instances_left_out": len(train.instances) - len(learned),
            "first_sense_for_unseen_lemmas": num_backed_off,
        },
        baseline=FIRST_SENSE,
    )
    report.notes.append(
        f"{num_backed_off:,} test words have a lemma that the training text has not: their first sense is taken"
    )
    if num_left_out := len(train.instances) - len(learned):
        report.notes.append(f"{num_left_out:,} training words have a sense that this WordNet has not: left out")
    parts = [(train.sentences, [one.span for one in learned]), (test.sentences, [one.span for one in instances])]
    for _, name, (train_ND, test_MD) in each_mix(sources, parts, folder=folder):
        means = SenseMeans(learned, train_ND, wordnet)
        found = [means.nearest(*pair) for pair in zip(instances, test_MD, strict=True)]
        answers = [answer or back_off for answer, back_off in zip(found, first, strict=True)]
        report.rows[name] = f1_by_set(instances, answers)
    return report


def _with_senses_of(wordnet: WordNet, instances: Sequence[Instance]) -> list[Instance]:
    """The instances with those of their senses that WordNet has; those that are left with none are left out."""
    kept = [
        instance._replace(senses=tuple(sense for sense in instance.senses if sense in wordnet.numbers))
        for instance in instances
    ]
    kept = [instance for instance in kept if instance.senses]
    if not kept:
        raise InputError("none of the training senses is in WordNet's index.sense: are both of the same version?")
    return kept


def _sizes(instances: Sequence[Instance]) -> Mapping[str, int]:
    sizes: dict[str, int] = {}
    for instance in instances:
        sizes[instance.dataset] = sizes.get(instance.dataset, 0) + 1
    return {**sizes, ALL: len(instances)}
