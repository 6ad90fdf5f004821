"""The contextual layers of task models: a recurrent layer in both directions, and dropout that suits it.

Padded words and their number in each row arrive; what each word has become in its context leaves. Padding is not read,
so a row's result does not depend on its company.

Shapes: B batch, W words, D width, H hidden width of one direction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from elmokit.errors import ConfigError

__all__ = ["BiRecurrent", "VariationalDropout"]

Kind = Literal["lstm", "gru"]


class BiRecurrent(nn.Module):
    """Recurrent layers that read each row forward and backward.

    Arguments:
        dim: D, width of what comes.
        hidden: H, so 2H is the width of what leaves.
        kind: `"lstm"` or `"gru"`.
        num_layers: stacked layers, each over both directions of the one below.
        dropout: variational, between the layers.

    Example:
        >>> layer = BiRecurrent(4, 3)
        >>> layer(torch.ones(2, 5, 4), [5, 2]).shape
        torch.Size([2, 5, 6])
    """

    def __init__(
        self, dim: int, hidden: int, *, kind: Kind = "lstm", num_layers: int = 1, dropout: float = 0.0
    ) -> None:
        super().__init__()
        if kind not in get_args(Kind):
            raise ConfigError(f"a recurrent layer is {' or '.join(get_args(Kind))}, not {kind!r}")
        layer = nn.LSTM if kind == "lstm" else nn.GRU
        widths = [dim] + [2 * hidden] * (num_layers - 1)
        self.layers = nn.ModuleList(layer(width, hidden, bidirectional=True, batch_first=True) for width in widths)
        self.dropout = VariationalDropout(dropout)
        self.output_dim = 2 * hidden
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Orthogonal recurrent weights, Xavier's for the input, biases 0 but 1 for an LSTM's forget gate."""
        for name, weight in self.named_parameters():
            gates = weight.data.chunk(weight.shape[0] // (self.output_dim // 2))
            for gate in gates:
                if "weight_hh" in name:
                    nn.init.orthogonal_(gate)
                elif "weight_ih" in name:
                    nn.init.xavier_uniform_(gate)
                else:
                    nn.init.zeros_(gate)
            if "bias_ih" in name and len(gates) == 4:
                nn.init.ones_(gates[1])

    def forward(self, words_BWD: Tensor, lengths: Sequence[int]) -> Tensor:
        """The words in context (B, W, 2H), zeros where no word is."""
        # A row without words reads one step of padding: torch packs no empty rows.
        counts_B = torch.tensor(lengths).clamp(min=1)
        for number, layer in enumerate(self.layers):
            given = self.dropout(words_BWD) if number else words_BWD
            packed = pack_padded_sequence(given, counts_B, batch_first=True, enforce_sorted=False)
            words_BWD = pad_packed_sequence(layer(packed)[0], batch_first=True, total_length=words_BWD.shape[1])[0]
        return words_BWD


class VariationalDropout(nn.Module):
    """Dropout that drops the same features of all words of a row (Gal and Ghahramani 2016).

    Arguments:
        rate: share of features that are dropped.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        if not 0 <= rate < 1:
            raise ConfigError(f"dropout is {rate}: expected 0 or more, below 1")
        self.rate = rate

    def forward(self, words_BWD: Tensor) -> Tensor:
        """The words, in training with features dropped and the others scaled up."""
        if not self.training or not self.rate:
            return words_BWD
        kept_B1D = torch.empty_like(words_BWD[:, :1]).bernoulli_(1 - self.rate)
        return words_BWD * (kept_B1D / (1 - self.rate))

    def extra_repr(self) -> str:
        """What `print(model)` shows: the rate."""
        return f"rate={self.rate}"
