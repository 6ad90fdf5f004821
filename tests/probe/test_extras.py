"""What needs more than elmokit itself: pictures (matplotlib) and a transformer beside ELMo."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys

import numpy as np
import pytest
import torch

from elmokit import InputError
from elmokit.cli import main
from elmokit.probe.peers import PeerSource, _hash_weights
from elmokit.probe.report import Report, _draw_bars, draw


@pytest.fixture
def report() -> Report:
    rows = {"base": {"a": 0.5, "b": 0.1}, "layer 0": {"a": 0.6}, "layer 1": {"a": 0.7, "b": float("nan")}}
    return Report("pos", "a title", ["a", "b"], rows, baseline="base")


def test_without_transformers_the_command_is_named(desk, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert main(["probe", "wic", "wic", "--model", "my-model", "--peer", "minilm"]) == 1
    assert "pip install 'elmokit[transformers]'" in capsys.readouterr().err


def test_bars_show_rows_numbers_and_the_baseline(report):
    pytest.importorskip("matplotlib", reason="the extra `viz` is not installed")
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    _draw_bars(axes, report, ["a"])
    assert [label.get_text() for label in axes.get_yticklabels()] == ["layer 0", "layer 1"]
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([60, 70])
    assert sorted(text.get_text() for text in axes.get_legend().get_texts()) == ["a", "base: 50.0"]


def test_a_table_is_drawn(report, tmp_path):
    pytest.importorskip("matplotlib", reason="the extra `viz` is not installed")
    draw(report, tmp_path / "bars.svg")
    text = (tmp_path / "bars.svg").read_text(encoding="utf-8")
    assert ">layer 1</text>" in text and ">base: 50.0</text>" in text


def test_a_table_that_was_written_is_drawn_again(report, tmp_path):
    pytest.importorskip("matplotlib", reason="the extra `viz` is not installed")
    read = Report.from_dict(json.loads(json.dumps(report.to_dict())))
    assert list(read.lines()) == list(report.lines())
    for name, table in (("one", report), ("two", read)):
        draw(table, tmp_path / f"{name}.svg", columns=["a"])
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def test_weights_are_drawn_as_squares(desk):
    pytest.importorskip("matplotlib", reason="the extra `viz` is not installed")
    for task, weights in (("tag", [0.2, 0.5, 0.3]), ("infer", [0.125, 0.125, 0.75])):
        mixes = {place: {"weights": weights, "gamma": 1.5} for place in ("input", "output")}
        (desk / f"{task}.json").write_text(json.dumps({"task": task, "mixes": mixes}), encoding="utf-8")
    assert main(["probe", "weights", "tag.json", "infer.json", "--picture", "weights.svg"]) == 0
    text = (desk / "weights.svg").read_text(encoding="utf-8")
    for label in ("ELMo at the input", "ELMo at the output", "layer 2", "0.75", "tag", "infer", "weight of the layer"):
        assert f">{label}</text>" in text


@pytest.fixture(scope="module")
def tiny_bert(tmp_path_factory):
    """A folder with a random BERT of two layers that knows a few pieces."""
    transformers = pytest.importorskip("transformers", reason="the extra `transformers` is not installed")
    folder = tmp_path_factory.mktemp("peers") / "tiny-bert"
    folder.mkdir()
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "dog", "##s", "bank", "##ing", "."]
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    tokeniser = transformers.BertTokenizerFast(str(folder / "vocab.txt"))
    tokeniser.save_pretrained(folder)
    sizes = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.BertConfig(vocab_size=len(pieces), max_position_embeddings=32, **sizes)
    transformers.BertModel(config).save_pretrained(folder)
    return folder


@pytest.mark.filterwarnings("ignore")  # transformers' own
def test_a_words_vector_is_the_mean_of_its_pieces(tiny_bert):
    source = PeerSource(str(tiny_bert))
    assert [mix.name for mix in source.mixes] == ["tiny-bert 0", "tiny-bert 1", "tiny-bert 2"]
    sentences = [["the", "dogs"], [], ["bank"]]
    arrays = source.layers(sentences)
    assert [array.shape for array in arrays] == [(3, 2, 8), (3, 0, 8), (3, 1, 8)]
    with torch.inference_mode():
        ids = torch.tensor([[2, 5, 6, 7, 3]])  # [CLS] the dog ##s [SEP]
        states = source._model(ids, output_hidden_states=True).hidden_states
    for layer, state in enumerate(states):
        np.testing.assert_allclose(arrays[0][layer, 1], state[0, 2:4].mean(0), atol=1e-5)


def test_weights_of_any_dtype_are_hashed():
    matrix, number = torch.tensor([[1.0, 2.0]]), torch.tensor(3)
    known = hashlib.sha256(b"m" + matrix.numpy().tobytes() + b"n" + number.numpy().tobytes()).hexdigest()
    assert _hash_weights({"n": number, "m": matrix}) == known  # of vectors that were kept by older versions
    assert _hash_weights({"n": number, "m": matrix.bfloat16()}) != known


@pytest.mark.filterwarnings("ignore")
def test_long_sentences_are_read_in_windows(tiny_bert, monkeypatch):
    monkeypatch.setattr("elmokit.probe.peers.LONGEST", 3)
    source = PeerSource(str(tiny_bert))
    words = ["the", "bank", ".", "the", "dogs"]
    whole, first, second = source.layers([words, words[:3], words[3:]])
    np.testing.assert_allclose(whole, np.concatenate([first, second], axis=1), atol=1e-5)


@pytest.mark.filterwarnings("ignore")
def test_a_transformer_in_bfloat16_is_read(tiny_bert, tmp_path):  # by transformers 5 as it is, by 4 in float32
    import transformers

    folder = tmp_path / "half-bert"
    shutil.copytree(tiny_bert, folder)
    transformers.BertModel.from_pretrained(tiny_bert).to(torch.bfloat16).save_pretrained(folder)
    half, full = PeerSource(str(folder)), PeerSource(str(tiny_bert))
    assert half.key != full.key
    np.testing.assert_allclose(half.layers([["the"]])[0], full.layers([["the"]])[0], atol=0.05)


@pytest.mark.filterwarnings("ignore")
def test_a_folder_that_is_no_transformer_is_refused(tmp_path):
    pytest.importorskip("transformers", reason="the extra `transformers` is not installed")
    with pytest.raises(InputError, match="expected minilm, or a folder"):
        PeerSource("maxilm")
    with pytest.raises(InputError, match="transformers cannot load this"):
        PeerSource(str(tmp_path))


@pytest.mark.filterwarnings("ignore")
def test_a_peer_is_a_row_of_every_table(tiny_bert, desk, capsys):
    assert main(["probe", "wic", "wic", "--model", "my-model", "--peer", str(tiny_bert)]) == 0
    assert "tiny-bert 2" in capsys.readouterr().out
