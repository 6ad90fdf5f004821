"""ELMo in Hugging Face's transformers, version 4.57 or 5: run by `nox -s transformers4 transformers5`."""

import socket
import sys
from importlib import reload
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from comparing import DATA
from random_models import write_bilm

from elmokit import Elmo, ElmoConfig, Embedder, io
from elmokit.errors import CheckpointError, ConfigError, EngineError, InputError, MissingExtra
from elmokit.nn.scalar_mix import ScalarMix

transformers = pytest.importorskip("transformers", reason="the extra `transformers` is not installed")
pytest.importorskip("accelerate", reason="Trainer needs it: nox -s transformers5")

import elmokit.integrations.transformers as adapter  # noqa: E402
from elmokit.integrations.transformers import (  # noqa: E402
    ElmoForSequenceClassification,
    ElmoForTokenClassification,
    ElmoModel,
    ElmoTokenizer,
)

pytestmark = pytest.mark.filterwarnings("ignore")  # transformers' own

TOLERANCE = 1e-6  # float32; the same engines compute
WORDS = [["The", "river", "bank", "."], ["Übermut"], [], ["the", "bank", "lent", "him", "mo\u3000ney"]]
VOCABULARY = ["<S>", "</S>", "<UNK>", "The", "river", "bank", "."]
SOURCES = ["bytes", "words", "manylangs-characters-tight-clips", "manylangs-words", "manylangs-words-and-characters"]


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Nothing here asks for the hub, so nothing may reach for it."""

    def refuse(*given):
        raise AssertionError(f"reached for the network: {given}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture(scope="module")
def bytes_folder(tmp_path_factory):
    """A native folder of a small model that reads bytes, with a mix of its own."""
    folder = tmp_path_factory.mktemp("models") / "bytes"
    elmo = Elmo.random(ElmoConfig.tiny())
    elmo.store_mix(ScalarMix(3, weights=[0.5, -1.0, 0.3], gamma=1.7))
    elmo.save_pretrained(folder)
    return folder


@pytest.fixture(params=SOURCES)
def source(request, bytes_folder, tmp_path):
    """One source of each scheme and family."""
    if request.param == "words":
        return write_bilm(tmp_path / "words", np.random.default_rng(0), words=VOCABULARY)
    return bytes_folder if request.param == "bytes" else DATA / request.param


def load_both(source, **settings):
    return ElmoModel.from_elmokit(source, **settings), ElmoTokenizer.from_elmokit(source)


def reload_both(folder, model, tokenizer):
    """Saved, and loaded by the Auto classes."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return transformers.AutoModel.from_pretrained(folder), transformers.AutoTokenizer.from_pretrained(folder)


@torch.no_grad()
def read(model, tokenizer, sentences=WORDS, **options):
    batch = tokenizer(sentences, is_split_into_words=True, padding=True, return_tensors="pt")
    return model(**batch, **options)


@torch.no_grad()
def read_by_elmokit(source, sentences=WORDS):
    """The layers, and the mix that is stored with the model, or else the average."""
    elmo = Elmo.from_pretrained(source).eval()
    out = elmo(elmo.word_ids(sentences))
    return out.layers, out.mixes[0] if elmo.stored_mix is None else elmo.stored_mix(out.layers)


def test_numbers_are_those_of_elmo(source):
    layers, mixed = read_by_elmokit(source)
    out = read(*load_both(source), output_hidden_states=True)
    torch.testing.assert_close(out.last_hidden_state, mixed, atol=TOLERANCE, rtol=0)
    torch.testing.assert_close(torch.stack(out.hidden_states), layers, atol=TOLERANCE, rtol=0)


def test_auto_classes_save_and_reload_without_remote_code(source, tmp_path):
    model, tokenizer = load_both(source)
    loaded, loaded_tokenizer = reload_both(tmp_path / "saved", model, tokenizer)
    assert type(loaded) is ElmoModel and type(loaded_tokenizer) is ElmoTokenizer
    assert not loaded.training
    assert not list((tmp_path / "saved").glob("*.py"))
    assert torch.equal(read(model, tokenizer)[0], read(loaded, loaded_tokenizer)[0])
    config = transformers.AutoConfig.from_pretrained(tmp_path / "saved")
    assert (config.model_type, config.hidden_size) == ("elmo", read(model, tokenizer)[0].shape[2])


