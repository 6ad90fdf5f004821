"""A trained model becomes a small folder to ship: rounded weights, int8 output layer, canonical state, facts, a card.

Bytes that the training text hardly has keep embeddings of random size, several times those of the letters, and one such
byte would drown everything else that a word says: they get the mean embedding of the other bytes that begin a character
of several bytes. No word without such a byte changes.

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
from elmokit.text.scripts import find_scripts

LIMIT = 44e6
NUM_BYTES, LETTERS, LEADS = 256, range(ord("a"), ord("z") + 1), range(0xC2, 0xF0)
MUCH_LARGER = 6  # times the size of the letters' embeddings


def calm_rare_bytes(table_SE):
    """The embedding table with the rows of untrained bytes replaced, and how many there were."""
    sizes_S = table_SE.float().norm(dim=1)
    is_rare_S = sizes_S > MUCH_LARGER * sizes_S[list(LETTERS)].median()
    is_rare_S[NUM_BYTES:] = False  # what begins and ends words and sentences is in every text
    leads = [byte for byte in LEADS if not is_rare_S[byte]]
    mean_E = table_SE[leads].float().mean(dim=0).to(table_SE.dtype)
    return torch.where(is_rare_S.unsqueeze(1), mean_E, table_SE), int(is_rare_S.sum())


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
    if "scripts" not in checkpoint.metadata and checkpoint.output_words is not None:  # trained by an older elmokit
        words = checkpoint.output_words[3:]  # behind <S>, </S>, <UNK>, by falling frequency: Zipf's law
        found = find_scripts(words, (1 / rank for rank in range(1, len(words) + 1)))
        checkpoint.metadata["scripts"] = ", ".join(found)
    characters = checkpoint.config.characters
    if characters is not None and characters.scheme == "bytes":
        table = "encoder.characters.embedding"
        checkpoint.tensors[table], num_rare = calm_rare_bytes(checkpoint.tensors[table])
        print(f"{num_rare} bytes are hardly in the training text: they got the mean embedding of others")
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
