"""Vectors of spans, computed once and kept on disk, so that every row of every probe reads the same pass.

Arrives: a source, sentences, and the spans that are wanted of them (a word, or the words of an expression). Leaves: a
`Frozen`, a memory-mapped float16 array (layers, spans, dim), one vector a span, the mean of its words. In a folder
that is kept, a pass that was stopped goes on where it stopped, and one that is complete is not run again.

Shapes: L layers, N spans, W words, D width.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from elmokit.errors import InputError, OutputError
from elmokit.io.atomic import replace_text
from elmokit.probe.sources import Row, Source

__all__ = ["Frozen", "Span", "freeze", "kept_in", "one_span_a_word"]

BLOCK = 1024  # sentences between two notes of how far a pass has come
LARGEST = float(np.finfo(np.float16).max)


class Span(NamedTuple):
    """Words `start` to `stop` (left out) of a sentence."""

    sentence: int
    start: int
    stop: int


@dataclass(frozen=True)
class Frozen:
    """The vectors of N spans in every layer.

    Arguments:
        layers_LND: float16, on disk.
    """

    layers_LND: np.ndarray

    def __len__(self) -> int:
        """N."""
        return self.layers_LND.shape[1]

    def row(self, row: Row) -> np.ndarray:
        """(N, D) float32: the weighted sum of layers that the row stands for."""
        total_ND = np.zeros(self.layers_LND.shape[1:], np.float32)
        for layer_ND, weight in zip(self.layers_LND, row.weights, strict=True):
            if weight:
                total_ND += np.float32(weight) * layer_ND
        return total_ND


def one_span_a_word(sentences: Sequence[Sequence[str]]) -> list[Span]:
    """Every word of every sentence.

    Example:
        >>> one_span_a_word([["a", "b"], ["c"]])
        [Span(sentence=0, start=0, stop=1), Span(sentence=0, start=1, stop=2), Span(sentence=1, start=0, stop=1)]
    """
    return [Span(number, place, place + 1) for number, words in enumerate(sentences) for place in range(len(words))]


@contextmanager
def kept_in(folder: Path | None) -> Iterator[Path]:
    """The folder to keep vectors in, made if need be; without one, a temporary folder that goes away."""
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="elmo-probe-", ignore_cleanup_errors=True) as temporary:
            yield Path(temporary)  # Windows does not remove files that are still mapped
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise OutputError(f"{folder}: cannot be made a folder for vectors: {problem.strerror}") from problem
    yield folder


def freeze(source: Source, sentences: Sequence[Sequence[str]], spans: Sequence[Span], *, folder: Path) -> Frozen:
    """The vectors of spans, computed unless `folder` holds them.

    Arguments:
        source: what gives the vectors.
        sentences: lists of words.
        spans: in the order of their sentences.
        folder: where the array lies; its name is made from everything that could change it.
    """
    assert all(one.sentence <= other.sentence for one, other in pairwise(spans))
    shape = (source.num_layers, len(spans), source.dim)
    if not spans:
        return Frozen(np.zeros(shape, np.float16))
    name = hashlib.sha256(json.dumps([source.key, sentences, spans], ensure_ascii=False).encode()).hexdigest()[:24]
    path, note = folder / f"{name}.f16", folder / f"{name}.json"
    try:
        done = _sentences_done(path, note, shape)
        if done == 0:
            _reserve(path, shape)
        if done < len(sentences):
            layers_LND = np.memmap(path, np.float16, "r+", shape=shape)
            _fill(layers_LND, source, sentences, spans, done=done, note=note)
    except OSError as problem:
        raise OutputError(f"{folder}: the vectors cannot be kept there: {problem.strerror or problem}") from problem
    return Frozen(np.memmap(path, np.float16, "r", shape=shape))


def _reserve(path: Path, shape: tuple[int, ...]) -> None:
    """Take the room on the disk now: a full one, met while writing to mapped memory, would end the process."""
    with path.open("wb") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, 2 * math.prod(shape))
        else:
            file.truncate(2 * math.prod(shape))


def _sentences_done(path: Path, note: Path, shape: tuple[int, ...]) -> int:
    try:
        done = int(json.loads(note.read_text(encoding="utf-8"))["sentences"])
        return done if path.stat().st_size == 2 * math.prod(shape) else 0
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def _fill(
    layers_LND: np.memmap,
    source: Source,
    sentences: Sequence[Sequence[str]],
    spans: Sequence[Span],
    *,
    done: int,
    note: Path,
) -> None:
    from tqdm import tqdm

    place = sum(span.sentence < done for span in spans)
    with tqdm(total=len(sentences), initial=done, unit=" sentences", disable=None, leave=False) as bar:
        for begin in range(done, len(sentences), BLOCK):
            end = min(begin + BLOCK, len(sentences))
            block = _spans_before(end, spans, place)
            wanted = sorted({span.sentence for span in block})  # a sentence without spans need not be read
            arrays = dict(
                zip(wanted, source.layers([sentences[number] for number in wanted]), strict=True) if wanted else ()
            )
            for span in block:
                vectors_LD = arrays[span.sentence][:, span.start : span.stop].mean(axis=1)
                if not np.abs(vectors_LD).max(initial=0) < LARGEST:
                    raise InputError(
                        f"the vectors of {' '.join(sentences[span.sentence][span.start : span.stop])!r} are too large "
                        "or not numbers: is the model whole?"
                    )
                layers_LND[:, place] = vectors_LD
                place += 1
            layers_LND.flush()
            replace_text(note, json.dumps({"sentences": end}))
            bar.update(end - begin)


def _spans_before(end: int, spans: Sequence[Span], place: int) -> list[Span]:
    stop = place
    while stop < len(spans) and spans[stop].sentence < end:
        stop += 1
    return list(spans[place:stop])
