"""Training as a whole: it learns, what it saves is what it measured, and it refuses what would go wrong."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections import Counter

import pytest
import torch

from elmokit import Elmo, Embedder, LanguageModel, io
from elmokit.config import ElmoConfig
from elmokit.errors import CheckpointError, ConfigError, InputError, MissingExtra, OutputError, TrainingError
from elmokit.pretrain.corpus.encoded import EncodedCorpus
from elmokit.pretrain.corpus.encoding import encode_corpus
from elmokit.pretrain.journal import RateGuard
from elmokit.pretrain.network import build_network, keyed_dropout
from elmokit.pretrain.optim.optimiser import BILM_TF_LOSS_SCALE, Optimiser
from elmokit.pretrain.recipes import RECIPES, TrainConfig, recipe_named
from elmokit.pretrain.saving import Checkpoints
from elmokit.pretrain.start import choose_start
from elmokit.pretrain.stepping import PlainStepper
from elmokit.pretrain.train import train


def unigram_entropy(path) -> float:
    """Of words and sentence ends, in nats: the loss of who knows nothing but frequencies."""
    words = [word for line in path.read_text().splitlines() for word in [*line.split(), "</S>"]]
    return -sum(n / len(words) * math.log(n / len(words)) for n in Counter(words).values())


@pytest.mark.parametrize(
    "changes",
    [
        {"output": "full"},
        {"mode": "streams"},
        {"output": "sampled", "num_negatives": 16},
        {"input": "words"},
        {"optimiser": "adamw"},
    ],
    ids=lambda changes: next(iter(changes.values())),
)
def test_it_learns_and_the_saved_model_predicts_as_well_as_training_said(changes, texts, tiny, tmp_path, losses):
    text, held_out = texts
    speeds = {"tokens_per_batch": 80, "learning_rate": 5e-2, "muon_learning_rate": 1e-1}
    config = tiny(tokens=5_000, evaluate_every=2_500, min_count=2, **speeds, **changes)
    assert train([text], tmp_path / "model", config, held_out=[held_out], tokenised=True, workers=1)
    *_, first, last = (line for line in losses(tmp_path / "model") if line["kind"] == "held-out")
    assert last["mean"] < first["mean"]
    assert math.log(last["mean"]) < 0.85 * unigram_entropy(held_out)

    lines = [line.split() for line in held_out.read_text().splitlines()]
    result = LanguageModel.from_pretrained(tmp_path / "model").perplexity(lines)
    assert result.forward == pytest.approx(last["forward"], rel=1e-4)
    assert result.backward == pytest.approx(last["backward"], rel=1e-4)
    assert result.tokens == sum(len(words) + 1 for words in lines)
    vectors = Embedder.from_pretrained(tmp_path / "model").embed([["ash", "bay", "unseen"]])
    assert vectors[0].shape == (3, 2 * config.model.lstm.projection_dim)
    elmo = Elmo.from_pretrained(tmp_path / "model")
    assert elmo(elmo.word_ids([["ash", "bay"]])).mixes[0].shape == (1, 2, vectors[0].shape[1])


def test_unicode_characters_train_on_any_script(tiny, tmp_path, losses):
    text = tmp_path / "text.txt"
    text.write_text("나는 학교에 간다 .\n너는 집에 온다 .\n나는 집에 간다 .\n" * 30, encoding="utf-8")
    config = tiny(tokens=2_000)
    characters = dataclasses.replace(config.model.characters, scheme="unicode", num_symbols=14)
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, characters=characters))
    train([text], tmp_path / "model", config, held_out=[text], tokenised=True, workers=1)
    checkpoint = io.load(tmp_path / "model")
    assert checkpoint.alphabet is not None and len(checkpoint.alphabet) == 14
    result = LanguageModel.from_pretrained(tmp_path / "model").perplexity(
        [line.split() for line in text.read_text().splitlines()]
    )
    assert result.mean == pytest.approx(losses(tmp_path / "model")[-1]["mean"], rel=1e-4)


def test_raw_text_is_segmented(tiny, tmp_path, capsys):
    (tmp_path / "text.txt").write_text("The cat sat. The dog ran! It is late.\n" * 40, encoding="utf-8")
    train([tmp_path / "text.txt"], tmp_path / "model", tiny(tokens=300), workers=1)
    said = capsys.readouterr().out
    assert "480 words in 120 sentences" in said
    assert (
        "parameters" in said
        and "computes    on cpu with torch (float32 on cpu; C++: computes no gradients)" in said
        and f"--model {tmp_path / 'model'}" in said
    )
    assert LanguageModel.from_pretrained(tmp_path / "model").predict("The cat", top=1)


def test_a_step_that_is_mostly_muon_says_what_is_faster(tiny, tmp_path, capsys):
    (tmp_path / "text.txt").write_text("The cat sat. The dog ran! It is late.\n" * 40, encoding="utf-8")
    config = tiny(tokens=8, tokens_per_batch=4)
    lstm = dataclasses.replace(config.model.lstm, cell_dim=256, projection_dim=128)
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, lstm=lstm))
    for optimiser, is_told in (("muon", True), ("adamw", False)):
        train(
            [tmp_path / "text.txt"], tmp_path / optimiser, dataclasses.replace(config, optimiser=optimiser), workers=1
        )
        assert ("on a CPU --optimiser adamw --learning-rate 3e-4" in capsys.readouterr().out) == is_told


def test_the_network_may_be_stopped_and_a_finished_run_says_so(texts, tiny, tmp_path, capsys):
    arguments = [texts[0]], tmp_path / "model", tiny()
    assert train(*arguments, tokenised=True, workers=1, minutes=0) is None
    assert "the same command continues it" in capsys.readouterr().out
    assert not (tmp_path / "model").exists()
    assert train(*arguments, tokenised=True, workers=1) == tmp_path / "model"
    assert "continues   from its checkpoint" in capsys.readouterr().out
    weights = (tmp_path / "model" / "model.safetensors").read_bytes()
    assert train(*arguments, tokenised=True, workers=1) == tmp_path / "model"
    assert "this run is finished" in capsys.readouterr().out
    assert (tmp_path / "model" / "model.safetensors").read_bytes() == weights


def test_stopping_and_going_on_changes_no_loss(texts, tiny, tmp_path, losses):
    for name in ("whole", "stopped"):
        while (
            train(
                [texts[0]], tmp_path / name, tiny(), tokenised=True, workers=1, minutes=0 if name == "stopped" else None
            )
            is None
        ):
            pass  # one step per call
    assert losses(tmp_path / "stopped") == losses(tmp_path / "whole")


def test_a_sampled_softmax_gives_way_to_the_full_one(texts, tiny, tmp_path, losses, capsys):
    switching = tiny(output="sampled", num_negatives=8, full_after=0.5)
    runs = {
        "whole": (switching, None),
        "stopped": (switching, 0),
        "sampled": (tiny(output="sampled", num_negatives=8), None),
    }
    for name, (config, minutes) in runs.items():
        while train([texts[0]], tmp_path / name, config, tokenised=True, workers=1, minutes=minutes) is None:
            pass  # one step per call
    assert capsys.readouterr().out.count("softmax     full from here on") >= 2
    whole, stopped, sampled = (losses(tmp_path / name) for name in runs)
    assert stopped == whole
    before, after = ([line["tokens"] > 2_000 for line in run].index(True) for run in (whole, sampled))
    assert whole[: before - 1] == sampled[: after - 1] and before > 3
    # Eight negatives leave fewer words to be wrong about than all words do.
    assert min(line["loss"] for line in whole[before + 1 :]) > max(line["loss"] for line in sampled[after + 1 :])


def test_a_run_goes_on_with_its_settings_and_its_text(texts, tiny, tmp_path, losses, capsys):
    text, held_out = texts
    options = {"tokenised": True, "workers": 1, "minutes": 0}
    train([text], tmp_path / "model", tiny(), **options)
    with pytest.raises(ConfigError, match=r"other settings: --dropout was 0.1, now 0.2;"):
        train([text], tmp_path / "model", tiny(dropout=0.2), **options)
    with pytest.raises(ConfigError, match=r"was made from text.txt .* but now held-out.txt"):
        train([held_out], tmp_path / "model", tiny(), **options)
    capsys.readouterr()
    others = tiny(learning_rate=1e-3, tokens=500)  # how fast and how long may change
    train([text], tmp_path / "model", others, tokenised=True, workers=1)
    said = capsys.readouterr().out
    assert f"changed     --learning-rate was {tiny().learning_rate}, now 0.001; --tokens was" in said
    first = losses(tmp_path / "model")[0]
    assert (first["kind"], first["step"], first["changed"]) == ("settings", 1, {"learning_rate": 1e-3, "tokens": 500})
    assert first["tokens"] < 500  # the words seen


def test_a_run_goes_on_with_its_text_as_it_was_and_as_it_was_read(texts, tiny, tmp_path):
    text = tmp_path / "text.txt"
    text.write_bytes(texts[0].read_bytes())
    options = {"workers": 1, "minutes": 0}
    train([text], tmp_path / "model", tiny(), tokenised=True, **options)
    with pytest.raises(ConfigError, match="was encoded with segmenter spaces, but now RuleSegmenter is asked for"):
        train([text], tmp_path / "model", tiny(), **options)
    text.write_bytes(texts[0].read_bytes().replace(b"elm", b"ELM"))
    with pytest.raises(ConfigError, match=r"was made from text.txt \(.* bytes, hash .*\), but now text.txt \("):
        train([text], tmp_path / "model", tiny(), tokenised=True, **options)


def test_a_vocabulary_without_words_and_a_time_below_zero_are_refused(texts, tiny, tmp_path):
    options = {"tokenised": True, "workers": 1}
    with pytest.raises(InputError, match="no word of the text occurs 99,999 times or more: .* a smaller --min-count"):
        train([texts[0]], tmp_path / "model", tiny(min_count=99_999), **options)
    with pytest.raises(ConfigError, match="minutes is -1: expected a number of 0 or more"):
        train([texts[0]], tmp_path / "model", tiny(), minutes=-1, **options)
    assert list(tmp_path.iterdir()) == []


def test_settings_bind_nobody_until_the_text_is_encoded(texts, tiny, tmp_path, monkeypatch):
    folder = tmp_path / "model.training"

    def killed(*arguments, **options):
        assert not (folder / "training.json").exists()
        (folder / ".corpus.0123abcd.partial" / "scratch").mkdir(parents=True)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("elmokit.pretrain.folder.encode_corpus", killed)
        train([texts[0]], tmp_path / "model", tiny(), tokenised=True, workers=1)
    held = folder / ".held-out.0123abcd.partial"
    held.mkdir()
    train([texts[0]], tmp_path / "model", tiny(vocabulary_size=50), tokenised=True, workers=1, minutes=0)
    assert sorted(os.listdir(folder)) == ["checkpoints", "corpus", "training.json"]
    (folder / "training.json").unlink()  # as after a kill just before it was written
    with pytest.raises(ConfigError, match="was encoded with vocabulary_size 50, but now 100 is asked for"):
        train([texts[0]], tmp_path / "model", tiny(), tokenised=True, workers=1)


def test_a_model_half_saved_by_a_killed_run_is_swept(texts, tiny, tmp_path):
    (tmp_path / ".model.0123abcd.partial").mkdir()
    (tmp_path / ".model.not-ours.partial").mkdir()
    train([texts[0]], tmp_path / "model", tiny(tokens=400), tokenised=True, workers=1)
    assert sorted(os.listdir(tmp_path)) == [".model.not-ours.partial", "model", "model.training"]


def test_an_existing_folder_is_not_touched(texts, tiny, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text("{}")
    with pytest.raises(OutputError, match="choose another folder"):
        train([texts[0]], tmp_path / "mine", tiny(), tokenised=True)
    assert not (tmp_path / "mine.training").exists()


def test_divergence_stops_with_the_last_good_checkpoint(texts, tiny, tmp_path, losses):
    config = tiny(optimiser="adamw", checkpoint_every=1_000)
    folder = tmp_path / "model.training"
    with pytest.raises(TrainingError, match="no checkpoint yet"):
        train([texts[0]], tmp_path / "model", tiny(learning_rate=1e38, optimiser="adamw"), tokenised=True, workers=1)
    assert not list(folder.glob("checkpoints/*"))
    train([texts[0]], tmp_path / "other", config, tokenised=True, workers=1, minutes=0)
    kept = {path: path.read_bytes() for path in tmp_path.glob("other.training/checkpoints/*")}
    wild = dataclasses.replace(config, learning_rate=1e38)
    with pytest.raises(TrainingError, match="smaller --learning-rate and --muon-learning-rate continues from step 1"):
        train([texts[0]], tmp_path / "other", wild, tokenised=True, workers=1)
    assert {path: path.read_bytes() for path in tmp_path.glob("other.training/checkpoints/*")} == kept
    assert train([texts[0]], tmp_path / "other", config, tokenised=True, workers=1)  # as the message advises
    assert all(math.isfinite(line["loss"]) for line in losses(tmp_path / "other") if line["kind"] == "train")


def test_the_card_tells_no_perplexity_of_earlier_weights(texts, tiny, tmp_path):
    config, options = tiny(evaluate_every=100), {"tokenised": True, "workers": 1}
    for name in ("with", "without"):
        assert train([texts[0]], tmp_path / name, config, held_out=[texts[1]], **options, minutes=0) is None
    train([texts[0]], tmp_path / "with", config, held_out=[texts[1]], **options)
    train([texts[0]], tmp_path / "without", config, **options)
    assert "held_out_perplexity" in io.load(tmp_path / "with").metadata
    assert "held_out_perplexity" not in io.load(tmp_path / "without").metadata


@pytest.fixture
def spoilt_steps(monkeypatch):
    """Makes a gradient of these steps infinite."""

    def spoil(*numbers: int) -> None:
        plain = PlainStepper.step

        def step(stepper, prepared):
            plain(stepper, prepared)
            if prepared.number in numbers:
                next(stepper.network.parameters()).grad.flatten()[0] = math.inf

        monkeypatch.setattr(PlainStepper, "step", step)

    return spoil


def test_a_step_with_infinite_gradients_is_skipped_and_counted(texts, tiny, tmp_path, losses, spoilt_steps, capsys):
    config, options = tiny(log_every=600), {"tokenised": True, "workers": 1}
    train([texts[0]], tmp_path / "plain", config, **options)
    assert "skipped" not in capsys.readouterr().out
    spoilt_steps(9, 14)
    assert train([texts[0]], tmp_path / "whole", config, **options)
    assert "skipped     1 of the last 4 steps" in capsys.readouterr().out
    plain, whole = (
        [line for line in losses(tmp_path / name) if line["kind"] == "train"] for name in ("plain", "whole")
    )
    before = [line for line in whole if line["step"] < 9]
    assert before and before == plain[: len(before)]
    assert sum(line["skipped"] for line in whole) == 2 and sum(line["skipped"] for line in plain) == 0
    assert all(math.isfinite(line["loss"]) for line in whole) and whole[-1]["loss"] < whole[0]["loss"]
    while train([texts[0]], tmp_path / "halting", config, **options, minutes=0) is None:
        pass  # one step per call
    assert [line for line in losses(tmp_path / "halting") if line["kind"] == "train"] == whole


def test_a_run_of_which_most_steps_are_skipped_stops(texts, tiny, tmp_path, spoilt_steps):
    spoilt_steps(*range(5, 1000))
    with pytest.raises(
        TrainingError, match=r"diverged: the gradients of 6 of the last 10 steps.*continues from step \d"
    ):
        train([texts[0]], tmp_path / "model", tiny(), tokenised=True, workers=1)


def test_one_lost_step_at_the_end_does_not_end_a_run(texts, tiny, tmp_path, spoilt_steps, losses):
    config, options = tiny(log_every=10**9), {"tokenised": True, "workers": 1}
    train([texts[0]], tmp_path / "plain", config, **options)
    last = losses(tmp_path / "plain")[-1]["step"]
    spoilt_steps(last)
    while train([texts[0]], tmp_path / "halting", config, **options, minutes=0) is None:
        pass  # one step per call: the last call begins with the step that is lost
    assert losses(tmp_path / "halting")[-1]["skipped"] == 1
    guard = RateGuard()
    assert guard.find_divergence(1, 1) is None  # so short a line says nothing
    assert guard.find_divergence(1, 1) == "the gradients of 2 of the last 2 steps were not finite"
    assert guard.find_divergence(20, 0) is None
    assert guard.find_divergence(20, 11) == "the gradients of 11 of the last 20 steps were not finite"


def test_a_finished_run_takes_no_other_settings_and_no_other_text(texts, tiny, tmp_path):
    options = {"tokenised": True, "workers": 1}
    train([texts[0]], tmp_path / "model", tiny(), **options)
    more = tiny(tokens=20_000)
    with pytest.raises(
        ConfigError, match=r"was trained with other settings: --tokens was \d+, now 20000; train further with --from"
    ):
        train([texts[0]], tmp_path / "model", more, **options)
    with pytest.raises(ConfigError, match="a run continues with the text it began with"):
        train([texts[1]], tmp_path / "model", tiny(), **options)
    with pytest.raises(InputError, match="nowhere.txt"):
        train([tmp_path / "nowhere.txt"], tmp_path / "model", tiny(), **options)


def test_the_guard_looks_at_whole_windows():
    guard = RateGuard()
    assert not guard.count(39, 20) and guard.scale == 1  # no window yet
    assert guard.count(1, 0) and guard.scale == 0.5
    assert not guard.count(40, 4) and guard.scale == 0.5  # a tenth is borne
    assert guard.count(100, 11) and guard.scale == 0.25
    assert not guard.count(10, 5)
    again = RateGuard()
    again.load_state(guard.state())
    assert again.count(30, 0) == guard.count(30, 0) and again.scale == guard.scale == 0.125


def test_rates_are_halved_where_steps_are_lost_and_alike_after_a_resume(
    texts, tiny, tmp_path, losses, spoilt_steps, capsys
):
    config, options = tiny(tokens=5_000, tokens_per_batch=40, log_every=600), {"tokenised": True, "workers": 1}
    spoilt_steps(*range(4, 60, 4))  # a quarter, and of the first half of the run only
    assert train([texts[0]], tmp_path / "whole", config, **options)
    said = capsys.readouterr().out
    whole = losses(tmp_path / "whole")
    guards = [line for line in whole if line["kind"] == "guard"]
    assert [line["rate_scale"] for line in guards] == [0.5] and said.count("halved      the learning rates") == 1
    for line in whole:
        if line["kind"] == "train":
            is_halved = line["tokens"] > guards[0]["tokens"]
            assert line["rate"] == pytest.approx(config.rate(line["tokens"]) * (0.5 if is_halved else 1))
    while train([texts[0]], tmp_path / "halting", config, **options, minutes=0) is None:
        pass  # one step per call
    assert losses(tmp_path / "halting") == whole


def test_weights_that_are_not_finite_are_never_written(texts, tiny, tmp_path, monkeypatch):
    def spoil(optimizer, rate: float) -> None:
        next(iter(optimizer._parameters.values())).data.fill_(math.inf)

    monkeypatch.setattr("elmokit.pretrain.optim.optimiser.Optimiser.step", spoil)
    with pytest.raises(TrainingError, match="diverged"):
        train([texts[0]], tmp_path / "model", tiny(), tokenised=True, workers=1, minutes=0)
    assert not list(tmp_path.glob("model.training/checkpoints/*"))


def test_a_full_disk_keeps_the_last_good_checkpoint(texts, tiny, tmp_path, monkeypatch):
    train([texts[0]], tmp_path / "model", tiny(), tokenised=True, workers=1, minutes=0)
    kept = sorted(tmp_path.glob("model.training/checkpoints/*"))

    def full(values, file) -> None:
        file.write(b"the beginning")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", full)
        with pytest.raises(OutputError, match=r"No space left on device\): the checkpoints before it are kept"):
            train([texts[0]], tmp_path / "model", tiny(), tokenised=True, workers=1)
    assert sorted(tmp_path.glob("model.training/checkpoints/*")) == kept
    assert train([texts[0]], tmp_path / "model", tiny(), tokenised=True, workers=1)


def test_two_checkpoints_are_kept_and_a_foreign_file_is_named(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    for step in (5, 10, 15):
        checkpoints.save(step, {"step": step})
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["step-000000010.pt", "step-000000015.pt"]
    assert checkpoints.last_step == 15
    assert checkpoints.latest(torch.device("cpu")) == {"step": 15}
    (tmp_path / "step-000000020.pt").write_bytes(b"something else")
    with pytest.raises(CheckpointError, match="step-000000020.pt.*remove the file"):
        checkpoints.latest(torch.device("cpu"))


def test_an_encoded_corpus_is_taken_as_it_is(texts, tiny, tmp_path):
    encode_corpus([texts[0]], tmp_path / "corpus", tokenised=True, progress=False, workers=1)
    train([tmp_path / "corpus"], tmp_path / "model", tiny(tokens=300))
    assert not (tmp_path / "model.training" / "corpus").exists()


def test_tensorboard_is_told_or_asked_for(texts, tiny, tmp_path, monkeypatch):
    told = []
    train([texts[0]], tmp_path / "model", tiny(tokens=700), tokenised=True, workers=1, report=told.append)
    assert [line["kind"] for line in told] == ["train"] * 3
    monkeypatch.setitem(__import__("sys").modules, "torch.utils.tensorboard", None)
    with pytest.raises(MissingExtra, match=r"pip install 'elmokit\[train\]'"):
        train([texts[0]], tmp_path / "other", tiny(), tensorboard=True)


# ---------------------------------------------------------------- recipes and their parts


@pytest.fixture(scope="module")
def corpus(texts, tmp_path_factory) -> EncodedCorpus:
    return encode_corpus([texts[0]], tmp_path_factory.mktemp("c") / "corpus", tokenised=True, progress=False, workers=1)


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_builds(name, corpus):
    config = recipe_named(name)
    assert TrainConfig(**{**vars(config)}) == config
    model, _ = choose_start(config).choose_model(corpus)
    with torch.device("meta"):
        Optimiser(build_network(config, model, corpus, torch.device("meta")), config)
    json.dumps(config.to_dict())


def test_the_recipe_of_bilm_tf_has_its_constants():
    config = recipe_named("bilm_tf")
    assert (config.optimiser, config.learning_rate, config.clip_norm, BILM_TF_LOSS_SCALE) == ("adagrad", 0.2, 10, 20)
    assert (config.rate(1), config.rate(config.tokens)) == (1, 1)
    assert config.model == ElmoConfig.original()
    assert (config.tokens_per_batch // config.unroll, config.unroll) == (128, 20)
    assert (config.num_negatives, config.sampler, config.vocabulary_size) == (8192, "log_uniform", 793_471)


def test_muon_moves_the_gates_of_medium_as_much_as_those_of_small():
    configs = [recipe_named(name) for name in ("small", "medium")]
    assert configs[0].muon_learning_rate == 2.5e-3
    # The spectral norm of an update is 0.2 √columns × rate; that of `small` is known to work.
    norms = [0.2 * math.sqrt(config.model.lstm.cell_dim) * config.muon_learning_rate for config in configs]
    assert norms == pytest.approx([0.016] * 2)


def test_the_recipe_of_the_original_size_ends_with_a_full_softmax_and_rates_of_zero():
    config = recipe_named("original")
    assert config.model.lstm == dataclasses.replace(ElmoConfig.original().lstm, cell_clip=None, projection_clip=None)
    assert (config.output, config.vocabulary_size) == ("sampled", 108_000) and 0 < config.full_after < 1
    assert config.rate(config.tokens) == pytest.approx(0.001) and config.rate(config.tokens // 2) < 0.6


def test_the_rate_rises_holds_and_falls():
    config = TrainConfig(tokens=1_000, warmup_tokens=100, hold=0.5, final_learning_rate=0.05)
    rates = [config.rate(tokens) for tokens in range(1, 1_200)]
    assert rates[:100] == pytest.approx([tokens / 100 for tokens in range(1, 101)])
    assert rates[100:550] == [1] * 450  # half of the words after the warm-up
    assert all(later < earlier for earlier, later in zip(rates[550:999], rates[551:1000], strict=True))
    assert rates[774] == pytest.approx((1 + 0.05) / 2) and rates[999:] == pytest.approx([0.05] * 200)


def test_a_short_run_still_reaches_its_learning_rate():
    config = dataclasses.replace(recipe_named("small"), tokens=1_000_000)
    assert max(config.rate(tokens) for tokens in range(0, 1_000_000, 10_000)) > 0.99


@pytest.mark.parametrize(
    ("field", "value"),
    [("mode", "books"), ("tokens", 0), ("dropout", 1.0), ("vocabulary_size", 3), ("learning_rate", -1), ("seed", -1)],
)
def test_nonsense_is_refused_by_name(field, value):
    with pytest.raises(ConfigError, match=field):
        TrainConfig(**{field: value})


def test_weight_decay_that_would_do_nothing_is_refused():
    with pytest.raises(ConfigError, match=r"weight_decay is 0\.1, but Adagrad has none: set it to 0"):
        TrainConfig(optimiser="adagrad", weight_decay=0.1)


def test_an_unknown_recipe_lists_the_known():
    with pytest.raises(ConfigError, match="tiny_cpu, small"):
        recipe_named("large")


# ---------------------------------------------------------------- randomness, layouts


def dropped(keys: list[int], *, seed: int = 3, rate: float = 0.1, width: int = 4096) -> torch.Tensor:
    ones = torch.ones(len(keys), width)
    return keyed_dropout(ones, torch.tensor(keys), seed=torch.tensor(seed), rate=rate)


def test_dropout_follows_from_its_keys_alone():
    together, apart = dropped([5, 1 << 20, 77]), dropped([77])
    assert torch.equal(together[2:], apart)
    assert torch.equal(dropped([5]), dropped([5]))
    assert not torch.equal(dropped([5]), dropped([5], seed=4))


@pytest.mark.parametrize("rate", [0.05, 0.1, 0.5])
def test_dropout_drops_its_share_and_keeps_the_mean(rate):
    values = dropped(list(range(200)), rate=rate)
    assert (values == 0).float().mean().item() == pytest.approx(rate, abs=0.003)
    assert values.mean().item() == pytest.approx(1, abs=0.004)
    assert values.unique().tolist() == pytest.approx([0, 1 / (1 - rate)])
    by_feature, by_row = (values == 0).float().mean(0), (values == 0).float().mean(1)
    # 200 rows and 4096 features: no feature and no row is dropped much more often than chance allows
    spread = math.sqrt(rate * (1 - rate))
    assert (by_feature - rate).abs().max() < 5 * spread / math.sqrt(200)
    assert (by_row - rate).abs().max() < 5 * spread / math.sqrt(4096)


def test_masks_of_neighbours_have_nothing_to_do_with_each_other():
    rows = [(dropped([key], seed=seed) == 0).float()[0] for key in (0, 1, 2, 1 << 20) for seed in (64, 65, 128)]
    together = torch.corrcoef(torch.stack(rows)).fill_diagonal_(0)
    assert together.abs().max() < 5 / math.sqrt(4096)
