"""The whole measurement with tiny models, and what is written of it."""

from __future__ import annotations

import json
import re
import statistics

import pytest

from elmokit.bench.child import PeerError
from elmokit.bench.contest import Contestant, take_turns, texts_for
from elmokit.bench.device import measure_on_device
from elmokit.bench.growth import draw_growth
from elmokit.bench.measuring import Models, measure
from elmokit.bench.plan import PEERS, Plan
from elmokit.bench.report import markdown, milliseconds_of, rate_of, spread_of
from elmokit.bench.texts import sample_text
from elmokit.commands.bench import Bench
from elmokit.errors import InputError, MissingExtra

RECORD = {"size": "tiny", "batch_size": 2, "words": [10, 20, 30], "waited": 0.0}


def record(title, *, batch_size=2, factor=1.0, waited=0.0):
    seconds = [[0.1 * factor, 0.3 * factor], [0.4 * factor], [0.5 * factor]]
    return {**RECORD, "contestant": title, "batch_size": batch_size, "seconds": seconds, "waited": waited}


def result(**more):
    machine = dict.fromkeys(("date", "processor", "cores", "memory", "system", "load", "python"), "x")
    shared = {"machine": machine, "versions": {"elmokit": {"torch": "2"}}, "text": "t", "command": "c", "runs": 3}
    return {**shared, "threads": 1, "notes": [], "floors": [], "agreement": [], **more}


def cells(page: str, title: str) -> list[str]:
    """What stands behind `title` in the table that has it."""
    line = next(line for line in page.splitlines() if line.startswith(f"| {title} |"))
    return [cell.strip() for cell in line.split("|")[2:-1]]


def test_figures_are_medians_of_runs():
    assert rate_of(record("a")) == statistics.median([10 / 0.4, 20 / 0.4, 30 / 0.5])
    assert milliseconds_of(record("a")) == pytest.approx(400)
    assert spread_of(record("a")) == pytest.approx((60 - 25) / 50)


def test_above_one_means_that_we_are_faster():
    records = [record("elmokit float32"), record("AllenNLP", factor=3.0), record("elmokit float32, no cache")]
    records += [record("elmokit float32, words known"), record("AllenNLP, words known", factor=0.5)]
    records += [record(title, batch_size=1, factor=f) for title, f in (("elmokit float32", 1), ("AllenNLP", 4))]
    records += [record(each["contestant"], batch_size=1) for each in records[2:5]]
    floors = [{"size": "tiny", "batch_size": b, "what": "bound", "words_per_second": 1e4} for b in (1, 2)]
    page = markdown(result(records=records, floors=floors))
    assert cells(page, "elmokit float32 against AllenNLP") == ["4.00 ×", "3.00 ×"]
    assert cells(page, "elmokit float32, words known against AllenNLP, words known")[1] == "0.50 ×"
    assert "words known against AllenNLP |" not in page
    assert "no cache against" not in page
    assert cells(page, "elmokit float32") == ["400.0 (70%)", "50 (70%)"]
    assert cells(page, "*floor: bound*") == ["2.0", "10,000"]


def test_figures_of_a_busy_machine_are_marked():
    page = markdown(result(records=[record("elmokit float32", waited=1.0)]))
    assert cells(page, "elmokit float32") == ["50 (70%) !"]


def test_the_same_page_comes_from_the_json(near, tmp_path):
    plan = Plan(sizes=("tiny",), batch_sizes=(1, 4), runs=2, growth_sizes=("tiny",))
    told = []
    found = measure(plan, told.append)
    assert json.loads(json.dumps(found)) == found
    page = markdown(found)
    assert "tiny, batches of 4: run 2 of 2" in told
    for title in ("elmokit float32", "elmokit float32, no cache", "elmokit float32, words known"):
        assert len(cells(page, title)) == 2
    assert {each["words"][0] for each in found["records"] if each["batch_size"] == 1} == {8 * 20}
    assert all(each["words_per_second"] > 0 for each in found["floors"])
    assert re.search(r"32 sentences of 20 words per batch", page)
    assert [point["x"] for point in found["growth"]["points"]["batch"]] == [1, 2]
    assert cells(page, "words/s")
    assert "elmokit float32, elmokit float32, no cache" in page
    assert ": engine=" in page


def test_who_reads_the_same_weights_is_held_against_us(near):
    """The stand-in answers for AllenNLP with our own code, so the difference is 0."""
    peers = (PEERS["allennlp"], PEERS["minilm"])
    found = measure(Plan(peers=peers, sizes=("tiny",), batch_sizes=(2,), runs=1, grows=False), lambda text: None)
    differences = {each["contestant"]: each["largest_difference"] for each in found["agreement"]}
    assert differences["AllenNLP"] == 0.0
    assert "MiniLM-L6 (transformers)" not in differences
    titles = {each["contestant"] for each in found["records"]}
    assert {"AllenNLP", "AllenNLP, words known"} <= titles
    assert "MiniLM-L6 (transformers)" not in titles  # stands beside small only


def test_who_cannot_take_part_is_named(near, monkeypatch):
    monkeypatch.setattr("elmokit.bench.contest.OURS", {"float32": {}, "int4": {"precision": "int4"}})
    found = measure(Plan(sizes=("tiny",), batch_sizes=(2,), runs=1, grows=False), lambda text: None)
    assert found["notes"][0].startswith("elmokit int4, tiny: left out. EngineError")
    assert "## Left out" in markdown(found)


