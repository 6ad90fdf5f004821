"""Mixes that tasks have learned, and nearest words by spelling and in context."""

from __future__ import annotations

import dataclasses
import json

import pytest

from elmokit import InputError, io
from elmokit.probe.weights import LearnedMix, compare_weights, read_mixes
from elmokit.probe.words import model_vocabulary, nearest_uses, nearest_words


def write_results(path, task="tag", name="input", **changes) -> None:
    mix = {"weights": [0.2, 0.5, 0.3], "gamma": 1.5, **changes}
    path.write_text(json.dumps({"task": task, "mixes": {name: mix}}), encoding="utf-8")


def test_runs_of_a_task_are_averaged(tmp_path):
    write_results(tmp_path / "1.json")
    write_results(tmp_path / "2.json", weights=[0.4, 0.3, 0.3], gamma=0.5)
    write_results(tmp_path / "3.json", task="answer", name="output")
    report = compare_weights([mix for name in "123" for mix in read_mixes(tmp_path / f"{name}.json")])
    assert list(report.rows) == ["answer, output", "tag, input"]
    assert report.rows["tag, input"] == pytest.approx({"layer 0": 0.3, "layer 1": 0.4, "layer 2": 0.3, "γ": 1.0})
    assert report.facts["runs"] == {"answer, output": 1, "tag, input": 2}
    assert report.facts["spread"]["tag, input"][:1] == pytest.approx([0.141421])
    assert report.notes == ["tag, input: mean of 2 runs, whose standard deviation is up to 0.141"]


def test_records_of_older_versions_are_read(tmp_path):
    """They call the weights shares, as the files of docs/results do."""
    (tmp_path / "old.json").write_text('{"task": "tag", "mixes": {"input": {"shares": [0.25, 0.75], "gamma": 1}}}')
    assert read_mixes(tmp_path / "old.json") == [LearnedMix("tag", "input", (0.25, 0.75), 1.0)]


def test_tasks_can_be_renamed(tmp_path):
    results = {"task": "tag", "mixes": {"input": {"weights": [0.5, 0.5], "gamma": 1}}}
    (tmp_path / "results.json").write_text(json.dumps(results), encoding="utf-8")
    assert read_mixes(tmp_path / "results.json", task="NER") == [LearnedMix("NER", "input", (0.5, 0.5), 1.0)]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "expected JSON"),
        ('{"mixes": {}}', 'expected "task", a name'),
        ('{"task": "tag", "mixes": [3]}', 'expected "task", a name'),
        ('{"task": "tag", "mixes": {"input": 3}}', 'expected a mix with "weights"'),
        ('{"task": "tag", "mixes": {"input": {"weights": [0.2, 0.2], "gamma": 1}}}', "that sum to 1"),
        ('{"task": "tag", "mixes": {"input": {"weights": [], "gamma": 1}}}', "that sum to 1"),
    ],
)
def test_bad_results_are_refused(text, complaint, tmp_path):
    (tmp_path / "results.json").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=complaint):
        read_mixes(tmp_path / "results.json")


def test_missing_and_unlike_results_are_refused(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_mixes(tmp_path / "results.json")
    with pytest.raises(InputError, match="none of the runs"):
        compare_weights([])
    with pytest.raises(InputError, match="2 and 3 layers"):
        compare_weights([LearnedMix("a", "input", (0.5, 0.5), 1), LearnedMix("a", "input", (0.5, 0.25, 0.25), 1)])


def test_words_with_like_spelling_are_near(elmo_source):
    vocabulary = ["dog", "Dogs", "dogs", "telephone", "zygote"]
    parts = ("tele", "zygo", "do", "ba", "riv", "phone", "te", "g", "nks", "s")
    usual = [first + last for first in parts for last in parts]
    found = nearest_words(elmo_source.embedder, ["dogs", "dogsx"], vocabulary, top=2, usual=usual)
    assert found["dogs"][0].word == "dog"  # "Dogs" and "dogs" are the word itself
    assert {near.word for near in found["dogsx"]} <= {"dog", "dogs", "Dogs"}
    assert found["dogsx"][0].cosine > found["dogsx"][1].cosine
    with pytest.raises(InputError, match="found none"):
        nearest_words(elmo_source.embedder, ["dog"], [])


def test_the_vocabulary_is_that_of_the_output_layer(random_model, tmp_path):
    import torch

    assert model_vocabulary(str(random_model)) == []
    words = ["<S>", "</S>", "<UNK>", "the", "bank"]
    softmax = {"softmax.weight": torch.zeros(5, 64), "softmax.bias": torch.zeros(5)}
    io.save(dataclasses.replace(io.load(random_model), softmax=softmax, output_words=words), tmp_path / "with-words")
    assert model_vocabulary(str(tmp_path / "with-words")) == ["the", "bank"]


def test_uses_in_context_pass_over_the_sentence_itself(elmo_source, tmp_path):
    asked = ["the", "river", "bank", "."]
    text = [asked, ["the", "river", "bank", "!"], ["my", "bank", "lends"]]
    found = nearest_uses(elmo_source.embedder, asked, 2, text, folder=tmp_path, top=2)
    assert list(found) == [mix.name for mix in elmo_source.mixes]
    for uses in found.values():
        assert (uses[0].words, uses[0].place) == (text[1], 2)
    assert [use.cosine for use in found["layer 0 (characters)"]] == pytest.approx([1, 1], abs=1e-3)
    assert found["layer 2"][1].cosine < found["layer 2"][0].cosine
    with pytest.raises(InputError, match="other sentences to search"):
        nearest_uses(elmo_source.embedder, asked, 2, [asked], folder=tmp_path)
