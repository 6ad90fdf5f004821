"""Which sum of the layers serves best when nobody has chosen one? Fixed weights of the layers, on tests of many kinds.

    python benchmarks/layer_weights.py DATA [--model en-small] [--keep FOLDER] [--weights NAME=W0,W1,W2 ...]

DATA holds what the probes read: wic/, wsd/semcor/semcor3.0.jsonl, wsd/raganato/ALL/, wsd/wordnet/index.sense,
wordsim/*.txt, nli/sick/SICK_test_annotated.txt, classify/trec/TREC.{train,test}. Rows: each layer, the average, the
model's own mix, layers scaled to the same size, and what is given. Columns: homographs (triples that are right), WiC's
dev part and its training part (a threshold on the cosine), word senses (F1), rated words and sentences (Spearman, mean
pooling), TREC (a linear classifier of a question's vector, by pooling). "worst" is the largest loss against the best
single layer in any column, less those of other poolings.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from homographs import HOMOGRAPHS, triples_right

from elmokit import Embedder
from elmokit.probe.frozen import WordSpan, each_mix, freeze, open_folder, span_every_word
from elmokit.probe.linear import fit
from elmokit.probe.rated.sentences import POOLINGS, PooledSource, probe_sentences, read_rated_sentences
from elmokit.probe.rated.words import probe_similarity, read_rated_pairs
from elmokit.probe.sense_data import read_sense_texts, read_wordnet
from elmokit.probe.sources import ElmoSource, LayerMix
from elmokit.probe.wic import best_threshold, read_wic
from elmokit.probe.wsd import ALL, probe_senses
from elmokit.text.labelled import Problems

STRENGTHS = (1.0, 1e-1, 1e-2, 1e-3)  # of the penalty, as for WiC: few examples
UNCOUNTED = ("TREC max", "TREC first_last")  # not what `encode` does unless told


def score_homographs(source, folder):
    """The share of triples whose same sense is nearer, by mix."""
    cases = json.loads(HOMOGRAPHS.read_text(encoding="utf-8"))
    uses = [(word, sentence.split()) for word, senses in cases.items() for sense in senses for sentence in sense]
    spans = [WordSpan(number, words.index(word), words.index(word) + 1) for number, (word, words) in enumerate(uses)]
    rows = {}
    for _, name, (vectors_ND,) in each_mix([source], [([words for _, words in uses], spans)], folder=folder):
        counts = [triples_right(*both) for both in vectors_ND.reshape(len(cases), 2, 3, -1)]
        rows[name] = sum(right for right, _ in counts) / sum(total for _, total in counts)
    return rows


def score_wic(source, folder, data):
    """Accuracy of the threshold that is best on the training part, on the dev part and on that part itself."""
    rows, parts = {}, [read_wic(data / "wic", part) for part in ("dev", "train")]
    golds = [np.array([pair.is_same for pair in part]) for part in parts]
    texts = []
    for part in parts:
        places = [place for pair in part for place in pair.places]
        spans = [WordSpan(number, place, place + 1) for number, place in enumerate(places)]
        texts.append(([sentence for pair in part for sentence in pair.sentences], spans))
    for _, name, both in each_mix([source], texts, folder=folder):
        units = [vectors / np.linalg.norm(vectors, axis=1, keepdims=True) for vectors in both]
        dev, train = ((vectors[::2] * vectors[1::2]).sum(1) for vectors in units)
        threshold = best_threshold(train, golds[1])
        rows[name] = [
            ((cosines >= threshold) == gold).mean() for cosines, gold in zip((dev, train), golds, strict=True)
        ]
    return rows


def score_trec(source, folder, data):
    """Accuracy of a linear classifier on the test questions by pooling, its penalty chosen on a fifth of the others."""
    texts, labels = [], []
    for part in ("train", "test"):
        lines = (data / f"classify/trec/TREC.{part}").read_text(encoding="latin-1").splitlines()
        kinds, questions = zip(*(line.split(" ", 1) for line in lines), strict=True)
        sentences = [question.split() for question in questions]
        texts.append((sentences, span_every_word([POOLINGS] * len(sentences))))
        labels.append([kind.split(":")[0] for kind in kinds])
    names = sorted(set(labels[0]))
    train_y, test_y = (np.array([names.index(label) for label in part]) for part in labels)
    held_out = np.arange(len(train_y)) % 5 == 0
    rows = {}
    for _, name, both in each_mix([PooledSource(source)], texts, folder=folder):
        for place, pooling in enumerate(POOLINGS):
            train, test = (vectors[place :: len(POOLINGS)] for vectors in both)
            chosen = {"dev_vectors": train[held_out], "dev_labels": train_y[held_out], "strengths": STRENGTHS}
            probe = fit(train[~held_out], train_y[~held_out], num_labels=len(names), **chosen)
            rows.setdefault(pooling, {})[name] = probe.accuracy(test, test_y)
    return rows


def measure_sizes(source, folder, data):
    """The root mean square of each layer over the words of WiC's training part."""
    pairs = read_wic(data / "wic", "train")
    sentences = [words for pair in pairs for words in pair.sentences]
    spans = [
        WordSpan(number, place, place + 1) for number, place in enumerate(p for pair in pairs for p in pair.places)
    ]
    layers_LND = freeze(source, sentences, spans, folder=folder).layers_LND.astype(np.float32)
    return np.sqrt(np.square(layers_LND).mean(axis=(1, 2)))


