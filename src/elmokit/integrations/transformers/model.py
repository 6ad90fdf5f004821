"""ELMo as models of transformers: the layers and their mix, a label for each word, a label for each sentence.

Arrives: `input_ids` (B, W, C) of an `ElmoTokenizer` and, if need be, its `attention_mask` (B, W). Leaves: what
transformers' own models return, the mix of the layers being `last_hidden_state` and the layers `hidden_states`. It is
`elmokit.Elmo` that computes; its parts are registered here under the names that elmokit's files use, so that weights
need no translation. All of it learns, as usual in transformers, until `freeze_bilm` leaves only the mix and the
classifier.

Shapes: B sentences, W words, C columns of ids, D width of a layer, L layers with the context-free one.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NoReturn, cast

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel  # pyright: ignore[reportMissingImports]
from transformers.modeling_outputs import BaseModelOutput, SequenceClassifierOutput, TokenClassifierOutput  # pyright: ignore[reportMissingImports]

from elmokit import io
from elmokit.errors import CheckpointError, EngineError, InputError
from elmokit.integrations.transformers.config import ElmoConfig, check_source
from elmokit.model import Elmo
from elmokit.nn.scalar_mix import ScalarMix
from elmokit.text.characters import Scheme

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["ElmoForSequenceClassification", "ElmoForTokenClassification", "ElmoModel"]


class ElmoPreTrainedModel(PreTrainedModel):
    """What the models below share: where they come from, and how new weights are drawn."""

    config_class = ElmoConfig
    config: ElmoConfig
    base_model_prefix = "elmo"
    main_input_name = "input_ids"
    # A folder of elmokit may have no mix, which then is the average, and may have a state, which is not used here.
    _keys_to_ignore_on_load_missing = [r"mix\.(weights|gamma)$"]
    _keys_to_ignore_on_load_unexpected = [r"^canonical\."]

    @classmethod
    def from_elmokit(cls, source: str | os.PathLike[str], **settings: Any) -> Self:  # noqa: ANN401
        """The model of any source that elmokit loads; `save_pretrained` then writes it for transformers.

        Arguments:
            source: a model's name, a folder, a `.zip` or a hub id, in any of the known formats.
            settings: of its `ElmoConfig`, such as `dropout=0.1` or, for a classifier, `num_labels=5`.
        """
        checkpoint = io.load(source)
        model = cls(ElmoConfig.from_checkpoint(checkpoint, **settings))
        # Of what `io.load` has checked only a mix may be missing, and only a canonical state is left over.
        model.base_model.load_state_dict(checkpoint.tensors, strict=False)
        return model.eval()

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """The model of a folder or a hub id, as in all models of transformers."""
        if pretrained_model_name_or_path is not None:
            check_source(pretrained_model_name_or_path)
        return super().from_pretrained(pretrained_model_name_or_path, *args, **kwargs)

    def freeze_bilm(self) -> None:
        """Leave only the mix of the layers, and a classifier if there is one, to learn: ELMo as a feature extractor."""
        elmo = cast(ElmoModel, self.base_model)
        elmo.encoder.requires_grad_(False)
        elmo.bilm.requires_grad_(False)

    def _init_weights(self, module: nn.Module) -> None:
        """Draw the weights that no file had, by the module's own rule; transformers' would be another network."""
        if isinstance(module, ScalarMix):
            nn.init.zeros_(module.weights)
            nn.init.ones_(module.gamma)
        elif callable(reset := getattr(module, "reset_parameters", None)):
            reset()

    def _returns_dict(self, asked: bool | None) -> bool:
        return bool(self.config.return_dict if asked is None else asked)

    def _replicate_for_data_parallel(self) -> NoReturn:
        raise EngineError(
            "torch's DataParallel, which Trainer takes where one process sees several GPUs, cannot copy this model: "
            "start with `torchrun --nproc-per-node=NUMBER`, or show it one GPU with CUDA_VISIBLE_DEVICES=0"
        )


class ElmoModel(ElmoPreTrainedModel):
    """The vectors of words in their sentences."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        if config.format_version != 1:
            raise CheckpointError(
                f"expected weights stored as floating-point numbers (format_version 1), found format_version "
                f"{config.format_version}, which stores int8: read it with from_elmokit, and save that"
            )
        network = Elmo(config.network, scheme=_Boundaries(config), dropout=config.dropout, requires_grad=True)
        self.encoder, self.bilm, self.dropout = network.encoder, network.bilm, network.dropout
        self.mix = cast(ScalarMix, network.mixes[0])
        self._network = (network,)  # in a tuple: its parts, registered above, are all that has weights
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> BaseModelOutput | tuple[Tensor, ...]:
        """The mix (B, W, D) of the layers as `last_hidden_state`, zeros where no word is.

        Arguments:
            input_ids: (B, W, C), 0 where no word is.
            attention_mask: (B, W), 0 for words that are not to be read, which may only be the last ones of a sentence.
            output_hidden_states: also give the L layers (B, W, D), from the context-free one up.
            return_dict: an object with names, which is the default, or a tuple.
        """
        _check_ids(input_ids, self._network[0].scheme.columns)
        if attention_mask is not None:
            input_ids = input_ids * attention_mask.to(input_ids).unsqueeze(-1)
        out = self._network[0](input_ids)
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        hidden_states = out.layers.unbind(0) if output_hidden_states else None
        output = BaseModelOutput(last_hidden_state=cast(Any, out.mixes[0]), hidden_states=cast(Any, hidden_states))
        return output if self._returns_dict(return_dict) else output.to_tuple()


