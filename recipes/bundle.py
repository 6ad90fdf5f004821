"""A trained model becomes a small folder to ship: rounded weights, int8 output layer, canonical state, facts, a card.

    python recipes/bundle.py TRAINED FOLDER [--dtype int8] [--mix results.json] [--about about.json] [--card more.md]
                             [--words 105600] [--average OTHER] [--calibrate unseen.txt]

`results.json` is what `elmo task train` wrote of a task that learned a mix at its input: it becomes the model's own mix
(`layers="mix"`). `about.json` holds facts for the card, an object of strings; `more.md` is put at the end of it.
--words keeps the most frequent words of the output layer; the probability of the others goes to <UNK>. --average takes
the mean of the weights of TRAINED and of a model that was trained on from it, which can predict better than either.
--calibrate scales the logits so that a text that the model was never trained on is likeliest: a model that knows its
training text partly by heart is too sure of itself on any other (temperature scaling, Guo et al. 2017). The order of
the words that it expects stays.
The files of a package's model then go to packages/elmokit-NAME/elmokit_NAME, beside `__init__.py`.
"""

import argparse
import json
import math
from pathlib import Path

import numpy as np
import torch

from elmokit import Elmo, LanguageModel
from elmokit.errors import ElmoError
from elmokit.io import load, save
from elmokit.nn.output_layer import OutputLayer
from elmokit.pretrain.basis import average_models
from elmokit.pretrain.rare_bytes import calm_rare_bytes
from elmokit.text.files import LineReader

LIMIT = 95e6  # bytes of a file
CHARACTERS = "encoder.characters.embedding"
SCALES = np.array([0.8, 0.85, 0.9, 0.95, 1.0, 1.05])  # of the logits, between which the best is chosen
UNSEEN_LINES = 500  # on which it is chosen, from all over the text


def main():
    parser = make_parser()
    try:
        bundle(parser.parse_args())
    except (ElmoError, OSError, ValueError) as problem:  # json.JSONDecodeError is a ValueError
        parser.exit(2, f"bundle.py: {problem}\n")


def make_parser():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trained")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dtype", choices=("float16", "int8"), default="float16")
    parser.add_argument("--mix", type=Path)
    parser.add_argument("--about", type=Path)
    parser.add_argument("--card", type=Path)
    parser.add_argument("--words", type=int)
    parser.add_argument("--average", type=Path)
    parser.add_argument("--calibrate", type=Path)
    return parser


def bundle(asked):
    checkpoint = load(asked.trained, softmax=True)
    if asked.average:
        other = load(asked.average, softmax=True)
        checkpoint.tensors, checkpoint.softmax = average_models(checkpoint, other)
        checkpoint.metadata.pop("held_out_perplexity", None)  # the first one's
        more = other.metadata.get("training_words", "some")
        checkpoint.metadata["average"] = f"the mean of two models, the second after {more} more words"
    if asked.about:
        checkpoint.metadata |= json.loads(asked.about.read_text(encoding="utf-8"))
    if asked.mix:
        result = json.loads(asked.mix.read_text(encoding="utf-8"))
        mix = result["mixes"]["input"]
        parts = [mix["gamma"] * weight for weight in mix["weights"]]
        gamma = sum(parts)
        # A softmax gives these weights back, whatever constant is added to their logarithms.
        checkpoint.tensors["mix.weights"] = torch.tensor([math.log(part / gamma) for part in parts])
        checkpoint.tensors["mix.gamma"] = torch.tensor(gamma)
        weights = ", ".join(f"{part / gamma:.3f}" for part in parts)
        learned = f"learned at the input of the task {result['task']}"
        checkpoint.metadata["mix"] = f"{weights}, times {gamma:.3f}; {learned}"
    if checkpoint.config.characters is not None and checkpoint.config.characters.scheme == "bytes":
        # `elmo train` does this when it saves a model; older ones have not had it, and a second time changes nothing.
        checkpoint.tensors[CHARACTERS] = calm_rare_bytes(checkpoint.tensors[CHARACTERS], checkpoint.output_words)
    if asked.words:
        keep_words(checkpoint, asked.words)
    if asked.calibrate:
        calibrate(checkpoint, asked.calibrate)
    checkpoint.tensors = {name: value for name, value in checkpoint.tensors.items() if not name.startswith("canonical")}
    state = Elmo.from_checkpoint(checkpoint).canonical_state
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
    judgement = "at most" if max(sizes.values()) <= LIMIT else "MORE THAN"
    print(f"{sum(sizes.values()) / 1e6:8.2f} MB  in all, each {judgement} the {LIMIT / 1e6:.0f} MB of a file to ship")


def keep_words(checkpoint, number):
    """Leave the least frequent words out of the output layer; `<UNK>` gets the probability they had by frequency."""
    unknown, bias_V = checkpoint.output_words.index("<UNK>"), checkpoint.softmax["softmax.bias"]
    lost = torch.cat([bias_V[number:], bias_V[unknown : unknown + 1]])  # biases are about logarithms of frequencies
    checkpoint.softmax = {name: value[:number].clone() for name, value in checkpoint.softmax.items()}
    checkpoint.softmax["softmax.bias"][unknown] = lost.logsumexp(0)
    checkpoint.output_words = checkpoint.output_words[:number]


def calibrate(checkpoint, text):
    """Multiply all logits, by weights and biases of the output layer, by the number that predicts the text best."""
    lines = [line.text() for line in LineReader([text])]
    lines = lines[:: -(-len(lines) // UNSEEN_LINES)]
    softmax, elmo = checkpoint.softmax, Elmo.from_checkpoint(checkpoint)
    perplexities = []
    for scale in SCALES:
        output = OutputLayer.from_weights({part: softmax[f"softmax.{part}"] * scale for part in ("weight", "bias")})
        perplexities.append(LanguageModel(elmo, output, checkpoint.output_words).perplexity(lines).mean)
        print(f"logits times {scale:.2f}: perplexity {perplexities[-1]:.2f}", flush=True)
    if int(np.argmin(perplexities)) in (0, len(SCALES) - 1):
        raise ValueError(
            f"--calibrate: {text} is predicted best with logits times {SCALES[np.argmin(perplexities)]}, the end of "
            "what is tried: is it text of the language that the model was trained on, and none of its training text?"
        )
    # The loss is a smooth, convex function of the scale.
    fine = np.linspace(SCALES[0], SCALES[-1], 251)
    scale = float(fine[np.polyval(np.polyfit(SCALES, np.log(perplexities), 3), fine).argmin()])
    checkpoint.softmax = {name: value * scale for name, value in softmax.items()}
    checkpoint.metadata["calibration"] = f"logits times {scale:.3f}, chosen on {text.name}"
    print(f"logits times {scale:.3f}")


if __name__ == "__main__":
    main()
