"""The questions of a GPU: ids to layers, engines against cuDNN, training; words a second.

A device arrives; tables leave, and each line of theirs as soon as it is known. Nothing is compared with other libraries
here but NVIDIA's own LSTM, which cannot clip: it is timed without, ours with. Everything is repeated and the median
taken; the device is waited for before each look at the clock. On a CPU the same code runs with tiny sizes, which is how
the tests rehearse it.

Shapes: N packed words, P output width, H cell width.
"""

from __future__ import annotations

import io
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from elmokit.bench.arguments import DEVICE_PARTS
from elmokit.bench.machine import machine_facts
from elmokit.config import ElmoConfig
from elmokit.engines import Clips, LayerState, LstmpWeights, Recurrence, best_for, engine_named
from elmokit.errors import InputError

__all__ = ["library_lstm", "measured_on_device", "recorded"]

Say = Callable[[str], None]

ROWS, WORDS = (512, 1024), 20
WARM_UP = 0.3  # seconds, on a GPU
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
CLIPS = Clips(3.0, 3.0)
OUTPUTS = ("sampled", "full")
VOCABULARY, TRAINING_STEPS, STEPS_A_LINE = 100_000, 240, 20


class Asked(NamedTuple):
    """What a table is made for."""

    device: torch.device
    sizes: Sequence[str]
    rows: Sequence[int]
    runs: int
    quick: bool
    say: Say


Table = tuple[str, list[str], Iterator[list[str]]]  # its title, its header, and its lines as they are measured


def measured_on_device(
    device: str,
    *,
    sizes: Sequence[str],
    runs: int,
    quick: bool,
    say: Say,
    parts: Sequence[str] = DEVICE_PARTS,
    keep: Callable[[dict[str, Any]], None] = lambda result: None,
) -> dict[str, Any]:
    """Tables of everything above for these sizes of model, ready for `report.markdown`.

    Arguments:
        device: such as `cuda`.
        sizes: presets of `ElmoConfig`.
        runs: how often each thing is timed, after a warm-up.
        quick: small batches and little training: shows that everything works.
        say: is told how far things are.
        parts: of `DEVICE_PARTS`.
        keep: is handed the result so far after every line: what is killed later has lost nothing.
    """
    place = torch.device(device)
    if place.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f"--device is {device}, but torch finds no GPU here: use --device cpu")
    name = torch.cuda.get_device_name(place) if place.type == "cuda" else "the CPU, as a rehearsal"
    machine = machine_facts()
    command = f"python -m elmokit.bench --device {device} --sizes {' '.join(sizes)} --runs {runs}"
    command += f" --parts {' '.join(parts)}" * (tuple(parts) != DEVICE_PARTS)
    result: dict[str, Any] = {
        "machine": {**machine, "processor": f"{name}, beside {machine['processor']}"},
        "versions": {"elmokit": _versions()},
        "command": command + " --quick" * quick,
        "text": "random ids; for training words sampled by Zipf's law",
        "runs": runs,
        "threads": torch.get_num_threads(),
        "notes": [],
        "device": [],
    }
    asked = Asked(place, sizes, (4,) if quick else ROWS, runs, quick, say)
    tables = {"layers": _ids_to_layers, "engines": _engines, "training": _training}
    for part in parts:
        title, header, lines = tables[part](asked)
        rows: list[list[str]] = []
        result["device"].append({"title": title, "header": header, "rows": rows})
        for line in lines:
            rows.append(line)
            keep(result)
    return result


# ---------------------------------------------------------------- ids to layers


def _ids_to_layers(asked: Asked) -> Table:
    """Random words of 4 to 10 bytes, a third of them different, as in a batch of English."""
    header = ["", "engine", *(f"{count} × {WORDS} words, words/s" for count in asked.rows)]
    return "Ids to all layers", header, _ids_to_layers_lines(asked)


def _ids_to_layers_lines(asked: Asked) -> Iterator[list[str]]:
    from elmokit.model import Elmo

    for size in asked.sizes:
        elmo = Elmo.random(getattr(ElmoConfig, size)()).eval().to(asked.device)
        for kind, dtype in _dtypes(asked.device).items():
            elmo = elmo.to(dtype)
            cells = []
            for count in asked.rows:
                asked.say(f"ids to layers: {size}, {kind}, {count} × {WORDS}")
                ids = elmo.word_ids(_random_sentences(count))

                def run(elmo: Elmo = elmo, ids: torch.Tensor = ids) -> None:
                    with torch.inference_mode():
                        elmo(ids)

                cells.append(f"{count * WORDS / _seconds(run, asked.device, asked.runs):,.0f}")
            yield [f"{size}, {kind}", elmo.bilm.engine.name, *cells]


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


