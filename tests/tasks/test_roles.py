import itertools
import json
import random

import pytest
import torch

from elmokit.errors import ConfigError, InputError
from elmokit.tasks.base import load_task
from elmokit.tasks.config import InputConfig
from elmokit.tasks.data import Problems
from elmokit.tasks.data.propbank import Frame, RolesExample
from elmokit.tasks.network.crf import viterbi
from elmokit.tasks.network.inputs import WordInputs
from elmokit.tasks.roles import HighwayBiLstm, Roles, RolesConfig, score_transitions
from elmokit.text.segmenters import RuleSegmenter

NOUNS = ["dog", "cat", "man", "bird"]


def examples(count, seed):
    """`the dog saw the cat yesterday`, some with a second verb: roles stand left and right of their predicate."""
    draw = random.Random(seed)
    made = []
    for _ in range(count):
        words, frames = ["the", draw.choice(NOUNS)], []
        for _ in range(draw.choice([1, 2])):
            start = len(words)
            words += [draw.choice(["saw", "bit"]), "the", draw.choice(NOUNS)]
            frames.append(start)
        words += [draw.choice(["today", "twice"])]
        tagged = []
        for predicate in frames:
            tags = ["O"] * len(words)
            tags[predicate - 2 : predicate + 3] = ["B-ARG0", "I-ARG0", "B-V", "B-ARG1", "I-ARG1"]
            tagged.append(Frame(predicate, tuple(tags)))
        made.append(RolesExample(words=tuple(words), frames=tuple(tagged), source="made:1"))
    return made


def tiny_model(train, **settings):
    torch.manual_seed(0)
    small = {"hidden": 16, "num_layers": 2, "indicator_dim": 4, "detector_hidden": 8, "dropout": 0.0}
    config = RolesConfig(**{"inputs": InputConfig(character_filters=16), **small, **settings})
    return Roles.build(config, train, WordInputs(config.inputs))


@pytest.fixture(scope="module")
def trained(train_tiny):
    train = examples(40, 0)
    return train_tiny(tiny_model(train), train, examples(8, 1), epochs=8, batch_size=5, learning_rate=0.03)


def test_learns_roles_and_predicates(trained):
    _, results, _, _ = trained
    assert results.dev["f1"] > 0.95
    assert results.dev["predicate_f1"] > 0.95


def test_a_saved_model_says_the_same(trained):
    model, results, folder, dev = trained
    loaded = load_task(folder, device="cpu")
    assert loaded.evaluate(dev) == results.dev
    assert loaded.predict_all(dev) == model.predict_all(dev)
    assert json.loads((folder / "extra.json").read_text())["tags"][0] == "O"


def test_typed_text_needs_no_predicates(trained):
    model, *_ = trained
    example = model.example_of("the dog bit the man today", segmenter=RuleSegmenter())
    assert example.frames is None
    (said,) = model.predict_all([example])
    assert said["predicates"] == [2]
    assert said["frames"] == [{"predicate": 2, "tags": ["B-ARG0", "I-ARG0", "B-V", "B-ARG1", "I-ARG1", "O"]}]
    assert model.show(example, said) == "bit: ARG0 [the dog] ARG1 [the man]"
    assert json.loads(json.dumps(said)) == said


def test_text_without_words_or_predicates_has_no_roles(trained):
    model, *_ = trained
    empty = model.example_of("", segmenter=RuleSegmenter())
    said = model.predict_all([empty, RolesExample(words=("dog",))])
    assert [prediction["frames"] for prediction in said] == [[], []]
    assert model.show(empty, said[0]) == "no predicate found"


def test_predictions_do_not_depend_on_company(trained):
    model, _, _, dev = trained
    together = model.predict_all(dev)
    assert [model.predict_all([example])[0] for example in dev] == together


def test_gold_tags_are_not_looked_at(trained):
    model, _, _, dev = trained
    blank = [
        RolesExample(words=one.words, frames=tuple(Frame(f.predicate, ("O",) * len(one.words)) for f in one.frames))
        for one in dev
    ]
    assert model.predict_all(blank) == model.predict_all(dev)


def test_show_joins_what_is_continued(trained):
    model, *_ = trained
    tags = ["B-ARG1", "B-V", "B-C-ARG1", "O"]
    said = {"words": ["This", "is", "so", "."], "predicates": [], "frames": [{"predicate": 1, "tags": tags}]}
    assert model.show(None, said) == "is: ARG1 [This … so]"
    said["frames"][0]["tags"] = ["O", "B-V", "O", "O"]
    assert model.show(None, said) == "is: no roles"


