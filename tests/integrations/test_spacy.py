"""spaCy's components: the vectors of `embed`, everywhere where spaCy takes and stores them; taggers; whole pipelines.

They need spaCy, which the extra `test` does not install: `nox -s spacy`.
"""

import multiprocessing
import pickle
import shutil
import subprocess
import sys
import warnings
from importlib import import_module

import numpy as np
import pytest
import torch
from comparing import DATA

spacy = pytest.importorskip("spacy", reason="spaCy is not installed: pip install 'elmokit[spacy]'")

from spacy.tokens import Doc, DocBin, Span  # noqa: E402
from spacy.training import Example  # noqa: E402

from elmokit import Embedder  # noqa: E402
from elmokit.errors import CheckpointError, EngineError, InputError, LayerError, MissingExtra  # noqa: E402
from elmokit.integrations.spacy import attach  # noqa: E402
from elmokit.tasks.config import InputConfig, TrainingConfig  # noqa: E402
from elmokit.tasks.data.columns import TaggedSentence  # noqa: E402
from elmokit.tasks.layer_store import open_elmo  # noqa: E402
from elmokit.tasks.network.inputs import WordInputs  # noqa: E402
from elmokit.tasks.tag import TagConfig, Tagger  # noqa: E402
from elmokit.tasks.train import train_model  # noqa: E402

MODEL = str(DATA / "allennlp-two-layers")
TEXTS = ["The cat sat on the mat. A dog ran.", "", "Cats\n\nand dogs!", " \n ", "Money in the bank. He paid.", "Yes"]
WITHOUT_HOOKS = "ignore:.*W109.*:UserWarning"  # spaCy says at each `to_bytes` that hooks are left out


def make_pipeline(*, splits=True, **config):
    nlp = spacy.blank("en")
    if splits:
        nlp.add_pipe("sentencizer")
    nlp.add_pipe("elmo", config={"model": MODEL, **config})
    return nlp


@pytest.fixture(scope="module")
def embedder():
    return Embedder(MODEL)


@pytest.fixture(scope="module")
def nlp():
    return make_pipeline()


@pytest.fixture(scope="module")
def english():
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    nlp.add_pipe("elmo", config={"model": "en-small", "layers": "top"})
    return nlp


def expect_vectors(doc, embedder, layers="average"):
    """What `embed` gives the words of each sentence, with zeros for white space."""
    expected = np.zeros((len(doc), embedder.dim), np.float32)
    for sentence in doc.sents if doc.has_annotation("SENT_START") else [doc]:
        words = [token for token in sentence if not token.is_space]
        expected[[token.i for token in words]] = embedder.embed([[token.text for token in words]], layers=layers)[0]
    return expected


def all_vectors(doc):
    """What a document answers: the vectors of all tokens, of a span, and its own."""
    return np.stack([token.vector for token in doc] + [doc[1:3].vector, doc.vector])


def test_spacy_finds_the_components_without_an_import():
    code = (
        "import spacy, sys; nlp = spacy.blank('xx');"
        "print(*[nlp.has_factory(name) for name in ('elmo', 'elmo_tagger', 'elmo_ner')]);"
        "print('elmokit.model' in sys.modules)"  # it costs nothing before it is used
    )
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert printed.split() == ["True", "True", "True", "False"]


@pytest.mark.parametrize("layers", ["average", "top", "mix", 0, 1])
@pytest.mark.parametrize("splits", [True, False])
def test_vectors_are_those_of_embed(embedder, layers, splits):
    nlp = make_pipeline(layers=layers, splits=splits)
    for doc in map(nlp, TEXTS):
        assert doc.tensor.dtype == np.float32
        assert doc.tensor.shape == (len(doc), embedder.dim)
        np.testing.assert_allclose(doc.tensor, expect_vectors(doc, embedder, layers), atol=1e-6)


