"""Models that are packages of their own: found by name once installed, and clear words where something is missing."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from elmokit import Elmo, ElmoConfig, Embedder
from elmokit.cli import main
from elmokit.errors import CheckpointError
from elmokit.io import load, model_names, packages

PACKAGES = Path(__file__).parents[2] / "packages"


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """What pip makes of the settings of ko-small, under the name xx-tiny and with a tiny model."""
    folder, site = tmp_path_factory.mktemp("package"), tmp_path_factory.mktemp("site")
    settings = (PACKAGES / "elmokit-ko-small" / "pyproject.toml").read_text(encoding="utf-8")
    settings = settings.replace("ko-small", "xx-tiny").replace("ko_small", "xx_tiny")
    (folder / "pyproject.toml").write_text(settings, encoding="utf-8")
    Elmo.random(ElmoConfig.tiny()).save_pretrained(folder / "elmokit_xx_tiny")
    (folder / "elmokit_xx_tiny" / "__init__.py").write_text("raise AssertionError('nothing of a package runs')")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--no-compile", "--target", str(site), str(folder)], check=True, capture_output=True)
    return site


@pytest.fixture
def site(installed, tmp_path, monkeypatch) -> Path:
    """A folder on the path in which the package is installed."""
    shutil.copytree(installed, tmp_path / "site")
    monkeypatch.syspath_prepend(tmp_path / "site")
    return tmp_path / "site"


def register(name: str, package: str, site: Path, monkeypatch: pytest.MonkeyPatch, *, by: str = "elmokit-test") -> None:
    """What pip would leave of a distribution whose package may or may not be there."""
    info = site / f"{by.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {by}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[elmokit.models]\n{name} = {package}\n")
    monkeypatch.syspath_prepend(site)


def list_state(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What `elmo info` says of the model in its list."""
    capsys.readouterr()
    assert main(["info", "--json"]) == 0
    return next(model["state"] for model in json.loads(capsys.readouterr().out)["models"] if model["name"] == name)


def test_an_installed_package_is_found_by_the_name_of_its_model(site, tmp_path, monkeypatch, capsys):
    (tmp_path / "here" / "xx-tiny").mkdir(parents=True)  # what a name means does not depend on the current folder
    monkeypatch.chdir(tmp_path / "here")
    assert load("xx-tiny").path == site / "elmokit_xx_tiny"
    assert Embedder.from_pretrained("xx-tiny").embed("A bank .").shape == (3, 128)
    assert "xx-tiny" in model_names()
    assert main(["compare", "bank", "A bank .", "The bank .", "--model", "xx-tiny"]) == 0
    assert main(["info", "xx-tiny"]) == 0
    assert main(["info"]) == 0
    assert re.search(r"^xx-tiny +package elmokit-xx-tiny 0\.1\.0$", capsys.readouterr().out, re.MULTILINE)


def test_info_lists_what_is_there_and_what_could_be(capsys, monkeypatch):
    monkeypatch.setattr(packages, "KNOWN", ("en-small", "yy-large"))
    assert main(["info"]) == 0
    shown = capsys.readouterr().out
    assert "en-small  comes with elmokit\n" in shown
    assert "yy-large  not installed; in a checkout: pip install ./packages/elmokit-yy-large\n" in shown
    assert main(["info", "--json"]) == 0
    models = json.loads(capsys.readouterr().out)["models"]
    assert [model["name"] for model in models if model["folder"]] == model_names()


@pytest.mark.parametrize("name", packages.KNOWN)
def test_a_model_that_is_not_installed_is_told_the_command(name, capsys, monkeypatch):
    monkeypatch.setattr(packages, "entry_points", lambda **asked: [])
    assert main(["compare", "bank", "A bank .", "The bank .", "--model", name]) == 2
    assert f"not installed here; in a checkout of elmokit, type: pip install ./packages/elmokit-{name}" in (
        capsys.readouterr().err
    )


def test_the_known_packages_are_those_of_the_checkout():
    assert sorted(packages.KNOWN) == sorted(path.name.removeprefix("elmokit-") for path in PACKAGES.iterdir())


