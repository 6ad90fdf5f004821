"""`elmo probe …` from arguments to table and JSON."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from elmokit.cli import main
from elmokit.commands.probe import PROBES

TREEBANKS = ["--train", "train.conllu", "--test", "test.conllu"]
SENSES = ["--train", "semcor.jsonl", "--test", "little.data.xml", "--senses", "index.sense"]
RUNS = {
    "pos": ["pos", *TREEBANKS, "--dev", "dev.conllu"],
    "wsd": ["wsd", *SENSES],
    "wic": ["wic", "wic"],
    "similarity": ["similarity", "pairs.txt"],
    "contexts": ["contexts", "uses.tsv"],
    "sentences": ["sentences", "sentences.tsv"],
}
ROWS = ["vectors", "layer 0 (characters)", "layer 1", "layer 2", "average"]


def table_of(capsys) -> list[str]:
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out.splitlines()


@pytest.mark.parametrize("name", RUNS)
def test_a_probe_shows_a_table_and_writes_json(name, desk, capsys):
    command = ["probe", *RUNS[name], "--model", "my-model", "--vectors", "vectors.txt", "-o", "out.json"]
    assert main([*command, "--keep", "kept"]) == 0
    lines = table_of(capsys)
    for row in ROWS:
        assert any(line.startswith(f"{row} ") for line in lines)
    found = json.loads((desk / "out.json").read_text(encoding="utf-8"))
    assert found["probe"] == name
    rows = [*ROWS, "layer 0 (characters) to layer 2, joined"] if name == "wic" else ROWS
    assert [row["name"] for row in found["rows"]][-len(rows) :] == rows
    assert found["command"].startswith(f"elmo probe {name} ")
    assert "--model my-model" in found["command"]
    assert (found["seed"], found["model"]) == (0 if name in ("pos", "wic") else None, "my-model")
    assert set(found["versions"]) == {"python", "elmokit", "torch", "numpy"}
    assert found["seconds"] >= 0
    # The command in the JSON runs, and with the vectors kept it says the same.
    import shlex

    assert main([*shlex.split(found["command"])[1:], "--output", "again.json"]) == 0
    assert table_of(capsys) == lines
    assert json.loads((desk / "again.json").read_text(encoding="utf-8"))["rows"] == found["rows"]


def test_any_part_of_wic_is_scored(desk, capsys):
    (desk / "wic/dev").rename(desk / "wic/mine")
    for kind in ("data", "gold"):
        (desk / f"wic/mine/dev.{kind}.txt").rename(desk / f"wic/mine/mine.{kind}.txt")
    (desk / "other.data.txt").write_text("dog\tN\t1-1\tthe dog .\tthe dog .\n", encoding="utf-8")
    (desk / "other.gold.txt").write_text("T\n", encoding="utf-8")
    for part, count in (("train", 10), ("mine", 10), ("other.data.txt", 1), ("wic/mine/mine.data.txt", 10)):
        assert main(["probe", "wic", "wic", "--test", part, "--model", "my-model"]) == 0
        assert f"10 training and {count} test pairs" in table_of(capsys)[0]
    assert main(["probe", "wic", "wic", "--train", "mine", "--test", "other.data.txt", "--model", "my-model"]) == 0


def test_weights_are_shown(desk, capsys):
    mixes = {"input": {"weights": [0.2, 0.5, 0.3], "gamma": 1.5}}
    (desk / "results.json").write_text(json.dumps({"task": "tag", "mixes": mixes}), encoding="utf-8")
    assert main(["probe", "weights", "results.json", "NER=results.json", "-o", "out.json"]) == 0
    lines = table_of(capsys)
    assert lines[-2].split() == ["NER,", "input", "0.200", "0.500", "0.300", "1.500"]
    assert lines[-1].split() == ["tag,", "input", "0.200", "0.500", "0.300", "1.500"]
    assert json.loads((desk / "out.json").read_text(encoding="utf-8"))["rows"][0]["layer 1"] == 0.5


def test_words_by_spelling_and_in_context(desk, capsys):
    (desk / "words.txt").write_text("dog\ntree\n\nbank\n", encoding="utf-8")
    command = ["probe", "words", "doggy", "--model", "my-model", "--top", "2"]
    assert main([*command, "--vocabulary", "words.txt"]) == 0
    lines = table_of(capsys)
    assert lines[0] == "doggy" and lines[1].split()[1] == "dog" and len(lines) == 3
    (desk / "text.txt").write_text("A dog barks. The dog of the house waits.\n", encoding="utf-8")
    command = ["probe", "words", "dog", "--model", "my-model", "--top", "1"]
    assert main([*command, "--sentence", "My dog runs.", "--text", "text.txt"]) == 0
    lines = table_of(capsys)
    assert lines[0] == "layer 0 (characters)" and "[dog]" in lines[1] and len(lines) == 8


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["frobnicate"], "wic, similarity, contexts, sentences, weights, words, found 'frobnicate'"),
        (["pos"], "elmo probe pos --help"),
        (["pos", "--train", "gone.conllu", "--test", "test.conllu"], "gone.conllu does not exist"),
        (["pos", "--train", "vectors.txt", "--test", "test.conllu"], "vectors.txt:1: expected 10 columns"),
        (["pos", *TREEBANKS, "--model", "gone"], "gone: no installed model, folder or .zip has this name here"),
        (["pos", *TREEBANKS, "--model", "my-model", "--vectors", "train.conllu"], "train.conllu:1"),
        (["pos", *TREEBANKS, "--seed", "-1"], "--seed is -1: expected 0 or more"),
        (["wic", "wic", "--seed", "-1"], "--seed is -1: expected 0 or more"),
        (["similarity", "--model", "my-model"], "FILE"),
        (["similarity", "gone.txt"], "gone.txt does not exist"),
        (["contexts", "sentences.tsv"], "expected one or two texts with two marked words"),
        (["sentences", "vectors.txt"], "vectors.txt:1: expected two sentences and a rating"),
        (["wic", "wic", "--test", "test"], "test.data.txt does not exist"),
        (["similarity", "pairs.txt", "--model", "my-model", "--precision", "bfloat16"], "bfloat16"),
        (["similarity", "pairs.txt", "wic/../pairs.txt", "--model", "my-model"], "different names: they become"),
        (["words", "dog", "--model", "my-model"], "the model has no list of words with it"),
        (["words", "dog", "--text", "x", "--model", "my-model"], "--sentence and --text go together"),
        (["words", "dog", "--top", "0", "--model", "my-model"], "--top of 1 or more"),
        (
            ["words", "a", "--sentence", "a", "--text", "pairs.txt", "--vocabulary", "gone.txt", "--model", "my-model"],
            "--vocabulary is searched by spelling, --text in context",
        ),
        (["words", "a", "b", "--sentence", "a b", "--text", "pairs.txt", "--model", "my-model"], "found 2 words"),
        (["words", "a", "--sentence", "b", "--text", "pairs.txt", "--model", "my-model"], "as a word of the sentence"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments, complaint, desk, capsys):
    assert main(["probe", *arguments]) == 2
    text = capsys.readouterr().err
    assert text.startswith("elmo: ") and text.count("\n") == 1
    assert complaint in text


def test_a_bad_sentence_can_be_left_out(desk, capsys):
    text = (desk / "train.conllu").read_text(encoding="utf-8")
    (desk / "train.conllu").write_text(text.replace("2\tdog", "7\tdog", 1), encoding="utf-8")
    command = ["probe", "pos", *TREEBANKS, "--model", "my-model"]
    assert main(command) == 2
    assert "train.conllu:3: expected word 2 of the sentence, found the number 7" in (told := capsys.readouterr().err)
    assert "--skip-bad" in told
    assert main([*command, "--skip-bad"]) == 0
    assert "1 bad example skipped, the first: train.conllu:3" in capsys.readouterr().err


def test_outputs_are_checked_before_the_work(desk, capsys):
    for code, arguments in (
        (1, ["-o", "gone/out.json"]),
        (1, ["-o", "wic"]),
        (2, ["--picture", "figure.gif"]),
    ):
        assert main(["probe", "wic", "wic", "--model", "gone-model", *arguments]) == code
        assert arguments[1] in capsys.readouterr().err


def test_an_output_that_cannot_be_written_leaves_nothing(desk, capsys, monkeypatch):
    def fails(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", fails)
    (desk / "results.json").write_text('{"task": "t", "mixes": {"a": {"weights": [1], "gamma": 1}}}')
    assert main(["probe", "weights", "results.json", "-o", "out.json"]) == 1
    assert "out.json: cannot be written: No space left" in capsys.readouterr().err
    assert not list(desk.glob("*out.json*"))


def test_help_names_every_probe_with_an_example(capsys):
    assert main(["probe"]) == 0
    summary = capsys.readouterr().out
    assert main(["--help"]) == 0
    assert "elmo probe " in capsys.readouterr().out
    for name in PROBES:
        assert f"elmo probe {name} " in summary
        assert main(["probe", name, "--help"]) == 0
        assert f"Example: elmo probe {name} " in capsys.readouterr().out


def test_help_does_not_import_torch():
    code = (
        "import sys; from elmokit.cli import main; main(['probe', 'pos', '--help']); "
        "print([m for m in ('torch', 'numpy', 'matplotlib', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]"
