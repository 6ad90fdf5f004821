"""OpenAI's routes for embeddings, so that its package and everything built on it work with another address."""

from __future__ import annotations

from typing import Any

import numpy as np
from fastapi import APIRouter, Response

from elmokit.embed.layers import pool_words, scale_to_unit_length
from elmokit.serve.answers import answer_json, write_base64
from elmokit.serve.errors import RequestError
from elmokit.serve.models import Shelf
from elmokit.serve.schemas import EmbeddingsRequest
from elmokit.serve.tei import embed_words

__all__ = ["make_openai_router"]


def make_openai_router(shelf: Shelf) -> APIRouter:
    """`/v1/embeddings` and `/v1/models`."""
    router = APIRouter(prefix="/v1", tags=["OpenAI"])

    @router.post("/embeddings")
    async def embeddings(asked: EmbeddingsRequest) -> Response:
        """One vector per text, of length 1 as OpenAI's are: the mean over its words of the average layer."""
        model = shelf.find_model(asked.model)
        if asked.dimensions not in (None, model.embedder.dim):
            raise RequestError(f"asked for {asked.dimensions} dimensions: {model.name} has {model.embedder.dim}")
        words, vectors = await embed_words(model, shelf.check_texts(asked.input), "average")
        pooled: list[np.ndarray] = [scale_to_unit_length(pool_words(words_WD, "mean")) for words_WD in vectors]
        written = pooled if asked.encoding_format == "float" else [write_base64(vector_D) for vector_D in pooled]
        count = sum(map(len, words))
        return answer_json(
            {
                "object": "list",
                "model": model.name,
                "data": [
                    {"object": "embedding", "index": index, "embedding": vector} for index, vector in enumerate(written)
                ],
                "usage": {"prompt_tokens": count, "total_tokens": count},
            }
        )

    @router.get("/models")
    async def models() -> dict[str, Any]:
        """The models of this server."""
        listed = [{"id": name, "object": "model", "created": 0, "owned_by": "elmokit"} for name in shelf.models]
        return {"object": "list", "data": listed}

    return router
