"""The loop: it learns, it is the same for the same seed, it stops, and what it saves loads."""

from __future__ import annotations

import json
import time

import pytest
import torch

from elmokit.errors import CheckpointError, InputError, OutputError, TrainingError
from elmokit.tasks import TASKS, find_task
from elmokit.tasks.base import load_task
from elmokit.tasks.classify import Classifier, ClassifyConfig
from elmokit.tasks.config import InputConfig, TrainingConfig
from elmokit.tasks.data.tables import LabelledSentence
from elmokit.tasks.layer_store import open_elmo
from elmokit.tasks.network.inputs import WordInputs
from elmokit.tasks.optimiser import TaskOptimiser, slanted_triangle
from elmokit.tasks.train import _name_device, draw_part, train_model
from elmokit.version import describe_version

QUICK = TrainingConfig(epochs=8, learning_rate=0.02, batch_size=8)
EXAMPLES = [
    LabelledSentence(words=(a, "is", b), label="good" if b in ("fine", "nice") else "bad")
    for a in ("it", "this", "he", "she")
    for b in ("fine", "nice", "dull", "poor")
]


def classifier(elmo=None, *, seed=0, **inputs) -> Classifier:
    torch.manual_seed(seed)
    config = ClassifyConfig(InputConfig(character_filters=8, elmo=elmo, **inputs), hidden=8, dropout=0.1)
    source = None if elmo is None else open_elmo(elmo, tunes=config.inputs.tune_elmo)
    return Classifier.build(config, EXAMPLES, WordInputs(config.inputs, elmo=source))


@pytest.mark.parametrize("kind", ["cpu", "mps", "xpu"])
def test_results_name_their_device(kind):
    assert _name_device(torch.device(kind)) == kind


