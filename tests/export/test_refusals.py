"""What `elmo export` cannot do, and what an exported folder is not."""

import sys

from elmokit.cli import main


def test_elmo_export_names_the_command_that_installs_them(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert main(["export", "en-small", "-o", str(tmp_path / "out")]) == 1
    assert "pip install 'elmokit[export]'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_precision_that_there_is_not_is_refused(tmp_path, capsys):
    assert main(["export", "en-small", "-o", str(tmp_path / "out"), "--precision", "int4"]) == 2
    assert "--precision is 'int4': use one of float32, int8" in capsys.readouterr().err


def test_an_exported_folder_is_no_source(tmp_path, capsys):
    for name in ("elmo.json", "words.onnx", "layers.onnx"):
        (tmp_path / name).write_text("{}")
    assert main(["info", str(tmp_path)]) == 2
    assert "found one that `elmo export` wrote: its own run_elmo.py runs it" in capsys.readouterr().err
