"""Two hosts train one model over a network, lose a host and lose the network: are the losses those of one process?

    python benchmarks/two_nodes.py             # needs root and iproute2: it makes two network namespaces

Each host is a network namespace with a process of torchrun and a worker; a pair of virtual cables joins them, and gloo
talks over it. They share the disk, as machines of a cluster do. Host A has the meeting place of torchrun.

    whole   nothing happens
    kill    all processes of host B are killed in the middle; A continues alone; B is started again and joins
    cut     the cable is unplugged; A gives B up after its patience and continues alone; the cable is plugged in again,
            and B is started again, as the manager of a cluster does with a host that does not answer, and joins

Every log must have the losses of one process that was never disturbed, and no step twice. Prints one line per
scenario, and exits with 1 if one of them differs.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

HOSTS = {"a": "10.77.16.1", "b": "10.77.16.2"}
PORT = 29516
PATIENCE = 8
SETTINGS = "--recipe tiny_cpu --lstm.cell-dim 64 --lstm.projection-dim 16 --tokens-per-batch 512 --min-count 1"
SETTINGS += " --learning-rate 1e-4 --muon-learning-rate 1e-4"  # what rounding changes grows with the rates
SETTINGS += f" --log-every 4000 --checkpoint-every 4000 --workers 1 --device cpu --patience {PATIENCE}"
TOLERANCE = 1e-5  # relative: gradients are summed in another order


class Network:
    """Two namespaces and the cable between them."""

    def __init__(self) -> None:
        self.names = {host: f"elmo-{os.getpid()}-{host}" for host in HOSTS}
        self.cables = {host: f"el{os.getpid() % 100000}{host}" for host in HOSTS}

    def __enter__(self) -> Network:
        ip("link", "add", self.cables["a"], "type", "veth", "peer", "name", self.cables["b"])
        for host, address in HOSTS.items():
            ip("netns", "add", self.names[host])
            ip("link", "set", self.cables[host], "netns", self.names[host])
            ip("-n", self.names[host], "addr", "add", f"{address}/24", "dev", self.cables[host])
            ip("-n", self.names[host], "link", "set", "lo", "up")
            ip("-n", self.names[host], "link", "set", self.cables[host], "up")
        return self

    def __exit__(self, *_: object) -> None:
        for name in self.names.values():
            subprocess.run(["ip", "netns", "del", name], check=False)  # and the cable with it

    def plug(self, state: str) -> None:
        ip("-n", self.names["a"], "link", "set", self.cables["a"], state)


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


class Host:
    """torchrun on one host, in a session of its own, so that all its processes can be killed at once."""

    def __init__(self, network: Network, name: str, train: list[str], log: Path) -> None:
        meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{HOSTS['a']}:{PORT}", "--rdzv-id", "elmo"]
        conf = f"is_host={name == 'a'},last_call_timeout=4,join_timeout=120,keep_alive_interval=1"
        command = ["ip", "netns", "exec", network.names[name], sys.executable, "-m", "torch.distributed.run"]
        command += [*meeting, "--rdzv-conf", conf, "--nnodes", "1:2", "--nproc-per-node", "1", "--max-restarts", "5"]
        command += ["--local-addr", HOSTS[name], "-m", "elmokit", *train]
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": network.cables[name], "OMP_NUM_THREADS": "1"}
        # torch 2.13 tells a host that joins later no address of the meeting place, unless sharing it is switched off:
        # only the first rendezvous of rank 0 publishes one (dynamic_rendezvous.py, `next_rendezvous`).
        environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
        self.log = log
        with log.open("a") as file:
            self.process = subprocess.Popen(
                command, env=environment, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
            )

    def kill(self) -> None:
        """End every process of this host; torchrun's workers have sessions of their own."""
        for process in reversed(list_descendants(self.process.pid)):
            os.kill(process, signal.SIGKILL)
        self.process.wait()

    def wait(self, seconds: float) -> int:
        return self.process.wait(timeout=seconds)


def list_descendants(ancestor: int) -> list[int]:
    found = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    pairs = [tuple(map(int, line.split())) for line in found.splitlines()]
    family = [ancestor]
    for member in family:
        family += [pid for pid, parent in pairs if parent == member]
    return family


