import json
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.cli import main
from elmokit.config import ElmoConfig
from elmokit.errors import ConfigError, InputError
from elmokit.model import Elmo
from elmokit.tasks.answer import Answer, AnswerConfig, best_spans, span_loss
from elmokit.tasks.base import load_task
from elmokit.tasks.config import InputConfig, TrainingConfig
from elmokit.tasks.data import Problems
from elmokit.tasks.data.squad import Passage, QuestionExample
from elmokit.tasks.layer_store import TaskElmo
from elmokit.tasks.network.inputs import WordInputs
from elmokit.tasks.train import train_model
from elmokit.text.segmenters import RuleSegmenter

NAMES = ["Ann", "Bob", "Cleo", "Dan", "Eve", "Finn"]
TOWNS = ["Rome", "Oslo", "Lima", "Bonn", "Cork", "Kyiv"]


def examples(count, seed):
    """Who lives where? The answer is the town in the sentence that has the name."""
    draw = random.Random(seed)
    made = []
    for number in range(count):
        names, towns = draw.sample(NAMES, 3), draw.sample(TOWNS, 3)
        text = " ".join(f"{name} lives in {town}." for name, town in zip(names, towns, strict=True))
        passage = Passage.of(text)
        asked = draw.randrange(3)
        span = passage.occurrences(towns[asked])[0]
        question = ["Where", "is", names[asked], "?"]
        made.append(QuestionExample(passage, question, (towns[asked],), (span,), name=str(number), source="made:1"))
    return made


def tiny_model(**settings):
    torch.manual_seed(0)
    config = AnswerConfig(**{"inputs": InputConfig(character_filters=16), "hidden": 16, "dropout": 0.0, **settings})
    return Answer.build(config, [], WordInputs(config.inputs))


def assert_alike(some, others):
    assert len(some) == len(others)
    for one, other in zip(some, others, strict=True):
        assert one == {**other, "probability": pytest.approx(other["probability"], rel=1e-3)}


def with_elmo(place):
    inputs = InputConfig(character_filters=8, elmo="random", elmo_at=place)
    torch.manual_seed(0)
    source = TaskElmo(Elmo.random(ElmoConfig.tiny(), num_mixes=0), "random", travels=True)
    return Answer.build(AnswerConfig(inputs=inputs, hidden=8), [], WordInputs(inputs, elmo=source))


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 7), st.integers(0, 3), st.integers(1, 9), st.integers(0, 2**31))
def test_best_span_is_the_best_of_all(num_words, padding, longest, seed):
    torch.manual_seed(seed)
    start, end = torch.randn(1, num_words + padding), torch.randn(1, num_words + padding)
    mask = torch.arange(num_words + padding).unsqueeze(0) < num_words
    ((first, last),), (probability,) = best_spans(start, end, mask, longest=longest)
    first_P, last_P = (scores[0, :num_words].softmax(0) for scores in (start, end))
    every = {
        (i, j): float(first_P[i] * last_P[j]) for i in range(num_words) for j in range(i, min(num_words, i + longest))
    }
    assert every[first, last] == pytest.approx(max(every.values()), rel=1e-5)
    assert probability == pytest.approx(max(every.values()), rel=1e-4)


def test_loss_adds_up_right_places():
    scores = torch.log(torch.tensor([[0.1, 0.2, 0.3, 0.4], [0.5, 0.5, 9.0, 9.0]]))
    mask = torch.tensor([[True] * 4, [True, True, False, False]])
    loss = span_loss(scores, mask, torch.tensor([0, 0, 1]), torch.tensor([1, 3, 0]))
    assert loss.item() == pytest.approx(-(torch.tensor(0.6).log() + torch.tensor(0.5).log()).item() / 2)


def test_questions_that_share_a_passage_are_answered_as_alone():
    model = tiny_model().eval()
    first, second = examples(2, seed=1)
    other = QuestionExample(first.passage, ["Where", "is", "nobody", "at", "all", "?"])
    together = model.predict([first, second, other, first])
    for example, prediction in zip([first, second, other, first], together, strict=True):
        assert_alike(model.predict([example]), [prediction])
        assert example.passage.text[prediction["start"] : prediction["end"]] == prediction["answer"]


def test_every_place_or_the_marked_ones_count():
    passage = Passage.of("Oslo is Oslo.")
    example = QuestionExample(passage, ["What", "?"], ("Oslo",), ((0, 0),))
    marked, everywhere = tiny_model(places="marked"), tiny_model(places="everywhere")
    start, end, _ = (scores.log_softmax(1) if scores.is_floating_point() else scores for scores in marked([example]))
    assert marked.loss([example]).item() == pytest.approx(-(start[0, 0] + end[0, 0]).item(), rel=1e-4)
    both = -(start[0, [0, 2]].logsumexp(0) + end[0, [0, 2]].logsumexp(0)).item()
    assert everywhere.loss([example]).item() == pytest.approx(both, rel=1e-4)


