"""Results as tables for people: a dictionary of `measuring.measure` (or of its JSON) arrives, Markdown leaves.

Every figure is a median over the runs; ratios are of such medians, always so that above 1 means elmokit is faster.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from elmokit.bench.contest import KNOWN, WORDS_PER_SENTENCE
from elmokit.bench.growth import QUESTIONS

__all__ = ["markdown", "milliseconds_of", "rate_of", "spread_of"]

DISTURBED = 0.1  # of the measured time spent waiting for a core, beyond which a figure is marked
OURS = "elmokit "


def markdown(result: dict[str, Any]) -> str:
    """The whole page.

    Arguments:
        result: of `measure` or `measure_on_device`, or read from the JSON file of one.
    """
    parts = [f"# elmo bench, {result['machine']['date']}", *_where(result)]
    for size in dict.fromkeys(record["size"] for record in result.get("records", [])):
        parts += _size_tables(result, size)
    if "device" in result:
        parts += [_device_tables(result["device"])]
    if "growth" in result:
        parts += _growth_tables(result["growth"])
    if result["notes"]:
        parts += ["## Left out", "\n".join(f"- {note}" for note in result["notes"])]
    return "\n\n".join(parts) + "\n"


def rate_of(record: dict[str, Any]) -> float:
    """Words per second, the median of the runs."""
    return statistics.median(_rates(record))


def milliseconds_of(record: dict[str, Any]) -> float:
    """Milliseconds per call: the median of each run's calls, and of the runs."""
    return 1e3 * statistics.median(map(statistics.median, record["seconds"]))


def spread_of(record: dict[str, Any]) -> float:
    """The fastest run above the slowest, as a fraction of the median."""
    rates = _rates(record)
    return (max(rates) - min(rates)) / statistics.median(rates)


def _rates(record: dict[str, Any]) -> list[float]:
    return [words / sum(seconds) for words, seconds in zip(record["words"], record["seconds"], strict=True)]


def _where(result: dict[str, Any]) -> Iterable[str]:
    machine = result["machine"]
    yield (
        f"Machine: {machine['processor']}, {machine['cores']} core(s), {machine['memory']}, {machine['system']}; "
        f"load average {machine['load']} when it began. Python {machine['python']}, {result['threads']} thread(s)."
    )
    versions = [
        f"{name} ({', '.join(f'{library} {version}' for library, version in found.items())})"
        for name, found in result["versions"].items()
    ]
    yield f"Versions: {'; '.join(versions)}."
    yield f"Text: {result['text']}."
    yield f"Command: `{result['command']}`"


# ---------------------------------------------------------------- one size of model


def _size_tables(result: dict[str, Any], size: str) -> list[str]:
    records = [record for record in result["records"] if record["size"] == size]
    batch_sizes = sorted({record["batch_size"] for record in records})
    by_title: dict[str, dict[int, dict[str, Any]]] = {}
    for record in records:
        by_title.setdefault(record["contestant"], {})[record["batch_size"]] = record
    header = ["", *map(_heading, batch_sizes)]
    rows = [[f"*floor: {what}*", *cells] for what, cells in _floor_rows(result["floors"], size, batch_sizes)]
    rows += [[title, *(_figure(found.get(b)) for b in batch_sizes)] for title, found in by_title.items()]
    pairs = [(one, other) for one in by_title for other in by_title if _are_compared(one, other)]
    ratios = [
        [f"{one} against {other}", *(_ratio(by_title[one].get(b), by_title[other].get(b)) for b in batch_sizes)]
        for one, other in pairs
    ]
    parts = [
        f"## {size}",
        f"Medians of {result['runs']} interleaved runs, text to all layers, text never embedded before. "
        "Beside each figure, how far its runs lie apart; ! where other processes held the cores.",
        _table(header, rows),
    ]
    if ratios:
        parts += ["How many times as fast:", _table(["", *(f"batch {b}" for b in batch_sizes)], ratios)]
    abouts: dict[str, list[str]] = {}
    for title, found in by_title.items():
        about = next(iter(found.values())).get("about")
        if about:
            abouts.setdefault(about, []).append(title)
    parts += [f"{', '.join(titles)}: {about}." for about, titles in abouts.items()]
    differences = [found for found in result["agreement"] if found["size"] == size]
    if differences:
        listed = ", ".join(f"{each['contestant']} {each['largest_difference']:.1e}" for each in differences)
        parts.append(
            f"Largest difference to the vectors of elmokit float32 (up to {differences[0]['largest_value']:.2f}), "
            f"three batches, state carried: {listed}."
        )
    return parts


def _floor_rows(floors: list[dict[str, Any]], size: str, batch_sizes: Sequence[int]) -> list[tuple[str, list[str]]]:
    found = {(each["what"], each["batch_size"]): each["words_per_second"] for each in floors if each["size"] == size}
    rows = []
    for what in dict.fromkeys(what for what, _ in found):
        rates = [found[what, batch_size] for batch_size in batch_sizes]
        cells = [_shown(rate, batch_size) for rate, batch_size in zip(rates, batch_sizes, strict=True)]
        rows.append((what, cells))
    return rows


def _heading(batch_size: int) -> str:
    if batch_size == 1:
        return f"batch 1, ms per sentence of {WORDS_PER_SENTENCE} words"
    return f"batch {batch_size}, words/s"


def _shown(rate: float, batch_size: int) -> str:
    return f"{1e3 * WORDS_PER_SENTENCE / rate:,.1f}" if batch_size == 1 else f"{rate:,.0f}"


def _figure(record: dict[str, Any] | None) -> str:
    if record is None:
        return "–"
    figure = f"{milliseconds_of(record):,.1f}" if record["batch_size"] == 1 else f"{rate_of(record):,.0f}"
    waits = record["waited"] > DISTURBED * sum(map(sum, record["seconds"]))
    return f"{figure} ({spread_of(record):.0%}){' !' if waits else ''}"


def _are_compared(one: str, other: str) -> bool:
    """Ours against theirs: what computes everything with its like, what knows the words with its like."""
    alike = one.endswith(KNOWN) == other.endswith(KNOWN)
    return one.startswith(OURS) and not other.startswith(OURS) and alike and "no cache" not in one


def _ratio(ours: dict[str, Any] | None, theirs: dict[str, Any] | None) -> str:
    if ours is None or theirs is None:
        return "–"
    if ours["batch_size"] == 1:
        return f"{milliseconds_of(theirs) / milliseconds_of(ours):.2f} ×"
    return f"{rate_of(ours) / rate_of(theirs):.2f} ×"


# ---------------------------------------------------------------- growth and devices


def _growth_tables(growth: dict[str, Any]) -> list[str]:
    parts = [
        "## How the cost grows",
        f"Words/s of elmokit float32, {growth['size']} unless the model is what changes, {growth['threads']} "
        "thread(s), no word known beforehand; 32 sentences of 20 words per batch where nothing else is said.",
    ]
    for question, points in growth["points"].items():
        names = [f"{point.get('name', '')} {point['x']:.4g}".strip() for point in points]
        parts.append(_table([QUESTIONS[question], *names], [["words/s", *(_words(point) for point in points)]]))
    return parts


def _words(point: dict[str, Any]) -> str:
    return f"{point['words_per_second']:,.0f}"


def _device_tables(tables: list[dict[str, Any]]) -> str:
    return "\n\n".join(f"## {each['title']}\n\n{_table(each['header'], each['rows'])}" for each in tables)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
