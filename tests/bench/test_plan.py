"""Plans that cannot be wrong, peers that can be found, and how options become a plan."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from elmokit.bench.machine import command_of, machine_facts
from elmokit.bench.plan import PEERS, Plan, find_peers
from elmokit.cli import parse_arguments
from elmokit.commands.bench import Bench
from elmokit.cores import count_cores, count_threads
from elmokit.errors import InputError


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"sizes": ("huge",)}, "the size 'huge': use one of tiny, small"),
        ({"sizes": ()}, "no size"),
        ({"batch_sizes": ()}, "no batch size"),
        ({"batch_sizes": (0,)}, "batches of 0 sentences"),
        ({"runs": 0}, "0 runs"),
        ({"threads": 10_000}, "10000 threads: this process may use"),
    ],
)
def test_nonsense_is_refused(wrong, complaint):
    with pytest.raises(InputError, match=complaint):
        Plan(**wrong)


def test_weights_must_be_there(tmp_path):
    with pytest.raises(InputError, match="expected a folder with options.json and an hdf5 file for small"):
        Plan(weights=(("small", tmp_path),))
    with pytest.raises(InputError, match="expected SIZE=FOLDER"):
        Bench(weights=("small",)).plan()


@pytest.mark.parametrize(
    ("named", "setups", "complaint"),
    [
        (["flair=python"], [], "no peer is called 'flair': known are allennlp"),
        (["allennlp"], [], "expected NAME=PATH"),
        (["allennlp=/no/such/python"], [], "--peer: /no/such/python does not exist"),
        ([f"bert={sys.executable}"], [f"manylangs={__file__}"], "--peer-setup names manylangs"),
    ],
)
def test_peers_that_cannot_be(named, setups, complaint, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=complaint):
        find_peers(named, setups)


def test_peers_are_found_here_or_where_they_are_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object() if name == "simple_elmo" else None)
    found = {peer.name: peer for peer in find_peers([f"bert={sys.executable}"], [f"simple_elmo={__file__}"])}
    assert set(found) == {"bert", "simple_elmo"}
    assert found["simple_elmo"].python == sys.executable
    assert str(found["simple_elmo"].setup) == __file__


def test_options_become_a_plan(tmp_path):
    asked = "bench --sizes tiny --runs 3 --parts growth --batch-sizes 1 4 --quick"
    options = parse_arguments(asked.split())
    assert isinstance(options, Bench)
    plan = options.plan()
    assert (plan.sizes, plan.compares, plan.grows, plan.peers) == (("tiny",), False, True, ())
    assert plan.runs < 3
    assert plan.threads == count_threads()
    assert options.output is None
    assert Bench(runs=3).plan().batch_sizes == (1, 32, 128)


def test_both_parts_are_measured_unless_told():
    plan = Bench().plan()
    assert (plan.compares, plan.grows) == (True, True)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"parts": ("growth",)}, "--parts is for a CPU: leave it out with --device cuda"),
        ({"text": Path("corpus.txt")}, "--text is for a CPU"),
        ({"peer_setup": ("bert=x.py",)}, "--peer-setup is for a CPU"),
        ({"weights": ("small=x",), "peer": ("bert=python",)}, "--peer, --weights are for a CPU: leave them out"),
        ({"batch_sizes": (1,), "runs": 2, "sizes": ("tiny",)}, "--batch-sizes is for a CPU"),
    ],
)
def test_what_a_gpu_does_not_measure_is_refused(options, complaint):
    with pytest.raises(InputError, match=f"^{complaint}"):
        Bench(device="cuda", **options).run()


def test_a_result_names_its_command_and_no_path(tmp_path):
    (tmp_path / "secret").mkdir()
    text = tmp_path / "secret" / "text.txt"
    peers = (PEERS["allennlp"],)
    command = command_of(Plan(text=text, peers=peers, weights=()))
    assert command.startswith("elmo bench --text text.txt --peer allennlp=PYTHON --sizes small original")
    assert "secret" not in command
    assert command_of(Plan(grows=False)).endswith("--parts table")
    assert int(machine_facts()["cores"]) == count_cores()
