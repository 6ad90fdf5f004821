"""Our own routes about vectors: all layers of words, a word across sentences, a look inside."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from fastapi import APIRouter, Request, Response

from elmokit.embed.layers import compute_cosines
from elmokit.embed.uses import find_uses
from elmokit.serve.answers import ARROW, answer_json, answer_words, write_base64
from elmokit.serve.errors import RequestError
from elmokit.serve.inside import trace_word
from elmokit.serve.models import ServedModel, Shelf
from elmokit.serve.schemas import CompareRequest, InsideRequest, LayersRequest
from elmokit.text.segmenters import Word

__all__ = ["make_word_router"]

MOST_USES = 500  # that are compared with each other: the answer has the square of so many numbers, several times


def make_word_router(shelf: Shelf) -> APIRouter:
    """`/layers`, `/compare` and `/inside`."""
    router = APIRouter(tags=["words in context"])

    @router.post("/layers")
    async def layers(asked: LayersRequest, request: Request) -> Response:
        """Sentences, words, places and all layers of each text; an Arrow stream if the client accepts it.

        In JSON the layers of a text are (layers, words, dim) numbers: little-endian float32 in base64, or lists.
        """
        model, texts = shelf.find_model(asked.model), shelf.check_texts(asked.texts)
        found = await model.split_sentences(texts)
        vectors = await _embed_sentences(model, found)
        if ARROW in request.headers.get("accept", ""):
            words = [[word.text for sentence in sentences for word in sentence] for sentences in found]
            return answer_words(words, vectors)
        return answer_json(
            {
                "model": model.name,
                "shape": [model.embedder.num_layers, model.embedder.dim],
                "texts": [
                    _describe_text(sentences) | {"layers": each if asked.vectors == "list" else write_base64(each)}
                    for sentences, each in zip(found, vectors, strict=True)
                ],
            }
        )

    @router.post("/compare")
    async def compare(asked: CompareRequest) -> Response:
        """Every use of a word in the sentences of the texts, how alike they are in each layer, and their vectors."""
        model, texts = shelf.find_model(asked.model), shelf.check_texts(asked.texts)
        split = await model.split_sentences(texts)
        found = [(number, each) for number, text in enumerate(split) for each in text]
        sentences = [[word.text for word in words] for _, words in found]
        segment = model.embedder.segmenter
        spellings = [[word.text for each in segment(part) for word in each] for part in asked.word.split("|")]
        uses = find_uses(spellings, sentences)
        if not uses:
            raise RequestError(f"expected {asked.word!r} in the texts: no sentence has it as a word", "Empty")
        if len(uses) > MOST_USES:
            raise RequestError(
                f"{asked.word!r} stands {len(uses):,} times in the texts: expected at most {MOST_USES}; send fewer "
                "texts, or ask /layers for the vectors and compare them yourself",
                status=413,
            )
        numbers = sorted({use.sentence for use in uses})
        vectors = await model.batcher.embed([sentences[number] for number in numbers], "all")
        by_sentence = dict(zip(numbers, vectors, strict=True))
        uses_NLD = np.stack([by_sentence[use.sentence][:, use.begin : use.end].mean(1) for use in uses])
        cosines = [compute_cosines(layer_ND, layer_ND) for layer_ND in uses_NLD.transpose(1, 0, 2)]
        average = compute_cosines(uses_NLD.mean(1), uses_NLD.mean(1))
        return answer_json(
            {
                "model": model.name,
                "word": asked.word,
                "sentences": [{"text": found[number][0], "words": sentences[number]} for number in numbers],
                "uses": [
                    {"label": use.label, "sentence": numbers.index(use.sentence), "begin": use.begin, "end": use.end}
                    for use in uses
                ],
                "layers": cosines,
                "average": average,
                "shape": list(uses_NLD.shape),
                "vectors": write_base64(uses_NLD),
            }
        )

    @router.post("/inside")
    async def inside(asked: InsideRequest) -> dict[str, Any]:
        """How the model reads a word: its symbols, the strongest windows of its filters, the widths it passes."""
        model = shelf.find_model(asked.model)
        return await model.batcher.run(lambda: trace_word(model.embedder.elmo, asked.word))

    return router


async def _embed_sentences(model: ServedModel, texts: list[list[list[Word]]]) -> list[np.ndarray]:
    """All layers (L, words, D) of each text, its sentences read one by one."""
    sentences = [[word.text for word in sentence] for text in texts for sentence in text]
    vectors = await model.batcher.embed(sentences, "all")
    ends = accumulate(map(len, texts), initial=0)
    none = np.zeros((model.embedder.num_layers, 0, model.embedder.dim), np.float32)
    return [np.concatenate([none, *vectors[begin:end]], axis=1) for begin, end in pairwise(ends)]


def _describe_text(sentences: list[list[Word]]) -> dict[str, Any]:
    ends = accumulate(map(len, sentences), initial=0)
    words = [word for sentence in sentences for word in sentence]
    return {
        "words": [word.text for word in words],
        "spans": [[word.start, word.end] for word in words],
        "sentences": list(pairwise(ends)),
    }
