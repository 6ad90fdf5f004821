"""`python -m elmokit` is the command `elmo`, also under torchrun: `torchrun --nproc-per-node 4 -m elmokit train …`."""

from __future__ import annotations

import sys

from elmokit.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    sys.exit(main())
