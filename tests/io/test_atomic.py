"""Saving: complete or not at all, and never over somebody's files."""

import errno
import os
import resource
import subprocess
import sys

import pytest

from elmokit.errors import InputError, OutputError
from elmokit.io import load, native, save
from elmokit.io.atomic import replace_text, sweep_partial


def listing(path):
    return sorted(str(entry.relative_to(path)) for entry in path.rglob("*"))


def test_missing_parents_are_made(random_checkpoint, tmp_path):
    assert load(save(random_checkpoint(), tmp_path / "a" / "b" / "model")).config.dim == 8
    assert listing(tmp_path / "a") == ["b", "b/model"] + [
        f"b/model/{name}" for name in ("README.md", "config.json", "model.safetensors")
    ]


def test_a_small_file_is_replaced_or_stays(tmp_path):
    replace_text(tmp_path / "note.json", "1")
    replace_text(tmp_path / "note.json", "2")
    with pytest.raises(UnicodeEncodeError):
        replace_text(tmp_path / "note.json", "\ud800")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        replace_text(tmp_path / "folder", "3")
    assert (tmp_path / "note.json").read_text(encoding="utf-8") == "2"
    assert listing(tmp_path) == ["folder", "note.json"]


def test_an_empty_folder_may_be_filled(random_checkpoint, tmp_path):
    (tmp_path / "model").mkdir()
    assert load(save(random_checkpoint(), tmp_path / "model")).config.dim == 8


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_with_other_files_is_left_alone(random_checkpoint, tmp_path, overwrite):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "thesis.tex").write_text("years of work")
    with pytest.raises(OutputError, match=r"thesis\.tex"):
        save(random_checkpoint(), tmp_path / "model", overwrite=overwrite)
    assert listing(tmp_path) == ["model", "model/thesis.tex"]


@pytest.mark.parametrize("kind", ["native", "allennlp"])
def test_a_model_is_replaced_only_when_asked(random_checkpoint, tmp_path, kind):
    dest = tmp_path / "model"
    checkpoint = random_checkpoint()
    save(checkpoint, dest, format=kind)
    name = "encoder.projection.bias"
    checkpoint.tensors[name] = checkpoint.tensors[name] + 1
    with pytest.raises(OutputError, match="expected an empty or a new folder"):
        save(checkpoint, dest, format=kind)
    held = load(dest)  # mapped from the folder that goes
    before = held.tensors[name].clone()
    save(checkpoint, dest, format=kind, overwrite=True)
    assert load(dest).tensors[name].equal(checkpoint.tensors[name])
    assert held.tensors[name].equal(before)
    assert [entry.name for entry in tmp_path.iterdir()] == ["model"]


def test_a_model_of_the_other_format_is_not_replaced(random_checkpoint, tmp_path):
    save(random_checkpoint(), tmp_path / "model", format="allennlp")
    with pytest.raises(OutputError, match=r"options\.json"):
        save(random_checkpoint(), tmp_path / "model", overwrite=True)


@pytest.mark.parametrize("dest", ["file", "file/below", "link"])
def test_places_that_cannot_be_written(random_checkpoint, tmp_path, dest):
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path)
    before = listing(tmp_path)
    with pytest.raises(OutputError) as caught:
        save(random_checkpoint(), tmp_path / dest)
    assert "\n" not in str(caught.value) and str(tmp_path / dest) in str(caught.value)
    assert listing(tmp_path) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed to root")
def test_a_closed_folder(random_checkpoint, tmp_path):
    (tmp_path / "closed").mkdir(mode=0o500)
    with pytest.raises(OutputError, match="Permission denied"):
        save(random_checkpoint(), tmp_path / "closed" / "model")


def test_a_full_disk(random_checkpoint, tmp_path, monkeypatch):
    def full(*arguments, **named):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(native, "save_file", full)
    with pytest.raises(OutputError, match=r"No space left on device \(free some space\); nothing was left there"):
        save(random_checkpoint(), tmp_path / "deep" / "model")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["native", "allennlp"])