def test_elmokit_reads_what_transformers_saved(source, tmp_path):
    reload_both(tmp_path / "saved", *load_both(source))
    saved, original = io.load(tmp_path / "saved"), io.load(source)
    assert (saved.config, saved.alphabet, saved.vocabulary) == (original.config, original.alphabet, original.vocabulary)
    assert (saved.swaps_markers, saved.metadata) == (original.swaps_markers, original.metadata)
    assert torch.equal(read_by_elmokit(tmp_path / "saved")[0], read_by_elmokit(source)[0])


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_folder_of_elmokit_is_one_of_transformers(bytes_folder, dtype, tmp_path):
    io.save(io.load(bytes_folder), tmp_path / "model", dtype=dtype)
    model = transformers.AutoModel.from_pretrained(tmp_path / "model")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    assert model.dtype == torch.float32
    _, mixed = read_by_elmokit(tmp_path / "model")
    torch.testing.assert_close(read(model, tokenizer)[0], mixed, atol=TOLERANCE, rtol=0)


def test_a_folder_without_a_mix_gives_the_average(random_model):
    model = transformers.AutoModel.from_pretrained(random_model)
    assert model.mix.layer_weights() == pytest.approx([1 / 3] * 3) and model.mix.gamma == 1
    tokenizer = transformers.AutoTokenizer.from_pretrained(random_model)
    vectors = Embedder(random_model).embed(WORDS[:2], layers="average")
    for sentence, vector in zip(read(model, tokenizer)[0], vectors, strict=False):
        np.testing.assert_allclose(sentence[: len(vector)], vector, atol=TOLERANCE)


def test_neighbours_and_padding_change_nothing(source):
    model, tokenizer = load_both(source)
    together = read(model, tokenizer).last_hidden_state
    for row, sentence in enumerate(WORDS):
        alone = read(model, tokenizer, [sentence]).last_hidden_state[0, : len(sentence)]
        torch.testing.assert_close(together[row, : len(sentence)], alone, atol=TOLERANCE, rtol=0)
        assert not together[row, len(sentence) :].any()


def test_the_mask_decides_what_is_read(bytes_folder):
    model, tokenizer = load_both(bytes_folder)
    batch = tokenizer(["one two three"], return_tensors="pt")
    batch["attention_mask"][0, 2] = 0
    with torch.no_grad():
        vectors = model(**batch).last_hidden_state
    shorter = read(model, tokenizer, [["one", "two"]]).last_hidden_state
    torch.testing.assert_close(vectors[:, :2], shorter, atol=TOLERANCE, rtol=0)
    assert not vectors[:, 2].any()
    batch["attention_mask"][0] = torch.tensor([0, 1, 1])
    with pytest.raises(InputError, match="may only fill the end"):
        model(**batch)


def test_gradients_flow_and_can_be_stopped(bytes_folder):
    model, tokenizer = load_both(bytes_folder)
    batch = tokenizer(["She sat there ."], return_tensors="pt")
    model.train()(**batch).last_hidden_state.square().sum().backward()
    assert all(weight.grad is not None and weight.grad.any() for weight in model.parameters())
    model.zero_grad()
    model.freeze_bilm()
    model(**batch).last_hidden_state.square().sum().backward()
    assert {name for name, weight in model.named_parameters() if weight.grad is not None} == {
        "mix.weights",
        "mix.gamma",
    }


def test_dropout_acts_in_training_alone(bytes_folder):
    model, tokenizer = load_both(bytes_folder, dropout=0.9)
    batch = tokenizer(["She sat there ."], return_tensors="pt")
    with torch.no_grad():
        assert (model.train()(**batch)[0] == 0).float().mean() > 0.5
        assert (model.eval()(**batch)[0] != 0).all()