def test_a_sentence_does_not_see_the_next(nlp):
    both, alone = nlp("A dog ran. Money talks."), nlp("A dog ran.")
    np.testing.assert_allclose(both.tensor[:4], alone.tensor, atol=1e-6)
    unsplit = make_pipeline(splits=False)("A dog ran. Money talks.")
    assert np.abs(unsplit.tensor[:4] - alone.tensor).max() > 1e-3


def test_all_layers_are_kept_when_asked_for(embedder):
    doc = make_pipeline(layers="top", keeps_layers=True)("Cats\n\nand dogs! A dog ran.")
    layers = doc._.elmo_layers
    assert layers.shape == (3, len(doc), embedder.dim)
    for layer in range(3):
        np.testing.assert_allclose(layers[layer], expect_vectors(doc, embedder, layer), atol=1e-6)
    np.testing.assert_array_equal(doc.tensor, layers[2])
    assert make_pipeline(keeps_layers=True)("")._.elmo_layers.shape == (3, 0, embedder.dim)
    average = make_pipeline(keeps_layers=True)("A dog ran.")
    np.testing.assert_allclose(average.tensor, average._.elmo_layers.mean(0), atol=1e-6)
    assert make_pipeline()("A dog ran.")._.elmo_layers is None


def test_tokens_spans_and_documents_have_vectors(nlp):
    doc = nlp("Cats\n\nand dogs! A dog ran.")
    words = [token for token in doc if not token.is_space]
    for token in doc:
        np.testing.assert_array_equal(token.vector, doc.tensor[token.i])
        assert token.has_vector is not token.is_space
    np.testing.assert_allclose(doc[0:3].vector, (doc.tensor[0] + doc.tensor[2]) / 2, atol=1e-6)
    np.testing.assert_allclose(doc.vector, doc.tensor[[token.i for token in words]].mean(0), atol=1e-6)
    for thing in (doc, doc[2:5], doc[2]):
        assert thing.has_vector
        np.testing.assert_allclose(thing.vector_norm, np.linalg.norm(thing.vector), rtol=1e-5)
    cosine = doc[0].vector @ doc[3].vector / np.linalg.norm(doc[0].vector) / np.linalg.norm(doc[3].vector)
    assert doc[0].similarity(doc[3]) == pytest.approx(cosine, abs=1e-6)
    assert doc[0].similarity(doc[1]) == 0.0  # white space
    empty = nlp("")
    assert not empty.has_vector and not empty[0:0].has_vector
    assert empty.vector.shape == doc.vector.shape and empty.similarity(doc) == 0.0


def test_a_river_bank_is_no_money_bank(english):
    texts = [
        "She sat on the grassy bank of the river.",
        "They walked along the muddy bank of the stream.",
        "The bank raised its interest rates.",
        "He took a loan from his bank.",
    ]
    river, stream, rates, loan = (next(token for token in doc if token.text == "bank") for doc in english.pipe(texts))
    assert river.similarity(stream) > river.similarity(rates) + 0.1
    assert rates.similarity(loan) > stream.similarity(loan) + 0.1
    assert river.similarity(river) == pytest.approx(1, abs=1e-6)
    span, other = river.doc[river.i : river.i + 1], rates.doc[rates.i : rates.i + 1]
    assert span.similarity(other) == pytest.approx(river.similarity(rates), abs=1e-6)
    assert river.doc.similarity(stream.doc) > river.doc.similarity(rates.doc)


@pytest.mark.filterwarnings(WITHOUT_HOOKS)
def test_static_vectors_of_a_vocabulary_do_not_get_in_between():
    nlp = make_pipeline()
    nlp.vocab.set_vector("dog", np.ones(5, np.float32))
    doc = nlp("A dog ran.")
    assert doc[1].vector.shape == doc.tensor[1].shape == doc.vector.shape == doc[0:2].vector.shape
    stored = Doc(nlp.vocab).from_bytes(doc.to_bytes())
    assert stored[1].vector.tolist() == [1] * 5
    with pytest.raises(InputError, match=r"found 12 and 5: .*attach\(doc\)"):
        doc[1].similarity(stored[1])
    np.testing.assert_array_equal(all_vectors(attach(stored)), all_vectors(doc))


