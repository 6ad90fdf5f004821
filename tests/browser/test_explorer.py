"""The explorer as people use it: each view shows what is true, answers a click and the keyboard, and can be shared."""

from __future__ import annotations

import csv
import io
import math
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from elmokit.serve.app import STATIC

READY = {
    "compare": ".map rect[data-cosine]",
    "usages": ".point",
    "neighbours": ".near-item",
    "predictions": ".map rect[data-bits]",
    "inside": ".map rect[data-filter]",
}
CHANGED = "([selector, old]) => document.querySelector(selector).outerHTML != old"


def open_ready(show, view, state="", **options):
    page = show(f"view={view}{state}", **options)
    page.wait_for_selector(READY[view])
    return page


def read_cosines(page):
    cells = page.eval_on_selector_all(
        ".map rect[data-pair]", "cells => cells.map(cell => [cell.dataset.pair, Number(cell.dataset.cosine)])"
    )
    return {tuple(map(int, pair.split(","))): value for pair, value in cells}


def save(page, kind):
    with page.expect_download() as download:
        page.click(f'[data-save="{kind}"]')
    return download.value.path().read_bytes()


def test_river_banks_are_nearer_to_each_other_than_to_money_banks(show):
    page = show()  # what everybody sees first
    page.wait_for_selector(READY["compare"])
    for layer in ["average", 1, 2]:
        if layer != "average":
            cell = page.eval_on_selector('[data-pair="0,5"]', "cell => cell.outerHTML")
            page.click(f'[data-layer="{layer}"]')
            page.wait_for_function(CHANGED, arg=['[data-pair="0,5"]', cell])
        cosines = read_cosines(page)
        assert len(cosines) == 36
        alike = [cosines[i, j] for i in range(3) for j in range(i)]
        apart = [cosines[i, j] for i in range(3) for j in range(3, 6)]
        assert min(alike) > max(apart)


def test_layer_zero_sees_only_the_spelling_and_gamma_changes_lengths_alone(show):
    page = open_ready(show, "compare")
    before = read_cosines(page)
    strip = page.inner_html('.strip[data-use="0"]')
    page.get_by_label("γ, the scale").focus()
    page.keyboard.press("End")
    page.wait_for_function("before => document.querySelector('.strip').innerHTML != before", arg=strip)
    assert read_cosines(page) == pytest.approx(before, abs=1e-6)
    page.click('[data-layer="0"]')
    page.wait_for_function("() => document.querySelector('[data-pair=\"0,5\"]').dataset.cosine == '1.0000'")
    assert min(read_cosines(page).values()) == 1


def test_a_click_on_a_word_compares_its_occurrences(show):
    page = open_ready(show, "compare")
    page.click('.word[data-word="river"] >> nth=0')
    page.wait_for_function("() => document.querySelectorAll('.map rect[data-cosine]').length == 4")
    assert page.locator('.word[aria-pressed="true"]').all_inner_texts() == ["river", "river"]
    assert "word=river" in page.url


def test_sentences_and_words_of_ones_own(show):
    page = open_ready(show, "compare")
    page.get_by_role("button", name="Edit").click()
    page.fill("textarea", "New York is large.\nI like New York, and old York\x07.")
    page.get_by_label("Word", exact=True).fill("new york|old york")
    page.get_by_role("button", name="Done").click()
    page.wait_for_function("() => document.querySelectorAll('.map rect[data-cosine]').length == 9")
    pressed = page.locator('.word[aria-pressed="true"]').all_inner_texts()
    assert pressed == ["New", "York", "New", "York", "old", "York"]
    ElementTree.fromstring(save(page, "svg"))
    assert len(save(page, "csv").splitlines()) == 4


def test_the_table_holds_what_the_picture_shows(show):
    page = open_ready(show, "compare")
    rows = list(csv.reader(io.StringIO(save(page, "csv").decode("utf-8-sig"))))
    assert rows[0] == ["number", "sentence", *"123456"]
    assert float(rows[1][3]) == pytest.approx(read_cosines(page)[0, 1], abs=1e-4)


def test_an_address_brings_the_same_view_back(show):
    page = open_ready(show, "compare", "&text=A cat sat. A cat ran. The cat is a cat.&word=cat&s=0,0,1&lang=ko")
    seen = read_cosines(page)
    assert len(seen) == 16
    assert page.inner_text(".tab") == "비교"
    again = show(page.url.partition("#")[2])
    again.wait_for_selector(READY["compare"])
    assert read_cosines(again) == seen


