"""Every model that this project ships: no script, emoji or odd byte may drown the rest of what a vector says."""

from __future__ import annotations

import random
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pytest

from elmokit import Embedder
from elmokit.io import load, packages
from elmokit.io.text_files import read_words

# Of a package the weights in the checkout, whatever is installed; one that was fetched without them has none to test.
FOLDERS = [path.parent for path in packages.BUNDLED.glob("*/config.json")]
FOLDERS += [
    path.parent
    for path in Path(__file__).parents[1].glob("packages/*/*/config.json")
    if (path.parent / "model.safetensors").is_file()
]

# How many times as long as common words: what people write, and letters or bytes drawn at random. The longest of the
# latter were 15.7 times as long, in layer 0 of en-small (1.5 times above it). Before its rare bytes were mended, 中国
# was 270 times as long.
LONGEST, LONGEST_AT_RANDOM = 5, 20


ALIKE = {  # two sentences about different things
    "en": ("I love this film", "The stock market fell sharply"),
    "ko": ("나는 이 영화를 정말 좋아한다", "주식 시장이 크게 하락했다"),
    "zh": ("我非常喜欢这部电影", "股票市场大幅下跌"),
}


@pytest.fixture(scope="module", params=FOLDERS, ids=lambda folder: folder.name)
def embedder(request: pytest.FixtureRequest) -> Embedder:
    return Embedder.from_pretrained(request.param, device="cpu")


def _measure_layers(embedder: Embedder, words: list[str]) -> np.ndarray:
    """The length (L, N) of the vector of each word, alone in its sentence."""
    vectors = embedder.embed([[word] for word in words], layers="all")
    return np.linalg.norm(np.concatenate(vectors, axis=1), axis=2)


def _find_common_length(embedder: Embedder) -> np.ndarray:
    """The median length (L) over words among the 200 most frequent ones."""
    return np.median(_measure_layers(embedder, read_words(Path(embedder.source) / "vocab.txt")[3:203:15]), axis=1)


def test_a_character_of_any_script_keeps_its_vector_within_bounds(embedder):
    drawn = random.Random(0)
    known = [chr(code) for code in range(sys.maxunicode) if unicodedata.category(chr(code))[0] in "LNPS"]
    words = ["".join(drawn.choices(known, k=drawn.randint(1, 4))) for _ in range(1500)]
    # A run of one script is the hardest case: the same rare bytes again and again.
    for start in range(0, len(known) - 8, 900):
        words.append("".join(known[start : start + 5]))
    lengths_LN = _measure_layers(embedder, words)
    assert (lengths_LN.max(axis=1) < LONGEST_AT_RANDOM * _find_common_length(embedder)).all()


@pytest.mark.parametrize(
    "word", ["😀", "👩‍👩‍👧", "🏳️‍🌈", "한국", "中国", "日本", "العربية", "עברית", "Հայ", "\x01", "\x7f", "\U0010ffff"]
)
def test_emoji_and_other_scripts_are_as_long_as_words(embedder, word):
    assert (_measure_layers(embedder, [word])[:, 0] < LONGEST * _find_common_length(embedder)).all()


def test_random_bytes_keep_a_vector_within_bounds(embedder):
    drawn = random.Random(1)
    words = [bytes(drawn.randrange(256) for _ in range(12)).decode("utf-8", errors="replace") for _ in range(300)]
    assert (_measure_layers(embedder, words).max(axis=1) < LONGEST_AT_RANDOM * _find_common_length(embedder)).all()


def test_no_layer_drowns_the_others_in_their_average(embedder):
    lengths_L = _find_common_length(embedder)
    assert lengths_L.max() < 4 * lengths_L.min()


def test_an_emoji_does_not_decide_what_a_sentence_is_about(embedder):
    film, stocks = ALIKE[load(embedder.source).metadata["language"]]
    film, stocks, plain = embedder.encode(
        [f"{film} 😀 .", f"{stocks} 😀 .", f"{film} ."], layers="average", normalize=True
    )
    assert film @ plain > 0.6 > film @ stocks + 0.2


def test_it_says_what_it_reads_and_under_which_licence(embedder):
    metadata = load(embedder.source).metadata
    assert {"name", "description", "language", "scripts", "license", "sources"} <= metadata.keys()
    script = {"en": "Latin", "ko": "Hangul", "zh": "Han"}[metadata["language"]]
    assert metadata["scripts"].split(", ")[0] == script
    card = (Path(embedder.source) / "README.md").read_text(encoding="utf-8")
    assert "elmo train" in card and "## Limits" in card


def test_its_files_are_small_enough_to_be_kept(embedder):
    sizes = [path.stat().st_size for path in Path(embedder.source).iterdir() if path.is_file()]
    assert max(sizes) < 95e6 and sum(sizes) < 150e6
