"""One file out of the package: complete, without elmokit, torch and regex, and with the same words."""

import ast
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.text import sample
from elmokit.text.characters import ByteScheme, UnicodeScheme
from elmokit.text.segmenters import RuleSegmenter

SCRIPTS = """He met Dr. Lee at 5 p.m. It rained. “Why?” she asked. See No. 5 (cf. Fig. 3)... No. Vitamin C.
He didn't've!
Die Größe beträgt 3,5 m. „Na und?“ fragte er. Der 12. Mai, z. B. in St. Gallen. L'homme d'Artagnan, «dit-il».
Он сказал: «Да». Это был А. С. Пушкин. Που είναι; Εδώ! İstanbul'da ΣΊΣΥΦΟΣ ſtraße
그는 말했다. "아니요!" 2024년에 한국어는 3개. 한국어'는' 'U.S.'의
これはペンです。「はい。」と言った。東京タワーへ行く！カードﾃﾞｰﾀ 他说：“不行。”然后走了。2024年，ELMo模型。
यह वाक्य है। क्या? هل هذا سؤال؟ نعم۔ می‌خواهم ภาษาไทย ١٢٣ ኣማርኛ። Բարեւ։
👩‍👩‍👧 🇰🇷🇩🇪🇩 ❤️ *️⃣ e\u0301 https://a.org/w_(x), a.b@c.org @elmo #NLP C++
AT&T :) <3 x_y __init__ \x07 \x85 a\u2028b\x1cc\r\nd"""
TEXT = st.lists(
    st.sampled_from([*"aB é한漢かカ1.,'’\"“”()-…!?。」と@#/: \nIVX", "No.", "The", "Mr.", " U.S. ", "😀"]), max_size=40
).map("".join)


def test_nothing_but_numpy_and_the_standard_library_is_imported(bundled):
    tree = ast.parse((bundled / "run_elmo.py").read_text(encoding="utf-8"))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    outside = {name.partition(".")[0] for name in imported if name} - set(sys.stdlib_module_names)
    assert outside == {"numpy", "onnxruntime"}


def test_a_runner_without_its_folder_says_so(bundled):
    command = [sys.executable, "-W", "error", str(bundled / "run_elmo.py"), "text"]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8")
    assert (done.returncode, done.stdout) == (2, "")
    assert "expected a folder that `elmo export` wrote, found no elmo.json" in done.stderr


@pytest.mark.parametrize("name", ["story.txt", "held-out.txt"])
def test_words_of_running_text_are_those_of_the_segmenter(runner, name):
    text = (Path(sample.__file__).parent / "sample_files" / name).read_text(encoding="utf-8")
    assert runner.RuleSegmenter()(text) == RuleSegmenter()(text)


def test_words_of_many_scripts_are_those_of_the_segmenter(runner):
    found = runner.RuleSegmenter()(SCRIPTS)
    assert found == RuleSegmenter()(SCRIPTS)
    assert len(found) > 30


@settings(max_examples=200, deadline=None)
@given(TEXT)
def test_words_of_any_text_are_those_of_the_segmenter(runner, text):
    assert runner.RuleSegmenter()(text) == RuleSegmenter()(text)
    assert runner.RuleSegmenter().words(text) == RuleSegmenter().words(text)


def test_ids_are_those_of_the_package(runner):
    words = ["the", "été", "한국어", "x" * 60, "\ud800y", "<S>", "</S>", ""]
    assert np.array_equal(runner.ByteScheme(20).word_ids(words), ByteScheme(20).word_ids(words))
    alphabet = ["a", "é", "<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>"]
    ours, theirs = UnicodeScheme(alphabet, 10), runner.UnicodeScheme(alphabet, 10)
    assert np.array_equal(theirs.word_ids(words), ours.word_ids(words))
