"""`elmo train`: its settings, their reading and their help, one line when something is wrong."""

from __future__ import annotations

import re
import resource
import subprocess
import sys

import pytest

from elmokit.cli import main, parse_arguments
from elmokit.commands.train import Train, change_recipe, train_settings
from elmokit.errors import ConfigError
from elmokit.io import load
from elmokit.pretrain.recipes import recipe_named

TINY = [
    "--recipe",
    "tiny_cpu",
    "--workers",
    "1",
    "--tokens",
    "600",
    "--tokens-per-batch",
    "80",
    "--log-every",
    "200",
    "--lstm.cell-dim",
    "12",
    "--lstm.projection-dim",
    "8",
    "--characters.filters",
    "[[1,4],[2,4]]",
    "--characters.max-length",
    "12",
    "--num-negatives",
    "8",
]


def one_line_of(capsys) -> str:
    text = capsys.readouterr().err
    assert text.startswith("elmo: ") and text.count("\n") == 1
    return text


def test_help_is_quick_needs_no_torch_and_explains_every_setting():
    code = (
        "import sys; from elmokit.cli import main; main(['train', '--help']); "
        "print([m for m in ('torch', 'numpy', 'pyarrow', 'h5py') if m in sys.modules])"
    )
    for _ in range(3):  # again only if the machine was busy
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        if seconds < 0.5:
            break
    assert seconds < 0.5
    assert done.stdout.splitlines()[-1] == "[]"
    assert "Example: elmo train " in done.stdout
    for setting in train_settings():
        assert len(setting.help) > 10
        assert f"{setting.option} " in done.stdout


def test_from_text_to_a_model_that_the_other_commands_take(texts, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text, held_out = map(str, texts)
    assert main(["train", text, "-o", "model", "--held-out", held_out, "--tokenised", *TINY]) == 0
    said = capsys.readouterr().out
    assert "2,481 words in 400 sentences" in said and "held-out perplexity after" in said
    assert "elmo embed FILE -o vectors.parquet --model model" in said
    assert main(["evaluate", held_out, "--tokenised", "--model", "model"]) == 0
    assert main(["embed", text, "-o", "vectors.npy", "--model", "model"]) == 0
    assert main(["info", "model"]) == 0
    capsys.readouterr()
    assert main(["train", text, "-o", "model", "--held-out", held_out, "--tokenised", *TINY]) == 0
    assert "this run is finished" in capsys.readouterr().out


def test_a_model_whose_name_is_taken_is_used_by_its_path(texts, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", str(texts[0]), "-o", "en-small", "--tokenised", *TINY]) == 0
    assert "elmo embed FILE -o vectors.parquet --model ./en-small\n" in capsys.readouterr().out
    assert load("./en-small").config.lstm.cell_dim == 12 != load("en-small").config.lstm.cell_dim


def test_quiet_training_says_nothing(texts, tmp_path, capsys):
    assert main(["train", str(texts[0]), "--tokenised", "-o", str(tmp_path / "m"), *TINY, "--quiet"]) == 0
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "")
    assert load(tmp_path / "m").config.lstm.cell_dim == 12


def test_a_vocabulary_that_has_less_than_half_of_a_text_is_said(texts, tmp_path, capsys):
    (tmp_path / "other.txt").write_text("quite other words here\n" * 20, encoding="utf-8")
    asked = ["train", str(texts[0]), "--tokenised", "-o", str(tmp_path / "model"), *TINY]
    assert main([*asked, "--vocabulary-size", "8", "--held-out", str(tmp_path / "other.txt")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "of the text: the model learns little but <UNK>; use a larger --vocabulary-size" in said
    assert "the vocabulary has only 0.0% of the held-out text: its perplexity is mostly that of <UNK>" in said
    assert load(tmp_path / "model").metadata["scripts"] == "Latin"


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["--recipe", "huge"], 2, "use one of tiny_cpu, small"),
        (["--dropout", "lots"], 2, "--dropout is 'lots': expected a number"),
        (["--tokens", "1.5"], 2, "--tokens is '1.5': expected a whole number"),
        (["--mode", "books"], 2, "use one of sentences, streams"),
        (["--lstm.cell-dim", "0"], 2, "lstm.cell_dim is 0"),
        (["--device", "abacus"], 2, "abacus"),
        (["--optimiser", "adamw", "--learning-rate", "1e38"], 1, "no checkpoint yet"),
        (["--speed", "9"], 2, "--speed"),
    ],
)
def test_what_is_wrong_is_one_line(arguments, code, complaint, texts, tmp_path, capsys):
    assert main(["train", str(texts[0]), "-o", str(tmp_path / "m"), "--tokenised", *TINY, *arguments]) == code
    assert complaint in one_line_of(capsys)


def test_missing_text_is_named(tmp_path, capsys):
    assert main(["train", str(tmp_path / "nothing.txt"), "-o", str(tmp_path / "m"), *TINY]) == 2
    assert "nothing.txt" in one_line_of(capsys)


