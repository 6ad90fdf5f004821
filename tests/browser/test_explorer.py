"""The explorer as people use it: each view shows what is true, answers a click and the keyboard, and can be shared."""

from __future__ import annotations

import csv
import io
from xml.etree import ElementTree

import pytest

VIEWS = ["compare"]
READY = {"compare": ".map rect[data-cosine]"}


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


@pytest.mark.parametrize("layer", [None, 1, 2])
def test_river_banks_are_nearer_to_each_other_than_to_money_banks(show, layer):
    page = show()  # what everybody sees first
    page.wait_for_selector(READY["compare"])
    cosines = read_cosines(page)
    if layer is not None:
        page.click(f'[data-layer="{layer}"]')
        page.wait_for_function(
            "old => document.querySelector('[data-pair=\"0,5\"]').dataset.cosine != old", arg=f"{cosines[0, 5]:.4f}"
        )
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


def test_a_picture_and_a_table_can_be_taken_away(show):
    page = open_ready(show, "compare")
    drawn = ElementTree.fromstring(save(page, "svg"))
    assert drawn.tag.endswith("svg") and len(list(drawn.iter())) > 80
    assert save(page, "png")[:4] == b"\x89PNG"
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


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_fits_a_phone_in_light_and_dark_and_speaks_three_languages(show, view):
    seen = set()
    for language, scheme in [("en-GB", "light"), ("ko-KR", "dark"), ("zh-CN", "light")]:
        page = open_ready(show, view, locale=language, color_scheme=scheme, viewport={"width": 390, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        light = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        assert (light == "rgb(251, 250, 247)") == (scheme == "light")
        seen.add(page.inner_text("h1"))
    assert len(seen) == 3


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


def test_a_refusal_is_one_friendly_line(show):
    page = show("view=compare&text=No such thing.&word=New York")
    page.wait_for_selector("#problem:not([hidden])")
    assert page.inner_text("#problem").startswith("The server says: expected 'New York' in the texts")
    page.wrong.clear()  # the browser itself reports the status 422


def test_a_server_with_a_token_asks_for_it_once(show, locked):
    address, token = locked
    page = show(at=address)
    page.fill("#token", token)
    page.keyboard.press("Enter")
    page.wait_for_selector(READY["compare"])
    page.wrong.clear()  # the browser itself reports the status 401
    page.reload()
    page.wait_for_selector(READY["compare"])
