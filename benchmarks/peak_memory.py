"""How much memory a model takes: elmokit in float32 and int8 beside other libraries, each in a process of its own.

    python benchmarks/peak_memory.py FOLDER --text corpus.tok [--peer allennlp=PYTHON] [--peer bert=PYTHON]
        [--setup allennlp_shim.py]

FOLDER holds AllenNLP's files of a model (`elmo convert … --format allennlp`), which elmokit and AllenNLP both read; for
elmokit `--native SOURCE` may be given instead. Each process loads its model and embeds three batches of 32 sentences,
all layers. Printed: the most memory it has had (VmHWM of Linux), what it had before the model, and seconds of loading.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from elmokit.bench.child import Child
from elmokit.text.files import LineReader

BATCHES, ROWS = 3, 32
ADAPTERS = {"allennlp": "allennlp", "bert": "transformers", "minilm": "transformers"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--text", required=True)
    parser.add_argument("--native")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PYTHON")
    parser.add_argument("--setup", type=Path)
    asked = parser.parse_args()
    lines = (line.text().split() for line in LineReader([asked.text]))
    sentences = [words for words, _ in zip(filter(None, lines), range(BATCHES * ROWS), strict=False)]
    settings = {"model": asked.folder, "largest_batch": ROWS, "words": []}
    ours = {**settings, "model": asked.native or asked.folder}
    measure("elmokit float32", Child("elmokit", threads=2), ours, sentences)
    measure("elmokit int8", Child("elmokit", threads=2), {**ours, "precision": "int8"}, sentences)
    for peer in asked.peer:
        name, python = peer.split("=", 1)
        child = Child(ADAPTERS[name], python=python, setup=asked.setup if name == "allennlp" else None, threads=2)
        measure(name, child, {**settings, "which": name}, sentences)


def measure(title: str, child: Child, settings: dict, sentences: list[list[str]]) -> None:
    with child:
        child.ask("versions")
        before = peak_mb(child)
        seconds = child.ask("load", name="model", settings=settings)["seconds"]
        child.ask("time", name="model", sentences=sentences, batch_size=ROWS)
        peak = peak_mb(child)
    print(f"{title:18s} {peak:8,.0f} MB, {before:5,.0f} before the model, loaded in {seconds:.1f} s", flush=True)


def peak_mb(child: Child) -> float:
    status = Path(f"/proc/{child._process.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1000


if __name__ == "__main__":
    main()
