"""Small annotated texts, and a tiny random model, for the probes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from elmokit.probe.sources import ElmoSource, VectorSource, single_layers

NOUNS, VERBS = ("dog", "cat", "bank", "river", "tree"), ("runs", "sees", "barks", "waits", "sings")


def conllu(sentences: list[list[tuple[str, str]]]) -> str:
    """CoNLL-U of sentences of (word, UPOS)."""
    blocks = []
    for sentence in sentences:
        lines = [
            f"{number}\t{word}\t{word}\t{tag}\t{tag[:1]}\tNumber=Sing\t0\troot\t_\t_"
            for number, (word, tag) in enumerate(sentence, start=1)
        ]
        blocks.append("\n".join(["# text", *lines]) + "\n")
    return "\n".join(blocks)


def random_sentences(count: int, *, seed: int) -> list[list[tuple[str, str]]]:
    """Sentences of four words; the first five hold every noun and verb."""
    random = np.random.default_rng(seed)
    pairs = [*zip(NOUNS, VERBS, strict=True)]
    pairs += [(str(random.choice(NOUNS)), str(random.choice(VERBS))) for _ in range(count - len(pairs))]
    return [[("the", "DET"), (noun, "NOUN"), (verb, "VERB"), (".", "PUNCT")] for noun, verb in pairs]


class Spelled(VectorSource):
    """Vectors that anyone can compute: layer 0 from the word, layer 1 from the word and the one before it."""

    def __init__(self, dim: int = 8) -> None:
        super().__init__(mixes=single_layers(["word", "context"]), dim=dim, key=f"spelled {dim}")
        self.calls: list[int] = []

    def layers(self, sentences):
        self.calls.append(len(sentences))
        return [np.stack([self._vectors(words), self._vectors(["", *words[:-1]])]) for words in sentences]

    def _vectors(self, words):
        return np.stack([np.random.default_rng(list(word.encode())).standard_normal(self.dim) for word in words])


@pytest.fixture
def spelled() -> Spelled:
    return Spelled()


@pytest.fixture(scope="session")
def elmo_source() -> ElmoSource:
    from elmokit import Elmo, ElmoConfig, Embedder

    return ElmoSource(Embedder(Elmo.random(ElmoConfig.tiny())))


@pytest.fixture
def desk(tmp_path, monkeypatch, random_model) -> Path:
    """A folder to work in, with files for every probe and the tiny random model as `my-model`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-model").symlink_to(random_model, target_is_directory=True)
    for name, count in (("train", 30), ("dev", 11), ("test", 10)):
        (tmp_path / f"{name}.conllu").write_text(conllu(random_sentences(count, seed=count)), encoding="utf-8")
    (tmp_path / "vectors.txt").write_text("the 1 0 0\ndog 0 1 0\nruns 0 0 1\nbank 0 1 1\n", encoding="utf-8")
    write_senses(tmp_path)
    write_wic(tmp_path / "wic")
    (tmp_path / "uses.tsv").write_text(
        "the <b>dog</b> runs .\tthe <b>dog</b> barks .\t9\na <b>bank</b> lends .\tthe river <b>bank</b> .\t1\n",
        encoding="utf-8",
    )
    (tmp_path / "sentences.tsv").write_text("the dog runs\tthe dog barks\t4\nthe bank\ta tree\t1\n", encoding="utf-8")
    (tmp_path / "pairs.txt").write_text("dog\tbank\t3.5\nthe\truns\t1\nbank\tthe\t9\n", encoding="utf-8")
    return tmp_path


MONEY, RIVER = "bank%1:14:00::", "bank%1:17:01::"
RAGANATO = """<?xml version="1.0" encoding="UTF-8" ?>
<corpus lang="en" source="little">
<text id="d000">
<sentence id="d000.s000">
<wf lemma="the" pos="DET">The</wf>
<instance id="d000.s000.t000" lemma="Bank" pos="NOUN">bank</instance>
<instance id="d000.s000.t001" lemma="take_place" pos="VERB">took place</instance>
<wf lemma="." pos=".">.</wf>
</sentence>
</text>
</corpus>
"""


def write_senses(folder: Path) -> None:
    sentences = [
        {"words": ["The", "bank", "lent", "money"], "senses": [None, [MONEY], None, None]},
        {"words": ["river", "bank", "took_place"], "senses": [None, [RIVER], ["take_place%2:30:00::"]]},
        {"words": ["old", "bank"], "senses": [None, ["bank%1:99:00:gone(a):00"]]},
    ]
    text = "".join(json.dumps(sentence) + "\n" for sentence in sentences)
    (folder / "semcor.jsonl").write_text(text, encoding="utf-8")
    senses = f"{MONEY} 1 2 5\n{RIVER} 2 1 9\ntake_place%2:30:00:: 3 1 0\ndog%1:05:00:: 4 1 0\n"
    (folder / "index.sense").write_text(senses, encoding="utf-8")
    (folder / "little.data.xml").write_text(RAGANATO, encoding="utf-8")
    gold = f"d000.s000.t000 {MONEY}\nd000.s000.t001 take_place%2:30:00:: other%2:30:00::\n"
    (folder / "little.gold.key.txt").write_text(gold, encoding="utf-8")


def write_wic(folder: Path) -> None:
    pairs = [(word, same) for word in NOUNS for same in (True, False)]
    for part in ("train", "dev"):
        (folder / part).mkdir(parents=True)
        data = [f"{word}\tN\t1-1\tthe {word} .\t{'the' if same else 'old'} {word} .\n" for word, same in pairs]
        (folder / part / f"{part}.data.txt").write_text("".join(data), encoding="utf-8")
        gold = "".join("T\n" if same else "F\n" for _, same in pairs)
        (folder / part / f"{part}.gold.txt").write_text(gold, encoding="utf-8")
