"""Folders of unfinished jobs that are damaged: one line that names the file, and exit code 2."""

from __future__ import annotations

import json
import os
import shutil

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from elmokit import Embedder
from elmokit.cli import main
from elmokit.embed.files import embed_files
from elmokit.embed.parts import PartialFolder
from elmokit.errors import CheckpointError


@pytest.fixture(scope="module")
def stopped(tmp_path_factory, random_model):
    """A job whose first part is finished, and the input."""
    desk = tmp_path_factory.mktemp("stopped")
    (desk / "in.txt").write_text("The bank lent him money.\nShe sat by the river bank.\n", encoding="utf-8")

    class Stop(Exception):
        pass

    def stop(folder):
        raise Stop

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PartialFolder, "assembly", stop)
        with pytest.raises(Stop):
            embed_files(str(desk / "in.txt"), desk / "out.npy", embedder=Embedder(str(random_model)), segment_words=4)
    return desk


@pytest.fixture
def resume(stopped, tmp_path, random_model, monkeypatch):
    """The folder of a copy of that job, and a function that resumes it and gives what it says."""
    shutil.copytree(stopped, tmp_path / "desk")
    monkeypatch.chdir(tmp_path / "desk")

    def go_on():
        embedder = Embedder(str(random_model))
        try:
            embed_files("in.txt", "out.npy", embedder=embedder, segment_words=4, resume=True)
        except CheckpointError as problem:
            assert "\n" not in str(problem)
            return str(problem)
        return "done"

    return tmp_path / "desk" / "out.npy.partial", go_on


def test_a_whole_job_is_resumed(resume):
    folder, go_on = resume
    assert sorted(path.name for path in folder.glob("part*")), "there should be parts"
    assert go_on() == "done"


@pytest.mark.parametrize("place", [0.02, 0.5, 0.99])
def test_overwritten_bytes_are_damage(resume, place):
    folder, go_on = resume
    path = folder / "part-00000000.safetensors"
    data = bytearray(path.read_bytes())
    start = int(place * (len(data) - 8))
    data[start : start + 8] = bytes(b ^ 0x55 for b in data[start : start + 8])
    path.write_bytes(data)
    assert "part-00000000.safetensors: this part of the unfinished job is damaged" in go_on()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda header, arrays: header.pop("digest"), "expected digest"),
        (lambda header, arrays: header.update(num_lines=1.0), "num_lines is 1.0: expected a whole number"),
        (lambda header, arrays: header.update(ended="no"), "ended is 'no': expected true or false"),
        (lambda header, arrays: header.update(num_words=99), "which does not fit its header"),
        (lambda header, arrays: arrays.pop("vectors"), "vectors"),
        (lambda header, arrays: arrays["vectors"].fill_(torch.nan), "its checksum does not fit its numbers"),
    ],
)
def test_a_part_of_another_kind_is_refused(resume, change, says):
    folder, go_on = resume
    path = folder / "part-00000000.safetensors"
    with safe_open(path, framework="pt") as file:
        header = json.loads(file.metadata()["elmokit"])
    arrays = {name: array.clone() for name, array in load_file(path).items()}
    change(header, arrays)
    save_file(arrays, path, metadata={"elmokit": json.dumps(header)})
    said = go_on()
    assert "part-00000000.safetensors" in said and says in said


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not the folder of an unfinished job"),
        ("[]", "not the folder of an unfinished job"),
        ("{}", "expected settings, found only nothing"),
        ('{"settings": [], "input": [], "about": {}}', "settings is []: expected an object"),
        ('{"settings": {}, "input": [3], "about": {}}', "input[0] should be an object"),
    ],
)
def test_a_manifest_of_another_kind_is_refused(resume, text, says):
    folder, go_on = resume
    (folder / "manifest.json").write_text(text)
    said = go_on()
    assert "out.npy.partial" in said and says in said


def test_the_exit_code_is_that_of_bad_input(resume, random_model, capsys):
    folder, _ = resume
    (folder / "manifest.json").unlink()
    os.mkfifo(folder / "manifest.json")
    assert main(["embed", "in.txt", "-o", "out.npy", "--resume", "--model", str(random_model)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
