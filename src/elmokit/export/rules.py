"""The rules that split text into sentences and words, as data: what `segmenter.json` of an exported model holds.

`text/segmenters.py` has the rules. Leaves: its patterns, in a form that Python's `re` and JavaScript read alike
(`patterns.py`), for `run_elmo.py`; and its lists of words and Python's classes of characters, for the page, whose
language has other ones.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from elmokit.export.patterns import make_portable, write_set
from elmokit.text import segmenters

__all__ = ["describe_rules"]

LISTS = (
    "HARD_STOPS",
    "STOPS",
    "QUOTES",
    "CLOSERS",
    "OPENERS",
    "ADDRESS_SIGNS",
    "DASHES",
    "ROMAN",
    "REPORTING_VERBS",
    "STARTERS",
)
CLASSES: dict[str, Callable[[str], bool]] = {
    "space": str.isspace,  # where `str.split` splits
    "alpha": str.isalpha,
    "alnum": str.isalnum,
    "digit": str.isdigit,
    "decimal": str.isdecimal,
    "lower": str.islower,
    "upper": str.isupper,
    "lineEnd": lambda sign: len(f"a{sign}b".splitlines()) > 1,
}
KINDS = {
    segmenters._TITLE: "title",
    segmenters._SHORT: "short",
    segmenters._NUMBERED: "numbered",
    segmenters._SURE: "sure",
}


@cache
def describe_rules() -> dict[str, Any]:
    """Everything, ready for JSON."""
    portable = make_portable(
        {
            "plain": segmenters._compile_pattern(False),
            "with_addresses": segmenters._compile_pattern(True),
            "clitic": segmenters._compile_clitic(),
        }
    )
    characters = [chr(number) for number in range(sys.maxunicode + 1)]
    return {
        "patterns": portable.patterns,
        "sets": portable.sets,
        "lists": {name: sorted(getattr(segmenters, name)) for name in LISTS},
        "abbreviations": {word: KINDS[kind] for word, kind in segmenters._KINDS.items()},
        "classes": {name: write_set("".join(filter(holds, characters))) for name, holds in CLASSES.items()},
    }
