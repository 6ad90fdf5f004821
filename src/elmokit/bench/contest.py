"""Contestants take turns on the same text: A B C A B C …, so that a machine that slows down slows them all down.

A plan, a text and the processes of the libraries arrive; one record for each contestant, size and batch size leaves,
with the seconds of every call. In each run everybody gets the same sentences, which nobody has seen before. Variants
of one library share its process and have models of their own:

    elmokit float32               starts every run without word vectors; remembers those of the run
    elmokit float32, no cache     remembers nothing beyond a batch
    elmokit float32, words known  has the vectors of all words of the text beforehand, as AllenNLP's `vocab_to_cache`
    elmokit int8                  if this version and machine can
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from elmokit.bench.child import Child, PeerError
from elmokit.bench.plan import Peer, Plan
from elmokit.bench.texts import Text

__all__ = ["KNOWN", "Contestant", "Texts", "agreement", "contestants_for", "take_turns", "texts_for"]

Say = Callable[[str], None]
Texts = dict[int, list[list[list[str]]]]  # by batch size the sentences of each run

WORDS_PER_SENTENCE = 20  # of single sentences, whose milliseconds are compared
SINGLE_SENTENCES, WARM_UP = 8, 32
SMALLEST_RUN = {"tiny": 64, "small": 64, "medium": 64, "original": 32}  # sentences: big models take long enough
AGREEMENT_BATCHES, AGREEMENT_ROWS = 3, 8
OURS: dict[str, dict[str, Any]] = {
    "float32": {},
    "float32, no cache": {"cache_words": 0},
    "float32, words known": {},
    "int8": {"precision": "int8"},
    "int8, words known": {"precision": "int8"},
}
KNOWN = ", words known"


@dataclass(frozen=True)
class Contestant:
    """One variant of one library with its model loaded.

    Arguments:
        title: in tables.
        child: its process.
        model: what the process calls the model.
        reads_weights: whether its vectors must be ours.
        about: what it says of itself, such as the engine it computes with.
    """

    title: str
    child: Child
    model: str
    reads_weights: bool = False
    about: str | None = None


def contestants_for(
    plan: Plan,
    size: str,
    folder: Path,
    known_words: Sequence[str],
    ours: Child,
    peers: Iterable[tuple[Peer, Child]],
    notes: list[str],
) -> list[Contestant]:
    """Everybody who can take part with models of this size; whoever cannot is named in `notes`, with the reason."""
    entries: list[tuple[str, Child, dict[str, Any], bool]] = []
    for variant, options in OURS.items():
        entries.append((f"elmokit {variant}", ours, {"model": str(folder), **options}, True))
    for peer, child in peers:
        if size in peer.beside:
            largest = max(AGREEMENT_ROWS, *plan.batch_sizes)
            settings = {"model": str(folder), "which": peer.name, "largest_batch": largest}
            entries.append((peer.title, child, {**settings, "words": list(known_words)}, peer.reads_weights))
            if peer.knows_words:
                entries.append((peer.title + KNOWN, child, settings, peer.reads_weights))
    found = []
    for title, child, settings, reads_weights in entries:
        known = {"known_words": list(known_words)} if title.endswith(KNOWN) else {}
        try:
            about = child.ask("load", name=title, settings={**settings, **known})["about"]
        except PeerError as problem:
            notes.append(f"{title}, {size}: left out. {problem}")
        else:
            found.append(Contestant(title, child, title, reads_weights, about))
    return found


def take_turns(
    contestants: Sequence[Contestant], plan: Plan, size: str, texts: Texts, notes: list[str], say: Say
) -> list[dict[str, Any]]:
    """A record for each contestant and batch size; who breaks down is named in `notes` and asked no more.

    Arguments:
        contestants: with their models loaded.
        plan: how many runs of which batch sizes.
        size: of the models, for the records.
        texts: of `texts_for`: for each batch size the sentences of each run, the first of which is not counted.
        notes: for those who break down.
        say: is told about the progress.
    """
    records, standing = [], list(contestants)
    for batch_size in plan.batch_sizes:
        seconds: dict[str, list[list[float]]] = {each.title: [] for each in standing}
        waited = dict.fromkeys(seconds, 0.0)
        for number, sentences in enumerate(texts[batch_size]):
            for each in tuple(standing):
                try:
                    answer = each.child.ask("time", name=each.model, sentences=sentences, batch_size=batch_size)
                except PeerError as problem:
                    notes.append(f"{each.title}, {size}: broke down at batches of {batch_size}. {problem}")
                    standing.remove(each)
                    continue
                if number > 0:
                    seconds[each.title].append(answer["seconds"])
                    waited[each.title] += answer["waited"]
            say(f"{size}, batches of {batch_size}: run {number} of {plan.runs}" + " (warm-up)" * (number == 0))
        words = [sum(map(len, sentences)) for sentences in texts[batch_size][1:]]
        for each in standing:
            record = {"size": size, "contestant": each.title, "batch_size": batch_size, "words": words}
            record |= {"about": each.about}
            records.append({**record, "seconds": seconds[each.title], "waited": waited[each.title]})
    return records


def texts_for(plan: Plan, size: str, text: Text) -> Texts:
    """For each batch size the sentences of the warm-up and of every run, none of them twice."""
    found = {}
    for batch_size in plan.batch_sizes:
        if batch_size == 1:
            counts = [2] + [SINGLE_SENTENCES] * plan.runs
            found[batch_size] = [text.take(count, num_words=WORDS_PER_SENTENCE) for count in counts]
        else:
            a_run = max(1, SMALLEST_RUN[size] // batch_size) * batch_size
            counts = [min(batch_size, WARM_UP)] + [a_run] * plan.runs
            found[batch_size] = [text.take(count) for count in counts]
    return found


def agreement(contestants: Sequence[Contestant], size: str, text: Text) -> list[dict[str, Any]]:
    """How far the vectors of all who read the same weights are from elmokit's in float32: the largest difference.

    Three batches in order, state carried from one to the next, as the originals do it whether one wants it or not.
    """
    sentences = text.take(AGREEMENT_BATCHES * AGREEMENT_ROWS)
    found: dict[str, np.ndarray] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, each in enumerate(each for each in contestants if each.reads_weights and KNOWN not in each.title):
            path = str(Path(folder) / f"{number}.npy")
            each.child.ask("vectors", name=each.model, sentences=sentences, batch_size=AGREEMENT_ROWS, path=path)
            found[each.title] = np.load(path)
    if not found:
        return []
    ours = next(iter(found.values()))
    return [
        {
            "size": size,
            "contestant": title,
            "largest_difference": float(np.abs(vectors - ours).max()),
            "largest_value": float(np.abs(ours).max()),
        }
        for title, vectors in list(found.items())[1:]
    ]
