"""`make test-pythons`: the wheel, installed outside the checkout and tried with each Python that is here.

Names or paths of interpreters come in, and a table leaves: interpreter × (install, demo, tests), with seconds. The
wheel is built once. Each interpreter gets an environment of its own with the versions of constraints.txt, which is
removed before the next: with CUDA it takes 5 GB. The exit code is 1 where something fails or no Python is found.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHONS = [f"python3.{minor}" for minor in range(10, 15)]
# Triton comes with the CUDA build of torch only, and tests import the kernels.
TOOLS = ["pytest", "hypothesis", "pyyaml", "matplotlib", "triton; platform_system == 'Linux'"]
EVERY_HELP = """
import sys
from elmokit.cli import COMMANDS, GROUPS, main
names = [[name] for name in [*COMMANDS, *GROUPS]]
names += [[group, name] for group, (commands, _) in GROUPS.items() for name in commands]
sys.exit(max(main([*words, "--help"]) for words in names))
"""
MODES = [[], ["-OO"], ["-W", "error"]]
TESTS = ["test_cli*.py", "test_package.py", "test_config.py", "text", "nn", "embed/test_embedder.py"]
# These wait or count for a long time and have nothing to do with the version of Python.
SLOW = ["thousands_of_calls", "beyond_torch", "half_a_second"]


def main(pythons: list[str]) -> int:
    """Try each interpreter and show the table."""
    found = find_pythons(pythons or PYTHONS)
    rows, is_good = [("Python", "install", "demo", "tests")], bool(found)
    with tempfile.TemporaryDirectory(prefix="elmokit-pythons-") as name:
        folder = Path(name)
        wheel = build_wheel(folder / "dist") if found else None
        for version, python in found.items():
            row = [version]
            for step in (install, show_demo, run_tests):
                outcome, seconds = try_step(step, python, folder / version, wheel)
                row.append(f"{outcome}, {seconds:.0f} s")
                if outcome == "FAILED":
                    is_good = False
                    break  # the steps after it need it
            rows.append((*row, *["not run"] * (4 - len(row))))
            shutil.rmtree(folder / version, ignore_errors=True)
    for row in rows:
        say("  ".join(cell.ljust(14) for cell in row).rstrip())
    if not found:
        say(f"no Python found among {', '.join(pythons or PYTHONS)}: name others with PYTHONS='PATH …'")
    return 0 if is_good else 1


def find_pythons(names: list[str]) -> dict[str, str]:
    """The interpreters that run, by version; a name may be there without a Python behind it, as pyenv's are."""
    found = {}
    for name in names:
        code = "import platform, sys; print(platform.python_version(), sys.executable)"
        try:
            done = subprocess.run([name, "-c", code], capture_output=True, text=True)
        except OSError:
            continue
        if done.returncode == 0:
            version, executable = done.stdout.split(maxsplit=1)
            found[version] = executable.strip()
    return found


def build_wheel(folder: Path) -> Path:
    """The wheel of this checkout, which must be the one that is tested."""
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(pip, check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def try_step(step: Callable[[str, Path, Path], None], python: str, folder: Path, wheel: Path) -> tuple[str, float]:
    """Run one step; what it printed is shown only where it fails."""
    began = time.perf_counter()
    try:
        step(python, folder, wheel)
        outcome = "good"
    except subprocess.CalledProcessError as problem:
        say(f"{problem.cmd}\n{problem.stdout}")
        outcome = "FAILED"
    seconds = time.perf_counter() - began
    say(f"Python {folder.name}: {step.__name__.replace('_', ' ')}: {outcome}, {seconds:.0f} s")
    return outcome, seconds


def install(python: str, folder: Path, wheel: Path) -> None:
    """A new environment with the wheel, torch first, as the Makefile does."""
    folder.mkdir()
    run([python, "-m", "venv", "env"], folder)
    pip = [inside(folder, "python"), "-m", "pip", "install", "--quiet", "--no-compile"]  # most is never imported
    pip += ["-c", str(ROOT / "constraints.txt")]
    run([*pip, "torch"], folder)
    run([*pip, f"{wheel}[serve,sklearn]", *TOOLS], folder)


def show_demo(_: str, folder: Path, wheel: Path) -> None:
    """The commands of a newcomer: as installed, without docstrings (`-OO`), and with no warning (`-W error`)."""
    where = run([inside(folder, "python"), "-c", "import elmokit; print(elmokit.__file__)"], folder)
    assert where.startswith(str(folder)), f"{where} is not the wheel that was installed"
    run([inside(folder, "elmo"), "--version"], folder)
    (folder / "lines.txt").write_text("She sat by the river bank .\nThe bank lent him money 😀 .\n", encoding="utf-8")
    for mode in MODES:
        elmo = [inside(folder, "python"), *mode, "-m", "elmokit"]
        run([*elmo, "--version"], folder)
        run([*elmo, "--help"], folder)
        run([inside(folder, "python"), *mode, "-c", EVERY_HELP], folder)
        run([*elmo, "compare", "bank", "She sat by the river bank .", "The bank lent him money ."], folder)
        run([*elmo, "embed", "lines.txt", "-o", "vectors.parquet", "--overwrite"], folder)


def run_tests(_: str, folder: Path, wheel: Path) -> None:
    """A part of the tests, of which each fits an installed package and takes little time."""
    paths = [str(path) for pattern in TESTS for path in sorted((ROOT / "tests").glob(pattern))]
    leave_out = " and ".join(f"not {name}" for name in SLOW)
    pytest = [inside(folder, "python"), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", leave_out]
    say(run([*pytest, *paths], folder).splitlines()[-1])


def run(command: list[str], folder: Path) -> str:
    """Run a command in the folder, where it cannot see the checkout; what it prints."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "ELMOKIT_KERNELS": str(folder / "kernels")}
    done = subprocess.run(
        command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    done.check_returncode()
    return done.stdout


def inside(folder: Path, program: str) -> str:
    """The path of a program of the environment."""
    return str(folder / "env" / "bin" / program)


def say(text: str) -> None:
    """Print one line now."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
