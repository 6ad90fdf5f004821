"""The dropout kernel draws the mask of `pretrain/network.py`, bit for bit, and its gradient drops the same places.

Triton decides once in a process whether it interprets, so without the switch this file runs itself again with it.
"""

import os
import subprocess
import sys

import pytest
import torch

from elmokit.pretrain import network

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


@pytest.mark.skipif(INTERPRETED, reason="this is the interpreted process")
def test_everything_below_with_the_interpreter():
    pytest.importorskip("triton")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", __file__]
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(not INTERPRETED, reason="runs in the interpreted process")
@pytest.mark.parametrize(("num_words", "width"), [(1, 5), (37, 24), (300, 16)])
def test_same_mask_and_gradient(num_words, width):
    from elmokit.nn.kernels.keyed_dropout import keyed_dropout

    values = torch.randn(num_words, width, requires_grad=True)
    keys, seed = torch.arange(num_words) * 7 + 3, torch.tensor(12345)
    expected = network.keyed_dropout(values, keys, seed=seed, rate=0.3)
    hashes = []
    with pytest.MonkeyPatch.context() as patch:  # take the words' hashes from the plain way
        scramble = network._scramble
        patch.setattr(network, "_scramble", lambda x: hashes.append(scramble(x)) or hashes[-1])
        network.keyed_dropout(values, keys, seed=seed, rate=0.3)
    found = keyed_dropout(values, hashes[0], int(0.3 * 2**24), 1 / 0.7)
    assert torch.equal(found, expected)
    upstream = torch.randn_like(found)
    gradients = [torch.autograd.grad(result, values, upstream)[0] for result in (found, expected)]
    assert torch.equal(*gradients)
