"""The layer weights that tasks have learned, as in the paper's Figure 2.

Arrives: `results.json` files of task runs. Leaves: one row per task and place of ELMo in it (input, output): the weight
s_j of each layer, and γ. Runs of the same task and place – other seeds – are averaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from elmokit.errors import InputError
from elmokit.io.text_files import read_json
from elmokit.probe.report import Report

__all__ = ["LearnedMix", "compare_weights", "read_mixes"]

GAMMA = "γ"
TOLERANCE = 1e-3


class LearnedMix(NamedTuple):
    """The mix of one run: its task, where it stands, the weight of each layer, and γ."""

    task: str
    place: str
    weights: tuple[float, ...]
    gamma: float


def read_mixes(path: str | PathLike[str], *, task: str | None = None) -> list[LearnedMix]:
    r"""The mixes in the results of one run; none, for a run without ELMo.

    Arguments:
        path: the `results.json` that `elmo task train` wrote.
        task: what to call the task, such as "NER" for one of several taggers; its own name if not given.

    Example:
        >>> _ = Path("results.json").write_text(
        ...     '{"task": "tag", "mixes": {"input": {"weights": [0.25, 0.5, 0.25], "gamma": 1.5}}}')
        >>> read_mixes("results.json")
        [LearnedMix(task='tag', place='input', weights=(0.25, 0.5, 0.25), gamma=1.5)]
    """
    if not Path(path).is_file():
        raise InputError(f"{path}: expected the results.json of a task run, found no such file")
    values = read_json(Path(path))
    task, mixes = task or values.get("task"), values.get("mixes")
    if not isinstance(task, str) or not isinstance(mixes, dict):
        raise InputError(
            f'{path}: expected "task", a name, and "mixes", an object; is this the results.json of a task run?'
        )
    return [_mix(path, task, name, mix) for name, mix in mixes.items()]


def _mix(path: str | PathLike[str], task: str, name: str, mix: Any) -> LearnedMix:  # noqa: ANN401
    try:
        weights = mix["weights"] if "weights" in mix else mix["shares"]  # as older records call them
        weights, gamma = tuple(map(float, weights)), float(mix["gamma"])
    except (KeyError, TypeError, ValueError):
        raise InputError(f'{path}: expected a mix with "weights" and "gamma", found {mix!r:.80}') from None
    if min(weights, default=-1) < 0 or not abs(sum(weights) - 1) < TOLERANCE:
        raise InputError(f"{path}: expected weights of {name!r} that sum to 1, found {list(weights)}")
    return LearnedMix(task, name, weights, gamma)


def compare_weights(mixes: Sequence[LearnedMix]) -> Report:
    """A table of the mixes, the mean over runs of the same task and place."""
    if not mixes:
        raise InputError("none of the runs has learned a mix: expected runs with ELMo whose layers are learned")
    widths = {len(mix.weights) for mix in mixes}
    if len(widths) > 1:
        raise InputError(
            f"the runs mix models with {' and '.join(map(str, sorted(widths)))} layers: compare like with like"
        )
    groups: dict[tuple[str, str], list[LearnedMix]] = {}
    for mix in sorted(mixes, key=lambda mix: (mix.task, mix.place)):
        groups.setdefault((mix.task, mix.place), []).append(mix)
    layers = [f"layer {number}" for number in range(widths.pop())]
    report = Report(
        "weights",
        "layer weights that tasks have learned (softmax), and γ",
        [*layers, GAMMA],
        unit="number",
        facts={"runs": {f"{task}, {place}": len(group) for (task, place), group in groups.items()}, "spread": {}},
    )
    for (task, place), group in groups.items():
        numbers = np.array([[*mix.weights, mix.gamma] for mix in group])
        report.rows[f"{task}, {place}"] = dict(zip(report.columns, numbers.mean(0).tolist(), strict=True))
        if len(group) > 1:
            spread = numbers.std(0, ddof=1)
            report.facts["spread"][f"{task}, {place}"] = [round(value, 6) for value in spread.tolist()]
            report.notes.append(
                f"{task}, {place}: mean of {len(group)} runs, whose standard deviation is up to {spread[:-1].max():.3f}"
            )
    return report
