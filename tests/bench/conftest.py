"""Contestants that answer in this process: the same code as in a process of its own, and quick."""

from __future__ import annotations

import pytest

from elmokit.bench import growth, measuring
from elmokit.bench.adapters import use_elmokit as ours
from elmokit.bench.adapters.serving import Server
from elmokit.bench.child import PeerError


class Near:
    """Takes the place of `Child`: answers through our own adapter, whoever is asked."""

    def __init__(self, adapter="elmokit", *, python=None, setup=None, threads=1):
        self.server = Server(ours)

    def __enter__(self):
        return self

    def __exit__(self, *problem):
        pass

    def ask(self, do, **details):
        answer = self.server.answer({"do": do, **details})
        if "error" in answer:
            raise PeerError(answer["error"])
        return answer


@pytest.fixture
def near(monkeypatch) -> type[Near]:
    """All contestants in this process, growth in few points, rates looked for briefly."""
    monkeypatch.setattr(measuring, "Child", Near)
    monkeypatch.setattr(growth, "Child", Near)
    monkeypatch.setattr(growth, "BATCHES", (1, 2))
    monkeypatch.setattr(growth, "LENGTHS", (5,))
    monkeypatch.setattr(growth, "SHARES", (0.5, 1.0))
    monkeypatch.setattr(growth, "WORDS_PER_POINT", 40)
    monkeypatch.setattr("elmokit.bench.floors.SHAPES", ((8, 8, 32),))
    monkeypatch.setattr("elmokit.bench.floors.SECONDS", 0.001)
    return Near
