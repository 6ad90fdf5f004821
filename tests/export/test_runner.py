"""An exported folder: text in, the vectors of `Embedder` out, without torch; and what is said when it is not whole."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from comparing import DATA

from elmokit import Embedder
from elmokit.cli import main
from elmokit.export import export_model

pytest.importorskip("onnxscript")
onnxruntime = pytest.importorskip("onnxruntime")

MODELS = [
    "allennlp-one-layer-no-clips",
    "allennlp-three-layers-tight-clips",
    "manylangs-characters-tight-clips",
    "manylangs-words",
    "manylangs-words-and-characters",
]
TEXTS = [
    "She sat by the river bank, didn't she?",
    ["a", "list", "of", "words", "<S>", "été"],
    "",
    "한국어 문장이다.",
    "x" * 80,
    ["the"] * 25,  # in these random models rounding grows with length: at 70 words float32 is 7e-5 from float64
]
WITHOUT = """
import sys
for name in ("torch", "elmokit", "regex", "onnx", "onnxscript"):
    sys.modules[name] = None
sys.argv = sys.argv[1:]
import runpy
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    return export_model(DATA / "allennlp-two-layers", tmp_path_factory.mktemp("exported") / "model")


@pytest.fixture
def copied(exported, tmp_path):
    return shutil.copytree(exported, tmp_path / "copy")


def largest_difference(found, expected):
    assert [each.shape for each in found] == [each.shape for each in expected]
    return max((np.abs(a - b).max() for a, b in zip(found, expected, strict=True) if a.size), default=0)


@pytest.mark.parametrize("name", MODELS)
def test_every_kind_of_model_gives_the_vectors_of_embedder(name, tmp_path, load_runner):
    folder = export_model(DATA / name, tmp_path / "model")
    found = load_runner(folder).ElmoRunner().embed(TEXTS, layers="all")
    assert largest_difference(found, Embedder(DATA / name).embed(TEXTS, layers="all")) < 1e-5


@pytest.mark.parametrize("layers", ["average", "top", "mix", 0, 1])
def test_layers_are_chosen_as_embedder_does(exported, layers, load_runner):
    elmo = load_runner(exported).ElmoRunner()
    expected = Embedder(DATA / "allennlp-two-layers").embed(TEXTS, layers=layers)
    assert largest_difference(elmo.embed(TEXTS, layers=layers), expected) < 1e-5


def test_graphs_tell_nothing_of_the_machine_that_wrote_them(exported):
    for name in ("words.onnx", "layers.onnx"):
        held = (exported / name).read_bytes()
        assert not [place for place in (Path.home(), Path(__file__).parents[2]) if bytes(place) in held]
        assert b".py" not in held


def test_a_vector_depends_on_its_own_sentence_alone(exported, load_runner):
    module = load_runner(exported)
    elmo = module.ElmoRunner(cache_words=3)
    together = elmo.embed(TEXTS * 20, layers="all")
    alone = [module.ElmoRunner().embed([text], layers="all")[0] for text in TEXTS] * 20
    assert largest_difference(together, alone) < 1e-5
    assert elmo.embed([]) == []


def test_a_warm_start_and_a_stored_mix_travel_along(tmp_path, load_runner):
    folder = export_model("en-small", tmp_path / "model", state="canonical")
    elmo = load_runner(folder).ElmoRunner()
    texts = ["She sat by the river bank .", "The bank lent him money ."]
    for layers in ("mix", "all"):
        expected = Embedder("en-small", state="canonical").embed(texts, layers=layers)
        assert largest_difference(elmo.embed(texts, layers=layers), expected) < 1e-5


def test_int8_takes_a_quarter_of_the_room_and_keeps_directions(tmp_path, load_runner):
    folders = [export_model("en-small", tmp_path / name, precision=name) for name in ("float32", "int8")]
    large, small = (sum(path.stat().st_size for path in folder.glob("*.onnx")) for folder in folders)
    assert small < 0.27 * large
    texts = ["She sat by the river bank and watched the boats .", "The bank raised its interest rates in 1998 ."]
    whole, rounded = (load_runner(folder).ElmoRunner().embed(texts, layers="all") for folder in folders)
    for a, b in zip(whole, rounded, strict=True):
        cosines = (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)
        assert cosines.min() > 0.998


def run(folder, *arguments, stdin=None):
    command = [sys.executable, "-c", WITHOUT, str(folder / "run_elmo.py"), *arguments]
    done = subprocess.run(command, capture_output=True, input=stdin if stdin is None else os.fsencode(stdin))
    return SimpleNamespace(returncode=done.returncode, stdout=done.stdout.decode(), stderr=done.stderr.decode())


