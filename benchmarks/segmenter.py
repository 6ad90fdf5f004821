"""Words a second of the default segmenter and of the byte scheme, on one core.

    python benchmarks/segmenter.py [TEXT_FILE]

The file is plain UTF-8 text or .bz2; without one, text is generated. "cold" starts with an empty memory of chunks,
"warm" reads the same text again. Both count processor time, the best of three, so a busy machine disturbs them less.
"""

import bz2
import random
import sys
import time
from pathlib import Path

from elmokit.text.characters import ByteScheme
from elmokit.text.segmenters import RuleSegmenter


def main() -> None:
    lines = read(Path(sys.argv[1])) if len(sys.argv) > 1 else generate()
    cold, warm, ids = [], [], []
    for _ in range(3):
        segmenter = RuleSegmenter()
        cold.append(seconds(segmenter, lines))
        warm.append(seconds(segmenter, lines))
    forms = [word.text for line in lines for sentence in segmenter(line) for word in sentence]
    batches = [forms[start : start + 1000] for start in range(0, len(forms), 1000)]
    scheme = ByteScheme()
    for _ in range(3):
        ids.append(seconds(scheme.word_ids, batches))
    print(f"{len(lines):,} lines, {len(forms):,} words; words a second:")
    for name, times in (("segmenter, cold", cold), ("segmenter, warm", warm), ("ByteScheme", ids)):
        print(f"  {name:16} {len(forms) / min(times):12,.0f}")


def seconds(work, items) -> float:
    """Processor time of the work on all items, one after the other; results are dropped, as in a stream."""
    start = time.process_time()
    for item in items:
        work(item)
    return time.process_time() - start


def read(path: Path) -> list[str]:
    text = bz2.decompress(path.read_bytes()) if path.suffix == ".bz2" else path.read_bytes()
    return text.decode("utf-8").splitlines()


def generate(num_words: int = 400_000) -> list[str]:
    """Paragraphs of made-up words with the frequencies of a natural language (Zipf) and some punctuation."""
    chance = random.Random(0)
    vowels, consonants = "aeiou", "bcdfghklmnprstvw"
    vocabulary = [
        "".join(chance.choice(consonants) + chance.choice(vowels) for _ in range(1 + rank.bit_length() // 4))
        for rank in range(50_000)
    ]
    ranks = chance.choices(range(50_000), weights=[1 / (rank + 2) for rank in range(50_000)], k=num_words)
    ends = chance.choices(["", ",", ". ", "'s", "?"], weights=[88, 6, 5, 1, 0.5], k=num_words)
    tokens = [vocabulary[rank] + end.strip() for rank, end in zip(ranks, ends, strict=True)]
    return [" ".join(tokens[start : start + 80]) for start in range(0, num_words, 80)]


if __name__ == "__main__":
    main()
