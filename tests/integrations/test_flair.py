"""Flair's embeddings: the vectors of `embed`, in Flair's stacks, and in models that Flair trains, saves and loads.

They need Flair, which excludes other frameworks that are tested here: `nox -s flair`.
"""

import copy
import pickle
import shutil
import subprocess
import sys
from importlib import import_module

import numpy as np
import pytest
import torch
from comparing import DATA

flair = pytest.importorskip("flair", reason="Flair is not installed: pip install 'elmokit[flair]'")

from flair.data import Corpus, Sentence  # noqa: E402
from flair.datasets import ColumnCorpus  # noqa: E402
from flair.embeddings import DocumentPoolEmbeddings, StackedEmbeddings  # noqa: E402
from flair.embeddings.base import EMBEDDING_CLASSES, load_embeddings  # noqa: E402
from flair.models import SequenceTagger  # noqa: E402
from flair.trainers import ModelTrainer  # noqa: E402

from elmokit import Embedder, sample  # noqa: E402
from elmokit.errors import CheckpointError, EngineError, LayerError, MissingExtra  # noqa: E402
from elmokit.integrations.flair import ElmoTokenEmbeddings  # noqa: E402

MODEL = str(DATA / "allennlp-two-layers")
TEXTS = ["The cat sat on the mat .", "Yes", "Money in the bank ."]


@pytest.fixture(scope="module", autouse=True)
def on_a_cpu():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flair, "device", torch.device("cpu"))
        yield


def make_sentences():
    return [Sentence(text.split()) for text in TEXTS]


def vectors_of(sentence):
    return torch.stack([token.get_embedding() for token in sentence]).numpy()


@pytest.mark.parametrize("layers", ["average", "top", "mix", 1, "all"])
def test_vectors_are_those_of_embed(layers):
    embeddings, embedder = ElmoTokenEmbeddings(MODEL, layers=layers), Embedder(MODEL)
    sentences = make_sentences()
    embeddings.embed(sentences)
    for sentence, expected in zip(sentences, embedder.embed([t.split() for t in TEXTS], layers=layers), strict=True):
        if layers == "all":
            expected = np.concatenate(list(expected), axis=-1)
        assert vectors_of(sentence).shape == (len(sentence), embeddings.embedding_length)
        np.testing.assert_allclose(vectors_of(sentence), expected, atol=1e-6)


def test_flair_knows_them():
    embeddings = ElmoTokenEmbeddings(MODEL)
    assert EMBEDDING_CLASSES["ElmoTokenEmbeddings"] is ElmoTokenEmbeddings
    assert embeddings.embedding_type == "word-level"
    assert embeddings.name == "elmo-allennlp-two-layers-average"
    assert embeddings.static_embeddings
    assert not list(embeddings.parameters())  # frozen: nothing to learn, nothing to save
    assert "layers='average'" in repr(embeddings)
    (sentence,) = embeddings.embed(Sentence(["Yes"]))
    assert not sentence[0].get_embedding().requires_grad


def test_a_static_embedding_is_computed_once(monkeypatch):
    embeddings, sentence, calls = ElmoTokenEmbeddings(MODEL), Sentence(["Yes"]), []
    embed = embeddings.embedder.embed
    monkeypatch.setattr(embeddings.embedder, "embed", lambda words, **how: calls.append(words) or embed(words, **how))
    embeddings.embed(sentence)
    embeddings.embed([sentence])
    assert calls == [[["Yes"]]]


def test_a_stack_and_a_document():
    stack = StackedEmbeddings([ElmoTokenEmbeddings(MODEL, layers=0), ElmoTokenEmbeddings(MODEL, layers="top")])
    sentence = Sentence(TEXTS[0].split())
    stack.embed(sentence)
    embedder, words = Embedder(MODEL), [TEXTS[0].split()]
    expected = np.concatenate([embedder.embed(words, layers=layer)[0] for layer in (0, "top")], axis=-1)
    np.testing.assert_allclose(vectors_of(sentence), expected, atol=1e-6)
    pooled = DocumentPoolEmbeddings([ElmoTokenEmbeddings(MODEL)], fine_tune_mode="none")
    document = Sentence(TEXTS[0].split())
    pooled.embed(document)
    np.testing.assert_allclose(document.get_embedding().numpy(), embedder.encode(words)[0], atol=1e-5)