@pytest.mark.parametrize("view", READY)
def test_every_view_fits_a_phone_speaks_three_languages_and_gives_a_picture_and_a_table(show, view):
    page = open_ready(show, view, color_scheme="dark", locale="ko-KR", viewport={"width": 390, "height": 800})
    titles, colours = {page.inner_text("h1")}, {read_paper(page)}
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.click("#theme")
    colours.add(read_paper(page))
    for language in ["en", "zh"]:
        page.select_option("#language", language)
        page.wait_for_selector(READY[view])
        titles.add(page.inner_text("h1"))
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert len(titles) == 3 and len(colours) == 2
    drawn = ElementTree.fromstring(save(page, "svg"))
    assert drawn.tag.endswith("svg") and len(list(drawn.iter())) > 30
    assert save(page, "png")[:4] == b"\x89PNG"
    rows = list(csv.reader(io.StringIO(save(page, "csv").decode("utf-8-sig"))))
    assert len(rows) > 6 and all(len(row) in (0, 3, len(rows[0])) for row in rows)


def read_paper(page):
    return page.evaluate("getComputedStyle(document.documentElement).backgroundColor")


def test_the_keyboard_goes_everywhere(show):
    page = open_ready(show, "compare")
    page.focus("#tab-compare")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.wait_for_selector(READY["usages"])
    assert page.evaluate("document.activeElement.id") == "tab-usages"
    page.focus('.point[tabindex="0"]')
    first = page.inner_text(".reading")
    page.keyboard.press("ArrowRight")
    assert page.inner_text(".reading") != first
    page.go_back()
    page.wait_for_selector(READY["compare"])
    page.focus(".word >> nth=0")
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.wait_for_function("() => document.querySelectorAll('.map rect[data-cosine]').length == 4")
    assert page.locator('.word[aria-pressed="true"]').all_inner_texts() == ["river", "river"]


def test_usages_of_banks_fall_into_two_groups(show):
    page = open_ready(show, "usages")
    groups = page.eval_on_selector_all(".point", "points => points.map(point => point.dataset.group)")
    river, money = groups[:11], groups[11:]
    assert set(groups) == {"0", "1"} and len(groups) == 24
    assert set(river) == {"0"} and money.count("1") >= 11
    rows = list(csv.reader(io.StringIO(save(page, "csv").decode("utf-8-sig"))))
    assert min(float(row[3]) for row in rows[1:]) < 0 < max(float(row[3]) for row in rows[1:])
    page.get_by_role("button", name="3", exact=True).click()
    page.wait_for_function("() => document.querySelectorAll('.groups section').length == 3")
    assert "k=3" in page.url
    page.hover(".point >> nth=23")
    assert page.inner_text(".reading") == "A new bank opened its office next to the town hall."


def test_two_texts_show_drift_and_files_are_read(show):
    page = open_ready(show, "usages")
    page.get_by_role("button", name="cell, then and now").click()
    page.wait_for_selector("rect.point")
    assert (page.locator("circle.point").count(), page.locator("rect.point").count()) == (10, 10)
    assert "Drift from A to B: 0." in page.inner_text(".verdict")
    page.set_input_files("input[type=file] >> nth=1", {"name": "b.txt", "mimeType": "", "buffer": b"A cell. " * 3})
    page.wait_for_function("() => document.querySelectorAll('rect.point').length == 3")
    page.set_input_files("input[type=file] >> nth=1", {"name": "b.bin", "mimeType": "", "buffer": b"\xff\xfe"})
    page.wait_for_selector("#problem:not([hidden])")
    assert page.inner_text("#problem") == "This file is not text in UTF-8."


def test_neighbours_of_a_river_bank_are_river_banks(show):
    page = open_ready(show, "neighbours")
    before = page.inner_text(".near")
    page.click('.passage p:nth-child(3) .word[data-word="bank"]')
    page.wait_for_function("old => document.querySelector('.near').innerText != old", arg=before)
    lines = page.inner_text(".passage").split("\n")
    river = [line for line in lines if line][:11]
    nearest = page.locator(".near-context").all_inner_texts()
    assert len(nearest) == 15 and all(context in river for context in nearest[:6])
    cosines = page.eval_on_selector_all(".near-item", "items => items.map(item => Number(item.dataset.cosine))")
    assert cosines == sorted(cosines, reverse=True)
    page.get_by_label("Other spellings only").check()
    page.wait_for_function(
        "() => ![...document.querySelectorAll('.near-item')].some(item => item.dataset.word == 'bank')"
    )


def test_predictions_are_those_of_the_library(show, shelf):
    page = open_ready(show, "predictions", "&text=The old king died in the")
    bits = page.eval_on_selector_all("rect[data-bits]", "bars => bars.map(bar => Number(bar.dataset.bits))")
    language_model = shelf.find_model(None).language_model
    words = ["The", "old", "king", "died", "in", "the"]
    score = language_model.score(words)
    expected = [-value / math.log(2) for word in score.words for value in (word.forward, word.backward)]
    assert bits == pytest.approx(expected, abs=2e-3)
    shown = page.locator('[data-list="next"] .likely-word').all_inner_texts()
    assert shown == [word for word, _ in language_model.predict(words, top=8)]
    page.click('.word[data-word="king"]')
    page.wait_for_selector('[data-list="substitutes"]')
    shown = page.locator('[data-list="substitutes"] .likely-word').all_inner_texts()
    assert shown == [word for word, _ in language_model.substitutes(words, "king", top=8)]


