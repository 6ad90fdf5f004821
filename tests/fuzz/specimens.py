"""Healthy specimens of everything that a mutation can spoil, and the commands that read them.

A folder arrives; in it leave tiny models of each family, task models, a stopped training, stopped jobs, and texts. A
`Specimen` names the files that are spoiled (all below `target`), what must lie beside them, and command lines of which
each is run on the spoiled copy.
"""

from __future__ import annotations

import gzip
import random
import shutil
import sys
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import Mock, patch

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "parity"))

from random_models import write_manylangs  # noqa: E402 - a neighbour, found through the line above

WORDS = ["the", "bank", "river", "money", "she", "sat", "by", "lent", "him", "Übermut", "銀", "don't", "3.14", "-"]
NAMES = "Ann I-X\nLee I-X\nwent O\nto O\nRome I-X\n\nthey O\nleft O\nOslo I-X\n"
TASKS = ("tag", "classify", "infer", "answer", "roles", "coref")
STREAMS = ("--mode", "streams", "--unroll", "8")
QUICK = ["--quiet", "--device", "cpu"]
TRAIN = [
    "train", "text.txt", "-o", "model", "--recipe", "tiny_cpu", "--tokens", "3000", "--tokens-per-batch", "160",
    "--characters.filters", "[[1, 4], [2, 8]]", "--lstm.cell-dim", "12", "--lstm.projection-dim", "8",
    "--vocabulary-size", "60", "--num-negatives", "8", "--minutes", "0", "--workers", "1", "--quiet",
]  # fmt: skip


@dataclass(frozen=True)
class Specimen:
    """What is spoiled, and what is run on it.

    Arguments:
        name: of the kind.
        folder: holds all that a run needs; it is copied for each case, and the run starts in it.
        target: the file or folder in it that is spoiled; empty where the command line itself is.
        commands: command lines.
        outputs: files that a run may write, in which no NaN may stand.
    """

    name: str
    folder: Path
    target: str
    commands: tuple[tuple[str, ...], ...]
    outputs: tuple[str, ...] = ("out.jsonl",)


def make_specimens(root: Path, kinds: Collection[str] = ()) -> None:
    """Write the folders of these kinds of specimens, of all if none is named; some of them train for a moment."""
    rng = np.random.default_rng(0)
    (root / "native").mkdir(parents=True)
    _write_native(root / "native" / "model")
    _write_text(root / "native")
    _run(root / "native", "convert", "model", "hdf5", "--format", "allennlp", "--quiet")
    for name in ("allennlp", "manylangs", "zip"):
        (root / name).mkdir()
        _write_text(root / name)
    shutil.move(root / "native" / "hdf5", root / "allennlp" / "model")
    write_manylangs(root / "manylangs" / "model", rng)
    for source in ("native", "allennlp", "manylangs"):
        shutil.make_archive(str(root / "zip" / source), "zip", root / source / "model")
    for task in TASKS:
        if task == "tag" or not kinds or f"task-{task}" in kinds:
            _write_task(root / f"task-{task}", task, root / "native" / "model")
    for name, more in (("training", ()), ("streams", STREAMS)):
        if not kinds or name in kinds:
            (root / name).mkdir()
            _write_text(root / name)
            _run(root / name, *TRAIN, *more)
    _write_job(root / "job", root / "native" / "model", "out.npy")
    _write_job(root / "growing", root / "native" / "model", "out.parquet")
    for name in ("text", "command"):
        shutil.copytree(root / "native", root / name)
    (root / "text" / "inputs").mkdir()
    for name in ("in.txt", "in.txt.gz", "tags.conll"):
        shutil.move(root / "text" / name, root / "text" / "inputs" / name)
    shutil.copytree(root / "task-tag" / "task", root / "text" / "task")