STORED = {
    "bytes": lambda doc: attach(Doc(doc.vocab).from_bytes(doc.to_bytes())),
    "pickle": lambda doc: pickle.loads(pickle.dumps(doc)),
    "copy": Doc.copy,
    "as_doc": lambda doc: doc[:].as_doc(),
    "DocBin": lambda doc: attach(next(DocBin(store_user_data=True, docs=[doc]).get_docs(doc.vocab))),
}


@pytest.mark.filterwarnings(WITHOUT_HOOKS)
@pytest.mark.parametrize("store", STORED.values(), ids=STORED)
def test_a_stored_document_answers_as_before(english, store):
    english.get_pipe("elmo").keeps_vectors = True
    doc = english("She sat on the bank of the river. The bank raised its rates.")
    again = store(doc)
    np.testing.assert_array_equal(all_vectors(again), all_vectors(doc))
    assert again[4].text == again[10].text == "bank"
    assert again[4].similarity(again[10]) == doc[4].similarity(doc[10]) < 0.9
    assert again[0:5].similarity(again[9:11]) == doc[0:5].similarity(doc[9:11])
    assert again.similarity(doc) == pytest.approx(1, abs=1e-6)
    assert again.has_vector and again[4].has_vector


def test_layers_are_stored_with_the_user_data(nlp):
    doc = make_pipeline(keeps_layers=True)("A dog ran.")
    (again,) = DocBin(store_user_data=True, docs=[doc]).get_docs(nlp.vocab)
    np.testing.assert_array_equal(again._.elmo_layers, doc._.elmo_layers)


def test_a_document_without_vectors_says_what_to_do(nlp):
    (stored,) = DocBin(docs=[nlp("A dog ran.")]).get_docs(nlp.vocab)
    with pytest.raises(InputError, match=r"each of its 4 tokens .* shape \(0,\): .*get_pipe.* keeps_vectors=true"):
        attach(stored)
    np.testing.assert_allclose(nlp.get_pipe("elmo")(stored).tensor, nlp("A dog ran.").tensor, atol=1e-6)
    assert attach(Doc(nlp.vocab)).vector.size == 0


def test_tokens_may_be_merged_and_split_afterwards():
    nlp = make_pipeline(keeps_vectors=True)
    doc = nlp("The cat sat on the mat.")
    before = doc.tensor.copy()
    with doc.retokenize() as retokenizer:
        retokenizer.merge(doc[0:2])
    np.testing.assert_array_equal(doc[0].vector, before[1])
    np.testing.assert_array_equal(doc[1].vector, before[2])
    (stored,) = DocBin(store_user_data=True, docs=[doc]).get_docs(nlp.vocab)
    with pytest.raises(InputError, match="each of its 6 tokens"):  # the stored vectors are of seven
        attach(stored)


@pytest.mark.parametrize("batch_size", [1, 2, 100])
def test_documents_come_in_their_order_whatever_the_batch(nlp, batch_size):
    docs = list(nlp.pipe(iter(TEXTS * 3), batch_size=batch_size))
    assert [doc.text for doc in docs] == TEXTS * 3
    for doc in docs:
        np.testing.assert_allclose(doc.tensor, nlp(doc.text).tensor, atol=1e-6)


def test_the_sentences_of_a_batch_are_read_together(monkeypatch):
    nlp = make_pipeline()
    embedder, calls = nlp.get_pipe("elmo").embedder, []
    embed = embedder.embed
    monkeypatch.setattr(embedder, "embed", lambda words, **how: calls.append(len(words)) or embed(words, **how))
    assert len(list(nlp.pipe(TEXTS, batch_size=4))) == 6
    assert calls == [3, 3]  # "The cat …", "A dog …" and "Cats …"; then "Money …", "He …" and "Yes"


def test_documents_stream(nlp):
    taken = []
    stream = nlp.pipe((taken.append(text) or text for text in TEXTS * 50), batch_size=5)
    next(stream)
    assert len(taken) <= 10


