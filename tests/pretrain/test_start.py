"""Continuing from models of every kind, and tables of words that begin with vectors of others."""

from __future__ import annotations

import dataclasses
import json
import random
import shutil

import numpy as np
import pytest
import torch

import elmokit
from elmokit import io
from elmokit.config import CharConfig, ElmoConfig, LstmConfig, WordConfig
from elmokit.errors import ConfigError
from elmokit.nn.output_layer import OutputLayer
from elmokit.pretrain.recipes import TrainConfig
from elmokit.pretrain.start import choose_start, match_rows, take_over_rows
from elmokit.pretrain.train import train

MODEL = ElmoConfig(
    CharConfig(max_length=12, dim=4, filters=((1, 4), (2, 8), (3, 8)), num_highways=1),
    lstm=LstmConfig(cell_dim=32, projection_dim=16),
)
CONFIG = TrainConfig(
    model=MODEL,
    min_count=1,
    tokens=24_000,
    tokens_per_batch=400,
    dropout=0.0,
    optimiser="adamw",
    learning_rate=1e-2,
    warmup_tokens=1_000,
    evaluate_every=10**9,
    checkpoint_every=10**9,
    log_every=400,
)
SHORT = dataclasses.replace(CONFIG, tokens=4_000)


def text_of(path, nouns, seed=0, sentences=600):
    """Sentences in which each noun has its own verb and colour: whoever has read the noun knows what follows."""
    drawn = random.Random(seed)
    lines = []
    for _ in range(sentences):
        noun, other = drawn.choice(nouns), drawn.choice(nouns)
        lines.append(f"the {noun} {noun}ed near a {other}ish {other} .\n")
    path.write_text("".join(lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("start")
    text_of(folder / "old.txt", ["dog", "cat", "cow", "hen", "fox", "owl", "rat", "bee"])
    text_of(folder / "new.txt", ["dog", "cat", "yak", "emu", "ant", "bat", "elk", "pig"], seed=1)
    return folder


@pytest.fixture(scope="module")
def losses(home):
    """The losses of the run that made the model `old`."""
    return losses_of(home / "old.txt", home / "old", CONFIG)


def losses_of(text, destination, config, **arguments):
    """Train, and give the mean losses of each line of the log."""
    lines = []
    train([text], destination, config, tokenised=True, device="cpu", report=lines.append, **arguments)
    return [line["loss"] for line in lines if line["kind"] == "train"]


def tensors_of(folder):
    return io.load(folder).tensors


def without_softmax(source, destination, format="allennlp"):
    checkpoint = io.load(source)
    checkpoint.tensors = {n: t for n, t in checkpoint.tensors.items() if not n.startswith("canonical")}
    return io.save(checkpoint, destination, format=format)


def moved(before, after):
    """The layer groups in which anything differs."""
    groups = set()
    for name, tensor in before.items():
        if name in after and not name.startswith(("canonical", "mix")) and not torch.equal(tensor, after[name]):
            groups.add("words" if name.startswith("encoder") else f"layer{int(name.split('.')[2]) + 1}")
    return groups


class TestGoingOn:
    def test_the_same_corpus_starts_at_the_loss_it_ended_with(self, home, losses):
        gentle = dataclasses.replace(CONFIG, tokens=800, learning_rate=1e-4)
        again = losses_of(home / "old.txt", home / "again", gentle, start_from=home / "old")
        assert losses[0] > losses[-1] + 0.5
        assert again[0] == pytest.approx(losses[-1], abs=0.05)

    def test_sizes_and_clips_are_the_models_own(self, home, losses, tmp_path):
        other = dataclasses.replace(SHORT, model=ElmoConfig.tiny(), tokens=400)
        train([home / "new.txt"], tmp_path / "m", other, tokenised=True, device="cpu", start_from=home / "old")
        assert io.load(tmp_path / "m").config == MODEL
        assert io.load(tmp_path / "m").metadata["continued_from"] == "old"

    def test_hdf5_without_softmax_learns_faster_than_from_scratch(self, home, losses, tmp_path):
        source = without_softmax(home / "old", tmp_path / "hdf5")
        config = dataclasses.replace(SHORT, tokens=6_000)
        on = losses_of(home / "new.txt", tmp_path / "on", config, start_from=source)
        scratch = losses_of(home / "new.txt", tmp_path / "scratch", config)
        assert on[-1] < scratch[-1] - 0.1

    @pytest.mark.parametrize("kind", ["words", "numbers", "unicode", "both"])
    def test_other_inputs_keep_their_lists(self, home, tmp_path, kind):
        alphabet = ["<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>", *"abcdefghijklmnopqrstuvwxyz."]
        vocabulary = ["<oov>", "<bos>", "<eos>", "the", "dog", "a", "near", "."]
        characters = dataclasses.replace(MODEL.characters, scheme="unicode", num_symbols=len(alphabet))
        words = WordConfig(len(vocabulary), 16)
        parts = {"alphabet": alphabet, "vocabulary": vocabulary, "swaps_markers": True}
        if kind in ("words", "numbers"):
            model = ElmoConfig(None, words, MODEL.lstm, projects_words=False)
            parts = {"vocabulary": ["<S>", "</S>", "<UNK>", *vocabulary[3:]] if kind == "words" else None}
        else:
            model = dataclasses.replace(MODEL, characters=characters, words=words if kind == "both" else None)
            parts = parts if kind == "both" else {"alphabet": alphabet}
        tensors = {name: 0.1 * torch.randn(shape) for name, shape in io.expected_shapes(model).items()}
        io.save(io.Checkpoint(model, tensors, **parts), tmp_path / "source")
        text = home / "old.txt"
        if kind == "numbers":
            text = tmp_path / "numbers.txt"
            text.write_text("3 4 5 6\n7 3 5\n" * 50, encoding="utf-8")
        config = dataclasses.replace(SHORT, tokens=1_200)
        losses = losses_of(text, tmp_path / "on", config, start_from=tmp_path / "source")
        loaded = io.load(tmp_path / "on", softmax=True)
        assert np.isfinite(losses[-1])
        assert loaded.config == model
        assert loaded.alphabet == parts.get("alphabet")
        assert loaded.vocabulary == parts["vocabulary"] if parts.get("vocabulary") else True
        assert moved(tensors, loaded.tensors) == {"words", "layer1", "layer2"}
        sentence = ["3", "7"] if kind == "numbers" else ["the", "dog"]
        vectors = elmokit.Embedder.from_pretrained(tmp_path / "on").embed([sentence])
        assert vectors[0].shape == (2, 32)

    @pytest.mark.parametrize("mode", ["sentences", "streams"])
    def test_resuming_gives_the_same_weights(self, home, losses, tmp_path, mode):
        source = without_softmax(home / "old", tmp_path / "hdf5")
        config = dataclasses.replace(SHORT, optimiser="muon", checkpoint_every=400, dropout=0.1, mode=mode)
        straight, stopped = tmp_path / "straight", tmp_path / "stopped"
        arguments = {"tokenised": True, "device": "cpu", "start_from": source}
        train([home / "new.txt"], straight, config, **arguments)
        pieces = 1
        while train([home / "new.txt"], stopped, config, minutes=0, **arguments) is None:
            pieces += 1
        assert pieces >= 8
        ours, theirs = (io.load(folder, softmax=True) for folder in (straight, stopped))
        assert moved(ours.tensors, theirs.tensors) == set()
        assert torch.equal(ours.softmax["softmax.weight"], theirs.softmax["softmax.weight"])

    def test_two_processes_equal_one(self, home, losses, tmp_path, trained):
        config = dataclasses.replace(SHORT, tokens=3_000, dropout=0.1)
        options = {"tokenised": True, "device": "cpu", "start_from": home / "old"}
        train([home / "new.txt"], tmp_path / "one", config, **options)
        assert trained([home / "new.txt"], tmp_path / "two", config, world=2, **options) == [0, 0]
        one, two = tensors_of(tmp_path / "one"), tensors_of(tmp_path / "two")
        assert moved(tensors_of(home / "old"), two) == {"words", "layer1", "layer2"}
        for name, tensor in one.items():
            torch.testing.assert_close(two[name], tensor, rtol=0, atol=1e-4)  # AdamW divides by small numbers

    def test_another_start_is_refused_in_the_folder_of_a_run(self, home, losses, tmp_path):
        config = dataclasses.replace(SHORT, tokens=10**7, checkpoint_every=400)
        arguments = {"tokenised": True, "device": "cpu", "minutes": 0}
        assert train([home / "new.txt"], tmp_path / "m", config, start_from=home / "old", **arguments) is None
        with pytest.raises(ConfigError, match="other settings: --from was old, now not given;"):
            train([home / "new.txt"], tmp_path / "m", config, **arguments)

    def test_another_model_of_the_same_name_is_refused(self, home, losses, tmp_path):
        arguments = {"tokenised": True, "device": "cpu", "minutes": 0}
        train([home / "new.txt"], tmp_path / "m", SHORT, start_from=f"{home / 'old'}/", **arguments)
        shutil.rmtree(tmp_path / "m.training" / "checkpoints")  # as after a kill before the first
        shutil.copytree(home / "old", tmp_path / "old")
        train([home / "new.txt"], tmp_path / "m", SHORT, start_from=tmp_path / "old", **arguments)
        checkpoint = io.load(home / "old")
        checkpoint.tensors["encoder.projection.bias"] = checkpoint.tensors["encoder.projection.bias"] + 1
        io.save(checkpoint, tmp_path / "old", overwrite=True)
        with pytest.raises(ConfigError, match="other settings: --from was another file or folder of that name;"):
            train([home / "new.txt"], tmp_path / "m", SHORT, start_from=tmp_path / "old", **arguments)

    def test_other_vectors_of_the_same_name_are_refused(self, home, tmp_path):
        arguments = {"tokenised": True, "device": "cpu", "minutes": 0, "vectors": tmp_path / "vectors.txt"}
        (tmp_path / "vectors.txt").write_text("dog 1 2 3\ncat 4 5 6\n")
        train([home / "new.txt"], tmp_path / "m", SHORT, **arguments)
        (tmp_path / "vectors.txt").write_text("dog 1 2 3\ncat 4 5 7\n")
        with pytest.raises(ConfigError, match="other settings: --vectors was another file or folder of that name;"):
            train([home / "new.txt"], tmp_path / "m", SHORT, **arguments)

    def test_a_run_of_a_version_that_kept_names_alone_goes_on(self, home, losses, tmp_path):
        arguments = {"tokenised": True, "device": "cpu", "start_from": f"{home / 'old'}/"}
        train([home / "new.txt"], tmp_path / "m", SHORT, minutes=0, **arguments)
        path = tmp_path / "m.training" / "training.json"
        settings = json.loads(path.read_text())
        assert settings["start_from"] == "old"
        known = {name: value for name, value in settings.items() if not name.endswith("_hash")}
        path.write_text(json.dumps({**known, "start_from": f"{home / 'old'}/"}))
        assert train([home / "new.txt"], tmp_path / "m", SHORT, **arguments) == tmp_path / "m"
        assert io.load(tmp_path / "m").metadata["continued_from"] == "old"


class TestOutputRows:
    def test_known_words_get_their_rows_and_new_ones_an_average(self):
        old = torch.randn(4, 3) + 2
        bias = torch.tensor([-1.0, -2.0, -3.0, -4.0])
        rows_V = match_rows(["<S>", "yak", "cat", "dog"], ["<S>", "dog", "cat", "cow"])
        assert rows_V.tolist() == [0, -1, 2, 1]
        output = OutputLayer(4, 3)
        take_over_rows(output, old, bias, rows_V, torch.tensor([10, 5, 10, 10]))
        assert torch.equal(output.weight[[0, 2, 3]], old[[0, 2, 1]])
        assert torch.equal(output.bias[[0, 2, 3]], bias[[0, 2, 1]])
        taken = old[[0, 2, 1]]
        assert (output.weight[1] - taken.mean(dim=0)).abs().max() < taken.std()
        # All known words occur equally often, twice as often as the new one.
        assert output.bias[1].item() == pytest.approx(-2.0 + np.log(0.5), abs=1e-5)

    def test_rows_in_a_real_run(self, home, losses, tmp_path):
        still = dataclasses.replace(SHORT, tokens=400, learning_rate=1e-30)
        train([home / "new.txt"], tmp_path / "m", still, tokenised=True, device="cpu", start_from=home / "old")
        old, new = io.load(home / "old", softmax=True), io.load(tmp_path / "m", softmax=True)
        for word in ("<S>", "</S>", "<UNK>", "the", "dog", "cat", "dogish"):
            row, other = new.output_words.index(word), old.output_words.index(word)
            assert torch.equal(new.softmax["softmax.weight"][row], old.softmax["softmax.weight"][other])
        assert "yak" in new.output_words and "yak" not in old.output_words


class TestVectors:
    def test_vectors_and_a_model_are_not_both_taken(self):
        with pytest.raises(ConfigError, match="not both"):
            choose_start(CONFIG, start_from="a", vectors="b")

    @pytest.mark.parametrize("width", [16, 6])
    def test_the_table_begins_with_them(self, home, tmp_path, width):
        drawn = np.random.default_rng(0)
        rows = {word: drawn.normal(0, 0.3, width).round(3) for word in ("the", "dog", "near", "</s>", "zebra")}
        lines = [f"{len(rows)} {width}"] + [" ".join([word, *map(str, row)]) for word, row in rows.items()]
        (tmp_path / "v.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        config = dataclasses.replace(SHORT, tokens=400, learning_rate=1e-30)
        train([home / "old.txt"], tmp_path / "m", config, tokenised=True, device="cpu", vectors=tmp_path / "v.txt")
        model = io.load(tmp_path / "m")
        table = model.tensors["encoder.words.embedding"]
        assert model.config.words == WordConfig(len(model.vocabulary), width)
        assert model.config.projects_words == (width != 16)
        for word, row in rows.items():
            if word != "zebra":
                name = "</S>" if word == "</s>" else word
                np.testing.assert_array_equal(table[model.vocabulary.index(name)].numpy(), row.astype(np.float32))
        others = table[[row for row, word in enumerate(model.vocabulary) if word not in rows and word != "</S>"]]
        assert 0.1 < others.std() < 0.6
        assert len(torch.unique(others, dim=0)) == len(others)
        (vectors,) = elmokit.Embedder.from_pretrained(tmp_path / "m").embed([["the", "dog", "unheard"]])
        assert vectors.shape == (3, 32)

    def test_coverage_is_said_and_learning_helps(self, home, tmp_path, capsys):
        (tmp_path / "v.txt").write_text("the 1 2\n. 3 4\nnear 0 1\n", encoding="utf-8")
        losses = losses_of(home / "old.txt", tmp_path / "m", CONFIG, vectors=tmp_path / "v.txt")
        assert losses[-1] < losses[0] - 0.5
        assert "v.txt, which has vectors of 3 of 31 words (37.5% of the running ones)" in capsys.readouterr().out

    def test_vectors_of_another_language_are_refused(self, home, tmp_path):
        (tmp_path / "v.txt").write_text("il 1 2\n", encoding="utf-8")
        with pytest.raises(ConfigError, match="none of the .* words of the corpus"):
            train([home / "old.txt"], tmp_path / "m", SHORT, tokenised=True, device="cpu", vectors=tmp_path / "v.txt")
