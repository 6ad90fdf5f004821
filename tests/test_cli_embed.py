"""`elmo embed` from the command line: formats, standard input, resuming, and bad input that leaves nothing behind."""

from __future__ import annotations

import io
import json
import os
import pty
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import get_args, get_type_hints

import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest

from elmokit.cli import main
from elmokit.commands.embed import SUFFIXES, Embed
from elmokit.embed.sinks import FORMATS
from elmokit.engines import why_no_library
from elmokit.waits import show_progress

TEXT = "She sat by the river bank.\n\nThe bank lent him money. He was glad.\n"
ELMO = [sys.executable, "-c", "import sys; from elmokit.cli import main; sys.exit(main())"]


@pytest.fixture
def desk(tmp_path, monkeypatch, random_model) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus.txt").write_text(TEXT, encoding="utf-8")
    return tmp_path


@pytest.fixture
def embed(desk, random_model):
    """Call `elmo embed` on the desk with the random model."""
    return lambda *arguments: main(["embed", *arguments, "--model", str(random_model)])


def test_the_command_knows_every_format():
    choices, metavar = get_args(get_type_hints(Embed, include_extras=True)["format"])
    assert get_args(get_args(choices)[0]) == tuple(FORMATS)
    assert metavar.metavar == "|".join(FORMATS)
    assert tuple(suffix for format in FORMATS.values() for suffix in format.suffixes) == SUFFIXES


def complaint(capsys) -> str:
    captured = capsys.readouterr()
    assert captured.err.startswith("elmo: ")
    assert captured.err.count("\n") == 1
    return captured.err


def test_parquet_has_a_row_for_each_line(embed, desk, capsys):
    assert embed("corpus.txt", "-o", "out.parquet") == 0
    assert capsys.readouterr().out.startswith("out.parquet: 3 lines, 17 words")
    table = pq.read_table("out.parquet")
    assert table.column("line").to_pylist() == [0, 1, 2]
    assert table.column("words").to_pylist()[1] == []
    assert [len(vectors) for vectors in table.column("vectors").to_pylist()] == [7, 0, 10]
    assert sorted(path.name for path in desk.iterdir()) == ["corpus.txt", "out.parquet"]


@pytest.mark.skipif(why_no_library() is not None, reason="no C++ kernels here")
def test_int8_is_near_and_said_in_the_file(embed):
    assert embed("corpus.txt", "-o", "exact.npy", "--device", "cpu") == 0
    assert embed("corpus.txt", "-o", "out.npy", "--device", "cpu", "--precision", "int8") == 0
    exact, found = np.load("exact.npy").astype(float), np.load("out.npy").astype(float)
    assert 0 < np.linalg.norm(found - exact) < 0.05 * np.linalg.norm(exact)
    assert embed("corpus.txt", "-o", "out.parquet", "--device", "cpu", "--precision", "int8") == 0
    assert pq.read_schema("out.parquet").metadata[b"elmokit.precision"] == b"int8"


def test_a_precision_that_is_not_here_is_declined_with_the_reason(embed, desk, capsys):
    assert embed("corpus.txt", "-o", "out.parquet", "--device", "cpu", "--precision", "bfloat16") == 2
    assert "--precision bfloat16 needs CUDA, found cpu: use one of 'float32'" in complaint(capsys)
    assert sorted(path.name for path in desk.iterdir()) == ["corpus.txt"]


@pytest.mark.parametrize("output", ["out.hdf5", "out.npy", "out.jsonl"])
def test_other_formats_hold_the_same_vectors(output, embed, random_model):
    from elmokit import Embedder, words

    assert embed("corpus.txt", "-o", output, "--dtype", "float32") == 0
    expected = Embedder.from_pretrained(random_model).embed([words(line) for line in TEXT.splitlines()])
    if output == "out.hdf5":
        with h5py.File(output) as file:
            found = [file[str(line)][()] for line in range(3)]
    elif output == "out.npy":
        offsets = np.load("out.offsets.npy")
        found = np.split(np.load(output), offsets[1:-1])
    else:
        rows = [json.loads(line) for line in Path(output).read_text(encoding="utf-8").splitlines()]
        found = [np.array(row["vectors"], np.float32).reshape(-1, 128) for row in rows]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_vectors_are_stored_as_float16_but_float32_in_hdf5(embed, capsys):
    assert embed("corpus.txt", "-o", "out.npy") == embed("corpus.txt", "-o", "out.hdf5") == 0
    with h5py.File("out.hdf5") as file:
        assert (np.load("out.npy").dtype, file["0"].dtype) == (np.float16, np.float32)
    capsys.readouterr()
    assert main(["embed", "--help"]) == 0
    said = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "(default: float16, but float32 for hdf5)" in said


