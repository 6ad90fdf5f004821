"""Raw text to one tokenised sentence per line, paragraph by paragraph in two conventions by turns.

    python recipes/tokenise_two_ways.py IN.txt.bz2 OUT.txt [--plain-first] [--workers 4]

The first, third, … paragraphs are split at every sign that is not inside a word (don't, John's, 10 , 000), the second,
fourth, … as treebanks are (do n't, John 's, 10,000); with --plain-first the other way round, so that text that is read
twice is read both ways. The option says the opposite of what it does: it stays so, because the texts of the published
models were made with it. People bring text in both; a model that has seen only one reads the other badly.
"""

import argparse
import itertools
from multiprocessing import Pool

import regex

from elmokit.text.files import LineReader
from elmokit.text.segmenters import RuleSegmenter

PLAIN = regex.compile(r"\w+(?:[.'’-]\w+)*|[^\w\s]")
PARAGRAPHS = 2_000  # of a piece of work
segmenter = RuleSegmenter()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("destination")
    parser.add_argument("--plain-first", action="store_true", help="begin as treebanks do, against its name")
    parser.add_argument("--workers", type=int, default=1)
    asked = parser.parse_args()
    numbered = enumerate(LineReader([asked.source]), start=int(asked.plain_first))
    paragraphs = ((number % 2 == 0, line.text()) for number, line in numbered)
    pieces = iter(lambda: list(itertools.islice(paragraphs, PARAGRAPHS)), [])
    with Pool(asked.workers) as pool, open(asked.destination, "w", encoding="utf-8") as out:
        out.writelines(pool.imap(tokenise, pieces))


def tokenise(paragraphs):
    """Lines of words between spaces, of paragraphs (is_plain, text)."""
    lines = []
    for is_plain, text in paragraphs:
        for sentence in segmenter(text):
            if is_plain:
                words = PLAIN.findall(text[sentence[0].start : sentence[-1].end])
            else:
                words = [word.text for word in sentence]
            lines.append(" ".join(words) + "\n")
    return "".join(lines)


if __name__ == "__main__":
    main()
