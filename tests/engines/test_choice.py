"""Which engine is taken where, the reason that is shown, and that what is shown is what runs."""

import importlib.util
import itertools
import logging
import shutil
import subprocess
import sys

import pytest
import torch

from elmokit.config import CharConfig, ElmoConfig, LstmConfig
from elmokit.engines import choice, choose
from elmokit.errors import EngineError
from elmokit.nn import bilm, operations, output_layer, word_encoder
from elmokit.nn.bilm import BiLM
from elmokit.nn.operations import Clips, Request, find_engine
from elmokit.nn.output_layer import OutputLayer
from elmokit.nn.word_encoder import WordEncoder

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
CLIPPED, FREE = Clips(3.0, 3.0), Clips(None, None)
DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}


@pytest.fixture
def machine(monkeypatch):
    """Pretend to be a machine with or without Triton, a compiler, a GPU of some age."""

    def pretend(triton=True, compiler=True, capability=(9, 0)):
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if triton else None)
        monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}" if compiler else None)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: capability)
        choice._why_no_triton_here.cache_clear()

    yield pretend
    choice._why_no_triton_here.cache_clear()


@pytest.fixture
def cannot_compile(monkeypatch):
    monkeypatch.setattr(choice, "why_no_library", lambda: "needs a C++ compiler, found none")


# The table of choices: device, dtype, gradients wanted, clips, projection; words, recurrence.
TABLE = [
    ("cpu", "float32", False, CLIPPED, True, "cpu", "cpu"),
    ("cpu", "float32", False, FREE, False, "cpu", "cpu"),
    ("cpu", "float32", True, CLIPPED, True, "reference", "packed"),
    ("cpu", "float64", False, CLIPPED, True, "reference", "reference"),
    ("cpu", "bfloat16", True, FREE, True, "reference", "reference"),
    ("mps", "float32", False, CLIPPED, True, "reference", "packed"),
    ("cuda", "float32", True, CLIPPED, True, "triton", "triton"),
    ("cuda", "bfloat16", False, FREE, True, "triton", "triton"),
    ("cuda", "float16", True, CLIPPED, True, "triton", "triton"),
    ("cuda", "float32", True, CLIPPED, False, "triton", "packed"),
    ("cuda", "bfloat16", True, FREE, False, "triton", "cudnn"),
    ("cuda", "float32", False, Clips(None, 3.0), False, "triton", "cudnn"),
    ("cuda", "float64", True, FREE, True, "reference", "reference"),
]


@pytest.mark.usefixtures("cpu_kernels")
@pytest.mark.parametrize(("device", "dtype", "wants_grad", "clips", "has_projection", "words", "recurrence"), TABLE)
def test_the_table_of_choices(machine, device, dtype, wants_grad, clips, has_projection, words, recurrence):
    machine()
    request = Request("words", torch.device(device), DTYPES[dtype], wants_grad=wants_grad)
    assert choose(request).name == words
    request = request._replace(operation="recurrence", clips=clips, has_projection=has_projection)
    assert choose(request).name == recurrence
    if recurrence != "reference":  # where torch records or replaces operations, C++ and in-place work are left out
        watched = choose(request._replace(is_plain=False)).name
        assert watched == ("reference" if recurrence in ("cpu", "packed") else recurrence)


@pytest.mark.parametrize(
    ("device", "dtype", "width", "name", "reason"),
    [
        ("cpu", "bfloat16", 128, "chunked", "C++: takes float32, found bfloat16"),
        ("cuda", "float64", 128, "chunked", "triton: computes in bfloat16 and float32, found float64"),
        ("cuda", "bfloat16", 100, "chunked", "triton: made for the widths (64, 128, 256, 512), found 100"),
        ("cuda", "float32", 256, "chunked", "triton: made for the widths (64, 128), found 256"),
        ("cuda", "bfloat16", 512, "triton", "bfloat16 on cuda"),
    ],
)
def test_the_choice_of_a_loss(machine, device, dtype, width, name, reason):
    machine()
    assert choose(Request("loss", torch.device(device), DTYPES[dtype], width=width))[:2] == (name, reason)