@pytest.mark.parametrize(
    "wrong", [["nofile.txt"], ["x" * 5000], ["TEXT", "--held-out", "nofile.txt"], ["TEXT", "--vectors", "no.txt"]]
)
def test_a_mistyped_name_leaves_nothing_behind(wrong, texts, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    asked = [str(texts[0]) if word == "TEXT" else word for word in wrong]
    assert main(["train", *asked, "-o", "y", "--tokenised", *TINY]) == 2
    assert wrong[-1] in one_line_of(capsys)
    assert list(tmp_path.iterdir()) == []
    other = ["--recipe", "small", *TINY[2:]]
    assert main(["train", str(texts[0]), "-o", "y", "--tokenised", *other]) == 0


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["--from", "en-small", "--lstm.cell-dim", "99"], "--lstm.cell-dim would change nothing: --from en-small"),
        (["--from", "en-small", "--input", "words"], "--input would change nothing"),
        (["--vectors", "glove.txt", "--input", "characters"], "--vectors begins a model of words"),
    ],
)
def test_a_setting_that_something_else_decides_is_refused(typed, said, texts, tmp_path, capsys):
    command = ["train", str(texts[0]), "-o", str(tmp_path / "m"), "--tokenised", "--recipe", "tiny_cpu", *typed]
    assert main(command) == 2
    assert said in one_line_of(capsys)
    assert list(tmp_path.iterdir()) == []


def test_text_that_cannot_be_encoded_leaves_nothing_behind(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "blank.txt").write_text("\n\n", encoding="utf-8")
    assert main(["train", "blank.txt", "-o", "y", *TINY]) == 2
    assert "found no words at all" in one_line_of(capsys)
    assert [path.name for path in tmp_path.iterdir()] == ["blank.txt"]


def test_a_failure_keeps_the_folder_of_an_earlier_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "blank.txt").write_text("\n\n", encoding="utf-8")
    (tmp_path / "y.training").mkdir()
    (tmp_path / "y.training" / "log.jsonl").write_text("{}\n", encoding="utf-8")
    assert main(["train", "blank.txt", "-o", "y", *TINY]) == 2
    assert (tmp_path / "y.training" / "log.jsonl").exists()


def test_ctrl_c_says_how_to_go_on(texts, tmp_path, capsys, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("elmokit.pretrain.train.train", stop)
    assert main(["train", str(texts[0]), "-o", str(tmp_path / "m"), *TINY]) == 130
    assert "the same command continues from its last checkpoint, if it has reached one" in one_line_of(capsys)


def test_settings_are_read_from_text(texts, tmp_path, monkeypatch, capsys):
    arguments = ["train", str(texts[0]), "-o", "model", "--tokens", "1e6", "--lstm.residual", "no"]
    more = ["--lstm.cell-clip", "3", "--characters.filters", "[[1, 8]]", "--held-out", "a", "b"]
    command = parse_arguments([*arguments, *more])
    assert isinstance(command, Train)
    config = change_recipe(command.recipe, command.settings)
    assert (config.tokens, config.model.lstm.residual, config.model.lstm.cell_clip) == (1_000_000, False, 3.0)
    assert config.model.characters is not None and config.model.characters.filters == ((1, 8),)
    assert command.held_out == ("a", "b") and str(command.destination) == "model"
    monkeypatch.chdir(tmp_path)
    assert main(["train", str(texts[0]), "-o", "model", "--tokenised", *TINY]) == 0
    assert main(["train", str(texts[0]), "-o", "model", "--tokenised", *TINY, "--dropout", "0.3"]) == 2
    assert "other settings: --dropout was" in capsys.readouterr().err


def test_none_is_a_value_where_nothing_may_stand():
    assert change_recipe("bilm_tf", {"lstm.cell_clip": "none"}).model.lstm.cell_clip is None
    with pytest.raises(ConfigError, match="expected"):
        change_recipe("bilm_tf", {"dropout": "none"})
    assert change_recipe("tiny_cpu", {}) == recipe_named("tiny_cpu")


@pytest.mark.parametrize("asked", [["--recipe", "tiny_cpu"], ["--recipe=tiny_cpu"]])
def test_help_shows_the_values_of_the_recipe(asked, capsys):
    assert main(["train", *asked, "--help"]) == 0
    assert "(tiny_cpu: 3000000)" in " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert main(["train", "--help"]) == 0
    assert "(small: 1000000000)" in " ".join(capsys.readouterr().out.replace("│", " ").split())


def test_help_of_a_task_shows_its_defaults(capsys):
    assert main(["task", "train", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.replace("│", " ").replace("|", " ").split())
    assert "Decides every random number. (default: 0)" in shown


@pytest.mark.parametrize("command", [("train",), ("train", "--recipe", "tiny_cpu"), ("task", "train")])
def test_help_is_whole_without_docstrings(command):
    """`-OO` drops docstrings, and Python 3.13 moves them to the left: no option may lose its explanation."""
    asked = [sys.executable, "-OO", "-m", "elmokit", *command, "--help"]
    shown = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
    entries = re.split(r"\n│ (?=-)", shown)[1:]
    assert len(entries) > 20
    for entry in entries:
        option, *words = entry.replace("│", " ").split("╰")[0].split()
        told = re.sub(r"\([^()]*\)$", "", " ".join(words))  # without its default
        assert len(told.split()) > 2, f"{option} has no explanation"
