"""Patterns of `regex` in the syntax of `re`: the same matches, whatever the text."""

import functools
import re

import regex
from hypothesis import example, given, settings
from hypothesis import strategies as st

from elmokit.export.patterns import make_portable
from elmokit.export.rules import describe_rules
from elmokit.text import segmenters

PIECES = (
    "a B é ſ 한 각 漢 か カー ｶﾞ 1 ٠ ① . , ' ’ \" “ ” ( ) - -- _ … ... ! ? 。 」 @ # / : & + < = * ~ n't 's 'em "
    "C++ U.S. AT&T www. https://a.b/(c) x@y.org :) 😀 🇰🇷 🇩 👩‍👩‍👧 ❤️ *⃣ क्ष กำ "
    "\u0600 \u0301 \u0903 \u200d \u200c \u00ad \x07 \ud800"
)
MIXED = st.lists(st.sampled_from(PIECES.split(" ")), min_size=1, max_size=10).map("".join)
ANY = st.text(st.characters(exclude_categories=[]), min_size=1, max_size=20)
OURS = {
    "plain": segmenters._compile_pattern(False),
    "with_addresses": segmenters._compile_pattern(True),
    "clitic": segmenters._compile_clitic(),
}


@functools.cache  # no fixture: hypothesis would show all of it beside a text that fails
def portable():
    rules = describe_rules()
    join = "".join
    return {
        name: re.compile(join(rules["sets"][part] if isinstance(part, int) else part for part in parts))
        for name, parts in rules["patterns"].items()
    }


@settings(max_examples=400, deadline=None)
@given(st.one_of(MIXED, ANY))
@example("AT&TAT&Ta")  # a shorter repeat fits, unless the rule says that it does not
def test_the_patterns_of_the_segmenter_find_the_same(text):
    for name, pattern in OURS.items():
        assert [each.span() for each in portable()[name].finditer(text)] == [
            each.span() for each in pattern.finditer(text)
        ], name


@settings(max_examples=300, deadline=None)
@given(st.one_of(MIXED, ANY))
def test_graphemes_are_those_of_regex(text):
    pattern = re.compile(make_portable({"grapheme": regex.compile(r"\X")}).join("grapheme"))
    assert pattern.findall(text) == regex.findall(r"\X", text)


def test_cases_are_ignored_within_a_group_alone():
    pattern = make_portable({"each": regex.compile(r"a(?i:b|ſ)c")}).join("each")
    assert [bool(re.fullmatch(pattern, text)) for text in ("abc", "aBc", "aSc", "ABc", "abC")] == [1, 1, 1, 0, 0]


def test_junk_takes_no_longer_than_words():
    # Without possessive repeats a pattern that looks back could take a square of the time.
    for text in ("A" * 200_000, "A&" * 100_000, "a.b-" * 50_000, "'" * 200_000):
        assert "".join(each.group() for each in portable()["with_addresses"].finditer(text)) == text
