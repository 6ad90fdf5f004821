"""`elmo compare`: how alike is one word across sentences, layer by layer.

A word and sentences arrive; a table leaves with the cosine similarity of the word's vectors for every pair of
uses. It is the shortest proof of what ELMo does: layer 0 sees the word alone and finds every "bank" the
same; the layers above see the sentence.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from elmokit.commands.base import DEFAULT_MODEL, Computation, Model, Switch, read_texts, refuse_files, say
from elmokit.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from elmokit.embed.uses import Use

__all__ = ["Compare"]


@dataclass(frozen=True, kw_only=True)
class Compare(Computation):
    """Show how alike one word is across sentences, layer by layer.

    For each pair of uses and each layer of the model the table gives the cosine similarity of the word's two vectors:
    1 means the same direction, 0 means nothing in common. Upper and lower case match each other. A use of several words
    has the mean of their vectors.

    Example: elmo compare bank "She sat by the river bank." "The bank lent him money." --model my-model

    Example: elmo compare "New York|London" "He lives in New York." "She left London."
    """

    word: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="WORD")]
    """The word to compare, or several in quotes: "New York" is a sequence, "bank|banks" takes either."""
    sentences: Annotated[
        tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="SENTENCE...", help_behavior_hint="(required)")
    ]
    """Sentences that contain it, each in quotes; - takes each line of standard input."""
    model: Model = DEFAULT_MODEL
    picture: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None
    """Also draw the table: .svg, .png or .pdf."""
    json: Switch = False
    """Print one JSON object instead of the table."""

    def run(self) -> None:
        """Embed the sentences and print the table."""
        from elmokit.embed.uses import find_uses
        from elmokit.pictures import check_picture, check_picture_name
        from elmokit.text.segmenters import words

        if self.picture is not None:
            check_picture_name(self.picture)
        refuse_files(self.sentences, command=f"elmo compare {shlex.quote(self.word)} - <")
        sentences = [words(sentence) for sentence in read_texts(self.sentences)]
        spellings = [words(spelling) for spelling in self.word.split("|")]
        uses = find_uses(spellings, sentences)
        if len(uses) < 2:
            raise InputError(_explain_too_few(self.word, uses, sentences))
        vectors = self._embed(uses, sentences)
        if self.json:
            say(json.dumps(self._to_json(uses, sentences, vectors), ensure_ascii=False))
        else:
            for line in _describe(uses, sentences, vectors):
                say(line)
        if self.picture is not None:
            check_picture(self.picture)  # without matplotlib there is the table at least
            marked = {use.label: _shorten(sentences[use.sentence], use) for use in uses}
            _draw(self.picture, marked, vectors)
            if not self.json:
                say(f"picture: {self.picture}")

    def _embed(self, uses: Sequence[Use], sentences: Sequence[Sequence[str]]) -> list[np.ndarray]:
        """(L, D) for each use: all layers of the word, or the mean of its words."""
        from elmokit.embed.embedder import Embedder

        numbers = sorted({use.sentence for use in uses})
        embedder = Embedder.from_pretrained(self.model)
        layers = dict(
            zip(numbers, embedder.embed([sentences[number] for number in numbers], layers="all"), strict=True)
        )
        return [layers[use.sentence][:, use.begin : use.end].mean(1) for use in uses]

    def _to_json(
        self, uses: Sequence[Use], sentences: Sequence[Sequence[str]], vectors: Sequence[np.ndarray]
    ) -> dict[str, Any]:
        pairs = [
            {"uses": [one, other], "layers": cosines[:-1], "average": cosines[-1]}
            for one, other, cosines in _compare_pairs(uses, vectors)
        ]
        listed = [
            {"use": use.label, "sentence": use.sentence + 1, "words": sentences[use.sentence][use.begin : use.end]}
            for use in uses
        ]
        return {"word": self.word, "model": self.model, "sentences": sentences, "uses": listed, "pairs": pairs}


def _explain_too_few(word: str, uses: Sequence[Use], sentences: Sequence[Sequence[str]]) -> str:
    count = "only one" if uses else "none"
    told = f"expected {word!r} in at least two sentences, found it in {count} of {len(sentences)}"
    if not sentences:
        return f"{told}: give sentences that contain it, each in quotes"
    missing = [sentence for number, sentence in enumerate(sentences) if number not in {use.sentence for use in uses}]
    found = list(dict.fromkeys(word for sentence in missing for word in sentence))
    near = get_close_matches(word.casefold(), {other.casefold(): other for other in found}, n=2)
    advice = f'did you mean "{"|".join([word, *near])}"?' if near else "give sentences that contain it as a word"
    whose = "the words of the others" if uses else "the words there"
    shown = f" ({whose} are: {' '.join(found[:40])}{' …' if len(found) > 40 else ''})" if found else ""
    return f"{told}{shown}: {advice}"


def _describe(uses: Sequence[Use], sentences: Sequence[Sequence[str]], vectors: Sequence[np.ndarray]) -> Iterator[str]:
    """The sentences with the uses marked, the table, and how to read it."""
    for number, sentence in enumerate(sentences):
        yield f"{number + 1:3}  {_mark(sentence, [use for use in uses if use.sentence == number])}"
    yield ""
    columns = [f"layer {layer}" for layer in range(len(vectors[0]))] + ["average"]
    rows = {f"{one} and {other}": cosines for one, other, cosines in _compare_pairs(uses, vectors)}
    width = max(map(len, ["sentences", *rows]))
    yield f"{'sentences':{width}}" + "".join(f"{column:>10}" for column in columns)
    for pair, cosines in rows.items():
        yield f"{pair:{width}}" + "".join(f"{cosine:10.3f}" for cosine in cosines)
    yield "\nlayer 0 sees the word alone; the layers above see its sentence."
    yield "average compares the mean vectors of the layers; it is not the mean of the cosines."
    spellings = {" ".join(sentences[use.sentence][use.begin : use.end]): None for use in uses}
    if len({spelling.casefold() for spelling in spellings}) < len(spellings):
        yield f"Capitals are letters of their own to layer 0: it reads {', '.join(spellings)} as different words."


def _mark(sentence: Sequence[str], uses: Sequence[Use]) -> str:
    """The sentence with brackets around its uses, numbered where there are several."""
    if not uses:
        return f"{' '.join(sentence)}   (the word is not here: left out)"
    begins = {use.begin: "[" for use in uses}
    ends = {use.end - 1: f"]({use.label})" if "." in use.label else "]" for use in uses}
    return " ".join(f"{begins.get(place, '')}{word}{ends.get(place, '')}" for place, word in enumerate(sentence))


def _compare_pairs(uses: Sequence[Use], vectors: Sequence[np.ndarray]) -> Iterator[tuple[str, str, list[float]]]:
    """The labels of each pair of uses, and their cosines: for each layer, and for the average of the layers."""
    for (one, first_LD), (other, second_LD) in combinations(zip(uses, vectors, strict=True), 2):
        pairs = [*zip(first_LD, second_LD, strict=True), (first_LD.mean(0), second_LD.mean(0))]
        yield one.label, other.label, [_cosine(a_D, b_D) for a_D, b_D in pairs]


def _shorten(sentence: Sequence[str], use: Use, *, around: int = 20) -> str:
    """The sentence with the use marked and at most so many words on either side of it, for the picture."""
    begin, end = max(0, use.begin - around), use.end + around
    shown = _mark(sentence[begin:end], [use._replace(label="", begin=use.begin - begin, end=use.end - begin)])
    return f"{'… ' if begin else ''}{shown}{' …' if end < len(sentence) else ''}"


def _draw(path: Path, sentences: Mapping[str, str], vectors: Sequence[np.ndarray]) -> None:
    """The uses, named as in the table, and a square per layer: the bluer a field, the more alike the word is in two."""
    from elmokit.pictures import draw_heat, draw_heat_key, draw_picture, wrap

    num_layers = len(vectors[0])
    tables = [[[_cosine(a[layer], b[layer]) for b in vectors] for a in vectors] for layer in range(num_layers)]
    low = min(0.0, min(cosine for table in tables for row in table for cosine in row))
    side = 0.4 * len(vectors) + 0.3
    columns = max(1, min(num_layers, int(9 / side)))  # many uses: a layer below the other
    rows = -(-num_layers // columns)
    width = max(6.0, side * columns + 0.9)
    lines = [
        line
        for label, text in sentences.items()
        for line in wrap(f"{label}  {text}", width - 0.2, size=9, indent="    ")
    ]
    height = 0.16 * len(lines) + 0.15 + rows * (side + 0.2)
    with draw_picture(path, width=width, height=height, nrows=rows, ncols=columns, squeeze=False) as (figure, squares):
        figure.suptitle("\n".join(lines), x=0.1 / width, ha="left", fontsize=9)
        for axes in squares.flat[num_layers:]:
            axes.axis("off")
        for layer, (axes, table) in enumerate(zip(squares.flat, tables, strict=False)):
            draw_heat(axes, table, low=low)
            axes.set_title(f"layer {layer}" + (" (the word alone)" if layer == 0 else ""), fontsize=9)
            axes.set_xticks(range(len(vectors)), list(sentences))
            axes.set_yticks(range(len(vectors)), list(sentences))
        draw_heat_key(figure, list(squares.flat), "cosine", low=low)


def _cosine(a_D: np.ndarray, b_D: np.ndarray) -> float:
    import numpy as np

    norms = float(np.linalg.norm(a_D) * np.linalg.norm(b_D))
    return float(a_D @ b_D) / norms if norms else 0.0
