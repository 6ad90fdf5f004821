"""Vectors that are computed once: they equal the source's, survive a stop, and are not computed again."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as StillWaitingError

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit import Embedder, InputError, OutputError
from elmokit.probe import frozen as frozen_module
from elmokit.probe.frozen import WordSpan, freeze, open_folder, span_every_word
from elmokit.probe.sources import ElmoSource, LayerMix, StaticSource

SENTENCES = [["She", "sat", "down"], ["by"], ["the", "river", "bank", "."]]


def test_vectors_equal_the_embedders(elmo_source, tmp_path):
    frozen = freeze(elmo_source, SENTENCES, span_every_word(SENTENCES), folder=tmp_path)
    for mix, layers in zip(elmo_source.mixes, (0, 1, 2, "average"), strict=True):
        expected = np.concatenate(elmo_source.embedder.embed(SENTENCES, layers=layers))
        np.testing.assert_allclose(frozen.mix(mix), expected, atol=2e-3, rtol=2e-3)


def test_the_stored_mix_is_one_of_the_mixes(tmp_path):
    from elmokit import Elmo, ElmoConfig

    elmo = Elmo.random(ElmoConfig.tiny())
    elmo.mixes[0].weights.data += elmo.mixes[0].weights.data.new_tensor([0.0, 1.0, 2.0])
    elmo.save_pretrained(tmp_path / "mixed", mix=0)
    source = ElmoSource(Embedder.from_pretrained(tmp_path / "mixed"))
    assert [mix.name for mix in source.mixes][-2:] == ["average", "mix"]
    frozen = freeze(source, SENTENCES, span_every_word(SENTENCES), folder=tmp_path)
    expected = np.concatenate(source.embedder.embed(SENTENCES, layers="mix"))
    np.testing.assert_allclose(frozen.mix(source.mixes[-1]), expected, atol=2e-3, rtol=2e-3)


def test_a_span_is_the_mean_of_its_words(spelled, tmp_path):
    frozen = freeze(spelled, SENTENCES, [WordSpan(2, 1, 3)], folder=tmp_path)
    words_WD = spelled.layers([SENTENCES[2]])[0][0]
    np.testing.assert_allclose(frozen.mix(spelled.mixes[0])[0], words_WD[1:3].mean(0), atol=2e-3)


def test_sentences_without_spans_are_not_read(spelled, tmp_path):
    freeze(spelled, SENTENCES, [WordSpan(1, 0, 1)], folder=tmp_path)
    assert spelled.calls == [1]


def test_no_spans_are_legal(spelled, tmp_path):
    assert len(freeze(spelled, SENTENCES, [], folder=tmp_path)) == 0


def test_the_note_of_vectors_that_are_gone_does_not_speak_for_the_empty_file(spelled, tmp_path, monkeypatch):
    spans = span_every_word(SENTENCES)
    expected = np.array(freeze(spelled, SENTENCES, spans, folder=tmp_path).layers_LND)
    next(tmp_path.glob("*.f16")).unlink()
    with monkeypatch.context() as context, pytest.raises(KeyboardInterrupt):
        context.setattr(frozen_module, "_fill", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        freeze(spelled, SENTENCES, spans, folder=tmp_path)
    np.testing.assert_array_equal(freeze(spelled, SENTENCES, spans, folder=tmp_path).layers_LND, expected)
    assert np.abs(expected).max() > 0


def test_a_complete_pass_is_not_run_again(spelled, tmp_path):
    spans = span_every_word(SENTENCES)
    first = freeze(spelled, SENTENCES, spans, folder=tmp_path)
    again = freeze(spelled, SENTENCES, spans, folder=tmp_path)
    assert spelled.calls == [3]
    np.testing.assert_array_equal(first.layers_LND, again.layers_LND)
    freeze(spelled, SENTENCES[:2], spans[:4], folder=tmp_path)
    assert spelled.calls == [3, 2]


def test_two_probes_of_the_same_compute_once(spelled, tmp_path, monkeypatch):
    """The second would otherwise empty the file that the first has mapped, which ends the first with a bus error."""
    spans, compute = span_every_word(SENTENCES), spelled.layers
    is_computing, may_go = threading.Event(), threading.Event()

    def slowly(sentences):
        is_computing.set()
        may_go.wait(10)
        return compute(sentences)

    monkeypatch.setattr(spelled, "layers", slowly)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(freeze, spelled, SENTENCES, spans, folder=tmp_path)
        assert is_computing.wait(10)
        second = pool.submit(freeze, spelled, SENTENCES, spans, folder=tmp_path)
        with pytest.raises(StillWaitingError):  # Python 3.10 has a class of its own for it
            second.result(timeout=0.4)  # it waits
        may_go.set()
        np.testing.assert_array_equal(first.result().layers_LND, second.result().layers_LND)
    assert spelled.calls == [3]
    assert {path.suffix for path in tmp_path.iterdir()} == {".f16", ".json"}


def test_a_stopped_pass_goes_on(spelled, tmp_path, monkeypatch):
    monkeypatch.setattr(frozen_module, "BLOCK", 1)
    spans = span_every_word(SENTENCES)
    expected = freeze(spelled, SENTENCES, spans, folder=tmp_path / "..")
    compute = spelled.layers

    def stops(sentences):
        if sentences == [SENTENCES[2]]:
            raise KeyboardInterrupt
        return compute(sentences)

    monkeypatch.setattr(spelled, "layers", stops)
    with pytest.raises(KeyboardInterrupt):
        freeze(spelled, SENTENCES, spans, folder=tmp_path)
    monkeypatch.setattr(spelled, "layers", compute)
    spelled.calls.clear()
    found = freeze(spelled, SENTENCES, spans, folder=tmp_path)
    assert spelled.calls == [1]
    np.testing.assert_array_equal(found.layers_LND, expected.layers_LND)


def test_a_file_that_was_cut_is_made_anew(spelled, tmp_path):
    spans = span_every_word(SENTENCES)
    expected = np.array(freeze(spelled, SENTENCES, spans, folder=tmp_path).layers_LND)
    (path,) = tmp_path.glob("*.f16")
    path.write_bytes(b"too short")
    np.testing.assert_array_equal(freeze(spelled, SENTENCES, spans, folder=tmp_path).layers_LND, expected)


def test_vectors_that_are_no_numbers_are_refused(spelled, tmp_path, monkeypatch):
    monkeypatch.setattr(spelled, "layers", lambda sentences: [np.full((2, len(s), 8), np.nan) for s in sentences])
    with pytest.raises(InputError, match="the vectors of 'She' are kept in float16, which cannot hold their value nan"):
        freeze(spelled, SENTENCES, span_every_word(SENTENCES), folder=tmp_path)


def test_half_a_character_as_json_may_hold_it_is_read_and_kept(elmo_source, tmp_path):
    sentences = [["the", "bank\ud800"]]
    frozen = freeze(elmo_source, sentences, span_every_word(sentences), folder=tmp_path)
    (expected,) = elmo_source.embedder.embed(sentences, layers=0)
    np.testing.assert_allclose(frozen.layers_LND[0], expected, atol=2e-3, rtol=2e-3)


def test_a_folder_that_cannot_be_made_is_an_output_error(tmp_path, spelled):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="file"), open_folder(tmp_path / "file" / "inside"):
        pass
    with pytest.raises(OutputError, match="cannot be kept"):
        freeze(spelled, SENTENCES, span_every_word(SENTENCES), folder=tmp_path / "file")


def test_a_full_disk_is_an_output_error_at_once(tmp_path, spelled, monkeypatch):
    def is_full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", is_full, raising=False)
    with pytest.raises(OutputError, match="cannot be kept there: No space left on device"):
        freeze(spelled, SENTENCES, span_every_word(SENTENCES), folder=tmp_path)
    assert spelled.calls == []


def test_a_temporary_folder_goes_away():
    with open_folder(None) as folder:
        assert folder.is_dir()
    assert not folder.exists()


@given(st.lists(st.floats(-2, 2), min_size=2, max_size=2))
def test_a_mix_is_the_weighted_sum(weights):
    layers_LND = np.arange(12, dtype=np.float16).reshape(2, 3, 2)
    found = frozen_module.Frozen(layers_LND).mix(LayerMix("any", tuple(weights)))
    np.testing.assert_allclose(found, np.einsum("l,lnd->nd", weights, layers_LND.astype(np.float64)), atol=1e-4)


def test_static_vectors_fall_back_to_lower_case_and_zeros(tmp_path):
    (tmp_path / "my.6B.txt").write_text("dog 1 2\nDog 3 4\ncat 5 6\n", encoding="utf-8")
    source = StaticSource(tmp_path / "my.6B.txt", words=["Dog", "DOG", "Cat", "gone"])
    (vectors,) = source.layers([["Dog", "DOG", "Cat", "gone"]])
    np.testing.assert_array_equal(vectors, [[[3, 4], [1, 2], [5, 6], [0, 0]]])
    assert source.mixes[0].name == "my.6B"
    assert source.knows("Cat") and not source.knows("gone")
    assert source.layers([[]])[0].shape == (1, 0, 2)


def test_carried_state_is_refused(elmo_source):
    carrying = Embedder(elmo_source.embedder.elmo, state="carry")
    with pytest.raises(InputError, match="same vectors for the same sentence"):
        ElmoSource(carrying)