def test_an_error_handler_gets_the_batch(monkeypatch):
    nlp = make_pipeline()
    embedder, failed = nlp.get_pipe("elmo").embedder, []

    def embed(words, *, layers):
        if ["Money"] in words:
            raise MemoryError("no room")
        return type(embedder).embed(embedder, words, layers=layers)

    monkeypatch.setattr(embedder, "embed", embed)
    with pytest.raises(MemoryError, match="no room"):
        list(nlp.pipe(["Cats", "Money"]))
    nlp.set_error_handler(lambda name, _, docs, problem: failed.append((name, [doc.text for doc in docs], problem)))
    assert [doc.text for doc in nlp.pipe(["Cats", "Money", "Dogs"], batch_size=1)] == ["Cats", "Dogs"]
    ((name, texts, problem),) = failed
    assert (name, texts) == ("elmo", ["Money"]) and isinstance(problem, MemoryError)


@pytest.mark.filterwarnings(WITHOUT_HOOKS)
@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_several_processes(nlp, method, monkeypatch):
    expected = [doc.tensor for doc in nlp.pipe(TEXTS)]
    monkeypatch.setattr("spacy.language.mp", multiprocessing.get_context(method))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of `fork` in a process with threads
        docs = [attach(doc) for doc in nlp.pipe(TEXTS, n_process=2, batch_size=2)]
    assert [doc.text for doc in docs] == TEXTS
    for doc, tensor in zip(docs, expected, strict=True):
        np.testing.assert_allclose(doc.tensor, tensor, atol=1e-6)
    assert docs[0][0].similarity(docs[0][4]) < 0.999  # "The" and "the" of one sentence


@pytest.mark.parametrize("where", ["disk", "bytes", "pickle"])
@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_a_pipeline_brings_its_model_along(where, precision, tmp_path):
    shutil.copytree(MODEL, tmp_path / "model")
    nlp = make_pipeline(model=str(tmp_path / "model"), layers="top", precision=precision)
    expected = nlp(TEXTS[0]).tensor
    stored = nlp.to_bytes() if where == "bytes" else pickle.dumps(nlp)
    for _ in range(2):  # a folder is replaced
        nlp.to_disk(tmp_path / "pipeline")
    shutil.rmtree(tmp_path / "model")
    if where == "disk":
        again = spacy.load(tmp_path / "pipeline")
    elif where == "bytes":
        again = spacy.util.load_model_from_config(nlp.config).from_bytes(stored)
    else:
        again = pickle.loads(stored)
    np.testing.assert_allclose(again(TEXTS[0]).tensor, expected, atol=1e-6)
    again.to_disk(tmp_path / "other")  # also from its own copy
    np.testing.assert_allclose(spacy.load(tmp_path / "other")(TEXTS[0]).tensor, expected, atol=1e-6)


@pytest.mark.parametrize("where", ["disk", "bytes"])
def test_an_installed_model_goes_by_its_name(english, where, tmp_path):
    if where == "disk":
        make_pipeline().to_disk(tmp_path / "pipeline")
        assert (tmp_path / "pipeline/elmo/model").is_dir()
        english.to_disk(tmp_path / "pipeline")  # in its place, and nothing of it is left
        assert not (tmp_path / "pipeline/elmo/model").exists()
        again = spacy.load(tmp_path / "pipeline", config={"components.elmo.layers": "top"})
    else:
        assert len(english.to_bytes()) < 5e6
        again = spacy.util.load_model_from_config(english.config).from_bytes(english.to_bytes())
    np.testing.assert_allclose(again("A dog ran.").tensor, english("A dog ran.").tensor, atol=1e-6)


