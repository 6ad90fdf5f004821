"""`elmo task`: files in, a model and predictions out, and bad input."""

from __future__ import annotations

import io
import json
import stat
import subprocess
import sys

import pytest

from elmokit.cli import main
from elmokit.commands.task import _scores_line, task_settings

NAMES = "Ann I-PER\nLee I-PER\nwent O\nto O\nRome I-LOC\n\nthey O\nleft O\nOslo I-LOC\n\nBob I-PER\nslept O\n"
QUICK = ["--epochs", "12", "--learning-rate", "0.02", "--set", "hidden=12", "dropout=0.1", "num-layers=1"]


@pytest.fixture
def desk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.conll").write_text(NAMES, encoding="utf-8")
    (tmp_path / "my.vec").write_text("went 1 0\nrome 0 1\nann 1 1\n", encoding="utf-8")
    return tmp_path


def task_train(*more: str) -> list[str]:
    return ["task", "train", "tag", "--train", "train.conll", "--dev", "train.conll", "-o", "names", *more]


def test_train_evaluate_predict(desk, capsys, monkeypatch, random_model):
    sources = ["--vectors", "my.vec", "--elmo", str(random_model), "--test", "train.conll", "--device", "cpu"]
    assert main(task_train(*sources, *QUICK)) == 0
    shown = capsys.readouterr()
    assert "dev: f1 100.00" in shown.out
    assert "test: f1 100.00" in shown.out
    assert "ELMo at the input: layers 0." in shown.out
    assert "tag: 3 to learn from, 3 to choose by, 3 to test on" in shown.err
    assert "30.0 % of the words to learn from have a static vector" in shown.err
    assert (desk / "elmo-layers").is_dir()
    results = json.loads((desk / "names/results.json").read_text(encoding="utf-8"))
    assert results["config"]["hidden"] == 12
    assert results["config"]["inputs"]["vectors"] == "my.vec"

    (desk / "my.vec").unlink()  # the folder holds what it needs
    assert main(["task", "evaluate", "names", "train.conll", "--predictions", "said.jsonl", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["f1"] == 1.0
    assert json.loads((desk / "said.jsonl").read_text(encoding="utf-8").splitlines()[0])[0] == "B-PER"

    assert main(["task", "predict", "names", "Ann Lee went to Rome"]) == 0
    assert capsys.readouterr().out == "[Ann Lee PER] went to [Rome LOC]\n"
    with monkeypatch.context() as patch:  # a word, as a label, may come from anybody
        patch.setattr(sys.stdout, "isatty", lambda: True)
        assert main(["task", "predict", "names", "Ann Lee\x1b[8m went to Rome", "--tokenised"]) == 0
        shown = capsys.readouterr().out
        assert "Lee\\x1b[8m" in shown and "\x1b" not in shown
    for minus in (["--file", "-"], ["-"]):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"Ann Lee went to Rome\n\n")))
        assert main(["task", "predict", "names", *minus, "--tokenised", "--json"]) == 0
        said = {"words": ["Ann", "Lee", "went", "to", "Rome"], "labels": ["B-PER", "I-PER", "O", "O", "B-LOC"]}
        assert json.loads(capsys.readouterr().out) == said
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (desk / "names").iterdir() if path.is_file()}
    assert modes["model.safetensors"] == modes["config.json"]  # safetensors alone would make it 0600


def test_results_alone(desk, capsys):
    """Options may be given again, as a table of many runs does: the last counts, and `--set` adds up."""
    more = ["--results-only", "--elmo", "none", "--set", "hidden=4", "--set", "num-layers=1", "--share", "0.9"]
    assert main(task_train(*more, "--epochs", "9", "--epochs", "1", "--share", "0.4", "-o", "run")) == 0
    assert "run: epoch 1 of 1 was the best" in capsys.readouterr().out
    config = json.loads((desk / "run/results.json").read_text(encoding="utf-8"))["config"]
    assert (config["hidden"], config["num_layers"]) == (4, 1)
    assert [path.name for path in (desk / "run").iterdir()] == ["results.json"]
    assert json.loads((desk / "run/results.json").read_text(encoding="utf-8"))["num_train"] == 1
    (desk / "run/config.json").write_text("{}", encoding="utf-8")  # as a model has, which results alone would replace
    assert main(task_train(*more, "--epochs", "1", "-o", "run")) == 1
    shown = capsys.readouterr()
    assert "run: expected a new folder or one with results.json alone, found config.json in it" in shown.err
    assert "epoch" not in shown.err  # told before the work