def test_new_models_are_drawn_by_the_rules_of_elmokit():
    config = adapter.ElmoConfig(ElmoConfig.tiny().to_dict())
    bias = ElmoModel(config).bilm.forward_layers[0].bias.detach().view(4, -1)
    assert bias.mean(1).tolist() == [0, 0, 1, 0]  # the forget gate's; transformers' own rule knows no such thing
    torch.manual_seed(0)
    first = ElmoModel(config)
    torch.manual_seed(0)
    assert all(map(torch.equal, first.state_dict().values(), ElmoModel(config).state_dict().values()))


def test_tuples_as_in_older_code(bytes_folder):
    model, tokenizer = load_both(bytes_folder)
    batch = tokenizer(["Hello there"], return_tensors="pt")
    mixed, layers = model(**batch, output_hidden_states=True, return_dict=False)
    assert mixed.shape == (1, 2, 128) and len(layers) == 3


# The tokenizer


@pytest.fixture(scope="module")
def tokenizer(bytes_folder):
    return ElmoTokenizer.from_elmokit(bytes_folder)


def test_words_are_those_of_elmokit(tokenizer, bytes_folder):
    text = "Don't  say <pad> or [PAD], Mr. Lee!"
    words = ["Do", "n't", "say", "<", "pad", ">", "or", "[", "PAD", "]", ",", "Mr.", "Lee", "!"]
    assert tokenizer.tokenize(text) == words
    encoded = tokenizer(text, return_offsets_mapping=True)
    assert encoded["input_ids"] == Elmo.from_pretrained(bytes_folder).word_ids([words])[0].tolist()
    assert [text[start:end] for start, end in encoded["offset_mapping"]] == words
    assert encoded["attention_mask"] == [1] * len(words)
    assert tokenizer.encode(text) == tokenizer.convert_tokens_to_ids(words) == encoded["input_ids"]


def test_words_that_came_split_stay_so(tokenizer):
    sentences = [["don't"], ["New York", "<pad>"], []]
    encoded = tokenizer(sentences, is_split_into_words=True)
    assert [len(ids) for ids in encoded["input_ids"]] == [1, 2, 0]
    ids = tokenizer(sentences[1], is_split_into_words=True, return_tensors="np")["input_ids"]
    assert ids.shape == (1, 2, 50)
    assert ids[0, 1, 1:6].tolist() == [byte + 1 for byte in b"<pad>"]


def test_padding_is_a_word_of_zeros_on_the_right(tokenizer):
    batch = tokenizer(["a b c", "a"], padding=True, return_tensors="pt", return_special_tokens_mask=True)
    assert batch["input_ids"].shape == (2, 3, 50)
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert batch["special_tokens_mask"].tolist() == [[0, 0, 0], [0, 1, 1]]
    assert not batch["input_ids"][1, 1:].any()
    assert tokenizer.pad_token_id == 0 and len(tokenizer) == 1
    wide = tokenizer(["a b c"], padding=True, pad_to_multiple_of=8, return_tensors="pt", return_attention_mask=False)
    assert list(wide) == ["input_ids"] and wide["input_ids"].shape[1] == 8
    cut = tokenizer(["a b c d"], padding="max_length", truncation=True, max_length=2, return_tensors="np")
    assert cut["input_ids"].shape == (1, 2, 50)
    assert tokenizer("a b c d", max_length=2)["attention_mask"] == [1] * 4  # nothing is cut unasked


def test_a_text_without_words(tokenizer, bytes_folder):
    assert tokenizer("")["input_ids"] == []
    for options in ({"padding": True}, {}):
        batch = tokenizer(["", " "], return_tensors="pt", **options)
        assert batch["input_ids"].shape == (2, 1, 50) and not batch["attention_mask"].any()
    model = ElmoModel.from_elmokit(bytes_folder)
    assert not model(**batch).last_hidden_state.any()


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        (["one", 2], {}, "expected a sentence as a string, found int"),
        ([["one", "two"]], {}, "pass is_split_into_words=True"),
        ([["one", 2]], {"is_split_into_words": True}, "expected a list of words"),
        (["one two"], {"padding_side": "left", "padding": True}, "padding at the end only"),
        (["one two"], {"padding": "max_length"}, "needs max_length=NUMBER"),
        (["one two"], {"padding": "all"}, "asked for padding='all'"),
        ("one", {"text_pair": "two"}, "found a pair"),
    ],
)
def test_bad_input_is_named(tokenizer, given, options, message):
    with pytest.raises(InputError, match=message):
        tokenizer(given, **options)


