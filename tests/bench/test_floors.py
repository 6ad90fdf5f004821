"""The arithmetic of a model, against counts made in other ways."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from elmokit.bench.floors import compute_floors, count_work, measure_rates
from elmokit.config import CharConfig, ElmoConfig, LstmConfig, WordConfig
from elmokit.model import Elmo


def test_the_original_model_costs_what_the_literature_says():
    work = count_work(ElmoConfig.original())
    assert work.lstm / 2 == pytest.approx(75.5e6, rel=1e-3)  # multiply-adds a word
    assert work.encoder / 2 == pytest.approx(16.8e6 + 8.8e6 + 1.0e6, rel=2e-2)  # highways, convolutions, projection
    assert work.step_weights * 4 == 4 * (512 * 16384 + 4096 * 512) * 4


def test_every_weight_of_the_lstms_is_multiplied_once_a_word_and_torch_counts_the_rest_alike():
    config = ElmoConfig(
        CharConfig(max_length=9, filters=((1, 4), (3, 8)), dim=4, num_highways=1),
        lstm=LstmConfig(cell_dim=16, projection_dim=8),
    )
    elmo = Elmo.random(config)
    assert count_work(config).lstm == 2 * sum(weight.numel() for weight in elmo.bilm.parameters() if weight.dim() == 2)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        elmo.encoder(torch.full((5, 9), 3), trim=False)
    assert counter.get_total_flops() == 5 * count_work(config).encoder


def test_a_model_of_words_without_projection_multiplies_in_its_lstms_alone():
    lstm = LstmConfig(cell_dim=8, projection_dim=8)
    work = count_work(ElmoConfig(None, WordConfig(10, 8), lstm, projects_words=False))
    assert work.encoder == 0
    assert work.step_weights == 2 * 2 * 8 * 32


@given(st.integers(1, 512), st.floats(1e9, 1e12), st.floats(1e9, 1e11))
def test_floors_are_the_lower_of_two_bounds(batch_size, multiplies, reads):
    config = ElmoConfig.small()
    work = count_work(config)
    rates = {"float32": multiplies, "int8": None, "read": {str(4 * work.step_weights): reads}}
    found = compute_floors(config, rates, batch_size)
    assert set(found) == {"float32, everything computed", "float32, words known"}
    all_bytes = 4 * work.step_weights
    assert found["float32, words known"] == pytest.approx(
        min(multiplies / work.lstm, batch_size * reads / all_bytes), rel=1e-9
    )
    assert found["float32, everything computed"] <= found["float32, words known"]


def test_rates_are_positive(monkeypatch):
    monkeypatch.setattr("elmokit.bench.floors.SHAPES", ((16, 16, 32),))
    rates = measure_rates([4096, 65536], seconds=0.002)
    assert rates["float32"] > 0
    assert rates["int8"] is None or rates["int8"] > 0
    assert set(rates["read"]) == {"4096", "65536"}
    assert all(rate > 0 for rate in rates["read"].values())
