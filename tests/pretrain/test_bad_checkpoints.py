"""Checkpoints and encoded corpora that are damaged or say something else: one line that names the file, and exit 2."""

from __future__ import annotations

import json
import shutil
import zipfile

import numpy as np
import pytest
import torch

from elmokit.errors import CheckpointError
from elmokit.pretrain.corpus.encoded import EncodedCorpus, find_fingerprint
from elmokit.pretrain.train import train


@pytest.fixture(scope="module", params=["sentences", "streams"])
def begun(request, tmp_path_factory, texts):
    """A run that stopped at once, with a checkpoint."""
    from elmokit.config import CharConfig, ElmoConfig, LstmConfig
    from elmokit.pretrain.recipes import TrainConfig

    characters = CharConfig(max_length=12, dim=4, filters=((1, 4), (2, 8)), num_highways=1)
    lstm = LstmConfig(cell_dim=12, projection_dim=8, cell_clip=None, projection_clip=None)
    config = TrainConfig(
        ElmoConfig(characters, lstm=lstm), vocabulary_size=100, tokens=4_000, tokens_per_batch=160, unroll=8,
        mode=request.param,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("begun")
    assert train([texts[0]], folder / "model", config, tokenised=True, workers=1, minutes=0) is None
    return folder, config


@pytest.fixture
def resume(begun, texts, tmp_path):
    """The checkpoint of a copy of that run, and a function that continues it."""
    folder, config = begun
    shutil.copytree(folder, tmp_path / "run")
    (path,) = (tmp_path / "run").glob("model.training/checkpoints/*")

    def go_on():
        return train([texts[0]], tmp_path / "run" / "model", config, tokenised=True, workers=1, minutes=0)

    return path, go_on


def check_refused(go_on, *says):
    with pytest.raises(CheckpointError) as caught:
        go_on()
    message = str(caught.value)
    assert "\n" not in message
    for words in says:
        assert words in message, message


def test_a_whole_checkpoint_is_continued(resume):
    assert resume[1]() is None


@pytest.mark.parametrize("fraction", [0.3, 0.5, 0.7])
def test_64_overwritten_bytes_are_damage(resume, fraction):
    path, go_on = resume
    with zipfile.ZipFile(path) as archive:
        largest = max(archive.infolist(), key=lambda record: record.file_size)
    data = bytearray(path.read_bytes())
    place = largest.header_offset + int(fraction * largest.file_size)
    data[place : place + 64] = bytes(b ^ 0x55 for b in data[place : place + 64])
    path.write_bytes(data)
    check_refused(go_on, path.name, "is damaged", "the checksum of", "remove the file")


def test_a_compressed_checkpoint_is_refused_before_it_is_unpacked(resume):
    path, go_on = resume
    with zipfile.ZipFile(path) as archive:
        records = {record.filename: archive.read(record) for record in archive.infolist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in records.items():
            archive.writestr(name, data)
    check_refused(go_on, path.name, "compressed")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda saved: saved.pop("network"), "expected network, found only"),
        (lambda saved: saved.pop("meter"), "expected meter, found only"),
        (lambda saved: saved.update(step=1.0), "step is 1.0: expected a whole number"),
        (lambda saved: saved.update(tokens=-1), "tokens is -1: expected a whole number of 0 or more"),
        (lambda saved: saved["meter"].update(sums=[1.0]), "meter.sums is [1.0]: expected a list of 2 entries"),
        (lambda saved: saved["meter"].update(sums=[1.0, float("nan")]), "meter.sums[1] is nan: expected a finite"),
        (lambda saved: saved["guard"].update(scale=2.0), "guard.scale is 2.0: expected a number of at most 1"),
        (lambda saved: saved["network"].popitem(), "found None; it is damaged"),
        (lambda saved: saved["network"].update(x=torch.ones(3)), "expected x of shape None, found (3,)"),
        (lambda saved: saved["network"].update(x=3), "network.x is 3: expected a Tensor"),
        (lambda saved: first(saved["network"]).fill_(torch.nan), "should hold finite numbers"),
        (lambda saved: saved["optimizer"].update(muon=None), "belongs to other parameters"),
        (lambda saved: saved["optimizer"].pop("rest"), "does not fit this run (KeyError: 'rest')"),
        (lambda saved: first(saved["optimizer"]["rest"]["state"]).pop("exp_avg"), "expected exp_avg of"),
        (lambda saved: first(saved["optimizer"]["muon"]["state"]).update(momentum=torch.ones(3)), "found (3,)"),
        (lambda saved: first(saved["optimizer"]["muon"]["state"])["momentum"].fill_(torch.inf), "momentum of"),
        (lambda saved: saved["reader"].pop("settings"), "expected reader.settings"),
        (lambda saved: saved.update(reader={}), "expected reader.settings"),
    ],
)
def test_values_of_another_kind_are_refused(resume, change, says):
    path, go_on = resume
    saved = torch.load(path, weights_only=True)
    change(saved)
    torch.save(saved, path)
    check_refused(go_on, str(path), says)


