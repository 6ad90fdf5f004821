"""`make demo`: make a small model and show the commands on it, as a newcomer would type them."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

from elmokit import Elmo, ElmoConfig
from elmokit.cli import main

FOLDER = Path("demo")
SENTENCES = [
    "She sat on the river bank and watched the water.",
    "They walked along the bank of the river.",
    "The bank lent him the money for the house.",
]
WARNING = """
  No trained model is bundled with elmokit yet, so this demo made a tiny one with RANDOM weights.
  The commands are real; the vectors and similarities below MEAN NOTHING yet.
  With a model of your own: --model FOLDER
"""


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
    model, text, vectors = (str(FOLDER / name) for name in ("random-model", "sentences.txt", "vectors.parquet"))
    Elmo.random(ElmoConfig.tiny()).save_pretrained(model)
    Path(text).write_text("\n".join(SENTENCES) + "\n", encoding="utf-8")
    print(WARNING)
    show("info", model)
    show("compare", "bank", *SENTENCES, "--model", model)
    show("embed", text, "-o", vectors, "--model", model)
    print(WARNING)