@pytest.mark.parametrize(("source", "precision"), [(MODEL, "float32"), (MODEL, "int8"), ("en-small", "float32")])
def test_what_flair_saves_is_loaded(source, precision, tmp_path):
    if source == MODEL:
        source = str(shutil.copytree(MODEL, tmp_path / "model"))
    embeddings = ElmoTokenEmbeddings(source, layers="top", precision=precision)
    stack = StackedEmbeddings([embeddings])
    saved = pickle.dumps(stack.save_embeddings(use_state_dict=False))
    assert (len(saved) < 1000) == (source == "en-small")  # an installed model goes by its name
    shutil.rmtree(tmp_path / "model", ignore_errors=True)
    again = load_embeddings(pickle.loads(saved))
    first, second = make_sentences(), make_sentences()
    stack.embed(first)
    again.embed(second)
    assert again.get_names() == stack.get_names() == [f"0-{embeddings.name[2:]}"]
    for one, other in zip(first, second, strict=True):
        np.testing.assert_allclose(vectors_of(other), vectors_of(one), atol=1e-6)
    # … and saved again, from its own copy
    third = load_embeddings(pickle.loads(pickle.dumps(again.save_embeddings(use_state_dict=False))))
    assert third.embeddings[0].source == source


def test_copies_give_the_same():
    embeddings = ElmoTokenEmbeddings(MODEL)
    for other in (copy.deepcopy(embeddings), pickle.loads(pickle.dumps(embeddings))):
        first, second = embeddings.embed(make_sentences()), other.embed(make_sentences())
        np.testing.assert_allclose(vectors_of(second[0]), vectors_of(first[0]), atol=1e-6)


def test_embeddings_follow_the_device_of_flair(monkeypatch):
    embeddings = ElmoTokenEmbeddings(MODEL)
    assert embeddings.embedder.device == torch.device("cpu")
    monkeypatch.setattr(flair, "device", torch.device("meta"))  # the only other device that every machine has
    assert embeddings.embedder.device == torch.device("meta")
    whole_numbers = ElmoTokenEmbeddings(MODEL, precision="int8")
    assert whole_numbers.embedder.device == torch.device("cpu")
    whole_numbers.embed(sentence := Sentence(["Yes"]))
    assert sentence[0]._embeddings[whole_numbers.name].device == torch.device("meta")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Corpus:
    folder = sample(tmp_path_factory.mktemp("sample"))
    files = {"train_file": "names-train.conll", "dev_file": "names-dev.conll", "test_file": "names-dev.conll"}
    return ColumnCorpus(folder, {0: "text", 1: "ner"}, **files)


@pytest.mark.filterwarnings("ignore:.*GradScaler:FutureWarning")  # Flair 0.15 calls it by its old name
def test_a_tagger_is_trained_saved_and_loaded_where_nobody_imports_us(corpus, tmp_path):
    flair.set_seed(1)
    tagger = SequenceTagger(
        embeddings=ElmoTokenEmbeddings("en-small"),
        tag_dictionary=corpus.make_label_dictionary("ner", add_unk=False),
        tag_type="ner",
        hidden_size=32,
        rnn_layers=1,
    )
    before = tagger.evaluate(corpus.test, gold_label_type="ner").main_score
    trainer = ModelTrainer(tagger, corpus)
    trainer.train(tmp_path, learning_rate=0.5, mini_batch_size=4, max_epochs=3, embeddings_storage_mode="cpu")
    assert tagger.evaluate(corpus.test, gold_label_type="ner").main_score > before + 0.3
    tagger.save(tmp_path / "names.pt")
    assert (tmp_path / "names.pt").stat().st_size < 1e6  # without the weights of en-small

    sentence = Sentence(["Laura", "Benson", "moved", "to", "Madrid", "."])
    tagger.predict(sentence)
    expected = [(span.text, span.tag) for span in sentence.get_spans("ner")]
    assert ("Madrid", "LOC") in expected
    code = (
        "import sys; from flair.data import Sentence; from flair.models import SequenceTagger;"
        f"tagger = SequenceTagger.load({str(tmp_path / 'names.pt')!r});"
        "sentence = Sentence('Laura Benson moved to Madrid .'.split()); tagger.predict(sentence);"
        "print([(span.text, span.tag) for span in sentence.get_spans('ner')])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == str(expected)


@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"source": "en-smal"}, CheckpointError, "did you mean en-small"),
        ({"source": MODEL, "layers": 7}, LayerError, "layers 0–2"),
        ({"source": MODEL, "layers": "botom"}, LayerError, "botom"),
        ({"source": MODEL, "precision": "int4"}, EngineError, "'int8'"),
    ],
)
def test_bad_settings_are_named(arguments, kind, message):
    with pytest.raises(kind, match=message):
        ElmoTokenEmbeddings(**arguments)


def test_without_flair_the_command_is_named(monkeypatch):
    name = "elmokit.integrations.flair"
    monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "flair", None)
    with pytest.raises(MissingExtra, match=r"pip install 'elmokit\[flair\]'"):
        import_module(name)
