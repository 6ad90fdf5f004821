"""The command `elmo`: arguments, help, exit codes, and the commands compare, info and convert."""

from __future__ import annotations

import io
import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from elmokit import ElmoConfig
from elmokit.__main__ import run
from elmokit.cli import main
from elmokit.commands import COMMANDS, GROUPS
from elmokit.commands.embed import Embed

RIVER = "She sat by the river bank."
MONEY = "The bank lent him money."
ELMO = [sys.executable, "-c", "import sys; from elmokit.cli import main; sys.exit(main())"]


def one_line_of(capsys) -> str:
    """What stands on standard error, which must be one line that begins with the program's name."""
    text = capsys.readouterr().err
    assert text.startswith("elmo: ")
    assert text.count("\n") == 1
    assert "Traceback" not in text
    return text


def seconds_of(*arguments: str) -> float:
    """Computing time of a command, which unlike the time on the clock does not depend on what else is running."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*ELMO, *arguments], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize("arguments", [("--help",), ("embed", "--help"), ("compare", "--help")])
def test_help_answers_in_under_half_a_second(arguments):
    assert any(seconds_of(*arguments) < 0.5 for _ in range(3))  # again only if the machine was busy


def test_help_does_not_import_torch():
    code = (
        "import sys; from elmokit.cli import main; main(['embed', '--help']); "
        "print([m for m in ('torch', 'numpy', 'pyarrow', 'h5py') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_list_of_models_needs_no_torch():
    code = (
        "import sys; from elmokit.cli import main; main(['info']); "
        "print([m for m in ('torch', 'numpy', 'pyarrow', 'h5py') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.startswith("en-small")
    assert done.stdout.splitlines()[-1] == "[]"


def test_stopping_while_the_command_is_still_imported_is_one_line(monkeypatch, capsys):
    class Stopped:
        def find_spec(self, name, path=None, target=None):
            if name == "elmokit.cli":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "elmokit.cli")
    monkeypatch.delattr("elmokit.cli")
    monkeypatch.setattr(sys, "meta_path", [Stopped(), *sys.meta_path])
    assert run() == 130
    assert capsys.readouterr().err == "elmo: stopped\n"


@pytest.mark.parametrize(
    "kind", [*COMMANDS.values(), *(each for kinds, _ in GROUPS.values() for each in kinds.values())]
)
def test_a_switch_needs_no_default_in_its_help(kind, capsys):
    name = next((name for name, each in COMMANDS.items() if each is kind), None)
    group = next((group for group, (kinds, _) in GROUPS.items() if kind in kinds.values()), None)
    path = [name] if name else [group, next(each for each, found in GROUPS[group][0].items() if found is kind)]
    assert main([*path, "--help"]) == 0
    assert "(default: False)" not in " ".join(capsys.readouterr().out.replace("│", " ").split())


def test_no_line_of_help_is_broken_by_the_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "70")
    assert main(["embed", "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "Each line of the input is one sentence and becomes one row of the" in lines
    assert max(len(line) for line in lines if not line.startswith("Example:")) <= 70


@pytest.mark.parametrize("command", ["compare", "embed", "info", "convert"])
def test_every_command_has_help_with_an_example(command, capsys):
    assert main([command, "--help"]) == 0
    assert f"Example: elmo {command} " in capsys.readouterr().out
    assert main(["--help"]) == 0
    assert f"elmo {command} " in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["embed"], ["train"], ["train", "--recipe", "tiny_cpu"], ["probe", "wic"]])
@pytest.mark.parametrize("mode", [["-OO"], ["-W", "error"]])
def test_help_is_the_same_without_docstrings_and_without_warnings(arguments, mode):
    """Python 3.13 removes the indentation of docstrings, `-OO` the docstrings themselves."""
    shown = [
        subprocess.run(
            [sys.executable, *options, "-m", "elmokit", *arguments, "--help"], capture_output=True, text=True
        )
        for options in ([], mode)
    ]
    assert [(done.returncode, done.stderr) for done in shown] == [(0, "")] * 2
    assert shown[0].stdout == shown[1].stdout


def test_no_arguments_show_the_help(capsys):
    assert main([]) == 0
    assert "elmo compare" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["frobnicate"], "expected a command, one of compare, embed, info, convert"),
        (["compare"], "WORD"),
        (["embed", "corpus.txt"], "--output"),
        (["embed", "corpus.txt", "-o", "out.parquet", "--dtype", "float8"], "float8"),
        (["embed", "corpus.txt", "-o", "out.parquet", "--batch-size", "many"], "--batch-size"),
        (["embed", "corpus.txt", "-o", "out.parquet", "--colour"], "--colour"),
        (["convert", "somewhere"], "DEST"),
    ],
)
def test_bad_arguments_are_one_line_and_exit_code_2(arguments, complaint, capsys):
    assert main(arguments) == 2
    line = one_line_of(capsys)
    assert complaint in line
    assert "--help" in line


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["embd", "corpus.txt"], "found 'embd'; did you mean embed? see elmo --help"),
        (["--versoin"], "did you mean --version?"),
        (["task", "predit"], "did you mean predict?"),
        (["probe", "word"], "did you mean words?"),
        (
            ["embed", "x", "-o", "y", "--laers", "top"],
            "no option --laers; did you mean --layers? see elmo embed --help",
        ),
        (["train", "x", "-o", "y", "--droput", "0.1"], "no option --droput; did you mean --dropout?"),
        (["train", "x", "-o", "y", "--recipe", "tiny-cpu"], "did you mean tiny_cpu?"),
        (["task", "train", "tags", "--train", "x", "--dev", "x", "-o", "y"], "did you mean tag?"),
        (["embed", "x", "-o", "y", "--state", "zer"], "--state is 'zer': use one of"),
        (["embed", "x", "-o", "y", "--dtype", "float64"], "--dtype is 'float64': use one of float16, float32;"),
        (["embed", "x", "-o", "y", "--batch-size", "many"], "--batch-size is 'many': expected a whole number;"),
        (["train", "x", "-o", "y", "--minutes", "many"], "--minutes is 'many': expected a number;"),
        (["predict", "the", "--top", "five"], "--top is 'five': expected a whole number; see elmo predict --help"),
        (["serve", "--answer-seconds", "many"], "--answer-seconds is 'many': expected a number; see elmo serve --help"),
        (["compare", "--modle", "x"], "no option --modle; did you mean --model? see elmo compare --help"),
        (
            ["embed"],
            "missing -o OUT, --output OUT: Where the vectors go; - is standard output, as JSON lines; see elmo",
        ),
        (["compare"], "missing WORD: The word to compare, or several in quotes"),
        (["embed", "x", "-o"], "-o/--output needs a value; see elmo embed --help"),
        (["task", "train"], "missing tag|classify|infer|answer|roles|coref, --train FILE, --dev FILE, -o DIR, --dest"),
        (["predict", "The", "river"], "'river' is one argument too many: put text with spaces in quotes"),
        (["info", "en_small"], "did you mean en-small?"),
        (["info", "en-smal"], "did you mean en-small?"),
        (["bench", "--model", "mine"], "there is no option --model; see elmo bench --help"),
        (["info", "--hlep"], "there is no option --hlep; see elmo info --help"),
        (["info", "--model", "my-own"], "the model comes without an option: elmo info my-own; see elmo info --help"),
        (["info", "--model", "--json"], "without an option: elmo info SOURCE --json; see"),
        (["convert", "there", "--model=a b"], "without an option: elmo convert 'a b' there; see"),
        (["export", "-o", "there", "--model", "here"], "without an option: elmo export here -o there; see"),
    ],
)
def test_a_mistyped_name_is_told_its_nearest(arguments, complaint, capsys):
    assert main(arguments) == 2
    assert complaint in one_line_of(capsys)


def test_a_model_of_another_language_is_not_proposed(capsys):
    assert main(["info", "fr-small"]) == 2
    assert "did you mean" not in one_line_of(capsys)


def test_a_mistyped_layer_is_told_its_nearest(random_model, tmp_path, capsys):
    (tmp_path / "in.txt").write_text("bank\n", encoding="utf-8")
    asked = ["embed", str(tmp_path / "in.txt"), "-o", str(tmp_path / "out.npy"), "--model", str(random_model)]
    assert main([*asked, "--layers", "tpo"]) == 2
    assert "did you mean top?" in one_line_of(capsys)


def test_without_a_model_the_bundled_one_is_used(capsys):
    assert main(["compare", "bank", RIVER, MONEY]) == 0
    assert "layer 2" in capsys.readouterr().out


def test_a_text_in_another_script_than_the_models_is_one_line_of_warning(capsys):
    asked = ["compare", "은행", "나는 은행 에서 돈을 빌려서 집을 샀다", "가을 에 은행 나무 아래 에서 놀았다"]
    assert main(asked) == 0
    assert "script Hangul, but the model was trained on Latin" in one_line_of(capsys)
    assert main([*asked, "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_compare_shows_sentences_and_a_row_for_each_pair(random_model, capsys):
    sentences = [RIVER, "No such word here.", "The BANK and the bank.", MONEY]
    assert main(["compare", "bank", *sentences, "--model", str(random_model)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "  1  She sat by the river [bank] ."
    assert "left out" in lines[1]
    assert lines[2] == "  3  The [BANK](3.1) and the [bank](3.2) ."
    header = next(line for line in lines if line.startswith("sentences"))
    assert header.split() == ["sentences", "layer", "0", "layer", "1", "layer", "2", "average"]
    rows = {line[:11].rstrip(): [float(cell) for cell in line.split()[3:]] for line in lines if " and " in line[:9]}
    assert list(rows) == ["1 and 3.1", "1 and 3.2", "1 and 4", "3.1 and 3.2", "3.1 and 4", "3.2 and 4"]
    assert rows["1 and 3.2"][0] == 1.0
    assert "average compares the mean vectors of the layers; it is not the mean of the cosines." in lines
    assert "it reads bank, BANK as different words" in lines[-1]
    same_spelling, other_case = rows["1 and 4"], rows["1 and 3.1"]
    assert same_spelling[0] == 1.0
    assert other_case[0] < 1.0
    assert same_spelling[1] < 1.0


def test_compare_draws_a_picture_the_same_every_time(random_model, tmp_path, capsys):
    one, two = tmp_path / "one.svg", tmp_path / "two.svg"
    for path in (one, two):
        assert main(["compare", "bank", RIVER, MONEY, "--model", str(random_model), "--picture", str(path)]) == 0
    assert f"picture: {two}" in capsys.readouterr().out
    assert one.read_bytes() == two.read_bytes()
    assert one.read_text(encoding="utf-8").count("layer 0 (the word alone)") >= 1


def test_the_picture_names_uses_as_the_table_does(random_model, tmp_path):
    path, sentences = tmp_path / "bank.svg", [RIVER, "No such word.", "The bank and the bank."]
    assert main(["compare", "bank", *sentences, "--model", str(random_model), "--picture", str(path)]) == 0
    drawn = path.read_text(encoding="utf-8")
    assert all(f">{label}</text>" in drawn for label in ("1", "3.1", "3.2"))


def test_a_picture_that_cannot_be_drawn_is_refused_before_the_work(tmp_path, capsys):
    asked = ["compare", "bank", RIVER, MONEY, "--model", "no-such-model", "--picture"]
    assert main([*asked, str(tmp_path / "bank.doc")]) == 2
    assert ".svg, .png, .pdf" in one_line_of(capsys)
    assert main([*asked, str(tmp_path / "nowhere" / "bank.svg")]) == 1
    assert "make it first" in one_line_of(capsys)


def test_without_matplotlib_there_is_the_table_at_least(random_model, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    asked = ["compare", "bank", RIVER, MONEY, "--model", str(random_model), "--picture", str(tmp_path / "bank.svg")]
    assert main(asked) == 1
    shown = capsys.readouterr()
    assert "1 and 2" in shown.out
    assert "elmokit[viz]" in shown.err


def test_compare_takes_several_words_and_alternatives(random_model, capsys):
    sentences = ["He lives in New York.", "Londoners love London.", "She doesn't."]
    asked = ["compare", "new york|London|does n't", *sentences, "--model", str(random_model), "--json"]
    assert main(asked) == 0
    found = json.loads(capsys.readouterr().out)
    assert [use["words"] for use in found["uses"]] == [["New", "York"], ["London"], ["does", "n't"]]
    assert [pair["uses"] for pair in found["pairs"]] == [["1", "2"], ["1", "3"], ["2", "3"]]
    assert all(len(pair["layers"]) == 3 for pair in found["pairs"])
    assert main(asked[:-1]) == 0
    assert "He lives in [New York] ." in capsys.readouterr().out


def test_compare_takes_words_of_han_characters_and_korean_with_its_endings(random_model, capsys):
    assert main(["compare", "银行", "我去银行取钱。", "银行在河边。", "--model", str(random_model)]) == 0
    shown = capsys.readouterr().out
    assert "我 去 [银 行] 取 钱 。" in shown
    assert "[银 行] 在 河 边 。" in shown
    asked = ["나는 은행에 갔다.", "은행이 문을 닫았다.", "--model", str(random_model)]
    assert main(["compare", "은행", *asked]) == 2
    (advised,) = re.findall(r'did you mean "(.*)"\?', capsys.readouterr().err)
    assert main(["compare", advised, *asked]) == 0
    assert "나는 [은행에] 갔다 ." in capsys.readouterr().out


def test_compare_reads_sentences_from_standard_input(random_model, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(f"{MONEY}\n\n".encode())))
    assert main(["compare", "bank", RIVER, "-", "--model", str(random_model)]) == 0
    assert "  2  The [bank] lent him money ." in capsys.readouterr().out


def test_compare_of_a_file_names_the_way(random_model, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my text.txt").write_text(f"{RIVER}\n", encoding="utf-8")
    assert main(["compare", "river bank", MONEY, "my text.txt", "--model", str(random_model)]) == 2
    way = "`elmo compare 'river bank' - < 'my text.txt'`"
    assert f"my text.txt is a file: give sentences in quotes, or its lines by {way}" in one_line_of(capsys)
    no_file = "the bank " * 100  # longer than the name of a file can be
    assert main(["compare", "bank", MONEY, no_file, "--model", str(random_model)]) == 0


def test_compare_shows_the_words_it_found(random_model, capsys):
    assert main(["compare", "bank", RIVER, "The banks lent it.", "--model", str(random_model)]) == 2
    line = one_line_of(capsys)
    assert "The banks lent it ." in line
    assert 'did you mean "bank|banks"?' in line


@pytest.mark.parametrize(
    ("sentences", "count"), [([], "none of 0"), (["a", "b"], "none of 2"), ([RIVER], "only one of 1")]
)
def test_compare_needs_the_word_in_two_sentences(sentences, count, random_model, capsys):
    assert main(["compare", "bank", *sentences, "--model", str(random_model)]) == 2
    assert f"found it in {count}" in one_line_of(capsys)


def test_info_tells_what_the_model_is(random_model, capsys):
    assert main(["info", str(random_model)]) == 0
    facts = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert facts["format"] == "native"
    assert facts["parameters"] == "645,904"
    assert facts["layers"].startswith("3 ")
    assert facts["clips"] == "cell ±3, output ±3"
    assert facts["softmax"] == "none at hand"
    assert facts["engine"].startswith(("cpu", "packed"))
    assert facts["precision"].startswith("float32") and "bfloat16" in facts["precision"]


def test_info_as_json(random_model, capsys):
    assert main(["info", str(random_model), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["format"], facts["parameters"], facts["layers"], facts["output_words"]) == ("native", 645904, 3, None)
    assert ElmoConfig.from_dict(facts["config"]).dim == facts["dim"]


@pytest.mark.parametrize("format", ["native", "allennlp"])
def test_info_counts_the_words_of_a_softmax_without_reading_it(format, random_model, tmp_path, capsys):
    import torch

    from elmokit import io

    checkpoint = io.load(random_model)
    checkpoint.softmax = {"softmax.weight": torch.zeros(1234, 64), "softmax.bias": torch.zeros(1234)}
    io.save(checkpoint, tmp_path / "model", format=format)
    known = io.load(tmp_path / "model", softmax="shape").softmax
    assert known is not None and all(tensor.is_meta for tensor in known.values())
    assert main(["info", str(tmp_path / "model")]) == 0
    facts = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert facts["softmax"] == "1,234 words"


def test_info_shows_a_stored_mix(tmp_path, capsys):
    from elmokit import Elmo

    Elmo.random(ElmoConfig.tiny()).save_pretrained(tmp_path / "mixed", mix=0)
    assert main(["info", str(tmp_path / "mixed")]) == 0
    assert "0.333, 0.333, 0.333; gamma 1.000" in capsys.readouterr().out


def test_convert_there_and_back_keeps_every_number(random_model, tmp_path, capsys):
    from elmokit.io import load

    there, back = tmp_path / "allennlp", tmp_path / "native"
    assert main(["convert", str(random_model), str(there), "--format", "allennlp"]) == 0
    assert (there / "options.json").exists()
    assert main(["convert", str(there), str(back)]) == 0
    assert "allennlp → native" in capsys.readouterr().out
    before, after = load(random_model), load(back)
    assert before.config == after.config
    for name, tensor in before.tensors.items():
        assert (tensor - after.tensors[name]).abs().max() < 1e-6  # the forget bias is taken off and put on again


def test_convert_to_allennlp_stores_float32_alone(random_model, tmp_path, capsys):
    dest = tmp_path / "dest"
    assert main(["convert", str(random_model), str(dest), "--format", "allennlp", "--dtype", "float16"]) == 2
    assert "stores float32 only" in one_line_of(capsys)
    assert not dest.exists()


def test_convert_refuses_an_existing_folder_unless_told(random_model, tmp_path, capsys):
    dest = tmp_path / "dest"
    dest.mkdir()
    (dest / "precious.txt").write_text("keep", encoding="utf-8")
    assert main(["convert", str(random_model), str(dest)]) == 1
    one_line_of(capsys)
    assert [path.name for path in dest.iterdir()] == ["precious.txt"]


def test_debug_adds_the_traceback(tmp_path, capsys):
    assert main(["info", str(tmp_path / "missing"), "--debug"]) == 2
    text = capsys.readouterr().err
    assert "Traceback" in text
    assert text.splitlines()[-1].startswith("elmo: ")


@pytest.mark.parametrize(
    ("problem", "code", "expected"),
    [
        (KeyboardInterrupt(), 130, "--resume"),
        (MemoryError("no room"), 1, "out of memory"),
        (OSError(28, "No space left on device"), 1, "No space left on device"),
        (FileNotFoundError(2, "No such file or directory", "x.txt"), 2, "x.txt: No such file or directory"),
        (ZeroDivisionError("a mistake\nof ours"), 1, "unexpected ZeroDivisionError: a mistake of ours; --debug"),
    ],
)
def test_problems_become_one_line_and_an_exit_code(problem, code, expected, monkeypatch, capsys):
    def fail(self):
        raise problem

    monkeypatch.setattr(Embed, "run", fail)
    assert main(["embed", "corpus.txt", "-o", "out.parquet"]) == code
    assert expected in one_line_of(capsys)


def test_a_reader_that_goes_away_is_no_error(random_model):
    command = [*ELMO, "compare", "bank", *[RIVER] * 200, "--model", str(random_model), "--quiet"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout
    assert process.stderr
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 141


def test_the_exit_code_reaches_the_shell(tmp_path):
    program = Path(sys.executable).with_name("elmo")
    command = [str(program)] if program.exists() else ELMO
    done = subprocess.run([*command, "info", str(tmp_path / "missing"), "--quiet"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_the_module_is_the_command():
    shown = [
        subprocess.run([*program, "--version"], check=True, capture_output=True, text=True).stdout
        for program in (ELMO, [sys.executable, "-m", "elmokit"])
    ]
    assert shown[0] == shown[1]
    assert shown[0].startswith("elmo ")
    command = [sys.executable, "-m", "elmokit", "bench", "--runs", "0", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "elmo: asked for 0 runs: expected 1 or more\n")


def test_a_reader_that_has_gone_is_no_error(monkeypatch):
    def gone(*_, **__):
        raise BrokenPipeError

    monkeypatch.setattr("elmokit.cli.tyro.cli", gone)
    monkeypatch.setattr("elmokit.cli.os.dup2", lambda *_: None)
    assert main(["train", "--help"]) == 141


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a disk that is always full")
@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        ("--help >/dev/full", 1, "elmo: standard output cannot be written: No space left on device\n"),
        ("embed --help >/dev/full", 1, "elmo: standard output cannot be written: No space left on device\n"),
        ("--version >/dev/full 2>/dev/full", 1, ""),
        ("--help >&-", 0, ""),
        ("embed --help >&- 2>&-", 0, ""),
        ("embed - -o out.jsonl <&-", 2, "elmo: standard input is closed: name a file, or give it some text\n"),
        ("embed in.txt -o - >&-", 1, "elmo: standard output is closed, and --output - writes there: name a file\n"),
    ],
)
def test_a_full_or_closed_standard_stream_is_no_traceback(arguments, code, told, tmp_path):
    (tmp_path / "in.txt").write_text("a line\n")
    command = f"{sys.executable} -m elmokit {arguments}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert (done.returncode, done.stderr) == (code, told)


def test_results_on_a_full_disk_are_one_line(capsys, monkeypatch):
    def full(_):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(sys.stdout, "write", full)
    assert main(["info", "en-small"]) == 1
    assert capsys.readouterr().err == "elmo: standard output cannot be written: No space left on device\n"


def test_what_a_terminal_would_obey_is_escaped_there_and_nowhere_else(capsys, monkeypatch, random_model):
    arguments = ["compare", "bank", "a bank\x1b[2J", "the bank \x9b31m .", "--model", str(random_model)]
    assert main(arguments) == 0
    assert "\x1b [ 2J" in capsys.readouterr().out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert "\\x1b [ 2J\n" in shown and "\\x9b 31m" in shown
    assert not set(shown) & set("\x1b\x9b")
    assert main(["info", "no\x1bmodel"]) == 2
    assert "no\\x1bmodel" in capsys.readouterr().err
