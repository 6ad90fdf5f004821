"""The explorer over en-small, in the Chromium of this machine: one server and one browser for all tests of a file."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
import uvicorn

from elmokit.serve.app import build_app
from elmokit.serve.guard import Guard
from elmokit.serve.metrics import Metrics
from elmokit.serve.models import Shelf, open_model
from elmokit.serve.settings import Limits

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAMES = ["chromium", "chromium-browser", "google-chrome"]


def find_browser() -> str:
    found = [path for name in NAMES if (path := shutil.which(name))]
    works = [path for path in found if subprocess.run([path, "--version"], capture_output=True).returncode == 0]
    if not works:
        pytest.skip(f"no browser that runs: none of {', '.join(NAMES)}")
    return works[0]


@contextmanager
def served(app: Guard) -> Iterator[str]:
    """The address of a server in a thread of this process."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        deadline = time.monotonic() + 30
        while not server.started:
            assert thread.is_alive() and time.monotonic() < deadline, "the server did not start"
            time.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    api = pytest.importorskip("playwright.sync_api")
    path = find_browser()
    arguments = ["--no-sandbox"] if getattr(os, "geteuid", int)() == 0 and os.name == "posix" else []
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def shelf(browser: Browser) -> Shelf:
    limits = Limits()
    names = ["en-small", "again"]
    return Shelf({name: open_model(name, "en-small", limits) for name in names}, {}, limits)


@pytest.fixture(scope="module")
def address(shelf: Shelf) -> Iterator[str]:
    with served(build_app(shelf, Metrics())) as address:
        yield address


@pytest.fixture(scope="module")
def locked(shelf: Shelf) -> Iterator[tuple[str, str]]:
    """A server that asks for a token: its address, and the token."""
    token = "a-token-of-many-letters"
    with served(build_app(shelf, Metrics(), token=token)) as address:
        yield address, token


@pytest.fixture
def show(browser: Browser, address: str) -> Iterator[Callable[..., Page]]:
    """Open the explorer at an address of its own; afterwards nothing may have been wrong, and nothing have left."""
    contexts, wrong, asked = [], [], []

    def open_page(state: str = "", *, at: str = address, **options) -> Page:
        options = {"viewport": {"width": 1280, "height": 860}, "locale": "en-GB", **options}
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(60_000)  # the first answer may wait for kernels to be built
        page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda problem: wrong.append(str(problem)))
        page.on("request", lambda request: asked.append(request.url))
        page.wrong = wrong
        page.goto(f"{at}/#{state}")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not wrong
    assert asked
    assert not [url for url in asked if not url.startswith(("http://127.0.0.1:", "blob:http://127.0.0.1:", "data:"))]
