"""ELMoForManyLangs folders: its dictionaries, architecture and two pickled state dicts become a `Checkpoint`.

Arrives: a folder with `config.json` (training arguments that point to an architecture file), `char.dic`, `word.dic`,
`token_embedder.pkl` and `encoder.pkl`. Leaves: our config, our tensor names, alphabet and vocabulary. Three things
are turned over on the way: its gates stand in the order i, f, g, o (ours: i, g, f, o); its highway gates say how much
of the input to keep (ours: how much to transform), so they are negated; its recurrence is stored as (out, in) matrices
(ours are used as x @ W). The forget bias holds its + 1 already, as ours does. Pickles are read with
`weights_only=True`: one that names any function to call is refused before anything in it runs. `classifier.pkl` serves
training alone and is ignored.

Shapes: S symbols, V words, E width of a table, K channels, F features, H cell, P output width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from elmokit.config import (
    PUBLISHED_FILTERS,
    Activation,
    CharConfig,
    Columns,
    Depth,
    ElmoConfig,
    Filters,
    LstmConfig,
    NumHighways,
    Width,
    WordConfig,
)
from elmokit.errors import CheckpointError, ConfigError
from elmokit.io.checkpoint import Checkpoint, check_values
from elmokit.io.inside import find_inside
from elmokit.io.text_files import explain_failures, read_json
from elmokit.io.torch_files import read_torch
from elmokit.validation import Bounds, build_from

__all__ = ["load_manylangs", "looks_like_manylangs"]

WEIGHTS = ("token_embedder.pkl", "encoder.pkl")
DICTIONARIES = ("char.dic", "word.dic")
LETTER_SPECIALS = ("<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>")
WORD_SPECIALS = ("<bos>", "<eos>", "<oov>")

# The architecture of every published model; many of their archives name its file but do not hold it.
DEFAULT_ARCHITECTURE = {
    "encoder": {"name": "elmo", "projection_dim": 512, "cell_clip": 3, "proj_clip": 3, "dim": 4096, "n_layers": 2},
    "token_embedder": {
        "name": "cnn",
        "activation": "relu",
        "filters": PUBLISHED_FILTERS,
        "n_highway": 2,
        "word_dim": 100,
        "char_dim": 50,
        "max_characters_per_token": 50,
    },
}


@dataclass(frozen=True)
class EncoderSizes:
    """The part `encoder` of an architecture; a clip of 0 means none."""

    ignores_others: ClassVar[bool] = True
    dim: Width
    projection_dim: Width
    n_layers: Depth
    cell_clip: Annotated[float, Bounds(at_least=0)] | None = None
    proj_clip: Annotated[float, Bounds(at_least=0)] | None = None


@dataclass(frozen=True)
class EmbedderSizes:
    """The part `token_embedder` of an architecture; a width of 0 means no such table."""

    ignores_others: ClassVar[bool] = True
    char_dim: Annotated[int, Bounds(0, 2**16)]
    word_dim: Annotated[int, Bounds(0, 2**16)]
    max_characters_per_token: Columns
    filters: Filters = ()
    activation: Activation = "relu"
    n_highway: NumHighways = 0


@dataclass(frozen=True)
class Architecture:
    """What is read of an architecture file."""

    ignores_others: ClassVar[bool] = True
    encoder: EncoderSizes
    token_embedder: EmbedderSizes


def looks_like_manylangs(folder: Path) -> bool:
    """Whether a folder holds, or is meant to hold, an ELMoForManyLangs model: one of its own file names is enough."""
    return any((folder / name).is_file() for name in (*WEIGHTS, *DICTIONARIES))


def load_manylangs(folder: Path) -> Checkpoint:
    """The checkpoint of an ELMoForManyLangs folder; what is amiss is a `CheckpointError` naming file and tensor."""
    folder = Path(folder)
    values, found, name = _find_architecture(folder)
    _refuse_other_networks(values, found)
    try:
        architecture = build_from(Architecture, values)
    except ConfigError as problem:
        raise CheckpointError(f"{found} does not describe a model: {problem}") from problem
    encoder, embedder = architecture.encoder, architecture.token_embedder
    alphabet = _read_dictionary(folder / "char.dic", LETTER_SPECIALS) if embedder.char_dim else None
    vocabulary = _read_dictionary(folder / "word.dic", WORD_SPECIALS) if embedder.word_dim else None
    embedder_state = _StateDict(folder / WEIGHTS[0], found)
    encoder_state = _StateDict(folder / WEIGHTS[1], found)
    config, alphabet, vocabulary = _make_config(encoder, embedder, embedder_state, alphabet, vocabulary, found)
    tensors = _convert_encoder(config, embedder_state) | _convert_bilm(config.lstm, encoder_state)
    for state in (embedder_state, encoder_state):
        state.refuse_the_rest()
    check_values(tensors, folder)
    return Checkpoint(
        config=config,
        tensors=tensors,
        alphabet=alphabet,
        swaps_markers=True,
        vocabulary=vocabulary,
        format="manylangs",
        path=folder,
        metadata={"architecture": name},
    )


# ---- config.json and the architecture it points to ----


def _find_architecture(folder: Path) -> tuple[dict[str, Any], str, str]:
    """The architecture, words that say where it was found (as given, in the folder, built in), and its name alone."""
    arguments = read_json(folder / "config.json")
    given = arguments.get("config_path")
    if not isinstance(given, str) or not given:
        raise CheckpointError(
            f"{folder / 'config.json'}: expected config_path, the name of the architecture file, found {given!r}; "
            'add "config_path": "architecture.json"'
        )
    # The path may be one of the author's machine, and of another system: its last part is the name either way.
    name = given.replace("\\", "/").rsplit("/", 1)[-1]
    for each in (given, name):
        path = find_inside(folder, each)
        if path is not None:
            return read_json(path), str(path), name
    found = f"the built-in default architecture ({name!r:.80} is not in {folder})"
    return DEFAULT_ARCHITECTURE, found, "built-in default"


def _refuse_other_networks(architecture: dict[str, Any], found: str) -> None:
    names = {}
    for part in ("encoder", "token_embedder"):
        section = architecture.get(part)
        if not isinstance(section, dict):
            raise CheckpointError(
                f"{found}: expected an object {part!r} with the sizes of that part, found {section!r:.60}"
            )
        names[part] = str(section.get("name")).lower()
    if names["encoder"] != "elmo":
        raise CheckpointError(
            f"{found}: the encoder is {names['encoder']!r:.40}, an ordinary bidirectional LSTM with one output per "
            "word and not an ELMo with a layer for each LSTM; only the encoder 'elmo' can be loaded"
        )
    if names["token_embedder"] != "cnn":
        raise CheckpointError(
            f"{found}: the token_embedder is {names['token_embedder']!r:.60}, which reads characters by an LSTM and "
            "not by the convolutions of an ELMo; only the token_embedder 'cnn' can be loaded"
        )


def _make_config(
    encoder: EncoderSizes,
    embedder: EmbedderSizes,
    state: _StateDict,
    alphabet: dict[int, str] | None,
    vocabulary: dict[int, str] | None,
    found: str,
) -> tuple[ElmoConfig, list[str] | None, list[str] | None]:
    """Our config, with the two dictionaries as lists as long as their tables."""
    characters = words = letters = known = None
    try:
        if alphabet is not None:
            rows = state.num_rows("char_emb_layer.embedding.weight", embedder.char_dim)
            letters = _order_by_row("char.dic", alphabet, rows)
            characters = CharConfig(
                scheme="unicode",
                max_length=embedder.max_characters_per_token,
                num_symbols=len(letters),
                dim=embedder.char_dim,
                filters=embedder.filters,
                activation=embedder.activation,
                num_highways=embedder.n_highway,
            )
        if vocabulary is not None:
            rows = state.num_rows("word_emb_layer.embedding.weight", embedder.word_dim)
            known = _order_by_row("word.dic", vocabulary, rows)
            # The original cuts a word, to leave room for two markers, before it finds its row: also without characters.
            max_length = embedder.max_characters_per_token - 2
            words = WordConfig(num_words=len(known), dim=embedder.word_dim, max_length=max_length)
        lstm = LstmConfig(
            num_layers=encoder.n_layers,
            cell_dim=encoder.dim,
            projection_dim=encoder.projection_dim,
            cell_clip=encoder.cell_clip or None,  # 0 means "off" there, as null does
            projection_clip=encoder.proj_clip or None,
        )
        config = ElmoConfig(characters=characters, words=words, lstm=lstm)
    except ConfigError as problem:
        raise CheckpointError(f"{found} does not describe a model: {problem}") from problem
    if not lstm.has_projection:
        raise CheckpointError(
            f"{found}: dim and projection_dim are both {lstm.cell_dim}, which means no projection here, but "
            "ELMoForManyLangs projects all the same; such a model cannot be loaded"
        )
    return config, letters, known


# ---- char.dic and word.dic ----


def _read_dictionary(path: Path, specials: Sequence[str]) -> dict[int, str]:
    """Row → item of lines `item TAB row`; a line of one field is U+3000, whose own line is stripped bare when read."""
    rows: dict[str, int] = {}
    # Line by line, and only "\n" ends one: a file of something else is refused at its first line.
    with (
        explain_failures(path, "expected UTF-8 text, found something else"),
        path.open(encoding="utf-8", newline="\n") as lines,
    ):
        for number, line in enumerate(lines, start=1):
            fields = line.strip().split("\t")
            if fields == [""]:
                continue
            item, row = ("\u3000", fields[0]) if len(fields) == 1 else (fields[0], fields[-1])
            if len(fields) > 2 or not (row.isascii() and row.isdigit() and len(row) < 10):
                found = line[:100].removesuffix("\n")
                raise CheckpointError(
                    f"{path}, line {number}: expected an item, a tab and a row number, found {found!r:.60}"
                )
            rows[item] = int(row)  # an item given twice has its last row, as in the original
    missing = [special for special in specials if special not in rows]
    if missing:
        raise CheckpointError(f"{path} lacks {missing}: expected each of {list(specials)}; unpack the archive again")
    items = {row: item for item, row in rows.items()}
    if len(items) < len(rows):
        first, second = next((item, items[row]) for item, row in rows.items() if items[row] != item)
        raise CheckpointError(
            f"{path} gives the row {rows[first]} to both {first!r} and {second!r}: expected one item per row"
        )
    return items


def _order_by_row(name: str, items: dict[int, str], num_rows: int) -> list[str]:
    """The items as a list by row. A row without one gets a name that no character, and hardly a word, is spelled as."""
    highest = max(items)
    if highest >= num_rows:
        raise CheckpointError(
            f"{name} names row {highest} ({items[highest]!r}), but its table in {WEIGHTS[0]} has {num_rows} rows; "
            "they must be of one model"
        )
    return [items.get(row, f"<unused {row}>") for row in range(num_rows)]


# ---- token_embedder.pkl and encoder.pkl ----


class _StateDict:
    """The tensors of one pickle, taken out by name and checked against the shape that the architecture asks for."""

    def __init__(self, path: Path, found: str) -> None:
        self._path, self._found = path, found
        self._tensors = _unpickle(path)

    def num_rows(self, name: str, dim: int) -> int:
        """Rows of a table of this width."""
        tensor = self._get(name)
        if tensor.dim() != 2 or tensor.shape[1] != dim:
            raise self._misshapen(name, f"(rows, {dim})")
        return tensor.shape[0]

    def take(self, name: str, *shape: int) -> Tensor:
        """The tensor of this name and shape, in float32."""
        tensor = self._get(name)
        if tuple(tensor.shape) != shape:
            raise self._misshapen(name, str(shape))
        del self._tensors[name]
        return tensor.detach().to(torch.float32)

    def refuse_the_rest(self) -> None:
        """An error if tensors are left over: the architecture and the weights are not of one model."""
        if self._tensors:
            names = ", ".join(sorted(self._tensors)[:4])
            raise CheckpointError(
                f"{self._path} holds {len(self._tensors)} tensors that {self._found} does not ask for ({names}, …): "
                "the two are not of one model"
            )

    def _get(self, name: str) -> Tensor:
        if name not in self._tensors:
            raise CheckpointError(f"{self._path} lacks the tensor {name}, which {self._found} asks for")
        return self._tensors[name]

    def _misshapen(self, name: str, expected: str) -> CheckpointError:
        return CheckpointError(
            f"{self._path}: the tensor {name} has shape {tuple(self._tensors[name].shape)}, but {self._found} asks for "
            f"{expected}"
        )


def _unpickle(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise CheckpointError(f"{path} is missing: an ELMoForManyLangs folder needs it; unpack the archive again")
    values = read_torch(path)
    if not isinstance(values, dict) or not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in values.items()
    ):
        raise CheckpointError(f"{path}: expected a dictionary of tensors, found {type(values).__name__}")
    for name, tensor in values.items():
        # A view may claim terabytes over a handful of stored numbers; copying it would then fill the memory.
        stored = tensor.untyped_storage().nbytes() if tensor.layout == torch.strided else 0
        if not tensor.is_floating_point() or tensor.numel() * tensor.element_size() > stored:
            raise CheckpointError(
                f"{path}: the tensor {name} does not hold the {tuple(tensor.shape)} numbers that it claims"
            )
    return values


def _convert_encoder(config: ElmoConfig, state: _StateDict) -> dict[str, Tensor]:
    tensors = {}
    if config.words is not None:
        table_VE = state.take("word_emb_layer.embedding.weight", config.words.num_words, config.words.dim)
        tensors["encoder.words.embedding"] = table_VE
    if config.characters is not None:
        tensors |= _convert_characters(config.characters, state)
    ours, width = "encoder.projection", config.lstm.projection_dim
    tensors[f"{ours}.weight"] = state.take("projection.weight", width, config.num_word_features)
    tensors[f"{ours}.bias"] = state.take("projection.bias", width)
    return tensors


def _convert_characters(config: CharConfig, state: _StateDict) -> dict[str, Tensor]:
    ours = "encoder.characters"
    tensors = {f"{ours}.embedding": state.take("char_emb_layer.embedding.weight", config.num_symbols, config.dim)}
    for i, (width, channels) in enumerate(config.filters):
        weight_KEw = state.take(f"convolutions.{i}.weight", channels, config.dim, width)
        tensors[f"{ours}.convolutions.{i}.weight"] = weight_KEw
        tensors[f"{ours}.convolutions.{i}.bias"] = state.take(f"convolutions.{i}.bias", channels)
    features = config.num_features
    for i in range(config.num_highways):
        both = state.take(f"highways._layers.{i}.weight", 2 * features, features)
        both_bias = state.take(f"highways._layers.{i}.bias", 2 * features)
        tensors[f"{ours}.highways.{i}.transform.weight"], keep_FF = both.split(features)
        tensors[f"{ours}.highways.{i}.transform.bias"], keep_F = both_bias.split(features)
        # 1 - sigmoid(x) = sigmoid(-x): what is not kept is transformed.
        tensors[f"{ours}.highways.{i}.gate.weight"] = -keep_FF
        tensors[f"{ours}.highways.{i}.gate.bias"] = -keep_F
    return tensors


def _convert_bilm(config: LstmConfig, state: _StateDict) -> dict[str, Tensor]:
    tensors = {}
    cell, width = config.cell_dim, config.projection_dim
    for direction in ("forward", "backward"):
        for layer in range(config.num_layers):
            ours, theirs = f"bilm.{direction}_layers.{layer}", f"{direction}_layer_{layer}"
            input_weight = state.take(f"{theirs}.input_linearity.weight", 4 * cell, width)
            recurrent_weight = state.take(f"{theirs}.state_linearity.weight", 4 * cell, width)
            bias = state.take(f"{theirs}.state_linearity.bias", 4 * cell)
            projection_PH = state.take(f"{theirs}.state_projection.weight", width, cell)
            tensors[f"{ours}.input_weight"] = _reorder_gates(input_weight).t()
            tensors[f"{ours}.recurrent_weight"] = _reorder_gates(recurrent_weight).t()
            tensors[f"{ours}.bias"] = _reorder_gates(bias)
            tensors[f"{ours}.projection_weight"] = projection_PH.t()
    return tensors


def _reorder_gates(rows: Tensor) -> Tensor:
    """Gates i, f, g, o along the first dimension put into our order i, g (candidate), f, o."""
    i, f, g, o = rows.chunk(4)
    return torch.cat([i, g, f, o])
