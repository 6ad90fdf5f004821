"""What the tests of this folder share: imports from beside them, one thread, and the golden vectors."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="package", autouse=True)
def one_thread():
    """On a busy machine, handing a 12 by 6 product to a second thread costs a thousand times the product."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def golden(folder):
    """The arrays that the original program gave for the model in `folder`, a fixture of the test's own file."""
    with np.load(folder / "golden.npz") as file:
        return dict(file)