@pytest.mark.parametrize(
    ("config", "kind", "message"),
    [
        ({"layers": "botom"}, LayerError, "botom"),
        ({"layers": 7}, LayerError, "layers 0–2"),
        ({"layers": "all"}, InputError, "keeps_layers=true"),
        ({"precision": "int4"}, EngineError, "'int8'"),
        ({"device": "tpu"}, InputError, "cannot compute on the device 'tpu'"),
        ({"layers": 1.5}, ValueError, "layers"),
        ({"laers": 1}, ValueError, "unexpected argument: 'laers'"),
        ({"model": str(DATA)}, CheckpointError, "expected a model"),
    ],
)
def test_bad_settings_are_named_when_the_component_is_added(config, kind, message):
    with pytest.raises(kind, match=message):
        make_pipeline(**config)


def test_a_model_that_is_nowhere_is_named_when_it_is_needed():
    nlp = make_pipeline(model="en-smal")
    with pytest.raises(CheckpointError, match="did you mean en-small"):
        nlp("A dog ran.")


def test_without_spacy_the_command_is_named(monkeypatch):
    name = "elmokit.integrations.spacy"
    monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "spacy.language", None)
    with pytest.raises(MissingExtra, match=r"pip install 'elmokit\[spacy\]'"):
        import_module(name)


NAMES = [
    TaggedSentence(words=(a, b, "went", "to", c, "."), labels=("B-PER", "I-PER", "O", "O", "B-LOC", "O"))
    for a, b, c in (("Ann", "Lee", "Rome"), ("Bob", "Ray", "Oslo"), ("Eve", "Fox", "Bonn"))
] + [TaggedSentence(words=("They", "went", "."), labels=("O", "O", "O"))]
PARTS = [
    TaggedSentence(words=("Dogs", "bark", "."), labels=("NOUN", "VERB", "PUNCT")),
    TaggedSentence(words=("Go", "!"), labels=("VERB", "PUNCT")),
]
PENN = [
    TaggedSentence(words=("Dogs", "bark", "."), labels=("NNS", "VBP", ".")),
    TaggedSentence(words=("Go", "!"), labels=("VB", ".")),
]
TRAINING = TrainingConfig(epochs=40, learning_rate=0.02, batch_size=2, schedule="constant", patience=40)


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    """The folders of three small taggers; the one of names has an ELMo model."""
    folder = tmp_path_factory.mktemp("tasks")
    for name, examples in (("names", NAMES), ("parts", PARTS), ("penn", PENN)):
        torch.manual_seed(0)
        elmo = open_elmo(MODEL) if name == "names" else None
        inputs = InputConfig(character_filters=16, elmo=None if elmo is None else MODEL)
        settings = TagConfig(inputs, hidden=12, dropout=0.1)
        model = Tagger.build(settings, examples, WordInputs(inputs, elmo=elmo))
        results = train_model(model, examples, examples, config=TRAINING, folder=folder / name, device="cpu")
        assert results.dev[model.metric] == 1.0
    return folder


def make_tagging(component, task):
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    nlp.add_pipe(component, config={"task": str(task)})
    return nlp


def test_tags(tasks):
    doc = make_tagging("elmo_tagger", tasks / "parts")("Dogs bark.\n\nGo!")
    assert [token.pos_ for token in doc] == ["NOUN", "VERB", "PUNCT", "SPACE", "VERB", "PUNCT"]
    assert not doc.has_annotation("TAG")
    penn = make_tagging("elmo_tagger", tasks / "penn")
    assert [token.tag_ for token in penn("Dogs bark.\n\nGo!")] == ["NNS", "VBP", ".", "_SP", "VB", "."]
    assert penn.pipe_labels["elmo_tagger"] == [".", "NNS", "VB", "VBP"]
    assert len(penn("")) == 0


def test_entities(tasks):
    nlp = make_tagging("elmo_ner", tasks / "names")
    texts = ["Ann Lee went to Rome. They went.\nBob Ray went to Oslo.", "", "They went."]
    docs = list(nlp.pipe(texts, batch_size=2))
    assert [(each.text, each.label_) for each in docs[0].ents] == [
        ("Ann Lee", "PER"),
        ("Rome", "LOC"),
        ("Bob Ray", "PER"),
        ("Oslo", "LOC"),
    ]
    assert not docs[1].ents and not docs[2].ents
    assert docs[2].has_annotation("ENT_IOB")  # outside, not unknown
    assert nlp.pipe_labels["elmo_ner"] == ["LOC", "PER"]


