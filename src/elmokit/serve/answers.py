"""Vectors as an answer: JSON for everybody, npy or Arrow for who asks for it and has much to read."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence

import numpy as np
import orjson
import pyarrow as pa
from fastapi import Response

__all__ = ["ARROW", "NPY", "answer_json", "answer_matrix", "answer_words", "write_base64"]

NPY, ARROW = "application/x-npy", "application/vnd.apache.arrow.stream"


def answer_json(values: object) -> Response:
    """Plain values and arrays of numbers as JSON."""
    return Response(orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY), media_type="application/json")


def answer_matrix(vectors_ND: np.ndarray, accept: str) -> Response:
    """One vector per text: JSON, or npy if that is what the client accepts."""
    if NPY not in accept:
        return answer_json(np.ascontiguousarray(vectors_ND))
    file = io.BytesIO()
    np.save(file, vectors_ND, allow_pickle=False)
    return Response(file.getvalue(), media_type=NPY)


def answer_words(words: Sequence[Sequence[str]], vectors: Sequence[np.ndarray]) -> Response:
    """The words of each text and their vectors as an Arrow stream; `layer_0` and so on where each word has several."""
    flat = np.concatenate(vectors, axis=-2).astype(np.float32, copy=False)
    ends = np.cumsum([0, *map(len, words)], dtype=np.int32)
    layers = {"vectors": flat} if flat.ndim == 2 else {f"layer_{number}": each for number, each in enumerate(flat)}
    columns = {
        name: pa.ListArray.from_arrays(ends, pa.FixedSizeListArray.from_arrays(pa.array(each.ravel()), each.shape[-1]))
        for name, each in layers.items()
    }
    table = pa.table(
        {
            "text": pa.array(range(len(words)), pa.int64()),
            "words": pa.array([list(each) for each in words], pa.list_(pa.string())),
            **columns,
        }
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return Response(sink.getvalue().to_pybytes(), media_type=ARROW)


def write_base64(array: np.ndarray) -> str:
    """The numbers as little-endian float32 in base64, as OpenAI writes them."""
    return base64.b64encode(np.ascontiguousarray(array, "<f4").tobytes()).decode()
