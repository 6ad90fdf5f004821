"""The driver of the tables: it runs what is missing, shares what tables have in common, and writes them."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from elmokit.cli import parse_arguments
from elmokit.commands.task import TaskTrain, change_task

RECIPE = Path(__file__).parents[2] / "recipes/task_tables.py"
PLAN = RECIPE.with_name("task_tables_plan.txt")
NAMES = "Ann I-PER\nwent O\nto O\nRome I-LOC\n\nBob I-PER\nslept O\n"


def loaded(path, monkeypatch):
    """A recipe as a module, which other recipes can import while the test runs."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, path.stem, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tables(monkeypatch):
    return loaded(RECIPE, monkeypatch)


def test_a_grid_is_run_once_and_written(tables, tmp_path, random_model, capsys):
    folder = tmp_path / "eval/ner/conll2003"
    folder.mkdir(parents=True)
    for part in ("train", "testa", "testb"):
        (folder / f"eng.{part}").write_text(NAMES, encoding="utf-8")
    arguments = ["six", "layers", "placement", "--tasks", "ner", "--data", str(tmp_path / "eval")]
    arguments += ["--elmo", str(random_model), "-o", str(tmp_path / "out"), "--jobs", "0", "--seeds", "0", "1"]
    arguments += ["--", "--epochs", "1", "--set", "hidden=4", "--character-filters", "8"]
    assert tables.main(arguments) == 0
    shown = capsys.readouterr().out
    assert "16 runs, 16 of them to do" in shown  # glove, elmo, random, words, top, l2-1, at-both, at-output; two seeds
    text = (tmp_path / "out/tables.md").read_text(encoding="utf-8")
    assert "### Baseline and ELMo" in text
    assert "90.15 → 92.22 (21 %)" in text
    assert "±" in text
    found = json.loads((tmp_path / "out/results.json").read_text(encoding="utf-8"))
    assert set(found["ner"]) == {"glove", "elmo", "random", "words", "top", "l2-1", "at-both", "at-output"}
    assert [run["seed"] for run in found["ner"]["elmo"]] == [0, 1]
    assert found["ner"]["glove"][0]["config"]["inputs"]["elmo"] is None
    assert found["ner"]["top"][0]["config"]["inputs"]["elmo_layers"] == "top"
    assert tables.main(arguments) == 0
    assert "16 runs, 0 of them to do" in capsys.readouterr().out


@pytest.fixture
def names(tmp_path):
    """A folder of data with names alone, and the arguments that every grid over it needs."""
    folder = tmp_path / "eval/ner/conll2003"
    folder.mkdir(parents=True)
    for part in ("train", "testa", "testb"):
        (folder / f"eng.{part}").write_text(NAMES, encoding="utf-8")
    return ["--data", str(tmp_path / "eval"), "--elmo", "none", "-o", str(tmp_path / "out"), "--jobs", "0"]


QUICK = ["--", "--epochs", "3", "--set", "hidden=4", "--character-filters", "8"]


def test_a_plan_says_what_comes_first(tables, tmp_path, names, capsys):
    plan = tmp_path / "plan.txt"
    plan.write_text("# seeds of names\nner glove 3\n\nner glove-share-0.1 2  # some\nner glove 3\n", encoding="utf-8")
    assert tables.main(["six", "--plan", str(plan), *names, *QUICK]) == 0
    shown = capsys.readouterr().out
    assert "2 runs, 2 of them to do" in shown
    assert shown.index("glove-3, ") < shown.index("glove-share-0.1-2, ")
    assert "epochs 3, ended by epochs: f1 dev" in shown
    assert tables.main(["six", "samples", "--plan", str(plan), "--report", *names]) == 0
    assert "| names, CoNLL-2003 | 100 % |" in capsys.readouterr().out
    plan.write_text("ner glove\n", encoding="utf-8")
    with pytest.raises(SystemExit, match=r"plan\.txt:1: expected TASK VARIANT SEED"):
        tables.main(["six", "--plan", str(plan), *names])


def test_time_that_ends(tables, tmp_path, names, capsys):
    """A run that began in time stops after an epoch, and the table says so; another is not begun."""
    arguments = ["six", "--tasks", "ner", "--seeds", "0", *names, *QUICK]
    clock = tables.Clock(1.5)
    clock.took("ner", 80)
    assert clock.has_time_for("ner")
    clock.took("ner", 70)
    clock.took("squad", 100)
    assert clock.has_time_for("ner")
    assert not clock.has_time_for("squad")
    run = tables.Run("ner", "glove", 0)
    given = tables.parsed(arguments)
    assert tables.execute(run, given, 1e-4)
    assert "epochs 1, ended by minutes" in tables.outcome(run, given, True, 1.0)
    assert "see " in tables.outcome(run, given, False, 1.0)
    assert tables.main([*arguments[: -len(QUICK)], "--report"]) == 0
    shown = capsys.readouterr().out
    assert " †" in shown
    assert "† the time that was given ended a run" in shown
    assert tables.main([*arguments[: -len(QUICK)], "--minutes", "0.5", *QUICK]) == 1
    assert "no time left for" in capsys.readouterr().out


