"""Where results go: never in the place of a device, a pipe or a folder."""

from __future__ import annotations

import os
import socket
import stat

import pytest

from elmokit.cli import main
from elmokit.errors import OutputError
from elmokit.io.atomic import replace_text
from elmokit.outputs import check_output, check_plain


@pytest.fixture(params=["pipe", "device", "socket", "folder"])
def occupied(request, tmp_path):
    """A name that something else than a file has; a device by a link, so that nothing is lost should a test fail."""
    path = tmp_path / "out.jsonl"
    if request.param == "pipe":
        os.mkfifo(path)
    elif request.param == "device":
        path.symlink_to(os.devnull)
    elif request.param == "folder":
        path.mkdir()
    else:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
    return path, request.param


def test_only_a_plain_file_is_replaced(occupied):
    path, kind = occupied
    before = os.lstat(path)
    for write in (check_plain, check_output, lambda path: replace_text(path, "new")):
        with pytest.raises(OutputError, match=f"is a {kind}, which a result never replaces; choose another name"):
            write(path)
    after = os.lstat(path)
    assert (stat.S_IFMT(after.st_mode), after.st_ino) == (stat.S_IFMT(before.st_mode), before.st_ino)
    assert os.listdir(path.parent) == [path.name]


def test_a_file_a_link_to_one_and_nothing_may_be_replaced(tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "dangling").symlink_to(tmp_path / "missing")
    for name in ("file", "link", "dangling", "missing", "x" * 300, "a\0b"):
        check_plain(tmp_path / name)


@pytest.mark.parametrize("name", ["out.npy", "out.offsets.npy"])
def test_overwrite_does_not_reach_pipes(tmp_path, monkeypatch, capsys, random_model, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("a line\n")
    os.mkfifo(tmp_path / name)
    assert main(["embed", "in.txt", "-o", "out.npy", "--overwrite", "--model", str(random_model)]) == 1
    assert f"{name} is a pipe, which a result never replaces" in capsys.readouterr().err
    assert stat.S_ISFIFO(os.stat(name).st_mode) and sorted(os.listdir()) == sorted(["in.txt", name])
