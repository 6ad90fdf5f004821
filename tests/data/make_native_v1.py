"""Made `native-v1/`, the model in format version 1 that must load forever. Do not run again: keep its output.

    PYTHONPATH=src python tests/data/make_native_v1.py

Random numbers of a tiny model with everything that a folder of version 1 can hold, and `native-v1-expected.json`:
the sum of each tensor in float64, by which a later reader can tell that it read the same numbers.
"""

import json
from pathlib import Path

import numpy as np
import torch

from elmokit.config import CharConfig, ElmoConfig, LstmConfig, WordConfig
from elmokit.io import Checkpoint, expected_shapes, save
from elmokit.io.checkpoint import optional_shapes

HERE = Path(__file__).parent
ALPHABET = ["<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>", "a", "é", "\u3000", "字", "😀"]
WORDS = ["<oov>", "<bos>", "<eos>", "the", "bank"]
OUTPUTS = ["<S>", "</S>", "<UNK>", "a b", "\u2028"]


def main() -> None:
    random = np.random.default_rng(2018)

    def tensor(shape: tuple[int, ...]) -> torch.Tensor:
        return torch.from_numpy(np.asarray(random.standard_normal(shape), "float32"))

    config = ElmoConfig(
        CharConfig(
            "unicode", max_length=12, num_symbols=len(ALPHABET), dim=3, filters=((1, 2), (3, 4)), num_highways=1
        ),
        WordConfig(num_words=len(WORDS), dim=2),
        LstmConfig(num_layers=2, cell_dim=6, projection_dim=4, cell_clip=None, projection_clip=3.0),
    )
    shapes = expected_shapes(config) | optional_shapes(config)
    tensors = {name: tensor(shape) for name, shape in shapes.items()}
    softmax = {"softmax.weight": tensor((len(OUTPUTS), 4)), "softmax.bias": tensor((len(OUTPUTS),))}
    checkpoint = Checkpoint(
        config,
        tensors,
        alphabet=ALPHABET,
        swaps_markers=True,
        vocabulary=WORDS,
        softmax=softmax,
        output_words=OUTPUTS,
        metadata={"name": "Version 1", "license": "apache-2.0", "language": "en"},
    )
    save(checkpoint, HERE / "native-v1")
    sums = {name: float(values.double().sum()) for name, values in (tensors | softmax).items()}
    (HERE / "native-v1-expected.json").write_text(json.dumps(sums, indent=1) + "\n")


if __name__ == "__main__":
    main()
