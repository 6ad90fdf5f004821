"""`precision=`: what each device has, what it declines, and that int8 vectors do not depend on their company."""

import copy

import numpy as np
import pytest
import torch

from elmokit.config import ElmoConfig
from elmokit.embed.embedder import Embedder
from elmokit.embed.files import embed_files
from elmokit.engines import precision as module
from elmokit.engines import why_no_library
from elmokit.engines.precision import check_precision, why_not
from elmokit.errors import EngineError, InputError
from elmokit.model import Elmo

CPU, CUDA, MPS = map(torch.device, ("cpu", "cuda", "mps"))
SENTENCES = [["The", "bank", "of", "the", "river"], ["hello"], [], ["bank"] * 40, ["a", "bank", "account", "."]] * 3

needs_kernels = pytest.mark.skipif(why_no_library() is not None, reason="no C++ kernels here")


@pytest.fixture
def own(elmo):
    return copy.deepcopy(elmo)


def test_what_each_device_has(monkeypatch):
    monkeypatch.setattr(module, "why_no_library", lambda: None)
    assert [why_not(name, CPU) for name in ("float32", "int8")] == [None, None]
    assert [why_not(name, CUDA) for name in ("float32", "bfloat16")] == [None, None]
    assert why_not("bfloat16", CPU) == "needs CUDA, found cpu"
    assert why_not("int8", MPS) == "needs a CPU, found mps"
    with pytest.raises(EngineError, match="'bfloat16' needs CUDA, found cpu: use one of 'float32', 'int8' here"):
        check_precision("bfloat16", CPU)
    with pytest.raises(EngineError, match="'int8' needs a CPU, found cuda: use one of 'float32', 'bfloat16' here"):
        check_precision("int8", CUDA)


def test_without_a_compiler_int8_is_declined(monkeypatch, own):
    monkeypatch.setattr(module, "why_no_library", lambda: "needs a C++ compiler, found none")
    with pytest.raises(
        EngineError, match=r"needs the C\+\+ kernels: needs a C\+\+ compiler.*use one of 'float32' here"
    ):
        Embedder(own, precision="int8")
    assert own.precision == "float32"


def test_a_wrong_choice_is_declined_before_the_model_is_read():
    for precision in ("bfloat16", "float64"):
        with pytest.raises(EngineError, match=precision):
            Embedder.from_pretrained("no-such-model", device="cpu", precision=precision)
        with pytest.raises(EngineError, match=precision):
            Elmo.from_pretrained("no-such-model", precision=precision)


@needs_kernels
def test_int8_is_near_float32(own, config):
    expected = Embedder(own).embed(SENTENCES)
    embedder = Embedder(own, precision="int8")
    assert (embedder.precision, own.precision) == ("int8", "int8")
    found = embedder.embed(SENTENCES)
    error = np.linalg.norm(np.concatenate(found) - np.concatenate(expected)) / np.linalg.norm(np.concatenate(expected))
    assert 0 < error < 0.05
    again = Embedder(own, precision="float32").embed(SENTENCES)
    assert all(map(np.array_equal, again, expected))


@needs_kernels
@pytest.mark.parametrize("state", ["zero", "canonical"])
def test_an_int8_vector_does_not_depend_on_its_company(own, state):
    embedder = Embedder(own, precision="int8", state=state)
    alone = [embedder.embed([words])[0] for words in SENTENCES]
    for batch_size in (None, 2, 5, 64):
        embedder.clear_cache()
        for found, expected in zip(embedder.embed(SENTENCES, batch_size=batch_size), alone, strict=True):
            np.testing.assert_allclose(found, expected, atol=1e-5, rtol=0)


@needs_kernels
def test_int8_at_a_published_size():
    elmo = Elmo.random(ElmoConfig.small())
    expected = Embedder(elmo).embed(SENTENCES[:3], layers="all")
    embedder = Embedder(elmo, precision="int8")
    found = embedder.embed(SENTENCES[:3], layers="all")
    assert all(np.array_equal(a, b) for a, b in zip(found, embedder.embed(SENTENCES[:5], layers="all"), strict=False))
    for a, b in zip(found, expected, strict=True):
        assert np.linalg.norm(a - b) <= 0.05 * np.linalg.norm(b)


@needs_kernels
def test_a_model_is_read_and_saved_with_its_precision(own, tmp_path):
    own.save_pretrained(tmp_path / "model")
    elmo = Elmo.from_pretrained(tmp_path / "model", precision="int8")
    assert elmo.precision == "int8" and elmo.engine.startswith("engine=int8")
    elmo.save_pretrained(tmp_path / "again")
    again = Elmo.from_pretrained(tmp_path / "again")
    assert again.precision == "float32"
    for name, tensor in own.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name


@needs_kernels
def test_the_canonical_state_has_one_precision(own):
    expected = copy.deepcopy(own).canonical_state
    own.set_precision("int8")
    assert torch.equal(own.canonical_state.cell, expected.cell)
    assert own.precision == "int8"


@needs_kernels
def test_a_job_keeps_its_precision(own, tmp_path):
    (tmp_path / "in.txt").write_text("The bank of the river .\n" * 40)
    embedder = Embedder(own, precision="int8")
    embed_files(tmp_path / "in.txt", tmp_path / "out.npy", embedder=embedder, dtype="float32")
    np.testing.assert_allclose(
        np.load(tmp_path / "out.npy")[:6], embedder.embed(["The bank of the river ."])[0], atol=1e-5
    )

    def stop(moment):
        if moment.lines >= 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        embed_files(
            tmp_path / "in.txt", tmp_path / "two.npy", embedder=embedder, segment_words=60, batch_size=4, progress=stop
        )
    with pytest.raises(InputError, match="precision was 'int8', now 'float32'"):
        embed_files(
            tmp_path / "in.txt",
            tmp_path / "two.npy",
            embedder=Embedder(own, precision="float32"),
            segment_words=60,
            batch_size=4,
            resume=True,
        )
