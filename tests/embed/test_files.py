import gc
import io
import os
import resource
import shutil
import sys
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet
import pytest

from elmokit.embed.embedder import Embedder
from elmokit.embed.files import embed_files, stream_files
from elmokit.embed.parts import PartialFolder
from elmokit.errors import InputError, LayerError, OutputError
from elmokit.model import Elmo
from elmokit.nn.word_encoder import WordEncoder
from elmokit.reading.encoder import TextEncoder

SUFFIXES = [".parquet", ".hdf5", ".npy", ".jsonl"]
LINES = [f"line {number} has {'many ' * (number % 7)}words ." if number % 5 else "" for number in range(30)]


class Killed(BaseException):
    """Stands for SIGKILL: nothing in the package catches it."""


@pytest.fixture
def text(tmp_path):
    (tmp_path / "in.txt").write_text("\n".join(LINES))
    return tmp_path / "in.txt"


def run(text, output, elmo, *, state="zero", **options):
    options = {"segment_words": 60, "batch_size": 4, **options}
    return embed_files(text, output, embedder=Embedder(elmo, state=state), **options)


def bytes_of(output):
    return {path.name: path.read_bytes() for path in output.parent.glob("out*") if path.is_file()}


@pytest.fixture
def die_at(monkeypatch):
    """Die just before the nth time that something is made lasting or taken away; returns how often that was."""

    def arm(last):
        count = 0

        def counting(function):
            def counted(*args, **options):
                nonlocal count
                count += 1
                if count == last:
                    raise Killed
                return function(*args, **options)

            return counted

        for module, name in ((os, "replace"), (os, "fsync"), (os, "mkdir"), (shutil, "rmtree")):
            monkeypatch.setattr(module, name, counting(originals[name]))
        return lambda: count

    originals = {"replace": os.replace, "fsync": os.fsync, "mkdir": os.mkdir, "rmtree": shutil.rmtree}
    yield arm
    monkeypatch.undo()


@pytest.mark.parametrize("state", ["zero", "carry"])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_killed_at_any_step_a_job_resumes_to_the_same_bytes(text, tmp_path, elmo, die_at, suffix, state):
    whole, broken = tmp_path / "whole" / f"out{suffix}", tmp_path / "broken" / f"out{suffix}"
    whole.parent.mkdir()
    run(text, whole, elmo, state=state)  # once for the modules that are imported late, and leave .pyc files
    num_steps = die_at(0)
    report = run(text, whole, elmo, state=state, overwrite=True)
    assert report.num_segments >= 3 and report.num_resumed == 0
    stride = 1 if suffix == ".npy" and state == "zero" else 3
    for step in range(1, num_steps() + 1, stride):
        die_at(0)
        shutil.rmtree(broken.parent, ignore_errors=True)
        broken.parent.mkdir()
        die_at(step)
        with pytest.raises(Killed):
            run(text, broken, elmo, state=state)
        die_at(0)
        run(text, broken, elmo, state=state, resume=True)
        assert bytes_of(broken) == bytes_of(whole), f"step {step}"
        assert sorted(os.listdir(broken.parent)) == sorted(os.listdir(whole.parent)), f"step {step}"


def test_finished_parts_are_not_computed_again(text, tmp_path, elmo, die_at):
    die_at(14)
    with pytest.raises(Killed):
        run(text, tmp_path / "out.npy", elmo)
    die_at(0)
    report = run(text, tmp_path / "out.npy", elmo, resume=True)
    assert 0 < report.num_resumed < report.num_segments
    assert (report.num_lines, report.num_rows) == (30, 30)


def test_carry_mode_reads_as_the_embedder_does(text, tmp_path, elmo):
    run(text, tmp_path / "out.npy", elmo, state="carry", dtype="float32")
    expected = np.concatenate(list(Embedder(elmo, state="carry").stream(LINES, batch_size=4)))
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected, atol=1e-5)


