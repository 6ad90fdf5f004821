import json
import logging
import random

import pytest
import torch

from elmokit.errors import ConfigError
from elmokit.tasks.base import load_task
from elmokit.tasks.config import InputConfig
from elmokit.tasks.coref import Coref, CorefConfig, _Chosen
from elmokit.tasks.data import Problems
from elmokit.tasks.data.conll_coref import CorefExample, cut
from elmokit.tasks.network.inputs import WordInputs
from elmokit.text.segmenters import RuleSegmenter

NAMES = {"Ann": "she", "Bob": "he", "Rex": "it"}


def documents(count, seed, *, single=True):
    """`Ann saw the cup . Then she ran .`: a pronoun means the one name that fits; the cup is alone."""
    draw = random.Random(seed)
    made = []
    for _ in range(count):
        sentences, clusters, place = [], {}, 0
        for name in draw.sample(sorted(NAMES), 2):
            sentences += [(name, "saw", "the", "cup", "."), ("Then", NAMES[name], "ran", ".")]
            clusters[name] = ((place, place), (place + 6, place + 6))
            if single:
                clusters[place] = ((place + 2, place + 3),)
            place += 9
        made.append(
            CorefExample(
                sentences=tuple(sentences), clusters=tuple(clusters.values()), marks_single=single, source="x:1"
            )
        )
    return made


def tiny_model(train, **settings):
    torch.manual_seed(0)
    small = {"hidden": 16, "span_dim": 24, "max_width": 3, "spans_a_word": 0.5, "num_antecedents": 8, "dropout": 0.0}
    config = CorefConfig(**{"inputs": InputConfig(character_filters=16), **small, **settings})
    return Coref.build(config, train, WordInputs(config.inputs))


@pytest.fixture(scope="module")
def trained(train_tiny):
    train = documents(16, 0)
    return train_tiny(tiny_model(train), train, documents(4, 1), epochs=8, batch_size=2, learning_rate=0.02)


def test_learns_mentions_and_their_links(trained):
    _, results, _, _ = trained
    assert results.dev["conll_f1"] > 0.9
    assert results.dev["mentions_f1"] > 0.9


def test_a_saved_model_says_the_same(trained):
    _, results, folder, dev = trained
    loaded = load_task(folder, device="cpu")
    assert isinstance(loaded, Coref)
    assert loaded.keeps_single
    assert loaded.evaluate(dev) == results.dev


def test_typed_documents(trained):
    model, *_ = trained
    document = model.example_of("Ann saw the cup . Then she ran .", segmenter=RuleSegmenter())
    (said,) = model.predict_all([document])
    assert [[0, 0], [6, 6]] in said["clusters"]
    assert [[2, 3]] in said["clusters"]
    assert model.show(document, said) == "Ann (word 1) = she (word 7)"
    assert json.loads(json.dumps(said)) == said


def test_a_document_without_words_has_no_clusters(trained):
    model, *_ = trained
    empty = model.example_of("  ", segmenter=RuleSegmenter())
    (said,) = model.predict_all([empty])
    assert said == {"clusters": []}
    assert model.show(empty, said) == "no two mentions that mean the same found"


def test_a_long_document_is_read_in_parts_and_says_so(trained, caplog):
    model, *_ = trained
    whole, other = documents(2, 5)
    long = CorefExample(sentences=whole.sentences + other.sentences, name="long")
    joined = tiny_model([whole], max_words=18)
    joined.load_state_dict(model.state_dict())
    joined.keeps_single = True
    with caplog.at_level(logging.WARNING):
        (said,) = joined.predict_all([long])
    assert "long: 36 words, more than the 18 that are read at once: read in 2 parts" in caplog.text
    caplog.clear()
    assert joined.predict_all([long]) == [said]
    assert not caplog.text  # said once
    first, second = model.predict_all([whole, other])
    shifted = [[[18 + word for word in mention] for mention in cluster] for cluster in second["clusters"]]
    assert said["clusters"] == first["clusters"] + shifted


def test_parts_keep_their_mentions_and_lose_what_is_cut():
    document = CorefExample(
        sentences=(("a", "b", "c"), ("d",), ("e", "f")), clusters=(((0, 0), (4, 4)), ((1, 2), (5, 5)), ((3, 3),))
    )
    parts = cut(document, 2)
    assert [(start, part.sentences) for start, part in parts] == [
        (0, (("a", "b"),)),
        (2, (("c",), ("d",))),
        (4, (("e", "f"),)),
    ]
    assert [part.clusters for _, part in parts] == [(((0, 0),),), (((1, 1),),), (((0, 0),), ((1, 1),))]
    assert cut(CorefExample(sentences=(("a",), ("b",))), 1)[1][1].clusters is None


