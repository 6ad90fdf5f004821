"""`make demo`: the commands on the bundled model, as a newcomer would type them."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

from elmokit.cli import main

FOLDER = Path("demo")
SENTENCES = [
    "She sat on the bank of the river and watched the boats.",
    "They walked along the grassy bank of the stream.",
    "The bank refused to lend them more money.",
    "He borrowed the money from a bank in the city.",
]


def show(*arguments: str) -> None:
    """Print a command as typed, run it, and stop the demo if it fails."""
    print("$", shlex.join(["elmo", *arguments]), flush=True)
    code = main(arguments)
    if code:
        sys.exit(code)
    print(flush=True)


if __name__ == "__main__":
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    text, vectors = str(FOLDER / "sentences.txt"), str(FOLDER / "vectors.parquet")
    Path(text).write_text("\n".join(SENTENCES) + "\n", encoding="utf-8")
    show("compare", "bank", *SENTENCES)
    print("1 and 2 are river banks, 3 and 4 money banks: above layer 0, banks of the same kind are more alike.\n")
    show("predict", SENTENCES[0], "--substitutes", "bank")
    show("embed", text, "-o", vectors)
