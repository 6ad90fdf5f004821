import bz2
import gzip
import io
import lzma
import sys
from types import SimpleNamespace

import pyarrow
import pytest

from elmokit.errors import InputError
from elmokit.text.files import LineReader


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
