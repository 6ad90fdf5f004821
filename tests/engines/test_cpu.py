"""The C++ engine beyond equality (see `test_equal_to_reference.py`): weights that change, threads, gradients, NaN."""

import copy
import gc
import os
import pickle
import threading

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from elmokit.config import LstmConfig
from elmokit.engines import Clips, LayerState, LstmpWeights, Recurrence, cpu, engine_named
from elmokit.engines.kernels.cpu import can_run, packing, threads
from elmokit.nn.bilm import BiLM

pytestmark = pytest.mark.usefixtures("cpu_kernels")
CLIPS = Clips(0.5, 0.4)


def recurrence(seed=0, num_words=40, num_rows=8, input_dim=70, cell_dim=90, output_dim=33):
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator) * shape[0] ** -0.5

    weights = LstmpWeights(
        draw(input_dim, 4 * cell_dim), draw(output_dim, 4 * cell_dim), draw(4 * cell_dim), draw(cell_dim, output_dim)
    )
    state = LayerState(draw(num_rows, output_dim), draw(num_rows, cell_dim))
    return Recurrence(draw(num_words, input_dim), weights, state)


def outputs(engine, problem, sizes=(8, 8, 8, 8, 8)):
    ((found, _),) = engine_named(engine)([problem], sizes, CLIPS)
    return found


def assert_equal_to_reference(problem):
    torch.testing.assert_close(outputs("cpu", problem), outputs("reference", problem), atol=1e-5, rtol=0)


CHANGES = {
    "in place": lambda weight: weight.mul_(2),
    "one value": lambda weight: weight.view(-1)[7].add_(5),
    "past torch's count": lambda weight: weight.data.mul_(2),
    "other memory": lambda weight: setattr(weight, "data", weight * 2),
}


@pytest.mark.parametrize("part", LstmpWeights._fields)
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_weights_is_noticed(part, change):
    problem = recurrence()
    before = outputs("cpu", problem)
    CHANGES[change](getattr(problem.weights, part))
    assert not torch.equal(outputs("cpu", problem), before)
    assert_equal_to_reference(problem)


def test_loaded_weights_are_noticed():
    first, second = (BiLM(LstmConfig(cell_dim=40, projection_dim=12)).requires_grad_(False) for _ in range(2))
    words = torch.randn(2, 5, 12)
    expected, _ = second(words, lengths=[5, 3])
    assert not torch.equal(first(words, lengths=[5, 3])[0], expected)
    first.load_state_dict(second.state_dict())
    assert torch.equal(first(words, lengths=[5, 3])[0], expected)


def test_weights_are_laid_out_once_and_forgotten_with_them(monkeypatch):
    made = []
    pack = cpu.pack
    monkeypatch.setattr(cpu, "pack", lambda *others, **options: made.append(1) or pack(*others, **options))
    problem = recurrence()
    count = len(packing._entries)
    for _ in range(3):
        outputs("cpu", problem)
    assert len(made) == 3 and len(packing._entries) == count + 1
    del problem
    gc.collect()
    assert len(packing._entries) == count


@pytest.mark.parametrize("place", [0, 7, 8_000, -1])
def test_changes_that_torch_does_not_count_in_inference_mode_are_noticed(place):
    with torch.inference_mode():
        problem = recurrence()
        before = outputs("cpu", problem)
        assert torch.equal(outputs("cpu", problem), before)
        problem.weights.recurrent_P4H.view(-1)[place] = 9.0
        assert_equal_to_reference(problem)


def test_modules_that_have_run_are_copied_and_pickled():
    bilm = BiLM(LstmConfig(cell_dim=40, projection_dim=12)).requires_grad_(False)
    words = torch.randn(2, 5, 12)
    expected, _ = bilm(words, lengths=[5, 3])
    for other in (copy.deepcopy(bilm), pickle.loads(pickle.dumps(bilm))):
        assert torch.equal(other(words, lengths=[5, 3])[0], expected)


def test_company_and_threads_do_not_change_a_bit(monkeypatch):
    problem = recurrence(num_words=60, num_rows=20)
    together = outputs("cpu", problem, [20, 20, 20])
    rows = slice(4, 7)
    words = torch.cat([problem.inputs_ND[step * 20 :][rows] for step in range(3)])
    state = LayerState(*(part[rows] for part in problem.state))
    alone = outputs("cpu", Recurrence(words, problem.weights, state), [3, 3, 3])
    assert torch.equal(alone, torch.cat([together[step * 20 :][rows] for step in range(3)]))
    for count in (1, 2, 3, 7):
        monkeypatch.setattr(cpu, "num_threads", lambda products, count=count: count)
        assert torch.equal(outputs("cpu", problem, [20, 20, 20]), together)


