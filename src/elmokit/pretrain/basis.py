"""In which coordinates a trained model's vectors are written: those in which its output layer looks the same all round.

The loss sees an LSTM's outputs h only through the logits h · w of all words w. Any invertible matrix S can stand
between them, h S · S⁻¹ w, and nothing that the model predicts changes; but cosines of h do, and which of these equal
models training ends with is chance. We take the one whose rows S⁻¹ w have the same variance in all directions: the
dot product of two vectors h S is then that of their logits over the vocabulary (less each one's mean), so two words are
near when the model expects the same around them.

Shapes: V words of the output layer, P width of an LSTM's outputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from elmokit.config import LstmConfig

__all__ = ["change_basis"]

# No variance counts as less than this fraction of the average: with fewer words than coordinates, some directions have
# none.
LEAST_VARIANCE = 1e-2


def change_basis(
    config: LstmConfig, tensors: Mapping[str, Tensor], softmax: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The same language model in the coordinates of its output layer; all that it predicts stays, up to rounding.

    Given back unchanged are models whose coordinates cannot be chosen: outputs that are clipped or come without a
    projection, and an output layer that is no plain softmax.

    Arguments:
        config: of the LSTMs.
        tensors: weights by name, of which those of the LSTMs change.
        softmax: the output layer's, by name.
    """
    tensors, softmax = dict(tensors), dict(softmax)
    if config.projection_clip is not None or not config.has_projection or "softmax.weight" not in softmax:
        return tensors, softmax
    weight_VP = softmax["softmax.weight"].double()
    variance_P, axes_PP = torch.linalg.eigh(torch.cov(weight_VP.T, correction=0))
    average = variance_P.mean()
    scale_P = (variance_P / average).clamp_min(LEAST_VARIANCE).sqrt() if average > 0 else torch.ones_like(variance_P)
    there_PP, back_PP = axes_PP * scale_P @ axes_PP.T, axes_PP / scale_P @ axes_PP.T

    def change(name: str, left_PP: Tensor | None = None, right_PP: Tensor | None = None) -> None:
        value = tensors[name].double()
        value = value if left_PP is None else left_PP @ value
        tensors[name] = (value if right_PP is None else value @ right_PP).float()

    for direction in ("forward", "backward"):
        for number in range(config.num_layers):
            layer = f"bilm.{direction}_layers.{number}."
            change(layer + "projection_weight", right_PP=there_PP)
            change(layer + "recurrent_weight", left_PP=back_PP)
            if number > 0:  # the first layer reads words, which keep their coordinates
                change(layer + "input_weight", left_PP=back_PP)
    softmax["softmax.weight"] = (weight_VP @ back_PP).float()
    return tensors, softmax
