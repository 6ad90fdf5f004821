"""A word, as ids, becomes one vector that does not depend on its sentence: layer 0 of ELMo.

Arrives: ids (N, C), one row a word. Leaves: vectors (N, P). On the way: character vectors, convolutions of several
widths, the maximum of each channel over the word, highway layers, a linear map. Models with a word table look the
word up instead (bilm-tf's word-input models) or beside it (ELMoForManyLangs, whose column 0 is the word's id).

On a CPU, where nothing is learned, the same is computed by the C++ of `kernels/cpu` if it could be built: convolutions
as sums of table rows, linear maps from weights laid out once, optionally in int8.

Shapes: N words, C columns of ids, T columns kept after trimming, E character width, F features, P output width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elmokit.config import CharConfig, ElmoConfig, WordConfig
from elmokit.engines import Precision, why_no_triton
from elmokit.engines.kernels.cpu import can_run, packed_highway, packed_linear
from elmokit.engines.kernels.cpu.char_cnn import Filter, character_features, has_tables

__all__ = ["CharCnn", "Highway", "WordEncoder", "WordTable", "distinct_rows"]


class WordEncoder(nn.Module):
    """Ids of words (N, C) to context-free word vectors (N, P).

    Example:
        >>> import torch
        >>> encoder = WordEncoder(ElmoConfig.tiny())
        >>> encoder(torch.randint(1, 262, (3, 50))).shape
        torch.Size([3, 64])
    """

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.precision: Precision = "float32"  # of the linear maps where the C++ kernels run
        self.words = WordTable(config.words) if config.words else None
        self.characters = CharCnn(config.characters) if config.characters else None
        self.projection = (
            nn.Linear(config.num_word_features, config.lstm.projection_dim) if config.projects_words else None
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the projection as bilm-tf does: normal, variance 1 / fan-in, bias 0 (the parts draw their own)."""
        if self.projection is not None:
            _draw_normal(self.projection.weight, self.projection.in_features)
            nn.init.zeros_(self.projection.bias)

    def forward(self, ids_NC: Tensor | Sequence[Tensor], *, trims: bool = True) -> Tensor:
        """Vectors (N, P) of the words with these ids.

        Arguments:
            ids_NC: one row a word; or several blocks of such rows, each as wide as its longest word needs.
            trims: leave out columns that cannot matter; a caller that has done so already spares the look at them.
        """
        blocks = [ids_NC] if isinstance(ids_NC, Tensor) else list(ids_NC)
        features = []
        if self.words is not None:
            features.append(self.words(torch.cat([block[:, 0] for block in blocks]).long()))
            blocks = [block[:, 1:] for block in blocks]
        if self.characters is not None:
            features.append(self.characters(blocks, trims=trims, precision=self.precision))
        features_NF = features[0] if len(features) == 1 else torch.cat(features, dim=1)
        if self.projection is None:
            return features_NF
        weight, bias = self.projection.weight, self.projection.bias
        if can_run(features_NF, weight, bias):
            return packed_linear(features_NF, weight, bias, precision=self.precision)
        return self.projection(features_NF)

    @property
    def is_row_by_row(self) -> bool:
        """Whether a word's vector has the same bits whatever words are computed beside it (when nothing is learned).

        torch's products choose their order of summation by the number of rows; the C++ kernels do not.
        """
        with torch.no_grad():
            characters = self.characters
            return can_run(*self.parameters()) and (characters is None or characters.has_tables)


