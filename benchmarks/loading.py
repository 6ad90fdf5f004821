"""How long loading a model takes against reading its file, and how much memory it needs.

    python benchmarks/loading.py [--size original] [--repeats 5]

Makes random weights of a published size in a temporary folder, as AllenNLP's hdf5 and in the native format. Each
measurement runs in a fresh process, with the file in the page cache: the bytes of the file read into one buffer,
then `elmokit.io.load` up to its tensors (native tensors are mapped, so all of them are also summed once: "touched").
The peak is the largest resident memory less the one before loading. Ratios compare with reading the bytes; where other
programs want the processor too, the processor's time tells more than the clock's.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from elmokit.config import ElmoConfig
from elmokit.io import Checkpoint, expected_shapes, load, save

WEIGHTS = {"allennlp": "weights.hdf5", "native": "model.safetensors"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="original", choices=["tiny", "small", "medium", "original"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--measure", nargs=2, metavar=("WHAT", "FOLDER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(*arguments.measure)))
    else:
        compare(arguments.size, arguments.repeats)


def compare(size: str, repeats: int) -> None:
    torch.manual_seed(0)
    config = getattr(ElmoConfig, size)()
    tensors = {name: torch.randn(shape) / 32 for name, shape in expected_shapes(config).items()}
    print(f"{size}, median of {repeats}")
    print("format     file MiB what      clock s  ratio    cpu s  ratio  peak MiB  of file")
    with tempfile.TemporaryDirectory() as temporary:
        for family, file in WEIGHTS.items():
            folder = Path(temporary) / family
            save(Checkpoint(config, tensors), folder, format=family)
            mib = (folder / file).stat().st_size / 2**20
            kinds = ("read", "load", "touched")
            # In turns, so that whatever else the machine does falls on all three.
            rounds = [{what: in_fresh_process(what, folder) for what in kinds} for _ in range(repeats)]
            middle = {
                (what, clock): statistics.median(runs[what][clock] for runs in rounds)
                for what in kinds
                for clock in ("seconds", "cpu")
            }
            for what in kinds:
                line = f"{family:10} {mib:8.1f} {what:8}"
                for clock in ("seconds", "cpu"):
                    line += f" {middle[what, clock]:8.3f} {middle[what, clock] / middle['read', clock]:6.2f}"
                peak = max(runs[what]["peak"] for runs in rounds) / 2**20
                print(f"{line} {peak:9.1f} {peak / mib:8.2f}")


def in_fresh_process(what: str, folder: Path) -> dict[str, float]:
    command = [sys.executable, __file__, "--measure", what, str(folder)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def measure(what: str, folder: str) -> dict[str, float]:
    file = next(Path(folder) / name for name in WEIGHTS.values() if (Path(folder) / name).exists())
    torch.ones(3).aminmax()  # torch's own first-use costs are not the loader's
    warm(file)
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = memory("VmRSS")
    start, cpu_start = time.perf_counter(), time.process_time()
    kept = file.read_bytes() if what == "read" else load(folder)
    if what == "touched":
        assert isinstance(kept, Checkpoint)
        sum(tensor.numpy().sum() for tensor in kept.tensors.values())
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu_start
    return {"seconds": seconds, "cpu": cpu, "peak": memory("VmHWM") - before}


def warm(file: Path) -> None:
    with file.open("rb") as opened:
        while opened.read(2**20):
            pass


def memory(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":"))


if __name__ == "__main__":
    main()
