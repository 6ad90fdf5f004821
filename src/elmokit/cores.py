"""How many cores this process may use, and how many threads compute on them.

One number holds for everything that computes: torch and the BLAS libraries take it from the environment when they are
loaded, the C++ kernels and the processes that split text follow torch. `use_threads` is where a command sets it. A
program of the user's own calls `torch.set_num_threads`, which the rest follows, too.

Nothing here imports torch: worker processes that only split text, and commands that have not begun, ask for numbers.
"""

from __future__ import annotations

import functools
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from elmokit.errors import InputError

__all__ = ["count_cores", "count_threads", "thread_settings", "use_threads"]

# Of OpenMP (torch's own), MKL (torch's matmuls) and OpenBLAS (numpy's).
VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
# How OpenMP's threads wait for work and for each other: by the standard, in GNU's library, in Intel's and LLVM's.
WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
SPINS = 1000  # of GNU's library, some 30 microseconds; its own choice is a hundred times as long
LOOKS, BETWEEN_LOOKS = 5, 0.01  # at what else runs; seconds

OWN_GROUPS, GROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
SYSTEM = Path("/proc/stat")


def count_cores() -> int:
    """How many cores this process may use: those it is bound to, and no more than the quota of its container."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(bound, _read_quota() or bound)


def count_threads() -> int:
    """How many threads a computation may use here: as many as it was told, and never more than there are cores."""
    torch = sys.modules.get("torch")
    if torch is not None:
        return min(torch.get_num_threads(), count_cores())
    told = next((os.environ[name] for name in VARIABLES if os.environ.get(name)), "")
    first = told.split(",")[0].strip()  # OpenMP takes a number for each level of nesting
    return min(int(first), count_cores()) if first.isdecimal() and int(first) else count_cores()


def use_threads(number: int | None = None) -> None:
    """Compute with so many threads from now on, in this process and those that it starts.

    Called before torch is imported, it also says how OpenMP's threads wait for each other, unless the user has. They
    would spin for milliseconds: where other programs have the cores, that is the time of the very threads they wait
    for, and training takes many times as long. Where each thread finds a free core they spin for a moment only, which
    is as fast; elsewhere they sleep at once. Not everywhere: training on a CPU is thousands of tiny operations per
    step, and a quiet machine takes 1.7 times as long for them with threads that sleep (LOG.md).

    Arguments:
        number: of threads; as many as `count_threads` says if not given.
    """
    cores = count_cores()
    if number is not None and not 1 <= number <= cores:
        most = f" to {cores}, the cores" if cores > 1 else ", the core"
        raise InputError(f"threads={number}: expected 1{most} that this process may use")
    number = number or count_threads()
    torch = sys.modules.get("torch")
    if torch is None:
        os.environ.update(thread_settings(number))
        if not any(name in os.environ for name in WAITING):
            sleeps = _count_running() + number > (os.cpu_count() or 1)
            os.environ.update({"OMP_WAIT_POLICY": "passive"} if sleeps else {"GOMP_SPINCOUNT": str(SPINS)})
    elif torch.get_num_threads() != number:
        torch.set_num_threads(number)


def thread_settings(number: int) -> dict[str, str]:
    """The environment in which libraries that compute use so many threads.

    Example:
        >>> thread_settings(2)["OMP_NUM_THREADS"]
        '2'
    """
    return dict.fromkeys(VARIABLES, str(number))


def _count_running() -> int:
    """How many threads of other programs have work to do, on the whole machine; 0 where the system does not tell.

    The median of some looks: what appears for a moment is no load, and a load may be away for a moment.
    """
    seen = []
    for look in range(LOOKS):
        time.sleep(BETWEEN_LOOKS if look else 0)
        try:
            found = re.search(r"^procs_running (\d+)", SYSTEM.read_text(encoding="utf-8"), re.MULTILINE)
        except OSError:  # another system
            return 0
        seen.append(int(found[1]) - 1 if found else 0)  # this process is one of them
    return max(0, sorted(seen)[LOOKS // 2])


@functools.cache
def _read_quota() -> int | None:
    """The whole cores that control groups of Linux grant; `None` without a limit.

    A quota of 1.5 cores is one: the threads of a second would be stopped half of the time, and the first wait for them.
    """
    try:
        lines = OWN_GROUPS.read_text(encoding="utf-8").splitlines()
    except OSError:  # another system
        return None
    quotas = [quota for line in lines for quota in _quotas(*line.split(":", 2)[1:])]
    return max(1, int(min(quotas))) if quotas else None


def _quotas(controllers: str, path: str) -> Iterator[float]:
    """The cores that a group and those around it grant. In a container the path may be one that only its host knows."""
    if controllers and "cpu" not in controllers.split(","):
        return
    root = GROUPS / "cpu" if controllers else GROUPS  # version 1 has a tree for each controller, version 2 only one
    own = root / path.lstrip("/")
    for group in (own, *own.parents):
        if not group.is_relative_to(root):
            return
        try:
            if controllers:
                limit, period = ((group / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
            else:
                limit, period = (group / "cpu.max").read_text().split()
            if limit.strip() not in ("max", "-1"):
                yield int(limit) / int(period)
        except (OSError, ValueError, ZeroDivisionError):  # no such group here
            continue
