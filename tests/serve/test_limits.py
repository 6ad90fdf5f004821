"""What a server refuses: at once, in one shape, without a word of its inside or of the client's text."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading

import pytest
import uvicorn

from elmokit.errors import ConfigError
from elmokit.serve import app as serving
from elmokit.serve.guard import Guard
from elmokit.serve.metrics import Metrics
from elmokit.serve.settings import Limits

KINDS = {"Unhealthy", "Backend", "Overloaded", "Validation", "Empty"}


def check_refusal(answer, status):
    assert answer.status_code == status, answer.text
    told = answer.json()
    assert set(told) == {"error", "error_type"} and told["error_type"] in KINDS
    assert told["error"] and "\n" not in told["error"] and "Traceback" not in told["error"]
    return told


def test_a_comparison_whose_answer_would_be_many_times_its_question_is_refused(serve):
    client = serve()
    told = check_refusal(client.post("/compare", json={"word": "a", "texts": "a " * 501}), 413)
    assert "stands 501 times in the texts: expected at most 500" in told["error"]
    assert len(client.post("/compare", json={"word": "a", "texts": "a " * 30}).json()["uses"]) == 30


@pytest.mark.parametrize(
    "path", ["/embed", "/embed_all", "/tokenize", "/layers", "/compare", "/predict", "/substitutes"]
)
def test_a_long_text_is_split_in_a_thread_so_that_others_are_answered_meanwhile(serve, path):
    client, threads = serve(), set()
    model = client.shelf.find_model(None)
    segmenter = model.embedder.segmenter

    def split(text):
        threads.add(threading.current_thread().name)
        return segmenter(text)

    model.embedder.segmenter = split
    text = "bank " * 6_000  # more words than a text may have, which is seen only once it is split
    own = {"/layers": ["texts"], "/compare": ["texts", "word"], "/predict": ["text"], "/substitutes": ["text", "word"]}
    fields = own.get(path, ["inputs"])
    client.post(path, json={field: "bank" if field == "word" else text for field in fields})
    assert threads and all(name.startswith("asyncio_") for name in threads)


def test_a_misspelt_field_of_our_own_routes_is_refused(serve):
    client = serve()
    told = check_refusal(client.post("/layers", json={"texts": "a", "vectros": "list"}), 422)
    assert told["error"] == "vectros: no field of this request has that name"
    check_refusal(client.post("/tag", json={"texts": "a", "name": "x"}), 422)
    assert (
        client.post("/embed", json={"inputs": "a", "prompt_name": None}).status_code == 200
    )  # other servers have more


def test_too_much_of_anything_is_refused(serve):
    client = serve(request_bytes=2_000, texts=3, text_words=10, request_words=15)
    check_refusal(client.post("/embed", json={"inputs": "x" * 3_000}), 413)
    check_refusal(client.post("/embed", json={"inputs": ["a"] * 4}), 413)
    assert "11 words" in check_refusal(client.post("/embed", json={"inputs": "a " * 11}), 413)["error"]
    check_refusal(client.post("/embed", json={"inputs": ["a " * 9, "a " * 9]}), 413)
    assert len(client.post("/embed_all", json={"inputs": "a " * 11, "truncate": True}).json()[0]) == 10
    assert check_refusal(client.post("/embed", json={"inputs": []}), 422)["error_type"] == "Empty"
    assert client.post("/embed", json={"inputs": "a " * 10}).status_code == 200


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 422),
        (b"{", 400),
        (b"[" * 100_000, 400),
        (b'{"inputs": ' + b"[" * 50_000 + b"]" * 50_000 + b"}", 400),
        (b'{"inputs": "\\ud800"}', 422),
        (b'{"inputs": "\xff\xfe"}', 400),
        (b'{"inputs": NaN}', 422),
        (b'{"inputs": 5}', 422),
        (b'{"inputs": [["a"]]}', 422),
        (b'{"inputs": null}', 422),
        (b'{"inputs": "a", "normalize": "yes"}', 422),
        (b'{"inputs": "a", "layers": 99}', 422),
        (b'{"inputs": "a", "layers": "all"}', 422),
        (b'{"inputs": "a", "layers": 1e400}', 422),
        (b'{"inputs": "a", "layers": ' + b"9" * 5_000 + b"}", 400),
        (b'{"inputs": "a", "model": "../../etc/passwd"}', 422),
        (b'{"inputs": "a", "pooling": "sum"}', 422),
    ],
    ids=range(17),
)
def test_what_is_no_request_is_refused_in_one_line(serve, body, status):
    answer = serve().post("/embed", content=body, headers={"content-type": "application/json"})
    told = check_refusal(answer, status)
    assert "passwd" not in told["error"]


@pytest.mark.parametrize(
    ("path", "body", "told"),
    [
        ("/v1/embeddings", b'{"input": 5}', "input: expected a string or a list of strings"),
        ("/embed", b'{"inputs": ["a", 5]}', "inputs.1: expected a string"),
        ("/embed", b'{"inputs": "\\ud800"}', "inputs: half of a surrogate pair is no character"),
        ("/embed", b'{"inputs": "a", "layers": 1.5}', "layers: expected a string or a whole number"),
        ("/embed", b'{"inputs": 5, "normalize": "yes"}', "inputs: expected a string or a list of strings; normalize: "),
        ("/embed", b'{"inputs": "a", "pooling": "sum"}', "pooling: expected 'mean', 'max' or 'first_last'"),
        ("/embed", b"{}", "inputs: Field required"),
        ("/embed", b"[]", "the body: expected an object, {…}"),
        (
            "/embed",
            b"{inputs: 5}",
            "the body is no JSON: expecting property name enclosed in double quotes at character 1",
        ),
    ],
)
def test_what_does_not_fit_is_told_in_the_words_of_the_request(serve, path, body, told):
    answer = serve().post(path, content=body, headers={"content-type": "application/json"})
    assert answer.json()["error"].startswith(told)


def test_a_request_that_does_not_say_that_it_is_json_is_told_how_to(serve):
    answer = serve().post("/embed", content=b'{"inputs": "a"}')  # as curl -d sends it
    told = check_refusal(answer, 422)["error"]
    assert told.startswith("expected JSON: send the header content-type: application/json; the body: ")


@pytest.mark.parametrize("path", ["/static/../app.py", "/static/%2e%2e/app.py", "/../etc/passwd", "/v1/none", "/docs"])
def test_no_path_of_a_client_reaches_a_file(serve, path):
    check_refusal(serve().get(path), 404)


def test_a_token_is_asked_for_everywhere_but_where_a_supervisor_looks(serve):
    client = serve(token="correct-horse-battery")
    assert client.get("/health").status_code == 200
    for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Bearer"}, {"authorization": "é"}):
        raw = {name: value.encode() for name, value in headers.items()}
        check_refusal(client.post("/embed", json={"inputs": "a"}, headers=raw), 401)
        check_refusal(client.get("/metrics", headers=raw), 401)
    right = {"authorization": "Bearer correct-horse-battery"}
    assert client.post("/embed", json={"inputs": "a"}, headers=right).status_code == 200


def test_a_page_of_another_host_cannot_call_a_local_server(serve):
    client = serve(hosts={"localhost", "127.0.0.1", "::1"})
    for host, status in {"evil.example": 421, "localhost:8080": 200, "127.0.0.1": 200, "[::1]:9": 200, "": 421}.items():
        assert client.get("/info", headers={"host": host}).status_code == status


def test_every_answer_forbids_what_the_page_does_not_need(serve):
    client = serve()
    for answer in (client.get("/health"), client.get("/nothing"), client.post("/embed", content=b"{")):
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_texts_are_in_no_log(serve, caplog):
    caplog.set_level("DEBUG")
    client = serve()
    secret = "Quetzalcoatl"
    client.post("/embed", json={"inputs": secret})
    client.post("/embed", json={"inputs": secret, "layers": 77})
    client.post("/substitutes", json={"text": secret, "word": f"{secret}x"})
    client.shelf.find_model(None).batcher.embedder.embed = lambda *_, **__: 1 / 0  # something unforeseen
    told = check_refusal(client.post("/embed", json={"inputs": secret}), 424)
    assert "division" not in told["error"]
    logged = [record.getMessage() for record in caplog.records]
    assert "/embed: ZeroDivisionError" in logged  # the route and the kind of problem
    assert secret not in "".join(logged)


def call_guard(limits, messages, *, headers=(), app=None):
    """What the guard sends when these messages come; `None` never comes."""
    sent = []

    async def read_all(scope, receive, send):
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def receive():
        if messages:
            return messages.pop(0)
        return await asyncio.sleep(60)

    async def send(message):
        sent.append(message)

    guard = Guard(app or read_all, limits, Metrics(), token=None, open_paths=set(), hosts=set())
    scope = {"type": "http", "method": "POST", "path": "/embed", "headers": list(headers)}
    asyncio.run(guard(scope, receive, send))
    return sent[0]["status"], sent[-1]["body"]


def part(body, more=True):
    return {"type": "http.request", "body": body, "more_body": more}


def test_a_slow_sender_is_not_waited_for():
    status, body = call_guard(Limits(body_seconds=0.05), [part(b"{")])
    assert status == 408 and json.loads(body)["error_type"] == "Validation"


def test_a_body_of_unknown_length_is_counted_while_it_comes():
    assert call_guard(Limits(request_bytes=10), [part(b"12345")] * 2 + [part(b"6", more=False)])[0] == 413
    assert call_guard(Limits(request_bytes=11), [part(b"12345")] * 2 + [part(b"6", more=False)])[0] == 200


def test_a_body_that_announces_too_much_is_not_read():
    headers = [(b"content-length", b"99999999999999999999999999")]
    assert call_guard(Limits(request_bytes=10), [], headers=headers)[0] == 413


def test_one_request_more_than_the_bound_is_refused_at_once():
    async def scenario():
        release, statuses = asyncio.Event(), []

        async def wait(scope, receive, send):
            await release.wait()
            await send({"type": "http.response.start", "status": 200, "headers": []})

        async def send(message):
            if message["type"] == "http.response.start":
                statuses.append((message["status"], dict(message["headers"]).get(b"retry-after")))

        guard = Guard(wait, Limits(concurrent_requests=2), Metrics(), token=None, open_paths=set(), hosts=set())
        scope = {"type": "http", "method": "POST", "path": "/embed", "headers": []}
        running = [asyncio.create_task(guard(scope, None, send)) for _ in range(3)]
        await asyncio.sleep(0.01)
        assert statuses == [(429, b"1")]
        release.set()
        await asyncio.gather(*running)
        assert [status for status, _ in statuses] == [429, 200, 200]

    asyncio.run(scenario())


@pytest.mark.parametrize("bounds", [{"texts": 0}, {"body_seconds": 0.0}, {"queued_words": -1}, {"text_words": 2.5}])
def test_a_bound_that_is_none_is_refused(bounds):
    with pytest.raises(ConfigError, match=next(iter(bounds))):
        Limits(**bounds)


def test_an_answer_is_not_kept_back_until_its_head_is_confirmed(serve, monkeypatch):
    doors = []
    monkeypatch.setattr(serving, "WAITS", logging.getLogger("nobody"))
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: doors.extend(sockets))
    with socket.create_server(("127.0.0.1", 0)) as door:
        serving.run_server(serve().app, door)
        with socket.create_connection(door.getsockname()), doors[0].accept()[0] as accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