def test_sentences_are_those_that_are_read():
    model = tiny_model(documents(1, 0), max_words=3)
    document = CorefExample(sentences=(("a", "b", "c", "d"), ("e",)))
    assert model.sentences(document) == [["a", "b", "c"], ["d"], ["e"]]
    seen = []
    model.inputs.forward = lambda sentences, forward=model.inputs.forward: seen.extend(sentences) or forward(sentences)
    model.predict_all([document])
    assert seen == model.sentences(document)


def test_learns_from_parts(tmp_path):
    lines = ["#begin document (a)"]
    for words in (("Ann", "ran"), ("She", "fell")):
        lines += [f"a 0 0 {word} {'(1)' if word in ('Ann', 'She') else '-'}" for word in words] + [""]
    path = tmp_path / "a.conll"
    path.write_text("\n".join(lines))
    parts = list(Coref.read_train(path, config=CorefConfig(train_words=2), problems=Problems()))
    assert [part.sentences for part in parts] == [(("Ann", "ran"),), (("She", "fell"),)]
    # A mention whose other half stands in another part does not mean that the data marks single ones.
    assert not Coref.build(CorefConfig(), parts, WordInputs(CorefConfig().inputs)).keeps_single
    (whole,) = Coref.read(path, config=CorefConfig(train_words=2), problems=Problems())
    assert whole.clusters == (((0, 0), (2, 2)),)


def test_single_mentions_are_left_out_where_the_data_has_none():
    model = tiny_model(documents(2, 0, single=False))
    assert not model.keeps_single
    torch.nn.init.constant_(model.spans.score[-1].bias, 5.0)  # everything is a mention
    torch.nn.init.constant_(model.antecedents.score[-1].bias, -50.0)  # and nothing is linked
    document = documents(1, 0)[0]
    assert model.predict_all([document])[0]["clusters"] == []
    model.keeps_single = True
    assert len(model.predict_all([document])[0]["clusters"]) == 9


def test_the_loss_sums_over_all_right_antecedents():
    """Three mentions of one entity, one of none: probabilities by hand."""
    scores = torch.tensor([[-torch.inf, -torch.inf], [1.0, -torch.inf], [2.0, 0.5], [3.0, 0.0]])
    places = torch.tensor([[0, 1], [0, 1], [1, 0], [2, 0]])
    chosen = _Chosen([(0, 0), (1, 1), (2, 2), (3, 3)], torch.zeros(4), scores, places)
    e = torch.tensor([1.0, 2.0, 0.5, 3.0]).exp()
    expected = -torch.log(e[0] / (1 + e[0]))
    expected -= torch.log((e[1] + e[2]) / (1 + e[1] + e[2]))
    expected -= torch.log(1 / (1 + e[3] + 1))
    torch.testing.assert_close(chosen.loss({(0, 0): 7, (1, 1): 7, (2, 2): 7}), expected)


def test_mentions_wider_than_spans_are_only_missed():
    train = [CorefExample(sentences=(("a", "b", "c", "d"),), clusters=(((0, 3),), ((1, 1),)), source="x:1")]
    model = tiny_model(train)
    loss = model.loss(train)
    loss.backward()
    assert loss.isfinite()
    gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
    assert gradients and all(gradient.isfinite().all() for gradient in gradients)


def test_elmo_at_input_and_output_learns_its_mixes(task_elmo):
    train = documents(2, 0)
    inputs = InputConfig(elmo="random", elmo_at="both", elmo_dropout=0.0)
    torch.manual_seed(0)
    config = CorefConfig(inputs=inputs, hidden=4, span_dim=6, max_width=2)
    model = Coref.build(config, train, WordInputs(inputs, elmo=task_elmo))
    model.loss(train).backward()
    assert model.inputs.input_mix.weights.grad.abs().sum() > 0
    assert model.inputs.output_mix.weights.grad.abs().sum() > 0


@pytest.mark.parametrize("wrong", [{"max_words": 0}, {"spans_a_word": 0}, {"dropout": -0.1}])
def test_settings_that_cannot_be_built(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        CorefConfig(**wrong)