def test_what_a_tokenizer_of_characters_cannot_do_is_told(tokenizer):
    with pytest.raises(InputError, match="are not decoded"):
        tokenizer.decode([1, 2])
    with pytest.raises(InputError, match="found \\['labels'\\]"):
        tokenizer.pad([{"labels": 1}])
    with pytest.raises(InputError, match="padding at the end only"):
        ElmoTokenizer(elmo=ElmoConfig.tiny().to_dict(), padding_side="left")
    with pytest.raises(CheckpointError, match="found none; ElmoTokenizer.from_elmokit"):
        ElmoTokenizer()


def test_a_tokenizer_saved_alone_reloads(source, tmp_path):
    tokenizer = ElmoTokenizer.from_elmokit(source)
    tokenizer.save_pretrained(tmp_path)
    loaded = ElmoTokenizer.from_pretrained(tmp_path)
    options = {"is_split_into_words": True, "padding": True}
    assert dict(loaded(WORDS, **options)) == dict(tokenizer(WORDS, **options))


# Pipelines and Trainer


@pytest.mark.parametrize("batch_size", [1, 3])
def test_the_pipeline_extracts_features(bytes_folder, batch_size):
    extract = transformers.pipeline("feature-extraction", model=str(bytes_folder), device="cpu")
    texts = ["She sat by the river bank.", "Hi", "", "The bank lent him money."]
    vectors = Embedder(bytes_folder).embed(texts, layers="mix")
    for found, expected in zip(extract(texts, batch_size=batch_size), vectors, strict=True):
        np.testing.assert_allclose(np.array(found)[0, : len(expected)], expected, atol=TOLERANCE)


QUESTIONS = ["Who is it?", "Who sat there?", "Who came?", "Where is it?", "Where was he?", "Where do they go?"]


def make_training(folder, **options):
    return transformers.TrainingArguments(
        str(folder),
        num_train_epochs=15,
        per_device_train_batch_size=4,
        learning_rate=3e-2,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        seed=1,
        **options,
    )


