"""Held-out text: how well the network predicts what it is not trained on.

A reader of encoded text arrives, with the training vocabulary; perplexities leave, as `LanguageModel.perplexity`
defines them: full softmax, every sentence from the zero state, one prediction per word and one for the sentence's end.
"""

from __future__ import annotations

import math

import torch

from elmokit.pretrain.batches.sentences import SentenceReader
from elmokit.pretrain.network import LanguageModelNetwork, StepInputs
from elmokit.pretrain.place import Place, choose_sum_dtype

__all__ = ["measure_perplexity", "to_perplexity"]


@torch.no_grad()
def measure_perplexity(network: LanguageModelNetwork, reader: SentenceReader, place: Place) -> dict[str, float]:
    """Perplexity of each direction and their mean, computed in float32; all processes must ask.

    Arguments:
        network: what predicts.
        reader: of this process's part of the text.
        place: this process among those that share the work.
    """
    device = next(network.parameters()).device
    sums_2 = torch.zeros(2, dtype=choose_sum_dtype(device), device=device)
    tokens, dtype = 0, network.dtype
    network.dtype = torch.float32
    try:
        for batch in reader.one_epoch():
            if batch.num_tokens:
                _, losses_2, _ = network(StepInputs.of(batch, device), network.zero_state(batch.num_rows))
                sums_2 += losses_2
                tokens += batch.num_tokens
    finally:
        network.dtype = dtype
    forward, backward, tokens = place.total([*sums_2.tolist(), tokens])
    return {
        "forward": to_perplexity(forward / tokens),
        "backward": to_perplexity(backward / tokens),
        "mean": to_perplexity((forward + backward) / (2 * tokens)),
    }


def to_perplexity(loss: float) -> float:
    """The perplexity of a mean loss in nats."""
    return math.exp(min(loss, 700.0))  # a number that JSON can hold, however bad
