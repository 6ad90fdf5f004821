"""Where a process of a run stands: which of how many it is, and on which device it computes.

Alone, or one of several that `torchrun` started, on one machine or many: then they find each other here, add up what
each has, and wait for each other. Only the first speaks and writes files. Who has introduced the processes to each
other already, as Ray Train does, is taken at its word.

A process that dies breaks its connections, and the others end at once. A network that is cut breaks nothing: the others
would wait, each for its share of the gradient. So nobody waits longer than `patience`, except while the first encodes
the text; whatever started the processes then starts them again, and they continue from the checkpoint.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import cast

import torch
from torch import distributed
from tqdm import tqdm

from elmokit.devices import find_device

__all__ = ["PATIENCE", "Place", "choose_sum_dtype", "find_place"]

# The others wait while the first process encodes the text, which may take hours.
LONG_WAIT = timedelta(days=2)
PATIENCE = 600.0  # seconds


@dataclass(frozen=True)
class Place:
    """Which of how many processes this is, and where it computes.

    Arguments:
        rank: its number, from 0.
        world: how many there are.
        device: where it computes.
        is_quiet: whether it shows nothing.
        waiting: the group of all processes in which they wait for as long as it takes; the usual one if not given.
    """

    rank: int
    world: int
    device: torch.device
    is_quiet: bool = False
    waiting: distributed.ProcessGroup | None = None

    @property
    def is_first(self) -> bool:
        """Whether this process writes and speaks."""
        return self.rank == 0

    def wait(self, *, long: bool = False) -> None:
        """Wait for all processes to come here.

        Arguments:
            long: whether one of them may have hours of work before it comes.
        """
        if self.world > 1:
            distributed.barrier(self.waiting if long else None)

    def total(self, values: Sequence[float]) -> list[float]:
        """The sums of these numbers over all processes, which must all ask."""
        if self.world == 1:
            return list(values)
        sums = torch.tensor(values, dtype=torch.float64, device=self.device)
        distributed.all_reduce(sums)
        return sums.tolist()

    def say(self, line: str) -> None:
        """Show a line, above the progress bar if there is one."""
        if self.is_first and not self.is_quiet:
            tqdm.write(line)


@contextmanager
def find_place(device: str | None = None, *, is_quiet: bool = False, patience: float = PATIENCE) -> Iterator[Place]:
    """This process's place, by what `torchrun` says; the processes part again at the end.

    Arguments:
        device: `"cpu"`, `"cuda"`, …; a GPU if there is one. With several processes each takes its own GPU.
        is_quiet: whether no process shows anything.
        patience: seconds that a process waits for the others.
    """
    kind = device or ("cuda" if torch.cuda.is_available() else "cpu")
    world, on_gpu = int(os.environ.get("WORLD_SIZE", "1")), kind.startswith("cuda")
    if world > 1 and on_gpu:
        kind = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
    place = find_device(kind)
    if on_gpu:
        torch.cuda.set_device(place.index or 0)  # it wants a number
    if world == 1:
        yield Place(0, 1, place, is_quiet)
        return
    is_ours = not distributed.is_initialized()
    if is_ours:
        distributed.init_process_group("nccl" if on_gpu else "gloo", timeout=timedelta(seconds=patience))
    waiting = cast(distributed.ProcessGroup, distributed.new_group(timeout=LONG_WAIT))
    try:
        yield Place(distributed.get_rank(), distributed.get_world_size(), place, is_quiet, waiting)
        distributed.barrier()  # the first process keeps the others' meeting place: it must not leave before them
    finally:
        gc.collect()  # gloo's threads end with the last reference to the group; the process aborts if they outlive it
        distributed.destroy_process_group(None if is_ours else waiting)


def choose_sum_dtype(device: torch.device) -> torch.dtype:
    """What losses are added up in there: float64, which Apple's GPUs lack.

    Example:
        >>> choose_sum_dtype(torch.device("cpu")), choose_sum_dtype(torch.device("mps"))
        (torch.float64, torch.float32)
    """
    return torch.float32 if device.type == "mps" else torch.float64
