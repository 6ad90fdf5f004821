# pyright: reportPrivateImportUsage=false
# torch._foreach_*: one launch for many tensors, and torch has no public name for it.
"""A running mean of the weights, which often predicts better than the weights themselves.

Arrives: a network that learns. Leaves: the mean of its weights over about the last so many words, on request in the
network's own place. Steps scatter the weights around a better point; the mean is near it without waiting for the
learning rate to fall. It follows from the steps alone, so a resumed run has the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["WeightAverage"]

EVERY = 8  # steps between updates: the weights of neighbouring steps hardly differ


class WeightAverage:
    """The mean of a network's weights, older ones counting exponentially less.

    Arguments:
        network: whose weights.
        tokens: words after which a step counts 1/e.

    Example:
        >>> network = nn.Linear(1, 1, bias=False)
        >>> average = WeightAverage(network, tokens=1000)
        >>> for value in (1.0, 3.0):
        ...     _ = nn.init.constant_(network.weight, value)
        ...     average.update(words=1)
        >>> with average.applied():
        ...     network.weight.item()
        2.0
        >>> network.weight.item()
        3.0
    """

    def __init__(self, network: nn.Module, *, tokens: int) -> None:
        self.tokens = tokens
        self._weights = [parameter.detach() for parameter in network.parameters()]
        self._means: list[Tensor] = []
        self._updates, self._steps, self._words = 0, 0, 0

    def count(self, words: int) -> None:
        """A step was made, of so many words."""
        self._steps, self._words = self._steps + 1, self._words + words
        if self._steps % EVERY == 0:
            self.update(self._words)
            self._words = 0

    @torch.no_grad()
    def update(self, words: int) -> None:
        """Let the weights of now, those of the last so many words, join the mean."""
        self._updates += 1
        if not self._means:
            self._means = [weight.clone() for weight in self._weights]
            return
        # A plain mean at first, so that the first weights count no more than those that follow.
        share = max(1 / self._updates, -math.expm1(-words / self.tokens))
        torch._foreach_lerp_(self._means, self._weights, share)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The network with the mean of its weights, for a while."""
        if not self._means:
            yield
            return
        kept = [weight.clone() for weight in self._weights]
        torch._foreach_copy_(self._weights, self._means)
        try:
            yield
        finally:
            torch._foreach_copy_(self._weights, kept)

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs to go on exactly."""
        counts = {"updates": self._updates, "steps": self._steps, "words": self._words}
        return {"means": list(self._means), **counts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from this state."""
        self._means = [mean.to(weight) for mean, weight in zip(state["means"], self._weights, strict=False)]
        self._updates, self._steps, self._words = state["updates"], state["steps"], state["words"]