def test_entities_that_are_there_stay(tasks):
    nlp = make_tagging("elmo_ner", tasks / "names")
    doc = nlp.make_doc("Ann Lee went to Rome.")
    doc.set_ents([Span(doc, 1, 3, label="BOOK")])
    doc = nlp(doc)
    assert [(each.text, each.label_) for each in doc.ents] == [("Lee went", "BOOK"), ("Rome", "LOC")]


def test_spacy_scores_the_components(tasks):
    nlp = make_tagging("elmo_ner", tasks / "names")
    nlp.add_pipe("elmo_tagger", config={"task": str(tasks / "penn")})
    gold = Doc(nlp.vocab, words=["Ann", "Lee", "went", "to", "Rome", "."], ents=["B-PER", "I-PER", "O", "O", "O", "O"])
    scores = nlp.evaluate([Example(nlp.make_doc("Ann Lee went to Rome."), gold)])
    assert (scores["ents_p"], scores["ents_r"]) == (0.5, 1.0)
    gold = Doc(nlp.vocab, words=["Dogs", "bark", "."], tags=["NNS", "VBP", ":"])
    assert nlp.evaluate([Example(nlp.make_doc("Dogs bark."), gold)])["tag_acc"] == pytest.approx(2 / 3)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_taggers_in_several_processes(tasks, method, monkeypatch):
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this system has no {method}")
    nlp = make_tagging("elmo_ner", tasks / "names")
    nlp("Ann Lee went to Rome.")
    monkeypatch.setattr("spacy.language.mp", multiprocessing.get_context(method))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of `fork` in a process with threads
        docs = list(
            nlp.pipe(["Ann Lee went to Rome.", "They went.", "Bob Ray went to Oslo."], n_process=2, batch_size=1)
        )
    assert [[each.text for each in doc.ents] for doc in docs] == [["Ann Lee", "Rome"], [], ["Bob Ray", "Oslo"]]


@pytest.mark.parametrize("where", ["disk", "bytes"])
def test_a_pipeline_brings_its_tagger_along(tasks, where, tmp_path):
    shutil.copytree(tasks / "names", tmp_path / "task")
    nlp = make_tagging("elmo_ner", tmp_path / "task")
    for _ in range(2):
        nlp.to_disk(tmp_path / "pipeline")
    stored = nlp.to_bytes()
    shutil.rmtree(tmp_path / "task")
    if where == "disk":
        again = spacy.load(tmp_path / "pipeline")
    else:
        again = spacy.util.load_model_from_config(nlp.config).from_bytes(stored)
    assert [each.label_ for each in again("Ann Lee went to Rome.").ents] == ["PER", "LOC"]


@pytest.mark.parametrize(
    ("component", "task", "kind", "message"),
    [
        ("elmo_tagger", "names", InputError, r'labels are of spans: use nlp.add_pipe\("elmo_ner"\)'),
        ("elmo_ner", "parts", InputError, r'labels are of single words: use nlp.add_pipe\("elmo_tagger"\)'),
        ("elmo_ner", ".", CheckpointError, "config.json"),
    ],
)
def test_a_task_of_another_kind_is_named(tasks, component, task, kind, message):
    with pytest.raises(kind, match=message):
        make_tagging(component, tasks / task)


def test_a_task_that_is_not_there_is_named(tasks):
    with pytest.raises(InputError, match=r'found none: nlp.add_pipe\("elmo_ner", config={"task": "FOLDER"}\)'):
        spacy.blank("en").add_pipe("elmo_ner")
    nlp = make_tagging("elmo_tagger", tasks / "nowhere")
    with pytest.raises(CheckpointError, match="nowhere"):
        nlp("Dogs bark.")
