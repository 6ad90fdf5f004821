"""Bad model files, seen from the command line: one line, exit code 2, nothing written."""

from __future__ import annotations

import json
import pickle
import shutil
import zipfile
from pathlib import Path

import h5py
import pytest

from elmokit.cli import main

SENTENCES = ["She sat by the river bank.", "The bank lent him money."]


class Hostile:
    """A pickle of it runs code when a careless program loads it."""

    def __reduce__(self):
        return (Path.touch, (Path("ran-the-code"),))


@pytest.fixture(scope="module")
def allennlp_model(random_model, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("allennlp") / "model"
    assert main(["convert", str(random_model), str(folder), "--format", "allennlp"]) == 0
    return folder


def cut_weights(folder: Path, name: str) -> None:
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[: len(data) // 2])


def drop_dataset(folder: Path) -> None:
    with h5py.File(folder / "weights.hdf5", "r+") as file:
        del file["CNN_proj/W_proj"]


def reshape_dataset(folder: Path) -> None:
    with h5py.File(folder / "weights.hdf5", "r+") as file:
        del file["CNN_proj/b_proj"]
        file["CNN_proj/b_proj"] = [0.0, 1.0]


def contradict_options(folder: Path) -> None:
    options = json.loads((folder / "options.json").read_text(encoding="utf-8"))
    options["lstm"]["dim"] += 1
    (folder / "options.json").write_text(json.dumps(options), encoding="utf-8")


def claim_terabytes(folder: Path) -> None:
    header = {"encoder.characters.embedding": {"dtype": "F32", "shape": [2**40, 4], "data_offsets": [0, 2**44]}}
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text)


def claim_a_huge_header(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes((2**50).to_bytes(8, "little") + b"{}")


def manylangs_with_code(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    lstm = {"dim": 8, "projection_dim": 4, "n_layers": 2, "cell_clip": 3, "proj_clip": 3, "use_skip_connections": True}
    characters = {"activation": "relu", "filters": [[1, 4]], "n_highway": 1, "max_characters_per_token": 50}
    token_embedder = {"name": "cnn", "char_dim": 4, "word_dim": 4, "n_characters": 262, **characters}
    architecture = {"encoder": {"name": "elmo", **lstm}, "token_embedder": token_embedder, "classifier": {}}
    (folder / "arch.json").write_text(json.dumps(architecture), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps({"config_path": "arch.json"}), encoding="utf-8")
    symbols = ["<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>", "a"]
    lines = "".join(f"{symbol}\t{number}\n" for number, symbol in enumerate(symbols))
    for name in ("char.dic", "word.dic"):
        (folder / name).write_text(lines, encoding="utf-8")
    for name in ("encoder.pkl", "token_embedder.pkl"):
        (folder / name).write_bytes(pickle.dumps(Hostile()))


DAMAGES = {
    "truncated safetensors": ("native", lambda folder: cut_weights(folder, "model.safetensors"), "model.safetensors"),
    "a header that claims terabytes": ("native", claim_terabytes, "model.safetensors"),
    "a huge header": ("native", claim_a_huge_header, "model.safetensors"),
    "missing weights": ("native", lambda folder: (folder / "model.safetensors").unlink(), "model.safetensors"),
    "a config that is not JSON": ("native", lambda folder: (folder / "config.json").write_text("{"), "config.json"),
    "truncated hdf5": ("allennlp", lambda folder: cut_weights(folder, "weights.hdf5"), "weights.hdf5"),
    "a missing dataset": ("allennlp", drop_dataset, "CNN_proj/W_proj"),
    "a misshapen dataset": ("allennlp", reshape_dataset, "CNN_proj/b_proj"),
    "options that contradict the weights": ("allennlp", contradict_options, "W_0"),
    "a pickle that would run code": ("native", manylangs_with_code, ".pkl"),
}


@pytest.fixture
def desk(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check_refused(arguments: list[str], capsys, desk: Path, naming: str) -> None:
    """The command fails with exit code 2 and one line that names the culprit, and leaves no new file."""
    before = sorted(desk.rglob("*"))
    capsys.readouterr()
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("elmo: ")
    assert captured.err.count("\n") == 1
    assert naming in captured.err
    assert sorted(desk.rglob("*")) == before


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_model_is_refused(damage, desk, random_model, allennlp_model, capsys):
    family, spoil, naming = DAMAGES[damage]
    shutil.copytree(random_model if family == "native" else allennlp_model, desk / "model")
    spoil(desk / "model")
    (desk / "corpus.txt").write_text("A line.\n", encoding="utf-8")
    check_refused(["info", "model"], capsys, desk, naming)
    check_refused(["convert", "model", "converted"], capsys, desk, naming)
    check_refused(["compare", "bank", *SENTENCES, "--model", "model"], capsys, desk, naming)
    check_refused(["embed", "corpus.txt", "-o", "out.parquet", "--model", "model"], capsys, desk, naming)


@pytest.mark.parametrize("escape", ["../outside.json", "/outside.json", "folder/../../outside.json"])
def test_a_zip_that_writes_outside_its_folder_is_refused(escape, desk, random_model, capsys):
    with zipfile.ZipFile(desk / "model.zip", "w") as archive:
        for path in random_model.iterdir():
            archive.write(path, path.name)
        archive.writestr(escape, "gotcha")
    check_refused(["info", "model.zip"], capsys, desk, "outside.json")


@pytest.mark.parametrize("source", ["missing-folder", "empty", "missing.zip", "not-a.zip"])
def test_a_source_that_is_no_model_is_refused(source, desk, capsys):
    (desk / "empty").mkdir()
    (desk / "not-a.zip").write_bytes(b"PK, or so it says")
    check_refused(["info", source], capsys, desk, source)


def test_what_a_kill_moved_aside_is_back_before_a_folder_is_written(desk, random_model, capsys):
    shutil.copytree(random_model, desk / "model")
    assert main(["convert", "model", "out"]) == 0
    (desk / "out").rename(desk / ".out.0123abcd.old")
    assert main(["convert", "model", "out"]) == 1
    assert "out: expected an empty or a new folder" in capsys.readouterr().err
    assert (desk / "out" / "model.safetensors").is_file() and not list(desk.glob(".out.*.old"))
