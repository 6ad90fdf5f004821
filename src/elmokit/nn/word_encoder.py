"""A word, as ids, becomes one vector that does not depend on its sentence: layer 0 of ELMo.

Arrives: ids (N, C), one row per word. Leaves: vectors (N, P). On the way: character vectors, convolutions of several
widths, the maximum of each channel over the word, highway layers, a linear map. Models with a word table take the
word's row of it instead (bilm-tf's word-input models) or beside it (ELMoForManyLangs).

A row of ids is a marker that begins the word, its characters (or bytes), a marker that ends it, and a padding symbol up
to the last column. Symbol s has the id s + 1; a row of zeros is no word. With a word table, column 0 is the word's id,
and the characters, if the model reads them, follow.

Read `encode` first: with the steps of `REFERENCE` it is the definition of correct for every engine that encodes words.
The classes below it hold the weights.

Shapes: N words, n of them in a block, C columns of ids, c columns kept after trimming, M characters of all blocks, U
distinct words, S symbols, V words of a table, E width of a vector in a table, K channels of a filter of width w, F
features, P output width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elmokit.config import Activation, CharConfig, ElmoConfig, WordConfig
from elmokit.nn.operations import (
    Choice,
    EncoderWeights,
    EngineModule,
    Linear,
    Precision,
    choose,
    describe,
    find_engine,
    get_parameters,
)

__all__ = [
    "REFERENCE",
    "CharCnn",
    "Highway",
    "Steps",
    "WordEncoder",
    "WordTable",
    "convolve_and_pool",
    "count_needed_columns",
    "draw_normal",
    "encode",
    "find_distinct_rows",
    "join",
    "look_up_characters",
]


def encode(
    weights: EncoderWeights, blocks: Sequence[Tensor], *, trim: bool = True, steps: Steps | None = None
) -> Tensor:
    """Vectors (N, P) of the words in these blocks of ids (n, C).

    Arguments:
        weights: the parts that the model has.
        blocks: one row of ids per word, in one block or several of different widths.
        trim: leave out columns that cannot matter (`count_needed_columns`).
        steps: how the expensive steps are done; as below unless given.
    """
    steps = REFERENCE if steps is None else steps
    features = []
    if weights.words_VE is not None:
        features.append(_look_up_words(torch.cat([block[:, 0] for block in blocks]).long(), weights.words_VE))
        blocks = [block[:, 1:] for block in blocks]
    if weights.symbols_SE is not None:
        features_NF = steps.convolve(weights, blocks, trim)
        for gate, transform in weights.highways:
            features_NF = steps.pass_highway(features_NF, gate, transform)
        features.append(features_NF)
    features_NF = join(features, dim=1)
    return features_NF if weights.projection is None else steps.project(features_NF, *weights.projection)


class Steps(NamedTuple):
    """The steps of `encode` in which nearly all the time goes; an engine brings its own."""

    convolve: Callable[[EncoderWeights, Sequence[Tensor], bool], Tensor]
    pass_highway: Callable[[Tensor, Linear, Linear], Tensor]
    project: Callable[[Tensor, Tensor, Tensor], Tensor]


def _look_up_words(ids_N: Tensor, table_VE: Tensor) -> Tensor:
    # The zero row is not a row of the table: prepending it to a large table would copy it at every call.
    vectors_NE = F.embedding((ids_N - 1).clamp_min(0), table_VE)
    return vectors_NE.masked_fill((ids_N == 0).unsqueeze(1), 0)


_ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh}


def _convolve(weights: EncoderWeights, blocks: Sequence[Tensor], trim: bool) -> Tensor:
    """Features (N, F) before the highways: the largest value of each channel over all positions of a word."""
    words = look_up_characters(weights, blocks, F.embedding, trim=trim)
    filters = [weight_KEw for weight_KEw, _ in weights.filters]
    pooled_NF = convolve_and_pool(words, filters)
    # A bias moves all positions alike: it is added to their maximum, for all filters and blocks at once.
    features_NF = pooled_NF + torch.cat([bias_K for _, bias_K in weights.filters])
    return _ACTIVATIONS[weights.activation](features_NF)


def look_up_characters(
    weights: EncoderWeights, blocks: Sequence[Tensor], look_up: Callable[[Tensor, Tensor], Tensor], *, trim: bool
) -> list[Tensor]:
    """The vectors (n, c, E) of the characters of each block (n, C)."""
    assert weights.symbols_SE is not None
    if trim:
        widest = max(weight_KEw.shape[2] for weight_KEw, _ in weights.filters)
        blocks = [block[:, : count_needed_columns(block, widest)] for block in blocks]
    # Id 0 stands for "no word" and is a vector of zeros. In-word padding is a symbol like any other: its vector
    # is learned and takes part in the convolutions, so nothing may be masked here.
    table_SE = F.pad(weights.symbols_SE, (0, 0, 1, 0))
    # All characters are looked up at once, so that the gradient of the table is summed once.
    characters_ME = look_up(join([block.flatten() for block in blocks]).long(), table_SE)
    parts = characters_ME.split([block.numel() for block in blocks])
    return [part.view(*block.shape, -1) for part, block in zip(parts, blocks, strict=True)]


def count_needed_columns(ids_NC: Tensor, widest_filter: int) -> int:
    """How many columns the convolutions must see to give exactly what all of them would give.

    Words shorter than the table end in the same padding symbol. A window of padding alone gives the same value
    wherever it lies, so one such window per filter is enough: the longest word and the widest filter after it.
    """
    num_columns = ids_NC.shape[1]
    if torch.compiler.is_compiling() or len(ids_NC) == 0:
        return num_columns  # a count that depends on the data would break the graph
    differs_C = (ids_NC != ids_NC[0, -1]).any(dim=0)
    used = int((differs_C * torch.arange(1, num_columns + 1, device=ids_NC.device)).amax())
    return min(num_columns, used + widest_filter)


def convolve_and_pool(words: Sequence[Tensor], filters: Sequence[Tensor]) -> Tensor:
    """The largest value (N, F) of each channel of each filter (K, E, w) over all positions of a word (n, c, E)."""
    pooled = [[F.conv1d(block.transpose(1, 2), weight).amax(dim=2) for weight in filters] for block in words]
    return join([join(channels, dim=1) for channels in pooled])


def _pass_highway(features_NF: Tensor, gate: Linear, transform: Linear) -> Tensor:
    """The highway: g * relu(transform(x)) + (1 - g) * x with g = sigmoid(gate(x)) (Srivastava et al. 2015)."""
    return torch.lerp(features_NF, F.linear(features_NF, *transform).relu(), F.linear(features_NF, *gate).sigmoid())


REFERENCE = Steps(_convolve, _pass_highway, F.linear)


class WordEncoder(EngineModule):
    """Ids of words (N, C) to context-free word vectors (N, P).

    Example:
        >>> import torch
        >>> encoder = WordEncoder(ElmoConfig.tiny())
        >>> encoder(torch.randint(1, 262, (3, 50))).shape
        torch.Size([3, 64])
    """

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.precision: Precision = "float32"  # of the linear maps; int8 is for inference on a CPU
        self.words = WordTable(config.words) if config.words else None
        self.characters = CharCnn(config.characters) if config.characters else None
        self.projection = (
            nn.Linear(config.num_word_features, config.lstm.projection_dim) if config.projects_words else None
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the projection as bilm-tf does: normal, variance 1 / fan-in, bias 0 (the parts draw their own)."""
        if self.projection is not None:
            draw_normal(self.projection.weight, self.projection.in_features)
            nn.init.zeros_(self.projection.bias)

    def forward(self, ids_NC: Tensor | Sequence[Tensor], *, trim: bool = True) -> Tensor:
        """Vectors (N, P) of the words with these ids.

        Arguments:
            ids_NC: one row per word; or several blocks of such rows, each as wide as its longest word needs.
            trim: leave out columns that cannot matter; a caller that has done so already spares the look at them.
        """
        return _encode_by_best(self.weights(), ids_NC, trim=trim, precision=self.precision)

    def trim(self, ids_NC: Tensor) -> Tensor:
        """The same words without the columns that cannot matter (`count_needed_columns`)."""
        if self.characters is None:
            return ids_NC
        widest = max(weight_KEw.shape[2] for weight_KEw, _ in self.weights().filters)
        first = 0 if self.words is None else 1
        return ids_NC[:, : first + count_needed_columns(ids_NC[:, first:], widest)]

    def features(self, ids_NC: Tensor) -> Tensor:
        """What is known of each word (N, F) before the linear map, which keeps what predicts its neighbours."""
        return _encode_by_best(self.weights()._replace(projection=None), ids_NC, trim=True, precision=self.precision)

    def weights(self) -> EncoderWeights:
        """The parameters as engines take them."""
        weights = EncoderWeights() if self.characters is None else self.characters.weights()
        return weights._replace(
            words_VE=None if self.words is None else self.words.embedding,
            projection=None if self.projection is None else _get_linear(self.projection),
        )

    @property
    def engine(self) -> Choice:
        """The engine that encodes words on this module's device in the present gradient mode, and why."""
        return _choose(self.weights(), self.precision)

    @property
    def is_batch_invariant(self) -> bool:
        """Whether a word's vector has the same bits whatever other words are in the batch (without gradients)."""
        with torch.no_grad():
            return self.engine.is_batch_invariant


