"""The store of layers: equal to computing them, complete after a kill, shared by processes."""

from __future__ import annotations

import errno
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, TimeoutError

import numpy as np
import pytest
import torch

from elmokit import Elmo, ElmoConfig, Embedder
from elmokit.config import CharConfig, LstmConfig
from elmokit.errors import CheckpointError, InputError
from elmokit.tasks.layer_store import RECORD, LayerStore, TaskElmo, open_elmo

CONFIG = ElmoConfig(CharConfig(filters=((1, 8),), num_highways=1), lstm=LstmConfig(cell_dim=16, projection_dim=8))
SENTENCES = [["the", "river", "bank"], ["hello"], ["a", "b", "c", "d"], ["the", "bank"]]


def source() -> TaskElmo:
    return TaskElmo(Elmo.random(CONFIG, num_mixes=0), "random", travels=True)


def test_a_store_gives_what_the_model_computes(tmp_path):
    store = LayerStore(tmp_path, source())
    assert store.gather(SENTENCES) is None
    assert store.add([*SENTENCES, SENTENCES[0]]) == 4
    assert store.add(SENTENCES) == 0
    layers = store.gather([*SENTENCES, []])
    assert layers.shape == (3, 5, 4, 16)
    for row, expected in enumerate(Embedder(source().elmo).embed(SENTENCES, layers="all")):
        length = expected.shape[1]
        np.testing.assert_allclose(layers[:, row, :length].numpy(), expected, atol=2e-3, rtol=1e-3)
        assert not layers[:, row, length:].any()
    assert not layers[:, 4].any()


def test_a_store_is_found_again_by_the_same_model_only(tmp_path):
    first = LayerStore(tmp_path, source())
    first.add(SENTENCES)
    again = LayerStore(tmp_path, source())
    assert SENTENCES[0] in again
    assert [] in again
    assert torch.equal(again.gather(SENTENCES), first.gather(SENTENCES))
    other = TaskElmo(Elmo.random(CONFIG, seed=1, num_mixes=0), "random", travels=True)
    assert SENTENCES[0] not in LayerStore(tmp_path, other)


def test_values_beyond_float16_are_an_error(tmp_path):
    broken = source()
    with torch.no_grad():
        broken.elmo.encoder.projection.bias.fill_(1e6)
    with pytest.raises(InputError, match="layers of 'hello' are kept in float16, which cannot hold"):
        LayerStore(tmp_path, broken).add([["hello"]])


def test_words_are_not_joined_by_accident(tmp_path):
    store = LayerStore(tmp_path, source())
    store.add([["ab", "c"]])
    assert ["a", "bc"] not in store
    assert ["ab", "c"] in store


@pytest.mark.parametrize("tail", [b"half a row", b""])
def test_what_a_kill_left_behind_is_cut_off(tail, tmp_path):
    store = LayerStore(tmp_path, source())
    store.add(SENTENCES[:2])
    before = store.gather(SENTENCES[:2])
    with (store.folder / "layers.f16").open("ab") as rows:
        rows.write(b"\x01" * 100 + tail)  # rows without an index
    with (store.folder / "index.bin").open("ab") as index:
        index.write(b"\x01" * (RECORD.itemsize // 2))  # half a record
    again = LayerStore(tmp_path, source())
    assert torch.equal(again.gather(SENTENCES[:2]), before)
    assert again.add(SENTENCES) == 2
    fresh = LayerStore(tmp_path / "fresh", source())
    fresh.add(SENTENCES)
    torch.testing.assert_close(again.gather(SENTENCES), fresh.gather(SENTENCES), atol=2e-3, rtol=0)


def test_lost_rows_are_an_error(tmp_path):
    store = LayerStore(tmp_path, source())
    store.add(SENTENCES)
    (store.folder / "layers.f16").write_bytes(b"")
    with pytest.raises(CheckpointError, match="expected 11 rows, found 0"):
        LayerStore(tmp_path, source())
    (store.folder / "store.json").write_text("{}", encoding="utf-8")
    with pytest.raises(CheckpointError, match="another kind of layers"):
        LayerStore(tmp_path, source())


def test_several_share_a_store(tmp_path):
    """Threads with a store each, like processes: every `add` has a lock of its own."""
    model = source()  # made once: torch's random numbers, from which it is drawn, are shared by all threads
    with ThreadPoolExecutor(4) as pool:
        parts = [SENTENCES[:3], SENTENCES[1:], SENTENCES, SENTENCES[::-1]]
        counts = list(pool.map(lambda part: LayerStore(tmp_path, model).add(part), parts))
    assert sum(counts) == 4
    store = LayerStore(tmp_path, source())
    assert all(words in store for words in SENTENCES)
    assert (store.folder / "index.bin").stat().st_size == RECORD.itemsize * 4


def test_a_disk_without_locks_is_borne(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("filelock.FileLock._acquire", refuse)
    assert LayerStore(tmp_path, source()).add(SENTENCES) == 4


def test_a_killed_process_leaves_no_lock_behind(tmp_path):
    store = LayerStore(tmp_path, source())
    hold = "lock = filelock.FileLock(sys.argv[1]); lock.acquire(); print('held', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", f"import filelock, sys; {hold}", f"{store.folder}.elmo-lock"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as other:
        assert other.stdout.read(4) == b"held"
        with ThreadPoolExecutor(1) as pool:
            adding = pool.submit(store.add, SENTENCES)
            with pytest.raises(TimeoutError):
                adding.result(timeout=0.3)  # it waits
            assert not (store.folder / "index.bin").exists()
            other.kill()
            assert adding.result(timeout=60) == 4


def test_which_models_travel(tmp_path, random_model):
    assert open_elmo(str(random_model)).travels
    tuned = open_elmo(str(random_model), tunes=True)
    assert all(weight.requires_grad for weight in tuned.elmo.parameters())
    random = open_elmo(str(random_model), random=True, seed=3)
    assert random.fingerprint != tuned.fingerprint
    assert random.fingerprint == open_elmo(str(random_model), random=True, seed=3).fingerprint
    assert random.elmo.config == tuned.elmo.config
