"""Our own format: what goes in comes out, old versions load, and nothing on disk changes behind anyone's back."""

import json
from dataclasses import replace
from math import prod
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from elmokit.config import CharConfig, ElmoConfig, LstmConfig, WordConfig
from elmokit.errors import CheckpointError, OutputError
from elmokit.io import Checkpoint, expected_shapes, load, num_parameters, save
from elmokit.io.checkpoint import optional_shapes
from elmokit.io.safe_tensors import read_safetensors

DATA = Path(__file__).parents[1] / "data"


@pytest.mark.parametrize(
    ("config", "count"),
    [
        (ElmoConfig.small(), 13_593_296),
        (ElmoConfig.medium(), 28_027_728),
        (ElmoConfig.original(), 93_600_848),
    ],
)
def test_parameter_counts_of_the_published_models(config, count):
    assert sum(prod(shape) for shape in expected_shapes(config).values()) == count
    assert num_parameters(config) == count


@pytest.mark.parametrize("highways", [0, 3])
@pytest.mark.parametrize("cell_dim", [4, 6])
def test_parameters_are_counted_as_shapes_are(highways, cell_dim):
    characters = CharConfig(dim=3, filters=((1, 2), (2, 3)), num_highways=highways)
    config = ElmoConfig(characters, WordConfig(7, 5), LstmConfig(num_layers=3, cell_dim=cell_dim, projection_dim=4))
    assert sum(prod(shape) for shape in expected_shapes(config).values()) == num_parameters(config)


@pytest.mark.parametrize("version", [1, 2])
def test_every_version_loads_forever(version):
    checkpoint = load(DATA / f"native-v{version}", softmax=True)
    assert checkpoint.softmax is not None
    tensors = checkpoint.tensors | checkpoint.softmax
    expected = json.loads((DATA / f"native-v{version}-expected.json").read_text())
    first = load(DATA / "native-v1")
    assert all((tensors[name] - tensor).abs().max() < 0.02 for name, tensor in first.tensors.items())
    assert tensors.keys() == expected.keys()
    for name, total in expected.items():
        assert tensors[name].double().sum().item() == pytest.approx(total, abs=1e-9), name
    assert checkpoint.swaps_markers
    assert checkpoint.alphabet == ["<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>", "a", "é", "\u3000", "字", "😀"]
    assert checkpoint.vocabulary == ["<oov>", "<bos>", "<eos>", "the", "bank"]
    assert checkpoint.output_words == ["<S>", "</S>", "<UNK>", "a b", "\u2028"]
    assert checkpoint.config.lstm == LstmConfig(2, 6, 4, cell_clip=None, projection_clip=3.0)
    assert checkpoint.scheme().columns == 13


def test_float32_comes_back_to_the_bit(random_checkpoint, tmp_path):
    checkpoint = random_checkpoint(metadata={"name": "Mine"})
    again = load(save(checkpoint, tmp_path / "out"))
    assert again.config == checkpoint.config and again.metadata == {"name": "Mine"}
    assert again.format == "native" and again.path == tmp_path / "out"
    assert again.tensors.keys() == checkpoint.tensors.keys()
    assert all(torch.equal(again.tensors[name], tensor) for name, tensor in checkpoint.tensors.items())


def test_float16_halves_the_file_and_keeps_the_mix(random_checkpoint, tmp_path):
    checkpoint = random_checkpoint()
    for name, shape in optional_shapes(checkpoint.config).items():
        checkpoint.tensors[name] = torch.full(shape, -9e10)  # a frozen mix; float16 ends at 65504
    small, large = (save(checkpoint, tmp_path / kind, dtype=kind) for kind in ("float16", "float32"))
    size = [(folder / "model.safetensors").stat().st_size for folder in (small, large)]
    assert size[0] < 0.7 * size[1]
    again = load(small)
    assert all(tensor.dtype == torch.float32 for tensor in again.tensors.values())
    assert torch.equal(again.tensors["mix.weights"], checkpoint.tensors["mix.weights"])
    name = "bilm.forward_layers.0.input_weight"
    assert torch.equal(again.tensors[name], checkpoint.tensors[name].half().float())


def test_numbers_too_large_for_float16_are_refused(random_checkpoint, tmp_path):
    checkpoint = random_checkpoint()
    checkpoint.tensors["encoder.projection.bias"][0] = 1e6
    with pytest.raises(OutputError, match=r"encoder\.projection\.bias holds numbers too large"):
        save(checkpoint, tmp_path / "out", dtype="float16")
    assert not list(tmp_path.iterdir())


def test_id_only_words_stay_without_names(random_checkpoint, tmp_path):
    config = ElmoConfig(None, WordConfig(5, 4), LstmConfig(cell_dim=6, projection_dim=4), projects_words=False)
    again = load(save(random_checkpoint(config), tmp_path / "out"))
    assert again.vocabulary is None and again.config == config


