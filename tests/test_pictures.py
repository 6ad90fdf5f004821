"""Pictures: readable on a light and a dark ground, with words as text, and as the numbers beside them say."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="the extra `viz` is not installed")
from matplotlib.textpath import TextPath

from elmokit.cli import main
from elmokit.pictures import BLUE, COLOURS, GRID, GROUND, IN_THE_DARK, INK, ON_BLUE, RED, draw_picture, wrap
from elmokit.probe.report import Report, _draw_bars

ROOT = Path(__file__).parents[1]
COMMITTED = sorted(
    path.relative_to(ROOT)
    for folder in ("docs", "benchmarks", "src")
    for path in (ROOT / folder).rglob("*.svg")
    if not {"_build", "static"} & set(path.parts)  # the explorer's icon is no picture of numbers
)
LONG = ["She sat by the bank", *["and watched the slow brown water carry its branches"] * 9, "towards the sea."]


def contrast(one: str, other: str) -> float:
    """How far two colours are apart: WCAG 2, 4.5 is enough for words and 3 for shapes."""

    def luminance(colour: str) -> float:
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def texts_of(svg: str) -> list[str]:
    return re.findall(r"<(?:text|tspan)[^>]*>([^<]+)</", svg)


def in_the_dark(colour: str) -> str:
    return IN_THE_DARK.get(colour, colour)


def test_colours_can_be_seen_on_both_grounds():
    assert contrast(INK, GROUND) > 4.5
    assert contrast(in_the_dark(INK), in_the_dark(GROUND)) > 4.5
    assert contrast(ON_BLUE, BLUE) > 4.5
    assert contrast(ON_BLUE, in_the_dark(BLUE)) > 4.5
    for colour in (*COLOURS, RED):
        assert contrast(colour, GROUND) > 1.8, colour
        assert contrast(in_the_dark(colour), in_the_dark(GROUND)) > 3, colour


@pytest.mark.parametrize("path", COMMITTED, ids=str)
def test_committed_pictures_follow_the_page(path):
    """The ground and the words have a colour for the dark, and no colour is used that none was chosen for."""
    svg = (ROOT / path).read_text(encoding="utf-8")
    assert "@media (prefers-color-scheme: dark)" in svg
    _, _, drawn = svg.partition("</style>")
    used = set(re.findall(r"#[0-9a-f]{6}\b", re.sub(r"\"#\w+\"|\(#\w+\)", "", drawn)))
    assert used <= {GROUND, INK, GRID, ON_BLUE, RED, *COLOURS}
    for colour in used & set(IN_THE_DARK):
        assert f': {colour}"]' in svg, f"{colour} stays as it is in the dark"
    words = re.findall(r"<text[^>]*style=\"([^\"]*)\"", drawn)
    assert words
    assert all(f"fill: {INK}" in style or f"fill: {ON_BLUE}" in style for style in words)
    assert not re.search(r"xlink:href=\"#DejaVu", svg), "letters are paths"


def test_committed_pictures_show_the_committed_numbers(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "recipes"))
    import draw_pictures

    for name in ("draw_pictures", "draw_curves", "draw_task_tables", "task_tables"):
        monkeypatch.setitem(sys.modules, name, sys.modules[name])
    draw_pictures.main([str(tmp_path)])
    assert sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*.svg")) == COMMITTED
    for path in COMMITTED:
        drawn, committed = ((folder / path).read_text(encoding="utf-8") for folder in (tmp_path, ROOT))
        assert texts_of(drawn) == texts_of(committed), f"{path}: run recipes/draw_pictures.py"


def test_every_run_that_is_named_has_a_line_of_its_own(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "recipes"))
    import draw_curves

    monkeypatch.setitem(sys.modules, "draw_curves", sys.modules["draw_curves"])
    lines = [{"kind": "train", "tokens": 1000 * n, "loss": 5 - n / 10, "words_per_second": 100} for n in range(1, 9)]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    names = [f"run {number}" for number in range(1, 9)]
    draw_curves.main([*(f"{name}={tmp_path}/log.jsonl" for name in names), "-o", str(tmp_path / "curves.svg")])
    svg = (tmp_path / "curves.svg").read_text(encoding="utf-8")
    assert [text for text in texts_of(svg) if text.startswith("run")] == names
    _, _, legend = svg.partition('id="legend_1"')
    looks = re.findall(r"<path d=[^>]*style=\"fill: none; (stroke[^\"]*)\"", legend)
    assert len(looks) == len(set(looks)) == 8


def widths_of_squares(svg: str) -> list[float]:
    paths = re.findall(rf"<path d=\"M ([\d.]+) [\d.]+ \nL ([\d.]+) [^\"]*\" [^>]*style=\"fill: {BLUE}; opacity", svg)
    return [round(float(right) - float(left)) for left, right in paths]


def test_long_sentences_are_wrapped_beside_squares_of_full_size(random_model, tmp_path):
    sentences = {"short": ["A bank.", "The bank."], "long": [" ".join(LONG), "The bank lent him money."]}
    drawn = {}
    for name, pair in sentences.items():
        path = tmp_path / f"{name}.svg"
        assert main(["compare", "bank", *pair, "--model", str(random_model), "--picture", str(path)]) == 0
        drawn[name] = path.read_text(encoding="utf-8")
    assert widths_of_squares(drawn["long"]) == widths_of_squares(drawn["short"]) != []
    width = float(re.search(r"viewBox=\"0 0 ([\d.]+)", drawn["long"])[1])
    lines = re.findall(r"font(?:-size)?: ([\d.]+)px[^>]*translate\(([\d.]+) [\d.]+\)\">([^<]+)</text>", drawn["long"])
    assert len(lines) == 3  # two of the long sentence, one of the other
    for size, left, text in lines:
        assert float(left) + TextPath((0, 0), text, size=float(size)).get_extents().width < width, text
    assert "[bank] and watched" in drawn["long"]
    assert "towards the sea" not in drawn["long"]  # more than twenty words away from the use
    assert "…" in drawn["long"]


def test_a_chinese_character_is_as_wide_as_two_letters():
    assert len(wrap("银行" * 40, 3, size=9)) == len(wrap("bank" * 40, 3, size=9)) == 4
    assert wrap("one two three", 0.75, size=9, indent=" ") == ["one two", " three"]


def test_heat_maps_have_a_key(random_model, tmp_path):
    path = tmp_path / "bank.svg"
    assert main(["compare", "bank", "A bank.", "The bank.", "--model", str(random_model), "--picture", str(path)]) == 0
    texts = texts_of(path.read_text(encoding="utf-8"))
    assert {"cosine", "1.00"} <= set(texts)
    assert path.read_text(encoding="utf-8").count("fill-opacity") > 15  # the strip of colours


def test_numbers_stand_above_the_dashed_line_and_the_legend_above_the_bars(tmp_path):
    rows = {"base": {"a": 0.8, "b": 0.1}, "layer 0": {"a": 0.79, "b": 0.2}, "layer 1": {"a": 0.7, "b": 0.3}}
    report = Report("pos", "a title", ["a", "b"], rows, baseline="base")
    with draw_picture(tmp_path / "bars.svg", width=7, height=3) as (figure, axes):
        _draw_bars(axes, report, ["a", "b"])
    (line,) = (line for line in axes.lines if line.get_linestyle() == "--")
    numbers = {label.get_text(): label for label in axes.texts}
    assert set(numbers) == {"79.0", "70.0", "20.0", "30.0"}
    place = line.get_window_extent()
    assert numbers["79.0"].get_window_extent().overlaps(place)  # so that the order matters
    for label in numbers.values():
        assert label.get_zorder() > line.get_zorder()
        assert label.get_bbox_patch().get_facecolor() == (1, 1, 1, 1)
    assert axes.get_position().width > 0.8
    assert axes.get_legend().get_window_extent().y0 >= axes.get_window_extent().y1 - 1


def test_a_png_is_drawn_too(tmp_path):
    with draw_picture(tmp_path / "empty.png", width=1, height=1):
        pass
    assert (tmp_path / "empty.png").read_bytes().startswith(b"\x89PNG")