def test_the_loss_of_evaluation_on_a_cpu_is_the_kernels(cpu_kernels):
    request = Request("loss", CPU, torch.float32, width=100)
    assert str(choose(request)).startswith("engine=cpu (float32 on cpu, C++ with ")
    assert str(choose(request._replace(wants_grad=True))) == "engine=chunked (C++: computes no gradients)"


def test_the_loss_without_a_compiler(cannot_compile):
    reason = "C++: needs a C++ compiler, found none"
    assert choose(Request("loss", CPU, torch.float32, width=100))[:2] == ("chunked", reason)


def test_reasons_are_said(cannot_compile):
    request = Request("recurrence", CPU, torch.float32, clips=CLIPPED)
    assert str(choose(request)) == "engine=packed (float32 on cpu; C++: needs a C++ compiler, found none)"
    found = str(choose(request._replace(dtype=torch.bfloat16)))
    reasons = "C++: takes float32, found bfloat16; packed: proved for float32 only, found bfloat16"
    assert found == f"engine=reference ({reasons})"
    assert "C++: computes no gradients" in choose(request._replace(wants_grad=True)).reason
    assert "several dtypes" in choose(request._replace(dtype=None)).reason


@pytest.mark.usefixtures("cpu_kernels")
def test_int8_is_taken_only_where_it_is_asked_for():
    request = Request("recurrence", CPU, torch.float32, "int8", clips=CLIPPED)
    assert choose(request).name == "int8" and "asked for" in choose(request).reason
    with pytest.raises(EngineError, match="no gradients"):
        choose(request._replace(wants_grad=True))
    with pytest.raises(EngineError, match="made for a CPU, found cuda"):
        choose(request._replace(device=CUDA))
    with pytest.raises(EngineError, match="takes float32, found float64"):
        choose(request._replace(dtype=torch.float64))


def test_int8_says_what_it_lacks(cannot_compile):
    with pytest.raises(EngineError, match='needs a C.. compiler, found none. Use precision="float32"'):
        choose(Request("recurrence", CPU, torch.float32, "int8", clips=CLIPPED))


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
    free = Request("recurrence", CUDA, torch.float32, clips=FREE)
    assert choose(free)[:2] == ("cudnn", f"float32 on cuda, nothing clipped; {reason}")
    assert choose(free._replace(dtype=torch.float16)).name == "cudnn"
    clipped = free._replace(clips=CLIPPED)
    assert choose(clipped)[:2] == ("packed", f"float32 on cuda; {reason}; cudnn: cannot clip")
    assert choose(free._replace(clips=Clips(None, 3.0))).name == "packed"
    assert choose(clipped._replace(dtype=torch.bfloat16)).name == "reference"


def test_an_unknown_engine_is_named_with_the_known_ones():
    with pytest.raises(EngineError, match="'warp'.*packed.*reference"):
        find_engine("recurrence", "warp")


@pytest.fixture
def ran(monkeypatch):
    """The engines that were run, as (operation, name)."""
    found = []

    def find_and_note(operation, name):
        engine = find_engine(operation, name)

        def run(*inputs, **options):
            found.append((operation, name))
            return engine(*inputs, **options)

        return run

    for module in (bilm, output_layer, word_encoder):
        monkeypatch.setattr(module, "find_engine", find_and_note)
    return found


CASES = list(
    itertools.product(("float32", "float64"), (False, True), (False, True), ("float32", "int8"), (CLIPPED, FREE))
)


