"""`elmo serve`: names, tokens and mistakes before a model is loaded; a server that is stopped finishes its work."""

from __future__ import annotations

import asyncio
import builtins
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest
import torch
import uvicorn
from uvicorn.server import ServerState

from elmokit import Elmo, ElmoConfig, io
from elmokit.cli import main
from elmokit.commands.serve import _name_each
from elmokit.errors import CheckpointError
from elmokit.serve.connections import make_protocol
from elmokit.serve.models import open_model
from elmokit.serve.settings import Limits


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "a=x", "--model", "a=y"], "'a' is there already"),
        (["--model", "=x"], "expected a source, or NAME=SOURCE"),
        (["--token-file", "nowhere"], "cannot be read"),
        (["--texts", "0"], "texts is 0"),
        (["--task", "names=nowhere"], "the folder nowhere does not exist: expected a task model that `elmo"),
    ],
)
def test_mistakes_are_told_in_the_words_of_the_command(arguments, message, capsys):
    assert main(["serve", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_path_with_an_equals_sign_is_a_path(tmp_path):
    (tmp_path / "lr=3").mkdir()
    path = str(tmp_path / "lr=3")
    assert _name_each((path, f"mine={path}"), "--model") == {"lr=3": path, "mine": path}


def test_a_served_model_has_its_weights_once_and_says_what_is_damaged(tmp_path):
    torch.manual_seed(1)
    softmax = {"softmax.weight": torch.randn(4, 64), "softmax.bias": torch.zeros(4)}
    checkpoint = Elmo.random(ElmoConfig.tiny()).to_checkpoint()
    io.save(checkpoint, tmp_path / "plain")
    checkpoint.softmax, checkpoint.output_words = softmax, ["<S>", "</S>", "<UNK>", "a"]
    io.save(checkpoint, tmp_path / "whole")
    models = [open_model(name, str(tmp_path / name), Limits(), device="cpu") for name in ("whole", "plain")]
    assert models[0].language_model.elmo is models[0].embedder.elmo
    assert models[1].language_model is None
    in_int8 = open_model("int8", str(tmp_path / "whole"), Limits(), precision="int8")
    assert in_int8.language_model.elmo.precision == "float32"
    for model in (*models, in_int8):
        model.batcher.close()
    file = tmp_path / "whole" / "softmax.safetensors"
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(CheckpointError, match="softmax.safetensors"):
        open_model("whole", str(tmp_path / "whole"), Limits(), device="cpu")


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


@contextmanager
def start_server(folder, *options):
    """A server over a tiny model in a process of its own, and its address."""
    torch.manual_seed(0)
    Elmo.random(ElmoConfig.tiny()).save_pretrained(folder / "tiny")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "elmokit", "serve", "--model", str(folder / "tiny"), "--port", str(port), *options]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        address = f"http://127.0.0.1:{port}"
        wait_for(address, process)
        yield process, address
    finally:
        process.kill()


def test_a_server_that_is_stopped_answers_what_it_has_taken(tmp_path):
    outcomes, text = [], "the river bank is long " * 300
    with start_server(tmp_path) as (process, address):

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
    assert outcomes == [4] * 8
    assert "Traceback" not in said


SECRET = b"Quetzalcoatl"
HEAD = b" HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
LONG = b'{"texts": "' + SECRET + b" river" * 3_000 + b'", "vectors": "list"}'
RUDE = {  # what a client sends before it goes; it waits for an answer in between
    "nothing": [b""],
    "half of a head": [b"POST /embed HTTP/1.1\r\nHost: 127"],
    "no body": [b"POST /embed" + HEAD + b"Content-Length: 50\r\n\r\n"],
    "half of a body": [b"POST /embed" + HEAD + b'Content-Length: 50\r\n\r\n{"inputs": "' + SECRET],
    "a wrong path": [b"POST /" + SECRET + HEAD + b"Content-Length: 50\r\n\r\n{"],
    "all": [b"POST /layers" + HEAD + b"Content-Length: %d\r\n\r\n" % len(LONG) + LONG],
    "several": [(b"POST /layers" + HEAD + b"Content-Length: %d\r\n\r\n" % len(LONG) + LONG) * 3],
    "half of the chunks": [b"POST /embed" + CHUNKED + b'd\r\n{"inputs": "a\r\n'],
    "no chunk": [b"POST /embed" + CHUNKED + SECRET + b"\r\n"],
    "no chunk where none is read": [b"POST /health" + CHUNKED + SECRET + b"\r\n"],
    "no chunk where none is let in": [b"POST /embed" + CHUNKED.replace(b"127.0.0.1", b"x.example") + SECRET + b"\r\n"],
    "no chunk after the answer": [b"GET /info" + CHUNKED, SECRET + b"\r\n"],
    "a path of two lines": [b"POST /%0a" + SECRET + CHUNKED + SECRET + b"\r\n"],
    "another protocol": [b"GET /info HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"],
    "no HTTP": [b"\x16\x03\x01" + SECRET + b"\r\n\r\n"],
}


def leave(client, how):
    if how == "reset":
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    if how == "half":
        client.shutdown(socket.SHUT_WR)
        client.recv(10)
    client.close()


def test_clients_that_go_away_are_not_worth_a_line(tmp_path):
    with start_server(tmp_path, "--quiet", "--body-seconds", "1") as (process, address):
        port = int(address.rpartition(":")[2])
        for how in ("close", "reset", "half"):
            for parts in RUDE.values():
                client = socket.create_connection(("127.0.0.1", port), timeout=20)
                client.sendall(parts[0])
                for part in parts[1:]:
                    assert client.recv(65536).startswith(b"HTTP/1.1 200")
                    client.sendall(part)
                leave(client, how)
            assert len(post(address, "/embed", {"inputs": "a river bank"})) == 1
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=30)
    assert said == ""