class WordTable(nn.Module):
    """One learned vector per word; word v has the id v + 1, and id 0 (no word) is a vector of zeros."""

    def __init__(self, config: WordConfig) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.empty(config.num_words, config.dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the table: uniform in ±1."""
        nn.init.uniform_(self.embedding, -1, 1)


class CharCnn(EngineModule):
    """The character table, filters and highways; alone, character ids (N, C) to features (N, F).

    Tasks have one of their own, without a projection.
    """

    def __init__(self, config: CharConfig) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.empty(config.num_symbols, config.dim))
        self.convolutions = nn.ModuleList(nn.Conv1d(config.dim, channels, width) for width, channels in config.filters)
        self.highways = nn.ModuleList(Highway(config.num_features) for _ in range(config.num_highways))
        self.activation: Activation = config.activation
        self.widest_filter = max(width for width, _ in config.filters)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw table and filters as bilm-tf does."""
        nn.init.uniform_(self.embedding, -1, 1)
        for convolution in self.convolutions:
            assert isinstance(convolution, nn.Conv1d)
            if self.activation == "relu":
                nn.init.uniform_(convolution.weight, -0.05, 0.05)
            else:
                fan_in = convolution.in_channels * convolution.kernel_size[0]
                draw_normal(convolution.weight, fan_in)
            assert convolution.bias is not None
            nn.init.zeros_(convolution.bias)

    def forward(self, ids_NC: Tensor | Sequence[Tensor], *, trim: bool = True) -> Tensor:
        """Features (N, F) of the words with these character ids, in one block or several of different widths."""
        return _encode_by_best(self.weights(), ids_NC, trim=trim, precision="float32")

    def weights(self) -> EncoderWeights:
        """The parameters as engines take them."""
        return EncoderWeights(
            symbols_SE=self.embedding,
            filters=tuple(_get_linear(each) for each in self.convolutions),
            activation=self.activation,
            highways=tuple(cast(Highway, each).weights() for each in self.highways),
        )


class Highway(nn.Module):
    """The weights of a highway layer: two linear maps, gate and transform."""

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.gate = nn.Linear(num_features, num_features)
        self.transform = nn.Linear(num_features, num_features)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw as bilm-tf does; a gate bias of -2 lets the input through at first."""
        for linear, bias in ((self.gate, -2.0), (self.transform, 0.0)):
            draw_normal(linear.weight, linear.in_features)
            nn.init.constant_(linear.bias, bias)

    def weights(self) -> tuple[Linear, Linear]:
        """Gate and transform as engines take them."""
        return _get_linear(self.gate), _get_linear(self.transform)


def _get_linear(module: nn.Module) -> Linear:
    weight, bias = get_parameters(module, "weight", "bias")
    return weight, bias


def draw_normal(weight: Tensor, fan_in: int) -> None:
    """Draw from a normal distribution of variance 1 / fan-in."""
    if not weight.is_meta:  # weights about to be loaded; torch would import its compiler for them, two seconds
        nn.init.normal_(weight, std=1 / math.sqrt(fan_in))


def _encode_by_best(
    weights: EncoderWeights, ids_NC: Tensor | Sequence[Tensor], *, trim: bool, precision: Precision
) -> Tensor:
    blocks = [ids_NC] if isinstance(ids_NC, Tensor) else list(ids_NC)
    engine = encode if torch.compiler.is_compiling() else find_engine("words", _choose(weights, precision).name)
    return engine(weights, blocks, trim=trim)


def _choose(weights: EncoderWeights, precision: Precision) -> Choice:
    filters = tuple((weight_KEw.shape[2], weight_KEw.shape[0]) for weight_KEw, _ in weights.filters)
    num_symbols = 0 if weights.symbols_SE is None else weights.symbols_SE.shape[0]
    details = {"precision": precision, "num_symbols": num_symbols, "filters": filters}
    return choose(describe("words", weights.tensors(), **details))


def find_distinct_rows(ids_NC: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct rows (U, C) and, for each of the N rows, its number among them. Exact.

    Rows are compared by a 64-bit hash first, which is ten times faster than sorting rows; should two different rows
    ever share a hash, the comparison at the end notices and the rows are sorted after all.
    """
    generator = torch.Generator().manual_seed(1)
    factors_C = torch.randint(-(2**62), 2**62, (ids_NC.shape[1],), generator=generator).to(ids_NC.device) * 2 + 1
    hashes_N = (ids_NC * factors_C).sum(dim=1)
    _, numbers_N = hashes_N.unique(return_inverse=True)
    num_distinct = int(numbers_N.amax()) + 1 if len(ids_NC) else 0
    some_row_U = torch.zeros(num_distinct, dtype=torch.int64, device=ids_NC.device)
    some_row_U[numbers_N] = torch.arange(len(ids_NC), device=ids_NC.device)
    distinct_UC = ids_NC[some_row_U]
    if not torch.equal(distinct_UC[numbers_N], ids_NC):
        return ids_NC.unique(dim=0, return_inverse=True)  # type: ignore[return-value]
    return distinct_UC, numbers_N


def join(parts: Sequence[Tensor], dim: int = 0) -> Tensor:
    """`torch.cat` that copies nothing where there is one part."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), dim=dim)
