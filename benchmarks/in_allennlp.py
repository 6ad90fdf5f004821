"""Does an hdf5 that elmokit writes serve the old tools? AllenNLP's own code reads it, and the vectors are compared.

    python benchmarks/in_allennlp.py MODEL --text FILE --python OTHER_PYTHON --setup SHIM_FOLDER

OTHER_PYTHON belongs to an environment with AllenNLP; SHIM_FOLDER holds the `allennlp_shim.py` that makes its release
importable there (see tests/parity/make_allennlp_golden.py). FILE has one tokenised sentence per line. Ten batches of 32
sentences go through both, the state carried from batch to batch, as AllenNLP always does. Its code runs in float32 and
in float64: rounding grows with the words a state has seen, and the second shows whose it is. Fails if the first batch,
which starts from zero, differs by more than 1e-5, or a later one by more than that and AllenNLP's own rounding.
"""

import argparse
import bz2
import json
import subprocess
import sys
import tempfile
from itertools import islice
from pathlib import Path

import numpy as np

from elmokit import Embedder
from elmokit.io import load, save

THERE = """
import importlib, json, sys
sys.path.insert(0, sys.argv[1])
importlib.import_module("allennlp_shim").install()
import numpy as np, torch
from allennlp.modules.elmo import _ElmoBiLm, batch_to_ids
from allennlp.nn.util import remove_sentence_boundaries
folder, batches = sys.argv[2], json.load(open(sys.argv[3]))
for dtype in (torch.float32, torch.float64):
    model = _ElmoBiLm(folder + "/options.json", folder + "/weights.hdf5").eval().to(dtype)
    with torch.no_grad():
        for number, batch in enumerate(batches):
            out = model(batch_to_ids(batch))
            layers = [remove_sentence_boundaries(layer, out["mask"])[0] for layer in out["activations"]]
            np.save(f"{folder}/{dtype}-{number}.npy", torch.stack(layers).numpy())
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--text", required=True)
    parser.add_argument("--python", required=True)
    parser.add_argument("--setup", required=True)
    asked = parser.parse_args()
    with (bz2.open if asked.text.endswith(".bz2") else open)(asked.text, "rt", encoding="utf-8") as lines:
        sentences = [line.split() for line in islice(lines, 320)]
    batches = [sentences[start : start + 32] for start in range(0, len(sentences), 32)]
    embedder = Embedder.from_pretrained(asked.model, device="cpu", state="carry")
    with tempfile.TemporaryDirectory() as folder:
        save(load(asked.model), folder, format="allennlp")
        (Path(folder) / "batches.json").write_text(json.dumps(batches), encoding="utf-8")
        command = [asked.python, "-c", THERE, asked.setup, folder, f"{folder}/batches.json"]
        subprocess.run(command, check=True)
        worst = {"ours, AllenNLP in float32": [], "ours, AllenNLP in float64": [], "AllenNLP in both": []}
        for number, batch in enumerate(batches):
            single, double = (np.load(f"{folder}/torch.{dtype}-{number}.npy") for dtype in ("float32", "float64"))
            found = embedder.embed(batch, layers="all", batch_size=32)
            pairs = [
                (ours, single[:, row, : ours.shape[1]], double[:, row, : ours.shape[1]])
                for row, ours in enumerate(found)
            ]
            for name, one, other in zip(worst, (0, 0, 1), (1, 2, 2), strict=True):
                worst[name].append(max(abs(arrays[one] - arrays[other]).max() for arrays in pairs))
    print("largest difference, batch by batch")
    for name, values in worst.items():
        print(f"{name:28s}" + " ".join(f"{value:.1e}" for value in values))
    apart, _, rounding = worst.values()
    good = apart[0] <= 1e-5 and all(value <= 1e-5 + error for value, error in zip(apart, rounding, strict=True))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
