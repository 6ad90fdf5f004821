"""From options to results on the screen and in files: what both commands call."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from elmokit.bench.arguments import Options
from elmokit.bench.drawing import draw_growth
from elmokit.bench.report import markdown
from elmokit.errors import InputError, MissingExtra, OutputError
from elmokit.io.atomic import replace_text

__all__ = ["run_bench"]


def run_bench(options: Options) -> str:
    """Measure, write the files that were asked for, and give the tables; progress goes to standard error."""
    _check_output(options.output)
    began = time.monotonic()

    def say(text: str) -> None:
        sys.stderr.write(f"{time.monotonic() - began:5.0f} s  {text}\n")

    def keep(result: dict[str, Any]) -> None:
        result["minutes"] = round((time.monotonic() - began) / 60, 1)
        if options.output is not None:
            _write(result, options.output, options.picture, say)

    if options.device == "cpu":
        from elmokit.bench.measuring import measured

        result = measured(options.plan(), say)
    else:
        from elmokit.bench.device import measured_on_device

        asked = {"sizes": options.sizes, "runs": options.runs, "quick": options.quick, "parts": options.chosen_parts()}
        result = measured_on_device(options.device, **asked, say=say, keep=keep)
    keep(result)
    return markdown(result)


def _write(result: dict[str, Any], prefix: Path, picture: str, say: Any) -> None:  # noqa: ANN401
    page = markdown(result)
    if "growth" in result:
        drawn = _beside(prefix, picture)
        try:
            draw_growth(result, drawn)
        except MissingExtra as problem:
            say(f"no picture: {problem}")
        else:
            page += f"\n![how the cost grows]({drawn.name})\n"
    try:
        replace_text(_beside(prefix, "json"), json.dumps(result, indent=1) + "\n")
        replace_text(_beside(prefix, "md"), page)
    except OSError as problem:
        raise OutputError(f"{prefix}: could not be written ({problem.strerror})") from problem


def _beside(prefix: Path, suffix: str) -> Path:
    return prefix.with_name(f"{prefix.name}.{suffix}")


def _check_output(prefix: Path | None) -> None:
    """Find out now, not in ten minutes."""
    if prefix is not None and not prefix.parent.is_dir():
        raise InputError(f"{prefix.parent}: no such folder; make it, or give another --output")