def test_a_job_does_not_disturb_the_embedder(text, tmp_path, elmo):
    embedder = Embedder(elmo, state="carry")
    embedder.embed([["one"]])
    expected = embedder.carried_state
    embed_files(text, tmp_path / "out.npy", embedder=embedder)
    assert embedder.carried_state is expected
    again = tmp_path / "again.npy"
    embed_files(text, again, embedder=embedder)
    assert again.read_bytes() == (tmp_path / "out.npy").read_bytes()


def half_done(text, output, elmo, die_at, **options):
    die_at(14)
    with pytest.raises(Killed):
        run(text, output, elmo, **options)
    die_at(0)
    assert output.with_name(f"{output.name}.partial").is_dir()


def test_an_unfinished_job_is_neither_ignored_nor_lost(text, tmp_path, elmo, die_at):
    output = tmp_path / "out.parquet"
    half_done(text, output, elmo, die_at)
    with pytest.raises(OutputError, match="--resume .* or start again with --overwrite"):
        run(text, output, elmo)
    with pytest.raises(InputError, match="exclude each other"):
        run(text, output, elmo, resume=True, overwrite=True)
    assert run(text, output, elmo, overwrite=True).num_resumed == 0


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"layers": "top"}, "layers was 'average', now 'top'"),
        ({"dtype": "float32"}, "dtype was 'float16', now 'float32'"),
        ({"batch_size": 3}, "batch_size was 4, now 3"),
        ({"tokenised": True}, "tokenised was False, now True"),
        ({"state": "canonical"}, "state was 'zero', now 'canonical'"),
        ({"segment_words": 61}, "segment_words was 60, now 61"),
    ],
)
def test_a_job_is_not_resumed_with_other_settings(text, tmp_path, elmo, die_at, change, named):
    half_done(text, tmp_path / "out.npy", elmo, die_at)
    with pytest.raises(InputError, match=named):
        run(text, tmp_path / "out.npy", elmo, resume=True, **change)


def test_a_job_of_an_older_version_is_refused_with_advice(text, tmp_path, elmo, die_at):
    half_done(text, tmp_path / "out.npy", elmo, die_at)
    manifest = tmp_path / "out.npy.partial" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"job_version": 5', '"job_version": 4'))
    with pytest.raises(InputError, match="job_version was 4, now 5.*start again with --overwrite"):
        run(text, tmp_path / "out.npy", elmo, resume=True)


def test_a_job_is_not_resumed_with_another_model(text, tmp_path, elmo, config, die_at):
    half_done(text, tmp_path / "out.npy", elmo, die_at)
    with pytest.raises(InputError, match="model was"):
        run(text, tmp_path / "out.npy", Elmo.random(config, seed=4), resume=True)


@pytest.mark.parametrize("lines", [["changed", *LINES[1:]], LINES[:3], [], LINES[::-1]])
def test_a_changed_input_is_noticed(text, tmp_path, elmo, die_at, lines):
    half_done(text, tmp_path / "out.npy", elmo, die_at)
    text.write_text("\n".join(lines))
    with pytest.raises(InputError, match="the input has changed since"):
        run(text, tmp_path / "out.npy", elmo, resume=True)


def test_another_input_is_refused_though_no_finished_part_differs(text, tmp_path, elmo, die_at):
    half_done(text, tmp_path / "out.npy", elmo, die_at)
    other = tmp_path / "other.txt"
    other.write_text("\n".join([*LINES[:-1], "another end of the same length"[: len(LINES[-1])].ljust(len(LINES[-1]))]))
    assert other.stat().st_size == text.stat().st_size
    with pytest.raises(
        InputError, match=r"the input has changed since .*in\.txt \(.* bytes, hash .*, now .*other\.txt \("
    ):
        run(other, tmp_path / "out.npy", elmo, resume=True)
    with pytest.raises(InputError, match=r"\(then no further file, now .*other\.txt"):
        run([text, other], tmp_path / "out.npy", elmo, resume=True)
    assert run(text, tmp_path / "out.npy", elmo, resume=True).num_resumed > 0


def test_an_input_that_has_moved_is_the_same_input(text, tmp_path, elmo, die_at, monkeypatch):
    half_done(text, tmp_path / "out.npy", elmo, die_at)
    text.rename(tmp_path / "moved.txt")
    monkeypatch.chdir(tmp_path)
    assert run("moved.txt", tmp_path / "out.npy", elmo, resume=True).num_resumed > 0


