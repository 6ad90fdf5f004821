"""The whole measurement from top to bottom: a plan arrives; results leave, on the screen and in files.

`measure` gives a dictionary that is ready for JSON; `run_bench` shows and writes it, or what `device.py` measures.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from itertools import chain
from pathlib import Path
from typing import Any

from elmokit.bench.child import Child, PeerError
from elmokit.bench.contest import Texts, agreement, contestants_for, take_turns, texts_for
from elmokit.bench.floors import BYTES, compute_floors, count_work
from elmokit.bench.growth import draw_growth, measure_growth
from elmokit.bench.machine import command_of, machine_facts
from elmokit.bench.plan import Peer, Plan
from elmokit.bench.report import markdown
from elmokit.bench.texts import Text, read_text, sample_text
from elmokit.config import ElmoConfig
from elmokit.errors import InputError, MissingExtra, OutputError
from elmokit.io.atomic import replace_text
from elmokit.io.locks import lock_output
from elmokit.waits import WAITS

__all__ = ["Models", "measure", "run_bench"]


Say = Callable[[str], None]
Measures = Callable[[Say, Callable[[dict[str, Any]], None]], dict[str, Any]]


def run_bench(measures: Measures, *, output: Path | None = None, picture: str = "svg") -> str:
    """Measure, write the files that were asked for, and give the tables; progress goes to the log of `waits.py`.

    Arguments:
        measures: takes `say` and `keep`, which are told about the progress and get the results so far.
        output: where results go: OUTPUT.md, OUTPUT.json and a picture; nowhere if not given.
        picture: suffix of the picture.
    """
    if output is not None and not output.parent.is_dir():  # found out now, not in ten minutes
        raise InputError(f"{output.parent}: no such folder; make it, or give another --output")
    began = time.monotonic()

    def say(text: str) -> None:
        WAITS.info(f"{time.monotonic() - began:.0f} s, {text}")

    def keep(result: dict[str, Any]) -> None:
        result["minutes"] = round((time.monotonic() - began) / 60, 1)
        if output is not None:
            _write(result, output, picture, say)

    with nullcontext() if output is None else lock_output(output):
        result = measures(say, keep)
        keep(result)
    return markdown(result)


def measure(plan: Plan, say: Say) -> dict[str, Any]:
    """Everything that the plan asks for; `say` is told about the progress."""
    text = read_text(plan.text) if plan.text else sample_text()
    # Now, so that a text that is too short is found at once. Models of another size may read the same again.
    texts = {size: texts_for(plan, size, text.again()) for size in plan.sizes}
    result: dict[str, Any] = {
        "machine": machine_facts(),
        "command": command_of(plan),
        "text": text.description,
        "runs": plan.runs,
        "threads": plan.threads,
        "notes": [],
        "versions": {},
    }
    with tempfile.TemporaryDirectory() as folder, Child("elmokit", threads=plan.threads) as ours:
        models = Models(ours, Path(folder), dict(plan.weights))
        if plan.compares:
            result |= _compare(plan, text, texts, ours, models, result["notes"], result["versions"], say)
        if plan.grows:
            result["growth"] = measure_growth(plan, text, models.folder, say)
        result["versions"]["elmokit"] = ours.ask("versions")
    return result


class Models:
    """Folders of models by size: those that were given, else random weights, written when first needed."""

    def __init__(self, ours: Child, folder: Path, given: dict[str, Path]) -> None:
        self._ours, self._folder, self._given = ours, folder, given

    def folder(self, size: str) -> Path:
        """AllenNLP's files of this size."""
        if size in self._given:
            return self._given[size].absolute()
        self._ours.ask("write", size=size, folder=str(self._folder / size))
        return self._folder / size

    def config(self, size: str) -> ElmoConfig:
        """What the model of this size is made of."""
        return ElmoConfig.from_dict(self._ours.ask("config", source=str(self.folder(size)))["config"])


def _compare(
    plan: Plan,
    text: Text,
    texts: dict[str, Texts],
    ours: Child,
    models: Models,
    notes: list[str],
    versions: dict[str, Any],
    say: Say,
) -> dict[str, Any]:
    configs = {size: models.config(size) for size in plan.sizes}
    say("measuring matmuls and memory of this machine")
    step_bytes = [count_work(config).step_weights * size for config in configs.values() for size in BYTES.values()]
    rates = ours.ask("rates", read_bytes=step_bytes)
    found: dict[str, Any] = {"rates": rates, "floors": [], "records": [], "agreement": []}
    with _children(plan) as children:
        for size, config in configs.items():
            say(f"{size}: loading")
            everybody = [ours, *(child for _, child in children)]
            known_words = _words_of(texts[size])
            contestants = contestants_for(plan, size, models.folder(size), known_words, ours, children, notes)
            found["agreement"] += agreement(contestants, size, text.again())
            found["records"] += take_turns(contestants, plan, size, texts[size], notes, say)
            for batch_size in plan.batch_sizes:
                bounds = compute_floors(config, rates, batch_size)
                found["floors"] += [
                    {"size": size, "batch_size": batch_size, "what": what, "words_per_second": bound}
                    for what, bound in bounds.items()
                ]
            for child in everybody:
                with suppress(PeerError):  # it has broken down, and a note says so
                    child.ask("drop")
        for peer, child in children:
            with suppress(PeerError):
                versions[peer.name] = child.ask("versions")
    return found


def _words_of(texts: Texts) -> list[str]:
    runs = chain.from_iterable(texts.values())
    return sorted(set(chain.from_iterable(chain.from_iterable(runs))))


@contextmanager
def _children(plan: Plan) -> Iterator[list[tuple[Peer, Child]]]:
    """A process for each peer, ended afterwards."""
    with ExitStack() as stack:
        yield [
            (peer, stack.enter_context(Child(peer.adapter, python=peer.python, setup=peer.setup, threads=plan.threads)))
            for peer in plan.peers
        ]


def _write(result: dict[str, Any], prefix: Path, picture: str, say: Say) -> None:
    page = markdown(result)
    if "growth" in result:
        drawn = _beside(prefix, picture)
        try:
            draw_growth(result, drawn)
        except MissingExtra as problem:
            say(f"no picture: {problem}")
        else:
            page += f"\n![how the cost grows]({drawn.name})\n"
    try:
        replace_text(_beside(prefix, "json"), json.dumps(result, indent=1) + "\n")
        replace_text(_beside(prefix, "md"), page)
    except OSError as problem:
        raise OutputError(f"{prefix}: could not be written ({problem.strerror})") from problem


def _beside(prefix: Path, suffix: str) -> Path:
    return prefix.with_name(f"{prefix.name}.{suffix}")
