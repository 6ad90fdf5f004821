"""What the tests of this folder share: the golden vectors."""

import numpy as np
import pytest


@pytest.fixture(scope="module")
def golden(folder):
    """The arrays that the original program gave for the model in `folder`, a fixture of the test's own file."""
    with np.load(folder / "golden.npz") as file:
        return dict(file)
