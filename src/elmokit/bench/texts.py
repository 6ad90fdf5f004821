"""Sentences for measuring: natural ones from a file, or sampled ones; each is handed out once.

Arrives: a file, or nothing. Leaves: lists of words. What was embedded before is answered from caches, so a run that is
to tell how fast new text goes must get new text. Without a file, words are drawn from the list `words.txt` beside this
file, rarer ones less often (Zipf); there are few distinct words among them, which flatters whoever remembers words.
"""

from __future__ import annotations

import itertools
import random
from pathlib import Path

from elmokit.errors import InputError

__all__ = ["Text", "distinct_words", "read_text", "sample_text"]

SHORTEST, LONGEST = 3, 100  # words of a sentence: beyond are headings and lists
MOST_SENTENCES = 20_000
SEED = 1


class Text:
    """Sentences that are handed out one after the other, none of them twice.

    Arguments:
        sentences: in the order in which they are handed out.
        description: for the reader of a table.
    """

    def __init__(self, sentences: list[list[str]], description: str) -> None:
        self.sentences, self.description = sentences, description
        self._next = 0

    def again(self) -> Text:
        """The same text from its beginning, for a model that has not seen it."""
        return Text(self.sentences, self.description)

    def take(self, count: int, *, num_words: int | None = None) -> list[list[str]]:
        """The next sentences; cut out of the running text with exactly `num_words` words each, if that is given."""
        if num_words is None:
            found = self.sentences[self._next : self._next + count]
            self._next += len(found)
        else:
            flat: list[str] = []
            while len(flat) < count * num_words and self._next < len(self.sentences):
                flat += self.sentences[self._next]
                self._next += 1
            found = [flat[start : start + num_words] for start in range(0, count * num_words, num_words)]
            found = [words for words in found if len(words) == num_words]
        if len(found) < count:
            raise InputError(
                f"the text ({self.description}) is too short: all its {len(self.sentences):,} sentences were used; "
                "give a longer --text, fewer --runs or smaller --batch-sizes"
            )
        return found


def read_text(path: Path) -> Text:
    """The sentences of a file (packed or not), split into words by the rules of `text/segmenters.py` and shuffled."""
    from elmokit.text.files import LineReader
    from elmokit.text.segmenters import RuleSegmenter

    segmenter, sentences = RuleSegmenter(), []
    for line in LineReader([path]):
        for sentence in segmenter(line.text()):
            if SHORTEST <= len(sentence) <= LONGEST:
                sentences.append([word.text for word in sentence])
        if len(sentences) >= MOST_SENTENCES:
            break
    random.Random(SEED).shuffle(sentences)
    return Text(sentences, f"{path.name}, {len(sentences):,} sentences, shuffled")


def sample_text(num_sentences: int = 4000) -> Text:
    """Sentences of 5 to 40 words, drawn from the list by Zipf's law; the same every time.

    Example:
        >>> len(sample_text(10).take(3))
        3
    """
    words = (Path(__file__).parent / "words.txt").read_text(encoding="utf-8").split()
    weights = [1 / rank for rank in range(2, len(words) + 2)]
    draw = random.Random(SEED)
    lengths = [draw.randint(5, 40) for _ in range(num_sentences)]
    drawn = iter(draw.choices(words, weights, k=sum(lengths)))
    sentences = [list(itertools.islice(drawn, length)) for length in lengths]
    return Text(sentences, f"no file given: sampled from a list of {len(words):,} words by Zipf's law")


def distinct_words(text: Text, count: int) -> list[str]:
    """So many different words: those of the text, and where they run out, two of them joined."""
    own = list(dict.fromkeys(itertools.chain.from_iterable(text.sentences)))
    joined = (first + second for first, second in itertools.product(own, own))
    found = dict.fromkeys(own[:count])
    for word in joined:
        if len(found) >= count:
            break
        found[word] = None
    return list(found)
