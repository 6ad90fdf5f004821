"""Which scripts a text is written in: Latin, Hangul, Han, …; and whether a model has learned them.

Words arrive; names of scripts leave, or a warning. The script of a letter is the first word of its Unicode name, which
every Python knows; digits, punctuation and emoji belong to none.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence

__all__ = ["ScriptWatch", "find_scripts"]

LEAST_SHARE = 0.1  # of the letters: a rarer script is a guest in the text
SAMPLE = 200  # words
FEWEST, FEWEST_LETTERS = 2, 4  # in a foreign script: fewer may be a name
OTHER_NAMES = {"Cjk": "Han", "Ideographic": "Han"}


def find_scripts(words: Iterable[str], counts: Iterable[float]) -> list[str]:
    """The scripts that a text is written in, the most frequent first.

    Arguments:
        words: the distinct words of the text.
        counts: how often each occurs.

    Example:
        >>> find_scripts(["학교에서", "gate", "school", "1998", "😀"], [9, 1, 1, 50, 50])
        ['Hangul', 'Latin']
    """
    letters: Counter[str] = Counter()
    for word, count in zip(words, counts, strict=True):
        for sign in word:
            letters[sign] += count  # type: ignore[assignment]
    scripts: Counter[str] = Counter()
    for sign, count in letters.items():
        if sign.isalpha():
            scripts[_name_script(sign)] += count
    least = LEAST_SHARE * sum(scripts.values())
    return [script for script, count in scripts.most_common() if count >= least]


class ScriptWatch:
    """Looks at a sample of the words that a model reads first, and finds out whether it has learned their script.

    A text is foreign if most of its words and most of its letters are: a Chinese name in an English text has many
    words, for each character is one, and an English name in a Chinese text has many letters.

    Arguments:
        scripts: what the model was trained on.

    Attributes:
        is_done: whether it has seen enough.

    Example:
        >>> watch = ScriptWatch(["Latin"])
        >>> watch.look("Seoul is 서울 in Korean 😀".split())
        >>> watch.look("서울 은 한국 의 수도 이자 가장 큰 도시 이다".split())
        'Hangul'
        >>> watch.is_done
        True
    """

    def __init__(self, scripts: Sequence[str]) -> None:
        self.scripts, self.is_done = tuple(scripts), False
        self._known = Counter(words=0, letters=0)
        self._foreign = Counter(words=0, letters=0)
        self._foreign_scripts: Counter[str] = Counter()
        self._seen = 0

    def look(self, words: Sequence[str]) -> str | None:
        """The foreign script that most of the words so far are written in, told once; nothing where that is not so."""
        step = -(-len(words) // SAMPLE) or 1
        for word in words[::step]:
            self._count(word)
        self._seen += len(words)
        is_foreign = all(self._foreign[unit] > self._known[unit] for unit in ("words", "letters"))
        is_foreign &= self._foreign["words"] >= FEWEST and self._foreign["letters"] >= FEWEST_LETTERS
        self.is_done = is_foreign or self._seen >= SAMPLE
        return self._foreign_scripts.most_common(1)[0][0] if is_foreign else None

    def _count(self, word: str) -> None:
        scripts = [_name_script(sign) for sign in word if sign.isalpha()]
        if not scripts:
            return
        is_known = any(script in self.scripts for script in scripts)
        counted = self._known if is_known else self._foreign
        counted["words"] += 1
        counted["letters"] += len(scripts)
        if not is_known:
            self._foreign_scripts.update(scripts)


def _name_script(letter: str) -> str:
    if letter.isascii():
        return "Latin"  # most letters; a name takes longer
    names = unicodedata.name(letter, "unknown").split()
    name = names[1] if names[0] in ("FULLWIDTH", "HALFWIDTH") and len(names) > 1 else names[0]
    name = name.partition("-")[0].capitalize()
    return OTHER_NAMES.get(name, name)
