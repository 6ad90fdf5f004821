"""An Embedder goes where pipelines take it: pickles, copies, other processes."""

from __future__ import annotations

import copy
import io
import multiprocessing
import pickle
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from elmokit.embed.embedder import Embedder
from elmokit.errors import InputError
from elmokit.language_model.model import LanguageModel
from elmokit.model import Elmo
from elmokit.nn.output_layer import OutputLayer
from elmokit.nn.scalar_mix import ScalarMix
from elmokit.text.segmenters import RuleSegmenter

SENTENCES = ["She sat by the river bank .", "", "The bank did n't lend ."]
OUTPUT_WORDS = ["<S>", "</S>", "<UNK>", "the", "bank"]


def pickle_twice(thing):
    return pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(thing))))


def save_with_torch(thing):
    file = io.BytesIO()
    torch.save(thing, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


COPIES = {"pickle": pickle_twice, "deepcopy": copy.deepcopy, "copy": copy.copy, "torch.save": save_with_torch}


def assert_equal(arrays, expected):
    for array, other in zip(arrays, expected, strict=True):
        np.testing.assert_array_equal(array, other)


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("state", ["zero", "carry", "canonical"])
def test_a_copy_embeds_the_same(elmo, how, state):
    segmenter = RuleSegmenter(splits_clitics=False)
    embedder = Embedder(copy.deepcopy(elmo), state=state, segmenter=segmenter, cache_words=7)
    embedder.source = "somewhere"
    embedder.embed(["Something that carry mode remembers ."])
    other = COPIES[how](embedder)
    assert (other.state, other.cache_words, other.source) == (state, 7, "somewhere")
    assert (other.device, other.precision) == (embedder.device, embedder.precision)
    assert other.encoder.elmo is other.elmo
    assert_equal(other.embed(SENTENCES, layers="all"), embedder.embed(SENTENCES, layers="all"))
    assert len(other.embed(["do n't don't"])[0]) == 3  # the segmenter came along


def test_a_deep_copy_carries_a_state_of_its_own(elmo):
    embedder = Embedder(elmo, state="carry")
    embedder.embed(SENTENCES)
    other = copy.deepcopy(embedder)
    embedder.reset_state()
    assert embedder.carried_state is None and other.carried_state is not None


def test_a_copy_made_while_a_stream_runs_is_free(elmo):
    embedder = Embedder(elmo, state="carry")
    stream = embedder.stream(SENTENCES, batch_size=1)
    next(stream)
    pickle_twice(embedder).embed(SENTENCES)
    with pytest.raises(InputError, match="another call"):
        embedder.embed(SENTENCES)


def test_the_words_remembered_do_not_travel(elmo):
    embedder = Embedder(elmo)
    size = len(pickle.dumps(embedder))
    embedder.embed([[f"word{number}" for number in range(5000)]])
    assert len(pickle.dumps(embedder)) < size + 1000


def test_int8_travels(elmo):
    embedder = Embedder(copy.deepcopy(elmo))
    try:
        embedder.elmo.set_precision("int8")
    except Exception as problem:
        pytest.skip(str(problem))
    expected = embedder.embed(SENTENCES)
    other = pickle_twice(embedder)
    assert other.precision == "int8"
    assert_equal(other.embed(SENTENCES), expected)


@pytest.mark.parametrize("how", ["pickle", "deepcopy", "torch.save"])
def test_a_module_that_was_used_is_copied_whole(elmo, how):
    own = copy.deepcopy(elmo)
    own.store_mix(ScalarMix(3, weights=[1.0, 2.0, 3.0], gamma=2.0))
    Embedder(own, state="canonical").embed(SENTENCES)
    other = COPIES[how](own)
    assert other.fingerprint() == own.fingerprint()
    assert other.stored_mix is not None and torch.equal(other.stored_mix.weights, own.stored_mix.weights)
    ids = own.word_ids([["the", "bank"]])
    assert torch.equal(other(ids).layers, own(ids).layers)
    assert len(pickle.dumps(own)) < 2 * len(pickle.dumps(Elmo.random(own.config)))


@pytest.mark.parametrize("how", COPIES)
def test_a_language_model_is_copied(elmo, how):
    lm = LanguageModel(copy.deepcopy(elmo), OutputLayer(5, 6), OUTPUT_WORDS)
    expected = lm.perplexity(SENTENCES)
    assert COPIES[how](lm).perplexity(SENTENCES) == expected


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_the_workers_of_a_data_loader_embed(elmo, method):
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this system cannot {method}")
    embedder = Embedder(elmo)
    expected = embedder.encode(SENTENCES)
    workers = {"num_workers": 1, "multiprocessing_context": method, "timeout": 120}
    loader = DataLoader(SENTENCES, batch_size=2, collate_fn=embedder.encode, **workers)
    np.testing.assert_allclose(np.concatenate(list(loader)), expected, atol=1e-5)


FORKING = """
import multiprocessing, sys, torch
torch.set_num_threads(2)
from elmokit.embed.embedder import Embedder
from elmokit.config import ElmoConfig
from elmokit.model import Elmo

embedder = Embedder(Elmo.random(ElmoConfig.tiny()))
sentences = [["word"] * 40 + [str(number)] for number in range(80)]
expected = embedder.encode(sentences)

def work(_):
    embedder.clear_cache()
    return float(abs(embedder.encode(sentences) - expected).max())

with multiprocessing.get_context("fork").Pool(2) as pool:
    assert max(pool.map_async(work, range(2)).get(90)) < 1e-5
print("done")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_a_forked_process_embeds_after_the_parent_has_used_its_threads():
    done = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, timeout=150)
    assert done.stdout.strip() == "done", done.stderr


def test_a_pool_of_processes_embeds(elmo):
    embedder = Embedder(elmo)
    expected = embedder.embed(SENTENCES)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert_equal(pool.submit(embedder.embed, SENTENCES).result(timeout=120), expected)


def test_joblib_and_clone(elmo, tmp_path):
    joblib, base = pytest.importorskip("joblib"), pytest.importorskip("sklearn.base")
    embedder = Embedder(elmo)
    joblib.dump(embedder, tmp_path / "embedder")
    for other in (joblib.load(tmp_path / "embedder"), base.clone(embedder, safe=False)):
        assert_equal(other.embed(SENTENCES), embedder.embed(SENTENCES))
