"""An exported model beside torch: how fast, how large, how equal; and whether its segmenter finds the same words.

    pip install 'elmokit[export]'
    python benchmarks/onnx_runtime.py                                   en-small, one thread
    python benchmarks/onnx_runtime.py --model SOURCE --threads 2 --text FILE …

Sentences are those of the sample, or of the given text files, which must be held out of any training of the rules.
Every time is the best of several, all ways in turn; words are known, so their vectors are in the cache. Where others
compute beside you, the time of all cores says more than the clock.
Sizes of installations are those of the distributions that pip would install, by their own lists of files.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import tempfile
import time
from importlib import metadata
from itertools import islice
from pathlib import Path

import numpy as np
import onnxruntime
import torch

import elmokit.engines.choice
from elmokit import Embedder
from elmokit.export import export_model
from elmokit.text import sample
from elmokit.text.files import LineReader
from elmokit.text.segmenters import RuleSegmenter


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="en-small")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--sentences", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--lines", type=int, default=20_000, help="of each text, whose words are compared")
    parser.add_argument("--text", nargs="*", default=[Path(sample.__file__).parent / "sample_files" / "held-out.txt"])
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    versions = f"torch {torch.__version__}, onnxruntime {onnxruntime.__version__}, numpy {np.__version__}"
    print(f"{given.model}, {given.threads} thread(s), {versions}")
    with tempfile.TemporaryDirectory() as folder:
        folders = {}
        for precision in ("float32", "int8"):
            folders[precision] = export_model(given.model, Path(folder) / precision, precision=precision)
            size = sum(path.stat().st_size for path in folders[precision].glob("*.onnx"))
            print(f"{precision:8} graphs of {size / 1e6:.1f} MB")
        folders["dynamic"] = quantise_dynamically(folders["float32"], Path(folder) / "dynamic")
        modules = {name: load_runner(path) for name, path in folders.items()}
        compare_words(modules["float32"], given.text, given.lines)
        sentences = list(islice(read_sentences(given.text), given.sentences))
        measure(given, sentences, {name: module.ElmoRunner(threads=given.threads) for name, module in modules.items()})
    for name, wanted in (("numpy and onnxruntime", ["numpy", "onnxruntime"]), ("elmokit with torch", ["elmokit"])):
        sizes = measure_install(wanted)
        print(f"installed: {name}: {sum(sizes.values()) / 1e6:.0f} MB in {len(sizes)} distributions")


def measure(given, sentences, runners) -> None:
    """Times on one sentence and on many, and how far the vectors of all layers are from torch's."""
    reference = Embedder(given.model, device="cpu")
    expected = reference.embed(sentences, layers="all")
    plain = Embedder(given.model, device="cpu")
    ways = {"torch, engine": reference.embed, "torch, plain": without_kernels(plain.embed)}
    ways |= {f"onnxruntime, {name}": runner.embed for name, runner in runners.items()}
    one = [max(sentences[:50], key=len)[:20]]
    num_words, longest = sum(map(len, sentences)), max(map(len, sentences))
    print(f"{len(sentences)} sentences, {num_words:,} words, the longest of {longest}; one of {len(one[0])}")
    times = {name: ([], []) for name in ways}
    for _ in range(given.repeats):
        for name, embed in ways.items():
            for place, (texts, repeats) in enumerate(((one, 10), (sentences, 1))):
                embed(texts)  # words are known from here on
                for _ in range(repeats):
                    start = np.array([time.perf_counter(), time.process_time()])
                    embed(texts)
                    times[name][place].append(np.array([time.perf_counter(), time.process_time()]) - start)
    print("                       one sentence, ms     batch, words/s       distance from torch, all layers")
    print("                       clock    of cores    clock    of cores    largest   cosine    least cosine")
    for name, (alone, together) in times.items():
        ms, speeds = np.min(alone, axis=0) * 1e3, num_words / np.min(together, axis=0)
        found = ways[name](sentences, layers="all")
        largest = max(np.abs(a - b).max() for a, b in zip(found, expected, strict=True) if a.size)
        cosines = np.concatenate([measure_cosines(a, b) for a, b in zip(found, expected, strict=True)], axis=1)
        print(f"{name:22} {ms[0]:5.2f} {ms[1]:11.2f} {speeds[0]:11,.0f} {speeds[1]:10,.0f}", end="")
        print(f"{largest:13.1e} {cosines.mean():9.5f} {cosines.min():10.4f}")


def without_kernels(embed):
    """The same in plain torch, as where there is no compiler."""

    def run(*arguments, **options):
        ours = elmokit.engines.choice.why_no_library
        elmokit.engines.choice.why_no_library = lambda *_: "switched off"
        try:
            return embed(*arguments, **options)
        finally:
            elmokit.engines.choice.why_no_library = ours

    return run


def measure_cosines(a, b):
    return (a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1)


def quantise_dynamically(source: Path, dest: Path) -> Path:
    """onnxruntime's own dynamic quantisation, which `elmo export` does not offer: here is why."""
    from shutil import copytree

    from onnxruntime.quantization import QuantType, quantize_dynamic

    copytree(source, dest)
    options = {"weight_type": QuantType.QInt8, "per_channel": True, "extra_options": {"EnableSubgraph": True}}
    quantize_dynamic(source / "layers.onnx", dest / "layers.onnx", **options)
    return dest


def compare_words(runner, texts, num_lines: int) -> None:
    ours, theirs = RuleSegmenter(), runner.RuleSegmenter()
    for text in texts:
        num_words = num_different = 0
        for line in islice(LineReader([str(text)]), num_lines):
            expected = ours(line.text())
            num_words += sum(map(len, expected))
            num_different += theirs(line.text()) != expected
        print(f"words of {Path(text).name}: {num_words:,}, lines that differ: {num_different}")


def read_sentences(texts):
    segmenter = RuleSegmenter()
    for text in texts:
        for line in LineReader([str(text)]):
            yield from ([word.text for word in sentence] for sentence in segmenter(line.text()))


def load_runner(folder: Path):
    spec = importlib.util.spec_from_file_location(f"run_elmo_{folder.name}", folder / "run_elmo.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def measure_install(names: list[str]) -> dict[str, int]:
    """Bytes of distributions and of all that they require, without extras."""
    sizes: dict[str, int] = {}
    waiting = list(names)
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        try:
            found = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        if name not in sizes:
            sizes[name] = sum(file.locate().stat().st_size for file in found.files or [] if file.locate().is_file())
            needed = [each for each in found.requires or [] if "extra ==" not in each]
            waiting += [re.match(r"[\w.-]+", each)[0] for each in needed]
    return sizes


if __name__ == "__main__":
    main()
