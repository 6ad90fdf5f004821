"""A trained model becomes a small folder to ship: rounded weights, int8 output layer, canonical state, facts, a card.

    python recipes/bundle.py TRAINED FOLDER [--dtype int8] [--mix results.json] [--about about.json] [--card more.md]

`results.json` is what `elmo task train` wrote of a task that learned a mix at its input: it becomes the model's own mix
(`layers="mix"`). `about.json` holds facts for the card, an object of strings; `more.md` is put at the end of it. The
files of a package's model then go to packages/elmokit-NAME/elmokit_NAME, beside `__init__.py`.
"""

import argparse
import json
import math
from pathlib import Path

import torch

from elmokit import Elmo
from elmokit.io import load, save
from elmokit.pretrain.rare_bytes import calm_rare_bytes

LIMIT = 44e6
CHARACTERS = "encoder.characters.embedding"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trained")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dtype", choices=("float16", "int8"), default="float16")
    parser.add_argument("--mix", type=Path)
    parser.add_argument("--about", type=Path)
    parser.add_argument("--card", type=Path)
    asked = parser.parse_args()
    checkpoint = load(asked.trained, softmax=True)
    if asked.about:
        checkpoint.metadata |= json.loads(asked.about.read_text(encoding="utf-8"))
    if asked.mix:
        result = json.loads(asked.mix.read_text(encoding="utf-8"))
        mix = result["mixes"]["input"]
        # A softmax gives these weights back, whatever constant is added to their logarithms.
        checkpoint.tensors["mix.weights"] = torch.tensor([math.log(weight) for weight in mix["weights"]])
        checkpoint.tensors["mix.gamma"] = torch.tensor(mix["gamma"])
        weights = ", ".join(f"{weight:.3f}" for weight in mix["weights"])
        learned = f"learned at the input of the task {result['task']}"
        checkpoint.metadata["mix"] = f"{weights}, times {mix['gamma']:.3f}; {learned}"
    if checkpoint.config.characters is not None and checkpoint.config.characters.scheme == "bytes":
        # `elmo train` does this when it saves a model; older ones have not had it, and a second time changes nothing.
        checkpoint.tensors[CHARACTERS] = calm_rare_bytes(checkpoint.tensors[CHARACTERS], checkpoint.output_words)
    state = Elmo.from_checkpoint(load(asked.trained)).canonical_state
    checkpoint.tensors["canonical.hidden"], checkpoint.tensors["canonical.cell"] = (part[:, :, 0] for part in state)
    save(checkpoint, asked.folder, dtype=asked.dtype, softmax_dtype="int8")
    card = asked.folder / "README.md"
    text = card.read_text(encoding="utf-8")
    text = text.replace("path/to/this/folder", checkpoint.metadata.get("name", "path/to/this/folder"))
    text += "\n" + asked.card.read_text(encoding="utf-8") if asked.card else ""
    card.write_text(text, encoding="utf-8")
    sizes = {path.name: path.stat().st_size for path in asked.folder.iterdir()}
    for name, size in sorted(sizes.items()):
        print(f"{size / 1e6:8.2f} MB  {name}")
    total = sum(sizes.values())
    judgement = "within" if total <= LIMIT else "MORE THAN"
    print(f"{total / 1e6:8.2f} MB  in all, {judgement} the {LIMIT / 1e6:.0f} MB to ship")


if __name__ == "__main__":
    main()
