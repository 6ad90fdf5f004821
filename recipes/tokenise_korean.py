"""Korean text to one tokenised sentence per line, paragraph by paragraph in two conventions by turns.

    pip install kiwipiepy
    python recipes/tokenise_korean.py IN.txt.xz OUT.txt [--only words|pieces]

All paragraphs are split as elmokit's segmenter does, into space-separated words (eojeol) and signs: what a user types.
The first, third, … are cut further into the surface pieces of morphemes that the analyser Kiwi finds (학교에서 -> 학교
에서), which is how Korean corpora with labels are often written. A model that has seen only one convention reads the
other badly.
"""

import argparse
import itertools
import lzma
from pathlib import Path

from elmokit.text.segmenters import RuleSegmenter

PARAGRAPHS_AT_ONCE = 2000


def cut_into_pieces(kiwi, sentences):
    """The surface pieces of each sentence; morphemes that share a syllable (하 + 았 in 했) stay one piece."""
    for sentence, tokens in zip(sentences, kiwi.tokenize(sentences), strict=True):
        spans = []
        for token in tokens:
            start, end = token.start, token.start + token.len
            if spans and start < spans[-1][1]:
                spans[-1][1] = max(end, spans[-1][1])
            elif end > start:
                spans.append([start, end])
        yield [piece for start, end in spans for piece in sentence[start:end].split()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("destination", type=Path)
    parser.add_argument("--only", choices=("words", "pieces"))
    asked = parser.parse_args()
    segmenter, kiwi = RuleSegmenter(), None
    if asked.only != "words":
        from kiwipiepy import Kiwi

        kiwi = Kiwi(num_workers=-1)
    with lzma.open(asked.source, "rt", encoding="utf-8") as file, asked.destination.open("w", encoding="utf-8") as out:
        lines = enumerate(line.strip() for line in file)
        while block := list(itertools.islice(lines, PARAGRAPHS_AT_ONCE)):
            in_words, to_cut = [], []
            for number, line in block:
                pieces = asked.only == "pieces" or (asked.only is None and number % 2 == 0)
                for sentence in segmenter(line):
                    if pieces:
                        to_cut.append(line[sentence[0].start : sentence[-1].end])
                        in_words.append(None)
                    else:
                        in_words.append([word.text for word in sentence])
            cut = cut_into_pieces(kiwi, to_cut) if to_cut else iter(())
            for words in in_words:
                out.write(" ".join(words if words is not None else next(cut)) + "\n")


if __name__ == "__main__":
    main()
