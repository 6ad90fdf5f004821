"""The log of a run: `log.jsonl`, a line now and then, and whoever else wants to hear it.

Lines are made at fixed numbers of words, and a run that goes on first drops the lines past its checkpoint. So the log
of a run that was killed ten times tells the same losses as that of one that never was.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from elmokit.errors import OutputError
from elmokit.io.atomic import replace_text
from elmokit.pretrain.optim.optimiser import Optimiser
from elmokit.pretrain.stepping import Stepper

__all__ = ["Journal", "Meter", "Report"]

Report = Callable[[dict[str, Any]], None]


class Journal:
    """Appends lines to the log.

    Arguments:
        path: of the file.
        report: is handed every line, too.
    """

    def __init__(self, path: Path, report: Report | None = None) -> None:
        self.path, self._report = path, report

    def go_on_from(self, step: int) -> None:
        """Drop what was written after that step, and a line that a kill cut off."""
        if not self.path.is_file():
            return
        kept = [line for line in self.path.read_text(encoding="utf-8").splitlines() if _is_by(line, step)]
        with self._explain_failures():
            replace_text(self.path, "".join(line + "\n" for line in kept))

    def add(self, line: dict[str, Any]) -> None:
        """Write one line."""
        with self._explain_failures(), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        if self._report is not None:
            self._report(line)

    @contextmanager
    def _explain_failures(self) -> Iterator[None]:
        try:
            yield
        except OSError as problem:
            raise OutputError(
                f"{self.path} could not be written ({problem.strerror}): the checkpoints are kept; make room, and "
                "go on with the same command"
            ) from problem


class Meter:
    """Loss and speed since the last line of the log.

    The sums of the loss lie in the stepper, and how many steps moved nothing in the optimiser, both on their device;
    here stands of how many words and steps they are.

    Arguments:
        stepper: sums the losses.
        optimizer: counts the steps that moved nothing.
        total: adds numbers up over all processes.
    """

    def __init__(self, stepper: Stepper, optimizer: Optimiser, total: Callable[[list[float]], list[float]]) -> None:
        self._stepper, self._optimizer, self._total = stepper, optimizer, total
        self._tokens, self._steps = 0, 0
        self.restart_clock()

    def follow(self, stepper: Stepper) -> None:
        """From now on this one sums the losses; it has those of the one before."""
        self._stepper = stepper

    def count(self, tokens: int) -> None:
        """A step of so many words, of all processes together, was just made."""
        self._tokens += tokens
        self._steps += 1
        self._timed_tokens += tokens

    def restart_clock(self) -> None:
        """Begin to measure speed anew: what was done in between was no training."""
        self._since, self._timed_tokens = time.monotonic(), 0

    def read(self) -> dict[str, float]:
        """Mean loss of both directions, steps, skipped ones and speed since this was last asked, and start anew."""
        forward, backward = self._sums()
        steps, skipped = self._steps, int(self._optimizer.skipped)
        tokens, self._tokens, self._steps = self._tokens, 0, 0
        self._stepper.loss_sums_2.zero_()
        self._optimizer.skipped.zero_()
        speed = self._timed_tokens / max(1e-9, time.monotonic() - self._since)
        self.restart_clock()
        return {
            "loss": (forward + backward) / (2 * tokens),
            "forward": forward / tokens,
            "backward": backward / tokens,
            "steps": steps,
            "skipped": skipped,
            "words_per_second": round(speed),
        }

    def state(self) -> dict[str, Any]:
        """What a resumed run needs to make the same next line."""
        skipped = int(self._optimizer.skipped)  # all processes see the same gradients, and count the same
        return {"sums": self._sums(), "tokens": self._tokens, "steps": self._steps, "skipped": skipped}

    def go_on_from(self, state: dict[str, Any], *, is_first: bool) -> None:
        """Take a state up again; what all processes had lost, the first takes."""
        self._tokens, self._steps = state["tokens"], state.get("steps", 0)
        self._optimizer.skipped.fill_(state.get("skipped", 0))  # older checkpoints have no such counts
        if is_first:
            self._stepper.loss_sums_2 += self._stepper.loss_sums_2.new_tensor(state["sums"])

    def _sums(self) -> list[float]:
        return self._total(self._stepper.loss_sums_2.tolist())


def _is_by(line: str, step: int) -> bool:
    try:
        return json.loads(line)["step"] <= step
    except (json.JSONDecodeError, KeyError, TypeError):
        return False
