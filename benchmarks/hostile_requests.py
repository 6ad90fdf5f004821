"""Ten thousand requests that nobody should send: does the server stay up, and does it say the right thing?

    python benchmarks/hostile_requests.py [--requests 10000] [--seed 0]

Starts `elmo serve` with small bounds and sends, over raw sockets: bodies that are no UTF-8 or no JSON, JSON thousands
of levels deep, huge strings and numbers, NaN, wrong types, lone surrogates, made-up methods, headers and paths, lengths
that lie, connections that are dropped in the middle, and senders that never finish. A failure is: an answer with a
status that /openapi.json does not declare for any route, a body that is not one line in the declared shape, a path of
this machine or a traceback in it, no answer where one is due, a line on the server's standard error, or a server that
does not answer a good request afterwards. Prints what was answered, and exits with 1 if there was a failure.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryFile

from server_load import SERVER, Server

BOUNDS = ["--request-bytes", "200000", "--body-seconds", "1", "--concurrent-requests", "64"]
ROUTES = ["/embed", "/embed_all", "/tokenize", "/v1/embeddings", "/layers", "/compare", "/predict", "/substitutes"]
ROUTES += ["/tag", "/inside", "/info", "/health", "/metrics", "/v1/models", "/", "/openapi.json"]
TRICKS = [
    "/../../etc/passwd",
    "/static/../app.py",
    "/static/%2e%2e%2fapp.py",
    "/static//etc/passwd",
    "//",
    "/%00",
    "/%ff",
]
TRICKS += ["/embed/../info", "/EMBED", "/embed?x=" + "y" * 5000, "/" + "a" * 20000, "http://evil.example/embed", "*"]
METHODS = ["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "TRACE", "BREW", "P\x00ST", ""]
KEYS = [
    "inputs",
    "input",
    "texts",
    "text",
    "word",
    "model",
    "layers",
    "top",
    "occurrence",
    "normalize",
    "task",
    "pooling",
]
VALUES = [None, True, 0, -1, 10**30, 1.5, "", "bank", "a\u0000b", "😀" * 500, "x" * 150_000, [], {}, [[]], ["a"] * 2000]
VALUES += [{"a": 1}, ["a", 1], "../../etc/passwd", "average", "all", 99, "한국", "\u202e", "a " * 6000]
ODD = [b"NaN", b"-Infinity", b"1e999", b"9" * 5000, b'"\\ud800"', b'"\xff"', b"'a'"]
KINDS = ["application/json"] * 5 + ["text/plain", "x"]
HEADERS = ["X: " + "y" * 70_000, "Host: evil.example", "Transfer-Encoding: chunked", "\x00: y", ": y"]
DECLARED = {400, 401, 404, 405, 408, 413, 421, 422, 424, 429, 503}
SECRETS = ("Traceback", "site-packages", str(Path(__file__).parents[1]), "/usr/", 'File "')


def draw_body(draw):
    """A body, most of them bad."""
    kind = draw.randrange(10)
    if kind == 0:
        return draw.randbytes(draw.randrange(2000))
    if kind == 1:
        depth = draw.randrange(1, 60_000)
        return draw.choice([b"[" * depth, b'{"a":' * (depth // 5), b'{"inputs":' + b"[" * depth + b"]" * depth + b"}"])
    if kind == 2:
        return b'{"inputs": ' + draw.choice(ODD) + b"}"
    values = {key: draw.choice(VALUES) for key in draw.sample(KEYS, draw.randrange(1, 6))}
    body = json.dumps(values, ensure_ascii=False).encode("utf-8", "surrogatepass")
    if kind == 3:
        cut = draw.randrange(len(body) + 1)
        return body[:cut] + draw.randbytes(3) + body[cut:]
    return body


def draw_request(draw):
    """The bytes of a request, whether all of them are sent, and whether an answer is due."""
    body = draw_body(draw)
    method = "POST" if draw.random() < 0.8 else draw.choice(METHODS)
    path = draw.choice(ROUTES) if draw.random() < 0.8 else draw.choice(TRICKS)
    length = len(body) if draw.random() < 0.9 else draw.choice([0, 5, len(body) + 100, 10**12, -1, "x"])
    headers = [f"Content-Length: {length}", "Content-Type: " + draw.choice(KINDS)]
    if draw.random() < 0.05:
        headers.append(draw.choice(HEADERS))
    head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n" + "".join(f"{each}\r\n" for each in headers) + "\r\n"
    raw = head.encode("latin-1", "replace") + body
    is_cut = draw.random() < 0.05
    if is_cut:
        raw = raw[: draw.randrange(len(raw))]
    return raw, draw.random() < 0.5 if is_cut else False


def send(port, seed):
    """One request; what came back."""
    raw, drops = draw_request(random.Random(seed))
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        try:
            connection.sendall(raw)
            if drops:
                return "dropped", b""
            answer = b""
            while b"\r\n\r\n" not in answer:
                part = connection.recv(65536)
                if not part:
                    return "closed", answer
                answer += part
            head, _, body = answer.partition(b"\r\n\r\n")
            status = int(head.split()[1])
            if raw.startswith(b"HEAD "):
                return status, None  # such an answer has no body
            lines = head.lower().split(b"\r\n")
            lengths = [line.partition(b":")[2] for line in lines if line.startswith(b"content-length:")]
            while (not lengths or len(body) < int(lengths[0])) and (part := connection.recv(65536)):
                body += part
            return status, body[: int(lengths[0])] if lengths else body
        except (ConnectionError, TimeoutError) as problem:
            return type(problem).__name__, b""


def complain(status, body):
    """What is wrong with an answer; nothing if it is as it should be."""
    if body is None:
        return "" if status in DECLARED | {200} else f"undeclared status {status}"
    if status == "TimeoutError":
        return "no answer"
    text = body.decode("utf-8", "replace")
    if isinstance(status, str) or status in (200, 204, 304, 307):
        return "" if isinstance(status, str) or not any(secret in text for secret in SECRETS) else "leaks"
    if any(secret in text for secret in SECRETS):
        return "leaks"
    if status not in DECLARED:
        return f"undeclared status {status}"
    if "Invalid HTTP request received." in text:
        return ""  # what is no HTTP is told by the server below ours
    if not text and status == 405:
        return ""
    try:
        told = json.loads(text)
    except ValueError:
        return f"no JSON: {text[:80]!r}"
    return "" if set(told) == {"error", "error_type"} and "\n" not in told["error"] else f"another shape: {text[:80]!r}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    with TemporaryFile("w+") as said, Server([*SERVER, *BOUNDS], said) as server, ThreadPoolExecutor(16) as pool:
        before, answers, failures = server.megabytes(), Counter(), []
        seeds = [f"{asked.seed} {number}" for number in range(asked.requests)]
        for seed, (status, body) in zip(seeds, pool.map(lambda seed: send(server.port, seed), seeds), strict=True):
            answers[status] += 1
            problem = complain(status, body)
            if problem:
                failures.append((seed, problem))
        good = json.dumps({"inputs": "the river bank"}).encode()
        request = b"POST /embed HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\n"
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
            connection.sendall(request + f"Content-Length: {len(good)}\r\n\r\n".encode() + good)
            if b" 200 " not in connection.recv(65536)[:20]:
                failures.append(("afterwards", "a good request was not answered"))
        said.seek(0)
        failures += [("standard error", line.rstrip()) for line in said]
        print(f"{asked.requests:,} requests, seed {asked.seed}: {dict(answers)}")
        print(f"memory {before:.0f} MB before, {server.megabytes():.0f} MB after")
    for seed, problem in failures[:20]:
        print(f"failure at seed {seed!r}: {problem}")
    print(f"{len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
