"""One batch of tokenised sentences through the model: words in, numpy arrays out.

Arrives: the words of each row, the layers wanted, and the state to start from. Leaves: one array a row and the state
after it. Each distinct word is looked up in the cache or encoded once; both directions read those vectors packed, each
in its own order; only the layers asked for are put together. A batch that does not fit into memory is run in halves.

Shapes: B rows, N words of all rows with boundaries, U distinct words, C columns of ids, P width of a direction, D = 2P,
K layers asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from elmokit.devices import is_out_of_memory
from elmokit.embed.batching import NUM_BOUNDARIES
from elmokit.embed.cache import Word, WordCache
from elmokit.embed.layers import Layers, chosen_layers
from elmokit.embed.packing import Packing
from elmokit.engines.kernels.cpu import torch_alone
from elmokit.errors import EngineError
from elmokit.model import Elmo
from elmokit.nn.bilm import BilmState

__all__ = ["BatchReader", "joined_rows", "rows_from"]


class BatchReader:
    """A model with a cache of word vectors before it.

    Arguments:
        elmo: the model, in evaluation mode.
        cache_words: words whose context-free vectors are remembered; 0 for none.
    """

    def __init__(self, elmo: Elmo, *, cache_words: int) -> None:
        self.elmo = elmo
        self.cache = WordCache(cache_words)
        self._boundaries_2P: Tensor | None = None

    def clear_cache(self) -> None:
        """Forget every word vector, those of the sentence boundaries included."""
        self.cache.clear()
        self._boundaries_2P = None

    def empty(self, layers: Layers) -> np.ndarray:
        """The array of a sentence without words."""
        config = self.elmo.config
        return np.zeros((config.num_layers, 0, config.dim) if layers == "all" else (0, config.dim), np.float32)

    def read(
        self, sentences: Sequence[Sequence[Word]], layers: Layers, state: BilmState | None
    ) -> tuple[list[np.ndarray], BilmState | None]:
        """One batch, or its two halves when the memory does not hold it; rows do not see each other, so both agree."""
        try:
            with torch_alone() if self._is_compiled else nullcontext():
                return self._run(sentences, layers, state)
        except (MemoryError, RuntimeError) as problem:
            if not is_out_of_memory(problem):
                raise
            reason = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
        # Only here, past the `except`, are the tensors of the failed attempt free.
        if self.elmo.device.type == "cuda":
            torch.cuda.empty_cache()
        if len(sentences) == 1:
            raise EngineError(
                f"out of memory on {self.elmo.device} with a single sentence of {len(sentences[0])} words ({reason}): "
                "split the sentence, or compute where there is more memory"
            )
        half = len(sentences) // 2
        first_rows = None if state is None else state.rows(half)
        first, first_state = self.read(sentences[:half], layers, first_rows)
        second, second_state = self.read(sentences[half:], layers, rows_from(state, half))
        return first + second, joined_rows(first_state, second_state)

    @torch.inference_mode()
    def _run(
        self, sentences: Sequence[Sequence[Word]], layers: Layers, state: BilmState | None
    ) -> tuple[list[np.ndarray], BilmState | None]:
        # A sentence without words still has its boundaries; in carry mode its row reads them, as in AllenNLP.
        lengths_B = np.fromiter(map(len, sentences), np.int64, len(sentences)) + NUM_BOUNDARIES
        packing = Packing(lengths_B)
        table_UP, numbers_N = self._word_vectors(sentences, packing.starts_B, lengths_B)
        places = [self._on_device(places_N) for places_N in (packing.forward_N, packing.backward_N)]
        words = [table_UP[self._on_device(numbers_N[each])] for each in (packing.forward_N, packing.backward_N)]
        outputs, after = self._read_packed(words, packing, state)
        chosen_KND = self._end_to_end([words, *outputs], places, layers).cpu().numpy()
        # Copies, so that keeping one sentence does not keep its whole batch in memory.
        spans = zip((packing.starts_B + 1).tolist(), (packing.starts_B + lengths_B - 1).tolist(), strict=True)
        arrays = [chosen_KND[:, start:end].copy() for start, end in spans]
        return arrays if layers == "all" else [array[0] for array in arrays], after

    def _read_packed(
        self, words: Sequence[Tensor], packing: Packing, state: BilmState | None
    ) -> tuple[list[list[Tensor]], BilmState]:
        """The outputs of both directions for each LSTM layer, and the state after each row in the caller's order."""
        bilm, num_rows = self.elmo.bilm, len(packing.order_B)
        words = [each.to(next(bilm.parameters()).dtype) for each in words]
        if state is None:
            state = BilmState.zeros(bilm.config, num_rows, like=words[0])
        elif num_rows > 1:
            state = state.reorder(self._on_device(packing.order_B))
        with torch.autocast(words[0].device.type, enabled=False):  # see Elmo.read
            outputs, after = bilm.read_packed(words, packing.batch_sizes, state.to(words[0]))
        return outputs, after.reorder(self._on_device(packing.order_B.argsort())) if num_rows > 1 else after

    def _end_to_end(self, layers: Sequence[Sequence[Tensor]], places: Sequence[Tensor], choice: Layers) -> Tensor:
        """The chosen layers (K, N, D) of the words in the order of the text, out of those of both directions."""
        halves = [chosen_layers(half, choice, mix=self.elmo.stored_mix) for half in zip(*layers, strict=True)]
        num_words, width = halves[0][0].shape
        chosen_KND = halves[0][0].new_empty(len(halves[0]), num_words, 2 * width)
        for direction, (half, places_N) in enumerate(zip(halves, places, strict=True)):
            columns = slice(direction * width, (direction + 1) * width)
            for number, layer_NP in enumerate(half):
                chosen_KND[number, :, columns].index_copy_(0, places_N, layer_NP)
        return chosen_KND

    def _word_vectors(
        self, sentences: Sequence[Sequence[Word]], starts_B: np.ndarray, lengths_B: np.ndarray
    ) -> tuple[Tensor, np.ndarray]:
        """A table (U, P) of the boundaries and the distinct words, and the row of each word end to end (N,)."""
        begin, end, first_word = range(3)
        running = list(chain.from_iterable(sentences))
        distinct = list(dict.fromkeys(running))
        numbers = dict(zip(distinct, range(first_word, first_word + len(distinct)), strict=True))
        numbers_N = np.full(len(running) + NUM_BOUNDARIES * len(sentences), -1, np.int64)
        numbers_N[starts_B] = begin
        numbers_N[starts_B + lengths_B - 1] = end
        numbers_N[numbers_N < 0] = np.fromiter(map(numbers.__getitem__, running), np.int64, len(running))
        boundaries_2P = self._boundary_vectors()
        if not distinct:
            return boundaries_2P, numbers_N
        return torch.cat([boundaries_2P, self.cache.vectors(distinct, self._encode_words)]), numbers_N

    @property
    def _is_compiled(self) -> bool:
        """Whether nearly all is computed by C++ kernels, which bring threads of their own."""
        return self.elmo.bilm.engine.name in ("cpu", "int8") and self.elmo.encoder.is_row_by_row

    def _on_device(self, places: np.ndarray) -> Tensor:
        return torch.from_numpy(places).to(self.elmo.device)

    def _encode_words(self, words: Sequence[Word]) -> Tensor:
        if self.elmo.encoder.is_row_by_row:
            return self._encoded(words)
        # Words of like length go through the convolutions together, which then skip the columns no word reaches.
        order = sorted(range(len(words)), key=lambda place: len(str(words[place])))
        sorted_UP = self._encoded([words[place] for place in order])
        back_U = torch.tensor(np.argsort(np.array(order)), device=sorted_UP.device)
        return sorted_UP[back_U]

    def _encoded(self, words: Sequence[Word]) -> Tensor:
        ids_UC = torch.from_numpy(self.elmo.scheme.word_ids(words))  # type: ignore[arg-type]
        return self.elmo.encode_words(ids_UC.to(self.elmo.device))

    def _boundary_vectors(self) -> Tensor:
        boundaries_2P = self._boundaries_2P
        if boundaries_2P is None:
            boundaries_2P = self.elmo.encode_words(torch.stack(self.elmo.boundary_ids))
            self._boundaries_2P = boundaries_2P
        return boundaries_2P


def rows_from(state: BilmState | None, first: int) -> BilmState | None:
    """The rows from `first` on, `None` when there are none."""
    if state is None or state.num_rows <= first:
        return None
    return BilmState(state.hidden[:, :, first:], state.cell[:, :, first:])


def joined_rows(first: BilmState | None, second: BilmState | None) -> BilmState | None:
    """The rows of both, `None` standing for no rows."""
    if first is None or second is None:
        return first if second is None else second
    return BilmState(*(torch.cat(parts, dim=2) for parts in zip(first, second, strict=True)))
