"""EmbedBatches: what an Embedder computes, for engines that send a callable to workers and hand it batches."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from elmokit import Embedder
from elmokit.embed import EmbedBatches
from elmokit.errors import InputError

TEXTS = ["She sat by the river bank.", "", "Hello"]


def test_columns_are_those_of_an_embedder(random_model):
    batch = {"text": np.array(TEXTS), "id": np.arange(3)}
    found = EmbedBatches(random_model, layers="all", dtype="float32")(batch)
    assert list(found) == ["text", "id", "words", "layer_0", "layer_1", "layer_2"]
    assert found["words"] == [["She", "sat", "by", "the", "river", "bank", "."], [], ["Hello"]]
    for row, layers in enumerate(Embedder(random_model).embed(TEXTS, layers="all")):
        for number in range(3):
            assert np.array_equal(found[f"layer_{number}"][row], layers[number])


def test_words_are_taken_as_they_are_and_missing_texts_are_empty(random_model):
    embed = EmbedBatches(random_model, column="words", batch_size=1)
    found = embed({"words": [["river", "bank."], np.array(["Hello"], object), None, float("nan")]})
    assert [vectors.shape for vectors in found["vectors"]] == [(2, 128), (1, 128), (0, 128), (0, 128)]
    assert found["vectors"][0].dtype == np.float16


def test_it_travels_without_weights(random_model):
    embed = EmbedBatches(random_model)
    expected = embed({"text": TEXTS})["vectors"]
    packed = pickle.dumps(embed)
    assert len(packed) < 1000
    for one, other in zip(pickle.loads(packed)({"text": TEXTS})["vectors"], expected, strict=True):
        assert np.array_equal(one, other)


def test_bad_choices_and_batches_are_told(random_model):
    embed = EmbedBatches(random_model)
    for message, call in {
        "cannot keep": lambda: EmbedBatches(state="carry"),
        "'float16', 'float32'": lambda: EmbedBatches(dtype="int8"),
        "expected a column 'text', found 'body'": lambda: embed({"body": TEXTS}),
        "row 1 of 'text': expected a text": lambda: embed({"text": ["a", 3]}),
        "asked for layer 9": lambda: EmbedBatches(random_model, layers=9)({"text": TEXTS}),
    }.items():
        with pytest.raises(ValueError, match=message):
            call()


def test_a_number_too_large_for_float16_is_told(random_model, monkeypatch):
    embed = EmbedBatches(random_model)
    monkeypatch.setattr(Embedder, "embed", lambda *_, **__: [np.full((1, 128), 7e4, np.float32)])
    with pytest.raises(InputError, match="too large for float16"):
        embed({"text": ["a"]})


def test_datasets_map(random_model):
    datasets = pytest.importorskip("datasets")
    texts = datasets.Dataset.from_dict({"text": TEXTS})
    found = texts.map(EmbedBatches(random_model, dtype="float32"), batched=True).with_format("numpy")
    np.testing.assert_allclose(found[0]["vectors"], Embedder(random_model).embed(TEXTS)[0], atol=1e-5)


def test_dask_map_partitions(random_model):
    frames = pytest.importorskip("dask.dataframe")
    pandas = pytest.importorskip("pandas")
    embed = EmbedBatches(random_model, dtype="float32")
    texts = frames.from_pandas(pandas.DataFrame({"text": TEXTS}), npartitions=2)
    meta = {"text": "object", "words": "object", "vectors": "object"}
    found = texts.map_partitions(
        lambda part: pandas.DataFrame(embed({"text": part["text"].tolist()}), index=part.index), meta=meta
    ).compute(scheduler="sync")
    for one, other in zip(found["vectors"], Embedder(random_model).embed(TEXTS), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
