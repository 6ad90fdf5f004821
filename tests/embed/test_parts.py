import os
import resource
import zlib

import numpy as np
import pytest

from elmokit.embed import parts as parts_module
from elmokit.embed.parts import EncodedRows, Part, PartialFolder, pack_strings
from elmokit.errors import CheckpointError

ARRAYS = {
    "lines": np.array([4, 5], np.int64),
    "offsets": np.array([0, 2, 2], np.int64),
    **pack_strings("texts", ["héllo wörld", ""]),
    **pack_strings("words", ["héllo", "wörld"]),
    "vectors": np.arange(6, dtype=np.float16).reshape(2, 3),
}


@pytest.fixture
def folder(tmp_path):
    folder = PartialFolder(tmp_path / "out.npy")
    folder.start({"settings": {"a": 1}})
    return folder


def test_a_part_reads_back_what_was_written(folder):
    folder.add(0, {"num_rows": 2}, ARRAYS)
    (part,) = folder.parts()
    assert part.header["num_rows"] == 2
    assert "vectors" in part and "hidden" not in part
    rows = list(part.rows())
    assert [row[:2] for row in rows] == [(4, ["héllo", "wörld"]), (5, [])]
    assert part.strings("texts") == ["héllo wörld", ""]
    assert rows[0][2].tolist() == [[0, 1, 2], [3, 4, 5]] and rows[1][2].shape == (0, 3)
    assert part.array("vectors").dtype == np.float16


def test_empty_arrays_survive(folder):
    folder.add(0, {}, {"vectors": np.zeros((0, 2, 3), np.float32), "lines": np.array([1])})
    part = folder.parts()[0]
    assert part.array("vectors").shape == (0, 2, 3) and part.array("lines").tolist() == [1]


def test_equal_parts_have_equal_bytes(folder):
    folder.add(0, {"n": 1}, ARRAYS)
    folder.add(1, {"n": 1}, ARRAYS)
    first, second = (part.path.read_bytes() for part in folder.parts())
    assert first == second


def test_parts_stop_at_the_first_gap_and_stale_files_go(folder):
    for number in (0, 1, 3):
        folder.add(number, {}, ARRAYS)
    (folder.path / "part-00000002.safetensors.tmp").write_bytes(b"half")
    assert len(folder.parts()) == 2
    assert not list(folder.path.glob("*.tmp"))


def test_a_failed_write_leaves_nothing(folder, monkeypatch):
    def fail(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        folder.add(0, {}, ARRAYS)
    assert sorted(path.name for path in folder.path.iterdir()) == ["manifest.json"]


def test_a_full_disk_leaves_nothing(folder):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            folder.add(0, {}, {"vectors": np.zeros(10**6)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert sorted(path.name for path in folder.path.iterdir()) == ["manifest.json"]


def test_the_folder_is_there_with_its_manifest_or_not_at_all(tmp_path, monkeypatch):
    folder = PartialFolder(tmp_path / "out.npy")

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(parts_module, "replace_text", killed)
        with pytest.raises(KeyboardInterrupt):
            folder.start({})
    assert not folder.exists()
    folder.start({"settings": 2})
    assert folder.manifest() == {"settings": 2}
    folder.discard()
    assert list(tmp_path.iterdir()) == []


def test_finish_puts_files_in_place_and_removes_the_folder(folder, tmp_path):
    for name in ("out.offsets.npy", "out.npy"):
        (folder.assembly() / name if name == "out.offsets.npy" else folder.path / "assembly" / name).write_text(name)
    folder.finish(["out.offsets.npy", "out.npy"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.npy", "out.offsets.npy"]


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "out.npy.partial").mkdir()
    with pytest.raises(CheckpointError, match="not the folder of an unfinished job"):
        PartialFolder(tmp_path / "out.npy").manifest()


def test_a_part_is_mapped_not_loaded(folder):
    folder.add(0, {}, {"vectors": np.zeros((1000, 1000), np.float32)})
    vectors = Part(folder.path / "part-00000000.safetensors").array("vectors")
    assert not vectors.flags.owndata and not vectors.flags.writeable


@pytest.fixture
def growing(tmp_path):
    folder = PartialFolder(tmp_path / "out.parquet", beginning=b"PAR1")
    folder.start({"settings": {}})
    return folder


def rows_of(*pieces):
    return EncodedRows(pieces, zlib.crc32(b"".join(pieces)))


def test_an_output_grows_part_by_part(growing, tmp_path):
    growing.add(0, {}, {"numbers": np.arange(3)}, rows_of(b"one ", b"two "))
    growing.add(1, {}, {"numbers": np.arange(3)}, rows_of(b"three "))
    assert growing.growing.read_bytes() == b"PAR1one two three "
    assert [part.array("extent").tolist()[:2] for part in growing.parts()] == [[4, 12], [12, 18]]
    for part in growing.parts():
        assert part.has_grown
        part.verify()
    growing.end_growing(b"end")
    growing.finish(["out.parquet"])
    assert [path.name for path in tmp_path.iterdir()] == ["out.parquet"]
    assert (tmp_path / "out.parquet").read_bytes() == b"PAR1one two three end"


def test_a_later_run_overwrites_what_no_part_knows(growing, tmp_path):
    growing.add(0, {}, {}, rows_of(b"one "))
    with growing.growing.open("ab") as file:
        file.write(b"half of a longer part")
    later = PartialFolder(tmp_path / "out.parquet", beginning=b"PAR1")
    later.add(1, {}, {}, rows_of(b"two "))
    assert growing.growing.read_bytes() == b"PAR1one two "


@pytest.mark.parametrize("damage", [lambda data: data[:-2], lambda data: data[:-1] + b"?", lambda data: b""])
def test_rows_that_are_not_those_of_their_part_are_damage(growing, damage):
    growing.add(0, {}, {}, rows_of(b"one "))
    growing.growing.write_bytes(damage(growing.growing.read_bytes()))
    with pytest.raises(CheckpointError, match="its rows in the file growing are not those that were written"):
        growing.parts()[0].verify()
    growing.growing.unlink()
    with pytest.raises(CheckpointError, match="No such file"):
        growing.parts()[0].verify()
