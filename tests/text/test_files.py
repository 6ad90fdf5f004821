import bz2
import gzip
import io
import lzma
import os
import random
import sys
from types import SimpleNamespace

import numpy as np
import pyarrow
import pytest
import torch
from safetensors.torch import save

from elmokit.errors import InputError
from elmokit.text.files import LineReader, identify_files, read_blocks


def zstd_compress(data):
    return pyarrow.compress(data, codec="zstd", asbytes=True)


def texts(*inputs):
    return [line.text() for line in LineReader(inputs)]


def written(tmp_path, data, name="in.txt"):
    (tmp_path / name).write_bytes(data)
    return tmp_path / name


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a\nb", ["a", "b"]),
        (b"a\nb\n", ["a", "b"]),
        (b"a\r\n\r\nb\r\n", ["a", "", "b"]),
        (b"a\rb\n", ["a\rb"]),
        ("a\u2028b\u0085c\x0bd\n".encode(), ["a\u2028b\u0085c\x0bd"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb", ["a", "\ufeffb"]),
        (b"a\0b\n", ["a\0b"]),
    ],
)
def test_only_a_newline_ends_a_line(tmp_path, data, expected):
    assert texts(written(tmp_path, data)) == expected


@pytest.mark.parametrize(
    ("suffix", "compress"),
    [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress), (".zst", zstd_compress)],
)
def test_compressed_files_are_read(tmp_path, suffix, compress):
    data = compress(b"first\nsecond\n" * 100)
    assert texts(written(tmp_path, data, f"in.txt{suffix}")) == ["first", "second"] * 100
    with pytest.raises(InputError, match="cannot be read"):
        texts(written(tmp_path, data[: len(data) // 2], f"cut.txt{suffix}"))
    with pytest.raises(InputError, match="cannot be read"):
        texts(written(tmp_path, b"plain text", f"plain.txt{suffix}"))


def test_members_one_after_the_other_are_read(tmp_path):  # as parallel packers write them
    data = zstd_compress(b"first\n") + zstd_compress(b"second\n")
    assert texts(written(tmp_path, data, "in.zst")) == ["first", "second"]


def test_a_pattern_stands_for_its_files_in_order(tmp_path):
    for name in ("2.txt", "1.txt"):
        written(tmp_path, name.encode(), name)
    assert texts(f"{tmp_path}/*.txt") == ["1.txt", "2.txt"]


def test_lines_are_numbered_over_all_files_and_placed_in_their_own(tmp_path):
    first, second = written(tmp_path, b"a\nb\n", "1.txt"), written(tmp_path, b"c\n", "2.txt")
    lines = list(LineReader([first, second]))
    assert [line.number for line in lines] == [0, 1, 2]
    assert [line.place for line in lines] == [f"{first}:1", f"{first}:2", f"{second}:1"]


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO("é\nb".encode())))
    reader = LineReader(["-"])
    assert [line.text() for line in reader] == ["é", "b"]
    assert reader.bytes_total is None


def test_bytes_are_counted(tmp_path):
    first, second = written(tmp_path, b"a\nb\n", "1.txt"), written(tmp_path, b"ccc\n", "2.txt")
    reader = LineReader([first, second])
    assert (reader.bytes_done, reader.bytes_total) == (0, 8)
    assert [reader.bytes_done for _ in reader] == [2, 4, 8]
    assert reader.bytes_done == 8


def test_text_that_is_not_utf8_is_refused_with_its_place(tmp_path):
    path = written(tmp_path, "fine\nalso fine\ncaf\u00e9\n".encode("latin1"))
    with pytest.raises(InputError, match=r"in\.txt:3: expected UTF-8, found the byte 0xe9 at byte 3 of the line"):
        texts(path)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf16_gets_the_right_advice(encoding, tmp_path):
    mark = "" if encoding == "utf-16" else "\ufeff"
    path = written(tmp_path, f"{mark}fine\n".encode(encoding))
    with pytest.raises(InputError, match=r"in\.txt:1: .* looks like UTF-16: .* iconv -f utf-16 -t utf-8"):
        texts(path)


def test_inputs_that_cannot_be_read_are_refused_at_once(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        LineReader([tmp_path / "missing.txt"])
    with pytest.raises(InputError, match="is a folder"):
        LineReader([tmp_path])
    with pytest.raises(InputError, match="found none"):
        LineReader([])
    with pytest.raises(InputError, match="more than once"):
        LineReader(["-", "-"])


ENGLISH, CHINESE = "The bank lent him money.\nShe sat there.\n", "我去银行取钱，银行在河边。\n他在那里。\n"


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("text", [ENGLISH, CHINESE, "naïve café, €5\n", "Москва и Київ.\n"])
def test_utf16_without_a_mark_gets_the_right_advice(text, encoding, tmp_path):
    path = written(tmp_path, text.encode(encoding))
    advice = rf"in\.txt: expected UTF-8, .* looks like UTF-16: .* iconv -f utf-16{encoding[-2:]} -t utf-8$"
    with pytest.raises(InputError, match=advice):
        texts(path)
    with pytest.raises(InputError, match=advice):
        list(read_blocks(str(path)))


ODD = [b"a\0b c\n", b"a\0\n", b"\0\0\0\0\0\0", CHINESE.encode(), b"\x1b[1mbold\x1b[0m\n", b"x", b"1\t0\t1\t0\n"]


@pytest.mark.parametrize("data", ODD)
def test_text_with_odd_characters_is_no_utf16(data, tmp_path):
    assert b"\n".join(line.raw for line in LineReader([written(tmp_path, data)])) == data.removesuffix(b"\n")


def test_a_line_that_is_too_long_is_refused(tmp_path):
    path = written(tmp_path, b"fine\n" + b"123456789 " * 10 + b"\n")
    lines = iter(LineReader([path], longest=20))
    assert next(lines).raw == b"fine"
    with pytest.raises(InputError, match=r"in\.txt:2: .* found a line of more than 20 bytes: .* fold -s"):
        next(lines)


def test_a_line_that_is_too_long_is_cut_at_a_space(tmp_path):
    path = written(tmp_path, b"\xef\xbb\xbfone\n" + b"1234567 " * 5 + b"\r\nlast")
    lines = list(LineReader([path], longest=20, cuts=True))
    assert [line.raw for line in lines] == [b"one", b"1234567 1234567 ", b"1234567 1234567 ", b"1234567 ", b"last"]
    assert [line.number for line in lines] == [0, 1, 1, 1, 2]
    assert lines[3].place.endswith(":2")


@pytest.mark.parametrize("text", ["é" * 50, " " + "x" * 99, "a" * 20, "ab\n" * 9, "a b c d e f g h i j k l m"])
@pytest.mark.parametrize("longest", [7, 20, 100])
def test_no_byte_is_lost_where_lines_are_cut(text, longest, tmp_path):
    lines = list(LineReader([written(tmp_path, text.encode())], longest=longest, cuts=True))
    assert all(len(line.raw) <= longest for line in lines)
    assert "".join(line.text() for line in lines) == text.replace("\n", "")


def test_a_file_is_known_by_its_size_its_head_and_its_tail(tmp_path):
    path, text = tmp_path / "long.txt", b"a" * 200_000
    known = set()
    for change in (b"", b"b"):  # a byte at the beginning, at the end, more, fewer
        for data in (change + text[len(change) :], text[len(change) :] + change, text + change, text[len(change) :]):
            path.write_bytes(data)
            (identity,) = identify_files([str(path)])
            assert (identity.name, identity.bytes) == (str(path), len(data))
            known.add(identity[1:])
    assert len(known) == 5
    assert str(identity) == f"{path} (199,999 bytes, hash {identity.hash[:8]})"


def test_standard_input_and_pipes_have_a_name_alone(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    identities = identify_files(["-", str(tmp_path / "pipe")])
    assert identities == [("-", None, None), (str(tmp_path / "pipe"), None, None)]
    assert str(identities[0]) == "standard input"


@pytest.mark.parametrize(
    ("data", "advice"),
    [
        (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n", r"in\.txt: expected text, found a PDF: .* pdftotext"),
        (b"%PDF-1.4\nall of it ASCII\n", "a PDF"),
        (b"PK\x03\x04\x14\x00\x06\x00", r"\.docx"),
        (gzip.compress(b"text", mtime=0), r"packed by gzip: end its name in \.gz"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", r"in\.txt: expected text, found a PNG image: name a text file"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF\0", "expected text, found a JPEG image"),
        (b"GIF89a\x01\0\x01\0\x80\0\0", "expected text, found a GIF image"),
        (b"\x7fELF\x02\x01\x01\0\0\0\0\0", "expected text, found a program"),
        (save({"weight": torch.zeros(2)}), r"found the weights of a model \(safetensors\)"),
        (random.Random(0).randbytes(4096), "expected text, found a binary file"),
        (np.linspace(0, 1, 500).tobytes(), "expected text, found a binary file"),
    ],
)
def test_what_is_no_text_is_called_by_its_name(data, advice, tmp_path):
    with pytest.raises(InputError, match=advice):
        list(LineReader([written(tmp_path, data)]))
    with pytest.raises(InputError, match=advice):
        list(read_blocks(written(tmp_path, data)))


def test_text_may_begin_like_a_name_of_a_format(tmp_path):
    (line,) = LineReader([written(tmp_path, b"PK and %PDF- are two names\n")])
    assert line.text() == "PK and %PDF- are two names"
