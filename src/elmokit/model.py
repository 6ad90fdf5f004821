"""Elmo: character ids in, layers and their mixes out; the module that goes into your own model.

Arrives: ids (…, W, C) from `word_ids`, 0 where no word is. Leaves: an `ElmoOutput` with all layers, the mixes, the mask
and the state. On the way: every distinct word is encoded once, the sentence boundaries are put around each sentence,
both stacks read it, the boundaries are taken off again. The module holds no memory between calls: state comes in and
goes out as a value, so one model serves several threads.

Shapes: B batch (all leading dimensions together), W words, C columns of ids, P width of a direction, D = 2P,
L LSTM layers.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elmokit import io
from elmokit.config import ElmoConfig
from elmokit.devices import move_to_device
from elmokit.engines.precision import PrecisionName, check_precision
from elmokit.errors import InputError, describe
from elmokit.nn.bilm import BiLM, BilmState
from elmokit.nn.packing import NUM_BOUNDARIES, BoundedText, add_boundaries
from elmokit.nn.scalar_mix import ScalarMix
from elmokit.nn.word_encoder import WordEncoder, find_distinct_rows, join
from elmokit.text.characters import ByteScheme, Scheme, make_scheme

__all__ = ["CANONICAL_SENTENCES", "Elmo", "ElmoOutput", "word_ids"]

# Read once, in one row, from zero: the state after them is the `canonical` one of a model that stores none.
# Plain sentences of everyday prose; changing them changes every canonical vector, so they are never changed.
CANONICAL_SENTENCES = (
    "The morning was cold and clear , and the streets were still empty .",
    "She opened the window and looked out over the roofs of the town .",
    "Several people were waiting for the train when we arrived .",
    "The company said on Monday that it would open two new offices this year .",
    "He had never seen the sea before , and he stood there for a long time .",
    "In 1998 , the government began to build a bridge across the river .",
    "What do you think they will say when they hear about it ?",
    "Most of the work was done by hand , and it took more than three years .",
    "It was not the first time that the two teams had met .",
    "The book was published in London and sold about 5,000 copies .",
    '" I do n\'t know , " he said , " but I will try to find out . "',
    "After the war , the family moved to a small house near the station .",
)

# Words that go through the convolutions together when nothing is learned: bounds the memory of a large batch. A GPU has
# more of it, and spends most of the time of a small part on launching its kernels.
WORDS_AT_A_TIME, WORDS_AT_A_TIME_ON_GPU = 512, 8192


class ElmoOutput(NamedTuple):
    """What `Elmo` gives back.

    Arguments:
        layers: (L+1, …, W, D), layer 0 being the context-free word vector twice.
        mixes: `num_mixes` tensors (…, W, D), dropout applied.
        mask: (…, W), true where a word is.
        state: the state after each row's last word, to hand to the next call.
    """

    layers: Tensor
    mixes: list[Tensor]
    mask: Tensor
    state: BilmState


class Elmo(nn.Module):
    """The biLM with its mixes, as an `nn.Module`.

    Arguments:
        config: the sizes of the network.
        alphabet: the symbols of a Unicode-character model.
        vocabulary: the words of a word-input model; without one its words are row numbers.
        swaps_markers: whether words start with the end-of-word symbol, as in ELMoForManyLangs.
        scheme: what numbers the words; made of the config, the alphabet and the vocabulary if not given.
        num_mixes: independent mixes of the same layers, say one for the input and one for the output of your model.
        dropout: applied to each mix while training.
        requires_grad: whether the biLM itself learns; the mixes always do.
        keep_boundaries: leave the vectors of the sentence boundaries in the output, two more per sentence.
        layer_norm: normalise each layer over the batch before mixing (off in the paper's models).

    Example:
        >>> elmo = Elmo.random(ElmoConfig.tiny(), num_mixes=2)
        >>> out = elmo(word_ids([["the", "bank"], ["hello"]]))
        >>> out.layers.shape, out.mixes[1].shape, out.mask.tolist()
        (torch.Size([3, 2, 2, 128]), torch.Size([2, 2, 128]), [[True, True], [True, False]])
    """

    def __init__(
        self,
        config: ElmoConfig,
        *,
        alphabet: Sequence[str] | None = None,
        vocabulary: Sequence[str] | None = None,
        swaps_markers: bool = False,
        scheme: Scheme | None = None,
        num_mixes: int = 1,
        dropout: float = 0.5,
        requires_grad: bool = False,
        keep_boundaries: bool = False,
        layer_norm: bool = False,
    ) -> None:
        super().__init__()
        self.config = config
        self.alphabet = None if alphabet is None else list(alphabet)
        self.vocabulary = None if vocabulary is None else list(vocabulary)
        self.swaps_markers = swaps_markers
        self.scheme = scheme or make_scheme(config, alphabet, vocabulary, swaps_markers=swaps_markers)
        self.keep_boundaries = keep_boundaries
        self.encoder = WordEncoder(config)
        self.bilm = BiLM(config.lstm)
        self.mixes = nn.ModuleList(ScalarMix(config.num_layers, layer_norm=layer_norm) for _ in range(num_mixes))
        self.dropout = nn.Dropout(dropout)
        self.scripts: tuple[str, ...] = ()  # that its training text was written in, where that is known
        self._stored_mix: tuple[ScalarMix, ...] = ()  # in a tuple: no part of the module, its state or its parameters
        self._canonical_state: BilmState | None = None
        self.encoder.requires_grad_(requires_grad)
        self.bilm.requires_grad_(requires_grad)

    @classmethod
    def from_pretrained(
        cls,
        source: str | os.PathLike[str],
        *,
        num_mixes: int = 1,
        dropout: float = 0.5,
        requires_grad: bool = False,
        keep_boundaries: bool = False,
        layer_norm: bool = False,
        precision: PrecisionName = "float32",
    ) -> Elmo:
        """The model of a source: a model's name, a folder, a `.zip` or a hub id, in any of the known formats."""
        check_precision(precision, torch.device("cpu"))
        elmo = cls.from_checkpoint(
            io.load(source),
            num_mixes=num_mixes,
            dropout=dropout,
            requires_grad=requires_grad,
            keep_boundaries=keep_boundaries,
            layer_norm=layer_norm,
        )
        if precision != "float32":
            elmo.set_precision(precision)
        return elmo

    @classmethod
    def from_checkpoint(
        cls,
        checkpoint: io.Checkpoint,
        *,
        num_mixes: int = 1,
        dropout: float = 0.5,
        requires_grad: bool = False,
        keep_boundaries: bool = False,
        layer_norm: bool = False,
    ) -> Elmo:
        """The model of a checkpoint that `io.load` read; its tensors are taken over, not copied."""
        with torch.device("meta"):
            elmo = cls(
                checkpoint.config,
                alphabet=checkpoint.alphabet,
                vocabulary=checkpoint.vocabulary,
                swaps_markers=checkpoint.swaps_markers,
                num_mixes=0,
                dropout=dropout,
                requires_grad=requires_grad,
                keep_boundaries=keep_boundaries,
            )
        tensors = checkpoint.tensors
        weights = {name: value for name, value in tensors.items() if name.startswith(("encoder.", "bilm."))}
        elmo.load_state_dict(weights, assign=True)
        elmo.mixes.extend(ScalarMix(checkpoint.config.num_layers, layer_norm=layer_norm) for _ in range(num_mixes))
        elmo.scripts = tuple(checkpoint.metadata.get("scripts", "").replace(",", " ").split())
        if "mix.weights" in tensors:
            mix, gamma = tensors["mix.weights"].tolist(), float(tensors["mix.gamma"])
            elmo.store_mix(ScalarMix(len(mix), weights=mix, gamma=gamma, trainable=False))
        if "canonical.hidden" in tensors:
            state = BilmState(tensors["canonical.hidden"].unsqueeze(2), tensors["canonical.cell"].unsqueeze(2))
            elmo._canonical_state = state
        return elmo

    @classmethod
    def random(
        cls,
        config: ElmoConfig,
        *,
        seed: int = 0,
        alphabet: Sequence[str] | None = None,
        vocabulary: Sequence[str] | None = None,
        num_mixes: int = 1,
        dropout: float = 0.5,
        requires_grad: bool = False,
    ) -> Elmo:
        """An untrained model, the same for the same seed; the global random state is left alone."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return cls(
                config,
                alphabet=alphabet,
                vocabulary=vocabulary,
                num_mixes=num_mixes,
                dropout=dropout,
                requires_grad=requires_grad,
            )

    def save_pretrained(
        self,
        destination: str | os.PathLike[str],
        *,
        format: Literal["native", "allennlp"] = "native",
        dtype: Literal["float32", "float16", "int8"] = "float32",
        mix: int | None = None,
    ) -> None:
        """Write the model as a folder; `mix` names the mix that becomes the stored one (`layers="mix"`)."""
        io.save(self.to_checkpoint(mix=mix), destination, format=format, dtype=dtype)

    def push_to_hub(
        self,
        repo_id: str,
        *,
        metadata: dict[str, str] | None = None,
        dtype: Literal["float32", "float16", "int8"] = "float32",
        mix: int | None = None,
        private: bool | None = None,
        token: str | None = None,
    ) -> str:
        """Upload the model, with a card, to the hub; `from_pretrained(repo_id)` then loads it.

        Arguments:
            repo_id: `owner/name`; the repository is made if it does not exist.
            metadata: what the card says of the model: `name`, `description`, `license`, `language` and other facts.
            dtype: how weights are stored.
            mix: the mix that becomes the stored one, as for `save_pretrained`.
            private: of a new repository; the owner's default if not given.
            token: of the hub; the one of `hf auth login` if not given.
        """
        checkpoint = self.to_checkpoint(mix=mix)
        checkpoint.metadata |= metadata or {}
        return io.push(checkpoint, repo_id, dtype=dtype, private=private, token=token)

    def to_checkpoint(self, *, mix: int | None = None) -> io.Checkpoint:
        """The model as a config and named tensors, which `io.save` writes."""
        tensors = {f"encoder.{name}": value.detach() for name, value in self.encoder.state_dict().items()}
        tensors |= {f"bilm.{name}": value.detach() for name, value in self.bilm.state_dict().items()}
        stored = self.stored_mix if mix is None else self.mixes[mix]
        if stored is not None:
            tensors |= {f"mix.{name}": value.detach() for name, value in stored.state_dict().items()}
        if self._canonical_state is not None:
            tensors["canonical.hidden"] = self._canonical_state.hidden[:, :, 0]
            tensors["canonical.cell"] = self._canonical_state.cell[:, :, 0]
        return io.Checkpoint(
            self.config,
            tensors,
            alphabet=self.alphabet,
            swaps_markers=self.swaps_markers,
            vocabulary=self.vocabulary,
            metadata={"scripts": ", ".join(self.scripts)} if self.scripts else {},
        )

    def fingerprint(self) -> str:
        """A short hash of the config, the lists that words are numbered by, and all weights: equal for equal models."""
        digest = hashlib.blake2b(self.config.to_json().encode(), digest_size=16)
        lists = {"alphabet": self.alphabet, "vocabulary": self.vocabulary, "swaps_markers": self.swaps_markers}
        if any(lists.values()):  # models of bytes have none, and keep the hash that older versions gave them
            digest.update(json.dumps(lists).encode())
        for name, tensor in sorted(self.state_dict().items()):
            digest.update(name.encode())
            digest.update(memoryview(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()))
        return digest.hexdigest()

    @property
    def precision(self) -> str:
        """How exactly the biLM computes, that is `"int8"` or the dtype of its weights."""
        return "int8" if self.bilm.precision == "int8" else str(next(self.bilm.parameters()).dtype)[len("torch.") :]

    def set_precision(self, precision: PrecisionName) -> None:
        """Compute in float32, in bfloat16 (CUDA) or in int8 (CPU, inference only) from now on.

        bfloat16 rounds the weights where they are; going back to float32 does not bring the lost digits back. int8
        leaves them as they are. A precision that this device does not have is an `EngineError` that says why.
        """
        check_precision(precision, self.device)
        self.encoder.precision = self.bilm.precision = "int8" if precision == "int8" else "float32"
        dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
        self.encoder.to(dtype)
        self.bilm.to(dtype)

    @property
    def engine(self) -> str:
        """The engine that runs the LSTMs here, and why."""
        return str(self.bilm.engine)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.bilm.place[0]

    @property
    def boundary_ids(self) -> tuple[Tensor, Tensor]:
        """The ids (C,) of the words that begin and end every sentence."""
        begin, end = self.scheme.begin_ids, self.scheme.end_ids
        return torch.from_numpy(begin).to(self.device), torch.from_numpy(end).to(self.device)

    @property
    def stored_mix(self) -> ScalarMix | None:
        """The mix that came with the model, if any, or that `store_mix` was given; `layers="mix"` asks for it."""
        return self._stored_mix[0].to(self.device) if self._stored_mix else None

    def store_mix(self, mix: ScalarMix) -> None:
        """Make this the mix that is saved with the model."""
        self._stored_mix = (mix,)

    @property
    def canonical_state(self) -> BilmState:
        """The warmed state of one row that `state="canonical"` starts every sentence from."""
        if self._canonical_state is None:
            self._canonical_state = self._read_canonical_sentences()
        return self._canonical_state.to(next(self.parameters()))

    def word_ids(self, sentences: Sequence[Sequence[str]]) -> Tensor:
        """Ids (B, W, C) of tokenised sentences in this model's own scheme, 0 where no word is."""
        return torch.from_numpy(self.scheme.batch_ids(sentences)).to(self.device)

    def encode_words(self, ids_NC: Tensor) -> Tensor:
        """Context-free vectors (N, P) of the words with these ids.

        Ids on the host are trimmed there and sent, so that nobody waits for a GPU to look at them.
        """
        if torch.is_grad_enabled() and any(weight.requires_grad for weight in self.encoder.parameters()):
            return self.encoder(ids_NC)
        device = self.device
        most = WORDS_AT_A_TIME if device.type == "cpu" else WORDS_AT_A_TIME_ON_GPU
        chunks = [ids_NC] if ids_NC.shape[0] <= most else ids_NC.split(most)
        with torch.no_grad():
            if ids_NC.device == device:
                return join([self.encoder(chunk_NC) for chunk_NC in chunks])
            trimmed = (move_to_device(self.encoder.trim(chunk_NC), device) for chunk_NC in chunks)
            return join([self.encoder(chunk_NC, trim=False) for chunk_NC in trimmed])

    if TYPE_CHECKING:  # to a type checker, what calling an nn.Module gives is Any

        def __call__(self, ids: Tensor, state: BilmState | None = None) -> ElmoOutput:  # noqa: D102
            ...

    def forward(self, ids: Tensor, state: BilmState | None = None) -> ElmoOutput:
        """Layers, mixes, mask and state of sentences given as ids (…, W, C)."""
        ids_BWC, leading = self._flatten(ids)
        mask_BW, layers_LBWD, state = self._read(ids_BWC, state)
        bounded_mask_BW = F.pad(mask_BW, (2, 0), value=True)  # every sentence has two words more
        mixes = [mix(layers_LBWD, bounded_mask_BW) for mix in self.mixes]
        if self.keep_boundaries:
            mask_BW = bounded_mask_BW
        else:
            layers_LBWD = _remove_boundaries(layers_LBWD, mask_BW)
            mixes = [_remove_boundaries(mixed_BWD, mask_BW) for mixed_BWD in mixes]
        layers = layers_LBWD.unflatten(1, leading)
        mixes = [self.dropout(mixed_BWD).unflatten(0, leading) for mixed_BWD in mixes]
        return ElmoOutput(layers, mixes, mask_BW.unflatten(0, leading), state)

    def _read(self, ids_BWC: Tensor, state: BilmState | None) -> tuple[Tensor, Tensor, BilmState]:
        """Which ids are words (B, W); all layers (L+1, B, W+2, D) of the sentences and their boundaries; the state."""
        mask_BW = (ids_BWC > 0).any(dim=2)
        lengths_B = mask_BW.sum(dim=1)
        if not torch.equal(mask_BW, torch.arange(mask_BW.shape[1], device=ids_BWC.device) < lengths_B.unsqueeze(1)):
            raise InputError("ids have a word of zeros before a real word: zeros may only fill the end of a sentence")
        # Every distinct word is encoded once, the boundaries among them.
        distinct_UC, numbers_N = find_distinct_rows(torch.cat([torch.stack(self.boundary_ids), ids_BWC[mask_BW]]))
        begin, end, *words = numbers_N.tolist()
        # A sentence without words still has its boundaries, and both stacks read them, as the originals do.
        lengths_B, width = lengths_B.cpu().numpy(), ids_BWC.shape[1] + NUM_BOUNDARIES
        words_T, starts_B = add_boundaries(np.array(words), lengths_B, begin=begin, end=end, width=width)
        text = BoundedText(self.encode_words(distinct_UC), words_T, starts_B, lengths_B + NUM_BOUNDARIES)
        reading = self.bilm.read(text, state=state)
        layers_LBWD = reading.join_layers(len(words_T)).unflatten(1, (len(lengths_B), width))
        return mask_BW, layers_LBWD, reading.state

    def _flatten(self, ids: Tensor) -> tuple[Tensor, tuple[int, ...]]:
        columns, found = self.scheme.columns, None
        if not isinstance(ids, Tensor):  # callers without a type checker pass sentences
            found = describe(ids)
        elif ids.is_floating_point():
            found = f"a tensor of {ids.dtype}"
        elif ids.dim() < 3 or ids.shape[-1] != columns:
            found = str(tuple(ids.shape))
        if found is not None:
            raise InputError(
                f"expected ids of shape (…, sentences, words, {columns}), found {found}; "
                "make them with this model's word_ids(sentences)"
            )
        leading = tuple(ids.shape[:-2])
        return ids.reshape(prod(leading), *ids.shape[-2:]), leading

    @torch.no_grad()
    def _read_canonical_sentences(self) -> BilmState:
        if self.precision == "int8":  # it is stored with the model, whichever precision happened to need it first
            self.set_precision("float32")
            try:
                return self._read_canonical_sentences()
            finally:
                self.set_precision("int8")
        state = BilmState.zeros(self.config.lstm, 1, like=next(self.parameters()))
        for sentence in CANONICAL_SENTENCES:
            _, _, state = self._read(self.word_ids([sentence.split()]), state)
        return state


def word_ids(sentences: Sequence[Sequence[str]]) -> Tensor:
    """Ids (B, W, 50) of tokenised sentences in the published byte scheme, 0 where no word is.

    Example:
        >>> word_ids([["the", "bank"], ["hello"]]).shape
        torch.Size([2, 2, 50])
    """
    return torch.from_numpy(ByteScheme().batch_ids(sentences))


def _remove_boundaries(values: Tensor, mask_BW: Tensor) -> Tensor:
    """The words alone (…, B, W, D) out of (…, B, W+2, D): begin is first, end stands behind each row's last word."""
    return values[..., 1:-1, :].masked_fill(~mask_BW.unsqueeze(-1), 0)