def test_who_breaks_down_is_named_and_the_others_go_on(near, tmp_path):
    class Fragile(near):
        def ask(self, do, **details):
            if do == "time" and details["batch_size"] > 1:
                raise PeerError("no more memory")
            return super().ask(do, **details)

    ours, notes = Contestant("elmokit float32", near(), "m"), []
    other = Contestant("AllenNLP", Fragile(), "m")
    folder = Models(ours.child, tmp_path, {}).folder("tiny")
    for each in (ours, other):
        each.child.ask("load", name="m", settings={"model": str(folder)})
    plan = Plan(batch_sizes=(1, 2), runs=1)
    texts = texts_for(plan, "tiny", sample_text(200))
    records = take_turns([ours, other], plan, "tiny", texts, notes, lambda text: None)
    assert [(each["contestant"], each["batch_size"]) for each in records] == [
        ("elmokit float32", 1), ("AllenNLP", 1), ("elmokit float32", 2),
    ]  # fmt: skip
    assert notes == ["AllenNLP, tiny: broke down at batches of 2. no more memory"]
    page = markdown(result(records=records, notes=notes))
    assert cells(page, "AllenNLP")[1] == cells(page, "elmokit float32 against AllenNLP")[1] == "–"


def test_runs_never_share_a_sentence():
    plan = Plan(batch_sizes=(1, 4, 128), runs=3)
    texts = texts_for(plan, "small", sample_text(2000))
    assert {size: [len(run) for run in runs] for size, runs in texts.items()} == {
        1: [2, 8, 8, 8],
        4: [4, 64, 64, 64],
        128: [32, 128, 128, 128],
    }
    with pytest.raises(InputError, match="too short"):
        texts_for(plan, "small", sample_text(100))
    assert len(texts_for(plan, "original", sample_text(2000))[4][1]) == 32


def test_results_are_written(near, tmp_path, capsys, caplog):
    caplog.set_level("INFO", logger="elmokit.waits")
    Bench(sizes=("tiny",), runs=1, threads=1, quick=True, output=tmp_path / "today", picture="svg").run()
    shown = capsys.readouterr()
    assert (tmp_path / "today.md").read_text(encoding="utf-8").startswith(shown.out)
    assert json.loads((tmp_path / "today.json").read_text(encoding="utf-8"))["minutes"] >= 0
    assert "growth: cores" in caplog.text
    with pytest.raises(InputError, match="no such folder"):
        Bench(output=tmp_path / "nowhere" / "today").run()


def test_the_growth_is_drawn(tmp_path):
    pytest.importorskip("matplotlib", reason="the extra `viz` is not installed")
    points = {name: [{"x": x, "words_per_second": 100 * x} for x in (1, 2, 4)] for name in ("batch", "length", "cores")}
    points["distinct"] = [{"x": x, "words_per_second": 100} for x in (0.5, 1.0)]
    points["size"] = [{"x": x, "words_per_second": 100 / x, "name": f"{x}"} for x in (1, 10)]
    draw_growth(result(growth={"size": "tiny", "threads": 1, "points": points}), tmp_path / "growth.svg")
    drawn = (tmp_path / "growth.svg").read_text(encoding="utf-8")
    assert drawn.startswith("<?xml")
    assert "<dc:date>" not in drawn


def test_without_matplotlib_the_command_that_installs_it_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtra, match=r"pip install 'elmokit\[viz\]'"):
        draw_growth(result(growth={}), tmp_path / "growth.svg")


def test_a_gpu_is_rehearsed():
    kept = []
    found = measure_on_device(
        "cpu",
        sizes=("tiny", "tiny"),
        runs=1,
        quick=True,
        say=lambda text: None,
        keep=lambda result: kept.append(markdown(result)),
    )
    page = markdown(found)
    assert len(kept) == 2
    assert kept[-1] == page
    assert kept[0].count("| tiny, float32 |") == 1
    assert [table["title"] for table in found["device"]] == ["Ids to all layers"]
    engine, rate = cells(page, "tiny, float32")
    assert engine and int(rate.replace(",", "")) > 0
    assert "--sizes tiny tiny --runs 1 --quick" in page


def test_a_gpu_job_that_is_killed_leaves_what_it_has(tmp_path, monkeypatch):
    seconds = iter([1.0])  # of the first line; the second never gets any

    def time_once(*_):
        try:
            return next(seconds)
        except StopIteration:
            raise KeyboardInterrupt from None

    monkeypatch.setattr("elmokit.bench.device._seconds", time_once)
    with pytest.raises(KeyboardInterrupt):
        Bench(device="cpu:0", sizes=("tiny", "tiny"), runs=1, quick=True, output=tmp_path / "gpu").run()
    assert len(cells((tmp_path / "gpu.md").read_text(encoding="utf-8"), "tiny, float32")) == 2
    tables = json.loads((tmp_path / "gpu.json").read_text(encoding="utf-8"))["device"]
    assert [len(table["rows"]) for table in tables] == [1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gpu.json", "gpu.md"]


def test_a_gpu_that_is_not_there(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(InputError, match="torch finds no GPU here"):
        Bench(device="cuda").run()