def test_the_command_line_needs_neither_torch_nor_elmokit(exported, tmp_path):
    done = run(exported, "The bank lent him money.", "It rained.")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["words"] for line in lines] == [["The", "bank", "lent", "him", "money", "."], ["It", "rained", "."]]
    expected = Embedder(DATA / "allennlp-two-layers").embed(["It rained."])[0]
    assert np.abs(np.array(lines[1]["vectors"]) - expected).max() < 1e-5

    done = run(exported, "--split", "--layers", "all", "-o", str(tmp_path / "out.npz"), stdin="One. Two!\n\nThree?\n")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    with np.load(tmp_path / "out.npz") as arrays:
        assert [" ".join(arrays[f"words_{number}"]) for number in range(3)] == ["One .", "Two !", "Three ?"]
        assert arrays["vectors_2"].shape[:2] == (3, 2)


def test_bad_input_is_one_line(exported):
    for arguments, stdin, message in (
        (["--threads", "0", "a"], None, "threads is 0: expected 1 or more"),
        (["-"], "caf\udce9\n", "can't decode byte 0xe9"),
        (["-o", "/no/such/folder/out.npz", "a"], None, "No such file or directory"),
    ):
        done = run(exported, *arguments, stdin=stdin)
        assert (done.returncode, done.stdout) == (2, "")
        (line,) = done.stderr.splitlines()
        assert line.startswith("run_elmo: ") and message in line


def spoil(folder, **values):
    config = json.loads((folder / "elmo.json").read_text())
    (folder / "elmo.json").write_text(json.dumps(config | values))


def test_what_is_not_whole_is_refused_in_one_line(copied):
    def complain():
        done = run(copied, "text")
        assert (done.returncode, done.stdout) == (2, "")
        (line,) = done.stderr.splitlines()
        return line

    spoil(copied, opset=99)
    assert "need ONNX opset 99, this runner knows 18 to 23" in complain()
    spoil(copied, opset=20, format_version=7)
    assert "expected format_version 1, found 7" in complain()
    spoil(copied, format_version=1)
    (copied / "layers.onnx").write_bytes(b"not a graph")
    assert "layers.onnx cannot be run by onnxruntime" in complain()
    (copied / "words.onnx").unlink()
    assert "words.onnx is missing" in complain()
    (copied / "elmo.json").write_text("{")
    assert "elmo.json is no JSON" in complain()
    (copied / "elmo.json").write_text("{}")
    assert "expected format_version 1, found None" in complain()


def test_an_old_onnxruntime_is_told_which_one_can(exported, monkeypatch, load_runner):
    module = load_runner(exported)
    monkeypatch.setattr(onnxruntime, "__version__", "1.16.3")
    with pytest.raises(module.CheckpointError, match=r"pip install 'onnxruntime>=1\.17'"):
        module.ElmoRunner()
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(module.MissingExtra, match="pip install numpy onnxruntime"):
        module.ElmoRunner()


def test_a_string_is_no_list_and_a_number_no_word(exported, load_runner):
    module = load_runner(exported)
    elmo = module.ElmoRunner()
    with pytest.raises(module.InputError, match="expected a list of sentences, but one string came"):
        elmo.embed("text")
    with pytest.raises(module.InputError, match="word 1 is 3 of type int: expected a string"):
        elmo.embed([["a", 3]])
    with pytest.raises(module.LayerError, match="did you mean average"):
        elmo.embed([["a"]], layers="averge")


def test_the_command_writes_once_and_replaces_only_what_is_its_own(tmp_path, capsys):
    source, folder = str(DATA / "allennlp-one-layer-no-clips"), tmp_path / "out"
    assert main(["export", source, "-o", str(folder), "--quiet"]) == 0
    assert "run_elmo.py" in capsys.readouterr().out
    before = (folder / "layers.onnx").read_bytes()
    assert main(["export", source, "-o", str(folder)]) == 1
    assert "expected an empty or a new folder" in capsys.readouterr().err
    assert main(["export", source, "-o", str(folder), "--overwrite", "--precision", "int8", "--quiet"]) == 0
    assert json.loads((folder / "elmo.json").read_text())["precision"] == "int8"
    (folder / "mine.txt").write_text("mine")
    assert main(["export", source, "-o", str(folder), "--overwrite"]) == 1
    assert "found mine.txt" in capsys.readouterr().err
    assert before
