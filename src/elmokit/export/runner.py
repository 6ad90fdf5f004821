"""ELMo vectors of any text, with numpy and onnxruntime alone: this file and the folder that `elmo export` wrote.

    python run_elmo.py "She sat by the river bank." "The bank lent him money."      a line of JSON per text
    python run_elmo.py --layers all --split -o vectors.npz - < book.txt             a sentence per entry

    from run_elmo import ElmoRunner
    elmo = ElmoRunner()                                     # the folder of this file, or ElmoRunner("some/folder")
    vectors = elmo.embed(["She sat by the river bank.", ["a", "list", "of", "words"]])    # (words, dim) float32 each

A text becomes words by the rules of elmokit's own segmenter, words become ids, `words.onnx` makes one vector of each
distinct word, which are remembered, and `layers.onnx` reads the sentences in both directions.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from elmokit.embed.layers import Layers, check_layers
from elmokit.errors import CheckpointError, ElmoError, InputError, MissingExtra
from elmokit.text.characters import make_scheme
from elmokit.text.segmenters import RuleSegmenter, Word

__all__ = ["ElmoRunner", "main"]

FORMAT_VERSION = 1
CONFIG, WORDS, LAYERS = "elmo.json", "words.onnx", "layers.onnx"
ALPHABET, VOCABULARY, PATTERNS = "alphabet.json", "vocabulary.json", "segmenter.json"
# The version of onnxruntime that first knew each opset of ONNX.
OPSETS = {18: (1, 14), 19: (1, 15), 20: (1, 17), 21: (1, 18), 22: (1, 20), 23: (1, 22)}
WORDS_AT_A_TIME = 256  # through the convolutions: bounds the memory
POSITIONS_AT_A_TIME = 2048  # of a batch of sentences, padding included


class ElmoRunner:
    """An exported model.

    Arguments:
        folder: what `elmo export` wrote; that of this file unless given.
        threads: that compute; as many as onnxruntime likes unless given.
        cache_words: words whose context-free vectors are remembered.
    """

    def __init__(
        self, folder: str | Path | None = None, *, threads: int | None = None, cache_words: int = 100_000
    ) -> None:
        if threads is not None and threads < 1:
            raise InputError(f"threads is {threads}: expected 1 or more")
        self.folder = Path(__file__).parent if folder is None else Path(folder)
        self.config = _read_config(self.folder)
        model = json.loads(json.dumps(self.config["elmo"]), object_hook=lambda values: SimpleNamespace(**values))
        alphabet = _read_json(self.folder / ALPHABET) if self.config["alphabet"] else None
        vocabulary = _read_json(self.folder / VOCABULARY) if self.config["vocabulary"] else None
        self.scheme = make_scheme(model, alphabet, vocabulary, swaps_markers=self.config["swaps_markers"])
        self.num_layers, self.dim = model.lstm.num_layers + 1, 2 * model.lstm.projection_dim
        self._filters = [] if model.characters is None else model.characters.filters
        self._first_character = 0 if model.words is None else 1
        self._words, self._layers = _open_graphs(self.folder, self.config["opset"], threads)
        self._cache: dict[Any, np.ndarray] = {}
        self._cache_words = cache_words
        self._boundaries = self._encode(np.stack([self.scheme.begin_ids, self.scheme.end_ids]))

    def embed(self, sentences: Iterable[str | Sequence[str]], *, layers: Layers = "average") -> list[np.ndarray]:
        """The vectors (words, dim) of each sentence, in order; with `layers="all"` (layers, words, dim).

        Arguments:
            sentences: strings, which are split into words, or lists of words, which are taken as they are.
            layers: `"average"`, `"top"`, `"all"`, `"mix"` (the one stored with the model) or the number of a layer.
        """
        choice = check_layers(layers, self.num_layers)
        if isinstance(sentences, str):
            raise InputError("expected a list of sentences, but one string came: put it in a list, [text]")
        tokens = [self.words(sentence) if isinstance(sentence, str) else list(sentence) for sentence in sentences]
        found: list[np.ndarray] = [np.zeros(0)] * len(tokens)
        for batch in _divide([len(sentence) for sentence in tokens]):
            layers_LBWD = self._read([tokens[number] for number in batch])
            for row, number in enumerate(batch):
                words_LWD = layers_LBWD[:, row, 1 : len(tokens[number]) + 1]
                found[number] = np.ascontiguousarray(self._choose(words_LWD, choice))
        return found

    def words(self, sentence: str) -> list[str]:
        """The words of one sentence."""
        return [word.text for word in _get_segmenter().words(sentence)]

    def sentences(self, text: str) -> list[list[Word]]:
        """The sentences of a text, each a list of words with their places in it."""
        return _get_segmenter()(text)

    def _choose(self, layers_LWD: np.ndarray, choice: Layers) -> np.ndarray:
        if choice == "all":
            return layers_LWD
        if choice == "mix" and self.config["mix"] is not None:
            weights_L = np.array(self.config["mix"]["weights"], np.float32) * np.float32(self.config["mix"]["gamma"])
            return np.tensordot(weights_L, layers_LWD, axes=1)
        if choice in ("average", "mix"):
            return layers_LWD.mean(axis=0, dtype=np.float32)
        return layers_LWD[-1 if choice == "top" else choice]

    def _read(self, sentences: list[list[str]]) -> np.ndarray:
        """All layers (L, B, W, D) of a batch, with the boundaries of each sentence."""
        distinct = list(dict.fromkeys(word for sentence in sentences for word in sentence))
        vectors_UP = np.concatenate([self._boundaries, self._find_vectors(distinct)])
        numbers = {word: number for number, word in enumerate(distinct, start=2)}
        lengths_B = np.array([len(sentence) + 2 for sentence in sentences], np.int64)
        words_BW = np.zeros((len(sentences), lengths_B.max()), np.int64)  # row 0 begins a sentence, row 1 ends it
        for row, sentence in enumerate(sentences):
            words_BW[row, 1 : len(sentence) + 1] = [numbers[word] for word in sentence]
            words_BW[row, len(sentence) + 1] = 1
        return self._layers.run(None, {"words": vectors_UP[words_BW], "lengths": lengths_B})[0]

    def _find_vectors(self, words: list[str]) -> np.ndarray:
        new = [word for word in words if word not in self._cache]
        if len(self._cache) + len(new) > self._cache_words:
            self._cache.clear()
            new = words
        fresh = dict(zip(new, self._encode(self.scheme.word_ids(new)), strict=True)) if new else {}
        vectors = [fresh[word] if word in fresh else self._cache[word] for word in words]
        if len(fresh) <= self._cache_words:
            self._cache.update(fresh)
        return np.stack(vectors) if vectors else self._boundaries[:0]

    def _encode(self, ids_NC: np.ndarray) -> np.ndarray:
        """Context-free vectors (N, P) of words; columns of mere padding are left out, which changes nothing."""
        vectors = []
        for start in range(0, len(ids_NC), WORDS_AT_A_TIME):
            some_NC = ids_NC[start : start + WORDS_AT_A_TIME]
            if self._filters:
                differs_C = (some_NC != some_NC[0, -1]).any(axis=0)
                used = int(differs_C.nonzero()[0].max(initial=self._first_character)) + 1
                some_NC = some_NC[:, : used + max(width for width, _ in self._filters)]
            vectors.append(self._words.run(None, {"ids": some_NC})[0])
        return np.concatenate(vectors)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; gives its exit code."""
    parser = argparse.ArgumentParser(description="ELMo vectors of the words of a text, with numpy and onnxruntime.")
    parser.add_argument("text", nargs="*", help="one sentence each; - or nothing reads lines from standard input")
    parser.add_argument("--model", metavar="DIR", help="the exported folder (default: that of this file)")
    parser.add_argument("--layers", default="average", help="average, top, all, mix, or a number (default: average)")
    parser.add_argument("--split", action="store_true", help="split each text into its sentences")
    parser.add_argument("--threads", type=int, metavar="N", help="threads that compute")
    parser.add_argument("-o", dest="output", metavar="FILE.npz", help="write arrays words_N and vectors_N")
    asked = parser.parse_args(arguments)
    for stream in (sys.stdin, sys.stdout):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8")
    try:
        elmo = ElmoRunner(asked.model, threads=asked.threads)
        sentences = list(_read_sentences(elmo, asked.text or ["-"], splits=asked.split))
        layers = int(asked.layers) if asked.layers.isdecimal() else asked.layers
        _write(sentences, elmo.embed(sentences, layers=layers), asked.output)
    except (ElmoError, OSError, UnicodeError) as problem:
        sys.stderr.write(f"run_elmo: {problem}\n")
        return 2
    return 0


