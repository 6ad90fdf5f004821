"""LayerStore: the layers of a frozen biLM, computed once per sentence and kept on disk.

Tokenised sentences arrive; all their layers leave, as one padded tensor per batch. An epoch then costs only the head
over them. On disk a store is `layers.f16` (one row per word, its L·D numbers in float16; row 0 holds zeros, for
padding) and `index.bin` (which rows belong to which sentence, by a hash of its words), in a folder named after the
model's fingerprint. Both files only ever grow, rows before their index, so a store that was killed continues where it
stopped; a lock lets several processes share one. Reading is one gather, from the mapped file or on the GPU.

Shapes: L layers, B batch, W words, D width, R rows.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from elmokit.devices import move_to_device
from elmokit.embed.embedder import Embedder
from elmokit.embed.layers import check_float16
from elmokit.errors import CheckpointError, OutputError
from elmokit.io import model_names
from elmokit.io.atomic import replace_text
from elmokit.io.locks import lock_output
from elmokit.model import Elmo
from elmokit.waits import show_progress

__all__ = ["TaskElmo", "LayerStore", "check_layers_fit", "open_elmo"]

RECORD = np.dtype([("key", "S16"), ("start", "<i8"), ("length", "<i8")])
WORDS_PER_WRITE = 1 << 16
LARGEST_RESIDENT = 0.25  # of the free memory of a GPU: several runs share one


@dataclass
class TaskElmo:
    """An ELMo model, and how a saved task finds it again.

    Arguments:
        elmo: the model, without mixes.
        source: where it came from.
        travels: whether it is copied into the folder of a task, because nobody else has it.
    """

    elmo: Elmo
    source: str
    travels: bool

    @property
    def fingerprint(self) -> str:
        """A hash of its weights as they are now."""
        return self.elmo.fingerprint()

    @property
    def num_layers(self) -> int:
        """L."""
        return self.elmo.config.num_layers

    @property
    def dim(self) -> int:
        """D."""
        return self.elmo.config.dim


def open_elmo(source: str, *, tunes: bool = False, random: bool = False, seed: int = 0) -> TaskElmo:
    """The ELMo model of a source, for a task.

    Arguments:
        source: a model's name, a folder, a `.zip` or a hub id.
        tunes: whether the biLM learns.
        random: take its architecture only, with weights drawn by the seed.
        seed: of a random model.
    """
    elmo = Elmo.from_pretrained(source, num_mixes=0, requires_grad=tunes)
    if random:
        elmo = Elmo.random(
            elmo.config,
            seed=seed,
            alphabet=elmo.alphabet,
            vocabulary=elmo.vocabulary,
            num_mixes=0,
            requires_grad=tunes,
        )
    is_known_everywhere = source in model_names() or not Path(source).exists()
    return TaskElmo(elmo, source, travels=tunes or random or not is_known_everywhere)


def check_layers_fit(layers_LWD: np.ndarray, words: Sequence[str]) -> None:
    """Refuse the layers of a sentence that float16 cannot hold."""
    check_float16(layers_LWD, f"the layers of {' '.join(words)[:60]!r}", advice="is the model whole?")


class LayerStore:
    """The layers of sentences, on disk.

    Arguments:
        folder: where stores are kept; this one gets a folder of its own in it.
        source: the model, which must not change.
        device: where layers are wanted; on a GPU the whole store goes there if it is small.

    Example:
        >>> from elmokit import ElmoConfig
        >>> source = TaskElmo(Elmo.random(ElmoConfig.tiny(), num_mixes=0), "random", travels=True)
        >>> store = LayerStore("layers", source)
        >>> store.add([["the", "bank"], ["hello"]])
        2
        >>> store.gather([["hello"], ["the", "bank"]]).shape
        torch.Size([3, 2, 2, 128])
    """

    def __init__(
        self, folder: str | os.PathLike[str], source: TaskElmo, *, device: str | torch.device | None = None
    ) -> None:
        self.source = source
        self.device = torch.device(device or "cpu")
        self.folder = Path(folder) / source.fingerprint
        self.width = source.num_layers * source.dim
        self._header = self.folder / "store.json"
        self._facts = {"layers": source.num_layers, "dim": source.dim, "format_version": 1}
        self._places: dict[bytes, tuple[int, int]] = {}
        self._mapped_RF = self._rows_RF = torch.empty(0)
        self._open()

    def __contains__(self, words: Sequence[str]) -> bool:
        return not words or _key(words) in self._places

    def add(self, sentences: Iterable[Sequence[str]], *, progress: bool = False) -> int:
        """Compute the layers of those sentences that are not here yet; how many that were."""
        with lock_output(self.folder, waits=True):
            self._open()  # another process may have added some meanwhile
            missing = {_key(words): words for words in sentences if words not in self}
            if missing:
                self._compute(list(missing), list(missing.values()), progress=progress)
                self._open()
        return len(missing)

    def gather(self, sentences: Sequence[Sequence[str]]) -> Tensor | None:
        """Layers (L, B, W, D) of these sentences, zeros where no word is; `None` if one of them is not here."""
        places = [self._places.get(_key(words)) if words else (0, 0) for words in sentences]
        if None in places:
            return None
        known = [place for place in places if place is not None]
        starts_B, lengths_B = np.array(known, np.int64).reshape(-1, 2).T
        place_W = np.arange(max(1, int(lengths_B.max(initial=1))))
        rows_BW = np.where(place_W < lengths_B[:, None], starts_B[:, None] + place_W, 0)
        rows_RF = self._load_rows()
        layers_BWF = move_to_device(F.embedding(move_to_device(rows_BW, rows_RF.device), rows_RF), self.device)
        layers_BWLD = layers_BWF.float().unflatten(2, (self.source.num_layers, self.source.dim))
        return layers_BWLD.permute(2, 0, 1, 3)

    def _compute(self, keys: list[bytes], sentences: list[Sequence[str]], *, progress: bool) -> None:
        if not self._header.exists():
            replace_text(self._header, json.dumps(self._facts))
        embedder = Embedder(self.source.elmo, device=self.device)
        with (
            self._file("layers.f16") as rows_file,
            self._file("index.bin") as index_file,
            show_progress(total=sum(map(len, sentences)), desc="ELMo layers", unit="word", hidden=not progress) as bar,
        ):
            row = rows_file.tell() // (2 * self.width)
            waiting: list[np.ndarray] = []
            records: list[tuple[bytes, int, int]] = []
            for places, arrays in embedder.embed_batches(sentences, layers="all"):
                for place, layers_LWD in zip(places, arrays, strict=True):
                    length = layers_LWD.shape[1]
                    check_layers_fit(layers_LWD, sentences[place])
                    # By torch, which rounds four times as fast as numpy does.
                    halves_LWD = torch.from_numpy(layers_LWD).half()
                    waiting.append(halves_LWD.transpose(0, 1).reshape(length, self.width).numpy())
                    records.append((keys[place], row, length))
                    row += length
                    bar.update(length)
                if sum(map(len, waiting)) >= WORDS_PER_WRITE:
                    _write(rows_file, index_file, waiting, records)
                    waiting, records = [], []
            _write(rows_file, index_file, waiting, records)

    def _open(self) -> None:
        """Read the index, and map the rows it speaks of; what a kill left behind is cut off by the next `add`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._header.exists() and json.loads(self._header.read_text(encoding="utf-8")) != self._facts:
            raise CheckpointError(
                f"{self.folder}: a store of another kind of layers; remove it, or name another folder"
            )
        index = self.folder / "index.bin"
        count = index.stat().st_size // RECORD.itemsize if index.exists() else 0
        records = np.fromfile(index, RECORD, count) if count else np.zeros(0, RECORD)
        keys = (key.ljust(16, b"\0") for key in records["key"].tolist())  # numpy strips zeros at the end
        self._places = dict(
            zip(keys, zip(records["start"].tolist(), records["length"].tolist(), strict=True), strict=True)
        )
        num_rows = int((records["start"] + records["length"]).max(initial=0))
        rows = self.folder / "layers.f16"
        if num_rows:
            held = rows.stat().st_size // (2 * self.width) if rows.exists() else 0
            if held < num_rows:
                raise CheckpointError(f"{rows}: expected {num_rows:,} rows, found {held:,}; remove {self.folder}")
            flat = torch.from_file(str(rows), shared=False, size=num_rows * self.width, dtype=torch.float16)
            self._mapped_RF = flat.view(num_rows, self.width)
        else:
            self._mapped_RF = torch.zeros(1, self.width, dtype=torch.float16)
        self._rows_RF = torch.empty(0)

    def _load_rows(self) -> Tensor:
        """The rows where they are read fastest: on a GPU that has room for them, else mapped from the file."""
        if not len(self._rows_RF):  # only now, when all that is wanted has been added
            self._rows_RF = self._mapped_RF
            if self.device.type == "cuda":
                free, _ = torch.cuda.mem_get_info(self.device)
                if self._mapped_RF.nbytes <= LARGEST_RESIDENT * free:
                    self._rows_RF = self._mapped_RF.to(self.device)
        return self._rows_RF

    @contextmanager
    def _file(self, name: str) -> Iterator[BinaryIO]:
        """A file to append to, cut back to what the index speaks of."""
        num_rows = max((start + length for start, length in self._places.values()), default=1)
        size = {"layers.f16": 2 * self.width * num_rows, "index.bin": RECORD.itemsize * len(self._places)}[name]
        path = self.folder / name
        try:
            path.touch()
            with path.open("rb+") as file:
                file.truncate(size)  # also makes row 0 of a new store, as zeros
                file.seek(size)
                yield file
        except OSError as problem:
            raise OutputError(f"{path}: layers cannot be written: {problem.strerror or problem}") from problem


def _write(rows_file: BinaryIO, index_file: BinaryIO, rows: list[np.ndarray], records: list[tuple]) -> None:
    """Rows first, then the index that speaks of them."""
    for file, contents in ((rows_file, rows), (index_file, [np.array(records, RECORD)])):
        for part in contents:
            file.write(part.tobytes())
        file.flush()
        os.fsync(file.fileno())


def _key(words: Sequence[str]) -> bytes:
    return hashlib.blake2b("\0".join(words).encode("utf-8", "surrogatepass"), digest_size=16).digest()