def test_a_report_of_one_table_keeps_the_runs_of_others(tables, tmp_path, names):
    """Also those of other seeds: results.json is what pictures are drawn from, and would lose them."""

    def end(folder, score):
        (tmp_path / "out/runs" / folder).mkdir(parents=True)
        results = {"dev": {"f1": score}, "test": {"f1": score}, "history": [score], "best_epoch": 1}
        (tmp_path / "out/runs" / folder / "results.json").write_text(json.dumps(results), encoding="utf-8")

    for folder in ("ner/glove-0", "ner/elmo-0", "ner/elmo-10", "ner/elmo-2", "ner/l2-1-0", "squad/top-0"):
        end(folder, 0.5)
    end("ner/.elmo-3.0123abcd.partial", 0.9)  # as long as it is written
    assert tables.main(["six", "--seeds", "0", "--report", *names]) == 0
    found = json.loads((tmp_path / "out/results.json").read_text(encoding="utf-8"))
    assert {task: list(variants) for task, variants in found.items()} == {
        "ner": ["elmo", "glove", "l2-1"],
        "squad": ["top"],
    }
    assert [run["seed"] for run in found["ner"]["elmo"]] == [0, 2, 10]
    assert tables.cell(found, "ner", "elmo") == "50.00 ± 0.00"
    assert "50.00 ± 0.00" in (tmp_path / "out/tables.md").read_text(encoding="utf-8")


def test_numbers_of_the_tables(tables):
    def run(seed, score, history):
        scores = {"f1": score}
        return {"seed": seed, "dev": scores, "test": {}, "metric": "f1", "history": history, "best_epoch": 2}

    found = {
        "ner": {"glove": [run(0, 0.8, [0.7, 0.8]), run(1, 0.82, [0.82])], "elmo": [run(0, 0.9, [0.75, 0.85, 0.9])]}
    }
    assert tables.cell(found, "ner", "glove") == "81.00 ± 1.41 (two seeds)"
    assert tables.cell(found, "ner", "elmo") == "90.00 (one seed)"
    assert tables.cell(found, "ner", "random") == "…"
    assert "47.4 %" in tables.six_table(found)  # (90 - 81) / (100 - 81)
    assert tables.passed(found, "ner", "glove", "elmo") == "2, 2"
    assert "| names, CoNLL-2003 | 100 % | 81.00 ± 1.41 (two seeds) | 90.00 (one seed) | 2, 2 |" in tables.samples_table(
        found
    )


def test_the_options_of_variants(tables):
    assert tables.options_of("glove", "m") == ["--elmo", "none"]
    assert tables.options_of("elmo-share-0.01", "m")[:4] == ["--elmo", "m", "--share", "0.01"]
    assert tables.options_of("words", "m") == ["--elmo", "none", "--character-filters", "0"]
    assert tables.options_of("at-both", "m")[-2:] == ["--elmo-at", "both"]
    assert tables.place_variant("ner", "input") == "elmo"
    assert tables.Run("ner", "glove-share-0.1", 0).size == tables.Run("ner", "elmo-share-0.1", 1).size == "ner0.1"
    assert tables.place_variant("ner", "output") == "at-output"


def test_the_plan_holds_every_run(tables, tmp_path):
    """Each line of it is a command that can be read, and together they are the tables."""
    names = ["--data", str(tmp_path), "--vectors", "v.txt", "--elmo", "m", "-o", str(tmp_path), "--seeds", "0"]
    given = tables.parsed(["six", "layers", "placement", "samples", *names])
    planned = tables.read_plan(PLAN)
    assert set(tables.planned(given)) <= set(planned)
    for run in planned:
        share = run.variant.partition("-share-")[2]
        command = parse_arguments(["task", "train", *run.arguments(given)])
        assert isinstance(command, TaskTrain)
        _, training = change_task(command.task, command.settings)
        assert training.share == float(share or 1), run
        assert not share or (training.epochs, training.batch_size) == tables.SHARE_OPTIONS[share]


def test_pictures_of_the_tables(tables, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="the extra `viz` is not installed")

    def runs(score, num_train):
        scores = {"f1": score}
        return [{"dev": scores, "test": scores, "history": [score / 2, score], "num_train": num_train}] * 2

    found = {
        kind if share == 1 else tables.share_variant(kind, share): runs(score * (1 + share) / 2, round(1000 * share))
        for kind, score in (("glove", 0.8), ("random", 0.7), ("elmo", 0.9))
        for share in tables.SHARES
    }
    (tmp_path / "results.json").write_text(json.dumps({"ner": found, "srl": {"elmo": runs(0.5, 9)}}), encoding="utf-8")
    loaded(RECIPE.with_name("draw_task_tables.py"), monkeypatch).main([str(tmp_path / "results.json"), str(tmp_path)])
    for name, said in (("six", "score, %"), ("samples", "sentences learned from"), ("epochs", "epoch")):
        assert said in (tmp_path / f"{name}.svg").read_text(encoding="utf-8")
