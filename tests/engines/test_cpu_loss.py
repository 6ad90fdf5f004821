"""The C++ loss of an output layer against its reference, whatever is computed beside it."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.engines.loss import cpu
from elmokit.nn.operations import Sample
from elmokit.nn.output_layer import losses as reference

pytestmark = pytest.mark.usefixtures("cpu_kernels")


def draw_problem(seed, num_rows, num_words, width):
    generator = torch.Generator().manual_seed(seed)
    hidden, weight = (torch.randn(rows, width, generator=generator) for rows in (num_rows, num_words))
    bias, targets = (
        torch.randn(num_words, generator=generator),
        torch.randint(num_words, (num_rows,), generator=generator),
    )
    return hidden, weight * width**-0.5, bias, targets


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 2**30),
    num_rows=st.integers(0, 20),
    num_words=st.one_of(st.integers(1, 200), st.sampled_from([2047, 2048, 2049, 5000])),
    width=st.sampled_from([1, 12, 128, 300]),
    scale=st.sampled_from([1.0, 30.0]),
    threads=st.integers(1, 4),
)
def test_equal_to_the_reference(seed, num_rows, num_words, width, scale, threads):
    hidden, weight, bias, targets = draw_problem(seed, num_rows, num_words, width)
    hidden *= scale
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu, "num_threads", lambda work: threads)
        total, each = cpu.losses(hidden, weight, bias, targets)
    exact = reference(hidden.double(), weight.double(), bias.double(), targets)
    torch.testing.assert_close(each.double(), exact[1], atol=1e-5 * scale, rtol=1e-5)
    torch.testing.assert_close(total, each.sum())


def test_neither_other_rows_nor_threads_change_a_bit(monkeypatch):
    hidden, weight, bias, targets = draw_problem(0, 50, 7000, 64)
    expected = cpu.losses(hidden, weight, bias, targets)[1]
    for threads, rows in ((1, slice(None)), (4, slice(3, 4)), (2, slice(10, 31))):
        monkeypatch.setattr(cpu, "num_threads", lambda work, threads=threads: threads)
        assert torch.equal(cpu.losses(hidden[rows], weight, bias, targets[rows])[1], expected[rows])


def test_a_row_that_is_not_finite_spoils_itself_alone():
    hidden, weight, bias, targets = draw_problem(1, 4, 300, 16)
    expected = cpu.losses(hidden, weight, bias, targets)[1]
    hidden[2, 3] = torch.nan
    found = cpu.losses(hidden, weight, bias, targets)[1]
    assert found[2].isnan() and torch.equal(found[[0, 1, 3]], expected[[0, 1, 3]])


def test_a_word_of_an_infinite_logit_leaves_the_others_an_infinite_loss():
    hidden, weight, bias, targets = draw_problem(1, 4, 300, 16)
    bias[7], targets = torch.inf, targets.masked_fill(targets == 7, 8)
    found, expected = (engine(hidden, weight, bias, targets)[1] for engine in (cpu.losses, reference))
    assert found.tolist() == expected.tolist() == [float("inf")] * 4


def test_a_word_that_can_never_come_adds_nothing():
    hidden, weight, bias, targets = draw_problem(2, 4, 300, 16)
    bias[7], targets = -torch.inf, targets.masked_fill(targets == 7, 8)
    torch.testing.assert_close(cpu.losses(hidden, weight, bias, targets), reference(hidden, weight, bias, targets))


def test_a_sample_is_taken_by_torch():
    hidden, weight, bias, targets = draw_problem(3, 4, 300, 16)
    sample = Sample(torch.arange(0, 300, 7), torch.zeros(43))
    found = cpu.losses(hidden, weight, bias, targets, sample)
    torch.testing.assert_close(found, reference(hidden, weight, bias, targets, sample))
