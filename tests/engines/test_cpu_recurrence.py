"""The C++ recurrence beyond equality (`test_equal_to_reference.py`): weights that change, threads, gradients, NaN."""

import copy
import gc
import os
import pickle
import threading

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from elmokit.config import LstmConfig
from elmokit.engines import choose
from elmokit.engines.cpp import packing, threads
from elmokit.engines.recurrence import cpu
from elmokit.engines.recurrence.random_problems import draw_recurrence, map_tensors
from elmokit.nn.bilm import BiLM
from elmokit.nn.operations import Clips, LayerState, LstmpWeights, Recurrence, describe, find_engine

pytestmark = pytest.mark.usefixtures("cpu_kernels")
CLIPS = Clips(0.5, 0.4)


def recurrence(seed=0, num_words=40, num_rows=8, input_dim=70, cell_dim=90, output_dim=33):
    shape = {"num_words": num_words, "num_rows": num_rows, "input_dim": input_dim}
    return draw_recurrence(seed, **shape, cell_dim=cell_dim, output_dim=output_dim)


def outputs(engine, problem, sizes=(8, 8, 8, 8, 8)):
    ((found, _),) = find_engine("recurrence", engine)([problem], sizes, CLIPS)
    return found


def assert_equal_to_reference(problem):
    torch.testing.assert_close(outputs("cpu", problem), outputs("reference", problem), atol=1e-5, rtol=0)


