"""What the tests of this folder share: imports from beside them, and the golden vectors."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="module")
def golden(folder):
    """The arrays that the original program gave for the model in `folder`, a fixture of the test's own file."""
    with np.load(folder / "golden.npz") as file:
        return dict(file)
