"""The graphs of an exported model give torch's numbers, on shapes that the export never saw."""

from importlib import import_module

import numpy as np
import pytest
import torch
from comparing import DATA

from elmokit import Elmo, ElmoConfig
from elmokit.config import CharConfig, LstmConfig, WordConfig
from elmokit.errors import InputError
from elmokit.export.graphs import LayersGraph, build_graphs
from elmokit.nn.bilm import BiLM, BilmState

TOLERANCE = 1e-5
FILTERS = ((1, 4), (2, 8), (3, 8))
CONFIGS = {
    "clips and residual": ElmoConfig(
        CharConfig(filters=FILTERS, num_highways=2),
        lstm=LstmConfig(cell_dim=12, projection_dim=6, cell_clip=0.1, projection_clip=0.05),
    ),
    "no clips, no residual, three layers, tanh, no highway": ElmoConfig(
        CharConfig(filters=FILTERS, num_highways=0, activation="tanh", max_length=20),
        lstm=LstmConfig(3, cell_dim=10, projection_dim=5, cell_clip=None, projection_clip=None, residual=False),
    ),
    "no projection of cells or words": ElmoConfig(
        CharConfig(filters=FILTERS, num_highways=1),
        lstm=LstmConfig(1, cell_dim=20, projection_dim=20),
        projects_words=False,
    ),
    "a table of words": ElmoConfig(None, words=WordConfig(30, 7), lstm=LstmConfig(cell_dim=8, projection_dim=4)),
}


def random_sentences(rng, num_rows, num_positions, width):
    lengths_B = torch.from_numpy(rng.integers(2, num_positions + 1, num_rows))
    lengths_B[0] = num_positions
    return torch.from_numpy(rng.normal(size=(num_rows, num_positions, width)).astype(np.float32)), lengths_B


def run_scan(step, state, inputs):
    outputs = []
    for each in inputs:
        state, output = step(state, each)
        outputs.append(output)
    return state, torch.stack(outputs)


@pytest.mark.parametrize("name", ["clips and residual", "no projection of cells or words"])
def test_padded_rows_are_read_like_packed_ones(name, monkeypatch):
    # Outside of an export torch compiles `scan`, which takes seconds; what is exported has it, and is tested below.
    monkeypatch.setattr(import_module("torch._higher_order_ops.scan"), "scan", run_scan)
    config, rng = CONFIGS[name].lstm, np.random.default_rng(0)
    bilm = BiLM(config)
    state = BilmState(*(torch.rand_like(part) - 0.5 for part in BilmState.zeros(config, 1)))
    words_BWP, lengths_B = random_sentences(rng, 4, 9, config.projection_dim)
    with torch.no_grad():
        packed, _ = bilm(words_BWP, lengths=lengths_B.tolist(), state=state.repeat(4))
        padded = LayersGraph(bilm, state)(words_BWP, lengths_B)
    assert (padded - packed).abs().max() < 1e-6
    assert padded[:, 1, int(lengths_B[1]) :].abs().sum() == 0


@pytest.fixture(scope="module", params=CONFIGS)
def exported(request):
    """A random model, and both of its graphs in onnxruntime."""
    pytest.importorskip("onnxscript")
    onnxruntime = pytest.importorskip("onnxruntime")
    elmo = Elmo.random(CONFIGS[request.param], seed=3).eval()
    graphs = [onnxruntime.InferenceSession(graph.SerializeToString()) for graph in build_graphs(elmo)]
    return elmo, *graphs


@pytest.mark.parametrize("num_words", [1, 2, 40])
def test_vectors_of_words_on_shapes_never_seen(exported, num_words):
    elmo, words, _ = exported
    rng, columns = np.random.default_rng(num_words), elmo.scheme.columns
    num_ids = 30 if elmo.config.characters is None else 261
    ids_NC = rng.integers(1, num_ids + 1, (num_words, columns))
    for kept in {columns, max(1, columns - 10)}:
        with torch.no_grad():
            expected = elmo.encoder(torch.from_numpy(ids_NC[:, :kept])).numpy()
        (vectors_NP,) = words.run(["vectors"], {"ids": ids_NC[:, :kept]})
        assert np.abs(vectors_NP - expected).max() < TOLERANCE


@pytest.mark.parametrize("shape", [(1, 2), (1, 61), (7, 2), (5, 23), (33, 4)])
def test_layers_on_shapes_never_seen(exported, shape):
    elmo, _, layers = exported
    words_BWP, lengths_B = random_sentences(np.random.default_rng(7), *shape, elmo.config.lstm.projection_dim)
    with torch.no_grad():
        expected, _ = elmo.bilm(words_BWP, lengths=lengths_B.tolist())
    (found,) = layers.run(["layers"], {"words": words_BWP.numpy(), "lengths": lengths_B.numpy()})
    assert found.shape == tuple(expected.shape)
    assert np.abs(found - expected.numpy()).max() < TOLERANCE


def test_other_weights_than_float32_are_refused():
    pytest.importorskip("onnxscript")
    elmo = Elmo.from_pretrained(DATA / "allennlp-two-layers")
    elmo.bilm.to(torch.bfloat16)
    with pytest.raises(InputError, match="expected a model with float32 weights, found bfloat16"):
        build_graphs(elmo)