def _engines(asked: Asked) -> Table:
    """One layer in both directions, forward alone and with its gradients; recorded or not, whichever is faster."""
    library = "cuDNN's LSTM (unclipped)" if asked.device.type == "cuda" else "torch's LSTM (unclipped)"
    header = ["", "engine", "forward, words/s", "and backward, words/s", f"forward against {library}", "and backward"]
    return "One layer, both directions, clipped", header, _engines_lines(asked)


def _engines_lines(asked: Asked) -> Iterator[list[str]]:
    device = asked.device
    for size in asked.sizes:
        lstm = getattr(ElmoConfig, size)().lstm
        shape = lstm.projection_dim, lstm.cell_dim
        for kind, dtype in _dtypes(device).items():
            # A rehearsal wants gradients, too, which engines that only compute do not give.
            ours = best_for(device, dtype, CLIPS).name if device.type == "cuda" else "packed"
            for count in asked.rows:
                asked.say(f"engines: {size}, {kind}, {count} × {WORDS}")
                theirs = _both_ways(_library_layer(shape, count, dtype, device), device, asked.runs)
                found = _both_ways(_engine(ours, shape, count, dtype, device), device, asked.runs)
                words = count * WORDS
                cells = [f"{words / seconds:,.0f}" for seconds in found]
                cells += [f"{other / seconds:.2f} ×" for other, seconds in zip(theirs, found, strict=True)]
                yield [f"{size}, {kind}, {count} × {WORDS}", ours, *cells]


Layer = tuple[Callable[[], list[torch.Tensor]], list[torch.Tensor]]


def library_lstm(width: int, cell_dim: int, dtype: torch.dtype, device: torch.device) -> nn.LSTM:
    """The LSTM of torch, both directions; on a GPU its weights lie in one piece, else cuDNN copies them at every call.

    torch sees to that by itself but for bfloat16, of which `flatten_parameters` does not know that cuDNN takes it.
    """
    lstm = nn.LSTM(width, cell_dim, proj_size=width, bidirectional=True, device=device, dtype=dtype)
    torch.backends.cudnn.CUDNN_TENSOR_DTYPES.add(torch.bfloat16)
    lstm.flatten_parameters()
    return lstm


def _library_layer(shape: tuple[int, int], rows: int, dtype: torch.dtype, device: torch.device) -> Layer:
    lstm = library_lstm(*shape, dtype, device)
    inputs = torch.randn(WORDS, rows, shape[0], device=device).to(dtype).requires_grad_()
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
    try:
        return [run, recorded(run)]
    except RuntimeError:
        return [run]


def recorded(run: Callable[[], None]) -> Callable[[], None]:
    """The same as one launch, a CUDA graph; a `RuntimeError` where it cannot be recorded.

    Nothing that `run` computed before with gradients may be alive: autograd keeps the nodes of its leaves, and with
    them the stream they were made on, which would be drawn into the recording and spoil it.
    """
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # left also when recording fails, which `torch.cuda.graph` by itself does not do
        run()
        with torch.cuda.graph(graph, stream=side):
            run()
    return graph.replay


# ---------------------------------------------------------------- training


def _training(asked: Asked) -> Table:
    """The whole of `elmo train` with its recipes, from an encoded text on: the speed that its log tells."""
    return "Training, both directions, a word counted once", ["", "words/s"], _training_lines(asked)


def _training_lines(asked: Asked) -> Iterator[list[str]]:
    from elmokit.pretrain.corpus.encoding import encode_corpus

    with tempfile.TemporaryDirectory() as folder:
        asked.say("training: making a text")
        num_words = 500 if asked.quick else VOCABULARY
        text, corpus = Path(folder) / "text", Path(folder) / "corpus"
        _write_text(text, num_words)
        workers = 1 if asked.quick else None
        encode_corpus(text, corpus, vocabulary_size=num_words + 3, tokenised=True, workers=workers, progress=False)
        for size in asked.sizes:
            for output in OUTPUTS:
                asked.say(f"training: {size}, {output} softmax")
                rate = _training_rate(size, output, corpus, Path(folder), asked.device, asked.quick)
                yield [f"{size}, {output} softmax", f"{rate:,.0f}"]


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
    with redirect_stdout(io.StringIO()):  # what `train` tells its user is nothing to ours
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
    """The median after a warm-up, in which kernels are compiled and the clocks of an idle GPU rise again."""
    run()
    _wait(device)
    start = time.perf_counter()
    run()
    while device.type == "cuda" and time.perf_counter() - start < WARM_UP:
        run()
        _wait(device)
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
    from elmokit.version import describe_version

    found = {"elmokit": describe_version(), "torch": str(torch.__version__)}
    return {**found, "CUDA": torch.version.cuda} if torch.version.cuda else found