def test_format_layers_split_and_tokenised(embed):
    assert embed("corpus.txt", "-o", "all", "--format", "hdf5", "--layers", "all", "--dtype", "float16") == 0
    with h5py.File("all") as file:
        assert file["0"].shape == (3, 7, 128)
        assert file["0"].dtype == np.float16
    assert embed("corpus.txt", "-o", "split.parquet", "--split", "--layers", "2") == 0
    assert pq.read_table("split.parquet").column("line").to_pylist()[-2:] == [2, 2]
    assert embed("corpus.txt", "-o", "tokenised.parquet", "--tokenised", "--layers", "top") == 0
    assert pq.read_table("tokenised.parquet").column("words").to_pylist()[0][-1] == "bank."


def test_standard_input(embed, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    assert embed("-", "-o", "out.parquet") == 0
    assert pq.read_table("out.parquet").num_rows == 3


@pytest.mark.parametrize("state", ["carry", "canonical"])
def test_state_changes_the_vectors(state, embed):
    assert embed("corpus.txt", "corpus.txt", "-o", "zero.npy", "--batch-size", "3") == 0
    assert embed("corpus.txt", "corpus.txt", "-o", "other.npy", "--batch-size", "3", "--state", state) == 0
    zero, other = np.load("zero.npy"), np.load("other.npy")
    assert np.array_equal(zero[:17], zero[17:])
    assert not np.allclose(zero[17:], other[17:], atol=1e-3)
    assert np.array_equal(other[:17], other[17:]) == (state == "canonical")


def test_an_existing_output_is_kept_unless_told(embed, capsys):
    assert embed("corpus.txt", "-o", "out.jsonl") == 0
    before = Path("out.jsonl").read_bytes()
    capsys.readouterr()
    assert embed("corpus.txt", "-o", "out.jsonl", "--layers", "top") == 1
    assert "--overwrite" in complaint(capsys)
    assert Path("out.jsonl").read_bytes() == before
    assert embed("corpus.txt", "-o", "out.jsonl", "--layers", "top", "--overwrite") == 0
    assert Path("out.jsonl").read_bytes() != before


def test_resume_of_a_finished_job_does_nothing_and_says_so(embed, capsys):
    assert embed("corpus.txt", "-o", "out.jsonl") == 0
    capsys.readouterr()
    assert embed("corpus.txt", "-o", "out.jsonl", "--resume") == 0
    assert "nothing to resume" in complaint(capsys)


def test_odd_words_are_counted_in_one_warning_and_refused_when_strict(embed, desk, capsys):
    (desk / "odd.txt").write_text("a nul\0byte\n" + "x" * 1_000_000 + "\n", encoding="utf-8")
    assert embed("odd.txt", "-o", "odd.parquet", "--tokenised") == 0
    assert complaint(capsys).startswith("elmo: 2 words")
    assert embed("odd.txt", "-o", "strict.parquet", "--tokenised", "--strict") == 2
    assert "odd.txt:1" in complaint(capsys)
    assert not (desk / "strict.parquet").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "naming"),
    [
        (["missing.txt", "-o", "out.parquet"], 2, "missing.txt"),
        (["-o", "out.parquet"], 2, "input file"),
        ([".", "-o", "out.parquet"], 2, "folder"),
        (["latin1.txt", "-o", "out.parquet"], 2, "latin1.txt:2: expected UTF-8, found the byte 0xef"),
        (["corpus.txt", "-o", "out.parquet", "--layers", "3"], 2, "asked for layer 3, but this model has layers 0–2"),
        (["corpus.txt", "-o", "out.parquet", "--layers", "best"], 2, "best"),
        (["corpus.txt", "-o", "out.parquet", "--batch-size", "0"], 2, "--batch-size is 0"),
        (["corpus.txt", "-o", "out.parquet", "--device", "abacus"], 2, "abacus"),
        (["corpus.txt", "-o", "out.docx"], 2, "out.docx"),
        (["corpus.txt", "-o", "nowhere/out.parquet"], 1, "nowhere"),
        (["corpus.txt", "-o", "corpus.txt/out.parquet"], 1, "corpus.txt/out.parquet"),
        (["corpus.txt", "-o", ".", "--format", "parquet"], 1, "folder"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(arguments, code, naming, embed, desk, capsys):
    (desk / "latin1.txt").write_bytes(b"fine\nna\xefve\n")
    before = sorted(desk.rglob("*"))
    assert embed(*arguments) == code
    assert naming in complaint(capsys)
    assert sorted(desk.rglob("*")) == before


def test_a_disk_that_takes_no_more_is_a_failure_that_can_be_resumed(embed, desk, random_model):
    """The system refuses to let any file grow beyond 60 kB, as a full disk would."""
    (desk / "long.txt").write_text("one more line of text\n" * 400, encoding="utf-8")
    command = [*ELMO, "embed", "long.txt", "-o", "out.npy", "--model", str(random_model)]

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))

    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=limit)
    assert done.returncode == 1
    assert "elmo: cannot write out.npy: " in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (desk / "out.npy").exists()
    assert embed("long.txt", "-o", "out.npy", "--resume") == 0
    assert len(np.load("out.npy")) == 2000


