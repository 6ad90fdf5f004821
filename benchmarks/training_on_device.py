"""The training step on a GPU, in one command: are its kernels right, how fast is it whole, and in parts?

    PYTHONPATH=src python benchmarks/training_on_device.py --out $OUT                    # at most 150 s on an H200
    PYTHONPATH=src TRITON_INTERPRET=1 python benchmarks/training_on_device.py --device cpu --out out     # a rehearsal

Sections, each of which reports what fails in it and leaves the rest alone; what the time does not allow is left out:

    ceilings  a matmul and a copy: what the floors below are counted with
    check     every kernel of a step beside float64, on this device
    steps     words/s and milliseconds of whole training steps (reader, graphs, optimiser), by preset and output layer;
              a profile of the device's time by kernel
    parts     milliseconds of the parts alone; of the recurrence beside cuDNN

`--set MODULE.NAME=VALUE …` sets constants before anything runs (modules: triton, stored_probabilities, char_cnn,
char_table, linear_cross_entropy), such as `stored_probabilities.MOST_OF_MEMORY=0`. Text is invented: 108,000 words by
Zipf's law (a step has as many distinct ones as English has), sentences of four lengths. Writes training.json and .md.
"""

import argparse
import ast
import contextlib
import dataclasses
import importlib
import json
import re
import statistics
import tempfile
import time
import traceback
from itertools import count
from pathlib import Path

import engines_on_device as engines
import numpy as np
import torch
from torch.nn import functional as F

from elmokit.engines.loss import stored_probabilities
from elmokit.pretrain import stepping
from elmokit.pretrain.batches.reader import Prefetcher
from elmokit.pretrain.corpus.encoded import EncodedCorpus
from elmokit.pretrain.network import build_network
from elmokit.pretrain.optim.optimiser import Optimiser
from elmokit.pretrain.place import Place
from elmokit.pretrain.recipes import recipe_named
from elmokit.pretrain.start import choose_start
from elmokit.pretrain.train import build_reader
from elmokit.text.characters import make_scheme

MODULES = {
    "triton": "elmokit.engines.recurrence.triton",
    "stored_probabilities": "elmokit.engines.loss.stored_probabilities",
    "char_cnn": "elmokit.engines.words.char_cnn",
    "char_table": "elmokit.engines.words.char_table",
    "linear_cross_entropy": "elmokit.engines.loss.linear_cross_entropy",
}
STEPS = [("small", "full", 20_480), ("small", "stored", 20_480), ("small", "sampled", 20_480),
         ("original", "sampled", 20_480), ("medium", "sampled", 20_480),
         ("small", "stored", 40_960), ("small", "sampled", 40_960), ("original", "sampled", 40_960),
         ("original", "stored", 40_960)]  # fmt: skip
NUM_NEGATIVES = 8192
PARTS = {
    "recurrence": r"^(forward|backward|project|clip)_kernel",
    "convolutions": r"_characters_kernel|_weights_kernel|_sum_kernel|_pool_kernel",
    "output layer": r"_ratios_kernel|_table_kernel|_weight_kernel|_own_kernel|_combine_kernel|_forward_kernel",
    "matmuls": r"gemm|nvjet|cutlass|cublas|splitK",
    "optimiser": r"multi_tensor|FusedAdam|foreach|lerp",
    "copies": r"[Mm]emcpy|Memset|copy|cat|Cat|fill|FillFunctor",
}