def test_a_refused_job_does_not_remove_what_it_did_not_start(text, tmp_path, elmo, die_at):
    """A job that was killed before its first part, or runs where there are no locks, looks like this."""
    output = tmp_path / "out.npy"
    die_at(8)
    with pytest.raises(Killed):
        run(text, output, elmo)
    die_at(0)
    folder = PartialFolder(output)
    assert folder.exists() and folder.is_empty()
    with pytest.raises(OutputError, match="an unfinished job lies in"):
        run(text, output, elmo)
    with pytest.raises(InputError, match="layers was"):
        run(text, output, elmo, resume=True, layers="top")
    assert folder.exists()
    assert run(text, output, elmo, resume=True).num_rows == 30


def test_lines_added_to_a_finished_end_are_noticed(tmp_path, elmo, die_at):
    text = tmp_path / "in.txt"
    text.write_text("one short line\n")
    steps = die_at(0)
    run(text, tmp_path / "out.npy", elmo)
    die_at(steps() - 4)
    with pytest.raises(Killed):
        run(text, tmp_path / "out.npy", elmo, overwrite=True)
    die_at(0)
    text.write_text("one short line\nand another\n")
    with pytest.raises(InputError, match="the input has changed since"):
        run(text, tmp_path / "out.npy", elmo, resume=True)


def test_an_existing_output_is_kept_unless_told(text, tmp_path, elmo):
    output = tmp_path / "out.npy"
    for name in ("out.npy", "out.offsets.npy"):
        (tmp_path / name).write_text("precious")
        with pytest.raises(OutputError, match=f"{name} exists already"):
            run(text, output, elmo)
        assert (tmp_path / name).read_text() == "precious"
        if name == "out.npy":
            (tmp_path / name).unlink()
    assert run(text, output, elmo, overwrite=True).num_lines == 30
    assert len(np.load(tmp_path / "out.offsets.npy")) == 31


def test_a_replaced_output_stays_until_the_new_one_is_whole(text, tmp_path, elmo, die_at):
    output = tmp_path / "out.jsonl"
    output.write_text("old")
    half_done(text, output, elmo, die_at, overwrite=True)
    assert output.read_text() == "old"
    run(text, output, elmo, resume=True)
    assert output.read_text().startswith('{"line": 0')


def test_resume_starts_what_was_not_started_and_leaves_what_is_complete(text, tmp_path, elmo):
    output = tmp_path / "out.jsonl"
    assert run(text, output, elmo, resume=True).num_rows == 30
    before = output.read_bytes()
    report = run(text, output, elmo, resume=True)
    assert report.was_complete and report.num_rows == 0
    assert report.warnings == [f"nothing to resume: {output} is already there (make it anew with --overwrite)"]
    assert output.read_bytes() == before


def test_an_output_that_cannot_be_written(text, tmp_path, elmo):
    with pytest.raises(OutputError, match="missing does not exist"):
        run(text, tmp_path / "missing" / "out.npy", elmo)
    with pytest.raises(OutputError, match=r"does not exist"):
        run(text, text / "out.npy", elmo)
    (tmp_path / "folder.npy").mkdir()
    with pytest.raises(OutputError, match="is a folder"):
        run(text, tmp_path / "folder.npy", elmo)
    with pytest.raises(OutputError, match="cannot write .*[Nn]ame too long"):
        run(text, tmp_path / f"{'x' * 250}.npy", elmo)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder.npy", "in.txt"]


