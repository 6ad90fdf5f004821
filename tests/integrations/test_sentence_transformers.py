"""ELMo under sentence-transformers' stock modules and MTEB's runner: run by `nox -s sentence_transformers`."""

import importlib.util
import socket
from pathlib import Path

import numpy as np
import pytest
import torch

from elmokit import Elmo, ElmoConfig, Embedder
from elmokit.nn.scalar_mix import ScalarMix

pytest.importorskip("transformers", reason="the extra `transformers` is not installed")
sentence_transformers = pytest.importorskip("sentence_transformers", reason="nox -s sentence_transformers installs it")

from sentence_transformers import SentenceTransformer  # noqa: E402
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer  # noqa: E402

from elmokit.integrations.transformers import ElmoModel, ElmoTokenizer  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # the libraries' own
TEXTS = ["She sat by the river bank.", "Hi", "", "The bank lent him money, didn't it?"]
BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "mteb_tasks.py"


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Nothing here asks for the hub, so nothing may reach for it."""

    def refuse(*given):
        raise AssertionError(f"reached for the network: {given}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small model that transformers has saved, with a mix of its own."""
    elmo = Elmo.random(ElmoConfig.tiny())
    elmo.store_mix(ScalarMix(3, weights=[0.5, -1.0, 0.3], gamma=1.7))
    native, saved = (tmp_path_factory.mktemp("models") / name for name in ("native", "saved"))
    elmo.save_pretrained(native)
    ElmoModel.from_elmokit(native).save_pretrained(saved)
    ElmoTokenizer.from_elmokit(native).save_pretrained(saved)
    return saved


@pytest.fixture
def encoder(folder):
    words = Transformer(str(folder))
    return SentenceTransformer(modules=[words, Pooling(words.get_embedding_dimension())], device="cpu")


def test_sentences_are_the_mean_of_their_words(encoder, folder):
    expected = Embedder(folder).encode(TEXTS, pooling="mean", layers="mix")
    np.testing.assert_allclose(encoder.encode(TEXTS, batch_size=2), expected, atol=1e-6)
    assert not expected[2].any()  # no words


def test_words_have_vectors_too(encoder, folder):
    found = encoder.encode(TEXTS[0], output_value="token_embeddings")
    np.testing.assert_allclose(found, Embedder(folder).embed(TEXTS[:1], layers="mix")[0], atol=1e-6)


def test_it_saves_and_reloads_without_remote_code(encoder, tmp_path):
    encoder.save(str(tmp_path / "saved"))
    assert not list((tmp_path / "saved").rglob("*.py"))
    loaded = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    np.testing.assert_array_equal(loaded.encode(TEXTS), encoder.encode(TEXTS))
    expected = Embedder(tmp_path / "saved").encode(TEXTS, pooling="mean", layers="mix")  # elmokit reads it, too
    np.testing.assert_allclose(loaded.encode(TEXTS), expected, atol=1e-6)


def test_a_bare_folder_gets_mean_pooling(encoder, folder):
    """sentence-transformers' own default for a model without modules."""
    np.testing.assert_allclose(
        SentenceTransformer(str(folder), device="cpu").encode(TEXTS), encoder.encode(TEXTS), atol=1e-6
    )


def test_its_losses_train_elmo(encoder):
    pairs = [("a cat sat", "the cat sat"), ("he ran", "he was running"), ("money", "a bank")]
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    loss = MultipleNegativesRankingLoss(encoder)
    sides = [encoder.preprocess(list(side)) for side in zip(*pairs, strict=True)]
    loss(sides, torch.tensor([])).backward()
    grads = [weight.grad for weight in encoder.parameters()]
    assert all(grad is not None and grad.isfinite().all() for grad in grads) and any(grad.any() for grad in grads)


def test_mteb_runs_its_tasks(folder):
    pytest.importorskip("mteb", reason="nox -s sentence_transformers installs it")
    spec = importlib.util.spec_from_file_location("mteb_tasks", BENCHMARK)
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    encoder = benchmark.make_encoder(folder)
    sentences = ["the cat sat there", "the cat sat here", "money is in the bank", "zzz 123 456"]
    vectors = encoder.encode(sentences)
    cosines = encoder.similarity(vectors[:1], vectors)[0].tolist()
    pairs = [(sentences[0], sentence, 3 + cosine) for sentence, cosine in zip(sentences, cosines, strict=True)]
    examples = [(label, f"{label} {number}") for label in ("cat", "zzzzzz") for number in range(12)]
    tasks = [
        benchmark.make_relatedness_task("Pairs", pairs),
        benchmark.make_classification_task("Kinds", train=examples, test=examples),
    ]
    assert benchmark.run(encoder, tasks) == {"Pairs": 100.0, "Kinds": 100.0}


def test_the_benchmark_finds_its_files(tmp_path):
    pytest.importorskip("mteb", reason="nox -s sentence_transformers installs it")
    spec = importlib.util.spec_from_file_location("mteb_tasks", BENCHMARK)
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    for name in ("train", "test"):
        (tmp_path / f"TREC.{name}").write_text("NUM:dist How far ?\nLOC:city Where ?\n", encoding="utf-8")
    (tmp_path / "SICK_trial.txt").write_text(
        "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n1\tA cat\tA dog\t3.6\tNEUTRAL\n",
        encoding="utf-8",
    )
    tasks = {task.metadata.name: task for task in benchmark.find_tasks(tmp_path)}
    for task in tasks.values():
        task.load_data()
    assert tasks["SICK-R-local"].dataset["test"][0] == {"sentence1": "A cat", "sentence2": "A dog", "score": 3.6}
    assert tasks["TREC-6-local"].dataset["train"]["label"][:] == [1, 0]
