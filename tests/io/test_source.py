"""What a user may call a model, and that nothing else is reached for."""

import json
import os
import shutil
import socket
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from random_models import write_manylangs

from elmokit.errors import CheckpointError
from elmokit.io import archive, load, model_names, packages


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*arguments, **named):
        raise AssertionError("the network was reached for")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr("huggingface_hub.snapshot_download", refuse)


def pack(folder: Path, path: Path, inside: str = "", extra: dict[str, str] | None = None) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as zipped:
        for file in folder.iterdir():
            zipped.write(file, inside + file.name)
        for name, text in (extra or {}).items():
            zipped.writestr(name, text)
    return path


def test_a_folder_as_text_path_or_below_home(native_folder, monkeypatch):
    monkeypatch.setenv("HOME", str(native_folder.parent))
    for given in (native_folder, str(native_folder), "~/native"):
        assert load(given).path == native_folder


@pytest.mark.parametrize("inside", ["", "144/"])
def test_an_archive_of_nlpl(write_bilm, options, tmp_path, inside, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    folder, _ = write_bilm(options, name="model.hdf5")
    (folder / "vocab.txt.gz").write_bytes(b"never opened: the model reads characters")
    extra = {inside + "README": "NLPL", inside + "meta.json": "{}", "__MACOSX/._options.json": "\0\0"}
    path = pack(folder, tmp_path / "144.zip", inside, extra)
    shutil.rmtree(folder)
    checkpoint = load(path)
    assert checkpoint.format == "allennlp" and checkpoint.path == path and checkpoint.config.dim == 8
    assert not list((tmp_path / "temporary").iterdir()), "the unpacked files should be gone"


def test_a_native_archive_outlives_its_unpacked_files(native_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    expected = load(native_folder).tensors["encoder.projection.weight"].clone()
    checkpoint = load(pack(native_folder, tmp_path / "model.zip", "deep/er/"))
    assert not list((tmp_path / "temporary").iterdir())
    assert checkpoint.tensors["encoder.projection.weight"].equal(expected)


def test_a_model_that_a_program_packs_is_a_source(native_folder, tmp_path):
    (tmp_path / "model.zip").write_bytes(archive.pack(native_folder))
    packed, expected = load(tmp_path / "model.zip"), load(native_folder)
    assert packed.config == expected.config
    assert all(np.array_equal(packed.tensors[name], tensor) for name, tensor in expected.tensors.items())


def test_a_folder_of_seqvec(write_bilm, options):
    folder, _ = write_bilm(options)
    assert sorted(path.name for path in folder.iterdir()) == ["options.json", "weights.hdf5"]
    assert load(folder).format == "allennlp"


def test_a_name_does_not_depend_on_the_current_folder(native_folder, tmp_path, monkeypatch):
    (tmp_path / "bundle").mkdir()
    shutil.copytree(native_folder, tmp_path / "bundle" / "xx-small")
    monkeypatch.setattr(packages, "BUNDLED", tmp_path / "bundle")
    (tmp_path / "here" / "xx-small").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    assert "xx-small" in model_names()
    assert load("xx-small").path == tmp_path / "bundle" / "xx-small"
    with pytest.raises(CheckpointError, match="found nothing"):
        load("./xx-small")
    with pytest.raises(
        CheckpointError, match=r"the name of an installed model \(xx-small.*\), a folder, a \.zip, or a hub id"
    ):
        load("xx-large")


def test_a_hub_id_is_fetched_only_when_no_such_path_exists(native_folder, monkeypatch, tmp_path):
    asked = []

    def download(repo, **named):
        asked.append((repo, named["ignore_patterns"]))
        return str(native_folder)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert load("someone/some-elmo").config.dim == 8
    assert load("someone/some-elmo", softmax=True).config.dim == 8
    assert asked == [("someone/some-elmo", ["*softmax*"]), ("someone/some-elmo", None)]
    monkeypatch.chdir(tmp_path)
    shutil.copytree(native_folder, tmp_path / "someone" / "some-elmo")
    load("someone/some-elmo")
    assert len(asked) == 2


def test_a_hub_that_says_no_is_one_line(monkeypatch):
    def download(repo, **named):
        raise OSError("404 Client Error.\nRepository Not Found")

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    with pytest.raises(
        CheckpointError, match="hub gave no such model.*404 Client Error. Repository Not Found"
    ) as caught:
        load("someone/nothing")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "given",
    [
        "no-such-model",
        "no/such/folder",
        "/no/such/folder",
        "./no-such",
        "gone/model.zip",
        "https://host/x.zip",
        "",
        "a\0b",
        "~nobody-of-that-name/x",
        "x" * 5000,
    ],
)
def test_a_missing_source_says_what_a_source_is(given):
    with pytest.raises(
        CheckpointError, match=r"a source is the name of an installed model .*, a folder, a \.zip, or a hub id"
    ) as caught:
        load(given)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["weights.hdf5", "options.json"])