def _read_sentences(elmo: ElmoRunner, texts: list[str], *, splits: bool) -> Iterator[list[str]]:
    for text in texts:
        for line in sys.stdin if text == "-" else [text]:
            if splits:
                yield from ([word.text for word in sentence] for sentence in elmo.sentences(line))
            elif line.strip():
                yield elmo.words(line)


def _write(sentences: list[list[str]], vectors: list[np.ndarray], output: str | None) -> None:
    if output is not None:
        arrays: dict[str, Any] = {f"vectors_{number}": each for number, each in enumerate(vectors)}
        arrays |= {f"words_{number}": np.array(sentence, str) for number, sentence in enumerate(sentences)}
        with open(output, "wb") as stream:
            np.savez(stream, **arrays)
        return
    for sentence, each in zip(sentences, vectors, strict=True):
        rounded = np.round(each.astype(np.float64), 6).tolist()
        sys.stdout.write(json.dumps({"words": sentence, "vectors": rounded}, ensure_ascii=False) + "\n")


def _divide(lengths: Sequence[int]) -> Iterator[list[int]]:
    """The numbers of all sentences in batches of similar length."""
    batch: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda number: lengths[number]):
        if batch and (len(batch) + 1) * (lengths[number] + 2) > POSITIONS_AT_A_TIME:
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    if not path.is_file():
        raise CheckpointError(f"{folder}: expected a folder that `elmo export` wrote, found no {CONFIG} in it")
    config = _read_json(path)
    version = config.get("format_version") if isinstance(config, dict) else None
    if version != FORMAT_VERSION:
        raise CheckpointError(
            f"{path}: expected format_version {FORMAT_VERSION}, found {version}: use the run_elmo.py of its folder, "
            "or export the model again"
        )
    names = ("elmo", "opset", "mix", "alphabet", "vocabulary", "swaps_markers")
    missing = [name for name in names if name not in config]
    if missing:
        raise CheckpointError(f"{path}: {', '.join(missing)} is missing in it: export the model again")
    return config


