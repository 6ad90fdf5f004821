"""The cuDNN engine without a GPU: its own code runs, with torch's CPU implementation in the place of cuDNN.

`benchmarks/engines_on_device.py` compares it on a GPU.
"""

import contextlib
from types import SimpleNamespace

import pytest
import torch

from elmokit.engines.recurrence import cudnn
from elmokit.engines.recurrence.random_problems import draw_recurrence, list_tensors, map_tensors
from elmokit.errors import EngineError
from elmokit.nn import lstmp
from elmokit.nn.operations import Clips

FREE = Clips(None, None)
pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")


def recurrence(cell_dim, output_dim, seed=0, num_words=6, num_rows=2):
    shape = {"num_words": num_words, "num_rows": num_rows, "input_dim": 3}
    return draw_recurrence(seed, **shape, cell_dim=cell_dim, output_dim=output_dim)


@pytest.fixture
def cudnn_on_a_cpu(monkeypatch):
    """`torch._cudnn_rnn` and streams as a CPU can do them; what happened on the streams is listed."""
    happened = []

    class Stream:
        device = torch.device("cpu")

        def __init__(self, device=None):
            happened.append("new stream")

        def wait_stream(self, other):
            happened.append("wait")

    def cudnn_rnn(
        inputs,
        weights,
        stride,
        buffer,
        hidden,
        cell,
        mode,
        cell_dim,
        proj,
        layers,
        first,
        dropout,
        train,
        both,
        sizes,
        _,
    ):
        assert (buffer, mode, layers, first, dropout, both) == (None, 2, 1, False, 0.0, False)
        assert stride == len(weights) == (5 if proj else 4) and cell.shape[2] == cell_dim
        assert proj == (hidden.shape[2] if hidden.shape[2] != cell_dim else 0)
        happened.append("ragged" if sizes else "equal lengths")
        settings = (True, 1, 0.0, train, False)
        if sizes:
            results = torch._VF.lstm(inputs, torch.tensor(sizes), (hidden, cell), weights, *settings)
        else:
            results = torch._VF.lstm(inputs, (hidden, cell), weights, *settings, False)
        return *results, None, None

    monkeypatch.setattr(torch, "_cudnn_rnn", cudnn_rnn)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: Stream())
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda self, stream: happened.append("record"))
    cudnn._side_stream.cache_clear()
    yield SimpleNamespace(happened=happened)
    cudnn._side_stream.cache_clear()


@pytest.mark.parametrize(("cell_dim", "output_dim"), [(5, 4), (4, 4)])
@pytest.mark.parametrize(
    ("sizes", "how"), [([3, 3], "equal lengths"), ([3, 2, 1], "ragged"), ([2, 2, 2], "equal lengths")]
)
def test_equal_to_the_reference(cudnn_on_a_cpu, cell_dim, output_dim, sizes, how):
    problem = [recurrence(cell_dim, output_dim, seed, num_rows=4) for seed in (0, 1)]
    leaves = [part.requires_grad_() for each in problem for part in list_tensors(each)]
    results = []
    for run in (cudnn.run, lstmp.run):
        found = [part for outputs, state in run(problem, sizes, FREE) for part in (outputs, *state)]
        results.append([*found, *torch.autograd.grad(sum(part.square().sum() for part in found), leaves)])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
    assert cudnn_on_a_cpu.happened.count(how) == 2


def test_the_second_direction_runs_beside_the_first_and_is_waited_for(cudnn_on_a_cpu):
    cudnn.run([recurrence(5, 4, seed) for seed in (0, 1)], [2, 2, 2], FREE)
    order = ["new stream"] * 2 + ["wait", "equal lengths", "equal lengths", "wait", "record", "record", "record"]
    assert cudnn_on_a_cpu.happened == order


def test_a_state_keeps_its_dtype(cudnn_on_a_cpu):
    exact = map_tensors(recurrence(5, 4), torch.Tensor.double)
    problem = recurrence(5, 4)._replace(state=exact.state)
    ((outputs, state),) = cudnn.run([problem], [2, 2, 2], FREE)
    assert outputs.dtype == torch.float32 and {part.dtype for part in state} == {torch.float64}


@pytest.mark.parametrize(("cell_dim", "output_dim"), [(5, 4), (4, 4)])
def test_weights_are_those_of_an_nn_lstm(cell_dim, output_dim):
    # nn.LSTM documents cuDNN's layout and runs on a CPU.
    inputs, weights, state = problem = recurrence(cell_dim, output_dim)
    turned = cudnn._turn_weights(weights)
    lstm = torch.nn.LSTM(3, cell_dim, proj_size=output_dim if cell_dim != output_dim else 0)
    with torch.no_grad():
        for parameter, values in zip(lstm.parameters(), turned, strict=True):
            parameter.copy_(values)
    outputs, (hidden, cell) = lstm(inputs.view(3, 2, 3), tuple(part.unsqueeze(0) for part in state))
    ((expected, final),) = lstmp.run([problem], [2, 2, 2], FREE)
    torch.testing.assert_close(outputs.reshape(6, output_dim), expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(hidden[0], final.hidden_BP, atol=1e-6, rtol=0)
    torch.testing.assert_close(cell[0], final.cell_BH, atol=1e-6, rtol=0)


def test_clips_are_refused():
    with pytest.raises(EngineError, match="cannot clip"):
        cudnn.run([recurrence(5, 4)], [2, 2, 2], Clips(None, 3.0))
    with pytest.raises(EngineError, match="cannot clip"):
        cudnn.run([recurrence(4, 4)], [2, 2, 2], Clips(3.0, None))
