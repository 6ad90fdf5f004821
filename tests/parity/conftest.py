"""Lets the tests of this folder import `numpy_reference` and `random_models`, which lie beside them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