CHANGES = {
    "in place": lambda weight: weight.mul_(2),
    "one value": lambda weight: weight.view(-1)[7].add_(5),
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


MOMENTS = {
    "eval()": lambda bilm: bilm.eval(),
    "train()": lambda bilm: bilm.train(),
    "to()": lambda bilm: bilm.to("cpu"),
    "of a model around it": lambda bilm: torch.nn.ModuleList([bilm]).eval(),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_change_past_torchs_count_is_noticed_at_the_next_moment(moment):
    bilm = BiLM(LstmConfig(cell_dim=40, projection_dim=12)).requires_grad_(False)
    words = torch.randn(2, 5, 12)
    before, _ = bilm(words, lengths=[5, 3])
    for weight in bilm.parameters():
        weight.data.mul_(2)
    MOMENTS[moment](bilm)
    after, _ = bilm(words, lengths=[5, 3])
    assert not torch.equal(after, before)
    expected, _ = copy.deepcopy(bilm)(words, lengths=[5, 3])
    assert torch.equal(after, expected)


@pytest.mark.parametrize("options", [{"fused": True}, {"foreach": True}, {"foreach": False}], ids=str)
def test_a_step_of_an_optimiser_is_noticed(options):
    bilm = BiLM(LstmConfig(cell_dim=40, projection_dim=12))
    words = torch.randn(2, 5, 12)
    optimiser = torch.optim.AdamW(bilm.parameters(), lr=0.1, **options)
    for _ in range(2):
        with torch.no_grad():
            assert bilm.engine.name == "cpu"
            before, _ = bilm(words, lengths=[5, 3])
        bilm(words, lengths=[5, 3])[0].square().sum().backward()
        optimiser.step()
        with torch.no_grad():
            after, _ = bilm(words, lengths=[5, 3])
            expected, _ = copy.deepcopy(bilm)(words, lengths=[5, 3])
        assert torch.equal(after, expected) and not torch.equal(after, before)


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


def test_weights_of_a_model_saved_in_float16_give_the_same_bits(monkeypatch):
    problem = recurrence()
    problem = problem._replace(weights=LstmpWeights(*(part.half().float() for part in problem.weights)))
    found = outputs("cpu", problem)
    monkeypatch.setattr(cpu, "choose_storage", lambda *_: packing.Storage.FLOATS)
    problem = problem._replace(weights=LstmpWeights(*(part.clone() for part in problem.weights)))
    assert torch.equal(found, outputs("cpu", problem))
    assert_equal_to_reference(problem)


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
        monkeypatch.setattr(cpu, "num_threads", lambda work, count=count: count)
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
        ((found, state),) = find_engine("recurrence", engine)([problem], [3, 3], CLIPS)
        assert found.isnan().any(1).tolist() == [False, True, False] * 2
        assert state.cell_BH.isnan().any(1).tolist() == [False, True, False]


def test_views_are_taken():
    problem = recurrence()
    turned = map_tensors(problem, lambda part: part.movedim(0, -1).contiguous().movedim(-1, 0))
    assert not turned.weights.recurrent_P4H.is_contiguous()
    assert torch.equal(outputs("cpu", turned), outputs("cpu", problem))


def test_rows_without_words_keep_their_state():
    problem = recurrence(num_words=5)
    ((_, state),) = find_engine("recurrence", "cpu")([problem], [3, 2], CLIPS)
    assert torch.equal(state.hidden_BP[3:], problem.state.hidden_BP[3:])
    assert torch.equal(state.cell_BH[3:], problem.state.cell_BH[3:])
    assert not torch.equal(state.cell_BH[:3], problem.state.cell_BH[:3])


def takes(*tensors):
    """Whether C++ would get these tensors."""
    return choose(describe("recurrence", tensors)).name == "cpu"


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # by torch.func.jvp itself
def test_what_torch_watches_is_left_to_torch():
    values = torch.ones(2)
    assert takes(values, None)
    assert not takes(values.double()) and not takes(torch.empty(2, device="meta"))
    assert not takes(values, torch.ones(2, requires_grad=True))
    with torch.no_grad():
        assert takes(torch.ones(2, requires_grad=True))
    with torch.autograd.forward_ad.dual_level():
        assert not takes(torch.autograd.forward_ad.make_dual(values, values))
        assert takes(values)
    assert torch.vmap(lambda row: row * (2.0 if takes(row) else 1.0))(values).tolist() == [1.0, 1.0]
    for function in (torch.func.functionalize, torch.func.grad, lambda of: lambda x: torch.func.jvp(of, (x,), (x,))[0]):
        seen = []
        function(lambda x: seen.append(takes(x)) or x.sum())(torch.ones(2))  # noqa: B023
        assert seen == [False]
    assert not takes(torch.nn.Buffer(values).as_subclass(type("Ours", (torch.Tensor,), {})))


def test_operations_are_counted():
    bilm = BiLM(LstmConfig(cell_dim=40, projection_dim=12)).requires_grad_(False)
    with FlopCounterMode(display=False) as counter:
        bilm(torch.randn(2, 5, 12), lengths=[5, 3])
    matmuls = 12 * 4 * 40 + 12 * 4 * 40 + 40 * 12  # of inputs, of outputs before, of the projection
    assert counter.get_total_flops() == 2 * matmuls * (5 + 3) * 2 * 2  # words, layers, directions


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # by torch.func.jvp itself
def test_derivatives_forward_and_batches_of_torch_func_are_right():
    bilm = BiLM(LstmConfig(num_layers=1, cell_dim=10, projection_dim=4)).requires_grad_(False)
    words, direction = torch.randn(1, 3, 4), torch.randn(1, 3, 4)

    def layers(given):
        return bilm(given, lengths=[3])[0]

    _, tangent = torch.func.jvp(layers, (words,), (direction,))
    step = 1e-2
    expected = (layers(words + step * direction) - layers(words - step * direction)) / (2 * step)
    torch.testing.assert_close(tangent, expected, atol=1e-3, rtol=1e-2)
    several = torch.randn(4, 1, 3, 4)
    together = torch.vmap(layers)(several)
    torch.testing.assert_close(together, torch.stack([layers(each) for each in several]), atol=1e-5, rtol=0)


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
    assert [threads.num_threads(work) for work in (0, 10**5, 5 * 10**5, 10**9)] == [1, 1, 2, 4]
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
