"""Made `native-v2/`, the model in format version 2 that must load forever. Do not run again: keep its output.

    PYTHONPATH=src python tests/data/make_native_v2.py

The model of version 1 with int8 matrices, and `native-v2-expected.json`: the sum of each tensor in float64, as it was
read on the day it was made.
"""

import json
from pathlib import Path

from elmokit.io import load, save

HERE = Path(__file__).parent


def main() -> None:
    folder = save(load(HERE / "native-v1", softmax=True), HERE / "native-v2", dtype="int8")
    again = load(folder, softmax=True)
    sums = {name: float(values.double().sum()) for name, values in (again.tensors | (again.softmax or {})).items()}
    (HERE / "native-v2-expected.json").write_text(json.dumps(sums, indent=1) + "\n")


if __name__ == "__main__":
    main()