def test_a_role_never_seen_is_a_complaint():
    model = tiny_model(examples(4, 0))
    strange = RolesExample(words=("a", "b"), frames=(Frame(0, ("B-V", "B-ARG9")),), source="file:7")
    with pytest.raises(InputError, match="file:7: the role ARG9 of predicate 0 does not occur in the training data"):
        model.usable([strange], Problems())
    assert model.usable([strange], Problems(skips=True)) == []
    assert model.usable([RolesExample(words=("a",))], Problems()) != []


def test_the_size_counts_every_reading():
    model = tiny_model(examples(4, 0))
    frame = Frame(0, ("B-V", "O"))
    assert model.size(RolesExample(words=("a", "b"), frames=(frame, Frame(1, frame.tags)))) == 4
    assert model.size(RolesExample(words=("a", "b"))) == 2


def test_a_batch_without_predicates_still_teaches_the_detector():
    model = tiny_model(examples(4, 0))
    model.loss([RolesExample(words=("a", "b"), frames=())]).backward()
    taught = {
        name.split(".")[0] for name, weight in model.named_parameters() if weight.grad is not None and weight.grad.any()
    }
    assert {"detector", "detector_output"} <= taught


def test_elmo_at_input_and_output_learns_its_mixes(task_elmo):
    train = examples(6, 0)
    inputs = InputConfig(elmo="random", elmo_at="both", elmo_dropout=0.0)
    torch.manual_seed(0)
    config = RolesConfig(inputs=inputs, hidden=4, num_layers=1, indicator_dim=2, detector_hidden=4)
    model = Roles.build(config, train, WordInputs(inputs, elmo=task_elmo))
    model.loss(train).backward()
    assert model.inputs.input_mix.weights.grad.abs().sum() > 0
    assert model.inputs.output_mix.weights.grad.abs().sum() > 0
    assert len(model.predict_all(train)) == 6


def test_reads_json_lines(tmp_path):
    path = tmp_path / "roles.jsonl"
    path.write_text('{"words": ["Dogs", "bark"], "predicate": 1, "tags": ["B-ARG0", "B-V"]}\n')
    (example,) = Roles.read(path, config=RolesConfig(), problems=Problems())
    assert example.frames == (Frame(1, ("B-ARG0", "B-V")),)


@pytest.mark.parametrize("wrong", [{"hidden": 0}, {"num_layers": 0}, {"dropout": 1.0}])
def test_settings_that_cannot_be_built(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        RolesConfig(**wrong)


def test_viterbi_finds_the_best_well_formed_tags():
    tags = ["O", "B-A", "I-A", "B-B", "I-B"]
    start, follow = score_transitions(tags)
    may_start, may_follow = start == 0, follow == 0
    torch.manual_seed(0)
    scores, lengths = torch.randn(6, 4, 5).log_softmax(-1), [4, 4, 3, 2, 1, 4]
    for row, (path, length) in enumerate(zip(viterbi(scores, lengths, start, follow), lengths, strict=True)):
        allowed = [
            way
            for way in itertools.product(range(5), repeat=length)
            if may_start[way[0]] and all(may_follow[one, other] for one, other in itertools.pairwise(way))
        ]
        best = max(allowed, key=lambda way: sum(scores[row, place, tag].item() for place, tag in enumerate(way)))
        assert path == list(best)


def test_inside_follows_only_its_own_role():
    may_start, may_follow = (scores == 0 for scores in score_transitions(["O", "B-A", "I-A", "B-C-A", "I-C-A"]))
    assert may_start.tolist() == [True, True, False, True, False]
    assert may_follow[:, 2].tolist() == [False, True, True, False, False]
    assert may_follow[:, 4].tolist() == [False, False, False, True, True]


def test_highways_carry_the_input_past_a_closed_gate():
    module = HighwayBiLstm(6, 3, num_layers=1, dropout=0.0)
    torch.nn.init.constant_(module.gates[0].bias, -100.0)
    words = torch.randn(2, 4, 6)
    torch.testing.assert_close(module(words, [4, 2]), module.carries[0](words))


def test_a_row_does_not_depend_on_its_company():
    torch.manual_seed(0)
    module = HighwayBiLstm(5, 3, num_layers=3, dropout=0.5).eval()
    words = torch.randn(2, 6, 5)
    torch.testing.assert_close(module(words, [6, 3])[1, :3], module(words[1:, :3], [3])[0])