def test_learns_where_people_live(tmp_path):
    model = tiny_model()
    config = TrainingConfig(epochs=12, patience=12, batch_size=32, learning_rate=2e-2, average=0.5)
    dev = examples(30, seed=3)
    results = train_model(model, examples(192, seed=2), dev, config=config, folder=tmp_path / "answer")
    assert results.dev["f1"] > 0.75, results.history  # 1 of 3 towns by chance
    loaded = load_task(tmp_path / "answer", device="cpu")
    assert_alike(loaded.predict_all(dev[:8]), model.predict_all(dev[:8]))
    text = dev[0].passage.text
    typed = loaded.example_of(text, f"Where is {text.split()[0]}?", segmenter=RuleSegmenter())
    (prediction,) = loaded.predict([typed])
    assert prediction["answer"] in loaded.show(typed, prediction)
    json.dumps(prediction)


@pytest.mark.parametrize("place", ["input", "output", "both"])
def test_elmo_reads_passages_sentence_by_sentence(place, tmp_path):
    model = with_elmo(place)
    train = examples(6, seed=4)
    config = TrainingConfig(epochs=1, batch_size=3)
    results = train_model(model, train, train, config=config, layers_folder=tmp_path, folder=tmp_path / "m")
    assert set(results.mixes) == ({"input", "output"} if place == "both" else {place})
    assert [example.question in model.inputs.store for example in train] == [True] * len(train)
    stored = model.predict_all(train)
    model.inputs.store = None
    assert_alike(model.predict_all(train), stored)


def test_files_and_their_limits(tmp_path):
    path = tmp_path / "squad.json"
    question = {"id": "7", "question": "Who?", "answers": [{"text": "Ann", "answer_start": 0}]}
    unanswered = {"id": "8", "question": "Who?"}
    path.write_text(
        json.dumps({"data": [{"paragraphs": [{"context": "Ann lives in Rome.", "qas": [question, unanswered]}]}]})
    )
    model = tiny_model()
    found = list(Answer.read(path, config=model.config, problems=Problems()))
    assert [model.complaint(example) for example in found] == [None, "question 8 has no answer"]
    short = AnswerConfig(inputs=model.config.inputs, longest_passage=4)
    with pytest.raises(InputError, match=r"qas\[0\]: the passage has 5 words, but only 4 are read at once"):
        list(Answer.read(path, config=short, problems=Problems()))
    problems = Problems(skips=True)
    assert list(Answer.read(path, config=short, problems=problems)) == []
    assert problems.num_bad == 2
    with pytest.raises(InputError, match="5 words"):
        tiny_model(longest_passage=4).example_of("Ann lives in Rome.", "Who?", segmenter=RuleSegmenter())


def test_from_files_to_a_model(tmp_path, capsys):
    path = tmp_path / "squad.json"
    found = examples(4, seed=5)
    entries = [
        {
            "context": example.passage.text,
            "qas": [
                {
                    "id": example.name,
                    "question": " ".join(example.question),
                    "answers": [
                        {"text": example.answers[0], "answer_start": example.passage.text.find(example.answers[0])}
                    ],
                }
            ],
        }
        for example in found
    ]
    entries[0]["qas"][0]["answers"][0]["answer_start"] += 1
    path.write_text(json.dumps({"data": [{"paragraphs": entries}]}))
    arguments = ["answer", "--train", str(path), "--dev", str(path), "-o", str(tmp_path / "out"), "--epochs", "1"]
    own = ["--set", "hidden=4", "--set", "places=marked"]
    assert main(["task", "train", *arguments, *own]) == 2
    assert "data[0].paragraphs[0].qas[0]: the answer" in capsys.readouterr().err
    assert main(["task", "train", *arguments, *own, "--skip-bad"]) == 0
    model = load_task(tmp_path / "out", device="cpu")
    assert (model.config.hidden, model.config.places, model.config.inputs.elmo_at) == (4, "marked", "both")
    assert json.loads((tmp_path / "out" / "results.json").read_text())["num_train"] == 3


@pytest.mark.parametrize(("texts", "lacks"), [((" ", "Who?"), "passage"), (("Ann.", ""), "question")])
def test_typed_text_without_words(texts, lacks):
    with pytest.raises(InputError, match=f"expected a {lacks}, found no words"):
        tiny_model().example_of(*texts, segmenter=RuleSegmenter())


@pytest.mark.parametrize("wrong", [{"hidden": 0}, {"longest_answer": 0}, {"dropout": 1.0}, {"places": "nowhere"}])
def test_settings_that_cannot_be(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        AnswerConfig(**wrong)
