"""Lets the tests of this folder import what lies beside them, and keeps their tiny matrices on one thread."""

import sys
from pathlib import Path

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
