"""`elmo compare`: how alike is one word across sentences, layer by layer.

A word and sentences arrive; a table leaves with the cosine similarity of the word's vectors for every pair of
sentences. It is the shortest proof of what ELMo does: layer 0 sees the word alone and finds every "bank" the
same; the layers above see the sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from elmokit.commands.base import DEFAULT_MODEL, Command, Model, say

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Compare"]


@dataclass(frozen=True, kw_only=True)
class Compare(Command):
    """Show how alike one word is across sentences, layer by layer.

    For each pair of sentences and each layer of the model the table gives the cosine similarity of the word's two
    vectors: 1 means the same direction, 0 means nothing in common. Upper and lower case match each other.

    Example: elmo compare bank "She sat by the river bank." "The bank lent him money." --model my-model
    """

    word: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="WORD")]
    """The word to compare."""
    sentences: Annotated[
        tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="SENTENCE...", help_behavior_hint="(required)")
    ]
    """Two or more sentences that contain it; put each in quotes."""
    model: Model = DEFAULT_MODEL
    picture: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Also draw the table: .svg, .png or .pdf."""

    def run(self) -> None:
        """Embed the sentences and print the table."""
        from elmokit.embed.embedder import Embedder
        from elmokit.errors import InputError
        from elmokit.pictures import check_picture
        from elmokit.text.segmenters import words

        if self.picture is not None:
            check_picture(self.picture)
        sentences = [words(sentence) for sentence in self.sentences]
        places = [_places(self.word, sentence) for sentence in sentences]
        found = [number for number, place in enumerate(places) if place]
        if len(found) < 2:
            count = "none" if not found else "only one"
            raise InputError(
                f"expected {self.word!r} in at least two sentences, found it in {count} of {len(sentences)}: "
                "give sentences that contain it as a separate word"
            )
        embedder = Embedder.from_pretrained(self.model)
        layers = embedder.embed([sentences[number] for number in found], layers="all")
        vectors = [layers_LWD[:, places[number][0]] for number, layers_LWD in zip(found, layers, strict=True)]

        for number, (sentence, place) in enumerate(zip(sentences, places, strict=True), start=1):
            say(f"{number:3}  {_marked(sentence, place)}")
        say()
        for line in _table([number + 1 for number in found], vectors):
            say(line)
        say("\nlayer 0 sees the word alone; the layers above see its sentence.")
        if self.picture is not None:
            _draw(self.picture, [_marked(sentences[number], places[number]) for number in found], vectors)
            say(f"picture: {self.picture}")


def _places(word: str, sentence: Sequence[str]) -> list[int]:
    return [place for place, other in enumerate(sentence) if other.casefold() == word.casefold()]


def _marked(sentence: Sequence[str], places: Sequence[int]) -> str:
    text = " ".join(f"[{word}]" if place in places[:1] else word for place, word in enumerate(sentence))
    if not places:
        return f"{text}   (the word is not here: left out)"
    return text if len(places) == 1 else f"{text}   ({len(places)} times here: the first is taken)"


def _table(numbers: Sequence[int], vectors: Sequence[np.ndarray]) -> list[str]:
    """Cosine similarities, one row per pair of sentences, one column per layer and one for their average."""
    columns = [f"layer {layer}" for layer in range(len(vectors[0]))] + ["average"]
    rows = ["sentences" + "".join(f"{column:>10}" for column in columns)]
    for (one, first_LD), (other, second_LD) in combinations(zip(numbers, vectors, strict=True), 2):
        pairs = [*zip(first_LD, second_LD, strict=True), (first_LD.mean(0), second_LD.mean(0))]
        rows.append(f"{f'{one} and {other}':9}" + "".join(f"{_cosine(a_D, b_D):10.3f}" for a_D, b_D in pairs))
    return rows


def _draw(path: Path, sentences: Sequence[str], vectors: Sequence[np.ndarray]) -> None:
    """A square per layer; the darker a field, the more alike the word is in those two sentences."""
    from elmokit.pictures import draw_picture

    count, num_layers = len(vectors), len(vectors[0])
    side = 0.42 * count + 0.5
    longest = max(map(len, sentences))
    with draw_picture(path, width=side * num_layers + 0.075 * longest, height=side + 0.3, ncols=num_layers) as (
        _,
        squares,
    ):
        for layer, axes in enumerate(squares):
            table = [[_cosine(a[layer], b[layer]) for b in vectors] for a in vectors]
            axes.imshow(table, cmap="Blues", vmin=min(0.0, *map(min, table)), vmax=1.15)
            for row, values in enumerate(table):
                for column, value in enumerate(values):
                    colour = "white" if value > 0.75 else "black"
                    axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=7, color=colour)
            axes.set_title(f"layer {layer}" + (" (the word alone)" if layer == 0 else ""), fontsize=9)
            axes.set_xticks(range(count), [str(number) for number in range(1, count + 1)])
            axes.set_yticks(range(count))
            labels = [f"{sentence}  {number}" for number, sentence in enumerate(sentences, start=1)]
            axes.set_yticklabels(labels if layer == 0 else [""] * count)
            axes.tick_params(length=0)
            axes.spines[:].set_visible(False)


def _cosine(a_D: np.ndarray, b_D: np.ndarray) -> float:
    import numpy as np

    norms = float(np.linalg.norm(a_D) * np.linalg.norm(b_D))
    return float(a_D @ b_D) / norms if norms else 0.0
