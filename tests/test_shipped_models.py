"""Every model that comes with the package: no script, emoji or odd byte may drown the rest of what a vector says."""

from __future__ import annotations

import random
import sys
import unicodedata

import numpy as np
import pytest

from elmokit import Embedder
from elmokit.io import bundled_names

# How many times as long as common words: what people write, and letters or bytes drawn at random. The longest of the
# latter were 15.7 times as long, in layer 0 of en-small (1.5 times above it). Before its rare bytes were mended, 中国
# was 270 times as long.
LONGEST, LONGEST_AT_RANDOM = 5, 20


@pytest.fixture(scope="module", params=bundled_names())
def embedder(request: pytest.FixtureRequest) -> Embedder:
    return Embedder.from_pretrained(request.param, device="cpu")


def _measure_layers(embedder: Embedder, words: list[str]) -> np.ndarray:
    """The length (L, N) of the vector of each word, alone in its sentence."""
    vectors = embedder.embed([[word] for word in words], layers="all")
    return np.linalg.norm(np.concatenate(vectors, axis=1), axis=2)


def _find_common_length(embedder: Embedder) -> np.ndarray:
    words = ["the", "of", "bank", "river", "money", "walked", "quickly", "house", "Paris", "1998", "(", ",", "."]
    return np.median(_measure_layers(embedder, words), axis=1)


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


def test_an_emoji_does_not_decide_what_a_sentence_is_about(embedder):
    film, stocks, plain = embedder.encode(
        ["I love this film 😀 .", "The stock market fell sharply 😀 .", "I love this film ."], layers="average"
    )
    film, stocks, plain = (vector / np.linalg.norm(vector) for vector in (film, stocks, plain))
    assert film @ plain > 0.6 > film @ stocks + 0.2
