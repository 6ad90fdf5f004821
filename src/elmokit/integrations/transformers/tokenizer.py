"""Text or words become `input_ids` (sentences, words, characters), for transformers and all that stands on it.

The tokenizers of transformers give one number per token; ELMo's words have a row of numbers each, in its scheme of
bytes, characters or words. The framework's own paths confuse such a row with a sentence, so that calling, padding and
converting are done here, with numpy, in the signatures that collators, pipelines and sentence-transformers use. A
string is ONE sentence, split into words by elmokit's rules; with `is_split_into_words` a list of words is taken as it
is. No special tokens are added: the sentence boundaries are the model's task.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from transformers import BatchEncoding, PreTrainedTokenizer  # pyright: ignore[reportMissingImports]

from elmokit import io
from elmokit.config import ElmoConfig as NetworkConfig
from elmokit.errors import CheckpointError, InputError
from elmokit.io.text_files import read_json, read_json_words
from elmokit.text.characters import make_scheme
from elmokit.text.segmenters import RuleSegmenter, Word

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["ElmoTokenizer"]

# What stands beside a word that is none.
LABELS_OF_PADDING = {"attention_mask": 0, "special_tokens_mask": 1, "offset_mapping": (0, 0)}
LONGEST = 10**9  # transformers stands 1e30 for "any length"


class ElmoTokenizer(PreTrainedTokenizer):
    """Words to character ids, in the scheme of a model.

    Arguments:
        config_file: the model's config.json, which is read where `elmo` is not given.
        alphabet_file: alphabet.json, for models that read characters of an alphabet.
        words_file: words.json, for models with a table of words that have names.
        elmo: the sizes of the network, by which words are numbered.
        swaps_markers: whether words start with the end-of-word symbol, as in ELMoForManyLangs.
        alphabet: the symbols, instead of a file.
        vocabulary: the words, instead of a file.
        pad_token: the name of "no word", whose id is 0; in a text it is a word like any other.
        kwargs: the settings that all tokenizers have, such as `model_max_length`, here counted in words.
    """

    vocab_files_names = {"config_file": "config.json", "alphabet_file": "alphabet.json", "words_file": "words.json"}
    model_input_names = ["input_ids", "attention_mask"]
    padding_side = "right"

    def __init__(
        self,
        config_file: str | None = None,
        alphabet_file: str | None = None,
        words_file: str | None = None,
        *,
        elmo: dict[str, Any] | None = None,
        swaps_markers: bool = False,
        alphabet: Sequence[str] | None = None,
        vocabulary: Sequence[str] | None = None,
        pad_token: str = "<pad>",
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        if elmo is None:
            elmo, swaps_markers = _read_config(config_file)
        network = NetworkConfig.from_dict(elmo)
        if alphabet is None and alphabet_file is not None:
            alphabet = read_json_words(Path(alphabet_file), network.characters and network.characters.num_symbols)
        if vocabulary is None and words_file is not None:
            vocabulary = read_json_words(Path(words_file), network.words and network.words.num_words)
        self._lists = {"alphabet.json": alphabet, "words.json": vocabulary}
        self._scheme = make_scheme(network, alphabet, vocabulary, swaps_markers=swaps_markers)
        self._segmenter = RuleSegmenter()
        super().__init__(elmo=network.to_dict(), swaps_markers=swaps_markers, pad_token=pad_token, **kwargs)
        if self.padding_side != "right":
            raise InputError(f"asked for padding_side={self.padding_side!r}: ELMo reads padding at the end only")

    @classmethod
    def from_elmokit(cls, source: str | os.PathLike[str]) -> Self:
        """The tokenizer of the model of any source that elmokit loads."""
        checkpoint = io.load(source)
        return cls(
            elmo=checkpoint.config.to_dict(),
            swaps_markers=checkpoint.swaps_markers,
            alphabet=checkpoint.alphabet,
            vocabulary=checkpoint.vocabulary,
        )

    def __call__(
        self,
        text: str | Sequence[str] | Sequence[Sequence[str]],
        text_pair: None = None,
        *,
        is_split_into_words: bool = False,
        padding: Any = False,  # noqa: ANN401
        truncation: Any = False,  # noqa: ANN401
        max_length: int | None = None,
        pad_to_multiple_of: int | None = None,
        padding_side: str | None = None,
        return_tensors: Any = None,  # noqa: ANN401
        return_attention_mask: bool | None = None,
        return_special_tokens_mask: bool = False,
        return_offsets_mapping: bool = False,
        return_length: bool = False,
        **kwargs: Any,  # noqa: ANN401
    ) -> BatchEncoding:
        """Ids of one sentence or several.

        Arguments:
            text: a string or a list of strings; with `is_split_into_words` a list of words or a list of such lists.
            text_pair: not possible; ELMo has no separator of two sentences, so they are read one by one.
            is_split_into_words: take words as they are.
            padding: `False`, `True` (to the longest sentence, and at least one word) or `"max_length"`.
            truncation: cut sentences at `max_length` words.
            max_length: in words; `model_max_length` if not given.
            pad_to_multiple_of: of words.
            padding_side: `"right"`, and no other.
            return_tensors: `"pt"` or `"np"`; else lists, for a text alone without the dimension of sentences.
            return_attention_mask: 1 for words, 0 for padding; also where it is not asked for, unless `False`.
            return_special_tokens_mask: 1 for padding, 0 for words.
            return_offsets_mapping: where each word of a string stands in it.
            return_length: how many words each sentence has.
            kwargs: what libraries pass to any tokenizer, such as `add_special_tokens`; nothing of it applies here.
        """
        if text_pair is not None:
            raise InputError("expected one text, found a pair: ELMo reads sentences one by one, so encode each alone")
        is_alone = isinstance(text, str) or (is_split_into_words and (not text or isinstance(text[0], str)))
        sentences = self._split([text] if is_alone else text, is_split=is_split_into_words)  # pyright: ignore
        longest = max_length or self.model_max_length
        if truncation not in (False, None, "do_not_truncate"):
            sentences = [sentence[:longest] for sentence in sentences]
        features: dict[str, list[Any]] = {
            "input_ids": [self._scheme.word_ids([word.text for word in sentence]) for sentence in sentences]
        }
        if return_special_tokens_mask:
            features["special_tokens_mask"] = [[0] * len(sentence) for sentence in sentences]
        if return_offsets_mapping:
            features["offset_mapping"] = [[(word.start, word.end) for word in sentence] for sentence in sentences]
        if return_length:
            features["length"] = [len(sentence) for sentence in sentences]
        encoded = self.pad(
            features,
            padding=padding,
            max_length=longest,
            pad_to_multiple_of=pad_to_multiple_of,
            padding_side=padding_side,
            return_attention_mask=return_attention_mask,
            return_tensors=return_tensors,
        )
        if is_alone and return_tensors is None:
            return BatchEncoding({name: values[0] for name, values in encoded.items()})
        return encoded

    def encode(self, text: str | Sequence[str], **options: Any) -> Any:  # noqa: ANN401
        """The `input_ids` of one sentence; options are those of a call."""
        return self(text, **options)["input_ids"]

    def pad(
        self,
        encoded_inputs: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]],
        padding: Any = True,  # noqa: ANN401
        max_length: int | None = None,
        pad_to_multiple_of: int | None = None,
        padding_side: str | None = None,
        return_attention_mask: bool | None = None,
        return_tensors: Any = None,  # noqa: ANN401
        verbose: bool = True,
    ) -> BatchEncoding:
        """A batch whose sentences have as many words, the added ones being zeros; collators call this.

        Arguments:
            encoded_inputs: what a call returned for several texts, or a list of what it returned for each, with labels
                or other values beside it, which are left as they are.
            padding: as for a call.
            max_length: as for a call.
            pad_to_multiple_of: as for a call.
            padding_side: as for a call.
            return_attention_mask: as for a call.
            return_tensors: as for a call.
            verbose: not used.
        """
        if padding_side not in (None, "right"):
            raise InputError(f"asked for padding_side={padding_side!r}: ELMo reads padding at the end only")
        features = _gather(encoded_inputs)
        columns = self._scheme.columns
        ids = [np.asarray(each, np.int64).reshape(-1, columns) for each in features["input_ids"]]
        features.setdefault("attention_mask", [[1] * len(each_WC) for each_WC in ids])
        if return_attention_mask is False:
            del features["attention_mask"]
        width = _find_width(ids, padding, max_length, pad_to_multiple_of)
        if return_tensors is not None:
            width = max(width, 1)  # a text without words is a row that the mask leaves out, where a shape is needed
        for name, filler in LABELS_OF_PADDING.items():
            if name in features:
                features[name] = [[*values, *[filler] * (width - len(values))] for values in features[name]]
        padded = [np.pad(each_WC, ((0, max(0, width - len(each_WC))), (0, 0))) for each_WC in ids]
        features["input_ids"] = padded if return_tensors is not None else [each_WC.tolist() for each_WC in padded]
        return BatchEncoding(features, tensor_type=return_tensors)

    def tokenize(self, text: str, **kwargs: Any) -> list[str]:  # noqa: ANN401, ARG002
        """The words of one sentence; `kwargs` are options of other tokenizers."""
        return [word.text for word in self._segmenter.words(text)]

    def convert_tokens_to_ids(self, tokens: str | Sequence[str]) -> Any:  # noqa: ANN401
        """A row of ids for a word, a list of rows for words; 0 for the padding token alone, as libraries ask for it."""
        if isinstance(tokens, str):
            return 0 if tokens == self.pad_token else self._scheme.word_ids([tokens])[0].tolist()
        return self._scheme.word_ids(tokens).tolist()

    def convert_ids_to_tokens(self, ids: object, skip_special_tokens: bool = False) -> NoReturn:
        """Ids are characters, cut at the width of a row: words cannot be had back from them."""
        raise InputError("ids of ELMo are the characters of words and are not decoded: keep the words beside them")

    def decode(self, token_ids: object, *args: Any, **kwargs: Any) -> NoReturn:  # noqa: ANN401
        """As `convert_ids_to_tokens`."""
        self.convert_ids_to_tokens(token_ids)

    def get_vocab(self) -> dict[str, int]:
        """Words need no vocabulary; the padding token has the id 0."""
        return {str(self.pad_token): 0}

    @property
    def vocab_size(self) -> int:
        """Of `get_vocab`."""
        return len(self.get_vocab())

    def save_vocabulary(self, save_directory: str, filename_prefix: str | None = None) -> tuple[str, ...]:
        """Write the alphabet and the words, where the model has them, as elmokit's own folders have them."""
        paths = []
        for name, words in self._lists.items():
            if words is not None:
                path = Path(save_directory, f"{filename_prefix}-{name}" if filename_prefix else name)
                path.write_text(json.dumps(words, ensure_ascii=False) + "\n", encoding="utf-8")
                paths.append(str(path))
        return tuple(paths)

    def _split(self, texts: Sequence[Any], *, is_split: bool) -> list[list[Word]]:
        """The words of each text; those that came split are placed as if they were texts of their own."""
        if is_split:
            return [[Word(word, 0, len(word)) for word in _check_words(words)] for words in texts]
        return [self._segmenter.words(_check_text(text)) for text in texts]


