"""What a client is told when something is refused: one line, and a kind in the words of text-embeddings-inference."""

from __future__ import annotations

from typing import Literal

__all__ = ["ErrorType", "RequestError"]

ErrorType = Literal["Unhealthy", "Backend", "Overloaded", "Validation", "Empty"]
STATUS: dict[ErrorType, int] = {
    "Unhealthy": 503,
    "Backend": 424,
    "Overloaded": 429,
    "Validation": 422,
    "Empty": 422,
}


class RequestError(Exception):
    """A request that is not answered.

    Arguments:
        message: one line for the client: what was expected, what came, what to do.
        error_type: what kind of problem it is.
        status: of HTTP, if not the usual one of that kind.
    """

    def __init__(self, message: str, error_type: ErrorType = "Validation", status: int | None = None) -> None:
        super().__init__(message)
        self.error_type: ErrorType = error_type
        self.status = STATUS[error_type] if status is None else status
