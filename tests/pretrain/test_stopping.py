"""When a run stops: by the clock, or because somebody asked; once politely, twice at once."""

from __future__ import annotations

import signal
import threading

import pytest

from elmokit.errors import ConfigError
from elmokit.pretrain.stopping import Stop
from elmokit.pretrain.train import train


def test_time_is_over_when_it_is_over():
    assert Stop(0).is_due
    assert not Stop(1).is_due and not Stop().is_due
    for minutes in (-1, float("nan")):
        with pytest.raises(ConfigError, match=f"minutes is {minutes}"):
            Stop(minutes)


def test_the_first_signal_is_noted_and_passed_on_later(capfd):
    stop = Stop()
    handler = signal.getsignal(signal.SIGINT)
    with stop.listen():
        assert not stop.is_due
        signal.raise_signal(signal.SIGINT)
        assert stop.is_due
    assert signal.getsignal(signal.SIGINT) is handler
    assert "elmo: stops after this step, with a checkpoint" in capfd.readouterr().err
    with pytest.raises(KeyboardInterrupt):
        stop.pass_on()
    Stop().pass_on()  # nobody asked


def test_the_second_signal_does_not_wait(capfd):
    stop = Stop(is_quiet=True)
    with pytest.raises(KeyboardInterrupt), stop.listen():
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
    assert capfd.readouterr().err == ""


def test_signals_that_were_ignored_still_are_and_other_threads_hear_none(monkeypatch):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        stop = Stop()
        with stop.listen():
            signal.raise_signal(signal.SIGINT)
        assert not stop.is_due and signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    heard = []

    def look():
        with Stop().listen():
            heard.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert heard == [before]


def test_a_run_that_is_stopped_in_its_last_step_is_finished(texts, tiny, tmp_path):
    config = tiny(tokens=600)

    def ask(line):
        if line["tokens"] >= config.tokens:
            signal.raise_signal(signal.SIGINT)

    options = {"tokenised": True, "workers": 1, "quiet": True}
    assert train([texts[0]], tmp_path / "m", config, report=ask, **options) == tmp_path / "m"
    assert (tmp_path / "m" / "model.safetensors").is_file()