def test_a_file_is_answered_with_its_folder(write_bilm, options, name):
    folder, _ = write_bilm(options)
    with pytest.raises(CheckpointError, match="give the folder that holds it"):
        load(folder / name)


@pytest.mark.parametrize("names", [["checkpoint", "options.json"], ["model.ckpt-935588.index"], ["saved_model.pb"]])
@pytest.mark.parametrize("zipped", [False, True])
def test_a_tensorflow_checkpoint_is_sent_to_the_page_about_it(tmp_path, names, zipped):
    folder = tmp_path / "checkpoint-folder"
    folder.mkdir()
    for name in names:
        (folder / name).write_text("{}")
    given = pack(folder, tmp_path / "c.zip") if zipped else folder
    with pytest.raises(CheckpointError, match=r"TensorFlow checkpoint; docs/how-to/tensorflow-checkpoints\.md"):
        load(given)


def test_a_folder_of_something_else_says_what_was_found(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(CheckpointError, match=r"found thesis\.tex; give the folder that holds the files"):
        load(tmp_path)


def test_a_mistyped_path_is_not_asked_of_the_hub(native_folder, monkeypatch, tmp_path):
    """The network is refused by this file's fixture: the error comes before it."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(native_folder, tmp_path / "models" / "mine")
    with pytest.raises(CheckpointError, match=r"^models/mime: .*the hub was not asked; .* mean models/mine\?$"):
        load("models/mime")


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "vocab.txt"])
def test_a_link_out_of_the_folder_is_not_followed(native_folder, tmp_path, name):
    (tmp_path / "elsewhere").write_text("a secret")
    (native_folder / name).unlink(missing_ok=True)
    (native_folder / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(
        CheckpointError, match=f"{name} is a link to .*elsewhere, outside of its folder; refused"
    ) as one:
        load(native_folder, softmax=True)
    assert "a secret" not in str(one.value)


def test_links_inside_the_folder_are_followed(native_folder):
    (native_folder / "model.safetensors").replace(native_folder / "weights.bin")
    (native_folder / "model.safetensors").symlink_to("weights.bin")
    assert load(native_folder).config.dim == 8
    native_folder.with_name("link").symlink_to(native_folder)
    assert load(native_folder.with_name("link")).config.dim == 8


def test_a_snapshot_of_the_hub_may_link_to_its_blobs(native_folder, tmp_path):
    snapshot, blobs = tmp_path / "cache" / "snapshots" / "abc", tmp_path / "cache" / "blobs"
    snapshot.mkdir(parents=True)
    shutil.move(native_folder, blobs)
    for file in blobs.iterdir():
        (snapshot / file.name).symlink_to(f"../../blobs/{file.name}")
    assert load(snapshot).config.dim == 8


@pytest.mark.parametrize("name", ["config.json", "options.json", "x.zip"])
def test_a_pipe_is_not_opened(native_folder, name):
    (native_folder / name).unlink(missing_ok=True)
    os.mkfifo(native_folder / name)
    with pytest.raises(CheckpointError, match=f"{name}: expected a (file, found a pipe|folder or a)"):
        load(native_folder / name if name == "x.zip" else native_folder)


@pytest.mark.parametrize("given", ["/etc/passwd", "../secret.json", "/dev/zero", "link.json", "pipe.json", "below"])
def test_an_architecture_outside_of_the_folder_is_not_opened(tmp_path, given):
    folder = write_manylangs(tmp_path / "model", np.random.default_rng(0))
    (folder / "architecture.json").replace(tmp_path / "secret.json")
    (folder / "below").mkdir()
    (folder / "config.json").write_text(json.dumps({"config_path": given}))
    if given == "link.json":
        (folder / given).symlink_to(tmp_path / "secret.json")
    if given == "pipe.json":
        os.mkfifo(folder / given)
    said = "refused" if given in ("link.json", "pipe.json") else "built-in default architecture"
    with pytest.raises(CheckpointError, match=said):
        load(folder)
