"""Which engine is taken where, and the reason that is shown."""

import importlib.util
import shutil

import pytest
import torch

from elmokit import engines
from elmokit.engines import Clips, best_for, engine_named
from elmokit.engines.kernels import cpu
from elmokit.errors import EngineError

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
CLIPPED, FREE = Clips(3.0, 3.0), Clips(None, None)


@pytest.fixture
def machine(monkeypatch):
    """Pretend to be a machine with or without Triton, a compiler, a GPU of some age."""

    def pretend(triton=True, compiler=True, capability=(9, 0)):
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if triton else None)
        monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}" if compiler else None)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: capability)
        engines._why_no_triton_here.cache_clear()

    yield pretend
    engines._why_no_triton_here.cache_clear()


@pytest.fixture
def cannot_compile(monkeypatch):
    monkeypatch.setattr(cpu, "why_no_library", lambda: "needs a C++ compiler, found none")


def test_the_choice_is_a_pure_function_and_says_why(cannot_compile):
    choice = best_for(CPU, torch.float32, CLIPPED)
    assert choice == best_for(CPU, torch.float32, CLIPPED)
    assert str(choice) == "engine=packed (float32 on cpu; cpu: needs a C++ compiler, found none)"
    choice = best_for(CPU, torch.bfloat16, CLIPPED)
    assert str(choice) == "engine=reference (packed: proved for float32 only, found bfloat16)"


def test_cpp_is_taken_on_a_cpu_unless_training(cpu_kernels):
    choice = best_for(CPU, torch.float32, CLIPPED)
    assert choice.name == "cpu" and choice.reason.startswith("float32 on cpu, C++ with ")
    assert str(best_for(CPU, torch.float32, CLIPPED, trains=True)) == "engine=packed (float32 on cpu)"
    assert best_for(CPU, torch.float64, CLIPPED).name == "reference"


def test_int8_is_taken_only_where_it_is_asked_for(cpu_kernels):
    choice = best_for(CPU, torch.float32, CLIPPED, precision="int8")
    assert choice.name == "int8" and "asked for" in choice.reason
    with pytest.raises(EngineError, match="no gradients"):
        best_for(CPU, torch.float32, CLIPPED, precision="int8", trains=True)
    with pytest.raises(EngineError, match="made for a CPU, found cuda"):
        best_for(CUDA, torch.float32, CLIPPED, precision="int8")
    with pytest.raises(EngineError, match="takes float32 weights, found float64"):
        best_for(CPU, torch.float64, CLIPPED, precision="int8")


def test_int8_says_what_it_lacks(cannot_compile):
    with pytest.raises(EngineError, match='needs a C.. compiler, found none. Use precision="float32"'):
        best_for(CPU, torch.float32, CLIPPED, precision="int8")


@pytest.mark.parametrize("clips", [CLIPPED, FREE, Clips(3.0, None)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_triton_is_taken_where_it_runs(machine, clips, dtype):
    machine()
    assert str(best_for(CUDA, getattr(torch, dtype), clips)) == f"engine=triton ({dtype} on cuda)"


@pytest.mark.parametrize("clips", [CLIPPED, FREE])
def test_float64_is_left_to_the_reference(machine, clips):
    machine()
    name, reason = best_for(CUDA, torch.float64, clips)
    assert name == "reference" and "triton: computes in float32, bfloat16 and float16, found float64" in reason


@pytest.mark.parametrize(
    ("lacks", "reason"),
    [
        ({"triton": False}, "triton: not installed"),
        ({"compiler": False}, "triton: needs a C compiler to launch kernels, found neither gcc nor clang"),
        ({"capability": (7, 5)}, "triton: needs compute capability 8.0, found 7.5"),
    ],
)
def test_what_is_taken_instead_of_triton(machine, lacks, reason):
    machine(**lacks)
    assert best_for(CUDA, torch.float32, FREE) == ("cudnn", f"float32 on cuda, nothing clipped; {reason}")
    assert best_for(CUDA, torch.float16, FREE).name == "cudnn"
    assert best_for(CUDA, torch.float32, CLIPPED) == ("packed", f"float32 on cuda; {reason}; cudnn: cannot clip")
    assert best_for(CUDA, torch.float32, Clips(None, 3.0)).name == "packed"
    assert best_for(CUDA, torch.bfloat16, CLIPPED).name == "reference"


def test_an_unknown_engine_is_named_with_the_known_ones():
    with pytest.raises(EngineError, match="'warp'.*packed.*reference"):
        engine_named("warp")
