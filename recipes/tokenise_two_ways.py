"""Raw text to one tokenised sentence per line, paragraph by paragraph in two conventions by turns.

    python recipes/tokenise_two_ways.py IN.txt.bz2 OUT.txt

Odd paragraphs are split as treebanks are (do n't, John 's, 10,000), even ones at every sign that is not inside a word
(don't, John's, 10 , 000). People bring text in both; a model that has seen only one reads the other badly.
"""

import bz2
import sys

import regex

from elmokit.text.segmenters import RuleSegmenter

PLAIN = regex.compile(r"\w+(?:[.'’-]\w+)*|[^\w\s]")


def main(source, destination):
    segmenter = RuleSegmenter()
    with bz2.open(source, "rt", encoding="utf-8") as lines, open(destination, "w", encoding="utf-8") as out:
        for number, line in enumerate(lines):
            for sentence in segmenter(line):
                if number % 2:
                    words = [word.text for word in sentence]
                else:
                    words = PLAIN.findall(line[sentence[0].start : sentence[-1].end])
                out.write(" ".join(words) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
