"""The contextual layers of task models: a recurrent layer in both directions, and dropout that suits it.

Padded words and their number in each row arrive; what each word has become in its context leaves. Padding stands
behind the words for both directions (the backward one reads its rows turned round), so a row's result does not depend
on its company. Rows are not packed: for those torch has cuDNN launch several kernels per word, where narrow layers over
padded rows are one kernel; and a CPU takes a half to five sixths of the time (LOG.md).

Shapes: B batch, W words, N = B · W places, D width, H hidden width of one direction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

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
        widths = [dim] + [2 * hidden] * (num_layers - 1)
        self.layers = nn.ModuleList(_BothWays(width, hidden, kind) for width in widths)
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
        mask_BW1, turned_N = _reverse_rows(lengths, words_BWD)
        for number, layer in enumerate(self.layers):
            given_BWD = self.dropout(words_BWD) if number else words_BWD
            words_BWD = layer(given_BWD, turned_N) * mask_BW1
        return words_BWD


class _BothWays(nn.Module):
    """One layer: a direction that reads the rows, and one that reads them turned round."""

    def __init__(self, dim: int, hidden: int, kind: Kind) -> None:
        super().__init__()
        layer = nn.LSTM if kind == "lstm" else nn.GRU
        self.onwards, self.backwards = (layer(dim, hidden, batch_first=True) for _ in range(2))

    def forward(self, words_BWD: Tensor, turned_N: Tensor) -> Tensor:
        onward_BWH = self.onwards(words_BWD)[0]
        backward_BWH = self.backwards(_Rearranged.apply(words_BWD, turned_N))[0]
        return torch.cat([onward_BWH, _Rearranged.apply(backward_BWH, turned_N)], dim=2)


def _reverse_rows(lengths: Sequence[int], words_BWD: Tensor) -> tuple[Tensor, Tensor]:
    """A mask (B, W, 1) of where words are, and among all N places that of the word to read when rows are turned round.

    Example:
        >>> _reverse_rows([1, 3], torch.zeros(2, 3, 4))[1].tolist()
        [0, 1, 2, 5, 4, 3]
    """
    batch, width = words_BWD.shape[:2]
    lengths_B1 = torch.tensor(lengths).unsqueeze(1).to(words_BWD.device, non_blocking=True)
    place_W = torch.arange(width, device=words_BWD.device)
    mask_BW = place_W < lengths_B1
    turned_BW = torch.where(mask_BW, lengths_B1 - 1 - place_W, place_W)
    turned_BW += width * torch.arange(batch, device=words_BWD.device).unsqueeze(1)
    return mask_BW.unsqueeze(2), turned_BW.flatten()


class _Rearranged(torch.autograd.Function):
    """Words moved by an order that is its own inverse: gradients move the same way, and nothing is summed."""

    @staticmethod
    def forward(ctx: Any, words_BWD: Tensor, order_N: Tensor) -> Tensor:  # noqa: ANN401
        ctx.save_for_backward(order_N)
        return words_BWD.flatten(0, 1).index_select(0, order_N).view_as(words_BWD)

    @staticmethod
    def backward(ctx: Any, grad_BWD: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        (order_N,) = ctx.saved_tensors
        return grad_BWD.flatten(0, 1).index_select(0, order_N).view_as(grad_BWD), None


class VariationalDropout(nn.Module):
    """Dropout that drops the same features of all words of a row (Gal and Ghahramani 2016).

    Arguments:
        rate: fraction of features that are dropped.
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
