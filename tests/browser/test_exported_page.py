"""An exported model in a browser, without a server that computes: the same words, ids and vectors as in Python."""

from __future__ import annotations

import functools
import http.server
import json
import os
import random
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest

from elmokit import Embedder
from elmokit.export.folder import EXPLORER, HERE, WEB_RUNTIME
from elmokit.export.rules import describe_rules
from elmokit.text import sample
from elmokit.text.characters import ByteScheme, UnicodeScheme
from elmokit.text.segmenters import RuleSegmenter

SCRIPTS = """He met Dr. Lee at 5 p.m. It rained. “Why?” she asked. See No. 5 (cf. Fig. 3)... No. Vitamin C. I'd've!
Die Größe beträgt 3,5 m. „Na und?“ fragte er. Der 12. Mai in St. Gallen. L'homme d'Artagnan, «dit-il». İstanbul'da
Он сказал: «Да». Это был А. С. Пушкин. Που είναι; Εδώ! ΣΊΣΥΦΟΣ 그는 말했다. "아니요!" 2024년에 'U.S.'의 한국어는 3개.
これはペンです。「はい。」と言った。東京タワーへ行く！ｶﾞ 他说：“不行。”然后走了。
यह वाक्य है। هل هذا سؤال؟ نعم۔ ภาษาไทย ኣማርኛ። Բարեւ։
👩‍👩‍👧 🇰🇷🇩🇪🇩 ❤️ *️⃣ e\u0301 https://a.org/w_(x), a.b@c.org @elmo #NLP C++
AT&T :) <3 __init__ \x07 a\u2028b\x1cc\r\nd\x85e"""
PIECES = [
    *"aBéſ한漢かカ1٠.,'’\"“”()-…!?。」と@#/:&+ \n\u3000IVX",
    "No.",
    " The ",
    "Mr.",
    "U.S.",
    "😀",
    "n't",
    "\u0301",
    "...",
    " p. 5",
]
SPLIT = """async ([address, texts]) => {
    const { RuleSegmenter } = await import(`${address}/page/segmenter.js`);
    const rules = await (await fetch(`${address}/segmenter.json`)).json();
    const segmenter = new RuleSegmenter(rules);
    return texts.map((text) => segmenter.sentences(text).map((words) => words.map((w) => [w.text, w.start, w.stop])));
}"""
SPELL = """async ([address, config, alphabet, words]) => {
    const { makeScheme } = await import(`${address}/page/characters.js`);
    const scheme = makeScheme(config, alphabet, null);
    return [scheme.begin, scheme.end, ...words.map(scheme.wordIds)];
}"""
BANKS = ".map rect[data-cosine]"


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args) -> None:
        """No line per request."""


@pytest.fixture(scope="module")
def serve():
    """A server of the files of a folder: its address."""
    servers = []

    def start(folder: Path) -> str:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(folder)))
        threading.Thread(target=server.serve_forever).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def scripts(tmp_path_factory, browser, serve):
    """The page's scripts and the rules that split text, without a model: what needs no ONNX."""
    folder = tmp_path_factory.mktemp("scripts")
    shutil.copytree(EXPLORER, folder / "page")
    shutil.copytree(HERE / "page", folder / "page", dirs_exist_ok=True)
    (folder / "segmenter.json").write_text(json.dumps(describe_rules()), encoding="utf-8")
    (folder / "empty.html").write_text("<!doctype html>")
    address = serve(folder)
    page = browser.new_page()
    page.goto(f"{address}/empty.html")
    yield page, address
    page.close()


def test_words_are_those_of_the_segmenter(scripts):
    page, address = scripts
    rng = random.Random(1)
    story = (Path(sample.__file__).parent / "sample_files" / "story.txt").read_text(encoding="utf-8")
    texts = [SCRIPTS, story, *("".join(rng.choices(PIECES, k=rng.randint(1, 30))) for _ in range(3000))]
    segmenter = RuleSegmenter()
    for text, found in zip(texts, page.evaluate(SPLIT, [address, texts]), strict=True):
        assert found == [[list(word) for word in sentence] for sentence in segmenter(text)], repr(text)


def test_ids_are_those_of_the_scheme(scripts):
    page, address = scripts
    words = ["the", "été", "한국어", "x" * 60, "😀y", "<S>", "</S>", "<bos>", ""]
    alphabet = ["a", "é", "x", "<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>"]
    for scheme, name in ((ByteScheme(20), "bytes"), (UnicodeScheme(alphabet, 10, swaps_markers=True), "unicode")):
        characters = {"scheme": name, "max_length": scheme.columns, "filters": [[1, 4]]}
        config = {"elmo": {"characters": characters, "words": None}, "swaps_markers": True}
        begin, end, *found = page.evaluate(SPELL, [address, config, alphabet, words])
        assert (begin, end) == (scheme.begin_ids.tolist(), scheme.end_ids.tolist())
        assert found == scheme.word_ids(words).tolist()


