"""What `elmo bench` measures: a frozen description that cannot be wrong, and the peers that it knows.

A peer is a library that gives vectors of words, found in this environment or named with the Python of another one
(`allennlp=/its/venv/bin/python`). Those that read AllenNLP's files get the same weights as elmokit; the others stand
beside the size that their users would compare them with.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from elmokit.cores import count_cores
from elmokit.errors import InputError

__all__ = ["PEERS", "Peer", "Plan", "find_peers"]

SIZES = ("tiny", "small", "medium", "original")
QUICK_RUNS, QUICK_BATCHES = 2, (1, 16)


@dataclass(frozen=True)
class Peer:
    """One library to compare with.

    Arguments:
        name: on the command line.
        title: in tables.
        module: what its environment must be able to import.
        adapter: the file of `adapters/` that calls it.
        beside: the sizes of elmokit it is compared with.
        reads_weights: whether it reads AllenNLP's files, and so must give the same vectors.
        knows_words: whether it can be told words in advance.
        python: the interpreter that has it; `None` until it is found.
        setup: a file that is run before it is imported.
    """

    name: str
    title: str
    module: str
    adapter: str
    beside: tuple[str, ...] = SIZES
    reads_weights: bool = False
    knows_words: bool = False
    python: str | None = None
    setup: Path | None = None


PEERS = {
    peer.name: peer
    for peer in (
        Peer("allennlp", "AllenNLP", "allennlp", "allennlp", reads_weights=True, knows_words=True),
        Peer("simple_elmo", "simple_elmo", "simple_elmo", "simple_elmo", reads_weights=True),
        Peer("manylangs", "ELMoForManyLangs", "elmoformanylangs", "manylangs", beside=("original",)),
        Peer("bert", "BERT-base (transformers)", "transformers", "transformers", beside=("original",)),
        Peer("minilm", "MiniLM-L6 (transformers)", "transformers", "transformers", beside=("small",)),
    )
}


@dataclass(frozen=True)
class Plan:
    """Everything that decides what is measured.

    Arguments:
        text: a file of sentences nobody has embedded; sampled words if not given.
        peers: whom to compare with.
        sizes: models of elmokit.
        weights: `(size, folder)` pairs of AllenNLP files to use; random weights for sizes without one.
        batch_sizes: sentences per call.
        runs: how often each contestant takes its turn; medians are reported.
        threads: cores that a contestant may use.
        compares: whether contestants are timed.
        grows: whether the growth of the cost is measured.
        growth_sizes: the models that the growth with the size is measured on.
    """

    text: Path | None = None
    peers: tuple[Peer, ...] = ()
    sizes: tuple[str, ...] = ("small", "original")
    weights: tuple[tuple[str, Path], ...] = ()
    batch_sizes: tuple[int, ...] = (1, 32, 128)
    runs: int = 5
    threads: int = 1
    compares: bool = True
    grows: bool = True
    growth_sizes: tuple[str, ...] = SIZES

    def __post_init__(self) -> None:
        """Reject what cannot be measured."""
        for size in (*self.sizes, *(size for size, _ in self.weights)):
            _check(size in SIZES, f"asked for the size {size!r}: use one of {', '.join(SIZES)}")
        _check(bool(self.sizes), "asked for no size: name at least one")
        _check(bool(self.batch_sizes), "asked for no batch size: name at least one")
        for size in self.batch_sizes:
            _check(size >= 1, f"asked for batches of {size} sentences: expected 1 or more")
        _check(self.runs >= 1, f"asked for {self.runs} runs: expected 1 or more")
        cores = count_cores()
        _check(1 <= self.threads <= cores, f"asked for {self.threads} threads: this process may use {cores} core(s)")
        for size, folder in self.weights:
            _check(
                (folder / "options.json").is_file(),
                f"{folder}: expected a folder with options.json and an hdf5 file for {size}, found no options.json",
            )

    def quickly(self) -> Plan:
        """The same with few runs of small batches: to see that everything works, not to quote."""
        return replace(self, runs=QUICK_RUNS, batch_sizes=QUICK_BATCHES, growth_sizes=self.sizes)


def find_peers(named: Sequence[str] = (), setups: Sequence[str] = ()) -> tuple[Peer, ...]:
    """The peers named as `NAME=PYTHON`, and those that this environment has; `NAME=FILE` sets one up.

    Example:
        >>> [peer.name for peer in find_peers([f"minilm={sys.executable}"]) if peer.name == "minilm"]
        ['minilm']
    """
    pythons = {name: str(_existing(path, "--peer")) for name, path in map(_pair, named)}
    files = {name: _existing(path, "--peer-setup") for name, path in map(_pair, setups)}
    found = []
    for name, peer in PEERS.items():
        here = sys.executable if importlib.util.find_spec(peer.module) is not None else None
        python = pythons.get(name, here)
        if python is not None:
            found.append(replace(peer, python=python, setup=files.get(name)))
    idle = sorted(set(files) - {peer.name for peer in found})
    _check(not idle, f"--peer-setup names {', '.join(idle)}, which --peer does not and this environment has not")
    return tuple(found)


def _pair(text: str) -> tuple[str, str]:
    name, equals, path = text.partition("=")
    _check(bool(equals), f"expected NAME=PATH, found {text!r}; known names are {', '.join(PEERS)}")
    _check(name in PEERS, f"no peer is called {name!r}: known are {', '.join(PEERS)}")
    return name, path


def _existing(path: str, option: str) -> Path:
    found = Path(path).expanduser()
    _check(found.exists(), f"{option}: {path} does not exist")
    # Not resolved: the interpreter of an environment is a link, and the link is what makes it that environment's.
    return found.absolute()


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise InputError(message)
