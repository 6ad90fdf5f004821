"""Held-out text: how well the network predicts what it is not trained on.

An encoded corpus with the training vocabulary arrives; perplexities leave, as `LanguageModel.perplexity` defines them:
full softmax, every sentence from the zero state, one prediction per word and one for the sentence's end.
"""

from __future__ import annotations

import math

import torch

from elmokit.pretrain.batches.sentences import SentenceReader
from elmokit.pretrain.corpus.encoded import EncodedCorpus
from elmokit.pretrain.network import LanguageModelNetwork, StepInputs
from elmokit.pretrain.place import Place
from elmokit.text.characters import Scheme

__all__ = ["HeldOut", "to_perplexity"]

TOKENS_PER_BATCH = 8192


class HeldOut:
    """Held-out text, of which each process reads its part.

    Arguments:
        corpus: the text, encoded with the vocabulary of the training corpus.
        scheme: of the model.
        place: this process among those that share the work.
        widest_filter: width of the model's widest convolution.
        tokens_per_batch: words read at once.
    """

    def __init__(
        self,
        corpus: EncodedCorpus,
        scheme: Scheme,
        place: Place,
        *,
        widest_filter: int = 7,
        tokens_per_batch: int = TOKENS_PER_BATCH,
    ) -> None:
        self.corpus, self.place = corpus, place
        self._reader = SentenceReader(
            corpus,
            scheme,
            tokens_per_batch=tokens_per_batch,
            widest_filter=widest_filter,
            rank=place.rank,
            world=place.world,
        )

    @torch.no_grad()
    def perplexity(self, network: LanguageModelNetwork) -> dict[str, float]:
        """Perplexity of each direction and their mean, computed in float32; all processes must ask."""
        device = next(network.parameters()).device
        sums_2 = torch.zeros(2, dtype=torch.float64, device=device)
        tokens, dtype = 0, network.dtype
        network.dtype = torch.float32
        try:
            for batch in self._reader.one_epoch():
                if batch.num_tokens:
                    _, losses_2, _ = network(StepInputs.of(batch, device), network.zero_state(batch.num_rows))
                    sums_2 += losses_2
                    tokens += batch.num_tokens
        finally:
            network.dtype = dtype
        forward, backward, tokens = self.place.total([*sums_2.tolist(), tokens])
        return {
            "forward": to_perplexity(forward / tokens),
            "backward": to_perplexity(backward / tokens),
            "mean": to_perplexity((forward + backward) / (2 * tokens)),
        }


def to_perplexity(loss: float) -> float:
    """The perplexity of a mean loss in nats."""
    return math.exp(min(loss, 700.0))  # a number that JSON can hold, however bad
