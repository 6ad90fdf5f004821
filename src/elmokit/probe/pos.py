"""Parts of speech by layer: a linear probe, and the same probe on tags that mean nothing.

Arrives: treebanks, sources of vectors. Leaves: for each row the accuracy on test words, on test words that the training
part does not have, on the control task, and the difference, the probe's selectivity (Hewitt and Liang 2019). In the
control task each word has one tag wherever it stands, drawn at random from the tags' own distribution: a probe can
only learn it by heart, so what it scores there is what it could do without any grammar in the vectors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import numpy as np

from elmokit.errors import InputError
from elmokit.probe.frozen import each_mix, span_every_word
from elmokit.probe.linear import fit
from elmokit.probe.report import Report
from elmokit.probe.sources import VectorSource
from elmokit.text.conllu import parse_conllu
from elmokit.text.labelled import Problems, read_lines, split_blocks

__all__ = ["MOST_FREQUENT", "NO_VALUE", "TreebankSentence", "control_tags", "probe_tags", "read_conllu"]

MOST_FREQUENT = "most frequent tag"
UNSEEN = "unseen words"
HELD_OUT_EVERY = 10
NO_VALUE = "_"


class TreebankSentence(NamedTuple):
    """The words of a sentence and their tags."""

    words: list[str]
    tags: list[str]


def read_conllu(
    path: str | PathLike[str], *, tag: str = "UPOS", problems: Problems | None = None
) -> list[TreebankSentence]:
    r"""The sentences of a file.

    Arguments:
        path: a CoNLL-U file in UTF-8; plain or packed.
        tag: `"UPOS"`, `"XPOS"`, or a feature such as `"Number"`, whose tag is `_` for words without it.
        problems: what happens to sentences with a wrong line.

    Example:
        >>> from pathlib import Path
        >>> _ = Path("a.conllu").write_text("1\tDogs\tdog\tNOUN\tNNS\tNumber=Plur\t0\troot\t_\t_\n")
        >>> read_conllu("a.conllu", tag="Number")
        [TreebankSentence(words=['Dogs'], tags=['Plur'])]
    """
    problems = problems or Problems()
    tag = tag.upper() if tag.upper() in ("UPOS", "XPOS") else tag
    sentences: list[TreebankSentence] = []
    for lines in split_blocks(read_lines(path, problems)):
        words = parse_conllu(path, lines, problems)
        if words:
            sentences.append(TreebankSentence([columns[1] for columns in words], [_tag(each, tag) for each in words]))
    _check(path, sentences, tag, problems)
    return sentences


def probe_tags(
    sources: Sequence[VectorSource],
    *,
    train: Sequence[TreebankSentence],
    test: Sequence[TreebankSentence],
    dev: Sequence[TreebankSentence] | None = None,
    tag: str = "UPOS",
    seed: int = 0,
    folder: Path,
    device: str = "cpu",
) -> Report:
    """How well a linear probe finds the tags in each row of each source.

    Arguments:
        sources: what to probe.
        train: the sentences to learn from.
        test: the sentences to be scored on.
        dev: the sentences to choose the penalty on; every tenth of `train` if not given.
        tag: the name of the tags, for the title.
        seed: of the control task.
        folder: where vectors are kept.
        device: where to fit.
    """
    if dev is None:
        dev = train[::HELD_OUT_EVERY]
        train = [sentence for place, sentence in enumerate(train) if place % HELD_OUT_EVERY]
        if not train:
            raise InputError("expected at least two training sentences, found one: give more, or --dev")
    parts = (train, dev, test)
    labels = sorted({tag for sentence in train for tag in sentence.tags})
    number_of = {label: number for number, label in enumerate(labels)}
    words = [[word for sentence in part for word in sentence.words] for part in parts]
    gold = [np.array([number_of.get(tag, -1) for sentence in part for tag in sentence.tags]) for part in parts]
    known = set(words[0])
    is_unseen = np.array([word not in known for word in words[2]])
    control_of = control_tags([word for part in words for word in part], gold[0], seed=seed)
    control = [np.array([control_of[word] for word in part]) for part in words]

    report = Report(
        "pos",
        f"{tag} by a linear probe: {len(labels)} tags, {len(words[0]):,} training and {len(words[2]):,} test words",
        ["accuracy", UNSEEN, "control", "selectivity"],
        facts={
            "tag": tag,
            "tags": labels,
            "words": dict(zip(("train", "dev", "test"), map(len, words), strict=True)),
            "unseen_test_words": int(is_unseen.sum()),
            "strengths": {},
        },
        baseline=MOST_FREQUENT,
    )
    report.rows[MOST_FREQUENT] = _score(
        _most_frequent(words[0], gold[0], words[2]) == gold[2],
        is_unseen,
        _most_frequent(words[0], control[0], words[2]) == control[2],
    )
    sentences = [[sentence.words for sentence in part] for part in parts]
    spans = [(part, span_every_word(part)) for part in sentences]
    for _, name, (train_ND, dev_MD, test_TD) in each_mix(sources, spans, folder=folder):
        right = []
        for kind, target in (("tags", gold), ("control", control)):
            probe = fit(
                train_ND, target[0], num_labels=len(labels), dev_vectors=dev_MD, dev_labels=target[1], device=device
            )
            right.append(probe.predict(test_TD) == target[2])
            report.facts["strengths"].setdefault(name, {})[kind] = probe.strength
        report.rows[name] = _score(right[0], is_unseen, right[1])
    if missing := int((gold[2] == -1).sum()):
        report.notes.append(f"{missing} test words have a tag that the training part has not: they count as wrong")
    report.notes.append(
        f"unseen words: the {int(is_unseen.sum()):,} test words that the training part does not have; "
        "selectivity: accuracy less that of the control task (Hewitt and Liang 2019)"
    )
    return report


def control_tags(words: Sequence[str], labels_N: np.ndarray, *, seed: int) -> dict[str, int]:
    """A random tag for each word, the same wherever it stands, drawn from how often tags come.

    Example:
        >>> sorted(control_tags(["a", "b", "a"], np.array([3, 3, 3]), seed=0).items())
        [('a', 3), ('b', 3)]
    """
    distinct = sorted(set(words))
    drawn = np.random.default_rng(seed).choice(labels_N, size=len(distinct))
    return dict(zip(distinct, drawn.tolist(), strict=True))


def _score(is_right: np.ndarray, is_unseen: np.ndarray, control_is_right: np.ndarray) -> dict[str, float]:
    accuracy, control = float(is_right.mean()), float(control_is_right.mean())
    unseen = float(is_right[is_unseen].mean()) if is_unseen.any() else float("nan")
    return {"accuracy": accuracy, UNSEEN: unseen, "control": control, "selectivity": accuracy - control}


def _most_frequent(words: Sequence[str], labels_N: np.ndarray, asked: Sequence[str]) -> np.ndarray:
    """Without any vector: the tag that a word has most often; the commonest of all for a word never seen."""
    counts: dict[str, Counter[int]] = {}
    for word, label in zip(words, labels_N.tolist(), strict=True):
        counts.setdefault(word, Counter())[label] += 1
    commonest = Counter(labels_N.tolist()).most_common(1)[0][0]
    best = {word: counter.most_common(1)[0][0] for word, counter in counts.items()}
    return np.array([best.get(word, commonest) for word in asked])


def _tag(fields: Sequence[str], tag: str) -> str:
    if tag == "UPOS":
        return fields[3]
    if tag == "XPOS":
        return fields[4]
    for feature in fields[5].split("|"):
        name, _, value = feature.partition("=")
        if name == tag:
            return value
    return NO_VALUE


def _check(path: str | PathLike[str], sentences: Sequence[TreebankSentence], tag: str, problems: Problems) -> None:
    if not sentences:
        skipped = f" ({problems.summary()})" if problems.num_bad else ""
        raise InputError(f"{path}: expected sentences in CoNLL-U, found none{skipped}")
    if all(value == NO_VALUE for sentence in sentences for value in sentence.tags):
        raise InputError(
            f"{path}: no word has a value of {tag}; use UPOS, XPOS if the treebank has one, or a feature such as Number"
        )