async def listen(limits, body):
    """A server in this process that answers everything with this body, and the connections it keeps."""

    async def answer(scope, receive, send):
        length = str(len(body)).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
        await send({"type": "http.response.body", "body": body})

    config = uvicorn.Config(answer, log_config=None, lifespan="off")
    config.load()
    kind, state = make_protocol(limits), ServerState()
    server = await asyncio.get_running_loop().create_server(lambda: kind(config, state, {}), "127.0.0.1", 0)
    return server, state.connections


@pytest.mark.parametrize(
    "said", [b"", b"POST /embed HTTP/1.1\r\nHost: 127", b"GET /health HTTP/1.1\r\nHost: x\r\n\r\nGET /hea"]
)
def test_who_says_nothing_more_is_not_kept_on_the_line(said):
    async def scenario():
        server, _ = await listen(Limits(body_seconds=0.1), b"")
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(said)
        heard = await asyncio.wait_for(reader.read(), 5)  # ends when the server closes the connection
        writer.close()
        server.close()
        return heard

    assert asyncio.run(scenario()).count(b"200 OK") == said.count(b"\r\n\r\n")


def test_who_takes_nothing_of_an_answer_is_hung_up_on_and_who_is_slow_is_not():
    size = 50_000_000  # more than the system takes from the server for a client that does not read

    async def scenario():
        server, connections = await listen(Limits(answer_seconds=0.2), b"x" * size)
        address = server.sockets[0].getsockname()
        reader, writer = await asyncio.open_connection(*address, limit=2**20)
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        heard = 0
        while heard < size and (part := await reader.read(2**20)):
            heard += len(part)
            await asyncio.sleep(0.02)  # all of it takes longer than five times the bound
        writer.close()
        while connections:
            await asyncio.sleep(0.01)
        with socket.create_connection(address) as mute:
            mute.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            while not connections:
                await asyncio.sleep(0.01)
            deadline = time.monotonic() + 10
            while connections and time.monotonic() < deadline:
                await asyncio.sleep(0.05)
        server.close()
        return heard, len(connections)

    assert asyncio.run(scenario()) == (size, 0)