@pytest.mark.usefixtures("cpu_kernels")
@pytest.mark.parametrize(("dtype", "learns", "in_no_grad", "precision", "clips"), CASES)
def test_what_is_reported_is_what_runs(dtype, learns, in_no_grad, precision, clips, ran):
    lstm = LstmConfig(cell_dim=8, projection_dim=4, cell_clip=clips.cell, projection_clip=clips.projection)
    stacks = BiLM(lstm).to(DTYPES[dtype]).requires_grad_(learns)
    encoder = WordEncoder(ElmoConfig(CharConfig(dim=3, filters=((1, 4),)), lstm=lstm))
    encoder = encoder.to(DTYPES[dtype]).requires_grad_(learns)
    stacks.precision = encoder.precision = precision
    ids = torch.randint(1, 262, (6, 50))
    with torch.set_grad_enabled(not in_no_grad):
        if precision == "int8" and (dtype != "float32" or (learns and not in_no_grad)):
            for run in (lambda: stacks.engine, lambda: encoder.engine, lambda: encoder(ids)):
                with pytest.raises(EngineError, match="int8"):
                    run()
            assert not ran
            return
        reported = [("words", encoder.engine.name), *[("recurrence", stacks.engine.name)] * 2]
        stacks(encoder(ids).view(2, 3, 4), lengths=[3, 2])
    wants_grad = learns and not in_no_grad
    inference = {"float32": "cpu", "int8": "int8"}[precision]
    words, recurrence = ("reference", "packed") if wants_grad else (inference, inference)
    if dtype == "float64":
        words = recurrence = "reference"
    assert ran == reported == [("words", words), *[("recurrence", recurrence)] * 2]


@pytest.mark.usefixtures("cpu_kernels")
def test_words_that_learn_take_another_engine_than_frozen_weights_report(ran):
    stacks = BiLM(LstmConfig(cell_dim=8, projection_dim=4)).requires_grad_(False)
    words = torch.randn(1, 3, 4, requires_grad=True)
    stacks(words, lengths=[3])[0].sum().backward()
    assert stacks.engine.name == "cpu" and set(ran) == {("recurrence", "packed")} and words.grad is not None


def test_the_loss_reported_is_the_loss_that_runs(ran):
    layer, hidden, targets = OutputLayer(9, 4), torch.randn(3, 4), torch.tensor([0, 1, 8])
    layer.full_losses(hidden, targets)[0]
    layer.token_losses(hidden, targets)
    layer.sampled_losses(hidden, targets, torch.tensor([2, 3]), torch.zeros(2))[0]
    with torch.no_grad():
        evaluates = layer.engine_for(hidden).name
    assert ran == [("loss", name) for name in (layer.engine_for(hidden).name, evaluates, layer.engine_for(hidden).name)]


def test_a_choice_is_logged_once(caplog, monkeypatch):
    monkeypatch.setattr(operations, "_told", set())
    stacks = BiLM(LstmConfig(cell_dim=8, projection_dim=4))
    with caplog.at_level(logging.INFO, "elmokit.engines"):
        for _ in range(3):
            stacks(torch.randn(1, 3, 4), lengths=[3])
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("recurrence: engine=packed (float32 on cpu; C++: ")


def test_without_engines_the_network_runs_by_its_references():
    code = (
        "import sys, torch\n"
        "from elmokit.config import ElmoConfig\n"
        "from elmokit.nn.bilm import BiLM\n"
        "from elmokit.nn.output_layer import OutputLayer\n"
        "from elmokit.nn.word_encoder import WordEncoder\n"
        "config = ElmoConfig.tiny()\n"
        "encoder, bilm, softmax = WordEncoder(config), BiLM(config.lstm), OutputLayer(9, 64)\n"
        "layers, _ = bilm(encoder(torch.randint(1, 262, (6, 50))).view(2, 3, 64), lengths=[3, 2])\n"
        "loss = softmax.full_losses(layers[-1, 0, :, :64], torch.tensor([0, 1, 2]))[0]\n"
        "loss.backward()\n"
        "assert encoder.engine.name == bilm.engine.name == softmax.engine_for(layers).name == 'reference'\n"
        "assert 'elmokit.engines' not in sys.modules and torch.isfinite(loss)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