def test_callers_in_several_threads_do_not_disturb_each_other():
    problems = [recurrence(seed) for seed in range(4)]
    expected = [outputs("cpu", problem) for problem in problems]
    failed = []

    def call(problem, result):
        failed.extend(1 for _ in range(20) if not torch.equal(outputs("cpu", problem), result))

    threads = [threading.Thread(target=call, args=pair) for pair in zip(problems, expected, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_a_nan_stays_in_its_row():
    for engine in ("cpu", "int8"):
        problem = recurrence(num_words=6, num_rows=3)
        problem.inputs_ND[1] = float("nan")
        ((found, state),) = engine_named(engine)([problem], [3, 3], CLIPS)
        assert found.isnan().any(1).tolist() == [False, True, False] * 2
        assert state.cell_BH.isnan().any(1).tolist() == [False, True, False]


def test_views_are_taken():
    problem = recurrence()
    parts = [problem.inputs_ND, *problem.weights, *problem.state]
    views = [part.movedim(0, -1).contiguous().movedim(-1, 0) for part in parts]
    turned = Recurrence(views[0], LstmpWeights(*views[1:5]), LayerState(*views[5:]))
    assert not turned.weights.recurrent_P4H.is_contiguous()
    assert torch.equal(outputs("cpu", turned), outputs("cpu", problem))


def test_rows_without_words_keep_their_state():
    problem = recurrence(num_words=5)
    ((_, state),) = engine_named("cpu")([problem], [3, 2], CLIPS)
    assert torch.equal(state.hidden_BP[3:], problem.state.hidden_BP[3:])
    assert torch.equal(state.cell_BH[3:], problem.state.cell_BH[3:])
    assert not torch.equal(state.cell_BH[:3], problem.state.cell_BH[:3])


def test_what_torch_watches_is_left_to_torch():
    values = torch.ones(2)
    assert can_run(values, None)
    assert not can_run(values.double()) and not can_run(torch.empty(2, device="meta"))
    assert not can_run(values, torch.ones(2, requires_grad=True))
    with torch.no_grad():
        assert can_run(torch.ones(2, requires_grad=True))
    with FlopCounterMode(display=False) as counter:
        outputs("cpu", recurrence())
    assert counter.get_total_flops() > 0
    with torch.autograd.forward_ad.dual_level():
        assert not can_run(values)
    assert torch.vmap(lambda row: row * (2.0 if can_run(row) else 1.0))(values).tolist() == [1.0, 1.0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_after_a_fork_the_child_has_threads_of_its_own():
    problem = recurrence()
    expected = outputs("cpu", problem)
    child = os.fork()
    if child == 0:
        os._exit(0 if torch.equal(outputs("cpu", problem), expected) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_threads_are_those_of_torch_and_of_the_process_where_the_work_is_worth_it(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 6)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(4), raising=False)
    assert [threads.num_threads(products) for products in (0, 10**5, 5 * 10**5, 10**9)] == [1, 1, 2, 4]
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert threads.num_threads(10**9) == 3
    pair = [recurrence(num_rows=1, cell_dim=90, output_dim=33)] * 2
    assert [cpu._threads_for(pair, steps) for steps in (1, 10, 1000)] == [1, 1, 2]
    assert cpu._threads_for([recurrence(num_rows=400)] * 2, 5) == 3


def test_torch_works_alone_for_a_while_in_this_thread_only():
    def seen_elsewhere():
        found = []
        other = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
        other.start()
        other.join()
        return found[0]

    before, elsewhere, kernels = torch.get_num_threads(), seen_elsewhere(), threads.num_threads()
    with threads.torch_alone():
        if threads._openmp() is not None:
            assert torch.get_num_threads() == 1
        with threads.torch_alone():
            assert threads.num_threads() == kernels
        assert threads.num_threads() == kernels
        assert seen_elsewhere() == elsewhere
    assert torch.get_num_threads() == before


def test_without_a_library_of_its_own_torch_keeps_its_threads(monkeypatch):
    monkeypatch.setattr(threads, "_openmp", lambda: None)
    before = torch.get_num_threads()
    with threads.torch_alone():
        assert torch.get_num_threads() == before