def test_control_c_says_how_to_go_on(desk, random_model):
    command = [*ELMO, "embed", "-", "-o", "out.parquet", "--model", str(random_model)]

    def hear_interrupts():
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background job, such as a CI runner, ignores them

    process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=hear_interrupts)
    assert process.stdin
    for _ in range(300):
        if (desk / "out.parquet.partial").exists():
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    try:
        assert process.wait(timeout=60) == 130
    finally:
        process.kill()
        _, said = process.communicate()
    assert said.decode().endswith("elmo: stopped; the same command with --resume continues\n")
    assert not (desk / "out.parquet").exists()


def test_someone_at_a_terminal_sees_progress(desk, random_model):
    ours, theirs = pty.openpty()
    command = [*ELMO, "embed", "corpus.txt", "-o", "out.parquet", "--model", str(random_model)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs)
    process.communicate()
    shown = os.read(ours, 100_000).decode()
    os.close(theirs)
    os.close(ours)
    assert process.returncode == 0
    assert "100%" in shown
    assert "words/s" in shown
    assert "left" in shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-o", "out.xyz"], "or say --format"),
        (["-o", "out.npy", "--layers", "most"], "asked for --layers most: use"),
        (["-o", "out.npy", "--layers", "9"], "Use --layers mix for the weighted sum"),
        (["-o", "out.npy", "--batch-size", "0"], "--batch-size is 0: expected 1 or more sentences\n"),
        (["-o", "out.npy", "--split", "--tokenised"], "--split and --tokenised exclude each other"),
        (["-o", "out.npy", "--resume", "--overwrite"], "--resume and --overwrite exclude each other"),
    ],
)
def test_errors_speak_the_words_of_the_command_line(arguments, words, random_model, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus.txt").write_text("A line.\n", encoding="utf-8")
    assert main(["embed", "corpus.txt", "--model", str(random_model), *arguments]) == 2
    line = capsys.readouterr().err
    assert words in line
    assert "=" not in line


def test_minus_writes_json_lines_to_standard_output(embed, desk, capfdbinary):
    assert embed("corpus.txt", "-o", "out.jsonl") == 0
    capfdbinary.readouterr()
    for more in ([], ["--format", "jsonl"]):
        assert embed("corpus.txt", "-o", "-", *more) == 0
        assert capfdbinary.readouterr().out == Path("out.jsonl").read_bytes()
    assert sorted(path.name for path in desk.iterdir()) == ["corpus.txt", "out.jsonl"]


def test_no_bar_is_drawn_into_what_a_pipe_brings_to_the_same_terminal(embed, monkeypatch):
    drawn = []

    def show(*given, as_lines=False, **options):
        drawn.append(as_lines)
        return show_progress(*given, as_lines=as_lines, **options)

    monkeypatch.setattr("elmokit.waits.show_progress", show)
    receiver, sender = os.pipe()
    with open(receiver, "rb") as read, open(sender, "w", encoding="utf-8") as write:
        monkeypatch.setattr(sys, "stdout", write)
        assert embed("corpus.txt", "-o", "-") == 0
        write.close()
        assert len(read.read().splitlines()) == len(TEXT.splitlines())
    monkeypatch.undo()
    assert drawn == [True]


def test_a_reader_that_goes_away_is_no_problem(embed, monkeypatch, capfd):
    class Gone(io.RawIOBase):
        def writable(self):
            return True

        def write(self, data):
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BufferedWriter(Gone()), write_through=True))
    assert embed("corpus.txt", "-o", "-") == 141
    monkeypatch.undo()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(("more", "reason"), [(["--format", "npy"], "JSON lines"), (["--resume"], "--resume")])