def first(values):
    return next(iter(values.values()))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"batches": 10**9}, "reader.batches is 1,000,000,000: expected no more than an epoch has"),
        ({"epoch": -1}, "reader.epoch is -1: expected a whole number of 0 or more"),
        ({"windows": "3"}, "reader.windows is '3': expected a whole number"),
        ({"streams": []}, "reader.streams is []: expected a list of 2 entries"),
        ({"sentences": [10**6] * 20}, "expected places inside of this corpus"),
        ({"sentences": [0] * 19}, "expected places inside of this corpus"),
        ({"offsets": [1000] * 20}, "expected places inside of this corpus"),
        ({"queue": {"epoch": 0, "pool": 7, "taken": 0}}, "expected places inside of this corpus"),
        ({"queue": {"epoch": 0, "pool": 0, "taken": 10**6}}, "expected places inside of this corpus"),
    ],
)
def test_a_reader_is_not_led_out_of_its_corpus(resume, begun, change, says):
    path, go_on = resume
    saved = torch.load(path, weights_only=True)
    (name,) = change
    part = saved["reader"] if name in ("batches", "epoch", "windows", "streams") else None
    is_stream = name in ("windows", "streams") or part is None
    if is_stream != (begun[1].mode == "streams"):
        pytest.skip("of the other kind of reader")
    (saved["reader"]["streams"][1] if part is None else part).update(change)
    torch.save(saved, path)
    check_refused(go_on, str(path), says)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("num_tokens", 1.5, "num_tokens is 1.5: expected a whole number"),
        ("num_words", -1, "num_words is -1: expected"),
        ("coverage", 2, "coverage is 2: expected a number of at most 1"),
        ("settings", [], "settings is []: expected an object"),
        ("sha256", "0", "the checksum in corpus.json does not fit its files"),
    ],
)
def test_a_header_of_another_kind_is_refused(resume, name, value, says):
    path, go_on = resume
    header = path.parents[1] / "corpus" / "corpus.json"
    header.write_text(json.dumps({**json.loads(header.read_text()), name: value}))
    check_refused(go_on, str(header.parent), says)


@pytest.mark.parametrize(("name", "kind"), [("tokens.bin", "<i4"), ("sentences.bin", "<i8"), ("words.bin", "u1")])
def test_a_damaged_corpus_is_refused(resume, name, kind):
    path, go_on = resume
    folder = path.parents[1] / "corpus"
    numbers = np.fromfile(folder / name, kind)
    numbers[len(numbers) // 2] = 127
    numbers.tofile(folder / name)
    check_refused(go_on, str(folder), "the checksum in corpus.json does not fit")


@pytest.mark.parametrize(
    ("name", "kind", "value"), [("tokens.bin", "<i4", -1), ("tokens.bin", "<i4", 10**6), ("sentences.bin", "<i8", -5)]
)
def test_a_corpus_that_points_outside_is_refused(resume, name, kind, value):
    """Its checksum was made to fit."""
    path, _ = resume
    folder = path.parents[1] / "corpus"
    numbers = np.fromfile(folder / name, kind)
    numbers[3] = value
    numbers.tofile(folder / name)
    header = json.loads((folder / "corpus.json").read_text())
    (folder / "corpus.json").write_text(json.dumps({**header, "sha256": find_fingerprint(folder)}))
    with pytest.raises(CheckpointError, match=f"{name}: expected (numbers of its|rising numbers)"):
        EncodedCorpus.open(folder).verify()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tokens": "many"}, "tokens is 'many': expected a whole number"),
        ({"dropout": -1}, "dropout is -1: expected a number of 0 or more"),
        ({"model": []}, "model should be an object"),
        ({"mode": "books"}, "mode is 'books': use one of"),
    ],
)
def test_settings_that_are_none_are_refused(resume, change, says):
    path, go_on = resume
    settings = path.parents[1] / "training.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), **change}))
    check_refused(go_on, str(settings), says)


def test_the_text_that_a_corpus_was_made_from_is_told_as_it_should_be(resume):
    path, go_on = resume
    header = path.parents[1] / "corpus" / "corpus.json"
    header.write_text(json.dumps({**json.loads(header.read_text()), "files": [{"name": 3}]}))
    check_refused(go_on, str(header), "files[0].name is 3: expected a string")
