"""The config of an ELMo model as transformers keeps it: the fields of elmokit's own config.json, and those it needs.

A folder that `elmo train` or `elmo convert` wrote is therefore one that `AutoConfig` reads, and a folder that
`save_pretrained` of transformers wrote is one that `elmokit.Embedder` reads. What elmokit's file lacks are the ids of
the sentence boundaries where they depend on an alphabet or a vocabulary, which transformers keeps with the tokenizer:
models that read bytes, as all do that elmokit trains unless told otherwise, need nothing more.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from transformers import PretrainedConfig  # pyright: ignore[reportMissingImports]

from elmokit.config import ElmoConfig as NetworkConfig
from elmokit.errors import CheckpointError, ConfigError
from elmokit.io import Checkpoint, model_names
from elmokit.text.characters import make_scheme

__all__ = ["ElmoConfig", "check_source"]


class ElmoConfig(PretrainedConfig):
    """The sizes of a model, and what its classifiers and its training add.

    Arguments:
        elmo: the sizes of the network, as `elmokit.ElmoConfig.to_dict` gives them; the original model's if not given.
        dropout: applied to the mix of the layers, and to what a classifier reads, while training.
        boundaries: the ids of the words that begin and end every sentence, two lists; for models that read bytes
            they are known.
        swaps_markers: whether words start with the end-of-word symbol, as in ELMoForManyLangs.
        has_words: whether a file words.json names the rows of the word table.
        metadata: what is known about the model.
        format_version: of elmokit's model folders; 1, as weights are stored as floating-point numbers.
        kwargs: the settings that all models of transformers have, such as `num_labels`.
    """

    model_type = "elmo"

    def __init__(
        self,
        elmo: dict[str, Any] | None = None,
        *,
        dropout: float = 0.5,
        boundaries: list[list[int]] | None = None,
        swaps_markers: bool = False,
        has_words: bool = False,
        metadata: dict[str, str] | None = None,
        format_version: int = 1,
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        self.elmo = (NetworkConfig.original() if elmo is None else NetworkConfig.from_dict(elmo)).to_dict()
        self.dropout = dropout
        self.boundaries = boundaries
        self.swaps_markers = swaps_markers
        self.has_words = has_words
        self.metadata = dict(metadata or {})
        self.format_version = format_version
        # Half precision is how a file is stored; without a word about it transformers 5 would compute in it, too.
        if kwargs.get("dtype") is None and kwargs.get("torch_dtype") is None:
            kwargs["dtype"] = "float32"
        super().__init__(**kwargs)
        self.pad_token_id = 0  # as the tokenizer's; Trainer would set it, and say so

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint, **settings: Any) -> ElmoConfig:  # noqa: ANN401
        """The config of a model that `elmokit.io.load` read, with these settings of its own."""
        scheme = checkpoint.scheme()
        return cls(
            checkpoint.config.to_dict(),
            boundaries=None
            if _reads_bytes(checkpoint.config)
            else [scheme.begin_ids.tolist(), scheme.end_ids.tolist()],
            swaps_markers=checkpoint.swaps_markers,
            has_words=checkpoint.vocabulary is not None,
            metadata=checkpoint.metadata,
            **settings,
        )

    @classmethod
    def get_config_dict(
        cls,
        pretrained_model_name_or_path: str | os.PathLike[str],
        **kwargs: Any,  # noqa: ANN401
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """The fields of a config.json; transformers calls this. The sources that only elmokit knows get advice."""
        advice = check_source(pretrained_model_name_or_path)
        values, unused = super().get_config_dict(pretrained_model_name_or_path, **kwargs)
        if values and values.get("model_type", "elmo") == "elmo" and "elmo" not in values:
            raise CheckpointError(
                f"{pretrained_model_name_or_path}: its config.json describes no ELMo model of elmokit (it has no field "
                f"`elmo`); if it is one of ELMoForManyLangs, {advice}"
            )
        return values, unused

    @property
    def network(self) -> NetworkConfig:
        """The sizes, as `elmokit.Elmo` takes them."""
        return NetworkConfig.from_dict(self.elmo)

    @property
    def boundary_ids(self) -> tuple[list[int], list[int]]:
        """The ids of the words that begin and end every sentence."""
        if self.boundaries is not None:
            begin, end = self.boundaries
            return begin, end
        if not _reads_bytes(self.network):
            raise ConfigError(
                "the config names no sentence boundaries (field `boundaries`), and this model does not read bytes: "
                "convert its folder with ElmoModel.from_elmokit(folder).save_pretrained(…)"
            )
        scheme = make_scheme(self.network)
        return scheme.begin_ids.tolist(), scheme.end_ids.tolist()

    @property
    def hidden_size(self) -> int:
        """Width of a word's vector, by the name under which other libraries look for it."""
        return self.network.dim

    @property
    def num_hidden_layers(self) -> int:
        """LSTM layers; `hidden_states` has one more, the context-free one."""
        return self.network.lstm.num_layers


def check_source(source: str | os.PathLike[str]) -> str:
    """Refuse what only elmokit can read, before anybody asks the hub for it; the advice to give in that case."""
    name = os.fspath(source)
    folder = Path(name)
    advice = f"ElmoModel.from_elmokit({name!r}) reads it, and save_pretrained writes it for transformers"
    if not folder.exists() and name in model_names():
        raise CheckpointError(f"{name}: an installed model of elmokit, no folder and no hub id; {advice}")
    if folder.is_file() or (folder.is_dir() and not (folder / "config.json").is_file()):
        raise CheckpointError(f"{name}: expected a folder with a config.json; if it is an ELMo model, {advice}")
    return advice


def _reads_bytes(config: NetworkConfig) -> bool:
    return config.words is None and config.characters is not None and config.characters.scheme == "bytes"
