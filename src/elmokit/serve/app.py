"""All parts of a server put together, and run: models in, an address out."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from socket import IPPROTO_TCP, TCP_NODELAY, socket
from typing import Any

import uvicorn
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from elmokit.errors import ElmoError, InputError, LayerError
from elmokit.serve.connections import make_protocol
from elmokit.serve.description import describe_server
from elmokit.serve.errors import RequestError
from elmokit.serve.guard import Guard
from elmokit.serve.language import make_language_router
from elmokit.serve.metrics import Metrics
from elmokit.serve.models import Shelf
from elmokit.serve.openai import make_openai_router
from elmokit.serve.schemas import ErrorAnswer
from elmokit.serve.tei import make_tei_router
from elmokit.serve.words import make_word_router
from elmokit.version import find_version
from elmokit.waits import WAITS

__all__ = ["build_app", "run_server"]

STATIC = Path(__file__).parent / "static"
OPEN_PATHS = {"/", "/health"}
FRESH = {"cache-control": "no-cache"}  # browsers ask whether a file has changed: scripts of two versions would not fit
ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": ErrorAnswer, "description": "The body is no JSON."},
    401: {"model": ErrorAnswer, "description": "The token is missing or wrong."},
    408: {"model": ErrorAnswer, "description": "The request arrived too slowly."},
    413: {"model": ErrorAnswer, "description": "The request has too many bytes, texts or words."},
    421: {"model": ErrorAnswer, "description": "The server is not called by that name."},
    422: {"model": ErrorAnswer, "description": "The request does not fit: the message says what was expected."},
    424: {"model": ErrorAnswer, "description": "The model failed on this request."},
    429: {"model": ErrorAnswer, "description": "The server has too much to do: ask again in a moment."},
    503: {"model": ErrorAnswer, "description": "The server is shutting down, or lacks what was asked for."},
}
# What pydantic's errors about types say was expected.
TYPES = {
    "string_type": "a string",
    "list_type": "a list of strings",  # there are no lists of other things
    "int_type": "a whole number",
    "bool_type": "true or false",
    "model_attributes_type": "an object, {…}",
    "dict_type": "an object, {…}",
}


def build_app(shelf: Shelf, metrics: Metrics, *, token: str | None = None, hosts: set[str] | None = None) -> Guard:
    """The application that answers requests; `hosts` are names by which it may be called, any if none are given."""

    @asynccontextmanager
    async def close_at_the_end(app: FastAPI) -> AsyncIterator[None]:
        yield
        shelf.close()

    app = FastAPI(
        title="elmokit",
        version=find_version(),
        summary="Vectors of words in their sentences.",
        lifespan=close_at_the_end,
        openapi_url=None,  # ours says more, and the pages that show it load scripts from other hosts
        responses=ERRORS,
    )
    app.include_router(make_openai_router(shelf))
    app.include_router(make_tei_router(shelf, metrics))
    app.include_router(make_word_router(shelf))
    app.include_router(make_language_router(shelf))
    app.add_exception_handler(RequestError, _answer_refusal)
    app.add_exception_handler(ElmoError, _answer_library_error)
    app.add_exception_handler(RequestValidationError, _answer_misfit)
    app.add_exception_handler(HTTPException, _answer_http_error)
    app.add_exception_handler(Exception, _answer_failure)
    description = describe_server(app.openapi(), shelf)

    @app.get("/openapi.json", include_in_schema=False)
    async def describe() -> JSONResponse:
        return JSONResponse(description)

    open_paths = set(OPEN_PATHS)
    if STATIC.is_dir():

        @app.get("/", include_in_schema=False)
        async def show_explorer() -> FileResponse:
            return FileResponse(STATIC / "index.html", headers=FRESH)

        app.mount("/static", _PageFiles(directory=STATIC), name="static")
        open_paths |= {f"/static/{path.relative_to(STATIC).as_posix()}" for path in STATIC.rglob("*.*")}
    return Guard(app, shelf.limits, metrics, token=token, open_paths=open_paths, hosts=hosts or set())


class _PageFiles(StaticFiles):
    def file_response(self, *args: Any, **kwargs: Any) -> Response:  # noqa: ANN401
        response = super().file_response(*args, **kwargs)
        response.headers.update(FRESH)
        return response


def run_server(app: Guard, door: socket) -> None:
    """Serve at an open socket until a signal comes; what is under way then is answered."""
    WAITS.setLevel(logging.WARNING)  # a server is no command that one waits for
    # Head and body of an answer leave apart. Unless told, the system keeps the body back until the client has confirmed
    # the head, which takes it 40 ms; connections take this over from the socket that accepts them.
    door.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
    config = uvicorn.Config(
        app,
        http=make_protocol(app.limits),
        ws="none",  # nobody speaks it here; where a package for it is installed, such requests would pass the guard by
        log_config=None,
        log_level="error",  # what is no HTTP is not worth a line each
        access_log=False,  # addresses are nobody's business, and bodies least of all
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=int(app.limits.answer_seconds) + 1,
    )
    uvicorn.Server(config).run(sockets=[door])


def _answer(status: int, message: str, error_type: str) -> JSONResponse:
    return JSONResponse({"error": message, "error_type": error_type}, status)


async def _answer_refusal(request: Request, problem: Exception) -> JSONResponse:
    assert isinstance(problem, RequestError)
    answer = _answer(problem.status, str(problem), problem.error_type)
    if problem.status == 429:
        answer.headers["retry-after"] = "1"
    return answer


async def _answer_library_error(request: Request, problem: Exception) -> JSONResponse:
    if isinstance(problem, (InputError, LayerError)):
        return _answer(422, str(problem), "Validation")
    return _answer(424, "the model failed on this request", "Backend")  # its message could name files


async def _answer_failure(request: Request, problem: Exception) -> JSONResponse:
    return _answer(424, "the server failed on this request", "Backend")  # the guard writes it into the log


async def _answer_misfit(request: Request, problem: Exception) -> JSONResponse:
    assert isinstance(problem, RequestValidationError)
    errors = problem.errors()
    broken = next((each for each in errors if each["type"] == "json_invalid"), None)
    found = _explain_misfit(errors) if broken is None else _explain_broken_json(broken)
    if "json" not in request.headers.get("content-type", ""):
        found = "expected JSON: send the header content-type: application/json; " + found
    return _answer(422 if broken is None else 400, found, "Validation")


def _explain_broken_json(error: dict[str, Any]) -> str:
    reason = str(error.get("ctx", {}).get("error", "it cannot be read"))
    return f"the body is no JSON: {reason[:1].lower()}{reason[1:200]} at character {error['loc'][-1]}"


def _explain_misfit(errors: Sequence[dict[str, Any]]) -> str:
    """What pydantic found, in the words of the request: one complaint for each field, three at most.

    A field that takes several types has an error for each of them, and the place of an error names the type, too.
    """
    by_field: dict[str, list[dict[str, Any]]] = {}
    for error in errors:
        by_field.setdefault(str(error["loc"][1])[:100] if len(error["loc"]) > 1 else "the body", []).append(error)
    return "; ".join(_explain_field(field, found) for field, found in list(by_field.items())[:3])


def _explain_field(field: str, errors: Sequence[dict[str, Any]]) -> str:
    items = ((part, error) for error in errors for part in error["loc"][2:] if isinstance(part, int))
    place, error = next(items, (None, None))
    if error is not None:  # a list came, and one of its items does not fit
        field, errors = f"{field}.{place}", [error]
    unusual = next((error for error in errors if error["type"] not in TYPES), None)
    if unusual is not None and unusual["type"] == "extra_forbidden":
        return f"{field}: no field of this request has that name"
    if unusual is None:
        return f"{field}: expected {' or '.join(dict.fromkeys(TYPES[error['type']] for error in errors))}"
    return f"{field}: {unusual['msg'].replace('Input should be', 'expected').removeprefix('Value error, ')[:200]}"


async def _answer_http_error(request: Request, problem: Exception) -> JSONResponse:
    assert isinstance(problem, HTTPException)
    answer = _answer(problem.status_code, str(problem.detail), "Validation")
    answer.headers.update(problem.headers or {})
    return answer
