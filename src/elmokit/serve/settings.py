"""The bounds of a server: what it takes before it says no. Every one is an option of `elmo serve`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from elmokit.validation import Bounds, check_fields

__all__ = ["Limits"]

Amount = Annotated[int, Bounds(at_least=1, at_most=2**40)]
Seconds = Annotated[float, Bounds(above=0, at_most=86_400)]


@dataclass(frozen=True)
class Limits:
    """What a server takes at most.

    Arguments:
        request_bytes: of the body of a request.
        texts: in a request.
        text_words: in one text of a request.
        request_words: in all texts of a request.
        batch_words: read by a model at once.
        queued_words: waiting for a model; a request beyond it is refused at once.
        concurrent_requests: under way; one more is refused at once.
        body_seconds: in which the body of a request must have arrived.
        answer_seconds: in which an answer must be ready.
    """

    request_bytes: Amount = 2_000_000
    texts: Amount = 1_000
    text_words: Amount = 5_000
    request_words: Amount = 20_000
    batch_words: Amount = 2_048
    queued_words: Amount = 200_000
    concurrent_requests: Amount = 512
    body_seconds: Seconds = 10.0
    answer_seconds: Seconds = 60.0

    def __post_init__(self) -> None:
        check_fields(self)
