"""What Muon's rate does to the gradients of an LSTM that nothing clips: their norms, its weights and the lost steps.

    PYTHONPATH=src python benchmarks/gradient_norms.py TEXT.txt --rates 4e-3 1.6e-2 6.4e-2 [--tokens 2e5]

Trains the recipe `tiny_cpu` (constant rates after the warm-up) with each rate and prints, for each fifth of the run:
the median and the largest norm of the gradients before clipping, the largest spectral norm of a recurrent gate, the
loss and the steps that were lost because a gradient was not finite. A gradient that is propagated through many words
grows by about the spectral norm of what is applied at each, so it is the long sentences that overflow first.
"""

import argparse
import dataclasses
import json
import tempfile
from pathlib import Path

import torch

from elmokit.errors import TrainingError
from elmokit.pretrain.optim.optimiser import Optimiser
from elmokit.pretrain.recipes import tiny_cpu
from elmokit.pretrain.train import train

PARTS = 5


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("--rates", type=float, nargs="+", default=[4e-3, 1.6e-2, 6.4e-2])
    parser.add_argument("--tokens", type=float, default=2e5)
    asked = parser.parse_args()
    for rate in asked.rates:
        every = int(asked.tokens) // PARTS
        config = dataclasses.replace(
            tiny_cpu(), tokens=int(asked.tokens), muon_learning_rate=rate, warmup_tokens=10_000, log_every=every,
            final_learning_rate=1.0,
        )  # fmt: skip
        measure(asked.text, config)


def measure(text, config):
    norms, plain = [], Optimiser.step

    def step(optimiser, lr_scale):
        norms.append(plain(optimiser, lr_scale).item())
        weights.update({n: p for n, p in optimiser._parameters.items() if "recurrent_weight" in n})

    def show(line):
        if line["kind"] != "train":
            return
        done = torch.tensor(norms)
        largest = max(
            torch.linalg.matrix_norm(gate, 2).item() for p in weights.values() for gate in p.detach().chunk(4, dim=1)
        )
        print(
            f"rate {config.muon_learning_rate:g}, {line['tokens']:,} words: gradients {done.nanmedian():.3g} (median), "
            f"{done.max():.3g} (largest), gates {largest:.2f}, loss {line['loss']:.3f}, lost {line['skipped']}",
            flush=True,
        )
        norms.clear()

    weights = {}
    Optimiser.step = step
    try:
        with tempfile.TemporaryDirectory() as folder:
            train([text], Path(folder) / "model", config, workers=1, report=show)
    except TrainingError as problem:
        print(json.dumps({"rate": config.muon_learning_rate, "stopped": str(problem)}))
    finally:
        Optimiser.step = plain


if __name__ == "__main__":
    main()