def _read_json(path: Path) -> Any:  # noqa: ANN401
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing: export the model again, or copy its whole folder") from None
    except ValueError as problem:
        raise CheckpointError(f"{path} is no JSON ({problem}): export the model again") from None


def _open_graphs(folder: Path, opset: int, threads: int | None) -> list[Any]:
    """Both graphs in onnxruntime, or what is wrong with them."""
    try:
        import onnxruntime  # pyright: ignore[reportMissingImports]
    except ImportError as problem:
        raise MissingExtra("onnxruntime is not installed: pip install numpy onnxruntime") from problem
    known = f"{min(OPSETS)} to {max(OPSETS)}"
    if opset not in OPSETS:
        raise CheckpointError(
            f"{folder}: its graphs need ONNX opset {opset}, this runner knows {known}: use the run_elmo.py of that "
            "folder, or export the model again"
        )
    oldest, here = OPSETS[opset], tuple(int(part) for part in onnxruntime.__version__.split(".")[:2])
    if here < oldest:
        raise CheckpointError(
            f"{folder}: its graphs need ONNX opset {opset}, which onnxruntime {onnxruntime.__version__} does not know: "
            f"pip install 'onnxruntime>={oldest[0]}.{oldest[1]}'"
        )
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if threads is not None:
        options.intra_op_num_threads = threads
    graphs = []
    for path in (folder / WORDS, folder / LAYERS):
        if not path.is_file():
            raise CheckpointError(f"{path} is missing: export the model again, or copy its whole folder")
        try:
            graphs.append(onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]))
        except Exception as problem:  # its exceptions have no name that can be relied on
            reason = " ".join(str(problem).split())[:200]
            raise CheckpointError(
                f"{path} cannot be run by onnxruntime {onnxruntime.__version__}: {reason}"
            ) from problem
    return graphs


@cache
def _get_segmenter() -> RuleSegmenter:
    return RuleSegmenter()


# The next two stand in the place of those of `text/segmenters.py`, which need the package `regex`.


@cache
def _compile_pattern(has_addresses: bool) -> re.Pattern[str]:
    return _join_pattern("with_addresses" if has_addresses else "plain")


@cache
def _compile_clitic() -> re.Pattern[str]:
    return _join_pattern("clitic")


def _join_pattern(name: str) -> re.Pattern[str]:
    stored = _read_json(Path(__file__).with_name(PATTERNS))
    return re.compile(
        "".join(stored["sets"][part] if isinstance(part, int) else part for part in stored["patterns"][name])
    )


if __name__ == "__main__":
    sys.exit(main())