def read_log(model: Path) -> list[dict[str, float]]:
    path = model.with_name(f"{model.name}.training") / "log.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def wait_for_step(model: Path, step: int, host: Host) -> None:
    """Wait until the run has logged this step."""
    for _ in range(1200):
        if any(line["step"] >= step for line in read_log(model) if line["kind"] == "train"):
            return
        if host.process.poll() is not None:
            raise SystemExit(f"a host has ended before step {step}:\n{host.log.read_text()[-3000:]}")
        time.sleep(0.1)
    raise SystemExit(f"step {step} was not reached in two minutes:\n{host.log.read_text()[-3000:]}")


def disturb(
    scenario: str, network: Network, hosts: dict[str, Host], again: Callable[[], Host], model: Path, steps: int
) -> str:
    """What happens to the hosts while they train; what was seen."""
    if scenario == "whole":
        return ""
    wait_for_step(model, steps // 4, hosts["a"])
    started = time.monotonic()
    if scenario == "kill":
        hosts["b"].kill()
    else:
        network.plug("down")
    before = max(line["step"] for line in read_log(model))
    wait_for_step(model, before + 1, hosts["a"])
    seen = f", A went on alone after {time.monotonic() - started:.0f} s"
    if scenario == "cut":
        network.plug("up")
        hosts["b"].kill()
    hosts["b"] = again()
    return seen


def compare(one: list[dict[str, float]], other: list[dict[str, float]]) -> tuple[str, float]:
    """How far two logs are apart; raises if they do not tell of the same steps."""
    steps = [[(line["kind"], line["step"]) for line in log] for log in (one, other)]
    if steps[0] != steps[1]:
        raise SystemExit(f"the logs tell of other steps: {steps}")
    names = ["loss", "forward", "backward"]
    largest = max(abs(a[name] - b[name]) / abs(a[name]) for a, b in zip(one, other, strict=True) for name in names)
    return f"{len(one)} lines, {', '.join(names)}: largest relative difference {largest:.1e}", largest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenarios", nargs="*", default=["whole", "kill", "cut"])
    parser.add_argument("--tokens", type=int, default=150_000)
    arguments = parser.parse_args()
    bad = []
    with tempfile.TemporaryDirectory() as folder:
        desk = Path(folder)
        subprocess.run([sys.executable, "-m", "elmokit", "sample", desk / "sample"], check=True, capture_output=True)
        train = ["train", str(desk / "sample/story.txt"), *SETTINGS.split(), "--tokens", str(arguments.tokens)]
        quiet = {"env": {**os.environ, "OMP_NUM_THREADS": "1"}, "check": True, "capture_output": True}
        alone = [sys.executable, "-m", "elmokit", *train, "-o", desk / "alone"]
        subprocess.run(alone, **quiet)
        expected = read_log(desk / "alone")
        steps = max(line["step"] for line in expected)
        for scenario in arguments.scenarios:
            model = desk / scenario
            started = time.monotonic()
            with Network() as network:

                def start(name: str, network: Network = network, model: Path = model) -> Host:
                    return Host(network, name, [*train, "-o", str(model)], desk / f"{model.name}-{name}.log")

                hosts = {name: start(name) for name in HOSTS}
                try:
                    seen = disturb(scenario, network, hosts, lambda: start("b"), model, steps)
                    codes = [hosts[name].wait(300) for name in HOSTS]
                finally:
                    for host in hosts.values():
                        if host.process.poll() is None:
                            host.kill()
            if any(codes):
                logs = "\n".join((desk / f"{scenario}-{name}.log").read_text()[-6000:] for name in HOSTS)
                raise SystemExit(f"{scenario}: exit codes {codes}\n{logs}")
            worlds = (desk / f"{scenario}-a.log").read_text().count("2 processes")
            summary, largest = compare(expected, read_log(model))
            took = f"{time.monotonic() - started:.0f} s"
            print(f"{scenario:6} {summary}; exit codes {codes}, {worlds} starts with 2 hosts{seen}; {took}", flush=True)
            if largest > TOLERANCE or not (model / "model.safetensors").is_file():
                bad.append(scenario)
    sys.exit(f"other losses than one process has: {', '.join(bad)}" if bad else 0)


if __name__ == "__main__":
    main()