@pytest.fixture
def small_files():
    """No file may grow beyond so many bytes: the nearest thing to a full disk that a test can have."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda most: resource.setrlimit(resource.RLIMIT_FSIZE, (most or before[0], before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_full_disk_keeps_finished_parts_and_leaves_no_output(text, tmp_path, elmo, small_files, suffix):
    output, whole = tmp_path / "a" / f"out{suffix}", tmp_path / "b" / f"out{suffix}"
    output.parent.mkdir()
    whole.parent.mkdir()
    run(text, whole, elmo, layers="all", dtype="float32")
    small_files(14_000)  # the parts fit, the output does not
    try:
        with pytest.raises(OutputError, match="cannot write .*finished parts are kept in .*--resume"):
            run(text, output, elmo, layers="all", dtype="float32")
        gc.collect()
    finally:
        small_files(None)
    assert os.listdir(output.parent) == [f"{output.name}.partial"]
    assert run(text, output, elmo, layers="all", dtype="float32", resume=True).num_resumed > 0
    assert bytes_of(output) == bytes_of(whole)


def test_a_full_disk_in_the_middle(text, tmp_path, elmo, small_files):
    small_files(3000)
    try:
        with pytest.raises(OutputError, match="cannot write"):
            run(text, tmp_path / "out.npy", elmo, layers="all", dtype="float32")
    finally:
        small_files(None)
    assert not (tmp_path / "out.npy").exists()
    assert not list((tmp_path / "out.npy.partial").glob("*.tmp"))


def test_text_that_is_not_utf8_leaves_no_output(text, tmp_path, elmo):
    text.write_bytes(text.read_bytes() + b"\n\xff\n")
    with pytest.raises(InputError, match=r"in\.txt:31: expected UTF-8"):
        run(text, tmp_path / "out.npy", elmo)
    assert not (tmp_path / "out.npy").exists()


def test_a_line_without_an_end_is_refused_or_split(tmp_path, elmo, monkeypatch):
    monkeypatch.setattr("elmokit.embed.files.LONGEST_SENTENCE", 40)
    long = tmp_path / "long.txt"
    long.write_text("fine .\n" + "It rained again . " * 9 + "\n")
    with pytest.raises(InputError, match=r"long\.txt:2: .* more than 40 bytes: break it into lines"):
        run(long, tmp_path / "out.jsonl", elmo)
    assert os.listdir(tmp_path) == ["long.txt"]
    run(long, tmp_path / "out.parquet", elmo, split=True)
    rows = pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pylist()
    assert [row["line"] for row in rows] == [0] + [1] * (len(rows) - 1)
    assert sum((row["words"] for row in rows[1:]), []) == ["It", "rained", "again", "."] * 9


def test_odd_words_are_counted_in_one_warning_and_refused_when_strict(tmp_path, elmo):
    text = tmp_path / "in.txt"
    text.write_text("fine\na\0b\n" + "x" * 10**6 + "\n")
    report = run(text, tmp_path / "out.hdf5", elmo, tokenised=True)
    assert report.num_cut == 2
    assert report.warnings == ["2 words are longer than this model reads, and were cut, or hold a NUL byte"]
    with pytest.raises(InputError, match=r"in\.txt:2: .*NUL"):
        run(text, tmp_path / "strict.npy", elmo, tokenised=True, strict=True)
    assert not (tmp_path / "strict.npy").exists()


def test_several_inputs_and_standard_input(tmp_path, elmo, monkeypatch):
    for name, data in (("1.txt", b"a\nb\n"), ("2.txt", b"c")):
        (tmp_path / name).write_bytes(data)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"d\n")))
    report = run([tmp_path / "1.txt", str(tmp_path / "2.txt"), "-"], tmp_path / "out.npy", elmo)
    assert report.num_lines == 4 and report.warnings == []


def test_a_packed_input_gives_the_vectors_of_the_plain_one(text, tmp_path, elmo):
    packed = tmp_path / "in.txt.zst"
    packed.write_bytes(pyarrow.compress(text.read_bytes(), codec="zstd", asbytes=True))
    for source, output in ((text, "plain.npy"), (packed, "packed.npy")):
        run(source, tmp_path / output, elmo)
    assert (tmp_path / "plain.npy").read_bytes() == (tmp_path / "packed.npy").read_bytes()


def test_progress_reaches_the_end(text, tmp_path, elmo):
    seen = []
    report = run(text, tmp_path / "out.npy", elmo, progress=seen.append)
    assert len(seen) > report.num_segments
    assert [p.bytes_done for p in seen] == sorted(p.bytes_done for p in seen)
    assert [p.words for p in seen] == sorted(p.words for p in seen)
    last = seen[-1]
    assert (last.lines, last.words, last.bytes_done) == (30, report.num_words, last.bytes_total)
    assert last.seconds_left == 0


def test_a_value_too_large_for_float16_is_refused(text, tmp_path, config):
    elmo = Elmo.random(config)
    elmo.encoder.projection.bias.data.fill_(1e6)
    with pytest.raises(InputError, match="too large for float16: use dtype float32"):
        run(text, tmp_path / "out.npy", elmo)
    assert run(text, tmp_path / "out.npy", elmo, dtype="float32", overwrite=True).num_rows == 30


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"layers": 9}, LayerError),
        ({"dtype": "float64"}, InputError),
        ({"batch_size": 0}, InputError),
        ({"segment_words": 0}, InputError),
        ({"format": "csv"}, InputError),
        ({"split": True, "tokenised": True}, InputError),
    ],
)
def test_wrong_choices_are_refused_before_anything_is_written(text, tmp_path, elmo, options, problem):
    with pytest.raises(problem):
        run(text, tmp_path / "out.npy", elmo, **options)
    assert os.listdir(tmp_path) == ["in.txt"]


def test_words_whose_bits_depend_on_their_company_are_not_carried_over_segments(text, tmp_path, elmo, monkeypatch):
    run(text, tmp_path / "out.npy", elmo, dtype="float32")
    encoded, encode = [], TextEncoder._encode_words
    monkeypatch.setattr(WordEncoder, "is_batch_invariant", property(lambda encoder: False))
    monkeypatch.setattr(TextEncoder, "_encode_words", lambda self, words: encoded.append(words) or encode(self, words))
    report = run(text, tmp_path / "again.npy", elmo, dtype="float32")
    assert len(encoded) == report.num_segments
    assert all("words" in words for words in encoded), "every segment encodes all its words"
    np.testing.assert_allclose(np.load(tmp_path / "again.npy"), np.load(tmp_path / "out.npy"), atol=1e-6)


class Heard(io.BytesIO):
    def __init__(self, events):
        super().__init__()
        self.events = events

    def write(self, data):
        self.events.append("row")
        return super().write(data)


@pytest.mark.parametrize("options", [{}, {"layers": "all"}, {"split": True}, {"tokenised": True}, {"dtype": "float32"}])
def test_rows_leave_while_others_are_computed(text, tmp_path, elmo, monkeypatch, options):
    monkeypatch.setattr("elmokit.embed.files.STREAMED_WORDS", 40)
    options = {"layers": "average", **options}
    events = []
    stream = Heard(events)
    embedder = Embedder(elmo)
    report = stream_files(text, stream, embedder=embedder, progress=lambda moment: events.append("step"), **options)
    assert 0 < events.index("row") < len(events) - 1 - events[::-1].index("step")
    embed_files(text, tmp_path / "out.jsonl", embedder=embedder, **options)
    assert stream.getvalue() == (tmp_path / "out.jsonl").read_bytes()
    assert report.num_lines == len(LINES)
    assert report.num_rows == stream.getvalue().count(b"\n")


def test_what_was_streamed_before_a_problem_stays(tmp_path, elmo, monkeypatch):
    monkeypatch.setattr("elmokit.embed.files.STREAMED_WORDS", 4)
    (tmp_path / "in.txt").write_bytes(b"four words stand here\ncaf\xe9\n")
    stream = io.BytesIO()
    with pytest.raises(InputError, match=r"in\.txt:2: expected UTF-8"):
        stream_files(tmp_path / "in.txt", stream, embedder=Embedder(elmo), layers="average")
    assert stream.getvalue().startswith(b'{"line": 0, "words": ["four"')


def test_tokenised_words_are_taken_as_they_are_also_with_a_no_break_space(tmp_path, elmo):
    (tmp_path / "numbers.txt").write_text("Il a payé\t10\u00a0000 euros\u3000. \n", encoding="utf-8")
    run(tmp_path / "numbers.txt", tmp_path / "out.parquet", elmo, tokenised=True)
    words = pyarrow.parquet.read_table(tmp_path / "out.parquet")["words"][0].as_py()
    assert words == ["Il", "a", "payé", "10\u00a0000", "euros\u3000."]
