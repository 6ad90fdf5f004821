"""A second ELMo in plain numpy, written from the description of the published models and not from `elmokit.nn`.

Folders of the AllenNLP / bilm-tf family or of ELMoForManyLangs go in, the layers of every word come out, one sentence,
one direction, one step at a time in float64: slow, and short enough to be checked by eye. `random_models.py` writes
small folders of both families for it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import h5py
import numpy as np

__all__ = ["NumpyElmo", "State", "byte_ids", "read_bilm", "read_manylangs"]

BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PADDING = 256, 257, 258, 259, 260
FORWARD, BACKWARD = 0, 1


@dataclass
class State:
    """Hidden (L, 2, B, P) and cell (L, 2, B, H) of each row after its last word."""

    hidden: np.ndarray
    cell: np.ndarray

    def rows(self, count: int) -> State:
        """A copy with at least `count` rows: new ones start at zero."""
        missing = max(0, count - self.hidden.shape[2])
        widths = ((0, 0), (0, 0), (0, missing), (0, 0))
        return State(np.pad(self.hidden, widths), np.pad(self.cell, widths))


@dataclass
class Cell:
    """One LSTM layer of one direction; the four gates by name, each `(input weights, state weights, bias)`."""

    gates: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]
    projection: np.ndarray | None


@dataclass
class NumpyElmo:
    """A model: `vector(word)` without context, and the two stacks of cells, `stacks[direction][layer]`."""

    vector: Callable[[str], np.ndarray]
    begin: np.ndarray
    end: np.ndarray
    stacks: list[list[Cell]]
    cell_clip: float | None
    projection_clip: float | None
    residual: bool
    cache: dict[str, np.ndarray] = field(default_factory=dict)

    def zero_state(self, rows: int) -> State:
        """A state of zeros."""
        input_weights, state_weights, _ = self.stacks[0][0].gates["i"]
        shape = (len(self.stacks[0]), 2, rows)
        return State(np.zeros((*shape, state_weights.shape[0])), np.zeros((*shape, input_weights.shape[1])))

    def read(
        self, sentences: Sequence[Sequence[str] | None], *, state: State | None = None, keep_boundaries: bool = False
    ) -> tuple[list[np.ndarray], State]:
        """Layers (L + 1, words, 2 P) of each sentence, and the state after it.

        Row r of `state` belongs to sentence r. `None` in place of a sentence leaves that row's state as it is;
        the empty sentence `[]` is still two boundaries long, as in both originals.
        """
        state = (state or self.zero_state(len(sentences))).rows(len(sentences))
        outputs = []
        for row, sentence in enumerate(sentences):
            if sentence is None:
                outputs.append(np.zeros((len(self.stacks[0]) + 1, 0, 2 * self.begin.shape[0])))
                continue
            words = np.stack([self.begin, *(self.word(word) for word in sentence), self.end])
            layers = [np.concatenate([words, words], axis=1)]
            forward, backward = words, words[::-1]
            for number in range(len(self.stacks[0])):
                forward = self.run(FORWARD, number, forward, state, row)
                backward = self.run(BACKWARD, number, backward, state, row)
                layers.append(np.concatenate([forward, backward[::-1]], axis=1))
            layers = np.stack(layers)
            outputs.append(layers if keep_boundaries else layers[:, 1:-1])
        return outputs, state

    def run(self, direction: int, number: int, inputs: np.ndarray, state: State, row: int) -> np.ndarray:
        """One layer over one sentence, in the order given; moves the state of `row`."""
        cell = self.stacks[direction][number]
        hidden, memory = state.hidden[number, direction, row], state.cell[number, direction, row]
        outputs = []
        for word in inputs:
            sums = {name: word @ w_x + hidden @ w_h + bias for name, (w_x, w_h, bias) in cell.gates.items()}
            memory = sigmoid(sums["f"]) * memory + sigmoid(sums["i"]) * np.tanh(sums["j"])
            memory = clip(memory, self.cell_clip)
            hidden = sigmoid(sums["o"]) * np.tanh(memory)
            if cell.projection is not None:
                hidden = clip(hidden @ cell.projection, self.projection_clip)
            outputs.append(hidden + word if self.residual and number > 0 else hidden)
        state.hidden[number, direction, row], state.cell[number, direction, row] = hidden, memory
        return np.stack(outputs)

    def word(self, word: str) -> np.ndarray:
        """The context-free vector of a word, computed once."""
        if word not in self.cache:
            self.cache[word] = self.vector(word)
        return self.cache[word]


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def clip(x: np.ndarray, bound: float | None) -> np.ndarray:
    return np.clip(x, -bound, bound) if bound else x


@dataclass
class CharacterCnn:
    """Characters to features. `highways` hold `(gate weights, gate bias, transform weights, transform bias)`."""

    table: np.ndarray
    filters: list[tuple[np.ndarray, np.ndarray]]  # weights (width, characters' dim, channels), bias
    activation: str
    highways: list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]

    def features(self, symbols: Sequence[int]) -> np.ndarray:
        """The features of one word, given the rows of `table` that spell it."""
        characters = self.table[list(symbols)]
        pooled = []
        for weights, bias in self.filters:
            width = len(weights)
            windows = [characters[start : start + width] for start in range(len(characters) - width + 1)]
            pooled.append(np.max([np.einsum("we,wek->k", window, weights) + bias for window in windows], axis=0))
        x = np.concatenate(pooled)
        x = np.tanh(x) if self.activation == "tanh" else np.maximum(x, 0)
        for gate_weights, gate_bias, weights, bias in self.highways:
            gate = sigmoid(x @ gate_weights + gate_bias)
            x = gate * np.maximum(x @ weights + bias, 0) + (1 - gate) * x
        return x


# ---- AllenNLP / bilm-tf: options.json and one hdf5 ----


def byte_ids(word: str, columns: int = 50) -> list[int]:
    """Symbol numbers of a word (before the shift by one): markers around its first bytes, padding after them."""
    if word == "<S>":
        return sentence_marker(BEGIN_SENTENCE, columns)
    if word == "</S>":
        return sentence_marker(END_SENTENCE, columns)
    spelled = [BEGIN_WORD, *word.encode("utf-8", "ignore")[: columns - 2], END_WORD]
    return spelled + [PADDING] * (columns - len(spelled))


def sentence_marker(symbol: int, columns: int) -> list[int]:
    return [BEGIN_WORD, symbol, END_WORD] + [PADDING] * (columns - 3)


def read_bilm(folder: Path) -> NumpyElmo:
    """The model of a folder with `options.json` and one hdf5; word-input models read numbered words."""
    options = json.loads((folder / "options.json").read_text())
    lstm = options["lstm"]
    (weights_file,) = folder.glob("*.hdf5")
    with h5py.File(weights_file) as file:
        arrays: dict[str, np.ndarray] = {}
        file.visititems(lambda name, item: arrays.update({name: float64(item[...])} if hasattr(item, "shape") else {}))
    stacks = [
        [bilm_cell(arrays, f"RNN_{direction}/RNN/MultiRNNCell/Cell{number}/LSTMCell", lstm["projection_dim"])
         for number in range(lstm["n_layers"])]
        for direction in (FORWARD, BACKWARD)
    ]  # fmt: skip
    shared = (stacks, lstm.get("cell_clip"), lstm.get("proj_clip"), bool(lstm.get("use_skip_connections")))
    if "char_cnn" not in options:
        table, vocabulary = arrays["embedding"], (folder / "vocab.txt").read_text().split()
        rows = {word: row for row, word in enumerate(vocabulary)}
        return NumpyElmo(
            lambda word: table[rows.get(word, rows["<UNK>"])], table[rows["<S>"]], table[rows["</S>"]], *shared
        )
    char = options["char_cnn"]
    columns = char["max_characters_per_token"]
    cnn = CharacterCnn(
        table=arrays["char_embed"],
        filters=[(arrays[f"CNN/W_cnn_{i}"][0], arrays[f"CNN/b_cnn_{i}"]) for i in range(len(char["filters"]))],
        activation=char["activation"],
        highways=[
            (arrays[f"{high}/W_carry"], arrays[f"{high}/b_carry"], arrays[f"{high}/W_transform"],
             arrays[f"{high}/b_transform"])
            for high in (f"CNN_high_{i}" for i in range(char.get("n_highway") or 0))
        ],
    )  # fmt: skip

    def project(symbols: list[int]) -> np.ndarray:
        x = cnn.features(symbols)
        return x @ arrays["CNN_proj/W_proj"] + arrays["CNN_proj/b_proj"] if "CNN_proj/W_proj" in arrays else x

    return NumpyElmo(
        lambda word: project(byte_ids(word, columns)),
        project(sentence_marker(BEGIN_SENTENCE, columns)),
        project(sentence_marker(END_SENTENCE, columns)),
        *shared,
    )


def bilm_cell(arrays: dict[str, np.ndarray], name: str, input_dim: int) -> Cell:
    kernel, bias = np.split(arrays[f"{name}/W_0"], 4, axis=1), np.split(arrays[f"{name}/B"], 4)
    gates = {gate: (kernel[k][:input_dim], kernel[k][input_dim:], bias[k]) for k, gate in enumerate("ijfo")}
    w_x, w_h, forget_bias = gates["f"]
    gates["f"] = (w_x, w_h, forget_bias + 1.0)
    return Cell(gates, arrays.get(f"{name}/W_P_0"))


def float64(array: np.ndarray) -> np.ndarray:
    return np.asarray(array, dtype=np.float64)


# ---- ELMoForManyLangs: config.json, an architecture, two dictionaries, two pickles ----


def read_manylangs(folder: Path) -> NumpyElmo:
    """The model of a folder as that package writes it; the architecture must lie in the folder."""
    config_path = json.loads((folder / "config.json").read_text())["config_path"]
    architecture = json.loads((folder / Path(config_path).name).read_text())
    embedder, encoder = architecture["token_embedder"], architecture["encoder"]
    arrays = load_pickle(folder / "token_embedder.pkl")
    recurrent = load_pickle(folder / "encoder.pkl")
    columns = embedder["max_characters_per_token"]
    letters = dictionary(folder / "char.dic") if embedder["char_dim"] else None
    words = dictionary(folder / "word.dic") if embedder["word_dim"] else None
    cnn = None
    if letters is not None:
        cnn = CharacterCnn(
            table=arrays["char_emb_layer.embedding.weight"],
            filters=[
                (arrays[f"convolutions.{i}.weight"].transpose(2, 1, 0), arrays[f"convolutions.{i}.bias"])
                for i in range(len(embedder["filters"]))
            ],
            activation=embedder["activation"],
            highways=[
                keep_gate_highway(arrays[f"highways._layers.{i}.weight"], arrays[f"highways._layers.{i}.bias"])
                for i in range(embedder["n_highway"])
            ],
        )

    def vector(word: str) -> np.ndarray:
        word = word[: columns - 2]
        parts = []
        if words is not None:
            parts.append(arrays["word_emb_layer.embedding.weight"][words.get(word, words["<oov>"])])
        if letters is not None and cnn is not None:
            parts.append(cnn.features(letter_ids(word, letters, columns)))
        return arrays["projection.weight"] @ np.concatenate(parts) + arrays["projection.bias"]

    stacks = [
        [manylangs_cell(recurrent, f"{direction}_layer_{number}") for number in range(encoder["n_layers"])]
        for direction in ("forward", "backward")
    ]
    return NumpyElmo(
        vector, vector("<bos>"), vector("<eos>"), stacks, encoder["cell_clip"], encoder["proj_clip"], residual=True
    )


def letter_ids(word: str, letters: dict[str, int], columns: int) -> list[int]:
    """Rows that spell a word. The word begins with the row of `<eow>` and ends with that of `<bow>`: no slip here."""
    inner = [letters[word]] if word in ("<bos>", "<eos>") else [letters.get(c, letters["<oov>"]) for c in word]
    spelled = [letters["<eow>"], *inner, letters["<bow>"]]
    return spelled + [letters["<pad>"]] * (columns - len(spelled))


def keep_gate_highway(weight: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """One linear makes transform and gate, and the gate says how much of the input to keep: sigmoid(-x) swaps it."""
    dim = len(weight) // 2
    return -weight[dim:].T, -bias[dim:], weight[:dim].T, bias[:dim]


def manylangs_cell(arrays: dict[str, np.ndarray], name: str) -> Cell:
    w_x = np.split(arrays[f"{name}.input_linearity.weight"].T, 4, axis=1)
    w_h = np.split(arrays[f"{name}.state_linearity.weight"].T, 4, axis=1)
    bias = np.split(arrays[f"{name}.state_linearity.bias"], 4)
    gates = {gate: (w_x[k], w_h[k], bias[k]) for k, gate in enumerate("ifjo")}
    return Cell(gates, arrays[f"{name}.state_projection.weight"].T)


def dictionary(path: Path) -> dict[str, int]:
    items = {}
    for line in path.read_text(encoding="utf-8").split("\n"):
        fields = line.strip().split("\t")
        if fields != [""]:
            item, row = fields if len(fields) == 2 else ("\u3000", fields[0])
            items[item] = int(row)
    return items


def load_pickle(path: Path) -> dict[str, np.ndarray]:
    import torch

    return {name: float64(tensor.numpy()) for name, tensor in torch.load(path, weights_only=True).items()}