def test_trainer_learns_labels_of_sentences(bytes_folder, tokenizer, tmp_path):
    labels = {0: "person", 1: "place"}
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        bytes_folder, id2label=labels, label2id={name: number for number, name in labels.items()}, dropout=0.0
    )
    model.freeze_bilm()
    before = {name: weight.clone() for name, weight in model.elmo.bilm.state_dict().items()}
    rows = [{**tokenizer(text), "labels": int(text.startswith("Where"))} for text in QUESTIONS]
    trainer = transformers.Trainer(
        model,
        make_training(tmp_path / "runs"),
        train_dataset=rows,
        data_collator=transformers.DataCollatorWithPadding(tokenizer),
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model(str(tmp_path / "saved"))
    assert all(torch.equal(before[name], weight) for name, weight in model.elmo.bilm.state_dict().items())
    assert trainer.predict(rows).predictions.argmax(1).tolist() == [0, 0, 0, 1, 1, 1]
    classify = transformers.pipeline("text-classification", model=str(tmp_path / "saved"), device="cpu")
    assert [found["label"] for found in classify([*QUESTIONS, ""])][:6] == ["person"] * 3 + ["place"] * 3
    with pytest.raises(CheckpointError, match=r"tensor encoder\.characters\.embedding is missing"):
        io.load(tmp_path / "saved")


def test_trainer_learns_labels_of_words(bytes_folder, tokenizer, tmp_path):
    model = ElmoForTokenClassification.from_elmokit(bytes_folder, num_labels=3, dropout=0.0)
    sentences = [["Anna", "sat"], ["he", "saw", "Anna"], ["Anna"], ["they", "ran", "to", "Anna", "."]]
    rows = []
    for words in sentences:
        labels = [2 if word == "Anna" else -100 if word == "." else 1 for word in words]
        rows.append({**tokenizer(words, is_split_into_words=True), "labels": labels})
    trainer = transformers.Trainer(
        model,
        make_training(tmp_path / "runs"),
        train_dataset=rows,
        data_collator=transformers.DataCollatorForTokenClassification(tokenizer),
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model(str(tmp_path / "saved"))
    loaded = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path / "saved")
    assert type(loaded) is ElmoForTokenClassification
    logits = read(loaded, tokenizer, sentences).logits
    for words, found in zip(sentences, logits.argmax(2).tolist(), strict=True):
        expected = [2 if word == "Anna" else 1 for word in words if word != "."]
        assert found[: len(expected)] == expected


@pytest.mark.parametrize(
    ("num_labels", "labels"), [(1, [0.5, 2.0]), (3, [2, 0]), (3, [[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]])]
)
def test_sentences_may_have_a_label_several_or_a_number(bytes_folder, tokenizer, num_labels, labels):
    model = ElmoForSequenceClassification.from_elmokit(bytes_folder, num_labels=num_labels)
    batch = tokenizer(["She sat there .", "No"], padding=True, return_tensors="pt")
    out = model(**batch, labels=torch.tensor(labels))
    losses = {
        (1, 1): torch.nn.functional.mse_loss(out.logits[:, 0], torch.tensor([0.5, 2.0])),
        (3, 1): torch.nn.functional.cross_entropy(out.logits, torch.tensor([2, 0])) if num_labels == 3 else None,
        (3, 2): torch.nn.functional.binary_cross_entropy_with_logits(out.logits, torch.tensor(labels))
        if np.ndim(labels) == 2
        else None,
    }
    torch.testing.assert_close(out.loss, losses[num_labels, np.ndim(labels)])
    alone = model(**tokenizer("No", return_tensors="pt")).logits[0]
    torch.testing.assert_close(out.logits[1], alone, atol=TOLERANCE, rtol=1e-5)


# What is refused


def test_files_of_another_kind_are_named(bytes_folder, tmp_path):
    with pytest.raises(CheckpointError, match="expected a folder with a config.json"):
        ElmoModel.from_pretrained(DATA / "allennlp-two-layers")
    with pytest.raises(CheckpointError, match="describes no ELMo model of elmokit"):
        ElmoModel.from_pretrained(DATA / "manylangs-words")
    with pytest.raises(CheckpointError, match="an installed model of elmokit, no folder and no hub id"):
        ElmoModel.from_pretrained("en-small")
    io.save(io.load(bytes_folder), tmp_path / "int8", dtype="int8")
    with pytest.raises(CheckpointError, match="stores int8: read it with from_elmokit"):
        transformers.AutoModel.from_pretrained(tmp_path / "int8")
    io.save(io.load(DATA / "manylangs-words-and-characters"), tmp_path / "unicode")
    with pytest.raises(ConfigError, match="no sentence boundaries"):
        transformers.AutoModel.from_pretrained(tmp_path / "unicode")


def test_ids_of_another_model_are_named(bytes_folder):
    model = ElmoModel.from_elmokit(bytes_folder)
    with pytest.raises(InputError, match=r"expected input_ids of shape \(sentences, words, 50\), found \(1, 7\)"):
        model(torch.ones(1, 7, dtype=torch.long))


def test_copies_by_data_parallel_are_refused(bytes_folder):
    model = ElmoModel.from_elmokit(bytes_folder)
    with pytest.raises(EngineError, match="torchrun"):
        model._replicate_for_data_parallel()


def test_an_unsupported_version_says_which_is_needed(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(__version__="4.40.1"))
    with pytest.raises(MissingExtra, match=r"expected transformers 4.57 or later, found 4.40.1: pip install"):
        reload(adapter)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtra, match=r"pip install 'elmokit\[transformers\]'"):
        reload(adapter)