class ElmoForTokenClassification(ElmoPreTrainedModel):
    """A label for each word: a linear layer on the mix."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        self.elmo = ElmoModel(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> TokenClassifierOutput | tuple[Tensor, ...]:
        """The logits (B, W, labels), and with `labels` (B, W) the loss of those that are not -100."""
        out = self.elmo(input_ids, attention_mask, output_hidden_states, return_dict=True)
        logits = self.classifier(out.last_hidden_state)
        loss = None if labels is None else self.loss_function(logits, labels, self.config)
        output = TokenClassifierOutput(loss=loss, logits=logits, hidden_states=out.hidden_states)
        return output if self._returns_dict(return_dict) else output.to_tuple()


class ElmoForSequenceClassification(ElmoPreTrainedModel):
    """A label, several, or a number for each sentence: a linear layer on the mean and the maximum over its words."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__(config)
        self.elmo = ElmoModel(config)
        self.classifier = nn.Linear(2 * config.hidden_size, config.num_labels)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> SequenceClassifierOutput | tuple[Tensor, ...]:
        """The logits (B, labels), and with `labels` the loss, of the kind that `config.problem_type` says."""
        out = self.elmo(input_ids, attention_mask, output_hidden_states, return_dict=True)
        is_empty_BW = (input_ids == 0).all(dim=2)
        if attention_mask is not None:
            is_empty_BW = is_empty_BW | (attention_mask == 0)
        logits = self.classifier(_pool(out.last_hidden_state, is_empty_BW))
        loss = None
        if labels is not None:
            loss = self.loss_function(labels=labels, logits=logits, pooled_logits=logits, config=self.config)
        output = SequenceClassifierOutput(loss=loss, logits=logits, hidden_states=out.hidden_states)
        return output if self._returns_dict(return_dict) else output.to_tuple()


class _Boundaries(Scheme):
    """What the network must know of a scheme: how wide ids are, and where sentences begin and end."""

    def __init__(self, config: ElmoConfig) -> None:
        self.begin_ids, self.end_ids = (np.array(ids, dtype=np.int64) for ids in config.boundary_ids)
        self.columns = len(self.begin_ids)

    def word_ids(self, words: object) -> NoReturn:
        raise InputError("in transformers the tokenizer makes the ids: ElmoTokenizer")

    count_cut = word_ids


def _check_ids(input_ids: Tensor, columns: int) -> None:
    if input_ids.dim() != 3 or input_ids.shape[2] != columns:
        raise InputError(
            f"expected input_ids of shape (sentences, words, {columns}), found {tuple(input_ids.shape)}: "
            "make them with this model's ElmoTokenizer"
        )


def _pool(words_BWD: Tensor, is_empty_BW: Tensor) -> Tensor:
    """The mean and the maximum (B, 2D) over the words of each sentence; zeros for one without words."""
    counts_B1 = (~is_empty_BW).sum(dim=1, keepdim=True)
    means_BD = words_BWD.sum(dim=1) / counts_B1.clamp_min(1)  # there are zeros where no word is
    lowest = torch.finfo(words_BWD.dtype).min
    largest_BD = words_BWD.masked_fill(is_empty_BW.unsqueeze(2), lowest).amax(dim=1).masked_fill(counts_B1 == 0, 0)
    return torch.cat([means_BD, largest_BD], dim=1)
