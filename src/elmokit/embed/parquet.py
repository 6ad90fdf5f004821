"""Parquet without a detour: the rows of a segment become the bytes of a row group, vectors as they lie in memory.

Arrives: row groups as flat arrays. Leaves: pieces of memory to be written one after the other, the vectors among them
not copied; and, when all row groups are written, the footer that says where everything lies. Row groups can so be made
by several threads, appended to a growing file, and counted again by a later run.

Arrow's own writer computes for every number of a vector how deep in lists it lies, one number at a time: 90 MB/s on a
core, and a GPU makes ten times that. But these depths are the same for every vector: two runs of equal numbers, five
bytes, per word (the levels of Dremel's paper in Parquet's run-length encoding). So a page here is a header, the levels
made by a few operations of numpy, and the numbers themselves. Nothing is compressed: vectors do not shrink.

    line      INT64, plain, with its least and greatest value for readers that skip row groups
    words     strings, a dictionary per row group, numbers packed into as few bits as they need
    vectors   float16 or float32, plain, pages of about 4 MB

The format: https://parquet.apache.org/docs/file-format; its structures are Thrift's, in the compact protocol.

Shapes: R rows, N words, S slots (a word, or the place of a row without words), D width of a vector.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

__all__ = ["MAGIC", "Chunk", "RowGroup", "encode_rows", "make_footer"]

MAGIC = b"PAR1"
PAGE_BYTES = 1 << 22
CREATED_BY = "elmokit"

# Numbers of the format's definition (parquet.thrift).
INT64, FLOAT, BYTE_ARRAY, FIXED_BYTES = 2, 4, 6, 7
OPTIONAL, REPEATED = 1, 2
UTF8, LIST = 0, 3
PLAIN, RLE, DICTIONARY = 0, 3, 8
DATA_PAGE, DICTIONARY_PAGE = 0, 2
# Every field may be null, so each counts in a definition level: `line`; a list and its elements; a list of lists.
LINE_LEVEL, EMPTY_LEVEL, WORD_LEVEL, NUMBER_LEVEL = 1, 1, 3, 5

Piece = bytes | memoryview


class Chunk(NamedTuple):
    """A column of a row group: numbers in it, bytes of it, and bytes of the dictionary with which it begins."""

    num_values: int
    num_bytes: int
    dictionary_bytes: int


class RowGroup(NamedTuple):
    """What the footer says of a row group.

    Arguments:
        start: where in the file it begins.
        num_rows: how many rows it has.
        first_line: the least line number.
        last_line: the greatest.
        chunks: its columns.
    """

    start: int
    num_rows: int
    first_line: int
    last_line: int
    chunks: list[Chunk]


def encode_rows(
    lines_R: np.ndarray,
    lengths_R: np.ndarray,
    words: Sequence[str],
    numbers_N: np.ndarray,
    columns: Sequence[np.ndarray],
) -> tuple[list[Piece], list[Chunk]]:
    """The bytes of a row group of at least one row, in pieces, and its columns.

    Arguments:
        lines_R: the line of each row.
        lengths_R: its words.
        words: the distinct words.
        numbers_N: which of them stands at each place, row after row.
        columns: vectors (N, D) of all words, one array per column.
    """
    slots = _Slots.of(lengths_R)
    encoded = [_encode_lines(lines_R), _encode_words(slots, words, numbers_N)]
    encoded += [_encode_vectors(slots, vectors_ND) for vectors_ND in columns]
    return [piece for pieces, _ in encoded for piece in pieces], [chunk for _, chunk in encoded]


def make_footer(schema: pa.Schema, row_groups: Sequence[RowGroup]) -> bytes:
    """What ends a file with these row groups.

    Arguments:
        schema: `line`, `words` and the columns of vectors, with the metadata of the file.
        row_groups: in the order of the file.
    """
    leaves = _leaves(schema)
    # Arrow finds its own types there: Parquet knows no lists of one size.
    about = {**(schema.metadata or {}), b"ARROW:schema": base64.b64encode(schema.serialize().to_pybytes())}
    footer = _write_struct(
        {
            1: 2,  # the version of the format
            2: _describe_schema(schema),
            3: I64(sum(group.num_rows for group in row_groups)),
            4: [_describe_row_group(number, group, leaves) for number, group in enumerate(row_groups)],
            5: [{1: key, 2: value} for key, value in about.items()],
            6: CREATED_BY,
            7: [{1: {}}] * len(leaves),  # minima and maxima follow the order of the types
        }
    )
    return footer + len(footer).to_bytes(4, "little") + MAGIC


class _Slots(NamedTuple):
    """Where the levels of a list of words are: one slot per word, and one for each row without words.

    Arguments:
        begins_R: the slot with which each row begins, and behind the last (R + 1).
        is_word_S: whether a slot is a word.
        is_first_S: whether it begins a row.
    """

    begins_R: np.ndarray
    is_word_S: np.ndarray
    is_first_S: np.ndarray

    @classmethod
    def of(cls, lengths_R: np.ndarray) -> _Slots:
        begins_R = np.concatenate([[0], np.maximum(lengths_R, 1).cumsum()])
        is_first_S, is_word_S = np.zeros(begins_R[-1], bool), np.ones(begins_R[-1], bool)
        is_first_S[begins_R[:-1]] = True
        is_word_S[begins_R[:-1]] = lengths_R > 0
        return cls(begins_R, is_word_S, is_first_S)

    def pages(self, most: int) -> Iterator[slice]:
        """Slots of whole rows, at most so many at a time; a row that has more is cut."""
        start, end = 0, len(self.is_word_S)
        while start < end:
            stop = int(self.begins_R[np.searchsorted(self.begins_R, start + most, side="right") - 1])
            stop = stop if stop > start else min(start + most, end)
            yield slice(start, stop)
            start = stop


def _encode_lines(lines_R: np.ndarray) -> tuple[list[Piece], Chunk]:
    levels = _with_length(_make_run(len(lines_R), LINE_LEVEL))
    pieces = _make_page([levels, lines_R.astype("<i8").tobytes()], len(lines_R), PLAIN)
    return pieces, Chunk(len(lines_R), _count(pieces), 0)


def _encode_words(slots: _Slots, words: Sequence[str], numbers_N: np.ndarray) -> tuple[list[Piece], Chunk]:
    num_slots = len(slots.is_word_S)
    repetition = _with_length(_pack_bits(~slots.is_first_S[:, None]))
    definition = _with_length(_make_levels(slots.is_word_S, 1, WORD_LEVEL))
    if not len(words):  # nor is there a dictionary: some readers stumble over an empty one
        page = _make_page([repetition, definition], num_slots, PLAIN)
        return page, Chunk(num_slots, _count(page), 0)
    listed = b"".join(len(data).to_bytes(4, "little") + data for data in (word.encode("utf-8") for word in words))
    dictionary = _make_page([listed], len(words), PLAIN, kind=DICTIONARY_PAGE)
    num_bits = max(1, (len(words) - 1).bit_length())
    bits_NB = (numbers_N[:, None] >> np.arange(num_bits, dtype=np.int32)) & 1
    packed = bytes([num_bits]) + _pack_bits(bits_NB)
    page = _make_page([repetition, definition, packed], num_slots, DICTIONARY)
    pieces = [*dictionary, *page]
    return pieces, Chunk(num_slots, _count(pieces), _count(dictionary))


def _encode_vectors(slots: _Slots, vectors_ND: np.ndarray) -> tuple[list[Piece], Chunk]:
    dim = vectors_ND.shape[1]
    pieces: list[Piece] = []
    num_values = num_words = 0
    for page in slots.pages(max(1, PAGE_BYTES // (dim * vectors_ND.itemsize))):
        is_word_S = slots.is_word_S[page]
        repetition = _with_length(_make_repetitions(is_word_S, slots.is_first_S[page], dim))
        definition = _with_length(_make_levels(is_word_S, dim, NUMBER_LEVEL))
        words_here = int(is_word_S.sum())
        numbers_nD = np.ascontiguousarray(vectors_ND[num_words : num_words + words_here])
        values = numbers_nD.reshape(-1).view(np.uint8).data
        count = words_here * dim + len(is_word_S) - words_here
        pieces += _make_page([repetition, definition, values], count, PLAIN)
        num_values += count
        num_words += words_here
    return pieces, Chunk(num_values, _count(pieces), 0)


def _make_repetitions(is_word_S: np.ndarray, is_first_S: np.ndarray, dim: int) -> bytes:
    """Of vectors: where a number begins a row (0), begins the next vector of a row (1), or goes on in one (2)."""
    one_S2 = np.stack([np.full(len(is_word_S), 1 << 1, np.uint8), (~is_first_S).astype(np.uint8)], axis=1)
    if dim == 1:
        return one_S2.tobytes()
    others = np.frombuffer(_make_run(dim - 1, 2), np.uint8)
    runs_SX = np.concatenate([one_S2, np.broadcast_to(others, (len(is_word_S), len(others)))], axis=1)
    if is_word_S.all():
        return runs_SX.tobytes()
    is_there_SX = np.broadcast_to(is_word_S[:, None], runs_SX.shape).copy()
    is_there_SX[:, :2] = True
    return runs_SX[is_there_SX].tobytes()


def _make_levels(is_word_S: np.ndarray, dim: int, level: int) -> bytes:
    """Definition levels: that of a number, `dim` times per word, and once that of an empty list."""
    borders = np.concatenate([[0], np.flatnonzero(np.diff(is_word_S)) + 1, [len(is_word_S)]]).tolist()
    runs = [
        _make_run((end - start) * dim, level) if is_word_S[start] else _make_run(end - start, EMPTY_LEVEL)
        for start, end in zip(borders, borders[1:], strict=False)
    ]
    return b"".join(runs)


def _make_run(count: int, value: int) -> bytes:
    """So many equal levels in the run-length encoding."""
    return _write_varint(count << 1) + bytes([value])


def _pack_bits(bits_NB: np.ndarray) -> bytes:
    """Numbers, given as their bits from the lowest on, as one run of the encoding: eight numbers are one group."""
    count, num_bits = bits_NB.shape
    num_groups = -(-count // 8)
    padded = np.zeros((num_groups * 8, num_bits), np.uint8)
    padded[:count] = bits_NB
    return _write_varint(num_groups << 1 | 1) + np.packbits(padded, bitorder="little").tobytes()


def _with_length(levels: bytes) -> bytes:
    return len(levels).to_bytes(4, "little") + levels


def _make_page(body: Sequence[Piece], num_values: int, encoding: int, *, kind: int = DATA_PAGE) -> list[Piece]:
    """A page: its header, then its body."""
    about = {1: num_values, 2: encoding}
    header = {5: {**about, 3: RLE, 4: RLE}} if kind == DATA_PAGE else {7: about}
    num_bytes = _count(body)
    return [_write_struct({1: kind, 2: num_bytes, 3: num_bytes, **header}), *body]


def _count(pieces: Sequence[Piece]) -> int:
    return sum(map(len, pieces))


class _Leaf(NamedTuple):
    """A column as the footer names it."""

    path: list[str]
    kind: int
    encodings: list[int]


def _leaves(schema: pa.Schema) -> list[_Leaf]:
    leaves = [
        _Leaf(["line"], INT64, [PLAIN, RLE]),
        _Leaf(["words", "list", "element"], BYTE_ARRAY, [DICTIONARY, PLAIN, RLE]),
    ]
    for column in schema.names[2:]:
        kind = FLOAT if _number_type(schema, column) == pa.float32() else FIXED_BYTES
        leaves.append(_Leaf([column, *["list", "element"] * 2], kind, [PLAIN, RLE]))
    return leaves


def _number_type(schema: pa.Schema, column: str) -> pa.DataType:
    return schema.field(column).type.value_type.value_type


def _describe_schema(schema: pa.Schema) -> list[dict[int, Any]]:
    """The tree of fields, each before its children."""
    group = {3: REPEATED, 4: "list", 5: 1}
    listed = partial(dict, [(3, OPTIONAL), (5, 1), (6, LIST), (10, {3: {}})])
    elements = [{4: "schema", 5: len(schema.names)}, {1: INT64, 3: OPTIONAL, 4: "line"}]
    string = {1: BYTE_ARRAY, 3: OPTIONAL, 4: "element", 6: UTF8, 10: {1: {}}}
    elements += [listed() | {4: "words"}, group, string]
    for column in schema.names[2:]:
        is_single = _number_type(schema, column) == pa.float32()
        number = {1: FLOAT} if is_single else {1: FIXED_BYTES, 2: 2, 10: {15: {}}}
        elements += [
            listed() | {4: column},
            group,
            listed() | {4: "element"},
            group,
            {3: OPTIONAL, 4: "element"} | number,
        ]
    return elements


def _describe_row_group(number: int, group: RowGroup, leaves: Sequence[_Leaf]) -> dict[int, Any]:
    columns, place = [], group.start
    for leaf, chunk in zip(leaves, group.chunks, strict=True):
        about = {
            1: leaf.kind,
            2: leaf.encodings,
            3: leaf.path,
            4: 0,  # not compressed
            5: I64(chunk.num_values),
            6: I64(chunk.num_bytes),
            7: I64(chunk.num_bytes),
            9: I64(place + chunk.dictionary_bytes),
        }
        if chunk.dictionary_bytes:
            about[11] = I64(place)
        if leaf.path == ["line"]:
            least, greatest = (
                value.to_bytes(8, "little", signed=True) for value in (group.first_line, group.last_line)
            )
            about[12] = {3: I64(0), 5: greatest, 6: least}
        columns.append({2: I64(0), 3: about})
        place += chunk.num_bytes
    size = I64(place - group.start)
    return {1: columns, 2: size, 3: I64(group.num_rows), 5: I64(group.start), 6: size, 7: I16(number % 2**15)}


# Thrift's compact protocol, as much of it as a footer needs. A structure is a dictionary from the numbers of its fields
# to values: int is i32, `I64` and `I16` what they say, str and bytes are strings.


class I64(int):
    """A number of 64 bits."""


class I16(int):
    """A number of 16 bits."""


def _kind_of(value: object) -> int:
    kinds = ((I16, 4), (I64, 6), (int, 5), ((str, bytes), 8), (list, 9), (dict, 12))
    return next(kind for types, kind in kinds if isinstance(value, types))


def _write_struct(fields: dict[int, Any]) -> bytes:
    data, before = bytearray(), 0
    for number in sorted(fields):
        value = fields[number]
        assert 0 < number - before < 16, "fields lie near each other in this format"
        data.append((number - before) << 4 | _kind_of(value))
        data += _write_value(value)
        before = number
    return bytes(data) + b"\0"


def _write_value(value: Any) -> bytes:  # noqa: ANN401
    if isinstance(value, dict):
        return _write_struct(value)
    if isinstance(value, list):
        kind = _kind_of(value[0]) if value else 12
        head = bytes([len(value) << 4 | kind]) if len(value) < 15 else bytes([0xF0 | kind]) + _write_varint(len(value))
        return head + b"".join(map(_write_value, value))
    if isinstance(value, int):
        return _write_varint((value << 1) ^ (value >> 63))
    data = value.encode("utf-8") if isinstance(value, str) else value
    return _write_varint(len(data)) + data


def _write_varint(number: int) -> bytes:
    data = bytearray()
    while number >= 0x80:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)
