"""A run that is killed again and again tells the same story as one that never was, bit for bit."""

from __future__ import annotations

import os
import random
import signal
import time

import pytest

KILLS = 3


@pytest.mark.parametrize("output", ["full", "sampled"])
@pytest.mark.parametrize("mode", ["sentences", "streams"])
def test_kills_change_nothing(mode, output, texts, tiny, tmp_path, in_processes, trained, losses):
    text, held_out = texts
    config = tiny(
        mode=mode,
        output=output,
        tokens=2_400,
        tokens_per_batch=80,
        checkpoint_every=300,
        log_every=150,
        evaluate_every=800,
    )
    options = {"held_out": [held_out], "tokenised": True, "workers": 1}
    assert trained([text], tmp_path / "whole", config, **options) == [0]
    draw = random.Random(f"{mode} {output}")
    log = tmp_path / "killed.training" / "log.jsonl"
    kills = 0
    for _ in range(KILLS):
        (process,) = in_processes([text], tmp_path / "killed", config, **options)
        # At a random stage, not at a random time: a busy machine would else be killed before it began.
        lines_wanted = draw.randrange(1, 5) + _num_lines(log)
        while process.is_alive() and _num_lines(log) < lines_wanted:
            time.sleep(0.002)
        time.sleep(draw.random() * 0.03)
        process.kill()
        process.join()
        kills += process.exitcode == -9
    assert kills >= 2, "the run was over before it could be killed"
    assert trained([text], tmp_path / "killed", config, **options) == [0]
    assert losses(tmp_path / "killed") == losses(tmp_path / "whole")
    for name in ("model.safetensors", "softmax.safetensors", "config.json"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 1), (signal.SIGTERM, -signal.SIGTERM)])
def test_who_asks_a_run_to_stop_loses_no_step(number, code, texts, tiny, tmp_path, in_processes, trained, losses):
    config = tiny(tokens=40_000, tokens_per_batch=80, checkpoint_every=10**6, log_every=150, evaluate_every=10**6)
    options = {"tokenised": True, "workers": 1}
    assert trained([texts[0]], tmp_path / "whole", config, **options) == [0]
    log = tmp_path / "asked.training" / "log.jsonl"
    (process,) = in_processes([texts[0]], tmp_path / "asked", config, **options)
    while process.is_alive() and _num_lines(log) < 3:
        time.sleep(0.002)
    os.kill(process.pid, number)
    process.join(60)
    assert process.exitcode == code  # as without a checkpoint: KeyboardInterrupt, or ended by the signal
    assert len(list((tmp_path / "asked.training" / "checkpoints").iterdir())) == 1
    kept = _num_lines(log)
    assert 3 <= kept < len(losses(tmp_path / "whole"))
    assert trained([texts[0]], tmp_path / "asked", config, **options) == [0]
    assert losses(tmp_path / "asked") == losses(tmp_path / "whole")
    assert (tmp_path / "asked" / "model.safetensors").read_bytes() == (
        tmp_path / "whole" / "model.safetensors"
    ).read_bytes()


def _num_lines(path) -> int:
    return len(path.read_bytes().splitlines()) if path.exists() else 0
