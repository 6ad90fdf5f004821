"""Vectors of spans, computed once and kept on disk, so that every mix of every probe reads the same pass.

Arrives: a source, sentences, and the spans that are wanted of them (a word, or the words of an expression). Leaves: a
`Frozen`, a memory-mapped float16 array (layers, spans, dim), one vector per span, the mean of its words. In a folder
that is kept, a pass that was stopped continues where it stopped, and one that is complete is not run again.

Shapes: L layers, N spans, W words, D width.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import tempfile
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from elmokit.embed.layers import check_float16
from elmokit.errors import OutputError
from elmokit.io.atomic import replace_text
from elmokit.io.locks import lock_output
from elmokit.probe.sources import LayerMix, VectorSource
from elmokit.waits import show_progress

__all__ = ["Frozen", "WordSpan", "each_mix", "freeze", "open_folder", "span_every_word"]

BLOCK = 1024  # sentences between two notes of how far a pass has come


class WordSpan(NamedTuple):
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

    def mix(self, mix: LayerMix) -> np.ndarray:
        """(N, D) float32: the weighted sum of layers; layers of factor 0 are not read from the disk."""
        total_ND = np.zeros(self.layers_LND.shape[1:], np.float32)
        for layer_ND, factor in zip(self.layers_LND, mix.factors, strict=True):
            if factor:
                total_ND += np.float32(factor) * layer_ND
        return total_ND


def span_every_word(sentences: Sequence[Sequence[str]]) -> list[WordSpan]:
    """Every word of every sentence.

    Example:
        >>> span_every_word([["a"], ["b"]])
        [WordSpan(sentence=0, start=0, stop=1), WordSpan(sentence=1, start=0, stop=1)]
    """
    return [WordSpan(number, place, place + 1) for number, words in enumerate(sentences) for place in range(len(words))]


@contextmanager
def open_folder(folder: Path | None) -> Iterator[Path]:
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


def freeze(
    source: VectorSource, sentences: Sequence[Sequence[str]], spans: Sequence[WordSpan], *, folder: Path
) -> Frozen:
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
    said = json.dumps([source.key, sentences, spans], ensure_ascii=False)
    name = hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:24]  # JSON may hold half a character
    path, note = folder / f"{name}.f16", folder / f"{name}.json"
    try:
        if _sentences_done(path, note, shape) < len(sentences):
            with lock_output(path, waits=True):  # another probe may be about to compute the same
                done = _sentences_done(path, note, shape)
                if done == 0:
                    note.unlink(missing_ok=True)  # of vectors that are gone: it would speak for the empty file
                    _reserve(path, shape)
                if done < len(sentences):
                    layers_LND = np.memmap(path, np.float16, "r+", shape=shape)
                    _fill(layers_LND, source, sentences, spans, done=done, note=note)
    except OSError as problem:
        raise OutputError(f"{folder}: the vectors cannot be kept there: {problem.strerror or problem}") from problem
    return Frozen(np.memmap(path, np.float16, "r", shape=shape))


def each_mix(
    sources: Sequence[VectorSource],
    parts: Sequence[tuple[Sequence[Sequence[str]], Sequence[WordSpan]]],
    *,
    folder: Path,
) -> Iterator[tuple[VectorSource, str, list[np.ndarray]]]:
    """Every mix of every source: the source, the mix's name, and the vectors (N, D) of each part.

    Arguments:
        sources: what to probe.
        parts: sentences with their spans, such as those to learn from and those to be scored on.
        folder: where the vectors are kept.
    """
    for source in sources:
        frozen = [freeze(source, sentences, spans, folder=folder) for sentences, spans in parts]
        for mix in show_progress(source.mixes, desc="probing", unit=" rows", leave=False):
            yield source, mix.name, [part.mix(mix) for part in frozen]


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
    source: VectorSource,
    sentences: Sequence[Sequence[str]],
    spans: Sequence[WordSpan],
    *,
    done: int,
    note: Path,
) -> None:
    sentence_of = attrgetter("sentence")
    place = bisect_left(spans, done, key=sentence_of)
    with show_progress(desc="reading", total=len(sentences), initial=done, unit=" sentences", leave=False) as bar:
        for begin in range(done, len(sentences), BLOCK):
            end = min(begin + BLOCK, len(sentences))
            block = spans[place : bisect_left(spans, end, key=sentence_of)]
            wanted = sorted({span.sentence for span in block})  # a sentence without spans need not be read
            arrays = dict(
                zip(wanted, source.layers([sentences[number] for number in wanted]), strict=True) if wanted else ()
            )
            for span in block:
                vectors_LD = arrays[span.sentence][:, span.start : span.stop].mean(axis=1)
                words = " ".join(sentences[span.sentence][span.start : span.stop])
                check_float16(vectors_LD, f"the vectors of {words!r}", advice="is the model, or the file, whole?")
                layers_LND[:, place] = vectors_LD
                place += 1
            layers_LND.flush()
            replace_text(note, json.dumps({"sentences": end}))
            bar.update(end - begin)
