"""The questions of a GPU: ids to layers, engines against cuDNN, training; words a second.

A device arrives; tables leave. Nothing is compared with other libraries here but NVIDIA's own LSTM, which cannot clip:
it is timed without, ours with. Everything is repeated and the median taken; the device is waited for before each look
at the clock. On a CPU the same code runs with tiny sizes, which is how the tests rehearse it.

Shapes: N packed words, P output width, H cell width.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from elmokit.bench.machine import machine_facts
from elmokit.config import ElmoConfig
from elmokit.errors import InputError
from elmokit.nn.engines import Clips, LayerState, LstmpWeights, Recurrence, best_for, engine_named

__all__ = ["measured_on_device"]

Say = Callable[[str], None]

ROWS, WORDS = (512, 1024), 20
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
CLIPS = Clips(3.0, 3.0)
OUTPUTS = ("sampled", "full")
VOCABULARY, TRAINING_STEPS, STEPS_A_LINE = 100_000, 240, 20


def measured_on_device(device: str, *, sizes: Sequence[str], runs: int, quick: bool, say: Say) -> dict[str, Any]:
    """Tables of everything above for these sizes of model, ready for `report.markdown`.

    Arguments:
        device: such as `cuda`.
        sizes: presets of `ElmoConfig`.
        runs: how often each thing is timed, after a warm-up.
        quick: small batches and little training: shows that everything works.
        say: is told how far things are.
    """
    place = torch.device(device)
    if place.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"--device is {device}, but torch finds no GPU here: use --device cpu")
    name = torch.cuda.get_device_name(place) if place.type == "cuda" else "the CPU, as a rehearsal"
    rows = (4,) if quick else ROWS
    tables = [
        _ids_to_layers(place, sizes, rows, runs, say),
        _engines(place, sizes, rows, runs, say),
        _training(place, sizes, quick, say),
    ]
    machine = machine_facts()
    command = f"python -m elmokit.bench --device {device} --sizes {' '.join(sizes)} --runs {runs}"
    return {
        "machine": {**machine, "processor": f"{name}, beside {machine['processor']}"},
        "versions": {"elmokit": _versions()},
        "command": command + " --quick" * quick,
        "text": "random ids; for training words sampled by Zipf's law",
        "runs": runs,
        "threads": torch.get_num_threads(),
        "notes": [],
        "device": tables,
    }


# ---------------------------------------------------------------- ids to layers


def _ids_to_layers(device: torch.device, sizes: Sequence[str], rows: Sequence[int], runs: int, say: Say) -> Any:  # noqa: ANN401
    """Random words of 4 to 10 bytes, a third of them different, as in a batch of English."""
    from elmokit.model import Elmo

    lines = []
    for size in sizes:
        elmo = Elmo.random(getattr(ElmoConfig, size)()).eval().to(device)
        for kind, dtype in _dtypes(device).items():
            elmo = elmo.to(dtype)
            cells = []
            for count in rows:
                say(f"ids to layers: {size}, {kind}, {count} × {WORDS}")
                ids = elmo.word_ids(_random_sentences(count))

                def run(elmo: Elmo = elmo, ids: torch.Tensor = ids) -> None:
                    with torch.inference_mode():
                        elmo(ids)

                cells.append(f"{count * WORDS / _seconds(run, device, runs):,.0f}")
            lines.append([f"{size}, {kind}", elmo.bilm.engine.name, *cells])
    header = ["", "engine", *(f"{count} × {WORDS} words, words/s" for count in rows)]
    return {"title": "Ids to all layers", "header": header, "rows": lines}


def _random_sentences(count: int) -> list[list[str]]:
    draw = np.random.default_rng(0)
    words = _words(max(1, count * WORDS // 3))
    return [[words[place] for place in draw.integers(len(words), size=WORDS)] for _ in range(count)]


def _words(count: int) -> list[str]:
    """So many different words of 4 to 10 letters."""
    draw = np.random.default_rng(1)
    letters = np.array(list("etaoinshrdlucmfwypvbgk"))
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(letters[draw.integers(len(letters), size=draw.integers(4, 11))])] = None
    return list(found)


# ---------------------------------------------------------------- engines


def _engines(device: torch.device, sizes: Sequence[str], rows: Sequence[int], runs: int, say: Say) -> Any:  # noqa: ANN401
    """One layer in both directions, forward alone and with its gradients; recorded or not, whichever is faster."""
    lines = []
    for size in sizes:
        lstm = getattr(ElmoConfig, size)().lstm
        shape = lstm.projection_dim, lstm.cell_dim
        for kind, dtype in _dtypes(device).items():
            # A rehearsal wants gradients, too, which engines that only compute do not give.
            ours = best_for(device, dtype, CLIPS).name if device.type == "cuda" else "packed"
            for count in rows:
                say(f"engines: {size}, {kind}, {count} × {WORDS}")
                theirs = _both_ways(_library_lstm(shape, count, dtype, device), device, runs)
                found = _both_ways(_engine(ours, shape, count, dtype, device), device, runs)
                words = count * WORDS
                cells = [f"{words / seconds:,.0f}" for seconds in found]
                cells += [f"{other / seconds:.2f} ×" for other, seconds in zip(theirs, found, strict=True)]
                lines.append([f"{size}, {kind}, {count} × {WORDS}", ours, *cells])
    library = "cuDNN's LSTM (unclipped)" if device.type == "cuda" else "torch's LSTM (unclipped)"
    header = ["", "engine", "forward, words/s", "and backward, words/s", f"forward against {library}", "and backward"]
    return {"title": "One layer, both directions, clipped", "header": header, "rows": lines}


Layer = tuple[Callable[[], list[torch.Tensor]], list[torch.Tensor]]


def _library_lstm(shape: tuple[int, int], rows: int, dtype: torch.dtype, device: torch.device) -> Layer:
    width, cell_dim = shape
    lstm = nn.LSTM(width, cell_dim, proj_size=width, bidirectional=True, device=device, dtype=dtype)
    inputs = torch.randn(WORDS, rows, width, device=device).to(dtype).requires_grad_()
    return lambda: [lstm(inputs)[0]], [inputs, *lstm.parameters()]


def _engine(name: str, shape: tuple[int, int], rows: int, dtype: torch.dtype, device: torch.device) -> Layer:
    width, cell_dim = shape

    def draw(*sizes: int, scale: float = 1.0) -> torch.Tensor:
        return (torch.randn(*sizes, device=device) * scale).to(dtype).requires_grad_()

    def one_direction() -> Recurrence:
        inward, recurrent = (draw(width, 4 * cell_dim, scale=0.5 * width**-0.5) for _ in range(2))
        bias, projection = draw(4 * cell_dim, scale=0.5), draw(cell_dim, width, scale=cell_dim**-0.5)
        weights = LstmpWeights(inward, recurrent, bias, projection)
        state = LayerState(torch.zeros(rows, width).to(inward), torch.zeros(rows, cell_dim).to(inward))
        return Recurrence(draw(WORDS * rows, width), weights, state)

    problem = [one_direction(), one_direction()]
    leaves = [part for each in problem for part in (each.inputs_ND, *each.weights) if part is not None]
    run, sizes = engine_named(name), [rows] * WORDS
    return lambda: [outputs for outputs, _ in run(problem, sizes, CLIPS)], leaves


def _both_ways(layer: Layer, device: torch.device, runs: int) -> list[float]:
    """Seconds of forward, and of forward and backward."""
    run, leaves = layer

    def forward() -> None:
        with torch.no_grad():
            run()

    def both() -> None:
        outputs = run()
        torch.autograd.grad(outputs, leaves, outputs)

    return [min(_seconds(way, device, runs) for way in _ways(function, device)) for function in (forward, both)]


def _ways(run: Callable[[], None], device: torch.device) -> list[Callable[[], None]]:
    """Launched one by one, and recorded as a CUDA graph where that can be done."""
    if device.type != "cuda":
        return [run]
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    try:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            run()
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(graph):
            run()
    except RuntimeError:
        return [run]
    return [run, graph.replay]


# ---------------------------------------------------------------- training


def _training(device: torch.device, sizes: Sequence[str], quick: bool, say: Say) -> Any:  # noqa: ANN401
    """The whole of `elmo train` with its recipes, from an encoded text on: the speed that its log tells."""
    from elmokit.pretrain.encoding import encode_corpus

    lines = []
    with tempfile.TemporaryDirectory() as folder:
        say("training: making a text")
        num_words = 500 if quick else VOCABULARY
        text, corpus = Path(folder) / "text", Path(folder) / "corpus"
        _write_text(text, num_words)
        workers = 1 if quick else None
        encode_corpus(text, corpus, vocabulary_size=num_words + 3, tokenised=True, workers=workers, progress=False)
        for size in sizes:
            cells = []
            for output in OUTPUTS:
                say(f"training: {size}, {output} softmax")
                cells.append(f"{_training_rate(size, output, corpus, Path(folder), device, quick):,.0f}")
            lines.append([size, *cells])
    header = ["", *(f"{output} softmax, words/s" for output in OUTPUTS)]
    return {"title": "Training, both directions, a word counted once", "header": header, "rows": lines}


def _training_rate(size: str, output: str, corpus: Path, folder: Path, device: torch.device, quick: bool) -> float:
    from elmokit.pretrain.recipes import recipe_named
    from elmokit.pretrain.train import train

    config = recipe_named("tiny_cpu" if size == "tiny" else size)
    steps, a_line, a_step = (4, 1, 256) if quick else (TRAINING_STEPS, STEPS_A_LINE, config.tokens_per_batch)
    config = replace(
        config,
        output=output,
        num_negatives=64 if quick else config.num_negatives,
        tokens_per_batch=a_step,
        tokens=steps * a_step,
        log_every=a_line * a_step,
        checkpoint_every=10**12,
        evaluate_every=10**12,
    )
    lines: list[dict[str, Any]] = []
    destination = folder / f"{size}-{output}"
    with redirect_stdout(sys.stderr):
        train([corpus], destination, config, device=str(device), report=lines.append)
    speeds = [line["words_per_second"] for line in lines if line["kind"] == "train"]
    # Shapes are recorded as they first come, so the first lines tell of that more than of training.
    return statistics.median(speeds[len(speeds) // 2 :])


def _write_text(path: Path, num_words: int) -> None:
    """Sentences of 10 to 30 words: every word once, and then fifty times as many by Zipf's law.

    Enough for whole batches of every length, so that a recorded step is soon there for each.
    """
    draw = np.random.default_rng(2)
    words = _words(num_words)
    weights = 1 / np.arange(2, num_words + 2)
    places = np.concatenate(
        [draw.permutation(num_words), draw.choice(num_words, 50 * num_words, p=weights / weights.sum())]
    )
    with path.open("w", encoding="utf-8") as file:
        start = 0
        while start < len(places):
            length = int(draw.integers(10, 31))
            file.write(" ".join(words[place] for place in places[start : start + length]) + "\n")
            start += length


# ---------------------------------------------------------------- the clock


def _dtypes(device: torch.device) -> dict[str, torch.dtype]:
    """On some virtual machines a product of bfloat16 on the CPU ends the process, so a rehearsal leaves it out."""
    return DTYPES if device.type == "cuda" else {"float32": torch.float32}


def _seconds(run: Callable[[], None], device: torch.device, runs: int) -> float:
    for _ in range(2):
        run()
    times = []
    for _ in range(runs):
        _wait(device)
        start = time.perf_counter()
        run()
        _wait(device)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _versions() -> dict[str, str]:
    import elmokit

    found = {"elmokit": elmokit.__version__, "torch": str(torch.__version__)}
    return {**found, "CUDA": torch.version.cuda} if torch.version.cuda else found
