"""One LSTM layer with projection in one direction: its parameters and how they start.

The recurrence itself is an engine's business (`engines/`); this module only owns the weights. They lie as bilm-tf
wrote them, (in, out) and gates in the order i, j, f, o, so published files load without a copy and a formula reads
like the paper: x @ W.

Shapes: D input width, H cell width, P output width.
"""

from __future__ import annotations

import torch
from torch import nn

from elmokit.config import LstmConfig
from elmokit.engines import LstmpWeights

__all__ = ["Lstmp"]


class Lstmp(nn.Module):
    """The weights of a layer: input, recurrence, bias and, where the cell is wider than the output, projection."""

    def __init__(self, config: LstmConfig) -> None:
        super().__init__()
        cell_dim, output_dim = config.cell_dim, config.projection_dim
        # Every layer reads vectors as wide as its output: words at the bottom, outputs of the layer below above.
        self.input_weight = nn.Parameter(torch.empty(output_dim, 4 * cell_dim))
        self.recurrent_weight = nn.Parameter(torch.empty(output_dim, 4 * cell_dim))
        self.bias = nn.Parameter(torch.empty(4 * cell_dim))
        self.projection_weight = nn.Parameter(torch.empty(cell_dim, output_dim)) if config.has_projection else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw as bilm-tf does: Glorot-uniform over the joint kernel [input; hidden], forget bias 1."""
        fan_in = len(self.input_weight) + len(self.recurrent_weight)
        bound = (6 / (fan_in + self.bias.numel())) ** 0.5
        nn.init.uniform_(self.input_weight, -bound, bound)
        nn.init.uniform_(self.recurrent_weight, -bound, bound)
        with torch.no_grad():
            self.bias.zero_()
            cell_dim = self.bias.numel() // 4
            self.bias[2 * cell_dim : 3 * cell_dim] = 1.0
        if self.projection_weight is not None:
            nn.init.xavier_uniform_(self.projection_weight)

    def weights(self) -> LstmpWeights:
        """The parameters as engines take them."""
        return LstmpWeights(self.input_weight, self.recurrent_weight, self.bias, self.projection_weight)