def test_odd_words_survive(random_checkpoint, tmp_path):
    words = ["", " ", "\u3000", "\u2028", "\x85", "a\rb", "\r", "\ufeff", "\t", "é"]
    softmax = {"softmax.weight": torch.randn(len(words), 4), "softmax.bias": torch.randn(len(words))}
    checkpoint = random_checkpoint(softmax=softmax, output_words=words)
    again = load(save(checkpoint, tmp_path / "out"), softmax=True)
    assert again.output_words == words


@pytest.mark.parametrize("word", ["two\nlines", "\ud800"])
def test_words_that_no_text_file_can_hold(random_checkpoint, tmp_path, word):
    softmax = {"softmax.weight": torch.randn(1, 4), "softmax.bias": torch.randn(1)}
    with pytest.raises(OutputError, match="cannot be written"):
        save(random_checkpoint(softmax=softmax, output_words=[word]), tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_the_softmax_is_read_when_asked_for(random_checkpoint, tmp_path):
    softmax = {"softmax.weight": torch.randn(3, 4), "softmax.bias": torch.randn(3)}
    folder = save(random_checkpoint(softmax=softmax), tmp_path / "out")
    assert load(folder).softmax is None
    again = load(folder, softmax=True)
    assert again.softmax is not None and torch.equal(again.softmax["softmax.weight"], softmax["softmax.weight"])
    assert again.output_words is None


def test_parameters_views_and_gradients_can_be_saved(random_checkpoint, tmp_path):
    checkpoint = random_checkpoint()
    name = "encoder.projection.weight"
    original = checkpoint.tensors[name].clone()
    checkpoint.tensors[name] = torch.nn.Parameter(original.T.contiguous()).T  # a transposed view with a gradient
    assert torch.equal(load(save(checkpoint, tmp_path / "out")).tensors[name], original)


def test_training_on_loaded_weights_leaves_the_file_alone(native_folder):
    before = (native_folder / "model.safetensors").read_bytes()
    for tensor in load(native_folder).tensors.values():
        tensor.add_(1)
    assert (native_folder / "model.safetensors").read_bytes() == before


def test_the_same_model_gives_the_same_bytes(random_checkpoint, tmp_path):
    for kind, names in (("native", ["config.json", "model.safetensors", "README.md"]), ("allennlp", ["weights.hdf5"])):
        folders = [save(random_checkpoint(), tmp_path / f"{kind}{i}", format=kind) for i in (1, 2)]
        for name in names:
            assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()


def test_files_are_marked_and_readable_by_others(native_folder):
    with safe_open(native_folder / "model.safetensors", framework="pt") as file:
        assert file.metadata() == {"format": "pt"}
    modes = {(native_folder / name).stat().st_mode for name in ("config.json", "model.safetensors")}
    assert len(modes) == 1


def test_the_card_says_what_is_known(random_checkpoint, tmp_path):
    known = {"name": "Ourselmo", "license": "mit", "language": "is", "corpus": "200 sagas", "price": "$name"}
    card = (save(random_checkpoint(metadata=known), tmp_path / "out") / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: elmokit\n") and '\nlicense: "mit"\nlanguage: "is"\n---\n' in card
    assert "# Ourselmo" in card and "| corpus | 200 sagas |" in card and "| price | $name |" in card


def test_fields_of_other_tools_in_the_config_are_let_be(native_folder):
    path = native_folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "architectures": ["ElmoModel"], "hidden_size": 8}))
    assert load(native_folder).config.dim == 8


@pytest.mark.parametrize(
    ("version", "message"),
    [(3, "newer than 2.*pip install --upgrade elmokit"), (0, "found 0"), ("1", "found '1'"), (None, "found None")],
)
def test_other_versions(native_folder, version, message):
    path = native_folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format_version": version}))
    with pytest.raises(CheckpointError, match=message):
        load(native_folder)


def test_a_list_of_another_length_is_refused_on_saving(random_checkpoint, tmp_path, tiny_config):
    config = replace(tiny_config, words=WordConfig(3, 2))
    with pytest.raises(OutputError, match="vocabulary has 1 entries and its table 3 rows"):
        save(random_checkpoint(config, vocabulary=["one"]), tmp_path / "out")


