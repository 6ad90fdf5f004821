"""The routes of text-embeddings-inference, so that its clients work unchanged."""

from __future__ import annotations

from typing import Any

import numpy as np
from fastapi import APIRouter, Request, Response

from elmokit.embed.layers import check_layers, pool_words, scale_to_unit_length
from elmokit.serve.answers import ARROW, answer_json, answer_matrix, answer_words
from elmokit.serve.errors import RequestError
from elmokit.serve.metrics import Metrics
from elmokit.serve.models import ServedModel, Shelf
from elmokit.serve.schemas import EmbedAllRequest, EmbedRequest, TokenizeRequest
from elmokit.text.segmenters import Word
from elmokit.version import find_version

__all__ = ["embed_words", "make_tei_router"]


def make_tei_router(shelf: Shelf, metrics: Metrics) -> APIRouter:
    """`/embed`, `/embed_all`, `/tokenize`, `/info`, `/health`, `/metrics`."""
    router = APIRouter(tags=["text-embeddings-inference"])

    @router.post("/embed")
    async def embed(asked: EmbedRequest, request: Request) -> Response:
        """One vector per text: a list of lists of numbers, or npy for `Accept: application/x-npy`."""
        texts = shelf.check_texts(asked.inputs)
        _, vectors = await embed_words(shelf.find_model(asked.model), texts, asked.layers, truncate=asked.truncate)
        pooled_ND = np.stack([pool_words(words_WD, asked.pooling) for words_WD in vectors])
        if asked.normalize:
            pooled_ND = scale_to_unit_length(pooled_ND)
        return answer_matrix(pooled_ND, request.headers.get("accept", ""))

    @router.post("/embed_all")
    async def embed_all(asked: EmbedAllRequest, request: Request) -> Response:
        """The vectors of all words of each text; an Arrow stream for `Accept: application/vnd.apache.arrow.stream`."""
        texts = shelf.check_texts(asked.inputs)
        words, vectors = await embed_words(shelf.find_model(asked.model), texts, asked.layers, truncate=asked.truncate)
        if ARROW in request.headers.get("accept", ""):
            return answer_words([[word.text for word in each] for each in words], vectors)
        return answer_json(vectors)

    @router.post("/tokenize")
    async def tokenize(asked: TokenizeRequest) -> list[list[dict[str, Any]]]:
        """The words of each text, and where they stand."""
        words = await shelf.find_model(asked.model).split_texts(shelf.check_texts(asked.inputs))
        return [
            [
                {"id": place, "text": word.text, "special": False, "start": word.start, "stop": word.end}
                for place, word in enumerate(each)
            ]
            for each in words
        ]

    @router.get("/info")
    async def info() -> dict[str, Any]:
        """The models of this server and its bounds."""
        first, limits = shelf.find_model(None), shelf.limits
        return {
            "model_id": first.name,
            "model_dtype": first.embedder.precision,
            "model_type": {"embedding": {"pooling": "mean"}},
            "max_concurrent_requests": limits.concurrent_requests,
            "max_input_length": limits.text_words,
            "max_batch_tokens": limits.batch_words,
            "max_client_batch_size": limits.texts,
            "auto_truncate": False,
            "version": find_version(),
            "models": [_describe(model) for model in shelf.models.values()],
            "tasks": [{"name": task.name, "task": task.task} for task in shelf.tasks.values()],
        }

    @router.get("/health")
    async def health() -> dict[str, str]:
        """Whether the server answers."""
        return {"status": "ok"}

    @router.get("/metrics", response_class=Response)
    async def write_metrics() -> Response:
        """What the server counted, for Prometheus."""
        queued = {name: model.batcher.queued_words for name, model in shelf.models.items()}
        return Response(metrics.write(queued), media_type="text/plain; version=0.0.4")

    return router


async def embed_words(
    model: ServedModel, texts: list[str], layers: str | int, *, truncate: bool = False
) -> tuple[list[list[Word]], list[np.ndarray]]:
    """The words of each text and their vectors (W, D)."""
    if layers == "all":
        raise RequestError('asked for layers="all": POST /layers gives all of them')
    chosen = check_layers(layers, model.embedder.num_layers)
    words = await model.split_texts(texts, truncate=truncate)
    return words, await model.batcher.embed([[word.text for word in each] for each in words], chosen)


def _describe(model: ServedModel) -> dict[str, Any]:
    config, embedder = model.embedder.elmo.config, model.embedder
    mix = embedder.elmo.stored_mix
    return {
        "name": model.name,
        "dim": embedder.dim,
        "layers": embedder.num_layers,
        "precision": embedder.precision,
        "device": str(embedder.device),
        "predicts": model.language_model is not None,
        "mix": None if mix is None else {"weights": mix.weights.softmax(0).tolist(), "gamma": float(mix.gamma)},
        "characters": None if config.characters is None else config.characters.scheme,
    }