class Kit:
    """What all sections share: the device, the clock, and what they found."""

    def __init__(self, args):
        self.device, self.out = torch.device(args.device), Path(args.out)
        self.on_gpu = self.device.type == "cuda"
        self.ends = time.perf_counter() + args.budget
        self.args, self.found, self.lines = args, {}, []

    def say(self, line):
        print(line, flush=True)
        self.lines.append(line)
        if line.startswith("check WRONG"):
            self.found.setdefault("wrong", []).append(line)

    def has_time(self, needs=0.0):
        return time.perf_counter() + needs < self.ends

    @contextlib.contextmanager
    def guarded(self, name):
        start = time.perf_counter()
        try:
            yield
        except Exception as problem:
            self.say(f"FAILED {name}: {type(problem).__name__}: {' '.join(str(problem).split())[:300]}")
            self.found.setdefault("failures", {})[name] = traceback.format_exc()
        print(f"       [{name}: {time.perf_counter() - start:.1f} s]", flush=True)

    def milliseconds(self, run, repeats=7):
        """Median by CUDA events, of a recording where one can be made; on a CPU one run by the clock."""
        if not self.on_gpu:
            start = time.perf_counter()
            run()
            return 1e3 * (time.perf_counter() - start)
        run()
        return engines.milliseconds(engines.recorded(run) or run, repeats)

    def write(self):
        self.out.mkdir(parents=True, exist_ok=True)
        (self.out / "training.json").write_text(json.dumps(self.found, indent=1, default=str) + "\n")
        (self.out / "training.md").write_text("\n".join(self.lines) + "\n")


def ceilings(kit):
    size = 8192 if kit.on_gpu else 64
    a, b = (torch.randn(size, size, device=kit.device).to(kit.half) for _ in range(2))
    taken = kit.milliseconds(lambda: a @ b)
    c = torch.empty(2**30 if kit.on_gpu else 2**10, dtype=torch.uint8, device=kit.device)
    d = torch.empty_like(c)
    copied = kit.milliseconds(lambda: d.copy_(c))
    kit.found["ceilings"] = {"tflops": 2e-9 * size**3 / taken, "tb_per_second": 2e-9 * c.numel() / copied}
    kit.say("ceilings: {tflops:.0f} TFLOP/s, {tb_per_second:.2f} TB/s".format(**kit.found["ceilings"]))


def check(kit):
    """Every kernel of a step; equality bounds are those of the benchmarks that own them."""
    with kit.guarded("check recurrence"):
        line, good = engines.check(
            "triton", kit.half, (128, 1024) if kit.on_gpu else (24, 40),
            [300, 300, 299, 130, 7, 1] if kit.on_gpu else [9, 5, 1], 305 if kit.on_gpu else 10,
            engines.USUAL, kit.device,
        )  # fmt: skip
        kit.say(f"check {'ok' if good else 'WRONG'} {line}")
    for kind in ("full", "stored", "sampled"):
        with kit.guarded(f"check output layer, {kind}"):
            check_output(kit, kind)
    with kit.guarded("check convolutions"):
        check_convolution(kit)
    with kit.guarded("check table"):
        from elmokit.engines.words.char_table import look_up

        ids = torch.randint(0, 262, (3000 if kit.on_gpu else 30, 24), device=kit.device)
        report(kit, "table of characters", lambda table: look_up(ids, table), lambda table: F.embedding(ids, table),
               [torch.randn(262, 16, device=kit.device)])  # fmt: skip


