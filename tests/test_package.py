"""The package as a whole: its public names, what importing it costs, and its metadata."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import elmokit
from elmokit.errors import MissingExtra

ROOT = Path(__file__).parents[1]
MODULES = sorted(
    ".".join(path.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
    for path in (ROOT / "src").rglob("*.py")
)
NOT_EVERYWHERE = ("fcntl", "grp", "pwd", "resource", "termios", "triton")
HEAVY = ("torch", "numpy", "pyarrow", "h5py", "huggingface_hub", "safetensors", "tyro", "regex")


def in_a_fresh_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_public_names_are_importable_and_nothing_else_is_public():
    assert dir(elmokit) == sorted(elmokit.__all__)
    for name in elmokit.__all__:
        assert getattr(elmokit, name) is not None
    tree = ast.parse((ROOT / "src/elmokit/__init__.py").read_text(encoding="utf-8"))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    lazy = set(elmokit.__all__) - {"__version__"}
    assert lazy == imported - {"annotations", "import_module", "TYPE_CHECKING", "find_version"}


def test_public_names_stand_in_the_all_of_their_module():
    for name, home in elmokit._HOME_OF.items():
        assert name in import_module(home).__all__


def test_every_extra_is_imported_somewhere():
    tomllib = pytest.importorskip("tomllib")  # Python 3.11
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    for extra in set(extras) - {"all", "test", "docs"}:
        for requirement in extras[extra]:
            name = re.split(r"[\[<>=]", requirement)[0].replace("scikit-learn", "sklearn").replace("-", "_")
            assert re.search(rf"^\s*(import|from) \S*\b{name}\b", source, re.M), f"{extra} asks for {name} in vain"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'Bert'"):
        elmokit.Bert  # noqa: B018


@pytest.mark.parametrize("module", MODULES)
def test_every_module_declares_its_names(module):
    try:
        loaded = import_module(module)
    except MissingExtra as problem:  # tested where it is installed: noxfile.py
        pytest.skip(str(problem))
    assert loaded.__doc__
    for name in loaded.__all__:
        assert hasattr(loaded, name)


def test_only_gpu_kernels_need_what_windows_and_macos_lack():
    code = (
        "import importlib, sys, torch\n"
        f"sys.modules.update(dict.fromkeys({NOT_EVERYWHERE!r}))\n"
        f"for module in {MODULES!r}:\n"
        "    try: importlib.import_module(module)\n"
        "    except ImportError as problem:\n"
        "        if type(problem).__name__ != 'MissingExtra': print(module, problem.name)\n"
    )
    missing = dict(line.split() for line in in_a_fresh_python(code).splitlines())
    assert set(missing.values()) == {"triton"}
    kernels = ("elmokit.engines.", "elmokit.pretrain.optim.muon_kernel", "elmokit.pretrain.dropout_kernel")
    assert all(module.startswith(kernels) for module in missing)


def test_import_pulls_in_nothing_heavy():
    loaded = in_a_fresh_python(f"import sys, elmokit; print([m for m in {HEAVY!r} if m in sys.modules])")
    assert loaded.strip() == "[]"


def test_import_costs_less_than_a_tenth_of_a_second_beyond_torch():
    code = "import torch, time; start = time.perf_counter(); import elmokit; print(time.perf_counter() - start)"
    assert any(float(in_a_fresh_python(code)) < 0.1 for _ in range(3))  # again only if the machine was busy


def test_import_neither_seeds_nor_chooses_a_device():
    code = (
        "import torch; torch.manual_seed(3); before = torch.get_rng_state();"
        "import elmokit; elmokit.Embedder; elmokit.Elmo;"
        "print(torch.equal(before, torch.get_rng_state()), torch.get_default_device(), torch.get_default_dtype())"
    )
    assert in_a_fresh_python(code).split() == ["True", "cpu", "torch.float32"]


@pytest.mark.skipif(ROOT not in Path(elmokit.__file__).parents, reason="an installed package is tested")
def test_a_checkout_that_is_not_installed_has_a_version():
    code = "import importlib.metadata as m; m.distribution = lambda name: m.Distribution.from_name('no such package'); "
    assert in_a_fresh_python(code + "import elmokit; print(elmokit.__version__)").strip() == elmokit.__version__


def test_versions_agree():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert elmokit.__version__ == metadata("elmokit")["Version"] == citation["version"]
    assert citation["cff-version"] == "1.2.0"
    assert citation["references"][0]["doi"] == "10.18653/v1/N18-1202"


def read_pins() -> list[Requirement]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def needs_of(requirement: Requirement) -> Iterator[Requirement]:
    """What an installed package and its extras need here; nothing of a package that is not installed."""
    try:
        needed = [Requirement(line) for line in requires(requirement.name) or []]
    except PackageNotFoundError:
        return
    for extra in ("", *requirement.extras):
        yield from (one for one in needed if one.marker is None or one.marker.evaluate({"extra": extra}))


def test_constraints_pin_every_dependency_exactly():
    pins = read_pins()
    assert all([specifier.operator for specifier in pin.specifier] == ["=="] for pin in pins)
    pinned = {canonicalize_name(pin.name) for pin in pins if pin.marker is None or pin.marker.evaluate()}
    for needed in map(Requirement, requires("elmokit") or []):
        if any(needed.marker is None or needed.marker.evaluate({"extra": extra}) for extra in ("test", "docs")):
            assert canonicalize_name(needed.name) in pinned, f"{needed.name} is not pinned in constraints.txt"


def test_constraints_pin_what_the_dependencies_need_in_the_versions_that_are_tested():
    pinned = {canonicalize_name(pin.name): pin for pin in read_pins() if pin.marker is None or pin.marker.evaluate()}
    ahead, seen = [Requirement("elmokit[test]")], set()
    while ahead:
        for needed in needs_of(ahead.pop()):
            name = canonicalize_name(needed.name)
            if (name, *needed.extras) in seen or name.startswith(("nvidia-", "cuda-")):  # which torch itself pins
                continue
            seen.add((name, *needed.extras))
            ahead.append(needed)
            assert name in pinned, f"{name} is not pinned in constraints.txt"
            with suppress(PackageNotFoundError):
                installed = Version(version(name)).public  # torch 2.13.0+cpu is torch 2.13.0 for a CPU
                assert pinned[name].specifier.contains(installed), f"{installed} is installed, {pinned[name]} pinned"
    assert len(seen) > 20


def test_constraints_have_one_version_for_each_python():
    lines = {}
    for pin in read_pins():
        lines.setdefault(canonicalize_name(pin.name), []).append(pin)
    for python in versions_of_python():
        for name, pins in lines.items():
            held = [pin for pin in pins if pin.marker is None or pin.marker.evaluate({"python_version": python})]
            assert len(held) == 1 or len(pins) == 1, f"{name} has {len(held)} versions for Python {python}"


def versions_of_python() -> list[str]:
    classifiers = metadata("elmokit").get_all("Classifier") or []
    return [text.rpartition(" ")[2] for text in classifiers if re.search(r":: 3\.\d+$", text)]


def test_this_python_is_one_of_those_that_the_metadata_names():
    assert "{}.{}".format(*sys.version_info) in versions_of_python()
    assert metadata("elmokit")["Requires-Python"] == f">={versions_of_python()[0]}"
