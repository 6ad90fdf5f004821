"""JSON lines: `{"line": 0, "words": ["The", …], "vectors": [[0.12, …], …]}`, one object a row, in UTF-8.

With all layers, `layer_0`, `layer_1`, … stand in the place of `vectors`. Numbers have as many digits as it takes to get
the stored float16 or float32 back exactly. For looking at and for languages without a Parquet reader: it is many
times larger than the other formats.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from elmokit.embed.parts import Part
from elmokit.embed.sinks.contents import Contents

__all__ = ["write_jsonl"]

DIGITS = {"float16": 5, "float32": 9}


def write_jsonl(parts: Sequence[Part], folder: Path, name: str, contents: Contents) -> None:
    """Write `name` into the folder."""
    pattern = "[" + ",".join([f"%.{DIGITS[contents.dtype]}g"] * contents.dim) + "]"
    with (folder / name).open("w", encoding="utf-8", newline="\n") as file:
        for part in parts:
            for line, _, words, vectors in part.rows():
                columns = ", ".join(
                    f'"{column}": [{",".join(_numbers(contents.column(vectors, number), pattern))}]'
                    for number, column in enumerate(contents.columns)
                )
                file.write(f'{{"line": {line}, "words": {json.dumps(words, ensure_ascii=False)}, {columns}}}\n')


def _numbers(vectors_WD: np.ndarray, pattern: str) -> list[str]:
    if np.isfinite(vectors_WD).all():
        return [pattern % tuple(vector_D) for vector_D in vectors_WD.tolist()]
    # JSON has no word for NaN or infinity.
    rows = [[value if np.isfinite(value) else None for value in vector_D] for vector_D in vectors_WD.tolist()]
    return [json.dumps(row) for row in rows]
