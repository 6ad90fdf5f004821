"""First signs of meaning: Word-in-Context accuracy and word similarity by layer, beside GloVe's.

    python benchmarks/meaning.py --wic FOLDER --similarity FILE… [--glove FILE] [--model en-small]

WiC (Pilehvar and Camacho-Collados 2019): does a word mean the same in two sentences? Cosine of its two vectors against
a threshold that is chosen on the training part and applied to the dev part. Similarity: Spearman correlation of
cosines with people's ratings; a word's vector is that of the word alone in a sentence. FOLDER holds train/ and dev/.
"""

import argparse
from pathlib import Path

import numpy as np

import elmokit
from elmokit.vectors import read_vectors


def spearman(first, second):
    def ranks(values):
        order = np.argsort(values)
        ranked = np.empty(len(values))
        ranked[order] = np.arange(len(values))
        for value in np.unique(values):  # equal values share their mean rank
            ranked[values == value] = ranked[values == value].mean()
        return ranked

    return float(np.corrcoef(ranks(np.asarray(first)), ranks(np.asarray(second)))[0, 1])


def cosine(first, second):
    return float(first @ second / (np.linalg.norm(first) * np.linalg.norm(second) + 1e-12))


def read_wic(folder, part):
    rows = [line.split("\t") for line in (folder / part / f"{part}.data.txt").read_text(encoding="utf-8").splitlines()]
    gold = (folder / part / f"{part}.gold.txt").read_text(encoding="utf-8").split()
    return rows, np.array([label == "T" for label in gold])


def wic_cosines(embedder, rows):
    """(pairs, layers + 1) cosines of the target's two vectors, the average of layers last."""
    sentences = [row[side].split() for row in rows for side in (3, 4)]
    vectors = embedder.embed(sentences, layers="all")
    cosines = []
    for number, row in enumerate(rows):
        places = [int(place) for place in row[2].split("-")]
        pair = [vectors[2 * number + side][:, place] for side, place in enumerate(places)]
        cosines.append(
            [cosine(*layer) for layer in zip(*pair, strict=True)] + [cosine(pair[0].mean(0), pair[1].mean(0))]
        )
    return np.array(cosines)


def best_threshold(values, gold):
    candidates = np.unique(values)
    scores = [((values >= candidate) == gold).mean() for candidate in candidates]
    return candidates[int(np.argmax(scores))]


def read_glove(path):
    vectors = read_vectors(path)
    return dict(zip(vectors.words, vectors.table_VE, strict=True))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="en-small")
    parser.add_argument("--wic", type=Path)
    parser.add_argument("--similarity", nargs="*", type=Path, default=[])
    parser.add_argument("--glove", type=Path)
    args = parser.parse_args()
    embedder = elmokit.Embedder.from_pretrained(args.model)
    names = [f"layer {number}" for number in range(embedder.num_layers)] + ["average"]
    print(f"{'':22s}" + "".join(f"{name:>10s}" for name in names) + f"{'GloVe':>10s}")
    if args.wic:
        train, dev = (read_wic(args.wic, part) for part in ("train", "dev"))
        trained, seen = wic_cosines(embedder, train[0]), wic_cosines(embedder, dev[0])
        scores = [((seen[:, k] >= best_threshold(trained[:, k], train[1])) == dev[1]).mean() for k in range(len(names))]
        majority = max(dev[1].mean(), 1 - dev[1].mean())
        print(f"{'WiC dev accuracy':22s}" + "".join(f"{score:10.1%}" for score in scores) + f"{majority:10.1%}")
        print("(a word's GloVe vector is the same in both sentences, so GloVe can only guess)")
    glove = read_glove(args.glove) if args.glove else {}
    for path in args.similarity:
        rows = [line.split() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        words = sorted({word for row in rows for word in row[:2]})
        vectors = dict(
            zip(words, (v[:, 0] for v in embedder.embed([[word] for word in words], layers="all")), strict=True)
        )
        ratings = [float(row[2]) for row in rows]
        found = [
            [cosine(a, b) for a, b in zip(vectors[row[0]], vectors[row[1]], strict=True)]
            + [cosine(vectors[row[0]].mean(0), vectors[row[1]].mean(0))]
            for row in rows
        ]
        scores = [spearman([pair[k] for pair in found], ratings) for k in range(len(names))]
        line = f"{path.stem:22s}" + "".join(f"{score:10.3f}" for score in scores)
        known = [
            (row, rating) for row, rating in zip(rows, ratings, strict=True) if row[0] in glove and row[1] in glove
        ]
        if known:
            theirs = [cosine(glove[row[0]], glove[row[1]]) for row, _ in known]
            line += f"{spearman(theirs, [rating for _, rating in known]):10.3f}"
            line += f"  ({len(known)} of {len(rows)} pairs)"
        print(line)


if __name__ == "__main__":
    main()
