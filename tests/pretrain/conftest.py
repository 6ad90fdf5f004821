"""What the tests of training share: a tiny text that can be learned, a tiny model, and processes that can be killed."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import random
import socket
from collections.abc import Callable, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from elmokit.config import CharConfig, ElmoConfig, LstmConfig
from elmokit.pretrain.recipes import TrainConfig

RING = [
    "ash",
    "bay",
    "cod",
    "dew",
    "elm",
    "fig",
    "gnu",
    "hen",
    "ivy",
    "jay",
    "kit",
    "log",
    "mud",
    "nut",
    "oak",
    "pig",
    "rye",
    "sun",
    "tin",
    "urn",
]


def ring_sentences(count: int, seed: int) -> list[list[str]]:
    """Pieces of a ring of words: each word but the first follows from the one before; a few words occur once."""
    draw = random.Random(seed)
    sentences = []
    for number in range(count):
        start, length = draw.randrange(len(RING)), draw.randrange(3, 10)
        sentence = [RING[(start + step) % len(RING)] for step in range(length)]
        if number % 40 == 0:
            sentence[-1] = f"rare{number}"
        sentences.append(sentence)
    return sentences


@pytest.fixture(scope="session")
def texts(tmp_path_factory) -> tuple[Path, Path]:
    """Files of tokenised text: to learn from, and held out."""
    folder = tmp_path_factory.mktemp("texts")
    paths = folder / "text.txt", folder / "held-out.txt"
    for path, count, seed in zip(paths, (400, 60), (1, 2), strict=True):
        path.write_text("".join(" ".join(words) + "\n" for words in ring_sentences(count, seed)), encoding="utf-8")
    return paths


@pytest.fixture
def tiny() -> Callable[..., TrainConfig]:
    """A configuration of a few thousand parameters, with changes."""

    def make(*, width: int = 8, **changes: Any) -> TrainConfig:
        characters = CharConfig(max_length=12, dim=4, filters=((1, 4), (2, 8)), num_highways=1)
        lstm = LstmConfig(cell_dim=width + 4, projection_dim=width, cell_clip=None, projection_clip=None)
        config = TrainConfig(
            model=ElmoConfig(characters, lstm=lstm),
            vocabulary_size=100,
            tokens=4_000,
            tokens_per_batch=160,
            unroll=8,
            num_negatives=12,
            warmup_tokens=400,
            evaluate_every=2_000,
            checkpoint_every=500,
            log_every=300,
        )
        return dataclasses.replace(config, **changes)

    return make


@pytest.fixture
def losses() -> Callable[[Path], list[dict[str, Any]]]:
    """The log of a run without its speeds, which no two runs share."""

    def read(folder: Path) -> list[dict[str, Any]]:
        lines = folder.with_name(folder.name + ".training").joinpath("log.jsonl").read_text().splitlines()
        return [{name: value for name, value in json.loads(line).items() if "second" not in name} for line in lines]

    return read


@pytest.fixture(scope="session")
def in_processes() -> Callable[..., list[BaseProcess]]:
    """Starts `train(*arguments)` in new processes, which know of each other if there are several."""
    context = multiprocessing.get_context("forkserver")  # from a server that has imported all once
    context.set_forkserver_preload(["elmokit.pretrain.train", "torch._dynamo", "torch.distributed.optim"])

    def start(*arguments: Any, world: int = 1, **options: Any) -> list[BaseProcess]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        processes = []
        for rank in range(world):
            about = {
                "WORLD_SIZE": world,
                "RANK": rank,
                "LOCAL_RANK": rank,
                "MASTER_PORT": port,
                "MASTER_ADDR": "127.0.0.1",
            }
            code = (
                "import os, sys, torch; torch.set_num_threads(1); os.environ.update(about);"
                "from elmokit.pretrain.train import train; train(*arguments, **options)"
            )
            names = {"about": {k: str(v) for k, v in about.items()}, "arguments": arguments, "options": options}
            process = context.Process(target=exec, args=(code, names))
            process.start()
            processes.append(process)
        return processes

    return start


@pytest.fixture(scope="session")
def trained(in_processes) -> Callable[..., Sequence[int | None]]:
    """Runs `train(*arguments)` in other processes to its end; gives their exit codes."""

    def run(*arguments: Any, **options: Any) -> Sequence[int | None]:
        processes = in_processes(*arguments, **options)
        for process in processes:
            process.join(180)
        return [process.exitcode for process in processes]

    return run
