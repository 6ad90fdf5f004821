"""The contextual layer that most task models share: a biLSTM over packed sentences, and dropout that fits it.

Features (B, W, F) arrive, what both directions know at each word (B, W, 2H) leaves; zeros where no word is.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

__all__ = ["BiLSTM", "VariationalDropout"]


class VariationalDropout(nn.Module):
    """Dropout with one mask for all words of a sentence (Gal & Ghahramani 2016).

    Arguments:
        rate: share of the features that are dropped.

    Example:
        >>> dropped_BWF = VariationalDropout(0.5)(torch.ones(1, 3, 8))
        >>> bool((dropped_BWF[:, 0] == dropped_BWF[:, 1]).all())
        True
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, features_BWF: Tensor) -> Tensor:
        """The features, some of them 0 and the others larger."""
        if not self.training or not self.rate:
            return features_BWF
        ones_B1F = torch.ones_like(features_BWF[:, :1])
        return features_BWF * nn.functional.dropout(ones_B1F, self.rate)


class BiLSTM(nn.Module):
    """A stack of bidirectional LSTM layers.

    Arguments:
        input_dim: F.
        hidden: H, of each direction.
        num_layers: of the stack.
        dropout: variational, between the layers.

    Example:
        >>> BiLSTM(8, 16)(torch.zeros(2, 5, 8), [5, 3]).shape
        torch.Size([2, 5, 32])
    """

    def __init__(self, input_dim: int, hidden: int, *, num_layers: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        widths = [input_dim] + [2 * hidden] * (num_layers - 1)
        self.layers = nn.ModuleList(nn.LSTM(width, hidden, batch_first=True, bidirectional=True) for width in widths)
        self.dropout = VariationalDropout(dropout)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Orthogonal recurrent weights, biases 0 but 1 for the forget gate."""
        for layer in self.layers:
            assert isinstance(layer, nn.LSTM)
            for name, weight in layer.named_parameters():
                if "weight_hh" in name:
                    for gate in weight.data.chunk(4):
                        nn.init.orthogonal_(gate)
                elif "weight_ih" in name:
                    for gate in weight.data.chunk(4):
                        nn.init.xavier_uniform_(gate)
                else:
                    nn.init.zeros_(weight)
                    if "bias_ih" in name:
                        weight.data.chunk(4)[1].fill_(1.0)

    def forward(self, features_BWF: Tensor, lengths: Sequence[int]) -> Tensor:
        """What each word is in its sentence, (B, W, 2H)."""
        longest = features_BWF.shape[1]
        # An empty sentence is read as one word of zeros, which nobody looks at.
        counts = torch.tensor([max(1, length) for length in lengths])
        for number, layer in enumerate(self.layers):
            given = self.dropout(features_BWF) if number else features_BWF
            packed = pack_padded_sequence(given, counts, batch_first=True, enforce_sorted=False)
            features_BWF, _ = pad_packed_sequence(layer(packed)[0], batch_first=True, total_length=longest)
        return features_BWF