def list_specimens(root: Path) -> list[Specimen]:
    """The specimens in a folder that `make_specimens` has filled."""
    model = [
        ("info", "model", "--quiet"),
        ("embed", "in.txt", "-o", "out.jsonl", "--model", "model", *QUICK),
        ("compare", "bank", "The river bank", "A bank lent money", "--model", "model", "--quiet"),
    ]
    language_model = [
        ("evaluate", "in.txt", "--model", "model", "--quiet"),
        ("predict", "the bank", "--model", "model", "--quiet"),
        ("convert", "model", "converted", "--quiet"),
    ]
    texts = {
        "infer": ["a river", "a bank"],
        "answer": ["Ann lent Bob money .", "who lent money ?"],
        "classify": ["a bank"],
    }
    specimens = [
        Specimen("native", root / "native", "model", tuple(model + language_model)),
        Specimen("allennlp", root / "allennlp", "model", tuple(model + language_model)),
        Specimen("manylangs", root / "manylangs", "model", tuple(model)),
        *(
            Specimen(f"zip-{name}", root / "zip", f"{name}.zip", (("info", f"{name}.zip", "--quiet"),))
            for name in ("native", "allennlp", "manylangs")
        ),
        *(
            Specimen(
                f"task-{task}",
                root / f"task-{task}",
                "task",
                (("task", "predict", "task", *texts.get(task, ["Ann went to Rome"]), *QUICK),),
            )
            for task in TASKS
        ),
        Specimen("training", root / "training", "model.training", (tuple(TRAIN),)),
        Specimen("streams", root / "streams", "model.training", ((*TRAIN, *STREAMS),)),
        Specimen(
            "job",
            root / "job",
            "out.npy.partial",
            (("embed", "in.txt", "-o", "out.npy", "--resume", "--model", "model", *QUICK),),
            ("out.npy",),
        ),
        Specimen(
            "growing",
            root / "growing",
            "out.parquet.partial",
            (("embed", "in.txt", "-o", "out.parquet", "--resume", "--model", "model", *QUICK),),
            ("out.parquet",),
        ),
        Specimen(
            "text",
            root / "text",
            "inputs",
            (
                ("embed", "inputs/in.txt", "inputs/in.txt.gz", "-o", "out.jsonl", "--model", "model", *QUICK),
                ("embed", "inputs/in.txt", "-o", "out.jsonl", "--split", "--model", "model", *QUICK),
                ("evaluate", "inputs/in.txt", "--model", "model", "--quiet"),
                ("train", "inputs/in.txt", "-o", "run", *TRAIN[4:]),
                ("task", "evaluate", "task", "inputs/tags.conll", *QUICK),
                ("task", "predict", "task", "--file", "inputs/in.txt", *QUICK),
            ),
        ),
        Specimen(
            "command", root / "command", "", (*model, *language_model, ("train", "text.txt", "-o", "run", *TRAIN[4:]))
        ),
    ]
    return [each for each in specimens if each.folder.is_dir()]


def _write_native(folder: Path) -> None:
    import torch

    from elmokit import Elmo, ElmoConfig
    from elmokit.config import CharConfig, LstmConfig
    from elmokit.io import load, save

    characters = CharConfig(dim=3, filters=((1, 4), (2, 6)), num_highways=1)
    config = ElmoConfig(characters, lstm=LstmConfig(cell_dim=8, projection_dim=4))
    Elmo.random(config, seed=3).save_pretrained(folder)
    checkpoint = load(folder)
    vocabulary = ["<S>", "</S>", "<UNK>", *WORDS]
    generator = torch.Generator().manual_seed(0)
    checkpoint.softmax = {
        "softmax.weight": torch.randn(len(vocabulary), 4, generator=generator),
        "softmax.bias": torch.zeros(len(vocabulary)),
    }
    checkpoint.output_words = vocabulary
    save(checkpoint, folder, overwrite=True)


def _write_text(folder: Path) -> None:
    draw = random.Random(1)
    lines = "".join(" ".join(draw.choices(WORDS, k=draw.randint(3, 9))) + "\n" for _ in range(6))
    (folder / "in.txt").write_text(lines, encoding="utf-8")
    (folder / "in.txt.gz").write_bytes(gzip.compress(lines.encode(), mtime=0))
    (folder / "text.txt").write_text(lines * 20, encoding="utf-8")
    (folder / "tags.conll").write_text(NAMES, encoding="utf-8")


def _write_task(folder: Path, name: str, model: Path) -> None:
    """An untrained task model, tiny, with all that words can be known by."""
    import torch

    from elmokit.tasks import find_task
    from elmokit.tasks.config import InputConfig
    from elmokit.tasks.layer_store import open_elmo
    from elmokit.tasks.network.inputs import WordInputs

    sizes = {"hidden": 3, "dropout": 0.1}
    sizes |= {"roles": {"num_layers": 2, "indicator_dim": 2, "detector_hidden": 2}, "coref": {"span_dim": 4}}.get(
        name, {}
    )
    extra = {"roles": {"tags": ["O", "B-A0", "I-A0"]}, "coref": {"keeps_single": True}, "answer": {}}
    labels = {"labels": ["O", "B-X", "I-X", "E-X", "S-X"] if name == "tag" else ["no", "yes"]}
    config = InputConfig(vectors="gone.vec", character_filters=4, elmo=str(model), elmo_at="both")
    inputs = WordInputs(config, words=["the", "bank"], vectors_VE=torch.ones(2, 3), elmo=open_elmo(str(model)))
    kind = find_task(name)
    kind(kind.Config(inputs=config, **sizes), inputs, **extra.get(name, labels)).save(folder / "task")


def _write_job(folder: Path, model: Path, output: str) -> None:
    """A job of which all parts are finished, but not the output."""
    from elmokit import Embedder
    from elmokit.embed.files import embed_files
    from elmokit.embed.parts import PartialFolder

    folder.mkdir()
    _write_text(folder)
    shutil.copytree(model, folder / "model")

    stop = Mock(side_effect=KeyboardInterrupt)
    with (
        patch.multiple(PartialFolder, assembly=stop, end_growing=stop),  # of one kind of output, and of the other
        suppress(KeyboardInterrupt),
    ):
        embedder = Embedder(str(folder / "model"), device="cpu")
        embed_files(str(folder / "in.txt"), folder / output, embedder=embedder)


def _run(folder: Path, *arguments: str) -> None:
    import os

    from elmokit.cli import main

    before = Path.cwd()
    os.chdir(folder)
    try:
        code = main(arguments)
        assert code == 0, f"{folder.name}: {' '.join(arguments)} gave {code}"
    finally:
        os.chdir(before)
