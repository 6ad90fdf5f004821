"""`python -m elmokit` is the command `elmo`, also under torchrun: `torchrun --nproc-per-node 4 -m elmokit train …`."""

from __future__ import annotations

import sys

__all__ = ["run"]


def run() -> int:
    """Run the command; Ctrl-C is no accident, also in the third of a second in which Python imports it."""
    try:
        from elmokit.cli import main

        return main()
    except KeyboardInterrupt:
        sys.stderr.write("elmo: stopped\n")
        return 130


if __name__ == "__main__":
    sys.exit(run())
