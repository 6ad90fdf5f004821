"""Elmo under DistributedDataParallel: two processes learn what one would, and no parameter is left out.

The test starts this file twice as a program; the processes meet through a file and talk over gloo on this machine.
"""

import gc
import os
import subprocess
import sys

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from elmokit.config import CharConfig, ElmoConfig, LstmConfig
from elmokit.model import Elmo, word_ids

CONFIG = ElmoConfig(
    CharConfig(dim=4, filters=((1, 4), (2, 8)), num_highways=1), lstm=LstmConfig(cell_dim=12, projection_dim=6)
)
SHARES = ([["The", "bank", "of", "the", "river"], ["hello"], []], [["a", "bank", "account", "."], ["it", "is", "open"]])
KINDS = ("trainable", "frozen")
STEPS = 3  # an unused parameter is complained about in the second


def new_elmo(kind):
    return Elmo.random(CONFIG, num_mixes=2, dropout=0.0, requires_grad=kind == "trainable")


def loss_of(elmo, sentences):
    out = elmo(word_ids(sentences))
    return out.mixes[0].square().sum() + out.mixes[1].sin().sum()


def learn(elmo, loss):
    """A few steps of plain gradient descent; the gradients of the last one by name."""
    optimiser = torch.optim.SGD(elmo.parameters(), lr=0.01)
    for _ in range(STEPS):
        optimiser.zero_grad()
        loss().backward()
        optimiser.step()
    return {name: p.grad for name, p in elmo.named_parameters() if p.grad is not None}


def work(rank, folder):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    for kind in KINDS:
        learn_together(kind, rank, folder)
    torch.distributed.barrier()
    gc.collect()  # a process whose gloo threads are still held by a DistributedDataParallel aborts at its end
    torch.distributed.destroy_process_group()


def learn_together(kind, rank, folder):
    parallel = DistributedDataParallel(new_elmo(kind))
    gradients = learn(parallel.module, lambda: loss_of(parallel, SHARES[rank]))
    torch.save(gradients, f"{folder}/{kind}-{rank}.pt")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where both processes have left their gradients."""
    folder = tmp_path_factory.mktemp("distributed")
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    commands = [[sys.executable, __file__, str(rank), str(folder)] for rank in range(2)]
    workers = [subprocess.Popen(each, env=environment, stderr=subprocess.PIPE, text=True) for each in commands]
    try:
        for worker in workers:
            _, said = worker.communicate(timeout=120)
            assert worker.returncode == 0, said
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    return folder


@pytest.mark.skipif(
    sys.platform != "linux" or not torch.distributed.is_available(), reason="needs torch.distributed and the device lo"
)
@pytest.mark.parametrize("kind", KINDS)
def test_two_processes_learn_what_one_would(kind, folder):
    alone = new_elmo(kind)
    expected = learn(alone, lambda: sum(loss_of(alone, share) for share in SHARES) / 2)
    wanted = {name for name, p in alone.named_parameters() if kind == "trainable" or name.startswith("mixes.")}
    for rank in range(2):
        found = torch.load(folder / f"{kind}-{rank}.pt", weights_only=True)
        assert set(found) == set(expected) == wanted
        for name, gradient in expected.items():
            torch.testing.assert_close(found[name], gradient, atol=1e-5, rtol=1e-5, msg=name)


if __name__ == "__main__":
    work(int(sys.argv[1]), sys.argv[2])
    os._exit(0)  # the gradients are on disk; how torch takes gloo down at exit is not what is tested here
