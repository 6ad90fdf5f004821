"""Things made ahead in a thread, while those before are used."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

__all__ = ["read_ahead"]

Thing = TypeVar("Thing")


@contextmanager
def read_ahead(things: Iterator[Thing]) -> Iterator[Iterator[Thing]]:
    """The same things in the same order; while one is used, the next is made in a thread.

    Whoever leaves early waits for the one that is being made, and closes the source.

    Example:
        >>> with read_ahead(iter("ab")) as letters:
        ...     list(letters)
        ['a', 'b']
    """
    missing = object()
    with ThreadPoolExecutor(1, "elmokit-ahead") as thread:

        def follow() -> Iterator[Thing]:
            upcoming = thread.submit(next, things, missing)
            while (thing := upcoming.result()) is not missing:
                upcoming = thread.submit(next, things, missing)
                yield thing  # type: ignore[misc]

        try:
            yield follow()
        finally:
            close = getattr(things, "close", None)
            if close is not None:
                thread.submit(close).result()
