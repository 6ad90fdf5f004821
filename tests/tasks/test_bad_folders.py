"""Folders of trained tasks that are damaged or hostile: one line that names file and field, and nothing is built."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file, save_file

from elmokit.cli import main
from elmokit.errors import CheckpointError
from elmokit.tasks.base import load_task
from elmokit.tasks.config import InputConfig
from elmokit.tasks.layer_store import open_elmo
from elmokit.tasks.network.inputs import WordInputs
from elmokit.tasks.tag import TagConfig, Tagger, _may_follow


@pytest.fixture(scope="module")
def saved(tmp_path_factory, random_model):
    """A tagger with static vectors, characters and ELMo."""
    config = InputConfig(vectors="gone.vec", character_filters=4, elmo=str(random_model))
    inputs = WordInputs(config, words=["a", "b"], vectors_VE=torch.ones(2, 3), elmo=open_elmo(str(random_model)))
    folder = tmp_path_factory.mktemp("saved") / "task"
    Tagger(TagConfig(config, hidden=3, num_layers=1), inputs, ["O", "S-X"]).save(folder)
    return folder


@pytest.fixture
def folder(saved, tmp_path, monkeypatch):
    def refuse(*arguments, **named):
        raise AssertionError("the network was reached for")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr("huggingface_hub.snapshot_download", refuse)
    monkeypatch.chdir(tmp_path)
    shutil.copytree(saved, tmp_path / "h")
    return tmp_path / "h"


def change(path, **changes):
    """Set fields of a JSON file by their dotted names (`__` for a dot); `...` takes one away."""
    values = json.loads(path.read_text())
    for name, value in changes.items():
        *parts, last = name.split("__")
        place = values
        for part in parts:
            place = place[part]
        if value is ...:
            del place[last]
        else:
            place[last] = value
    path.write_text(json.dumps(values))


def check_refused(folder, *says):
    with pytest.raises(CheckpointError) as caught:
        load_task(folder, device="cpu")
    message = str(caught.value)
    assert "\n" not in message
    for words in says:
        assert words in message, message


def test_the_folder_itself_loads(folder):
    assert load_task(folder, device="cpu").labels == ["O", "S-X"]


def test_looking_at_sizes_first_costs_no_time(saved):
    """Random numbers for a tensor without values would make torch import its compiler, and with it sympy."""
    load = f"import sys; from elmokit.tasks.base import load_task; load_task({str(saved)!r})"
    code = f"{load}; print('sympy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"config": ...}, "expected config, found only elmo, format_version, task, vector_dim"),
        ({"vector_dim": ...}, "expected vector_dim"),
        ({"vector_dim": 10**9}, "vector_dim is 1000000000: expected a whole number of at most 16,384"),
        ({"vector_dim": 3.0}, "vector_dim is 3.0: expected a whole number"),
        ({"vector_dim": 0}, "expected contextual."),
        ({"vector_dim": 16_384}, "shape"),
        ({"config__hidden": 200_000}, "config.hidden is 200000: expected a whole number of at most 16,384"),
        ({"config__hidden": 16_384, "config__num_layers": 128}, "model.safetensors: expected contextual."),
        ({"config__hidden": "3"}, "config.hidden is '3': expected a whole number"),
        ({"config__hidden": True}, "config.hidden is True: expected a whole number"),
        ({"config__dropout": 1}, "config.dropout is 1: expected a number below 1"),
        ({"config__use_crf": "false"}, "config.use_crf is 'false': expected true or false"),
        ({"config__use_crf": False}, "model.safetensors: expected crf.end of shape None, found (2,)"),
        ({"config__inputs": [1]}, "config.inputs should be an object"),
        ({"config__inputs__elmo_layers": "²"}, "elmo_layers is '²': use mix"),
        ({"config__inputs__elmo_layers": "7"}, "asked for layer 7 of 3"),
        ({"config__inputs__character_filters": 16_384}, "shape"),
        ({"config__inputs__elmo": None}, "elmo and config.inputs.elmo should both"),
        ({"elmo": None}, "elmo and config.inputs.elmo should both"),
        ({"elmo__copied": "false"}, "elmo.copied is 'false': expected true or false"),
        ({"elmo__fingerprint": 7}, "elmo.fingerprint is 7: expected a string"),
        ({"task": "dance"}, "expected a task, one of tag"),
        ({"task": ["tag"]}, "task is ['tag']: expected a string"),
        ({"task": "roles"}, "config has the unknown fields"),
        ({"colour": 1}, "unknown fields ['colour']"),
        ({"format_version": 2}, "expected a task model that"),
    ],
)
def test_settings_of_another_kind_are_refused(folder, changes, says):
    change(folder / "config.json", **changes)
    check_refused(folder, str(folder), says)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"labels": ...}, "it should have the fields ['labels'], found []"),
        ({"colour": 1}, "it should have the fields ['labels'], found ['colour', 'labels']"),
        ({"labels": "ab"}, "labels is 'ab': expected a list"),
        ({"labels": ["O", 3]}, "labels[1] is 3: expected a string"),
        ({"labels": []}, "labels has 0 entries: expected 1 or more"),
        ({"labels": ["O", "\ud800"]}, "labels[1] has half of a surrogate pair, '\\ud800': expected Unicode text"),
        ({"labels": ["x"] * 20_000}, "labels has 20,000 entries: expected at most 10,000"),
        ({"labels": ["O", "S-X", "S-Y"]}, "of shape"),
    ],
)
def test_labels_of_another_kind_are_refused(folder, changes, says):
    change(folder / "extra.json", **changes)
    check_refused(folder, str(folder), says)


def test_words_without_a_vector_are_refused(folder):
    """Before they are made: millions of them would take a hundred times the memory of their vectors."""
    (folder / "words.txt").write_text("ab\n" * 1000)
    check_refused(folder, "words.txt: has 1,000 words and its table 2 rows")


def test_ten_thousand_labels_take_no_time():
    """One call for each pair of them would take minutes."""
    kinds = [f"{mark}-{number}" for number in range(2500) for mark in "BIES"]
    allowed = _may_follow(kinds, kinds)
    assert allowed.sum() == 2500 * (4 + 2 * 5000) and allowed[0].nonzero()[0].tolist() == [1, 2]


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_weights_that_are_no_numbers_are_refused(folder, value, capsys):
    tensors = load_file(folder / "model.safetensors")
    tensors["to_labels.weight"][0, 0] = value
    save_file(tensors, folder / "model.safetensors")
    check_refused(folder, "model.safetensors", "to_labels.weight", "NaN or infinity")
    assert main(["task", "predict", "h", "Ann left Rome."]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("source", ["someone/model", "../../elsewhere", "/etc/passwd", "h/elmo"])
def test_a_task_names_no_other_model_than_an_installed_one(folder, source):
    change(folder / "config.json", elmo__copied=False, config__inputs__elmo=source)
    check_refused(folder, repr(source), "nothing is fetched unasked", f"--elmo {source}")


def test_a_task_without_its_model_does_not_ask_the_hub(folder, capsys):
    """`h/elmo` would be the id of a model of somebody called h."""
    shutil.rmtree(folder / "elmo")
    assert main(["task", "predict", "h", "Ann left Rome."]) == 2
    said = capsys.readouterr().err
    assert said == "elmo: h: its ELMo model, the folder elmo in it, is missing; say where it is: --elmo SOURCE\n"


@pytest.mark.parametrize("name", ["elmo", "words.txt", "model.safetensors"])
def test_links_and_pipes_are_not_followed(folder, name, tmp_path):
    shutil.move(folder / name, tmp_path / "outside")
    (folder / name).symlink_to(tmp_path / "outside")
    check_refused(folder, name, "outside of its folder; refused")
    (folder / name).unlink()
    os.mkfifo(folder / name)
    check_refused(folder, name, "found a pipe or a device; refused")
