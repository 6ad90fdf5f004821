"""Lists beside the weights: what does not fit its table is refused before it is taken apart."""

import gzip
import tracemalloc

import pytest

from elmokit.errors import CheckpointError
from elmokit.io.text_files import read_json, read_json_words, read_words


def refuse(read, *arguments, says, **named):
    """How many bytes were allocated while something was refused."""
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError, match=says):
            read(*arguments, **named)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_words_of_a_list_that_is_too_long_are_not_made(tmp_path):
    (tmp_path / "vocab.txt").write_bytes(b"ab\n" * 10**6)
    taken = refuse(read_words, tmp_path / "vocab.txt", num_rows=7, says="1,000,000 words and its table 7 rows")
    assert taken < 3 * 3 * 10**6
    (tmp_path / "words.json").write_bytes(b"[" + b'"ab",' * 10**6 + b'"c"]')
    taken = refuse(read_json_words, tmp_path / "words.json", 7, says="1,000,001 or more words and its table 7 rows")
    assert taken < 3 * 5 * 10**6


def test_quotes_in_words_are_no_words(tmp_path):
    (tmp_path / "words.json").write_text('["\\"", "\\\\", "\\"\\"\\"", "a"]')
    assert read_json_words(tmp_path / "words.json", 4) == ['"', "\\", '"""', "a"]


def test_a_packed_list_may_not_unpack_to_anything(tmp_path):
    (tmp_path / "vocab.txt.gz").write_bytes(gzip.compress(b"ab\n" * 10**7, 1))
    taken = refuse(read_words, tmp_path / "vocab.txt.gz", says="should be below 1[0-9] MiB, found more")
    assert taken < 3 * 10**7  # all of it


def test_settings_are_short(tmp_path):
    (tmp_path / "config.json").write_bytes(b'{"a": [' + b"[]," * 3 * 10**6 + b"0]}")
    taken = refuse(read_json, tmp_path / "config.json", says="config.json: such a JSON file should be below 8 MiB")
    assert taken < 10**6


@pytest.mark.parametrize(("data", "count"), [(b"", 0), (b"a", 1), (b"a\n", 1), (b"a\n\n", 2), (b"\n", 1)])
def test_lines_are_counted_as_they_are_read(tmp_path, data, count):
    (tmp_path / "vocab.txt").write_bytes(data)
    assert len(read_words(tmp_path / "vocab.txt", num_rows=count)) == count
    refuse(read_words, tmp_path / "vocab.txt", num_rows=count + 1, says="they should be equal")