def test_an_int8_output_layer_comes_back_within_half_a_step(tmp_path):
    generator = torch.Generator().manual_seed(0)
    lstm = LstmConfig(num_layers=1, cell_dim=6, projection_dim=4)
    config = ElmoConfig(CharConfig(dim=2, filters=((1, 3),), num_highways=0), lstm=lstm)
    tensors = {name: torch.randn(shape, generator=generator) for name, shape in expected_shapes(config).items()}
    weight, bias = torch.randn(5, 4, generator=generator), torch.randn(5, generator=generator)
    weight[2] = 0
    softmax = {"softmax.weight": weight, "softmax.bias": bias}
    words = ["<S>", "</S>", "<UNK>", "a", "b"]
    save(Checkpoint(config, tensors, softmax=softmax, output_words=words), tmp_path / "m", softmax_dtype="int8")
    with safe_open(tmp_path / "m" / "softmax.safetensors", framework="pt") as file:
        assert file.get_tensor("softmax.weight").dtype == torch.int8
    loaded = load(tmp_path / "m", softmax=True)
    assert loaded.output_words == words
    step = weight.abs().amax(dim=1, keepdim=True) / 127
    assert ((loaded.softmax["softmax.weight"] - weight).abs() <= step / 2 + 1e-6).all()
    assert torch.equal(loaded.softmax["softmax.bias"], bias)


def test_int8_weights_come_back_within_half_a_step_of_their_unit(random_checkpoint, tmp_path):
    checkpoint = random_checkpoint()
    config = checkpoint.config
    folder = save(checkpoint, tmp_path / "m", dtype="int8")
    assert json.loads((folder / "config.json").read_text())["format_version"] == 2
    again = load(folder)
    assert again.tensors.keys() == checkpoint.tensors.keys()
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        kinds = {name: file.get_tensor(name).dtype for name in file.keys()}  # noqa: SIM118
    for name, shape in expected_shapes(config).items():
        weight, found = checkpoint.tensors[name], again.tensors[name]
        is_matrix = len(shape) > 1 and name != "encoder.characters.embedding"
        assert kinds[name] == (torch.int8 if is_matrix else torch.float16), name
        if not is_matrix:
            assert torch.equal(found, weight.half().float()), name
            continue
        units = [0] if name.startswith("bilm.") else list(range(1, len(shape)))  # summed over for a unit
        step = weight.abs().amax(dim=units, keepdim=True) / 127
        assert ((found - weight).abs() <= step * (0.5 + 1e-6)).all(), name
        at_the_top = weight.abs() == weight.abs().amax(dim=units, keepdim=True)
        assert torch.allclose(found[at_the_top], weight[at_the_top], rtol=1e-6), name


def test_int8_weights_stay_as_they_are_when_saved_again(random_checkpoint, tmp_path):
    once = load(save(random_checkpoint(), tmp_path / "once", dtype="int8"))
    twice = load(save(once, tmp_path / "twice", dtype="int8"))
    for name, tensor in once.tensors.items():
        assert torch.allclose(twice.tensors[name], tensor, rtol=1e-6, atol=0), name


@pytest.mark.parametrize("kind", ["float32", "float16"])
def test_the_first_version_is_written_where_it_suffices(random_checkpoint, tmp_path, kind):
    folder = save(random_checkpoint(), tmp_path / "m", dtype=kind)
    assert json.loads((folder / "config.json").read_text())["format_version"] == 1


@pytest.mark.parametrize("change", ["missing", "short", "of both dimensions", "a number"])
def test_int8_without_a_sound_scale_is_refused(random_checkpoint, tmp_path, change):
    folder = save(random_checkpoint(), tmp_path / "m", dtype="int8")
    path = folder / "model.safetensors"
    name = "bilm.forward_layers.0.input_weight"
    tensors = load_file(path)
    scale = tensors.pop(f"{name}.scale")
    if change != "missing":
        shapes = {
            "short": scale[:, 1:],
            "of both dimensions": scale.expand(tensors[name].shape),
            "a number": scale[0, 0],
        }
        tensors[f"{name}.scale"] = shapes[change].contiguous()
    save_file(tensors, path)
    with pytest.raises(CheckpointError, match=rf"{name}' is stored as int8, so .*scale' should have a number for each"):
        load(folder)


@pytest.mark.parametrize(
    "names", [("softmax", "softmax.weight"), ("a", "a.scale")], ids=["two claim one", "int8 itself"]
)
def test_scales_of_scales_are_refused(tmp_path, names):
    tensors = {name: torch.ones(2, 2, dtype=torch.int8) for name in names}
    tensors |= {"softmax.scale": torch.ones(2, 1)} if "softmax" in names else {"a.scale.scale": torch.ones(2, 1)}
    tensors |= {"a.scale": torch.ones(2, 1, dtype=torch.int8)} if "a" in names else {}
    tensors |= {"softmax": torch.ones(2, 1, dtype=torch.int8)} if "softmax" in names else {}
    save_file(tensors, tmp_path / "x.safetensors")
    with pytest.raises(CheckpointError, match="is no scale"):
        read_safetensors(tmp_path / "x.safetensors", allows_int8=True)
