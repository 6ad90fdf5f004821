"""The script on the page about TensorFlow, run with a stand-in for TensorFlow's reader of checkpoints."""

import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from elmokit.io import load

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "tensorflow-checkpoints.md"


def in_training(name):
    name = name.replace("RNN/MultiRNNCell/Cell", "rnn/multi_rnn_cell/cell_").replace("LSTMCell", "lstm_cell")
    return "lm/" + name


def in_training_with_one_layer(name):
    return "lm/" + name.replace("RNN/MultiRNNCell/Cell0/LSTMCell", "rnn/lstm_cell")


def in_a_hub_module(name):
    return "bilm/" + name.replace("LSTMCell", "rnn/lstm_cell")


@pytest.mark.parametrize(
    ("rename", "layers"), [(in_training, 2), (in_training_with_one_layer, 1), (in_a_hub_module, 2)]
)
def test_the_script_writes_what_elmokit_reads(write_bilm, options, monkeypatch, rename, layers, capsys):
    options["lstm"]["n_layers"] = layers
    folder, arrays = write_bilm(options)
    expected = {name: tensor.clone() for name, tensor in load(folder).tensors.items()}
    (folder / "weights.hdf5").unlink()

    endings = {"/W_0": "/kernel", "/B": "/bias", "/W_P_0": "/projection/kernel"}
    variables = {}
    for name, values in arrays.items():
        ending = next((end for end in endings if name.endswith(end)), "")
        variables[rename(name.removesuffix(ending) + endings.get(ending, ""))] = values
    noise = ["global_step", "aggregation/weights", *(f"{name}/Adagrad" for name in variables)]
    variables |= dict.fromkeys(noise, np.zeros(3, "float32"))
    variables |= {"lm/softmax/W": np.ones((5, 4), "float32"), "lm/softmax/b": np.ones(5, "float32")}
    reader = SimpleNamespace(get_variable_to_shape_map=lambda: variables, get_tensor=variables.__getitem__)
    tensorflow = ModuleType("tensorflow")
    tensorflow.__dict__["train"] = SimpleNamespace(load_checkpoint=lambda path: reader)
    monkeypatch.setitem(sys.modules, "tensorflow", tensorflow)
    monkeypatch.setattr(sys, "argv", ["dump.py", "checkpoint", str(folder / "weights.hdf5")])

    script = re.search(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert script is not None
    exec(compile(script[1], "dump.py", "exec"), {})  # our own page, not a file from anyone

    checkpoint = load(folder, softmax=True)
    assert checkpoint.softmax is not None and checkpoint.softmax["softmax.weight"].shape == (5, 4)
    assert all(checkpoint.tensors[name].equal(values) for name, values in expected.items())
    assert sorted(capsys.readouterr().out.splitlines()) == sorted(f"left out: {name}" for name in noise)
