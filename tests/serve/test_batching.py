"""Requests of all clients are read together, each gets its own vectors, and none can stop the others."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest
import torch

from elmokit import Elmo, ElmoConfig, Embedder
from elmokit.serve.batching import TURN_WORDS, Batcher
from elmokit.serve.errors import RequestError
from elmokit.serve.settings import Limits


@pytest.fixture
def embedder():
    torch.manual_seed(0)
    return Embedder(Elmo.random(ElmoConfig.tiny()))


class Held:
    """A batcher whose thread waits until it is released, so that a test knows what is queued."""

    def __init__(self, embedder, **bounds):
        self.batches, self.release, self.has_begun = [], threading.Event(), threading.Event()
        self.batcher = Batcher(embedder, Limits(**bounds), lambda *sizes: self.batches.append(sizes))

    async def __aenter__(self):
        self.first = asyncio.create_task(self.batcher.run(self._wait))
        await asyncio.to_thread(self.has_begun.wait)
        return self

    def _wait(self):
        self.has_begun.set()
        self.release.wait()

    async def __aexit__(self, *_):
        self.release.set()
        await self.first
        await asyncio.to_thread(self.batcher.close)

    async def start(self, *requests, layers="average"):
        tasks = [asyncio.create_task(self.batcher.embed(sentences, layers)) for sentences in requests]
        await asyncio.sleep(0)
        return tasks


def test_what_waits_is_read_in_one_batch_and_equals_the_library(embedder):
    requests = [[["the", "bank"]], [["a", "river", "bank"], ["x"]], [[]]]

    async def scenario():
        async with Held(embedder) as held:
            tasks = await held.start(*requests)
            held.release.set()
            return await asyncio.gather(*tasks), held.batches

    answers, batches = asyncio.run(scenario())
    assert batches == [(4, 6)]
    for sentences, vectors in zip(requests, answers, strict=True):
        for ours, expected in zip(vectors, embedder.embed(sentences), strict=True):
            np.testing.assert_allclose(ours, expected, atol=1e-6)


def test_a_short_request_does_not_wait_for_a_long_one(embedder):
    long, short = [["w"] * 100] * 40, [["the", "bank"]]
    finished = []

    async def scenario():
        async with Held(embedder, batch_words=2 * TURN_WORDS) as held:
            tasks = await held.start(long, short)
            for name, task in zip(("long", "short"), tasks, strict=True):
                task.add_done_callback(lambda _, name=name: finished.append(name))
            held.release.set()
            await asyncio.gather(*tasks)
            return held.batches

    batches = asyncio.run(scenario())
    assert finished == ["short", "long"]
    assert sum(words for _, words in batches) == 4_002 and all(words <= 2 * TURN_WORDS for _, words in batches)


def test_requests_for_other_layers_are_not_mixed(embedder):
    async def scenario():
        async with Held(embedder) as held:
            tasks = [*await held.start([["a"]], layers=0), *await held.start([["a"]], layers=2)]
            tasks += await held.start([["a", "b"]], layers=0)
            held.release.set()
            return await asyncio.gather(*tasks), held.batches

    (zero, two, _), batches = asyncio.run(scenario())
    assert batches == [(2, 3), (1, 1)]
    np.testing.assert_allclose(zero[0], embedder.embed([["a"]], layers=0)[0], atol=1e-6)
    np.testing.assert_allclose(two[0], embedder.embed([["a"]], layers=2)[0], atol=1e-6)


def test_a_full_queue_refuses_at_once_and_takes_again_later(embedder):
    async def scenario():
        async with Held(embedder, queued_words=10) as held:
            tasks = await held.start([["a"] * 8])
            with pytest.raises(RequestError) as refused:
                await held.batcher.embed([["a"] * 5], "average")
            assert refused.value.status == 429
            held.release.set()
            await asyncio.gather(*tasks)
            await held.batcher.embed([["a"] * 5], "average")
            assert held.batcher.queued_words == 0

    asyncio.run(scenario())


def test_who_waits_too_long_is_told_and_costs_nothing_more(embedder):
    async def scenario():
        async with Held(embedder, answer_seconds=0.05) as held:
            with pytest.raises(RequestError) as refused:
                await held.batcher.embed([["a"]], "average")
            assert refused.value.status == 429
            with pytest.raises(RequestError):  # the call that holds the thread is late, too
                await held.first
            held.release.set()
            held.first = asyncio.create_task(held.batcher.run(lambda: None))
            await held.first
            assert held.batches == [] and held.batcher.queued_words == 0

    asyncio.run(scenario())


def test_a_failure_reaches_its_own_clients_alone(embedder):
    async def scenario():
        async with Held(embedder) as held:
            held.release.set()
            with pytest.raises(ZeroDivisionError):
                await held.batcher.run(lambda: 1 // 0)
            (vectors,) = await held.batcher.embed([["a"]], "average")
            assert vectors.shape == (1, embedder.dim)

    asyncio.run(scenario())


def test_closing_answers_what_is_queued_and_takes_nothing_more(embedder):
    async def scenario():
        async with Held(embedder) as held:
            tasks = await held.start([["a"]], [["b"]])
            closing = asyncio.create_task(asyncio.to_thread(held.batcher.close))
            held.release.set()
            await closing
            assert [len(vectors) for vectors in await asyncio.gather(*tasks)] == [1, 1]
            with pytest.raises(RequestError) as refused:
                await held.batcher.embed([["a"]], "average")
            assert refused.value.status == 503

    asyncio.run(scenario())
