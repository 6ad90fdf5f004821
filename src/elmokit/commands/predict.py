"""`elmo predict`: the words a model expects next, or before, or in the place of another.

A piece of text arrives; a short list of words with their probabilities leaves.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

from elmokit.commands.base import DEFAULT_MODEL, Computation, Model, Switch, read_texts, refuse_files, say
from elmokit.errors import InputError

if TYPE_CHECKING:
    from elmokit.language_model.model import LanguageModel

__all__ = ["Predict"]

EXPLAINED = {"</S>": "</S>  (the sentence ends)", "<S>": "<S>  (the sentence begins)"}


@dataclass(frozen=True, kw_only=True)
class Predict(Computation):
    """Show which words a model expects after a text, before it, or in the place of one of its words.

    Probabilities are those among the words of the model's vocabulary.

    Example: elmo predict "The cat sat on the" --model my-model

    Example: elmo predict "She sat by the river bank." --substitutes bank --model my-model
    """

    text: Annotated[
        tyro.conf.Positional[str],
        tyro.conf.arg(
            metavar="TEXT",
            help="The beginning of a sentence (with --backward its end, with --substitutes all of it), in quotes; - "
            "takes each line of standard input.",
        ),
    ]
    model: Model = DEFAULT_MODEL
    top: Annotated[int, tyro.conf.arg(metavar="N")] = 5
    """How many words to show."""
    backward: Switch = False
    """Show the words expected before the text instead of after it."""
    substitutes: Annotated[str | None, tyro.conf.arg(metavar="WORD", help_behavior_hint="")] = None
    """Show the words that could stand in the place of this word of the text."""
    occurrence: Annotated[int, tyro.conf.arg(metavar="N")] = 1
    """Which one to replace, if the word stands in the text more than once: 2 for the second."""
    json: Switch = False
    """Print one JSON object per text."""

    def run(self) -> None:
        """Ask the model and print one line per word."""
        if self.substitutes is None and self.occurrence != 1:
            raise InputError("--occurrence says which word to replace: it needs --substitutes WORD")
        if self.substitutes is not None and self.backward:
            raise InputError("--substitutes looks in both directions already: leave out --backward")
        refuse_files([self.text], command="elmo predict - <")
        texts = read_texts([self.text])
        from elmokit.language_model.model import LanguageModel

        model = LanguageModel.from_pretrained(self.model)
        for number, text in enumerate(texts):
            best = self._ask(model, text)
            if self.json:
                words = [{"word": word, "probability": round(probability, 6)} for word, probability in best]
                say(json.dumps({"text": text, "words": words}, ensure_ascii=False))
                continue
            if self.text == "-":  # several texts may come: each is named above its words
                say(f"\n{text}" if number else text)
            for word, probability in best:
                say(f"{probability:7.2%}  {EXPLAINED.get(word, word)}")

    def _ask(self, model: LanguageModel, text: str) -> list[tuple[str, float]]:
        if self.substitutes is None:
            return model.predict(text, top=self.top, direction="backward" if self.backward else "forward")
        return model.substitutes(text, self.substitutes, top=self.top, occurrence=self.occurrence)
