"""`elmo evaluate` and `elmo predict`: what they print, and how they fail."""

from __future__ import annotations

import bz2
import dataclasses
import json
import subprocess
import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest
import torch

from elmokit import Elmo, ElmoConfig, LanguageModel, io
from elmokit.cli import main

WORDS = ["<S>", "</S>", "<UNK>", ".", "the", "bank", "river", "money", "The", "lent"]
TEXT = "The bank lent money.\n\nThe river. The zither.\n"
TOKENISED = "The bank lent money .\n\nThe river .\nThe zither .\n"


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("models") / "lm"
    generator = torch.Generator().manual_seed(1)
    softmax = {
        "softmax.weight": torch.randn(len(WORDS), 64, generator=generator),
        "softmax.bias": torch.randn(len(WORDS), generator=generator),
    }
    checkpoint = Elmo.random(ElmoConfig.tiny()).to_checkpoint()
    io.save(dataclasses.replace(checkpoint, softmax=softmax, output_words=WORDS), folder)
    return str(folder)


@pytest.fixture
def text(tmp_path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


def one_line_of(capsys) -> str:
    """What stands on standard error, which must be one line that begins with the program's name."""
    text = capsys.readouterr().err
    assert text.startswith("elmo: ")
    assert text.count("\n") == 1
    return text


def test_evaluate_prints_a_table(model, text, capsys):
    assert main(["evaluate", str(text), "--model", model]) == 0
    table = capsys.readouterr().out
    facts = dict(line.rsplit(maxsplit=1) for line in table.splitlines() if line[-1].isdigit() or line[-1] == "%")
    expected = LanguageModel.from_pretrained(model).perplexity(TEXT.splitlines())
    assert facts["  forward"] == f"{expected.forward:.2f}"
    assert facts["  backward"] == f"{expected.backward:.2f}"
    assert facts["  mean"] == f"{expected.mean:.2f}"
    assert facts["words"] == "11"
    assert facts["sentences"] == "3"
    assert facts["outside vocabulary"] == "9.09%"
    assert facts["bits per byte"] == f"{expected.bits_per_byte:.3f}"
    assert "words/s" in facts


def test_evaluate_takes_tokenised_text_from_compressed_files_and_gives_json(model, text, tmp_path, capsys):
    tokenised = tmp_path / "text.tok.bz2"
    tokenised.write_bytes(bz2.compress(TOKENISED.encode()))
    answers = []
    for arguments in (
        [str(text)],
        [str(tokenised), "--tokenised"],
        [str(text), str(text)],
        [str(text), "--state", "carry", "--batch-size", "1"],
    ):
        assert main(["evaluate", *arguments, "--model", model, "--json"]) == 0
        answers.append(json.loads(capsys.readouterr().out))
    raw, split, twice, carried = answers
    assert (raw["model"], raw["state"], raw["tokens"], raw["words"], raw["sentences"]) == (model, "zero", 14, 11, 3)
    assert split["mean"] == pytest.approx(raw["mean"], rel=1e-6)
    assert split["bits_per_byte"] == pytest.approx(raw["bits_per_byte"], rel=1e-6)  # three full stops stand alone
    assert (twice["tokens"], twice["mean"]) == (28, pytest.approx(raw["mean"], rel=1e-6))
    assert carried["state"] == "carry"
    assert carried["mean"] != pytest.approx(raw["mean"], rel=1e-6)
    assert raw["words_per_second"] > 0


def test_predict_prints_words_with_probabilities(model, capsys):
    assert main(["predict", "The river", "--top", "8", "--model", model]) == 0
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 8
    assert sum(float(share.rstrip("%")) for share, _ in lines) == pytest.approx(100, abs=0.1)
    words = [word for _, word in lines]
    assert "</S>  (the sentence ends)" in words
    assert not any(word.startswith(("<S>", "<UNK>")) for word in words)
    assert main(["predict", "river .", "--top", "8", "--backward", "--model", model]) == 0
    assert "<S>  (the sentence begins)" in capsys.readouterr().out


def test_predict_prints_substitutes(model, capsys):
    sentence = "The bank lent the bank money ."
    assert main(["predict", "--substitutes", "bank", sentence, "--top", "2", "--model", model]) == 0
    first = capsys.readouterr().out
    loaded = LanguageModel.from_pretrained(model)
    expected = loaded.substitutes(sentence, "bank", top=2)
    assert first == "".join(f"{probability:7.2%}  {word}\n" for word, probability in expected)
    assert main(["predict", sentence, "--substitutes", "bank", "--occurrence", "2", "--top=2", "--model", model]) == 0
    second = capsys.readouterr().out
    expected = loaded.substitutes(sentence, "bank", top=2, occurrence=2)  # counted alike from Python
    assert second == "".join(f"{probability:7.2%}  {word}\n" for word, probability in expected) != first


def test_predict_takes_lines_of_standard_input_and_gives_json(model, monkeypatch, capsys):
    texts = ["The river", "The bank"]
    for more in ([], ["--json"]):
        monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO("\n\n".join(texts).encode())))
        assert main(["predict", "-", "--top", "2", "--model", model, *more]) == 0
        lines = capsys.readouterr().out.splitlines()
    found = [json.loads(line) for line in lines]
    assert [each["text"] for each in found] == texts
    expected = LanguageModel.from_pretrained(model).predict(texts[0], top=2)
    assert [each["word"] for each in found[0]["words"]] == [word for word, _ in expected]
    assert found[0]["words"][0]["probability"] == pytest.approx(expected[0][1], abs=1e-5)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["evaluate"], "found none: name a file"),
        (["evaluate", "missing.txt"], "missing.txt does not exist"),
        (["evaluate", "text.txt", "--state", "canonical"], "canonical"),
        (["evaluate", "text.txt", "--batch-size", "0"], "expected 1 or more"),
        (["evaluate", "latin.txt"], "latin.txt:1: expected UTF-8"),
        (["evaluate", "blank.txt"], "found no sentence at all"),
        (["predict"], "TEXT"),
        (["predict", "the", "--top", "0"], "expected 1 or more"),
        (["predict", "the river", "--substitutes", "bank"], "expected 'bank' in the sentence"),
        (
            ["predict", "the bank", "--substitutes", "bank", "--occurrence", "5"],
            "asked for --occurrence 5 of 'bank', but it stands there 1 time",
        ),
        (["predict", "the bank", "--substitutes", "bank", "--occurrence", "0"], "counted from 1"),
        (["predict", "the bank", "--substitutes", "bank", "--backward"], "leave out --backward"),
        (["predict", "the bank", "--occurrence", "2"], "needs --substitutes WORD"),
        (["predict", "blank.txt"], "blank.txt is a file: give sentences in quotes, or its lines by `elmo predict - <"),
    ],
)
def test_problems_are_one_line_and_exit_code_2(arguments, complaint, model, text, monkeypatch, capsys):
    monkeypatch.chdir(text.parent)
    Path("latin.txt").write_bytes("Zürich\n".encode("latin1"))
    Path("blank.txt").write_text("\n \n", encoding="utf-8")
    assert main([*arguments, "--model", model]) == 2
    assert complaint in one_line_of(capsys)


def test_a_model_without_its_softmax_is_refused(random_model, text, capsys):
    for arguments in (["evaluate", str(text)], ["predict", "the"]):
        assert main([*arguments, "--model", str(random_model)]) == 2
        assert "comes without its output layer" in one_line_of(capsys)


@pytest.mark.parametrize("command", ["evaluate", "predict"])
def test_help_has_an_example_and_needs_no_torch(command):
    code = (
        f"import sys; from elmokit.cli import main; main(['{command}', '--help']); main(['--help']);"
        "print([m for m in ('torch', 'numpy', 'pyarrow', 'h5py') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert f"Example: elmo {command} " in done.stdout
    assert f"\nelmo {command} " in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_text_outside_the_vocabulary_is_said(model, tmp_path, capsys):
    (tmp_path / "other.txt").write_text("The zither and the lute.\nA fiddle played.\n", encoding="utf-8")
    asked = ["evaluate", str(tmp_path / "other.txt"), "--model", model]
    assert main(asked) == 0
    assert "of the words are outside the model's vocabulary" in one_line_of(capsys)
    assert main([*asked, "--quiet"]) == 0
    assert capsys.readouterr().err == ""
