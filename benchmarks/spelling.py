"""Does a derived word lie near its stem? *doggy* near *dog*, by what a model knows of characters alone.

    python benchmarks/spelling.py [--model en-small] [--pairs benchmarks/derived_words.txt] [--words 30000]

Each derived word is compared with the most frequent words of the model's vocabulary and all words of the list; the
rank of its stem among them is looked at, by the cosine of layer 0, by that of layer 0 with equal variance in all
directions, and as `elmo probe words` compares (what the encoder knows before its last linear map, each feature scaled
to the same spread).
"""

import argparse
from pathlib import Path

import numpy as np

from elmokit import Embedder
from elmokit.embed.layers import scale_to_unit_length
from elmokit.probe.words import compare_spellings, model_vocabulary


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="en-small")
    parser.add_argument("--pairs", type=Path, default=Path(__file__).parent / "derived_words.txt")
    parser.add_argument("--words", type=int, default=30_000)
    asked = parser.parse_args()
    lines = asked.pairs.read_text(encoding="utf-8").splitlines()
    pairs = [line.split() for line in lines if line.strip() and not line.startswith("#")]
    vocabulary = model_vocabulary(asked.model)[: asked.words]
    known = set(vocabulary)
    vocabulary += sorted({word for pair in pairs for word in pair} - known)
    rows = {word: row for row, word in enumerate(vocabulary)}
    derived, stems = ([rows[pair[part]] for pair in pairs] for part in (0, 1))
    embedder = Embedder.from_pretrained(asked.model)
    layer_VD = np.concatenate(embedder.embed([[word] for word in vocabulary], layers=0))
    unit_VD, equal_VD = scale_to_unit_length(layer_VD), scale_to_unit_length(whiten(layer_VD))
    print(f"{len(pairs)} derived words, {sum(pair[0] not in known for pair in pairs)} of them outside the first words")
    print(f"{'':44}{'first':>8}{'in ten':>8}{'median':>8}   the nearest to {pairs[0][0]}")
    show("layer 0", unit_VD[derived] @ unit_VD.T, derived, stems, vocabulary)
    show("layer 0, equal variance in all directions", equal_VD[derived] @ equal_VD.T, derived, stems, vocabulary)
    cosines = compare_spellings(embedder, [pair[0] for pair in pairs], vocabulary, usual=vocabulary)
    show("as elmo probe words", cosines, derived, stems, vocabulary)


def whiten(vectors_VD):
    centred_VD = vectors_VD - vectors_VD.mean(0)
    variances_D, axes_DD = np.linalg.eigh(centred_VD.T @ centred_VD / len(centred_VD))
    return centred_VD @ axes_DD / np.sqrt(np.maximum(variances_D, 1e-4 * variances_D[-1]))


def show(name, cosines_NV, derived, stems, vocabulary):
    each = np.arange(len(derived))
    cosines_NV[each, derived] = -2  # the word itself
    ranks = (cosines_NV > cosines_NV[each, stems][:, None]).sum(1) + 1
    nearest = " ".join(vocabulary[place] for place in np.argsort(-cosines_NV[0])[:5])
    print(f"{name:44}{np.mean(ranks == 1):8.1%}{np.mean(ranks <= 10):8.1%}{np.median(ranks):8.0f}   {nearest}")


if __name__ == "__main__":
    main()
