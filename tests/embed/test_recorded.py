"""Recorded passes, with a recording that is the function itself: what is computed is what a GPU would replay."""

import logging
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from elmokit.config import ElmoConfig
from elmokit.embed import recorded as recorded_module
from elmokit.embed.embedder import Embedder
from elmokit.embed.files import embed_files
from elmokit.embed.recorded import RecordedReader
from elmokit.reading.batching import TOKEN_BUDGETS

LINES = [" ".join(f"w{(7 * number + place) % 40}" for place in range(number % 17)) for number in range(200)]


@pytest.fixture
def text(tmp_path):
    (tmp_path / "in.txt").write_text("\n".join(LINES))
    return tmp_path / "in.txt"


@pytest.fixture
def replayed(monkeypatch):
    """Record on a CPU, too; the widths of the passes that were replayed."""
    widths = []
    read = RecordedReader.read

    def count(self, words):
        widths.append(int(self.round_up(words.lengths_B.max(keepdims=True))[0]))
        return read(self, words)

    monkeypatch.setattr(RecordedReader, "suits", classmethod(lambda cls, elmo: True))
    monkeypatch.setattr(recorded_module, "record_launches", lambda run, pool: run)
    monkeypatch.setattr(RecordedReader, "read", count)
    monkeypatch.setitem(TOKEN_BUDGETS, "cpu", 130)
    return widths


def run(text, output, elmo, *, state="zero", **options):
    options = {"segment_words": 400, "tokenised": True, "dtype": "float32", **options}
    embed_files(text, output, embedder=Embedder(elmo, state=state), overwrite=True, **options)
    return np.load(output)


@pytest.mark.parametrize("state", ["zero", "canonical"])
@pytest.mark.parametrize("layers", ["average", "all", "top", "mix", 0])
def test_recorded_passes_give_the_vectors_of_plain_ones(text, tmp_path, elmo, replayed, state, layers, monkeypatch):
    recorded = run(text, tmp_path / "out.npy", elmo, state=state, layers=layers)
    assert set(replayed) == {8, 12, 16, 20}
    monkeypatch.setattr(RecordedReader, "suits", classmethod(lambda cls, elmo: False))
    plain = run(text, tmp_path / "plain.npy", elmo, state=state, layers=layers)
    assert recorded.shape == plain.shape and len(plain) == sum(number % 17 for number in range(200))
    np.testing.assert_allclose(recorded, plain, atol=1e-6)


@pytest.mark.parametrize("options", [{"state": "carry"}, {"batch_size": 7}])
def test_batches_that_somebody_else_planned_are_not_padded(text, tmp_path, elmo, replayed, options):
    run(text, tmp_path / "out.npy", elmo, **options)
    assert not replayed


def test_a_recording_that_fails_is_told_once_and_done_without(text, tmp_path, elmo, replayed, monkeypatch, caplog):
    def fail(run, pool):
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    expected = run(text, tmp_path / "out.npy", elmo)
    replayed.clear()
    monkeypatch.setattr(recorded_module, "record_launches", fail)
    with caplog.at_level(logging.WARNING):
        found = run(text, tmp_path / "again.npy", elmo)
    assert len(replayed) == 1
    (message,) = [record.getMessage() for record in caplog.records]
    assert "passes cannot be recorded (operation not permitted when stream is capturing): " in message
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_full_batch_too_large_for_the_memory_is_read_in_halves(text, tmp_path, elmo, replayed, monkeypatch):
    expected = run(text, tmp_path / "out.npy", elmo)

    def fail(self, words):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(RecordedReader, "read", fail)
    np.testing.assert_allclose(run(text, tmp_path / "again.npy", elmo), expected, atol=1e-6)


def test_what_is_padded_depends_on_the_segment_alone(text, tmp_path, elmo, replayed):
    """A resumed run must pad, and so round, as the first did: whether a width was recorded before may not matter."""
    run(text, tmp_path / "out.npy", elmo)
    first = list(replayed)
    replayed.clear()
    run(text, tmp_path / "again.npy", elmo)
    assert replayed == first
    assert (tmp_path / "again.npy").read_bytes() == (tmp_path / "out.npy").read_bytes()


def test_small_models_on_a_gpu_are_recorded():
    def suits(device, config):
        return RecordedReader.suits(SimpleNamespace(device=torch.device(device), config=config))

    assert suits("cuda", ElmoConfig.small())
    assert not suits("cuda", ElmoConfig.original()), "the device is busy, and would only pad"
    assert not suits("cpu", ElmoConfig.small())
