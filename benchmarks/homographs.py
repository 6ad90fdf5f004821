"""Does a word's vector know which sense it has? Homographs, two senses, three sentences each.

    python benchmarks/homographs.py [--model en-small] [--state zero] [--words tests/data/homographs.json]

The list is of fourteen English words; homographs-ko.json and homographs-zh.json beside it are of five words each.

For every triple (a word in one sentence, in another sentence of the same sense, in one of the other sense): is the
vector nearer to that of its own sense? Prints the share of such triples by layer and by word. Chance is 50 %.
"""

import argparse
import itertools
import json
from pathlib import Path

import numpy as np

import elmokit

HOMOGRAPHS = Path(__file__).parents[1] / "tests" / "data" / "homographs.json"


def triples_right(first_3D, second_3D):
    """How many of the 36 triples of two senses have the same sense nearer, and how many there are."""
    right = total = 0
    for own, other in ((first_3D, second_3D), (second_3D, first_3D)):
        own = own / np.linalg.norm(own, axis=1, keepdims=True)
        other = other / np.linalg.norm(other, axis=1, keepdims=True)
        for anchor, same in itertools.permutations(range(len(own)), 2):
            margins = own[anchor] @ own[same] - other @ own[anchor]
            right += np.where(np.abs(margins) < 1e-6, 0.5, margins > 0).sum()  # equal vectors can only guess
            total += len(other)
    return right, total


def shares_by_layer(embedder, homographs):
    """For each word a list with the share of right triples of each layer, the average of layers last."""
    shares = {}
    for word, senses in homographs.items():
        vectors = []
        for sentences in senses:
            words = [sentence.split() for sentence in sentences]
            found = embedder.embed(words, layers="all")
            vectors.append(np.stack([v[:, w.index(word)] for v, w in zip(found, words, strict=True)], axis=1))
        layers = [tuple(sense[layer] for sense in vectors) for layer in range(len(vectors[0]))]
        layers.append(tuple(sense.mean(axis=0) for sense in vectors))
        counts = [triples_right(*pair) for pair in layers]
        shares[word] = [right / total for right, total in counts]
    return shares


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="en-small")
    parser.add_argument("--state", default="zero")
    parser.add_argument("--words", type=Path, default=HOMOGRAPHS)
    args = parser.parse_args()
    embedder = elmokit.Embedder.from_pretrained(args.model, state=args.state)
    shares = shares_by_layer(embedder, json.loads(args.words.read_text(encoding="utf-8")))
    names = [f"layer {number}" for number in range(embedder.num_layers)] + ["average"]
    print(f"{'':10s}" + "".join(f"{name:>10s}" for name in names))
    for word, values in shares.items():
        print(f"{word:10s}" + "".join(f"{value:10.0%}" for value in values))
    print(f"{'all':10s}" + "".join(f"{value:10.1%}" for value in np.mean(list(shares.values()), axis=0)))


if __name__ == "__main__":
    main()
