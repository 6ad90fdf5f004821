"""`elmo evaluate`: how well a model predicts a text.

Files of text arrive; perplexity in both directions leaves, as a table or as JSON. The work is
`LanguageModel.perplexity`; here stand its options, the files and the progress bar.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from elmokit.commands.base import DEFAULT_MODEL, Computation, Model, Switch, say

if TYPE_CHECKING:
    from elmokit.language_model.scores import Perplexity
    from elmokit.text.files import LineReader

__all__ = ["Evaluate"]

MOST_UNKNOWN = 0.5  # of the words: beyond it a perplexity says little


@dataclass(frozen=True, kw_only=True)
class Evaluate(Computation):
    """Measure how well a model predicts a text: its perplexity, forward, backward and mean.

    All files count as one text. Probabilities are over the model's whole vocabulary; a word outside it is scored as
    <UNK>. A prediction is made for each word and for the end of each sentence. Blank lines do not count.

    Example: elmo evaluate heldout.txt --model my-model
    """

    files: Annotated[
        tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="TEXT...", help_behavior_hint="(required)")
    ]
    """UTF-8 text files (.gz, .bz2, .xz, .zst too); - reads standard input. Lines are split into sentences and words."""
    model: Model = DEFAULT_MODEL
    tokenised: Switch = False
    """Each line is one sentence whose words stand between spaces; take them as they are."""
    state: Literal["zero", "carry"] = "zero"
    """What the model remembers at the start of a sentence: nothing, or its row of the batch before."""
    batch_size: Annotated[
        int | None,
        tyro.conf.arg(metavar="N", help_behavior_hint="(default: as many as fit a number of words; 64 with carry)"),
    ] = None
    """Sentences read at once."""
    json: Switch = False
    """Print one JSON object instead of the table."""

    def run(self) -> None:
        """Read the files and print what the model thought of them."""
        from elmokit.text.files import LONGEST_SENTENCE, LineReader

        # Before torch: a name that is not there says so at once.
        reader = LineReader(self.files, longest=LONGEST_SENTENCE, cuts=not self.tokenised)
        from elmokit.language_model.model import LanguageModel

        model = LanguageModel.from_pretrained(self.model)
        start = time.perf_counter()
        with _show_bar(reader) as show:
            settings = {"state": self.state, "batch_size": self.batch_size, "progress": show}
            result = model.perplexity(self._lines(reader), **settings)
        words_per_second = result.words / (time.perf_counter() - start)
        if self.json:
            about = {"model": self.model, "state": self.state}
            facts = {**about, **dataclasses.asdict(result), "words": result.words}
            say(json.dumps({**facts, "words_per_second": round(words_per_second)}, ensure_ascii=False))
        else:
            for line in _table(result, words_per_second):
                say(line)
        if result.oov_rate > MOST_UNKNOWN:
            self.advise(
                f"{result.oov_rate:.0%} of the words are outside the model's vocabulary: this is mostly the perplexity "
                "of <UNK>; is the text in the model's language, and split into words as its training text was?"
            )

    def _lines(self, reader: LineReader) -> Iterator[str | list[str]]:
        from elmokit.text.segmenters import split_at_blanks

        for line in reader:
            text = line.text()
            if text.strip():
                yield split_at_blanks(text) if self.tokenised else text


@contextmanager
def _show_bar(reader: LineReader) -> Iterator[Callable[[float], None]]:
    """A bar of bytes; what it gives takes the share of what was read that is scored."""
    from elmokit.waits import show_progress

    size = {"total": reader.bytes_total, "unit": "B", "unit_scale": True}
    with show_progress(desc="evaluating", leave=False, **size) as bar:

        def show(share: float) -> None:
            bar.update(max(0, int(share * reader.bytes_done) - bar.n))

        yield show


def _table(result: Perplexity, words_per_second: float) -> Iterator[str]:
    yield "perplexity"
    yield f"  forward            {result.forward:12,.2f}"
    yield f"  backward           {result.backward:12,.2f}"
    yield f"  mean               {result.mean:12,.2f}"
    yield f"words                {result.words:12,}"
    yield f"sentences            {result.sentences:12,}"
    yield f"outside vocabulary   {result.oov_rate:12.2%}"
    yield f"bits per byte        {result.bits_per_byte:12.3f}"
    yield f"words/s              {words_per_second:12,.0f}"