def test_minus_takes_no_other_format(more, reason, embed, desk, capsys):
    assert embed("corpus.txt", "-o", "-", *more) == 2
    assert reason in complaint(capsys)


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (["embed", "missing.txt", "-o", "out.parquet"], 2, "missing.txt does not exist"),
        (["embed", "corpus.txt", "-o", "nowhere/out.parquet"], 1, "the folder nowhere does not exist"),
        (["embed", "corpus.txt", "-o", "."], 1, "is a folder"),
        (["embed", "corpus.txt", "-o", "out.doc"], 2, "use one of .parquet, .hdf5, .h5, .npy, .jsonl, or say --format"),
        (["embed", "corpus.txt", "-o", "corpus.txt"], 1, "corpus.txt exists already: choose another name"),
        (["evaluate", "missing.txt"], 2, "missing.txt does not exist"),
        (["train", "missing.txt", "-o", "m", "--recipe", "tiny_cpu"], 2, "missing.txt does not exist"),
        (["train", "corpus.txt", "-o", "m", "--vectors", "missing.vec"], 2, "missing.vec does not exist"),
        (["train", "corpus.txt", "-o", "m", "--recipe", "tiny"], 2, "tiny_cpu"),
        (["task", "predict", "names", "text"], 2, "the folder names does not exist"),
        (["task", "evaluate", "names", "corpus.txt"], 2, "the folder names does not exist"),
        (["task", "train", "tag", "--train", "missing", "--dev", "corpus.txt", "-o", "m"], 2, "missing does not exist"),
        (["compare", "bank", "bank", "bank", "--picture", "bank.doc"], 2, ".svg, .png, .pdf"),
        (["probe", "pos", "--train", "missing", "--test", "corpus.txt"], 2, "missing does not exist"),
        (["probe", "wic", "wic", "-o", "nowhere/out.json"], 1, "the folder nowhere does not exist"),
    ],
)
def test_what_is_wrong_is_found_before_torch_is_imported(arguments, code, reason, desk):
    program = f"import sys; from elmokit.cli import main; code = main({arguments}); print(code, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.split() == [str(code), "False"], done.stderr
    assert reason in done.stderr
    assert done.stderr.count("\n") == 1
    assert [path.name for path in desk.iterdir()] == ["corpus.txt"]


def test_a_text_without_words_and_one_with_a_single_word_are_told(embed, desk, capsys):
    (desk / "empty.txt").write_text("", encoding="utf-8")
    (desk / "one.txt").write_text("word\n", encoding="utf-8")
    assert embed("empty.txt", "-o", "empty.npy") == 0
    assert "there is no word in empty.txt: the output holds no vector" in capsys.readouterr().err
    assert embed("one.txt", "-o", "one.npy") == 0
    assert capsys.readouterr().out.startswith("one.npy: 1 line, 1 word, ")
    assert embed("one.txt", "-o", "two.npy", "--device", "gpu") == 2
    assert "device 'gpu': use cpu, cuda, cuda:N or mps, or leave it out" in capsys.readouterr().err