@pytest.mark.parametrize("missing", ["model.safetensors", "config.json"])
def test_a_package_without_its_weights_says_so(site, missing, capsys):
    (site / "elmokit_xx_tiny" / missing).unlink()
    with pytest.raises(
        CheckpointError, match=rf"xx-tiny: the package elmokit-xx-tiny 0\.1\.0 was .* without {missing}"
    ):
        load("xx-tiny")
    assert main(["info"]) == 0
    assert "broken: elmo info NAME says why" in capsys.readouterr().out


def test_a_known_package_without_its_weights_names_the_command(tmp_path, monkeypatch):
    (tmp_path / "nothing_here").mkdir()
    register(packages.KNOWN[0], "nothing_here", tmp_path, monkeypatch)
    command = f"pip install --force-reinstall --no-deps ./packages/elmokit-{packages.KNOWN[0]}"
    with pytest.raises(CheckpointError, match="without config.json and model.safetensors") as caught:
        load(packages.KNOWN[0])
    assert str(caught.value).endswith(command)


def test_a_package_whose_files_are_gone_says_so(tmp_path, monkeypatch, capsys):
    register("zz-tiny", "no_such_package.inside", tmp_path, monkeypatch)
    with pytest.raises(CheckpointError, match=r"zz-tiny: the package elmokit-test 1\.0 is registered, but its files"):
        load("zz-tiny")
    assert main(["info"]) == 0
    assert re.search(r"^zz-tiny +package elmokit-test 1\.0, broken", capsys.readouterr().out, re.MULTILINE)


def test_a_folder_inside_a_package_is_found_and_the_package_does_not_run(site, tmp_path, monkeypatch):
    outer = tmp_path / "other" / "elmokit_outer"
    shutil.copytree(site / "elmokit_xx_tiny", outer / "inside")
    (outer / "__init__.py").write_text("raise AssertionError('nothing of a package runs')")
    register("yy-tiny", "elmokit_outer.inside", tmp_path / "other", monkeypatch)
    assert load("yy-tiny").path == outer / "inside"
    assert "elmokit_outer" not in sys.modules


def test_two_packages_of_one_name_are_not_chosen_from(site, tmp_path, monkeypatch):
    register("xx-tiny", "elmokit_xx_tiny", tmp_path / "other", monkeypatch)
    with pytest.raises(CheckpointError, match=r"elmokit-test 1\.0 and elmokit-xx-tiny 0\.1\.0 both bring a model"):
        load("xx-tiny")


def test_no_package_takes_the_place_of_the_model_that_comes_with_elmokit(site, tmp_path, monkeypatch):
    register("en-small", "elmokit_xx_tiny", tmp_path / "other", monkeypatch)
    assert load("en-small").path == packages.BUNDLED / "en-small"
    assert model_names().count("en-small") == 1


def test_weights_of_another_version_are_said(site, capsys):
    config = site / "elmokit_xx_tiny" / "config.json"
    values = json.loads(config.read_text(encoding="utf-8"))
    config.write_text(json.dumps(values | {"format_version": 99}), encoding="utf-8")
    with pytest.raises(CheckpointError, match="format_version 99 is newer .* pip install --upgrade elmokit"):
        load("xx-tiny")
    assert list_state("xx-tiny", capsys).endswith("broken: elmo info NAME says why")


def test_weights_that_end_early_are_said(site, capsys):
    assert "broken" not in list_state("xx-tiny", capsys)
    weights = site / "elmokit_xx_tiny" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match="it is truncated or damaged: fetch it anew"):
        load("xx-tiny")
    assert list_state("xx-tiny", capsys).endswith("broken: elmo info NAME says why")


def test_weights_of_another_model_are_said(site, tmp_path):
    Elmo.random(ElmoConfig.small()).save_pretrained(tmp_path / "small")
    shutil.copy(tmp_path / "small" / "model.safetensors", site / "elmokit_xx_tiny")
    with pytest.raises(CheckpointError, match="should have shape .* the config belongs to another model"):
        load("xx-tiny")


def test_a_list_of_models_needs_no_torch():
    code = "import sys; from elmokit.cli import main; main(['info']); assert 'torch' not in sys.modules"
    listed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert listed.returncode == 0 and listed.stdout.startswith("en-small"), listed.stderr
