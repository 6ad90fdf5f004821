"""Are uses of a word with one meaning nearer than uses with another? Text that is no test set, for choosing settings.

    python benchmarks/senses_apart.py SEMCOR.jsonl WIC_TRAIN_FOLDER [--model en-small] [--device cuda]

SemCor: nouns with senses of several WordNet categories (food, artifact, act, …). For every use, another of the same
sense and one of another category, all from different documents: is the vector nearer to that of its own sense? The
share of such triples, averaged over nouns; chance is 50 %. WiC's training pairs: the probability that a pair of one
meaning is nearer than a pair of two (area under the curve). Prints one line of JSON, by layer.
"""

import argparse
import json
import random
from collections import defaultdict
from itertools import product
from pathlib import Path

import numpy as np

import elmokit

USES = 6  # of a sense, from different documents
TRIPLES = 60  # of a noun


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("semcor", type=Path)
    parser.add_argument("wic", type=Path)
    parser.add_argument("--model", default="en-small")
    parser.add_argument("--device", default="cpu")
    asked = parser.parse_args()
    embedder = elmokit.Embedder.from_pretrained(asked.model, device=asked.device)
    nouns, pairs = read_nouns(asked.semcor), read_pairs(asked.wic)
    words = {word for senses in nouns.values() for uses in senses.values() for word in uses}
    words |= {word for *both, _ in pairs for word in both}
    vectors = embed_words(embedder, sorted(words))
    result = {"model": asked.model, "nouns": len(nouns), "pairs": len(pairs)}
    for layer in range(1, embedder.num_layers):
        near = {word: vector[layer] for word, vector in vectors.items()}
        result[f"layer {layer}"] = {"semcor": share_of_triples(near, nouns), "wic": area_of_pairs(near, pairs)}
    print(json.dumps(result))


def read_nouns(path):
    """{lemma: {(category, sense): [(words, place), …]}} of nouns whose uses have several categories."""
    found = defaultdict(lambda: defaultdict(dict))
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        for place, (word, lemma, keys) in enumerate(zip(row["words"], row["lemmas"], row["senses"], strict=True)):
            kind, _, rest = (keys or [""])[0].partition("%1:")
            if rest and len(keys) == 1 and kind == lemma and "_" not in word:
                sense = (rest.partition(":")[0], keys[0])
                found[lemma][sense].setdefault(row["doc"], (tuple(row["words"]), place, row["doc"]))
    nouns, shuffle = {}, random.Random(0).shuffle
    for lemma, senses in found.items():
        kept = {}
        for sense, by_document in senses.items():
            uses = list(by_document.values())
            shuffle(uses)
            kept[sense] = uses[:USES]
        if len({category for category, _ in kept}) > 1 and max(map(len, kept.values())) > 1:
            nouns[lemma] = kept
    return nouns


def read_pairs(folder):
    """[(words, place, ""), the same of the other sentence, have one meaning] of WiC's training part."""
    rows = (folder / "train.data.txt").read_text(encoding="utf-8").splitlines()
    answers = (folder / "train.gold.txt").read_text(encoding="utf-8").split()
    pairs = []
    for row, answer in zip(rows, answers, strict=True):
        _, _, places, *sentences = row.split("\t")
        both = [(tuple(s.split()), int(p), "") for s, p in zip(sentences, places.split("-"), strict=True)]
        pairs.append((*both, answer == "T"))
    return pairs


def embed_words(embedder, words):
    """{(words, place, document): vector (L, D) of length 1 in each layer}"""
    vectors = {}
    for start in range(0, len(words), 2_000):
        part = words[start : start + 2_000]
        for word, found in zip(part, embedder.embed([list(w) for w, _, _ in part], layers="all"), strict=True):
            vector = found[:, word[1]].astype(np.float32)
            vectors[word] = vector / np.linalg.norm(vector, axis=-1, keepdims=True)
    return vectors


def share_of_triples(vectors, nouns):
    """The share of triples in which the use of the same sense is the nearer one, averaged over nouns."""
    shares, chosen = [], random.Random(1)
    for senses in nouns.values():
        triples = [
            (anchor, same, other)
            for (category, sense), uses in senses.items()
            for anchor, same in product(uses, uses)
            if anchor is not same
            for (second, _), others in senses.items()
            if second != category
            for other in others
            if other[2] not in (anchor[2], same[2])
        ]
        if triples:
            triples = chosen.sample(triples, min(TRIPLES, len(triples)))
            shares.append(np.mean([vectors[a] @ vectors[s] > vectors[a] @ vectors[o] for a, s, o in triples]))
    return round(100 * float(np.mean(shares)), 2)


def area_of_pairs(vectors, pairs):
    """The probability that a pair of one meaning is nearer than a pair of two."""
    cosines = np.array([vectors[one] @ vectors[other] for one, other, _ in pairs])
    is_one = np.array([answer for *_, answer in pairs])
    ranks = cosines.argsort().argsort() + 1
    positive, negative = is_one.sum(), (~is_one).sum()
    return round(100 * float((ranks[is_one].sum() - positive * (positive + 1) / 2) / (positive * negative)), 2)


if __name__ == "__main__":
    main()
