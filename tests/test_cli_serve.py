"""`elmo serve`: names, tokens and mistakes before a model is loaded; a server that is stopped finishes its work."""

from __future__ import annotations

import asyncio
import builtins
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest
import torch
import uvicorn
from uvicorn.server import ServerState

from elmokit import Elmo, ElmoConfig
from elmokit.cli import main
from elmokit.serve.connections import make_protocol


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "a=x", "--model", "a=y"], "'a' is there already"),
        (["--model", "=x"], "expected a source, or NAME=SOURCE"),
        (["--token-file", "nowhere"], "cannot be read"),
        (["--texts", "0"], "texts is 0"),
    ],
)
def test_mistakes_are_told_in_the_words_of_the_command(arguments, message, capsys):
    assert main(["serve", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_port_that_is_taken_is_told_before_models_are_loaded(capsys):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        assert main(["serve", "--port", port, "--model", "no-such-model"]) == 2
    assert f"port {port} of 127.0.0.1 is taken by another program: choose another --port" in capsys.readouterr().err
    assert main(["serve", "--port", "70000"]) == 2
    assert "--port is 70000: expected a number from 1 to 65535" in capsys.readouterr().err
    assert main(["serve", "--host", "192.0.2.1"]) == 2  # nobody's address
    assert "cannot listen on 192.0.2.1, port 8080" in capsys.readouterr().err


@pytest.mark.parametrize("token", ["", "short", "sixteen letters with spaces", "ünïcödé-ünïcödé-ünïcödé"])
def test_a_weak_token_is_refused(token, tmp_path, capsys):
    (tmp_path / "token").write_text(token, encoding="utf-8")
    assert main(["serve", "--token-file", str(tmp_path / "token")]) == 2
    assert "16 or more" in capsys.readouterr().err


def test_without_the_extra_the_command_that_installs_it_is_told(monkeypatch, capsys):
    real = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name == "fastapi":
            raise ImportError("no", name="fastapi")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    assert main(["serve"]) == 1
    assert "pip install 'elmokit[serve]'" in capsys.readouterr().err


def post(address, path, values):
    body = json.dumps(values).encode()
    request = urllib.request.Request(address + path, body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


def wait_for(address, process):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(address + "/health", timeout=5):
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
    raise AssertionError(process.stderr.read())


def has_read_nothing(address):
    with urllib.request.urlopen(address + "/metrics") as answer:
        return b'elmokit_words_total{model="tiny"} 0.0' in answer.read()


def test_a_server_that_is_stopped_answers_what_it_has_taken(tmp_path):
    torch.manual_seed(0)
    Elmo.random(ElmoConfig.tiny()).save_pretrained(tmp_path / "tiny")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "elmokit", "serve", "--model", str(tmp_path / "tiny"), "--port", str(port)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    address, outcomes = f"http://127.0.0.1:{port}", []
    try:
        wait_for(address, process)
        text = "the river bank is long " * 300

        def ask():
            try:
                outcomes.append(len(post(address, "/embed", {"inputs": [text] * 4})))
            except (urllib.error.URLError, ConnectionError) as problem:
                outcomes.append(problem)

        clients = [threading.Thread(target=ask) for _ in range(8)]
        for client in clients:
            client.start()
        while has_read_nothing(address):
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        for client in clients:
            client.join()
        _, said = process.communicate(timeout=30)
    finally:
        process.kill()
    assert outcomes == [4] * 8
    assert "Traceback" not in said


@pytest.mark.parametrize(
    "said", [b"", b"POST /embed HTTP/1.1\r\nHost: 127", b"GET /health HTTP/1.1\r\nHost: x\r\n\r\nGET /hea"]
)
def test_who_says_nothing_more_is_not_kept_on_the_line(said):
    async def scenario():
        async def answer(scope, receive, send):
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b""})

        config = uvicorn.Config(answer, log_config=None, lifespan="off")
        config.load()
        state = ServerState()
        loop = asyncio.get_running_loop()
        kind = make_protocol(0.1)
        server = await loop.create_server(lambda: kind(config, state, {}), "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(said)
        heard = await asyncio.wait_for(reader.read(), 5)  # ends when the server closes the connection
        writer.close()
        server.close()
        return heard

    assert asyncio.run(scenario()).count(b"200 OK") == said.count(b"\r\n\r\n")