class WordTable(nn.Module):
    """One learned vector a word; word v has the id v + 1, and id 0 (no word) is a vector of zeros."""

    def __init__(self, config: WordConfig) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.empty(config.num_words, config.dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the table: uniform in ±1."""
        nn.init.uniform_(self.embedding, -1, 1)

    def forward(self, ids_N: Tensor) -> Tensor:
        """Vectors (N, E) of these words."""
        # The zero row is not a row of the table: prepending it to a large table would copy it at every call.
        vectors_NE = F.embedding((ids_N - 1).clamp_min(0), self.embedding)
        return vectors_NE.masked_fill((ids_N == 0).unsqueeze(1), 0)


class CharCnn(nn.Module):
    """Character ids (N, C) to features (N, F): convolutions, maximum over the word, highways."""

    def __init__(self, config: CharConfig) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.empty(config.num_symbols, config.dim))
        self.convolutions = nn.ModuleList(nn.Conv1d(config.dim, channels, width) for width, channels in config.filters)
        self.highways = nn.ModuleList(Highway(config.num_features) for _ in range(config.num_highways))
        self.activation = config.activation
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
                _draw_normal(convolution.weight, fan_in)
            assert convolution.bias is not None
            nn.init.zeros_(convolution.bias)

    @property
    def has_tables(self) -> bool:
        """Whether the convolutions are sums of table rows here (when nothing is learned)."""
        return has_tables(self.embedding, self._filters())

    def forward(
        self, ids_NC: Tensor | Sequence[Tensor], *, trims: bool = True, precision: Precision = "float32"
    ) -> Tensor:
        """Features (N, F) of the words with these character ids, in one block or several of different widths."""
        blocks = [ids_NC] if isinstance(ids_NC, Tensor) else list(ids_NC)
        features_NF = self._convolved(blocks, trims=trims)
        for highway in self.highways:
            assert isinstance(highway, Highway)
            features_NF = highway(features_NF, precision=precision)
        return features_NF

    def _filters(self) -> list[Filter]:
        convolutions = [each for each in self.convolutions if isinstance(each, nn.Conv1d)]
        return [(each.weight, each.bias) for each in convolutions if each.bias is not None]

    def _convolved(self, blocks: Sequence[Tensor], *, trims: bool) -> Tensor:
        """Features (N, F) before the highways: the largest value of each channel over all positions of a word."""
        fits = all(block.device.type == "cpu" and block.shape[1] >= self.widest_filter for block in blocks)
        if fits and has_tables(self.embedding, self._filters()):
            rectifies = self.activation == "relu"
            return _joined(
                [character_features(b, self.embedding, self._filters(), rectifies=rectifies) for b in blocks]
            )
        if trims:
            blocks = [block[:, : kept_columns(block, self.widest_filter)] for block in blocks]
        # Id 0 stands for "no word" and is a vector of zeros. In-word padding is a symbol like any other: its vector
        # is learned and takes part in the convolutions, so nothing may be masked here.
        table = F.pad(self.embedding, (0, 0, 1, 0))
        # All characters are looked up at once, so that what comes back to the table is summed once.
        characters = _looked_up(_joined([block.flatten() for block in blocks]).long(), table)
        parts = characters.split([block.numel() for block in blocks])
        words = [part.view(*block.shape, -1) for part, block in zip(parts, blocks, strict=True)]
        # A bias moves all positions alike: it is added to their maximum, for all filters and blocks at once.
        pooled_NF = _pooled(words, [weight for weight, _ in self._filters()])
        return _activated(pooled_NF, torch.cat([bias for _, bias in self._filters()]), self.activation)


def _joined(parts: Sequence[Tensor], dim: int = 0) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), dim=dim)


def _looked_up(ids: Tensor, table_SE: Tensor) -> Tensor:
    if table_SE.requires_grad and why_no_triton(table_SE.device, table_SE.dtype) is None:
        from elmokit.engines.kernels.char_table import look_up

        return look_up(ids, table_SE)
    return F.embedding(ids, table_SE)


def _pooled(words: Sequence[Tensor], filters: Sequence[Tensor]) -> Tensor:
    """The largest value (N, F) of each channel of each filter (K, E, w) over all positions of a word (N, T, E)."""
    if why_no_triton(words[0].device, words[0].dtype) is None and filters[0].dtype == words[0].dtype:
        from elmokit.engines.kernels import char_filters

        if char_filters.fits(words, filters):
            return char_filters.pooled(words, filters)
    convolved = [[F.conv1d(block.transpose(1, 2), weight).amax(dim=2) for weight in filters] for block in words]
    return _joined([_joined(channels, dim=1) for channels in convolved])


def _activated(features_NF: Tensor, bias_F: Tensor, activation: str) -> Tensor:
    if activation != "relu":
        return (features_NF + bias_F).tanh()
    if why_no_triton(features_NF.device, features_NF.dtype) is None and bias_F.dtype == features_NF.dtype:
        from elmokit.engines.kernels.highway import add_and_rectify

        return add_and_rectify(features_NF, bias_F)
    return (features_NF + bias_F).relu()


class Highway(nn.Module):
    """g * relu(transform(x)) + (1 - g) * x with the gate g = sigmoid(gate(x)) (Srivastava et al. 2015)."""

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.gate = nn.Linear(num_features, num_features)
        self.transform = nn.Linear(num_features, num_features)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw as bilm-tf does; a gate bias of -2 lets the input through at first."""
        for linear, bias in ((self.gate, -2.0), (self.transform, 0.0)):
            _draw_normal(linear.weight, linear.in_features)
            nn.init.constant_(linear.bias, bias)

    def forward(self, features_NF: Tensor, *, precision: Precision = "float32") -> Tensor:
        """Features (N, F), some of them transformed."""
        gate, transform = (self.gate.weight, self.gate.bias), (self.transform.weight, self.transform.bias)
        if can_run(features_NF, *gate, *transform):
            return packed_highway(features_NF, gate, transform, precision=precision)
        dtypes = {part.dtype for part in (features_NF, *gate, *transform)}
        if len(dtypes) == 1 and why_no_triton(features_NF.device, features_NF.dtype) is None:
            from elmokit.engines.kernels import highway

            return highway.highway(features_NF, gate, transform)
        return torch.lerp(features_NF, self.transform(features_NF).relu(), self.gate(features_NF).sigmoid())


def _draw_normal(weight: Tensor, fan_in: int) -> None:
    """Draw from a normal distribution of variance 1 / fan-in."""
    if not weight.is_meta:  # weights about to be loaded; torch would import its compiler for them, two seconds
        nn.init.normal_(weight, std=1 / math.sqrt(fan_in))


def kept_columns(ids_NC: Tensor, widest_filter: int) -> int:
    """How many columns the convolutions must see to give exactly what all of them would give.

    Words shorter than the table end in the same padding symbol. A window of padding alone gives the same value
    wherever it lies, so one such window a filter is enough: the longest word and the widest filter after it.
    """
    num_columns = ids_NC.shape[1]
    if torch.compiler.is_compiling() or len(ids_NC) == 0:
        return num_columns  # a count that depends on the data would break the graph
    differs_C = (ids_NC != ids_NC[0, -1]).any(dim=0)
    used = int((differs_C * torch.arange(1, num_columns + 1, device=ids_NC.device)).amax())
    return min(num_columns, used + widest_filter)


def distinct_rows(ids_NC: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct rows (U, C) and, for each of the N rows, its number among them. Exact.

    Rows are compared by a 64-bit sum first, which is ten times faster than sorting rows; should two different rows
    ever share a sum, the comparison at the end notices and the rows are sorted after all.
    """
    generator = torch.Generator().manual_seed(1)
    factors_C = torch.randint(-(2**62), 2**62, (ids_NC.shape[1],), generator=generator).to(ids_NC.device) * 2 + 1
    keys_N = (ids_NC * factors_C).sum(dim=1)
    _, numbers_N = keys_N.unique(return_inverse=True)
    num_distinct = int(numbers_N.amax()) + 1 if len(ids_NC) else 0
    some_row_U = torch.zeros(num_distinct, dtype=torch.int64, device=ids_NC.device)
    some_row_U[numbers_N] = torch.arange(len(ids_NC), device=ids_NC.device)
    distinct_UC = ids_NC[some_row_U]
    if not torch.equal(distinct_UC[numbers_N], ids_NC):
        return ids_NC.unique(dim=0, return_inverse=True)  # type: ignore[return-value]
    return distinct_UC, numbers_N