def test_inside_shows_bytes_filters_formulas_and_a_mix_that_moves(show):
    page = open_ready(show, "inside")
    assert page.locator("math").count() == 5
    assert page.locator("rect[data-filter]").count() == 21
    assert "62" in page.inner_text(".step >> nth=0") and "38 %" in page.inner_text(".step >> nth=2")
    strips = ".step:last-child svg"
    before = page.eval_on_selector(strips, "svg => svg.outerHTML")
    page.get_by_label("Weight of layer 2").focus()
    page.keyboard.press("End")
    page.wait_for_function(CHANGED, arg=[strips, before])
    assert "ELMo = 1.00 · (0.00 h₀ + 0.00 h₁ + 1.00 h₂)" in page.inner_text(".formula")
    page.click('.word[data-word="watched"]')
    page.wait_for_function("() => document.querySelector('.step').textContent.includes('77')")  # w
    assert "at=7" in page.url


def test_the_page_computes_as_numpy_does(show):
    page = show()
    rng = np.random.default_rng(0)
    points = rng.normal(size=(30, 8)) * [9, 5, 1, 1, 1, 1, 1, 1]
    points[:10] += 40
    found = page.evaluate(
        """async points => {
            const maths = await import("/static/maths.js");
            const plane = maths.projectOnPlane(points);
            return [plane, maths.cluster(points, 2), maths.chooseClusters(points), maths.cosine(points[0], points[20])];
        }""",
        points.tolist(),
    )
    plane, labels, best, cosine = found
    centred = points - points.mean(0)
    _, sizes, axes = np.linalg.svd(centred, full_matrices=False)
    assert np.abs(plane["places"]) == pytest.approx(np.abs(centred @ axes[:2].T), abs=1e-2)
    assert plane["fractions"] == pytest.approx((sizes**2 / (sizes**2).sum())[:2], abs=1e-4)
    assert len(set(labels[:10])) == 1 and best >= 2
    a, b = points[0], points[20]
    assert cosine == pytest.approx(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def test_every_label_is_used_and_has_three_languages():
    labels = (STATIC / "labels.js").read_text(encoding="utf-8")
    table = labels.partition("const LABELS = {")[2].partition("\n};")[0]
    entries = dict(re.findall(r"^  (\w+): \[(.*?)\],$", table, re.MULTILINE | re.DOTALL))
    sources = "".join(
        path.read_text(encoding="utf-8")
        for path in STATIC.rglob("*.*")
        if path.suffix in (".js", ".html") and path.name != "labels.js"
    )
    sources += labels.partition("\n};")[2]
    assert len(entries) > 80
    assert not [key for key, entry in entries.items() if len(re.findall(r'"[^"]+"', entry)) != 3]
    assert not [key for key in entries if f'"{key.removesuffix("Note")}"' not in sources and f"{key}:" not in sources]
    assert not set(re.findall(r'say\("(\w+)"', sources)) - set(entries)


def test_language_model_and_colours_are_switched(show):
    page = open_ready(show, "compare")
    page.select_option("#language", "zh")
    assert page.inner_text(".tab") == "比较" and "lang=zh" in page.url
    page.select_option("#model", "again")
    page.wait_for_selector(READY["compare"])
    assert "model=again" in page.url
    before = page.get_attribute(".map rect", "fill")
    page.click("#theme")
    assert page.get_attribute(".map rect", "fill") != before


@pytest.mark.parametrize("view", READY)
def test_an_address_that_makes_no_sense_shows_the_view_all_the_same(show, view):
    page = open_ready(show, view, "&s=NaN,1e999,-1&g=-3&k=-7&at=x:99&lang=xx&model=../etc&constructor=1&__proto__=2")
    assert page.inner_text("#problem") == ""
    page.evaluate("location.hash = 'view=__proto__'")
    page.wait_for_selector(READY["compare"])


def test_a_refusal_is_one_friendly_line(show):
    page = show("view=compare&text=No such thing.&word=New York")
    page.wait_for_selector("#problem:not([hidden])")
    assert page.inner_text("#problem").startswith("The server says: expected 'New York' in the texts")
    page.wrong.clear()  # the browser itself reports the status 422


def test_a_server_with_a_token_asks_for_it_once(show, locked):
    address, token = locked
    page = show(at=address)
    page.fill("#token", "another-token-of-letters")
    page.keyboard.press("Enter")
    page.wait_for_selector("#token-wrong:not([hidden])")
    page.fill("#token", token)
    page.keyboard.press("Enter")
    page.wait_for_selector(READY["compare"])
    page.wrong.clear()  # the browser itself reports the status 401
    page.reload()
    page.wait_for_selector(READY["compare"])
    assert not page.is_visible("#token")