@pytest.fixture(scope="module")
def exported(tmp_path_factory, browser, serve):
    """The address of en-small's page."""
    pytest.importorskip("onnxscript")
    runtime = os.environ.get("ONNXRUNTIME_WEB")
    if runtime is None:
        pytest.skip(
            f"ONNXRUNTIME_WEB does not name the folder of onnxruntime-web: npm install onnxruntime-web@{WEB_RUNTIME}"
        )
    from elmokit.export import export_model

    folder = export_model("en-small", tmp_path_factory.mktemp("exported") / "model", browser=True)
    (folder / "node_modules" / "onnxruntime-web" / "dist").mkdir(parents=True)
    for name in ("ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm"):  # the two that the README names
        shutil.copy(Path(runtime) / "dist" / name, folder / "node_modules" / "onnxruntime-web" / "dist")
    return serve(folder)


def test_river_banks_are_nearer_to_each_other_and_cosines_are_those_of_python(show, exported):
    page = show(at=exported)
    page.wait_for_selector(BANKS)
    cells = page.eval_on_selector_all(BANKS, "cells => cells.map((c) => [c.dataset.pair, Number(c.dataset.cosine)])")
    cosines = {tuple(map(int, pair.split(","))): value for pair, value in cells}
    alike = [cosines[i, j] for i in range(3) for j in range(i)]
    apart = [cosines[i, j] for i in range(3) for j in range(3, 6)]
    assert min(alike) > max(apart)
    texts = page.locator("ol.sentences li .words").all_inner_texts()
    vectors = Embedder("en-small").embed(texts)
    segmenter = RuleSegmenter()
    banks = np.stack(
        [each[[w.text for w in segmenter.words(t)].index("bank")] for t, each in zip(texts, vectors, strict=True)]
    )
    banks /= np.linalg.norm(banks, axis=1, keepdims=True)
    expected = banks @ banks.T
    assert max(abs(expected[pair] - value) for pair, value in cosines.items()) < 1e-4


def test_the_views_that_need_vectors_alone_are_there(show, exported):
    page = show("view=inside&lang=en", at=exported)
    page.wait_for_selector(BANKS)
    assert page.locator(".tab").all_inner_texts() == ["Compare", "Usages", "Neighbours"]
    page.click("#tab-usages")
    page.wait_for_selector(".point")
    page.click("#tab-neighbours")
    page.wait_for_selector(".near-item")
    first = page.locator(".near-item").first.inner_text()
    assert first.startswith("bank")


def test_vectors_are_those_of_python(show, exported):
    page = show(at=exported)
    page.wait_for_selector(BANKS)
    texts = ["She sat by the river bank. The bank, “of England”, isn't open.", "Ein kurzer Satz über 12 Bänke!"]
    answer = page.evaluate(
        """async ([address, texts]) => {
            const { post } = await import(`${address}/page/api.js`);
            const { texts: read } = await post("/layers", { texts });
            return read.map((each) => ({ ...each, layers: [...each.layers] }));
        }""",
        [exported, texts],
    )
    embedder, segmenter = Embedder("en-small"), RuleSegmenter()
    for text, found in zip(texts, answer, strict=True):
        sentences = [[word.text for word in sentence] for sentence in segmenter(text)]
        expected = np.concatenate(embedder.embed(sentences, layers="all"), axis=1)
        assert found["words"] == [word for sentence in sentences for word in sentence]
        assert np.abs(np.array(found["layers"]).reshape(expected.shape) - expected).max() < 1e-4


def test_a_page_without_its_runtime_says_what_to_do(browser, tmp_path, serve):
    shutil.copytree(EXPLORER, tmp_path / "page")
    shutil.copytree(HERE / "page", tmp_path / "page", dirs_exist_ok=True)
    (tmp_path / "elmo.json").write_text('{"format_version": 1}')
    index = (EXPLORER / "index.html").read_text(encoding="utf-8").replace("/static/", "page/")
    (tmp_path / "index.html").write_text(index, encoding="utf-8")
    page = browser.new_page()
    page.goto(f"{serve(tmp_path)}/")
    page.wait_for_selector("#problem:not([hidden])")
    assert "onnxruntime-web is missing: run `npm install`" in page.inner_text("#problem")
    page.close()