BAD = [
    (["--train", "no.conll"], 2, r"no\.conll does not exist"),
    (["--train", "empty"], 2, "empty: expected examples to learn from, found none"),
    (["--dev", "empty"], 2, "empty: expected examples, found none"),
    (["--dev", "ragged"], 2, "ragged:2: expected 2 columns.*--skip-bad"),
    (["--dev", "odd"], 2, "odd:1: the label 'I-ORG' does not occur in the training examples, which have LOC, PER;"),
    (["--train", "same"], 2, r"same: expected at least two labels to tell apart, found \['O'\]"),
    (["--device", "moon"], 2, "cannot compute on the device 'moon'"),
    (["--set", "colour=red"], 2, "the task tag can be told column=TEXT, hidden=N"),
    (["--set", "hidden=many"], 2, "--hidden is 'many': expected a whole number"),
    (["--epochs", "0"], 2, "epochs is 0"),
    (["--seed", "9" * 20], 2, "seed is 9{20}"),
    (["--elmo-at", "side"], 2, "--elmo-at is 'side': use one of none, input, output, both"),
    (["--elmo", "nowhere"], 2, "nowhere"),
    (["--vectors", "train.conll"], 2, r"train\.conll:1: expected a word and its numbers"),
    (["-o", "train.conll"], 1, "found a file"),
    (["-o", "."], 1, "expected a new folder or a task model's"),
]


@pytest.mark.parametrize(("more", "code", "message"), BAD)
def test_bad_input_is_one_line(more, code, message, desk, capsys):
    for name, text in (("empty", ""), ("ragged", "a O\nb\n"), ("odd", "EU I-ORG\n"), ("same", "a O\n")):
        (desk / name).write_text(text, encoding="utf-8")
    arguments = dict(zip(*[iter(task_train()[3:])] * 2, strict=True)) | dict(zip(*[iter(more)] * 2, strict=True))
    flat = [part for pair in arguments.items() for part in pair]
    assert main(["task", "train", "tag", "--device", "cpu", *flat]) == code
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) <= 2
    assert __import__("re").search(message, lines[-1])
    assert not (desk / "names").exists()


def test_bad_examples_can_be_skipped(desk, capsys):
    (desk / "dev").write_text(NAMES + "\nx\n\nEU I-ORG\n", encoding="utf-8")
    more = ["--epochs", "1", "--skip-bad", "--set", "hidden=4"]
    assert main([*task_train(), *more, "--dev", "dev"]) == 0
    assert "2 bad examples skipped, the first: dev:14: expected a word" in capsys.readouterr().err
    assert main(["task", "evaluate", "names", "dev", "--skip-bad"]) == 0
    assert "2 bad examples skipped" in capsys.readouterr().err
    (desk / "odd").write_text("EU I-ORG\n", encoding="utf-8")
    assert main([*task_train(), *more, "--dev", "odd"]) == 2
    assert "odd: expected examples to choose by, found none (1 bad example skipped" in capsys.readouterr().err
    assert main(["task", "evaluate", "names", "odd", "--skip-bad"]) == 2
    assert "found none" in capsys.readouterr().err


def test_typed_files_are_named_with_the_line(desk, capsys):
    (desk / "pairs.tsv").write_text("a b\tc\tyes\nd\te\tno\n", encoding="utf-8")
    quick = ["--elmo", "none", "--epochs", "1", "--set", "hidden=4"]
    assert main(["task", "train", "infer", "--train", "pairs.tsv", "--dev", "pairs.tsv", "-o", "pairs", *quick]) == 0
    (desk / "typed").write_text("a\tb\n\n\tb\n", encoding="utf-8")
    assert main(["task", "predict", "pairs", "--file", "typed"]) == 2
    assert "typed:3: expected a premise, found no words" in capsys.readouterr().err


def test_texts_are_answered_in_the_order_in_which_they_were_given(desk, capsys, monkeypatch):
    quick = ["--elmo", "none", "--epochs", "1", "--set", "hidden=4"]
    assert main(task_train(*quick)) == 0
    (desk / "pairs.tsv").write_text("a b\tc\tyes\nd\te\tno\n", encoding="utf-8")
    assert main(["task", "train", "infer", "--train", "pairs.tsv", "--dev", "pairs.tsv", "-o", "pairs", *quick]) == 0
    (desk / "typed").write_text("last\n", encoding="utf-8")
    capsys.readouterr()

    def answered(typed: bytes, *arguments: str) -> list:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(typed)))
        assert main(["task", "predict", *arguments, "--json"]) == 0
        said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        return [" ".join(one["words"]) if "words" in one else (one["premise"], one["hypothesis"]) for one in said]

    assert answered(b"b\nc\n", "names", "a", "-", "d", "e") == ["a", "b", "c", "d", "e"]
    assert answered(b"b\n", "names", "-", "typed text", "--file", "typed") == ["b", "typed text", "last"]
    assert answered(b"c\td\n", "pairs", "-", "a", "b") == [(["c"], ["d"]), (["a"], ["b"])]
    for arguments, complaint in (
        (["pairs", "a", "-", "b"], "the task infer takes premise and hypothesis together, found 1 text(s)"),
        (["names", "-", "a", "-"], "standard input (-) was named more than once"),
        (["names", "-", "--file", "-"], "standard input (-) was named more than once"),
    ):
        assert main(["task", "predict", *arguments]) == 2
        assert complaint in capsys.readouterr().err