def measure(source, folder, data):
    """For each row its numbers by column."""
    table = {mix.name: {} for mix in source.mixes}

    def add(column, rows):
        for name, value in rows.items():
            table[name][column] = 100 * float(value)

    add("homographs", score_homographs(source, folder))
    wic = score_wic(source, folder, data)
    add("WiC dev", {name: both[0] for name, both in wic.items()})
    add("WiC train", {name: both[1] for name, both in wic.items()})
    problems = Problems(skips=True)
    train, test = (
        read_sense_texts([data / "wsd" / path], problems)
        for path in ("semcor/semcor3.0.jsonl", "raganato/ALL/ALL.data.xml")
    )
    senses = probe_senses(
        [source], train=train, test=test, wordnet=read_wordnet(data / "wsd/wordnet/index.sense"), folder=folder
    )
    add("senses", {name: senses.rows[name][ALL] for name in table})
    sets = {path.stem.split("-")[1]: read_rated_pairs(path) for path in sorted((data / "wordsim").glob("*.txt"))}
    rows = probe_similarity([source], sets, folder=folder).rows
    for column in sets:
        add(column, {name: rows[name][column] for name in table})
    rows = probe_sentences(
        [source], {"SICK": read_rated_sentences(data / "nli/sick/SICK_test_annotated.txt")}, folder=folder
    ).rows
    add("SICK", {name: rows[name]["mean ρ"] for name in table})
    for pooling, rows in score_trec(source, folder, data).items():
        add(f"TREC {pooling}", rows)
    return table


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--model", default="en-small")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--weights", nargs="*", default=[])
    asked = parser.parse_args()
    with open_folder(asked.keep) as folder:
        source = ElmoSource(Embedder(asked.model))
        sizes = measure_sizes(source, folder, asked.data)
        print("sizes of the layers:", " ".join(f"{size:.3f}" for size in sizes))
        source.mixes.append(LayerMix("equal sizes", tuple((1 / sizes / (1 / sizes).sum()).tolist())))
        for text in asked.weights:
            name, _, values = text.partition("=")
            source.mixes.append(LayerMix(name, tuple(map(float, values.split(",")))))
        table = measure(source, folder, asked.data)
    columns = list(next(iter(table.values())))
    best = {column: max(table[mix.name][column] for mix in source.mixes[: len(sizes)]) for column in columns}
    print("| | " + " | ".join([*columns, "worst"]) + " |")
    print("|---" * (len(columns) + 2) + "|")
    for name, numbers in table.items():
        worst = max(best[column] - numbers[column] for column in columns if column not in UNCOUNTED)
        print(f"| {name} | " + " | ".join(f"{numbers[column]:.1f}" for column in columns) + f" | {worst:.1f} |")


if __name__ == "__main__":
    main()
