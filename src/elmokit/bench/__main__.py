"""`python -m elmokit.bench`: what `elmo bench` does, without tyro."""

from __future__ import annotations

import sys

from elmokit.bench.arguments import parsed
from elmokit.bench.running import run_bench
from elmokit.errors import ElmoError

__all__: list[str] = []

if __name__ == "__main__":
    try:
        sys.stdout.write(run_bench(parsed()))
    except ElmoError as problem:
        sys.stderr.write(f"elmo: {problem}\n")
        sys.exit(2 if isinstance(problem, ValueError) else 1)
