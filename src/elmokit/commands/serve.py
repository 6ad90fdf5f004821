"""`elmo serve`: vectors, comparisons and predictions through an address, and the explorer in the browser.

Models arrive; a server runs until it is stopped. The work is in `elmokit.serve`; here stand its options.
"""

from __future__ import annotations

import dataclasses
import errno
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from elmokit.commands.base import DEFAULT_MODEL, Computation, Device, Precision, check_task_folder
from elmokit.errors import InputError, MissingExtra
from elmokit.serve.settings import Limits

__all__ = ["Serve"]

LOOPBACK = {"localhost", "127.0.0.1", "::1"}
Repeated = tyro.conf.UseAppendAction[tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class Serve(Computation):
    """Serve models: vectors of words and sentences, comparisons and predictions, through an address.

    It speaks OpenAI's /v1/embeddings, text-embeddings-inference's /embed, /embed_all and /tokenize, and routes of its
    own: /layers, /compare, /predict, /substitutes, /tag. A browser shows the explorer at the same address. Requests of
    all clients are read together. Only programs on this machine reach it unless --host says otherwise; texts are
    never logged.

    Example: elmo serve --model en-small --model ko-small --port 8080
    """

    model: Annotated[
        Repeated, tyro.conf.arg(metavar="SOURCE", help_behavior_hint="(default: en-small; repeatable)")
    ] = ()
    """A model to serve: its name, a folder, a .zip or a hub id; NAME=SOURCE gives it another name."""
    task: Annotated[Repeated, tyro.conf.arg(metavar="DIR", help_behavior_hint="(repeatable)")] = ()
    """A trained task model to serve at /tag; NAME=DIR gives it another name."""
    host: Annotated[str, tyro.conf.arg(metavar="ADDRESS")] = "127.0.0.1"
    """Where to listen; 0.0.0.0 for every network that this machine is in."""
    port: Annotated[int, tyro.conf.arg(metavar="N")] = 8080
    """The port."""
    token_file: Annotated[
        Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: none is asked for)")
    ] = None
    """A file whose first line every client must send as a bearer token."""
    precision: Precision = "float32"
    device: Device = None
    request_bytes: Annotated[int, tyro.conf.arg(metavar="N")] = Limits.request_bytes
    """Bytes of a request at most."""
    texts: Annotated[int, tyro.conf.arg(metavar="N")] = Limits.texts
    """Texts in a request at most."""
    text_words: Annotated[int, tyro.conf.arg(metavar="N")] = Limits.text_words
    """Words of a text at most."""
    request_words: Annotated[int, tyro.conf.arg(metavar="N")] = Limits.request_words
    """Words of a request at most."""
    batch_words: Annotated[int, tyro.conf.arg(metavar="N")] = Limits.batch_words
    """Words that a model reads at once."""
    queued_words: Annotated[int, tyro.conf.arg(metavar="N")] = Limits.queued_words
    """Words that may wait for a model; a request beyond them is refused at once."""
    concurrent_requests: Annotated[int, tyro.conf.arg(metavar="N")] = Limits.concurrent_requests
    """Requests under way at most; one more is refused at once."""
    body_seconds: Annotated[float, tyro.conf.arg(metavar="SECONDS")] = Limits.body_seconds
    """Time in which a request must have arrived."""
    answer_seconds: Annotated[float, tyro.conf.arg(metavar="SECONDS")] = Limits.answer_seconds
    """Time in which an answer must be ready."""

    def run(self) -> None:
        """Load the models and answer requests until a signal comes."""
        sources = _name_each(self.model or (DEFAULT_MODEL,), "--model")
        tasks = _name_each(self.task, "--task")
        for folder in tasks.values():
            check_task_folder(Path(folder))
        token = _read_token(self.token_file)
        if self.host not in LOOPBACK and token is None:
            self.advise(
                f"everybody who reaches {self.host}:{self.port} can use this server: --token-file asks for a token"
            )
        try:
            import fastapi  # noqa: F401
            import orjson  # noqa: F401
            import prometheus_client  # noqa: F401
            import uvicorn  # noqa: F401
        except ImportError as problem:
            raise MissingExtra(
                f"elmo serve needs {problem.name}, which is not installed: pip install 'elmokit[serve]'"
            ) from problem
        from elmokit.serve.app import build_app, run_server
        from elmokit.serve.metrics import Metrics
        from elmokit.serve.models import Shelf, open_model, open_task

        limits = Limits(**{field.name: getattr(self, field.name) for field in dataclasses.fields(Limits)})
        with _open_door(self.host, self.port) as door:
            metrics = Metrics()
            models = {
                name: open_model(
                    name, source, limits, device=self.device, precision=self.precision, observe=metrics.observer(name)
                )
                for name, source in sources.items()
            }
            opened = {name: open_task(name, folder, models, device=self.device) for name, folder in tasks.items()}
            hosts = LOOPBACK if self.host in LOOPBACK else None
            app = build_app(Shelf(models, opened, limits), metrics, token=token, hosts=hosts)
            host = f"[{self.host}]" if ":" in self.host else self.host
            self.advise(f"{', '.join(models)} at http://{host}:{self.port} (Ctrl-C ends)")
            run_server(app, door)


def _open_door(host: str, port: int) -> socket.socket:
    """The socket to listen on, before models are loaded for nothing."""
    if not 0 < port < 65536:
        raise InputError(f"--port is {port}: expected a number from 1 to 65535")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as problem:
        if problem.errno == errno.EADDRINUSE:
            raise InputError(f"port {port} of {host} is taken by another program: choose another --port") from problem
        reason = problem.strerror or problem
        raise InputError(
            f"cannot listen on {host}, port {port} ({reason}): choose another --host or --port"
        ) from problem


def _name_each(given: tuple[str, ...], option: str) -> dict[str, str]:
    """Sources by the names that clients call: what was given, its last part for a path, or NAME=SOURCE."""
    named: dict[str, str] = {}
    for text in given:
        name, equals, source = text.partition("=")
        if not equals or Path(text).exists():  # a path may have such a sign, too
            name, source = Path(text).name.removesuffix(".zip") or text, text
        if not name or not source:
            raise InputError(f"{option} {text!r}: expected a source, or NAME=SOURCE")
        if name in named:
            raise InputError(
                f"{option} {text!r}: {name!r} is there already; give it another name, {option} NAME={source}"
            )
        named[name] = source
    return named


def _read_token(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        raise InputError(f"--token-file {path}: it cannot be read ({type(problem).__name__})") from problem
    token = lines[0].strip() if lines else ""
    if len(token) < 16 or not token.isascii() or not token.isprintable() or " " in token:
        raise InputError(f"--token-file {path}: expected a first line of 16 or more ASCII letters and digits")
    return token
