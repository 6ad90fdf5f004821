"""Where and when something was measured: what a dated result must name."""

from __future__ import annotations

import datetime
import os
import platform
import sys
from pathlib import Path

from elmokit.bench.plan import Plan
from elmokit.cores import count_cores

__all__ = ["command_of", "machine_facts"]


def machine_facts() -> dict[str, str]:
    """Date, processor, cores, memory, system and how busy the machine is.

    Example:
        >>> sorted(machine_facts())
        ['cores', 'date', 'load', 'memory', 'processor', 'python', 'system']
    """
    load = "not known" if not hasattr(os, "getloadavg") else f"{os.getloadavg()[0]:.1f}"
    return {
        "date": datetime.date.today().isoformat(),
        "processor": _from("/proc/cpuinfo", "model name") or platform.processor() or "not known",
        "cores": str(count_cores()),
        "memory": _memory(),
        "system": f"{platform.system()} {platform.machine()}",
        "load": load,
        "python": sys.version.split()[0],
    }


def command_of(plan: Plan) -> str:
    """The command that measures this again; paths are left to the reader."""
    parts = ["elmo bench"]
    parts += [f"--text {plan.text.name}"] if plan.text else []
    parts += [f"--peer {peer.name}=PYTHON" for peer in plan.peers]
    parts += [f"--peer-setup {peer.name}={peer.setup.name}" for peer in plan.peers if peer.setup]
    parts += [f"--weights {size}=FOLDER" for size, _ in plan.weights]
    parts += [f"--sizes {' '.join(plan.sizes)} --batch-sizes {' '.join(map(str, plan.batch_sizes))}"]
    parts += [f"--runs {plan.runs} --threads {plan.threads}"]
    if plan.compares != plan.grows:
        parts += ["--parts " + ("table" if plan.compares else "growth")]
    return " ".join(parts)


def _memory() -> str:
    total = _from("/proc/meminfo", "MemTotal")
    return f"{int(total.split()[0]) / 2**20:.0f} GiB" if total else "not known"


def _from(path: str, name: str) -> str | None:
    """The value of a `name : value` line of a system file, if there is one."""
    if not Path(path).is_file():
        return None
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return None
