"""Train with the constants that `training_on_device.py` found fastest, without editing a file.

    PYTHONPATH=src python benchmarks/train_with_settings.py $OUT/training.json -- TEXT -o DIR --recipe small
    PYTHONPATH=src python benchmarks/train_with_settings.py none --set triton.JOINS=1 triton.ROWS=64 -- TEXT -o DIR

What follows `--` are the arguments of `python -m elmokit.pretrain.train`. If a check of the kernels failed or was wrong
there, its settings are not taken, and this says so; `--set` is obeyed in any case.
"""

import argparse
import ast
import importlib
import json
import sys
from pathlib import Path

from training_on_device import MODULES

from elmokit.pretrain.train import main as train


def found_settings(path: str, shape: str) -> dict[str, dict[str, int]]:
    """By module the constants that were fastest; none if anything was wrong with the kernels."""
    if path == "none":
        return {}
    found = json.loads(Path(path).read_text())
    failed = [name for name in found.get("failures", {}) if name.startswith("check")]
    if found.get("wrong") or failed:
        print(f"settings not taken: {found.get('wrong', [])} {failed}", flush=True)
        return {}
    best = found.get("best", {})
    return {name: best[key] for name in MODULES for key in (name, f"{name}/{shape}") if key in best}


def main() -> int:
    """Set, then train; gives the exit code."""
    cut = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", help="training.json, or none")
    parser.add_argument("--shape", default="small", choices=["small", "original"])
    parser.add_argument("--set", nargs="*", default=[], metavar="MODULE.NAME=VALUE")
    args = parser.parse_args(sys.argv[1:cut])
    settings = found_settings(args.settings, args.shape)
    for place, value in (setting.split("=") for setting in args.set):
        module, name = place.split(".")
        settings.setdefault(module, {})[name] = ast.literal_eval(value)
    for module, constants in settings.items():
        owner = importlib.import_module(MODULES[module])
        for name, value in constants.items():
            assert hasattr(owner, name), f"{module} has no constant {name}"
            setattr(owner, name, value)
    print(f"settings: {settings}", flush=True)
    return train(sys.argv[cut + 1 :])


if __name__ == "__main__":
    sys.exit(main())
