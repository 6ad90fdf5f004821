"""In which coordinates a trained model's vectors are written: those in which its output layer looks the same all round.

The loss sees an LSTM's outputs h only through the logits h · w of all words w. Any invertible matrix S can stand
between them, h S · S⁻¹ w, and nothing that the model predicts changes; but cosines of h do, and which of these equal
models training ends with is chance. We take the one whose rows S⁻¹ w have the same variance in all directions: the
dot product of two vectors h S is then that of their logits over the vocabulary (less each one's mean), so two words are
near when the model expects the same around them.

Much of what a model expects says nothing about the word at hand: whether a comma comes next, or the sentence ends. It
fills a few directions with vectors so long that a cosine sees little else. We shorten these directions, too, which
tells senses apart better (LOG.md, 2026-11-18).

Layer 0, the words themselves, is seen by the first LSTMs alone, through a linear map: its origin and its unit are free
in the same way. Training leaves all words around a point far from zero, and at a length of its own, so that any two
words look alike and the average of layers is mostly layer 0. We put the origin amid the frequent words, and give them
the length that the layers above have.

Shapes: V words of the output layer, N words, P width of an LSTM's outputs, L layers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from elmokit.errors import ConfigError
from elmokit.model import CANONICAL_SENTENCES, Elmo

if TYPE_CHECKING:
    from torch import Tensor

    from elmokit.config import LstmConfig
    from elmokit.io import Checkpoint

__all__ = ["average_models", "change_basis", "level_words", "shorten_directions"]

# No variance counts as less than this fraction of the average: with fewer words than coordinates, some directions have
# none.
LEAST_VARIANCE = 1e-2
# A direction of the outputs is shortened if it holds more than this fraction of their squared lengths, and more than
# so many times what it would hold if all directions were alike.
MOST_ENERGY, MOST_TIMES = 0.02, 2.0
WORDS_OF_A_SENTENCE = 100  # that are read of a longer one
SENTENCES_AT_ONCE = 32
FREQUENT_WORDS = 10_000  # among whose vectors layer 0 has its origin


def change_basis(
    config: LstmConfig, tensors: Mapping[str, Tensor], softmax: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The same language model in the coordinates of its output layer; all that it predicts stays, up to rounding.

    Given back unchanged are models whose coordinates cannot be chosen: their outputs are clipped or come without a
    projection.

    Arguments:
        config: of the LSTMs.
        tensors: weights by name, of which those of the LSTMs change.
        softmax: the output layer's, by name.
    """
    if not _can_choose(config):
        return dict(tensors), dict(softmax)
    variance_P, axes_PP = torch.linalg.eigh(torch.cov(softmax["softmax.weight"].double().T, correction=0))
    average = variance_P.mean()
    scale_P = (variance_P / average).clamp_min(LEAST_VARIANCE).sqrt() if average > 0 else torch.ones_like(variance_P)
    return _change_outputs(config, tensors, softmax, *_scale_along(axes_PP, scale_P))


