"""What of the cuDNN engine can be shown without a GPU; `benchmarks/engines_on_device.py` compares it on one."""

import pytest
import torch

from elmokit.engines import Clips, LayerState, LstmpWeights, Recurrence, cudnn, reference
from elmokit.errors import EngineError


def recurrence(cell_dim, output_dim):
    generator = torch.Generator().manual_seed(0)
    shapes = [(6, 3), (3, 4 * cell_dim), (output_dim, 4 * cell_dim), (4 * cell_dim,), (cell_dim, output_dim)]
    inputs, *weights = (torch.randn(shape, generator=generator) for shape in shapes)
    if cell_dim == output_dim:
        weights[-1] = None
    state = LayerState(torch.randn(2, output_dim, generator=generator), torch.randn(2, cell_dim, generator=generator))
    return Recurrence(inputs, LstmpWeights(*weights), state)


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize(("cell_dim", "output_dim"), [(5, 4), (4, 4)])
def test_turned_weights_are_those_of_an_nn_lstm(cell_dim, output_dim):
    # nn.LSTM documents cuDNN's layout and runs on a CPU.
    inputs, weights, state = problem = recurrence(cell_dim, output_dim)
    turned = cudnn._turned(weights)
    lstm = torch.nn.LSTM(3, cell_dim, proj_size=output_dim if cell_dim != output_dim else 0)
    with torch.no_grad():
        for parameter, values in zip(lstm.parameters(), turned, strict=True):
            parameter.copy_(values)
    outputs, (hidden, cell) = lstm(inputs.view(3, 2, 3), tuple(part.unsqueeze(0) for part in state))
    ((expected, final),) = reference.run([problem], [2, 2, 2], Clips(None, None))
    torch.testing.assert_close(outputs.reshape(6, output_dim), expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(hidden[0], final.hidden_BP, atol=1e-6, rtol=0)
    torch.testing.assert_close(cell[0], final.cell_BH, atol=1e-6, rtol=0)


def test_clips_are_refused():
    with pytest.raises(EngineError, match="cannot clip"):
        cudnn.run([recurrence(5, 4)], [2, 2, 2], Clips(None, 3.0))
    with pytest.raises(EngineError, match="cannot clip"):
        cudnn.run([recurrence(4, 4)], [2, 2, 2], Clips(3.0, None))


def test_no_words_leave_the_state_as_it_was():
    problem = recurrence(5, 4)
    empty = problem._replace(inputs_ND=problem.inputs_ND[:0])
    ((outputs, state),) = cudnn.run([empty], [], Clips(None, None))
    assert outputs.shape == (0, 4)
    assert all(torch.equal(one, other) for one, other in zip(state, problem.state, strict=True))