def test_csv_files_train_score_and_predict(desk, capsys):
    (desk / "my.csv").write_text('id,label,text\n1,good,"Fine, really."\n2,bad,"Dull, ""sad"""\n', encoding="utf-8")
    quick = ["--elmo", "none", "--epochs", "1", "--set", "hidden=4"]
    assert main(["task", "train", "classify", "--train", "my.csv", "--dev", "my.csv", "-o", "films", *quick]) == 0
    assert main(["task", "evaluate", "films", "my.csv"]) == 0
    capsys.readouterr()
    assert main(["task", "predict", "films", "--file", "my.csv"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line.split("\t")[2] for line in shown] == ["Fine , really .", 'Dull , " sad "']
    assert main(["task", "evaluate", "films", "my.csv", "--predictions", "no/where.jsonl"]) == 1
    assert "the folder no does not exist" in capsys.readouterr().err
    assert main(["evaluate", "my.csv", "--model", "films"]) == 2
    assert "expected a language model, found a task model" in capsys.readouterr().err
    (desk / "review.csv").write_text("Stars,Review\n5,Fine.\n", encoding="utf-8")
    assert main(["task", "predict", "films", "--file", "review.csv"]) == 2
    assert "review.csv:1: expected a row that names the column of the sentence (text, sent" in capsys.readouterr().err
    (desk / "empty.csv").write_text("text,id\n", encoding="utf-8")
    assert main(["task", "predict", "films", "--file", "empty.csv"]) == 2
    assert "expected text to predict for, found none" in capsys.readouterr().err
    (desk / "short.csv").write_text("text,id\nFine.,1\nFine.\n", encoding="utf-8")
    assert main(["task", "predict", "films", "--file", "short.csv"]) == 2
    assert "short.csv:3: expected 2 fields, found 1" in capsys.readouterr().err


def test_help_of_the_group(capsys):
    assert main(["task"]) == 0
    shown = capsys.readouterr().out
    assert "elmo task predict" in shown
    assert "coref" in shown
    for name in ("train", "evaluate", "predict"):
        assert main(["task", name, "--help"]) == 0
        assert f"Example: elmo task {name} " in capsys.readouterr().out
    assert main(["task", "dance"]) == 2
    assert "one of train, evaluate, predict, found 'dance'; see elmo task --help" in capsys.readouterr().err
    assert main(["task", "predict", "nowhere"]) == 2


def test_help_needs_no_torch():
    code = (
        "import sys; from elmokit.cli import main; main(['task', 'train', '--help']); "
        "print([m for m in ('torch', 'numpy', 'pyarrow', 'h5py') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]"
    for setting in task_settings():
        assert len(setting.help) > 10
        assert f"{setting.option} " in done.stdout


def test_text_to_predict_for_is_needed(desk, capsys):
    assert main([*task_train(), "--epochs", "1", "--set", "hidden=4", "--device", "cpu"]) == 0
    capsys.readouterr()
    assert main(["task", "predict", "names"]) == 2
    assert "expected text to predict for (sentence)" in capsys.readouterr().err
    assert main(["task", "predict", "names", "Ann left.", "train.conll"]) == 2
    way = "`elmo task predict names --file train.conll`"
    assert f"train.conll is a file: give sentences in quotes, or its lines by {way}" in capsys.readouterr().err
    assert main(["task", "predict", "names", " "]) == 2
    assert "found no words" in capsys.readouterr().err


def test_many_scores_are_lines_that_a_terminal_holds():
    kinds = {f"{kind}_{what}": 0.5 for kind in ("muc", "b3", "mentions") for what in ("precision", "recall", "f1")}
    lines = _scores_line("dev", {**kinds, "conll_f1": 0.25}, "conll_f1").splitlines()
    assert lines[0] == "dev: conll_f1 25.00"
    assert lines[1].split() == ["muc", "precision", "50.00", "recall", "50.00", "f1", "50.00"]
    assert len(lines) == 4
    assert _scores_line("dev", {"precision": 0.5, "f1": 1.0}, "f1") == "dev: f1 100.00  precision 50.00"
