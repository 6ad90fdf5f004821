"""The simulation of benchmarks/web_scale.py: known queues have known speeds."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "benchmarks" / "web_scale.py"


@pytest.fixture(scope="module")
def web_scale():
    spec = importlib.util.spec_from_file_location("web_scale", PATH)
    module = importlib.util.module_from_spec(spec)
    sys.modules["web_scale"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["web_scale"]


def test_without_chance_the_slowest_step_sets_the_pace(web_scale):
    steps = [
        web_scale.Step(name, servers, seconds, 2) for name, servers, seconds in (("a", 4, 1), ("b", 2, 3), ("c", 1, 1))
    ]
    found = web_scale.simulate(steps, chunks=400, spread=0.0, loss=0.0)
    assert found.rate == pytest.approx(2 / 3, rel=0.01)
    assert found.busy == pytest.approx([2 / 3 / 4, 1.0, 2 / 3], rel=0.01)
    assert found.blocked[0] == pytest.approx(1 - 2 / 3 / 4, rel=0.05)
    assert found.blocked[1:] == [0.0, 0.0]


def test_equal_steps_lose_speed_to_chance_and_room_gives_it_back(web_scale):
    """Two exponential servers in a row with b places between them: (b + 2) / (b + 3) of one's speed."""
    for room in (0, 1, 8):
        steps = [web_scale.Step(name, 1, 1.0, room) for name in "ab"]
        found = web_scale.simulate(steps, chunks=60_000, spread=1.0, loss=0.0)
        assert found.rate == pytest.approx((room + 2) / (room + 3), rel=0.03)


def test_deaths_cost_half_a_chunk(web_scale):
    steps = [web_scale.Step("a", 8, 1.0, 1)]
    found = web_scale.simulate(steps, chunks=20_000, spread=0.0, loss=0.1)
    assert found.rate == pytest.approx(8 / 1.05, rel=0.02)


def test_a_trillion_words(web_scale):
    plan = web_scale.Plan(machines=16, segment_cores=8, embedders=1, embed_rate=560_000)
    told = web_scale.describe(plan, chunks=1000)
    assert "bottleneck: embed" in told
    assert "text 5.3 TB; Parquet 521 TB (521 bytes per word)" in told
    slow = web_scale.Plan(machines=64, segment_cores=8, embedders=1, embed_rate=560_000, storage=1e10)
    assert "bottleneck: write" in web_scale.describe(slow, chunks=1000)
