"""AllenNLP's `Elmo`, `batch_to_ids` and `ElmoEmbedder`, with their signatures: an old script changes its import line.

AllenNLP need not be installed. As in the original, state is carried from batch to batch, row by row, and so the numbers
are the original's (≤ 1e-5); `state="zero"` gives a sentence the same vectors every time. What the originals did wrong
and is right here stands in docs/how-to/coming-from-other-libraries.md.

Shapes: B sentences, W words of the longest, L layers, D width of a layer.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, TypedDict

import numpy as np
import torch
from torch import Tensor, nn

from elmokit import model
from elmokit.embed.embedder import Embedder
from elmokit.embed.inputs import check_tokenised
from elmokit.errors import InputError
from elmokit.io.allennlp import load_allennlp_files
from elmokit.io.checkpoint import Checkpoint
from elmokit.nn.bilm import BilmState
from elmokit.nn.scalar_mix import ScalarMix
from elmokit.reading.encoder import StateMode

__all__ = ["Elmo", "ElmoEmbedder", "ElmoOutput", "batch_to_ids"]

DEFAULT_BATCH_SIZE = 64


class ElmoOutput(TypedDict):
    """What `Elmo` gives back: `num_output_representations` tensors (…, W, D), and (…, W), true where a word is."""

    elmo_representations: list[Tensor]
    mask: Tensor


class Elmo(nn.Module):
    """`allennlp.modules.elmo.Elmo`.

    Arguments:
        options_file: the path of the model's `options.json`, whatever it is called.
        weight_file: the path of its hdf5 file.
        num_output_representations: independent mixes of the same layers.
        requires_grad: whether the biLM itself learns; the mixes always do.
        do_layer_norm: normalise each layer over the batch before mixing.
        dropout: applied to each mix while training.
        vocab_to_cache: the words that `word_inputs` counts; the first stands for padding.
        keep_sentence_boundaries: leave the vectors of the sentence boundaries in the output.
        scalar_mix_parameters: fixed weights of the layers before the softmax, for every mix.
        module: not taken; a biLM of one's own goes to no file of this library.
        state: `"carry"`, as in the original, or `"zero"`, where no batch depends on the one before.
    """

    def __init__(
        self,
        options_file: str | os.PathLike[str],
        weight_file: str | os.PathLike[str],
        num_output_representations: int,
        requires_grad: bool = False,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        vocab_to_cache: Sequence[str] | None = None,
        keep_sentence_boundaries: bool = False,
        scalar_mix_parameters: Sequence[float] | None = None,
        module: None = None,
        *,
        state: Literal["carry", "zero"] = "carry",
    ) -> None:
        super().__init__()
        if module is not None:
            raise InputError("module= is not taken here: give options_file and weight_file, or build elmokit.Elmo")
        if state not in ("carry", "zero"):
            raise InputError(f"asked for state={state!r}: use 'carry' or 'zero'")
        self.elmo = model.Elmo.from_checkpoint(
            _load(options_file, weight_file),
            num_mixes=num_output_representations,
            dropout=dropout,
            requires_grad=requires_grad,
            keep_boundaries=keep_sentence_boundaries,
            layer_norm=do_layer_norm,
        )
        if scalar_mix_parameters is not None:
            num_layers = self.elmo.config.num_layers
            self.elmo.mixes = nn.ModuleList(
                ScalarMix(num_layers, weights=scalar_mix_parameters, layer_norm=do_layer_norm, trainable=False)
                for _ in self.elmo.mixes
            )
        self.state = state
        self.carried_state: BilmState | None = None
        self._vocabulary_VC = None if vocab_to_cache is None else self._spell(vocab_to_cache)

    def get_output_dim(self) -> int:
        """D."""
        return self.elmo.config.dim

    def reset_states(self) -> None:
        """Forget what was read: every row starts from zero again."""
        self.carried_state = None

    def forward(self, inputs: Tensor | None, word_inputs: Tensor | None = None) -> ElmoOutput:
        """Mixes and mask of the sentences with these ids.

        Arguments:
            inputs: (…, W, 50), as `batch_to_ids` makes them.
            word_inputs: (…, W), places in `vocab_to_cache`, 0 for padding; they are read in place of `inputs`, unless
                one lies outside the vocabulary.
        """
        ids = self._find_ids(inputs, word_inputs)
        num_rows = ids.shape[:-2].numel()
        before = self.carried_state if self.state == "carry" else None
        out = self.elmo(ids, None if before is None else before.to(next(self.parameters())).resize(num_rows))
        if self.state == "carry":
            after = out.state.detach()
            waiting = None if before is None else before.split(num_rows)[1]
            self.carried_state = after if waiting is None else after.join(waiting.to(after.hidden))
        return {"elmo_representations": out.mixes, "mask": out.mask}

    def _find_ids(self, inputs: Tensor | None, word_inputs: Tensor | None) -> Tensor:
        table_VC = self._vocabulary_VC
        if (
            table_VC is not None
            and word_inputs is not None
            and (inputs is None or bool((word_inputs < len(table_VC)).all()))
        ):
            return table_VC.to(word_inputs.device)[word_inputs]
        if inputs is None:
            raise InputError("no ids came: pass batch_to_ids(sentences), or word_inputs with a vocab_to_cache")
        return inputs

    def _spell(self, words: Sequence[str]) -> Tensor:
        ids_VC = self.elmo.word_ids([words])[0]
        ids_VC[0] = 0
        return ids_VC


def batch_to_ids(batch: Sequence[Sequence[str]]) -> Tensor:
    """Ids (B, W, 50) of tokenised sentences, 0 where no word is.

    Example:
        >>> batch_to_ids([["First", "sentence", "."], ["Another", "."]]).shape
        torch.Size([2, 3, 50])
    """
    return model.word_ids(batch)


class ElmoEmbedder:
    """`allennlp.commands.elmo.ElmoEmbedder`: tokenised sentences in, arrays of all layers out.

    Arguments:
        options_file: the path of the model's `options.json`, whatever it is called.
        weight_file: the path of its hdf5 file.
        cuda_device: the number of a GPU; -1 for the CPU.
        state: `"carry"`, as in the original, or `"zero"`, where a sentence has the same vectors every time.
    """

    def __init__(
        self,
        options_file: str | os.PathLike[str] | None = None,
        weight_file: str | os.PathLike[str] | None = None,
        cuda_device: int = -1,
        *,
        state: StateMode = "carry",
    ) -> None:
        elmo = model.Elmo.from_checkpoint(_load(options_file, weight_file))
        self.cuda_device = cuda_device
        self.embedder = Embedder(elmo, device="cpu" if cuda_device < 0 else f"cuda:{cuda_device}", state=state)

    def embed_sentence(self, sentence: Sequence[str]) -> np.ndarray:
        """All layers (L, W, D) of one tokenised sentence."""
        return self.embed_batch([sentence])[0]

    def embed_batch(self, batch: Sequence[Sequence[str]]) -> list[np.ndarray]:
        """All layers (L, words, D) of each of the tokenised sentences, which are read as one batch."""
        check_tokenised(batch)
        if len(batch) == 1 and not batch[0]:  # the original does not read it, and its state stays as it was
            return [np.zeros((self.embedder.num_layers, 0, self.embedder.dim), np.float32)]
        return self.embedder.embed(batch, layers="all", batch_size=max(1, len(batch)))

    def embed_sentences(
        self, sentences: Iterable[Sequence[str]], batch_size: int = DEFAULT_BATCH_SIZE
    ) -> Iterator[np.ndarray]:
        """All layers (L, words, D) of each of the tokenised sentences, read in batches of so many."""
        batch: list[Sequence[str]] = []
        for sentence in sentences:
            batch.append(sentence)
            if len(batch) == batch_size:
                yield from self.embed_batch(batch)
                batch = []
        if batch:
            yield from self.embed_batch(batch)

    def batch_to_embeddings(self, batch: Sequence[Sequence[str]]) -> tuple[Tensor, Tensor]:
        """All layers (B, L, W, D) of the tokenised sentences, zero where no word is, and the mask (B, W)."""
        arrays = self.embed_batch(batch)
        lengths_B = torch.tensor([array.shape[1] for array in arrays])
        width = int(lengths_B.max()) if arrays else 0
        layers_BLWD = torch.zeros(len(arrays), self.embedder.num_layers, width, self.embedder.dim)
        for row_LWD, array in zip(layers_BLWD, arrays, strict=True):
            row_LWD[:, : array.shape[1]] = torch.from_numpy(array)
        mask_BW = torch.arange(width) < lengths_B.unsqueeze(1)
        return layers_BLWD.to(self.embedder.device), mask_BW.to(self.embedder.device)


def _load(options_file: str | os.PathLike[str] | None, weight_file: str | os.PathLike[str] | None) -> Checkpoint:
    for given, what, ending in ((options_file, "options_file", "options.json"), (weight_file, "weight_file", "*.hdf5")):
        if given is None:
            raise InputError(
                f"no {what} came: AllenNLP's own default was a download that is gone; "
                f"give the path of a model's {ending}"
            )
        if "://" in os.fspath(given):
            raise InputError(
                f"{what} is the address {given}: nothing is downloaded here; fetch the file and give its path"
            )
        if not Path(given).is_file():
            raise InputError(
                f"{what} is {os.fspath(given)!r}: expected the path of a model's {ending}, found no such file"
            )
    assert options_file is not None and weight_file is not None
    return load_allennlp_files(Path(options_file), Path(weight_file))
