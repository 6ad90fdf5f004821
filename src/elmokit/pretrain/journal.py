"""The log of a run: `log.jsonl`, a line now and then, and whoever else listens (TensorBoard).

Lines are made at fixed numbers of words, and a run that continues first drops the lines past its checkpoint. So the log
of a run that was killed ten times tells the same losses as that of one that never was. `RateGuard` halves the learning
rates by what the log says, so it halves them alike in both. Divergence alone is judged since the command was called.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from elmokit.errors import MissingExtra, OutputError
from elmokit.io.atomic import replace_text
from elmokit.pretrain.optim.optimiser import Optimiser
from elmokit.pretrain.stepping import Stepper
from elmokit.validation import Bounds, Count

__all__ = [
    "GuardState", "Journal", "Listener", "Meter", "MeterState", "RateGuard", "write_tensorboard",
]  # fmt: skip

Listener = Callable[[dict[str, Any]], None]


class Journal:
    """Appends lines to the log.

    Arguments:
        path: of the file.
        listener: is handed every line, too.
    """

    def __init__(self, path: Path, listener: Listener | None = None) -> None:
        self.path, self._listener = path, listener

    def truncate(self, step: int) -> None:
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
        if self._listener is not None:
            self._listener(line)

    @contextmanager
    def _explain_failures(self) -> Iterator[None]:
        try:
            yield
        except OSError as problem:
            raise OutputError(
                f"{self.path} could not be written ({problem.strerror}): the checkpoints are kept; make room, and "
                "continue with the same command"
            ) from problem


@dataclass(frozen=True)
class MeterState:
    """What `Meter` keeps; older checkpoints have no counts of steps, and no words nearby."""

    sums: tuple[float, float]
    tokens: Count
    steps: Count = 0
    skipped: Count = 0
    nearby: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True)
class GuardState:
    """What `RateGuard` keeps."""

    scale: Annotated[float, Bounds(above=0, at_most=1)]
    steps: Count
    lost: Count


class Meter:
    """Loss and speed since the last line of the log.

    The sums of the loss lie in the stepper, and how many steps moved nothing in the optimiser, both on their device;
    here stands of how many words and steps they are.

    Arguments:
        stepper: sums the losses.
        optimiser: counts the steps that moved nothing.
        total: adds numbers up over all processes.
    """

    def __init__(self, stepper: Stepper, optimiser: Optimiser, total: Callable[[list[float]], list[float]]) -> None:
        self._stepper, self._optimiser, self._total = stepper, optimiser, total
        self._tokens, self._steps = 0, 0
        self.restart_clock()

    def count(self, tokens: int) -> None:
        """A step of so many words, of all processes together, was just made."""
        self._tokens += tokens
        self._steps += 1
        self._timed_tokens += tokens

    def restart_clock(self) -> None:
        """Begin to measure speed anew: what was done in between was no training."""
        self._since, self._timed_tokens = time.monotonic(), 0

    def read(self) -> dict[str, float]:
        """Mean losses, steps, skipped ones and speed since this was last asked, and start anew."""
        forward, backward, *nearby = self._sums()
        steps, skipped = self._steps, int(self._optimiser.skipped)
        tokens, self._tokens, self._steps = self._tokens, 0, 0
        self._stepper.loss_sums.zero_()
        self._optimiser.skipped.zero_()
        speed = self._timed_tokens / max(1e-9, time.monotonic() - self._since)
        self.restart_clock()
        return {
            "loss": (forward + backward) / (2 * tokens),
            "forward": forward / tokens,
            "backward": backward / tokens,
            **({"nearby": nearby[0] / max(1.0, nearby[1])} if nearby else {}),
            "steps": steps,
            "skipped": skipped,
            "words_per_second": round(speed),
        }

    def state(self) -> MeterState:
        """What a resumed run needs to make the same next line."""
        skipped = int(self._optimiser.skipped)  # all processes see the same gradients, and count the same
        forward, backward, *nearby = self._sums()
        loss, number = nearby or (0.0, 0.0)
        return MeterState((forward, backward), self._tokens, self._steps, skipped, (loss, number))

    def load_state(self, state: MeterState, *, is_first: bool) -> None:
        """Continue from a state; the first process takes the losses of all."""
        self._tokens, self._steps = state.tokens, state.steps
        self._optimiser.skipped.fill_(state.skipped)
        if is_first:
            sums = self._stepper.loss_sums
            sums += sums.new_tensor([*state.sums, *state.nearby][: len(sums)])

    def _sums(self) -> list[float]:
        return self._total(self._stepper.loss_sums.tolist())


class RateGuard:
    """Halves the learning rates when too many steps are lost to gradients that are not finite.

    A lost step moves nothing, so a few do no harm. Many of them mean that the weights are where gradients explode
    through long sentences, and smaller steps lead away from there. The guard looks at whole windows of steps: what it
    decides follows from the counts in the log alone.

    Attributes:
        scale: the multiplier of the learning rates, 1 until the first time.

    Example:
        >>> guard = RateGuard()
        >>> [guard.count(20, lost) for lost in (1, 2, 1, 8)]  # steps of a line of the log, and how many were lost
        [False, False, False, True]
        >>> guard.scale
        0.5
    """

    WINDOW = 40  # steps
    FRACTION = 0.1  # of the steps of a window: losing more halves the rates
    LEAST = 10  # steps by which divergence is judged: a line of the log may be about a single one

    def __init__(self) -> None:
        self.scale, self._steps, self._lost = 1.0, 0, 0
        self._lines: deque[tuple[int, int]] = deque()  # the last ones of the log: steps, and how many were lost

    def find_divergence(self, steps: int, lost: int) -> str | None:
        """Why training must end: most of the last steps were lost, and smaller ones cannot help weights that stand.

        The last ones since the command was called: unlike the rates, this is not part of a checkpoint.

        Arguments:
            steps: of this line of the log.
            lost: how many of them were lost.
        """
        self._lines.append((steps, lost))
        while sum(each for each, _ in self._lines) - self._lines[0][0] >= self.LEAST:
            self._lines.popleft()
        steps, lost = map(sum, zip(*self._lines, strict=True))
        is_over = lost > max(1, steps / 2)  # a run that continues may begin with the one step that it loses
        return f"the gradients of {lost:,} of the last {steps:,} steps were not finite" if is_over else None

    def count(self, steps: int, lost: int) -> bool:
        """So many steps were made, so many of them lost; whether the rates were halved now."""
        self._steps, self._lost = self._steps + steps, self._lost + lost
        if self._steps < self.WINDOW:
            return False
        is_over = self._lost > self.FRACTION * self._steps
        self._steps, self._lost = 0, 0
        self.scale *= 0.5 if is_over else 1.0
        return is_over

    def state(self) -> GuardState:
        """What a resumed run needs to decide the same."""
        return GuardState(self.scale, self._steps, self._lost)

    def load_state(self, state: GuardState) -> None:
        """Continue from a state."""
        self.scale, self._steps, self._lost = state.scale, state.steps, state.lost


def write_tensorboard(folder: Path, *, then: Listener | None = None) -> Listener:
    """A listener that writes every number of the log for TensorBoard, by words seen, then tells the next one."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as problem:
        raise MissingExtra(
            "TensorBoard is not installed: pip install 'elmokit[train]', or leave out --tensorboard"
        ) from problem
    writers: list[SummaryWriter] = []

    def listen(line: dict[str, Any]) -> None:
        if not writers:  # from the first line on, what an interrupted run had written beyond it is hidden
            writers.append(SummaryWriter(str(folder), purge_step=line["tokens"]))
        for name, value in line.items():
            if name not in ("kind", "step", "tokens") and isinstance(value, (int, float)):
                writers[0].add_scalar(f"{line['kind']}/{name}", value, line["tokens"])
        writers[0].flush()
        if then is not None:
            then(line)

    return listen


def _is_by(line: str, step: int) -> bool:
    try:
        return json.loads(line)["step"] <= step
    except (json.JSONDecodeError, KeyError, TypeError):
        return False
