"""What learns when: the new output layer alone at first, then, if asked, one layer group after another.

Arrives: how many words a run has seen. Leaves: the layer groups that learn, and the multiplier of the learning rate.
Both are pure functions of that number, so a resumed run is in the stage in which it was killed. A network taken over
from another run must not be torn apart by the gradients of an output layer that knows nothing yet; and ULMFiT (Howard &
Ruder 2018) forgets less by letting the upper layers adapt before the lower ones.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from elmokit.pretrain.optim.schedules import rate_at
from elmokit.pretrain.recipes import TrainConfig

__all__ = ["Stages"]

HEAD_SHARE = 0.05  # of all words: how long a new output layer learns alone unless told
HEAD_WARMUP = 0.1  # of its time alone


@dataclass(frozen=True)
class Stages:
    """The stages of a run.

    Arguments:
        head_tokens: words during which the output layer learns alone.
        unfreeze_every: words after which the next layer group below joins; 0 lets all join at once.

    Example:
        >>> stages = Stages(head_tokens=100, unfreeze_every=50)
        >>> groups = ("words", "layer1", "layer2", "softmax")  # from the bottom to the top
        >>> [stages.learning(seen, groups)[0] for seen in (0, 99, 100, 149, 150, 200, 999)]
        ['softmax', 'softmax', 'layer2', 'layer2', 'layer1', 'words', 'words']
    """

    head_tokens: int = 0
    unfreeze_every: int = 0

    @classmethod
    def of(cls, config: TrainConfig, *, learns_output: bool) -> Stages:
        """The stages that a configuration asks for.

        Arguments:
            config: of the run.
            learns_output: an output layer without knowledge sits on a network that has some.
        """
        head_tokens = config.head_tokens
        if head_tokens is None:
            head_tokens = int(HEAD_SHARE * config.tokens) if learns_output else 0
        return cls(int(head_tokens), config.unfreeze_every)

    def learning(self, seen: int, groups: Sequence[str]) -> tuple[str, ...]:
        """The groups that learn after so many words, out of all `groups`, given from the bottom to the top."""
        alone = self.head_tokens or self.unfreeze_every
        if seen < alone:
            return tuple(groups[-1:])
        if not self.unfreeze_every:
            return tuple(groups)
        return tuple(groups[-2 - (seen - alone) // self.unfreeze_every :])

    def rate(self, done: int, config: TrainConfig) -> float:
        """The multiplier of the learning rate; the schedule begins when the output layer is no longer alone."""
        if not self.head_tokens:
            return config.rate(done)
        if done <= self.head_tokens:
            warmup = min(config.warmup_tokens, HEAD_WARMUP * self.head_tokens)
            return rate_at(done, decay="constant", total=self.head_tokens, warmup=warmup)
        rest = dataclasses.replace(config, tokens=max(1, config.tokens - self.head_tokens))
        return rest.rate(done - self.head_tokens)