def _read_config(config_file: str | None) -> tuple[dict[str, Any], bool]:
    """The sizes in a model's config.json, and whether its markers are swapped."""
    values = read_json(Path(config_file)) if config_file is not None else {}
    if not isinstance(values.get("elmo"), dict):
        raise CheckpointError(
            f"{config_file or 'the tokenizer'}: expected the sizes of an ELMo model (field `elmo`), found none; "
            "ElmoTokenizer.from_elmokit(source) reads every model that elmokit loads"
        )
    return values["elmo"], bool(values.get("swaps_markers", False))


def _gather(encoded: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The features by name, each a list with one entry per sentence."""
    if not isinstance(encoded, Mapping):
        encoded = {name: [each[name] for each in encoded] for name in (encoded[0] if encoded else {})}
    if "input_ids" not in encoded:
        raise InputError(f"expected what the tokenizer returned, with input_ids, found {list(encoded)}")
    return dict(encoded)


def _find_width(ids: Sequence[np.ndarray], padding: object, max_length: int | None, multiple: int | None) -> int:
    """How many words each sentence gets at least."""
    if padding in (False, None, "do_not_pad"):
        return 0
    width = max((len(each_WC) for each_WC in ids), default=0)
    if padding == "max_length":
        if max_length is None or max_length > LONGEST:
            raise InputError('padding="max_length" needs max_length=NUMBER, in words: this model reads any length')
        width = max_length
    elif padding not in (True, "longest"):
        raise InputError(f'asked for padding={padding!r}: use True, False, "longest" or "max_length"')
    width = max(width, 1)
    return width if multiple is None else -(-width // multiple) * multiple


def _check_text(text: object) -> str:
    if isinstance(text, str):
        return text
    if isinstance(text, (list, tuple)):
        raise InputError(
            "expected a sentence as a string, found a list: pass is_split_into_words=True if these are its words; "
            "two sentences are not read as a pair"
        )
    raise InputError(f"expected a sentence as a string, found {type(text).__name__}: {text!r:.60}")


def _check_words(words: object) -> Sequence[str]:
    if isinstance(words, (list, tuple)) and all(isinstance(word, str) for word in words):
        return words
    raise InputError(f"expected a list of words with is_split_into_words=True, found {words!r:.60}")
