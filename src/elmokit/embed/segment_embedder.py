"""The vectors of a segment: what a whole-file job computes, without a step that is taken word by word in Python.

Arrives: a `Segment`, in which each distinct word stands once. Leaves: one array of vectors, in the order of the input
and in the dtype of the output. Distinct words are encoded once per segment; sentences are sorted by length and read in
batches (on a GPU by recorded passes, `recorded.py`); each batch puts its vectors where they belong in the segment's
array, which lies on the model's device. From a GPU the whole array is copied to pinned memory in a stream of its own,
so that the next segment is computed meanwhile; `PendingVectors` waits for it, in whichever thread needs the numbers.

Shapes: R rows, N words of the segment, n words of a batch, T its positions with boundaries, U distinct words, P width
of a direction, D = 2P.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from elmokit.devices import move_to_device
from elmokit.embed.batches import read_layers
from elmokit.embed.embedder import Embedder
from elmokit.embed.layers import Layers, refuse_overflow
from elmokit.embed.parts import Part
from elmokit.embed.recorded import RecordedReader
from elmokit.embed.segments import Segment
from elmokit.embed.sinks import Contents
from elmokit.nn.bilm import BilmState
from elmokit.nn.packing import NUM_BOUNDARIES, BoundedText, add_boundaries, join_ranges
from elmokit.reading.batching import choose_budget
from elmokit.reading.encoder import BEGIN, END

__all__ = ["PendingVectors", "SegmentEmbedder"]


class PendingVectors:
    """Vectors that may still be on their way from a GPU.

    Arguments:
        vectors: (N, D) or (N, K, D) on the device, in the dtype of the output.
        largest: of all numbers in it before they were converted, without their signs.
        copier: the stream that copies them; `None` on a CPU.
    """

    def __init__(self, vectors: Tensor, largest: Tensor, copier: torch.cuda.Stream | None) -> None:
        self._event: torch.Event | None = None
        if copier is not None:
            copier.wait_stream(torch.cuda.current_stream(vectors.device))
            with torch.cuda.stream(copier):
                on_device = vectors, largest
                vectors, largest = (tensor.to("cpu", non_blocking=True) for tensor in on_device)
                for tensor in on_device:  # its memory is not given to anybody before the copy is done
                    tensor.record_stream(copier)
                self._event = copier.record_event()
        self._vectors, self._largest = vectors, largest

    def wait(self) -> np.ndarray:
        """The vectors; an `InputError` if their dtype cannot hold one of them."""
        if self._event is not None:
            self._event.synchronize()
        if self._vectors.dtype == torch.float16:
            refuse_overflow(float(self._largest))
        return self._vectors.numpy()


class SegmentEmbedder:
    """Embeds the segments of a job one after the other.

    It has a cache and, in carry mode, a state of its own, so that neither depends on what else is going on.

    Arguments:
        embedder: the model and how it is run.
        layers: as for `Embedder.embed`.
        batch_size: as for `Embedder.embed`.
        contents: of the output.
    """

    def __init__(self, embedder: Embedder, layers: Layers, batch_size: int | None, contents: Contents) -> None:
        # Where a word's bits depend on the words beside it, a resumed run must not find it computed in other company.
        cache_words = embedder.cache_words if embedder.elmo.encoder.is_batch_invariant else 0
        self._embedder = Embedder(embedder.elmo, state=embedder.state, cache_words=cache_words)
        self._layers, self._batch_size, self._contents = layers, batch_size, contents
        device = embedder.device
        self._copier = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._recorder: RecordedReader | None = None
        if RecordedReader.suits(embedder.elmo) and embedder.state != "carry" and batch_size is None:
            start = embedder.elmo.canonical_state if embedder.state == "canonical" else None
            self._recorder = RecordedReader(embedder.elmo, layers, start, choose_budget(device.type))

    def restore(self, part: Part) -> None:
        """Continue from the state at the end of a part."""
        if "hidden" in part:
            parts = (torch.from_numpy(part.array(name).copy()) for name in ("hidden", "cell"))
            self._embedder.carried_state = BilmState(*(tensor.to(self._embedder.device) for tensor in parts))

    def keep_state(self) -> dict[str, np.ndarray]:
        """What `restore` needs, after the segment embedded last."""
        state = self._embedder.carried_state
        return {} if state is None else {"hidden": state.hidden.cpu().numpy(), "cell": state.cell.cpu().numpy()}

    def embed(self, segment: Segment, report: Callable[[float], None]) -> PendingVectors:
        """The vectors of a segment.

        Arguments:
            segment: its rows.
            report: called with the part of the words that is done, after every batch.
        """
        embedder = self._embedder
        with embedder.encoder.spare_threads():
            sheet = _Sheet(embedder, segment, self._layers, self._contents, self._recorder)
            num_done, lengths_R = 0, segment.lengths_R
            if self._recorder is not None:
                lengths_R = self._recorder.round_up(lengths_R + NUM_BOUNDARIES) - NUM_BOUNDARIES
            for rows in embedder.plan_batches(lengths_R.tolist(), self._batch_size):
                embedder.read_batch(sheet.read, rows, count_words=lambda row: int(segment.lengths_R[row]))
                num_done += int(segment.lengths_R[rows].sum())
                report(num_done / max(1, segment.num_words))
        return PendingVectors(sheet.vectors, sheet.largest, self._copier)


class _Sheet:
    """The vectors of a segment while its batches fill them in.

    Attributes:
        vectors: (N, D) or (N, K, D) in the dtype of the output.
        largest: of all numbers so far, without their signs, where float16 may not hold it.
    """

    def __init__(
        self,
        embedder: Embedder,
        segment: Segment,
        layers: Layers,
        contents: Contents,
        recorder: RecordedReader | None,
    ) -> None:
        self._elmo, self._layers, self._contents, self._recorder = embedder.elmo, layers, contents, recorder
        self._device, self._keeps_state = embedder.device, embedder.state == "carry"
        dtype = getattr(torch, contents.dtype)
        self.vectors = torch.zeros(segment.num_words, *contents.word_shape, dtype=dtype, device=self._device)
        self.largest = torch.zeros((), device=self._device)
        self._vectors_UP = embedder.encoder.encode_distinct(segment.words)
        self._numbers_N = segment.numbers_N + NUM_BOUNDARIES
        self._lengths_R, self._offsets = segment.lengths_R, segment.offsets

    def read(self, rows: Sequence[int], state: BilmState | None) -> tuple[list[None], BilmState]:
        """Read these rows and fill in their vectors."""
        lengths_B = self._lengths_R[rows]
        places_n = join_ranges(self._offsets[rows], lengths_B)
        words_T, starts_B = add_boundaries(self._numbers_N[places_n], lengths_B, begin=BEGIN, end=END)
        text = BoundedText(self._vectors_UP, words_T, starts_B, lengths_B + NUM_BOUNDARIES)
        chosen, after = self._read_text(text, state)
        places_n = move_to_device(places_n, self._device)
        for number, words_nD in enumerate(chosen):
            if len(words_nD) and self.vectors.dtype == torch.float16:
                self.largest = torch.maximum(self.largest, words_nD.abs().amax())
            place = self.vectors if self._contents.num_layers is None else self.vectors[:, number]
            place.index_copy_(0, places_n, words_nD.to(place.dtype))
        return [], after

    def _read_text(self, text: BoundedText, state: BilmState | None) -> tuple[list[Tensor], BilmState]:
        """The layers asked for (n, D) of the words of a text, and the state after its sentences, where it is kept."""
        if self._recorder is not None and self._recorder.takes(text.lengths_B):
            recorded = self._recorder.read(text)
            if recorded is not None:
                return recorded, BilmState.zeros(self._elmo.config.lstm, 0, like=self._vectors_UP)
        layers, after = read_layers(self._elmo, text, self._layers, state, keeps_state=self._keeps_state)
        positions_n = join_ranges(text.starts_B + 1, text.lengths_B - NUM_BOUNDARIES)
        positions_n = move_to_device(positions_n, self._device)
        return [layer_TD[positions_n] for layer_TD in layers], after
