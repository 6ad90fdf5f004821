import time

import pytest

from elmokit.reading.ahead import read_ahead


def count_to(number, events=None, fails_at=None):
    try:
        for each in range(number):
            if each == fails_at:
                raise ValueError("no more")
            yield each
    finally:
        if events is not None:
            events.append("closed")


def test_things_come_in_order_and_the_source_is_closed():
    events = []
    with read_ahead(count_to(100, events)) as things:
        assert list(things) == list(range(100))
    assert events == ["closed"]


def test_a_problem_comes_after_the_things_before_it():
    seen = []
    with pytest.raises(ValueError, match="no more"), read_ahead(count_to(9, fails_at=3)) as things:
        for thing in things:
            seen.append(thing)
    assert seen == [0, 1, 2]


def test_the_next_thing_is_made_while_one_is_used():
    made = []

    def make():
        for number in range(5):
            made.append(number)
            yield number

    with read_ahead(make()) as things:
        assert next(things) == 0
        deadline = time.monotonic() + 20
        while len(made) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert made == [0, 1]


def test_who_leaves_early_closes_the_source():
    events = []
    with pytest.raises(KeyError), read_ahead(count_to(100, events)) as things:
        next(things)
        raise KeyError
    assert events == ["closed"]
