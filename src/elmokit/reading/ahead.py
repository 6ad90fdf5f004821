"""Things made ahead in a thread, while those before are used."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

__all__ = ["read_ahead"]

Thing = TypeVar("Thing")


@contextmanager
def read_ahead(things: Generator[Thing]) -> Iterator[Iterator[Thing]]:
    """The same things in the same order; while one is used, the next is made in a thread.

    What goes wrong with a thing is raised in its place. Whoever leaves early waits for the thing that is being made, so
    this is not for a source that may keep one waiting, such as a pipe; then the source is closed.

    Example:
        >>> with read_ahead(letter for letter in "ab") as letters:
        ...     list(letters)
        ['a', 'b']
    """
    with ThreadPoolExecutor(1, "elmokit-ahead") as thread:

        def make() -> tuple[Thing] | None:
            return next(((thing,) for thing in things), None)

        def follow() -> Iterator[Thing]:
            upcoming = thread.submit(make)
            while (made := upcoming.result()) is not None:
                upcoming = thread.submit(make)
                yield made[0]

        try:
            yield follow()
        finally:
            thread.submit(things.close).result()
