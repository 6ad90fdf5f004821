"""How fast batches are made: tokens a second (predictions of one direction) of both readers, one thread.

    python benchmarks/reader_speed.py TEXT [TEXT ...] [--seconds 5] [--tokenised]

Encodes the text into a temporary folder (or opens the folder of an encoded corpus), then reads batches of about 20,000
tokens: from this thread, and through the background thread that training uses. "prepared" is all that this thread does
for a recorded step on a GPU: words laid out in blocks, 8,192 negatives drawn, everything joined to one piece of memory.
"CPU" counts processor time instead of the clock, and so does not see what else the machine does.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from elmokit.pretrain.batches.batch import Batch
from elmokit.pretrain.batches.preparing import Layout, join_arrays
from elmokit.pretrain.batches.reader import Prefetcher
from elmokit.pretrain.batches.sampling import Sampler
from elmokit.pretrain.batches.sentences import SentenceReader
from elmokit.pretrain.batches.streams import StreamReader
from elmokit.pretrain.corpus.counting import build_alphabet
from elmokit.pretrain.corpus.encoded import EncodedCorpus
from elmokit.pretrain.corpus.encoding import encode_corpus
from elmokit.text.characters import ByteScheme, UnicodeScheme, WordScheme


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", nargs="+")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--tokenised", action="store_true")
    arguments = parser.parse_args()
    if Path(arguments.text[0], "corpus.json").exists():
        measure_all(EncodedCorpus.open(arguments.text[0]), arguments.seconds)
        return
    with tempfile.TemporaryDirectory() as temporary:
        start = time.perf_counter()
        corpus = encode_corpus(arguments.text, f"{temporary}/corpus", tokenised=arguments.tokenised)
        print(f"encoded {corpus.num_tokens / (time.perf_counter() - start) / 1e3:.0f} k words/s")
        measure_all(corpus, arguments.seconds)


def measure_all(corpus: EncodedCorpus, seconds: float) -> None:
    print(f"{corpus.num_tokens:,} words, {corpus.num_sentences:,} sentences, coverage {corpus.coverage:.4f}")
    alphabet = build_alphabet(zip(corpus.vocabulary, corpus.counts_V.tolist(), strict=True), max_symbols=1000)
    readers = {
        "sentences, bytes": SentenceReader(corpus, ByteScheme(50)),
        "sentences, Unicode": SentenceReader(corpus, UnicodeScheme(alphabet, 50)),
        "sentences, words": SentenceReader(corpus, WordScheme(corpus.vocabulary)),
        "streams 1024 × 20, bytes": StreamReader(corpus, ByteScheme(50), rows=1024),
        "streams 128 × 20, bytes": StreamReader(corpus, ByteScheme(50)),
    }
    print(f"{'M tokens/s':26} {'clock':>7} {'CPU':>7} {'tokens':>7} {'distinct':>9}")
    for name, reader in readers.items():
        report(name, reader, seconds)
    for sampled in (False, True):
        report(f"prepared, {'sampled' if sampled else 'full'} softmax", prepared(corpus, sampled), seconds)
    with Prefetcher(SentenceReader(corpus, ByteScheme(50)), lambda batch: batch) as batches:
        report("sentences, background", batches, seconds)


def prepared(corpus: EncodedCorpus, sampled: bool) -> Iterator[Batch]:
    """Batches after whose reading the arrays of a recorded step were made, as `GraphStepper.prepare` makes them."""
    scheme = ByteScheme(50)
    reader = SentenceReader(corpus, scheme)
    padding = int(scheme.begin_ids[-1])
    layout = Layout.fit(islice(reader.one_epoch(), 32), columns=50, padding_id=padding, widest_filter=7)
    sampler = Sampler.unigram(corpus.counts_V, num_samples=min(8192, corpus.vocabulary_size // 2))
    for number, batch in enumerate(reader):
        arrays = layout.lay_out(batch) or []
        if sampled:
            drawn = sampler.draw(number)
            arrays += [drawn.ids_S, drawn.log_expected_S, sampler.log_expected(batch.targets_2N, drawn.tries)]
        join_arrays(arrays)
        yield batch


def report(name: str, batches: Iterator[Batch], seconds: float) -> None:
    next(batches)
    tokens = distinct = count = 0
    clock, cpu = time.perf_counter(), time.process_time()
    for batch in batches:
        tokens, distinct, count = tokens + batch.num_tokens, distinct + len(batch.distinct_UC), count + 1
        if time.perf_counter() - clock > seconds:
            break
    speeds = [tokens / (time.perf_counter() - clock) / 1e6, tokens / (time.process_time() - cpu) / 1e6]
    print(f"{name:26} {speeds[0]:7.2f} {speeds[1]:7.2f} {tokens // count:7} {distinct // count:9}")


if __name__ == "__main__":
    main()
