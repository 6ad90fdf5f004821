"""TaskOptimiser: a loss arrives, weights move. Adam for the head, ULMFiT's three tools for a biLM that learns too.

The head learns at the config's rate, which is constant, halved on a plateau, or follows ULMFiT's slanted triangle. A
tuned biLM (`tune_elmo`) has one layer group for its words and one for each LSTM layer: groups below the top learn 2.6
times slower each (discriminative rates), join one per epoch from the top down (gradual unfreezing), and always follow
the slanted triangle (Howard & Ruder 2018). A running average of the weights, where asked for, is what is scored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from elmokit.tasks.base import TaskModel
from elmokit.tasks.config import TrainingConfig

__all__ = ["TaskOptimiser", "slanted_triangle"]

LAYER_DECAY = 2.6
PEAK, RATIO = 0.1, 32  # of the triangle: where it is highest, and how many times lower it begins and ends


class TaskOptimiser:
    """Moves the weights of a task model.

    Arguments:
        model: the model.
        config: rates, schedule, clipping, average.
        steps_per_epoch: for the schedule.
    """

    def __init__(self, model: TaskModel, config: TrainingConfig, *, steps_per_epoch: int) -> None:
        self.config = config
        self._total = steps_per_epoch * config.epochs
        self._done = 0
        self._halvings = 0
        tuned = model.inputs.tuned
        below = [] if tuned is None else list(_layer_groups(tuned))
        inside = {id(weight) for group in below for weight in group}
        head = [weight for weight in model.parameters() if weight.requires_grad and id(weight) not in inside]
        groups = [{"params": head, "base": config.learning_rate}]
        groups += [
            {"params": group, "base": config.elmo_learning_rate / LAYER_DECAY**depth}
            for depth, group in enumerate(below)
        ]
        self._adam = torch.optim.AdamW(groups, lr=config.learning_rate, weight_decay=config.weight_decay, fused=True)
        self._weights: list[Tensor] = [weight for group in groups for weight in group["params"]]
        self._averages = self.copy_weights() if config.average else []
        self._num_groups = 1

    @property
    def num_weights(self) -> int:
        """Numbers that learn."""
        return sum(weight.numel() for weight in self._weights)

    @property
    def rate(self) -> float:
        """The head's learning rate at the last step."""
        return self._adam.param_groups[0]["lr"]

    def begin_epoch(self, epoch: int) -> None:
        """One layer group more joins in each epoch."""
        self._num_groups = 1 + epoch

    def step(self, loss: Tensor) -> None:
        """One update."""
        self._done += 1
        triangle = slanted_triangle(self._done, self._total)
        for number, group in enumerate(self._adam.param_groups):
            if number >= self._num_groups:
                group["lr"] = 0.0
            elif number or self.config.schedule == "slanted":
                group["lr"] = group["base"] * triangle
            else:
                group["lr"] = group["base"] * 0.5**self._halvings
        self._adam.zero_grad(set_to_none=True)
        loss.backward()
        for group in self._adam.param_groups[self._num_groups :]:
            for weight in group["params"]:
                weight.grad = None  # neither moves, nor counts in the norm
        if self.config.clip_norm:
            nn.utils.clip_grad_norm_(self._weights, self.config.clip_norm)
        self._adam.step()
        if self._averages:
            kept = min(self.config.average, self._done / (10 + self._done))  # the first steps are forgotten soon
            with torch.no_grad():
                torch._foreach_lerp_(self._averages, self._weights, 1 - kept)  # pyright: ignore[reportPrivateImportUsage]

    def end_epoch(self, *, epochs_since_best: int) -> None:
        """Halve the rate when the score has not risen for `plateau` epochs."""
        if self.config.schedule == "plateau" and epochs_since_best and epochs_since_best % self.config.plateau == 0:
            self._halvings += 1

    @contextmanager
    def averaged_weights(self) -> Iterator[None]:
        """The model has the running average of its weights inside, where there is one."""
        kept = self.copy_weights() if self._averages else []
        self.load_weights(self._averages)
        yield
        self.load_weights(kept)

    def copy_weights(self) -> list[Tensor]:
        """The weights as they are now."""
        return [weight.detach().clone() for weight in self._weights]

    @torch.no_grad()
    def load_weights(self, values: Sequence[Tensor]) -> None:
        """Give the model these weights; none leaves it as it is."""
        for weight, value in zip(self._weights, values, strict=bool(values)):
            weight.copy_(value)


def slanted_triangle(done: int, total: int) -> float:
    """The multiplier of a learning rate: from 1/32 up to 1 at a tenth of the way, then down to 1/32 again.

    Example:
        >>> [round(slanted_triangle(step, 100), 3) for step in (0, 5, 10, 55, 100)]
        [0.031, 0.516, 1.0, 0.516, 0.031]
    """
    top = PEAK * total
    height = done / top if done < top else 1 - min(1.0, (done - top) / max(1e-9, total - top))
    return (1 + height * (RATIO - 1)) / RATIO


def _layer_groups(elmo: nn.Module) -> Iterator[list[nn.Parameter]]:
    """The parameters of a biLM from its top layer down to its words."""
    stacks = [elmo.bilm.forward_layers, elmo.bilm.backward_layers]  # pyright: ignore
    for number in reversed(range(len(stacks[0]))):  # pyright: ignore[reportArgumentType]
        yield [weight for stack in stacks for weight in stack[number].parameters()]  # pyright: ignore
    yield list(elmo.encoder.parameters())  # pyright: ignore