def check_output(kit, kind):
    import linear_cross_entropy as outputs

    rows, words = (1003, 5003) if kit.on_gpu else (67, 131)
    inputs, targets = outputs.random_problem(kit.args.device, rows, words, 128 if kit.on_gpu else 64, kit.half)
    rest = outputs.random_sample(kit.args.device, rows, words, words // 5) if kind == "sampled" else ()
    found = outputs.values(outputs.FUNCTIONS[kind], inputs, targets, rest)
    exact = [tensor.detach().to(kit.half).double() for tensor in inputs[:2]] + [inputs[2].detach().double()]
    expected = outputs.values(outputs.plain, [tensor.requires_grad_() for tensor in exact], targets, rest)
    errors = [((a.double() - b).norm() / b.norm()).item() for a, b in zip(found, expected, strict=True)]
    good = errors[0] < 1e-4 and max(errors) < 1e-2
    shown = ", ".join(f"{error:.1e}" for error in errors)
    kit.say(f"check {'ok' if good else 'WRONG'} output layer, {kind}: loss, hidden, weight, bias {shown}")


def check_convolution(kit):
    from elmokit.engines.words.char_cnn import convolve_and_pool

    words, channels = (700, 1024) if kit.on_gpu else (9, 33)
    shapes = [(words, 24, 16), (channels, 16, 7), (channels,)]
    tensors = [torch.randn(shape, device=kit.device) for shape in shapes]
    tensors[0] *= torch.linspace(0.1, 3, 24, device=kit.device).view(1, -1, 1)  # maxima that stand out

    def plain(characters, weight, bias):
        return F.conv1d(characters.transpose(1, 2), weight, bias).amax(2)

    def ours(characters, weight, bias):
        return convolve_and_pool([characters], [weight]) + bias

    report(kit, "convolution", ours, plain, tensors)


def report(kit, name, function, plain, tensors):
    """Values and gradients of a function beside float64 over the same rounded numbers."""
    leaves = [tensor.to(kit.half).requires_grad_() for tensor in tensors]
    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
    found, expected = function(*leaves), plain(*exact)
    upstream = torch.randn_like(expected).to(kit.half)
    gradients = torch.autograd.grad(found, leaves, upstream), torch.autograd.grad(expected, exact, upstream.double())
    pairs = zip([found, *gradients[0]], [expected, *gradients[1]], strict=True)
    errors = [((one.double() - other).norm() / other.norm()).item() for one, other in pairs]
    shown = ", ".join(f"{error:.1e}" for error in errors)
    kit.say(f"check {'ok' if max(errors) < 3e-2 else 'WRONG'} {name}: values, gradients {shown}")


def parts(kit):
    """Milliseconds of each part alone."""
    for shape in ("small", "original"):
        for engine in ("triton", "nn.LSTM") if kit.on_gpu else ("triton",):
            with kit.guarded(f"parts {shape} {engine}"):
                times = [layer_milliseconds(kit, shape, 1024, both, engine) for both in (False, True)]
                kit.say(f"parts {shape} {engine}: forward {times[0]:.3f} ms, both {times[1]:.3f} ms")
    with kit.guarded("parts output layer"):
        import linear_cross_entropy as outputs

        size = (40_960, 108_000) if kit.on_gpu else (64, 128)
        inputs, targets = outputs.random_problem(kit.args.device, *size, 128 if kit.on_gpu else 64, kit.half)
        for kind in ("full", "stored"):
            run = lambda kind=kind: outputs.values(outputs.FUNCTIONS[kind], inputs, targets, ())  # noqa: E731
            kit.say(f"parts output layer {kind}: {kit.milliseconds(run, 5):.3f} ms")
    with kit.guarded("parts convolutions"):
        kit.say(f"parts convolutions: {convolution_milliseconds(kit):.3f} ms")


def layer_milliseconds(kit, shape, rows, both, engine):
    widths = engines.SHAPES[shape] if kit.on_gpu else (8, 12)
    run, leaves = engines.layer(
        engine, rows if kit.on_gpu else 3, 20 if kit.on_gpu else 2, widths, kit.half, kit.device
    )

    def forward():
        with torch.no_grad():
            run()

    def everything():
        outputs = run()
        torch.autograd.grad(outputs, leaves, outputs)

    return kit.milliseconds(everything if both else forward)


def convolution_milliseconds(kit):
    from elmokit.nn.word_encoder import CharCnn

    config = recipe_named("small" if kit.on_gpu else "tiny_cpu").model.characters
    cnn = CharCnn(dataclasses.replace(config, num_highways=0)).to(kit.device, kit.half)
    blocks = [(4224, 16), (2496, 24), (128, 50)] if kit.on_gpu else [(9, 16)]
    ids = [torch.randint(1, 262, shape, device=kit.device) for shape in blocks]
    return kit.milliseconds(lambda: cnn(ids, trim=False).sum().backward())


def steps(kit):
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        corpus = invented_corpus(Path(folder), *((108_000, 1_500_000) if kit.on_gpu else (300, 6_000)))
        for preset, output, words in STEPS:
            if not any(asked in f"{preset} {output} {words}" for asked in kit.args.only):
                continue
            if not kit.has_time(20):
                kit.say(f"left out for lack of time: {preset} {output} {words}")
                continue
            name = f"{preset} {output} {words}"
            most = {"MOST_OF_MEMORY": 0.25 * (output == "stored")}
            with kit.guarded(f"steps {name}"), engines.constants(stored_probabilities, most):
                rows.append({"name": name, **one_preset(kit, preset, output, words, corpus)})
                kit.found["steps"] = rows
    kit.say("| preset, output, words per step | words/s | ms per step | of it on the device | host | floor |")
    kit.say("|---|---|---|---|---|---|")
    for row in rows:
        kit.say(
            f"| {row['name']} | {row['words_per_second']:,.0f} | {row['ms']:.2f} | {row['device_ms']:.2f} | "
            f"{row['host_ms']:.2f} | {row['floor_ms']:.2f} |"
        )
    for row in rows:
        kit.say(f"{row['name']}: " + ", ".join(f"{part} {ms:.2f}" for part, ms in row["parts"].items()) + " ms")


def one_preset(kit, preset, output, words, corpus):
    """A run without its files: the loop of `pretrain/train.py` over the same parts."""
    config = recipe_named(preset if kit.on_gpu else "tiny_cpu")
    changes = {"output": "full" if output == "stored" else output, "tokens_per_batch": words if kit.on_gpu else 120}
    negatives = NUM_NEGATIVES if kit.on_gpu else 64
    config = dataclasses.replace(config, num_negatives=negatives, **changes)
    place = Place(0, 1, kit.device)
    model, parts = choose_start(config).choose_model(corpus)
    network = build_network(config, model, corpus, kit.device)
    optimizer = Optimiser(network, config)
    reader = build_reader(config, corpus, make_scheme(model, **parts), place)
    plain = stepping.build_stepper(config, network, corpus, reader, Place(0, 1, torch.device("cpu")))
    stepper = stepping.GraphStepper(network, stepping.fit_layout(config, reader), sampler=plain.sampler, seed=1)
    numbers, move, warm = count(1), optimizer.step, 30 if kit.on_gpu else 12
    timed = kit.args.steps if kit.on_gpu else 3
    with Prefetcher(reader, lambda batch: stepper.prepare(batch, next(numbers))) as batches:

        def step():
            prepared = next(batches)
            start = time.perf_counter()
            stepper.zero_grad()
            stepper.step(prepared)
            move(0.1)
            return prepared.batch.num_tokens, time.perf_counter() - start

        for number in range(warm):
            step()
            if number == 3 and kit.on_gpu:
                move = optimizer.record()
        stepper.loss_sums.zero_()
        synchronise(kit)
        start = time.perf_counter()
        done = [step() for _ in range(timed)]
        synchronise(kit)
        seconds = time.perf_counter() - start
        loss = stepper.loss_sums.sum().item() / (2 * sum(n for n, _ in done))
        parts, top = profiled(kit, step, 8)
    return {
        "words_per_second": sum(n for n, _ in done) / seconds,
        "ms": 1e3 * seconds / timed,
        "host_ms": 1e3 * statistics.median(taken for _, taken in done),
        "device_ms": sum(parts.values()),
        "floor_ms": floor_milliseconds(kit, model, output, words, corpus.vocabulary_size),
        "parts": parts,
        "top": top,
        "shapes": len(stepper._graphs),
        "layout": stepper.layout.blocks,
        "loss": loss,
    }


def profiled(kit, step, number):
    """Milliseconds of a step on the device, by part and by kernel; all of it, by the clock, on a CPU."""
    if not kit.on_gpu:
        return {"all": 1e3 * sum(step()[1] for _ in range(2)) / 2}, []
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(number):
            step()
        torch.cuda.synchronize()
    parts, top = {}, []
    for event in profiler.key_averages():
        taken = event.self_device_time_total / 1e3 / number
        part = next((part for part, names in PARTS.items() if re.search(names, event.key)), "rest")
        parts[part] = parts.get(part, 0.0) + taken
        top.append((round(taken, 3), event.count // number, event.key[:90]))
    return dict(sorted(parts.items(), key=lambda item: -item[1])), sorted(top, reverse=True)[:25]


def floor_milliseconds(kit, model, output, words, vocabulary):
    """The matmuls of a step at the measured rate: three for each of the forward pass; nothing else."""
    lstm, width = model.lstm, model.lstm.projection_dim
    a_word = lstm.num_layers * (2 * width * 4 * lstm.cell_dim + lstm.cell_dim * width)
    a_word += width * (NUM_NEGATIVES if output == "sampled" else vocabulary)
    encoder = 0.33 * (16 * sum(w * n for w, n in model.characters.filters) * 14 + 2 * 2048**2 + 2048 * width)
    return 3 * 2 * words * (2 * a_word + encoder) / (1e9 * kit.found.get("ceilings", {}).get("tflops", 700))


def invented_corpus(folder, num_words, num_tokens):
    """An encoded corpus of invented words, with as many distinct ones in a step as English has."""
    random = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlucmwfgypbvk"))
    lengths = np.clip(random.normal(6, 2.5, num_words + 2000).astype(int), 1, 28)
    words = ["".join(random.choice(letters, n)) + np.base_repr(i, 36).lower() for i, n in enumerate(lengths)]
    words[:3] = ["<S>", "</S>", "<UNK>"]
    chances = 1 / (np.arange(len(words)) + 2.7) ** 1.1
    chances[:3] = 0
    sizes = random.choice([9, 19, 29, 49], num_tokens // 22, p=[0.25, 0.35, 0.3, 0.1])
    offsets = np.concatenate([[0], sizes.cumsum()]).astype("<i8")
    tokens = random.choice(len(words), int(offsets[-1]), p=chances / chances.sum()).astype("<i4")
    spelled = [word.encode() for word in words]
    counts = np.bincount(tokens, minlength=len(words))[:num_words]
    counts[:3] = len(sizes)
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in words[:num_words]))
    counts.astype("<i8").tofile(folder / "counts.bin")
    tokens.tofile(folder / "tokens.bin")
    offsets.tofile(folder / "sentences.bin")
    (folder / "words.bin").write_bytes(b"".join(spelled))
    np.cumsum([0, *map(len, spelled)]).astype("<i8").tofile(folder / "words.offsets.bin")
    header = {"format": "elmokit-corpus", "format_version": 1, "num_tokens": len(tokens), "num_sentences": len(sizes)}
    header |= {"vocabulary_size": num_words, "num_words": len(words), "coverage": 1.0, "sha256": "-", "settings": {}}
    (folder / "corpus.json").write_text(json.dumps(header))
    return EncodedCorpus.open(folder)


def synchronise(kit):
    if kit.on_gpu:
        torch.cuda.synchronize()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", default=".")
    parser.add_argument("--budget", type=float, default=145.0, help="seconds")
    parser.add_argument("--steps", type=int, default=60, help="timed steps")
    parser.add_argument("--sections", nargs="+", default=["ceilings", "check", "steps", "parts"])
    parser.add_argument("--only", nargs="+", default=[""], help="parts of the names of the steps wanted")
    parser.add_argument("--set", nargs="*", default=[], metavar="MODULE.NAME=VALUE")
    args = parser.parse_args()
    kit = Kit(args)
    kit.half = torch.bfloat16 if kit.on_gpu else torch.float32
    if not kit.on_gpu:
        stepping.record = lambda run, pool: run  # nothing to record on: the function itself
    for setting in args.set:
        place, value = setting.split("=")
        module, name = place.split(".")
        owner = importlib.import_module(MODULES[module])
        assert hasattr(owner, name), f"{module} has no constant {name}"
        setattr(owner, name, ast.literal_eval(value))
    name = torch.cuda.get_device_name() if kit.on_gpu else "a rehearsal on the CPU: times mean nothing"
    kit.say(f"{name}, torch {torch.__version__}, set: {' '.join(args.set) or 'nothing'}")
    sections = {"ceilings": ceilings, "check": check, "steps": steps, "parts": parts}  # what counts comes first
    for section in sorted(args.sections, key=list(sections).index):
        with kit.guarded(section):
            sections[section](kit)
        kit.write()


if __name__ == "__main__":
    main()