@torch.no_grad()
def shorten_directions(
    checkpoint: Checkpoint, softmax: Mapping[str, Tensor], sentences: Sequence[Sequence[str]]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The same language model with no direction of its outputs much longer than the others.

    All that it predicts stays, up to rounding. Models whose coordinates cannot be chosen (`change_basis`) are given
    back unchanged.

    Arguments:
        checkpoint: the model, in the coordinates of its output layer.
        softmax: the output layer's weights, by name.
        sentences: text of the kind that it was trained on, a few hundred sentences.
    """
    config = checkpoint.config.lstm
    if not _can_choose(config) or not any(sentences):
        return dict(checkpoint.tensors), dict(softmax)
    elmo = Elmo.from_checkpoint(checkpoint).eval()
    sentences = sorted((words[:WORDS_OF_A_SENTENCE] for words in sentences if words), key=len)
    moment_PP = torch.zeros(config.projection_dim, config.projection_dim, dtype=torch.double)
    for start in range(0, len(sentences), SENTENCES_AT_ONCE):
        output = elmo(elmo.word_ids(sentences[start : start + SENTENCES_AT_ONCE]))
        # The output layer serves both directions, and residuals tie the layers, so all have the same coordinates.
        outputs_NP = torch.cat(output.layers[1:, output.mask].double().flatten(0, 1).chunk(2, dim=1))
        moment_PP += outputs_NP.T @ outputs_NP
    energy_P, axes_PP = torch.linalg.eigh(moment_PP)
    most = energy_P.sum() * max(MOST_ENERGY, MOST_TIMES / len(energy_P))
    scale_P = (most / energy_P.clamp_min(torch.finfo(torch.double).tiny)).clamp_max(1).sqrt()
    return _change_outputs(config, checkpoint.tensors, softmax, *_scale_along(axes_PP, scale_P))


def average_models(first: Checkpoint, second: Checkpoint) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The mean of two models' weights, in the first one's coordinates: its tensors, and those of its output layer.

    It is a useful model only if training led from the first to the second at small learning rates; it can then predict
    better than either (weight averaging). Each was saved in coordinates of its own, so the second's outputs are changed
    by the matrix that brings its output layer nearest to the first one's, and its layer 0 by a factor.

    Arguments:
        first: a model with its output layer.
        second: the other, of the same shape and vocabulary.
    """
    for what, one, other in (
        ("model", first.config, second.config),
        ("alphabet", first.alphabet, second.alphabet),
        ("table of words", first.vocabulary, second.vocabulary),
        ("vocabulary of the output layer", first.output_words, second.output_words),
    ):
        if one != other:
            raise ConfigError(f"two models have no mean unless one was trained on from the other: not the same {what}")
    if first.softmax is None or second.softmax is None:
        raise ConfigError("two models have a mean only together with their output layers, and one has none")
    tensors, softmax = dict(second.tensors), dict(second.softmax)
    if _can_choose(first.config.lstm):
        ours_VP, theirs_VP = first.softmax["softmax.weight"].double(), softmax["softmax.weight"].double()
        if len(theirs_VP) < theirs_VP.shape[1]:
            raise ConfigError(
                f"an output layer of {len(theirs_VP)} words does not tell the coordinates of {theirs_VP.shape[1]} "
                "numbers: two models have a mean only with as many words"
            )
        map_PP = torch.linalg.lstsq(theirs_VP, ours_VP).solution
        tensors, softmax = _change_outputs(
            first.config.lstm, tensors, softmax, there_PP=torch.linalg.inv(map_PP).T, back_PP=map_PP.T
        )
    if first.config.projects_words:
        ours, theirs = (each["encoder.projection.weight"].double() for each in (first.tensors, tensors))
        _scale_words(tensors, (ours * theirs).sum() / theirs.square().sum())
    return _mean(first.tensors, tensors), _mean(first.softmax, softmax)


def _mean(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: ((one.double() + second.get(name, one).double()) / 2).float() for name, one in first.items()}


def _can_choose(config: LstmConfig) -> bool:
    return config.projection_clip is None and config.has_projection


def _scale_along(axes_PP: Tensor, scale_P: Tensor) -> tuple[Tensor, Tensor]:
    """The matrix that scales vectors along these axes (columns), and the one that undoes it."""
    return axes_PP * scale_P @ axes_PP.T, axes_PP / scale_P @ axes_PP.T


def _change_outputs(
    config: LstmConfig,
    tensors: Mapping[str, Tensor],
    softmax: Mapping[str, Tensor],
    there_PP: Tensor,
    back_PP: Tensor,
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The same language model with all outputs h of its LSTMs as h @ there; `back` undoes that."""
    tensors, softmax = dict(tensors), dict(softmax)

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
    softmax["softmax.weight"] = (softmax["softmax.weight"].double() @ back_PP.T).float()
    return tensors, softmax


@torch.no_grad()
def level_words(checkpoint: Checkpoint, words: Sequence[str]) -> dict[str, Tensor]:
    """The same model with layer 0 around zero and as long as the layers above; all above it stays, up to rounding.

    Given back unchanged are models whose words come straight from a table, which no linear map follows.

    Arguments:
        checkpoint: the model.
        words: its vocabulary, the most frequent first.
    """
    tensors, config = dict(checkpoint.tensors), checkpoint.config
    if not config.projects_words or not words:
        return tensors
    elmo = Elmo.from_checkpoint(checkpoint).eval()
    ids_NC = elmo.word_ids([[word] for word in words[:FREQUENT_WORDS]])[:, 0]
    words_NP = elmo.encode_words(ids_NC).double()
    middle_P = words_NP.mean(dim=0)
    output = elmo(elmo.word_ids([sentence.split() for sentence in CANONICAL_SENTENCES]))
    lengths_L = output.layers[:, output.mask].norm(dim=-1).mean(dim=-1).double()
    length = (words_NP - middle_P).norm(dim=1).mean() * 2**0.5  # layer 0 is the vector twice, side by side
    factor = lengths_L[1:].mean() / length if length > 0 else torch.ones(())
    _scale_words(tensors, factor, middle_P)
    return tensors


def _scale_words(tensors: dict[str, Tensor], factor: Tensor, middle_P: Tensor | None = None) -> None:
    """Change layer 0 to (layer 0 - middle) * factor; what the first LSTMs make of it stays."""
    weight, bias = (tensors[f"encoder.projection.{part}"].double() for part in ("weight", "bias"))
    middle_P = torch.zeros_like(bias) if middle_P is None else middle_P
    tensors["encoder.projection.weight"] = (weight * factor).float()
    tensors["encoder.projection.bias"] = ((bias - middle_P) * factor).float()
    for direction in ("forward", "backward"):
        layer = f"bilm.{direction}_layers.0."
        input_weight = tensors[layer + "input_weight"].double()
        tensors[layer + "bias"] = (tensors[layer + "bias"].double() + middle_P @ input_weight).float()
        tensors[layer + "input_weight"] = (input_weight / factor).float()