def test_a_disk_that_stops_in_the_middle_of_a_file(random_checkpoint, tmp_path, kind):
    """The kernel itself cuts the writing off: h5py and safetensors each have their own way to say so."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    checkpoint = random_checkpoint()
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OutputError, match="File too large") as caught:
            save(checkpoint, tmp_path / "model", format=kind)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("most", [0, 2_000, 20_000, 200_000, 900_000])
def test_a_process_on_a_full_disk_ends_with_one_line(tmp_path, most):
    """In a process of its own: HDF5 2.0 brings the whole process down when a file on a full disk is closed."""
    code = f"""
import resource
import subprocess
import sys
from elmokit import Elmo, ElmoConfig
elmo = Elmo.random(ElmoConfig.tiny())
resource.setrlimit(resource.RLIMIT_FSIZE, ({most}, {most}))
try:
    elmo.save_pretrained("model", format="allennlp")
except OSError as problem:
    print(type(problem).__name__, problem)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("OutputError") and done.stdout.count("\n") == 1 and "File too large" in done.stdout
    assert not list(tmp_path.iterdir())


def test_a_replacement_that_fails_leaves_the_old_model(random_checkpoint, tmp_path, monkeypatch):
    dest = save(random_checkpoint(), tmp_path / "model")
    rename, calls = type(dest).rename, []

    def once_too_often(path, target):
        calls.append(path)
        if len(calls) == 2:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return rename(path, target)

    monkeypatch.setattr(type(dest), "rename", once_too_often)
    with pytest.raises(OutputError, match="Input/output error"):
        save(random_checkpoint(), dest, overwrite=True)
    assert load(dest).config.dim == 8
    assert [entry.name for entry in tmp_path.iterdir()] == ["model"]


def replace_and_be_killed(dest, text, before):
    """Replace the folder in a process that ends before its rename of that number."""
    code = f"""
import os
from pathlib import Path
from elmokit.io.atomic import new_folder
rename, calls = Path.rename, []
def until_killed(path, target):
    calls.append(path)
    return os._exit(9) if len(calls) == {before} else rename(path, target)
Path.rename = until_killed
with new_folder(Path({str(dest)!r}), replaces=["note"]) as partial:
    (partial / "note").write_text({text!r})
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=120, check=False).returncode == 9


def test_what_a_kill_left_beside_its_place_is_put_back(tmp_path):
    dest = tmp_path / "dest"
    dest.mkdir()
    (dest / "note").write_text("old")
    replace_and_be_killed(dest, "new", before=2)  # the old folder has stepped aside, the new one is not there yet
    assert not dest.exists()
    sweep_partial(dest)
    assert listing(tmp_path) == ["dest", "dest/note"]
    assert (dest / "note").read_text() == "old"


def test_what_was_moved_aside_goes_where_a_folder_has_taken_its_place(tmp_path):
    for name, text in (("dest", "new"), (".dest.0123abcd.old", "old"), (".other.0123abcd.old", "of another output")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "note").write_text(text)
    sweep_partial(tmp_path / "dest")
    assert listing(tmp_path) == [".other.0123abcd.old", ".other.0123abcd.old/note", "dest", "dest/note"]
    assert (tmp_path / "dest" / "note").read_text() == "new"


def test_an_interrupt_leaves_nothing(random_checkpoint, tmp_path, monkeypatch):
    def interrupt(*arguments, **named):
        raise KeyboardInterrupt

    monkeypatch.setattr(native, "save_file", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save(random_checkpoint(), tmp_path / "model")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("wrong", [{"format": "onnx"}, {"dtype": "int4"}, {"softmax_dtype": "bfloat16"}])
def test_unknown_formats_and_types(random_checkpoint, tmp_path, wrong):
    with pytest.raises(InputError, match="expected format native or allennlp and dtype float32, float16 or int8"):
        save(random_checkpoint(), tmp_path / "model", **wrong)


def test_allennlps_layout_takes_no_smaller_output_layer(random_checkpoint, tmp_path):
    with pytest.raises(InputError, match="stores float32 only: use dtype='float32' and no softmax_dtype"):
        save(random_checkpoint(), tmp_path / "model", format="allennlp", softmax_dtype="int8")
    assert not list(tmp_path.iterdir())