def test_it_learns_and_says_how(tmp_path, random_model):
    lines = []
    model = classifier(str(random_model), elmo_at="both")
    results = train_model(
        model,
        EXAMPLES,
        EXAMPLES,
        config=QUICK,
        test=EXAMPLES[:4],
        folder=tmp_path / "out",
        layers_folder=tmp_path / "layers",
        device="cpu",
        report=lines.append,
    )
    assert results.dev["accuracy"] == 1.0
    assert results.test["accuracy"] == 1.0
    assert len(lines) == len(results.history)
    assert results.history[results.best_epoch - 1] == max(results.history) == 1.0
    stored = json.loads((tmp_path / "out/results.json").read_text(encoding="utf-8"))
    assert stored == json.loads(json.dumps(results.to_dict()))
    assert set(stored["mixes"]) == {"input", "output"}
    assert stored["training"]["epochs"] == 8
    assert stored["versions"]["elmokit"] == describe_version()  # the commit included
    log = [json.loads(line) for line in (tmp_path / "out/log.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["accuracy"] for line in log] == results.history
    again = load_task(tmp_path / "out", device="cpu")
    assert again.predict_all(EXAMPLES) == model.predict_all(EXAMPLES)
    assert (tmp_path / "out/elmo/config.json").exists()  # the model came from a path that others do not have


def test_predictions_tell_how_far_they_are_if_asked(caplog, monkeypatch):
    monkeypatch.setattr("elmokit.waits.FIRST_LINE", 0.0)
    caplog.set_level("INFO", logger="elmokit.waits")
    model = classifier()
    model.evaluate(EXAMPLES)
    assert "predicting" not in caplog.text
    model.evaluate(EXAMPLES, progress=True)
    assert f"predicting: 0% 0/{len(EXAMPLES)} [" in caplog.text


def histories(seed: int) -> list:
    model = classifier(seed=seed)
    config = TrainingConfig(epochs=4, learning_rate=0.01, batch_size=4, seed=seed)
    log: list[str] = []
    train_model(model, EXAMPLES, EXAMPLES, config=config, device="cpu", report=log.append)
    return [*log, [weight.sum().item() for weight in model.parameters()]]


def test_the_same_seed_the_same_run():
    first = histories(1)
    assert first == histories(1)
    assert first != histories(2)


def test_the_generator_of_the_caller_is_left_alone():
    model = classifier()
    state = torch.get_rng_state()
    train_model(model, EXAMPLES, EXAMPLES, config=TrainingConfig(epochs=1), device="cpu")
    assert torch.equal(torch.get_rng_state(), state)


def optimiser(model: Classifier, *, steps_per_epoch: int = 1, **settings) -> TaskOptimiser:
    return TaskOptimiser(model, TrainingConfig(**settings), steps_per_epoch=steps_per_epoch)


def test_the_running_average_of_the_weights_is_what_is_scored():
    model = classifier()
    averaging = optimiser(model, average=0.3, learning_rate=0.1)
    expected = averaging.copy_weights()
    for step in range(1, 8):
        averaging.step(model.loss(EXAMPLES))
        kept = min(0.3, step / (10 + step))  # the first steps are forgotten soon
        expected = [kept * old + (1 - kept) * new for old, new in zip(expected, averaging.copy_weights(), strict=True)]
    last = averaging.copy_weights()
    with averaging.averaged_weights():
        torch.testing.assert_close(averaging.copy_weights(), expected)
    torch.testing.assert_close(averaging.copy_weights(), last, rtol=0, atol=0)
    plain = optimiser(model)
    with plain.averaged_weights():
        torch.testing.assert_close(plain.copy_weights(), last, rtol=0, atol=0)


def test_schedules_move_the_rate():
    model = classifier()
    slanted = optimiser(model, schedule="slanted", learning_rate=0.1, epochs=20)
    rates = []
    for _ in range(20):
        slanted.step(model.loss(EXAMPLES))
        rates.append(slanted.rate)
    assert rates == pytest.approx([0.1 * slanted_triangle(step, 20) for step in range(1, 21)])
    assert max(rates) == rates[1] == pytest.approx(0.1) and rates[-1] == pytest.approx(0.1 / 32)
    constant = optimiser(model, schedule="constant", learning_rate=0.1, plateau=1)
    constant.end_epoch(epochs_since_best=5)
    constant.step(model.loss(EXAMPLES))
    assert constant.rate == 0.1


@pytest.mark.parametrize(("clip_norm", "expected"), [(0.0, None), (0.5, 0.5)])
def test_gradients_are_clipped_together(clip_norm, expected):
    model = classifier().eval()
    loss = 100 * model.loss(EXAMPLES)
    free = torch.autograd.grad(loss, [weight for weight in model.parameters() if weight.requires_grad])
    norm = torch.stack([gradient.norm() for gradient in free]).norm().item()
    optimiser(model, clip_norm=clip_norm).step(100 * model.loss(EXAMPLES))
    clipped = torch.stack([weight.grad.norm() for weight in model.parameters() if weight.grad is not None]).norm()
    assert norm > 1
    assert clipped.item() == pytest.approx(expected or norm, rel=1e-4)


def test_weights_decay_apart_from_their_gradients():
    model = classifier()
    decaying = optimiser(model, weight_decay=0.5, learning_rate=0.1, schedule="constant")
    before = decaying.copy_weights()
    decaying.step(sum(weight.sum() for weight in model.parameters() if weight.requires_grad) * 0.0)
    torch.testing.assert_close(decaying.copy_weights(), [0.95 * weight for weight in before])


def test_it_stops_when_nothing_gets_better():
    config = TrainingConfig(epochs=30, patience=2, learning_rate=1e-9)
    results = train_model(classifier(), EXAMPLES, EXAMPLES, config=config, device="cpu")
    assert len(results.history) == 3
    assert results.best_epoch == 1


def test_while_nothing_is_right_it_goes_on(monkeypatch):
    """With few examples F1 is 0 for some epochs: the first of them is no better than the last."""
    scores = iter([0.0, 0.0, 0.0, 0.5, 0.25, 0.0])
    monkeypatch.setattr(Classifier, "scores", lambda *_: {"accuracy": next(scores)})
    config = TrainingConfig(epochs=6, patience=2)
    results = train_model(classifier(), EXAMPLES, EXAMPLES, config=config, device="cpu")
    assert (results.history, results.best_epoch) == ([0.0, 0.0, 0.0, 0.5, 0.25, 0.0], 4)


def test_it_stops_when_time_is_up():
    """After the first epoch, though all of the time has passed: there is always something to keep."""
    patient = TrainingConfig(epochs=8, patience=8, minutes=1e-6)
    results = train_model(classifier(), EXAMPLES, EXAMPLES, config=patient, device="cpu")
    assert (len(results.history), results.best_epoch, results.ended_by) == (1, 1, "minutes")
    long_ago = time.perf_counter() - 3600
    for minutes, epochs, ended_by in ((59, 1, "minutes"), (120, 8, "epochs"), (0, 8, "epochs")):
        config = TrainingConfig(epochs=8, patience=8, minutes=minutes)
        results = train_model(classifier(), EXAMPLES, EXAMPLES, config=config, started=long_ago, device="cpu")
        assert (len(results.history), results.ended_by) == (epochs, ended_by)


def test_a_loss_that_is_no_number():
    model = classifier()
    with torch.no_grad():
        next(model.to_classes.parameters()).fill_(float("nan"))
    with pytest.raises(TrainingError, match="learning-rate"):
        train_model(model, EXAMPLES, EXAMPLES, config=QUICK, device="cpu")
    with pytest.raises(InputError, match="found 0 and 16"):
        train_model(model, [], EXAMPLES, config=QUICK, device="cpu")


@pytest.mark.parametrize("method", ["loss", "predict"])
def test_an_example_too_large_for_the_memory_is_named(method, monkeypatch):
    def too_much(batch):
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory")

    model = classifier()
    long = LabelledSentence(words=("word",) * 99, label="good", source="book.txt:7")
    monkeypatch.setattr(model, method, too_much)
    with pytest.raises(MemoryError, match=r"book\.txt:7: no memory for a batch of .* 99 words"):
        train_model(model, [long], [long], config=QUICK, device="cpu")
    monkeypatch.setattr(model, method, lambda batch: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        train_model(model, [long], [long], config=QUICK, device="cpu")


def test_a_biLM_that_learns_goes_along(tmp_path, random_model):
    model = classifier(str(random_model), tune_elmo=True)
    before = model.inputs.elmo.fingerprint
    train_model(model, EXAMPLES, EXAMPLES, config=QUICK, folder=tmp_path / "out", layers_folder=tmp_path, device="cpu")
    assert not (tmp_path / before).exists()  # nothing is stored of a model that changes
    assert model.inputs.elmo.fingerprint != before
    again = load_task(tmp_path / "out", device="cpu")
    for one, other in zip(again.predict_all(EXAMPLES), model.predict_all(EXAMPLES), strict=True):
        assert one["probabilities"] == pytest.approx(other["probabilities"], abs=1e-5)


def test_layers_join_from_the_top_down(random_model):
    model = classifier(str(random_model), tune_elmo=True)
    elmo = model.inputs.tuned
    parts = [list(elmo.bilm.forward_layers[1].parameters()), list(elmo.bilm.forward_layers[0].parameters())]
    parts.append(list(elmo.encoder.parameters()))
    tuning = optimiser(model, epochs=5)
    moved = []
    for epoch in range(4):
        before = [[weight.clone() for weight in part] for part in parts]
        tuning.begin_epoch(epoch)
        tuning.step(model.loss(EXAMPLES))
        moved.append(
            [
                any(not torch.equal(a, b) for a, b in zip(part, old, strict=True))
                for part, old in zip(parts, before, strict=True)
            ]
        )
    assert moved == [[False] * 3, [True, False, False], [True, True, False], [True, True, True]]
    rates = [group["lr"] for group in tuning._adam.param_groups[1:]]
    assert rates[0] / rates[1] == pytest.approx(2.6)


def test_the_rate_is_halved_on_a_plateau():
    model = classifier()
    halving = optimiser(model, learning_rate=0.1, plateau=2)
    for since_best in (0, 1, 2, 3, 4):
        halving.end_epoch(epochs_since_best=since_best)
    halving.step(model.loss(EXAMPLES))
    assert halving.rate == pytest.approx(0.025)


def test_a_larger_share_holds_the_smaller():
    parts = [draw_part(range(1000), share, seed=3) for share in (0.0001, 0.01, 0.1, 1.0)]
    assert [len(part) for part in parts] == [1, 10, 100, 1000]
    assert set(parts[0]) < set(parts[1]) < set(parts[2]) < set(parts[3])
    assert draw_part(range(1000), 0.01, seed=4) != parts[1]


def test_folders_that_are_no_task(tmp_path, random_model):
    with pytest.raises(CheckpointError, match="expected a task model"):
        load_task(random_model)
    with pytest.raises(CheckpointError, match="missing"):
        load_task(tmp_path)
    with pytest.raises(InputError, match="expected a task, one of tag"):
        find_task("dance")
    for name, ours in {"NER": "tag", "sentiment": "classify", "snli": "infer", "qa": "answer", "srl": "roles"}.items():
        with pytest.raises(InputError, match=f"found '{name}'; the task {ours} does this: elmo task train {ours}$"):
            find_task(name)
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(OutputError, match=r"notes\.txt"):
        classifier().save(tmp_path)


def test_damage_is_noticed(tmp_path, random_model):
    classifier(str(random_model)).save(tmp_path / "task")
    path = tmp_path / "task/extra.json"
    path.write_text('{"labels": ["a", "b", "c"]}', encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"expected to_classes\.4\.\w+ of shape \(3"):
        load_task(tmp_path / "task", device="cpu")
    classifier(str(random_model)).save(tmp_path / "task")
    with pytest.raises(CheckpointError, match="nowhere.*say where it is"):
        load_task(tmp_path / "task", elmo=str(tmp_path / "nowhere"), device="cpu")
    other = classifier(str(random_model), random_elmo=True)
    settings = tmp_path / "task/config.json"
    settings.write_text(
        settings.read_text(encoding="utf-8").replace(other.inputs.elmo.fingerprint, "0"), encoding="utf-8"
    )
    with pytest.raises(CheckpointError, match="their weights differ"):
        load_task(tmp_path / "task", device="cpu")


@pytest.mark.parametrize("name", TASKS)
def test_every_task_keeps_the_contract(name):
    kind = find_task(name)
    assert kind.name == name
    assert kind.Config().inputs.character_filters > 0
    assert kind.training_config.epochs >= 1
    assert kind.metric
