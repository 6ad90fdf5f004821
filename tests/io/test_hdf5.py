"""AllenNLP's and bilm-tf's files: every published shape of them, there and back."""

import gzip
import json
import logging
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from elmokit.config import CharConfig, ElmoConfig, LstmConfig, WordConfig
from elmokit.errors import CheckpointError, InputError, OutputError
from elmokit.io import load, save

GOLDEN = Path(__file__).parents[2].parent / "shared" / "fixtures" / "allennlp-elmo"
CELL = "RNN_{}/RNN/MultiRNNCell/Cell{}/LSTMCell"


def test_every_dataset_lands_where_it_belongs(write_bilm, options):
    folder, arrays = write_bilm(options)
    tensors = load(folder).tensors

    def equal(name, values):
        np.testing.assert_array_equal(tensors.pop(name).numpy(), values)

    equal("encoder.characters.embedding", arrays["char_embed"])
    for i in (0, 1):
        equal(f"encoder.characters.convolutions.{i}.weight", arrays[f"CNN/W_cnn_{i}"][0].transpose(2, 1, 0))
        equal(f"encoder.characters.convolutions.{i}.bias", arrays[f"CNN/b_cnn_{i}"])
        for ours, theirs in (("gate", "carry"), ("transform", "transform")):
            equal(f"encoder.characters.highways.{i}.{ours}.weight", arrays[f"CNN_high_{i}/W_{theirs}"].T)
            equal(f"encoder.characters.highways.{i}.{ours}.bias", arrays[f"CNN_high_{i}/b_{theirs}"])
    equal("encoder.projection.weight", arrays["CNN_proj/W_proj"].T)
    equal("encoder.projection.bias", arrays["CNN_proj/b_proj"])
    for direction, ours in enumerate(("forward", "backward")):
        for layer in (0, 1):
            theirs, ours_layer = CELL.format(direction, layer), f"bilm.{ours}_layers.{layer}"
            bias = arrays[f"{theirs}/B"].copy()
            bias[12:18] += 1  # gates i, j, f, o of a cell of 6: TensorFlow's forget bias is folded in
            equal(f"{ours_layer}.input_weight", arrays[f"{theirs}/W_0"][:4])
            equal(f"{ours_layer}.recurrent_weight", arrays[f"{theirs}/W_0"][4:])
            equal(f"{ours_layer}.bias", bias)
            equal(f"{ours_layer}.projection_weight", arrays[f"{theirs}/W_P_0"])
    assert not tensors


def changed(options, **changes):
    for path, value in changes.items():
        part, name = path.split("__")
        if value == "missing":
            del options[part][name]
        else:
            options[part][name] = value
    return options


SHAPES = {
    "one layer, as Reimers reduced it": {"lstm__n_layers": 1},
    "three layers": {"lstm__n_layers": 3},
    "no residual": {"lstm__use_skip_connections": False},
    "residual not named": {"lstm__use_skip_connections": "missing"},
    "clips of 0": {"lstm__cell_clip": 0, "lstm__proj_clip": 0},
    "clips of null": {"lstm__cell_clip": None, "lstm__proj_clip": None},
    "clips not named": {"lstm__cell_clip": "missing", "lstm__proj_clip": "missing"},
    "other clips": {"lstm__cell_clip": 1.5, "lstm__proj_clip": 0.5},
    "no LSTM projection": {"lstm__dim": 4},
    "no highway": {"char_cnn__n_highway": 0},
    "highways not named": {"char_cnn__n_highway": "missing"},
    "three highways": {"char_cnn__n_highway": 3},
    "no CNN projection": {"lstm__projection_dim": 5},
    "tanh": {"char_cnn__activation": "tanh"},
    "short words": {"char_cnn__max_characters_per_token": 17},
    "options of training": {"char_cnn__n_characters": 261},
    "characters not counted": {"char_cnn__n_characters": "missing"},
}


@pytest.mark.parametrize("changes", SHAPES.values(), ids=SHAPES.keys())
def test_every_shape_goes_there_and_back(write_bilm, options, tmp_path, changes, caplog):
    options = changed(options, **changes)
    folder, arrays = write_bilm(options)
    checkpoint = load(folder)
    assert not caplog.records

    lstm, cnn = options["lstm"], options["char_cnn"]
    config = checkpoint.config
    assert config.lstm.num_layers == lstm["n_layers"]
    assert config.lstm.residual == bool(lstm.get("use_skip_connections"))
    assert config.lstm.cell_clip == (lstm.get("cell_clip") or None)
    assert config.lstm.projection_clip == (lstm.get("proj_clip") or None if lstm["dim"] != 4 else None)
    assert config.lstm.has_projection == (lstm["dim"] != lstm["projection_dim"])
    assert config.projects_words == (lstm["projection_dim"] != 5)
    assert config.characters is not None
    assert config.characters.num_highways == (cnn.get("n_highway") or 0)
    assert config.characters.activation == cnn["activation"]
    assert config.characters.max_length == cnn["max_characters_per_token"]

    written = save(checkpoint, tmp_path / "written", format="allennlp")
    with h5py.File(written / "weights.hdf5") as file:
        found = {}
        file.visititems(lambda name, node: found.update({name: node[...]}) if isinstance(node, h5py.Dataset) else None)
    assert found.keys() == arrays.keys()
    for name, values in arrays.items():
        np.testing.assert_allclose(found[name], values, atol=5e-7 if name.endswith("/B") else 0, rtol=0)
    again = load(written)
    assert again.config == config


def test_options_are_written_for_old_tools(random_checkpoint, tmp_path):
    characters = CharConfig(dim=3, filters=((1, 2), (2, 3)), num_highways=0)
    lstm = LstmConfig(cell_dim=6, projection_dim=4, cell_clip=None, projection_clip=None, residual=False)
    folder = save(random_checkpoint(ElmoConfig(characters, lstm=lstm)), tmp_path / "out", format="allennlp")
    options = json.loads((folder / "options.json").read_text())
    assert options["char_cnn"]["n_characters"] == 262
    assert options["char_cnn"]["n_highway"] == 0
    assert options["lstm"]["cell_clip"] is None and options["lstm"]["proj_clip"] is None
    assert options["lstm"]["use_skip_connections"] is False


def test_a_projection_of_equal_width_is_used_where_the_file_has_one(write_bilm, options):
    folder, _ = write_bilm(changed(options, lstm__projection_dim=5), projects=True)
    assert load(folder).config.projects_words


def test_a_single_layer_as_bilm_tf_dumps_it(write_bilm, options):
    folder, arrays = write_bilm(changed(options, lstm__n_layers=1), single_cell=True)
    weight = load(folder).tensors["bilm.backward_layers.0.input_weight"]
    np.testing.assert_array_equal(weight.numpy(), arrays["RNN_1/RNN/LSTMCell/W_0"][:4])


@pytest.mark.parametrize("names", [("elmo_2x6_options.json", "elmo_2x6_weights.hdf5"), ("options.json", "model.hdf5")])
def test_files_of_any_name(write_bilm, options, names):
    folder, _ = write_bilm(options, options_name=names[0], name=names[1])
    assert load(folder).config.dim == 8


def test_a_strange_count_of_characters_is_absorbed_with_one_line(write_bilm, options, caplog):
    folder, _ = write_bilm(changed(options, char_cnn__n_characters=300))
    with caplog.at_level(logging.WARNING):
        assert load(folder).tensors["encoder.characters.embedding"].shape == (261, 3)
    assert len(caplog.records) == 1 and "n_characters is 300" in caplog.text


@pytest.mark.parametrize("first_is_zero", [True, False], ids=["from a prediction graph", "trained with 262"])
def test_a_table_with_a_row_too_many_loses_the_right_one(write_bilm, options, caplog, first_is_zero):
    folder, arrays = write_bilm(options, symbols=262)
    if first_is_zero:
        arrays["char_embed"][0] = 0
        with h5py.File(folder / "weights.hdf5", "r+") as file:
            file["char_embed"][0] = 0
    with caplog.at_level(logging.WARNING):
        table = load(folder).tensors["encoder.characters.embedding"]
    np.testing.assert_array_equal(
        table.numpy(), arrays["char_embed"][1:] if first_is_zero else arrays["char_embed"][:-1]
    )
    assert len(caplog.records) == 1 and "262 rows, one is left out" in caplog.text


@pytest.mark.parametrize("storage", ["float64", ">f4", "float16", "gzip", "lzf", "chunks"])
def test_other_storage_of_the_same_numbers(write_bilm, options, storage):
    folder, arrays = write_bilm(options)
    rewrite = (
        {"compression": storage} if storage in ("gzip", "lzf") else {"chunks": True} if storage == "chunks" else {}
    )
    with h5py.File(folder / "weights.hdf5", "w") as file:
        for name, values in arrays.items():
            kind = values.dtype if rewrite else storage
            file.create_dataset(name, data=values.astype(kind), **rewrite)
    weight = load(folder).tensors["bilm.forward_layers.1.projection_weight"]
    expected = arrays[CELL.format(0, 1) + "/W_P_0"]
    np.testing.assert_allclose(weight.numpy(), expected, rtol=1e-3 if storage == "float16" else 0)


# ---- word input


def word_options(options):
    return {"lstm": options["lstm"], "n_tokens_vocab": 5, "bidirectional": True}


@pytest.mark.parametrize("name", [None, "vocab.txt", "vocab-protein.txt", "vocab.txt.gz"])
def test_word_input(write_bilm, options, name, tmp_path):
    folder, arrays = write_bilm(word_options(options), num_words=5)
    words = ["<S>", "</S>", "<UNK>", "the", "\u2028"]
    data = "".join(f"{word}\n" for word in words).encode()
    if name is not None:
        (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    checkpoint = load(folder)
    assert checkpoint.config.words == WordConfig(num_words=5, dim=4)
    assert checkpoint.config.characters is None and not checkpoint.config.projects_words
    assert checkpoint.vocabulary == (None if name is None else words)
    np.testing.assert_array_equal(checkpoint.tensors["encoder.words.embedding"].numpy(), arrays["embedding"])
    assert checkpoint.scheme().columns == 1
    again = load(save(checkpoint, tmp_path / "written", format="allennlp"))
    assert again.config == checkpoint.config and again.vocabulary == checkpoint.vocabulary


def test_a_vocabulary_of_another_model_is_refused(write_bilm, options):
    folder, _ = write_bilm(word_options(options), num_words=5)
    (folder / "vocab.txt").write_text("<S>\n</S>\n")
    with pytest.raises(CheckpointError, match=r"vocab\.txt: has 2 words and its table 5 rows"):
        load(folder)


def test_two_vocabularies_are_refused(write_bilm, options):
    folder, _ = write_bilm(word_options(options), num_words=5)
    for name in ("vocab-a.txt", "vocab-b.txt"):
        (folder / name).write_text("x\n" * 5)
    with pytest.raises(CheckpointError, match=r"vocab-a\.txt, vocab-b\.txt"):
        load(folder)


# ---- the output layer


def write_softmax(folder, rows=3, name="elmo_softmax_weights.hdf5"):
    random = np.random.default_rng(1)
    with h5py.File(folder / name, "w") as file:
        file["softmax/W"] = random.standard_normal((rows, 4)).astype("float32")
        file["softmax/b"] = random.standard_normal(rows).astype("float32")


def test_the_softmax_is_read_when_asked_for(write_bilm, options, tmp_path):
    folder, _ = write_bilm(options)
    write_softmax(folder)
    (folder / "vocab.txt").write_text("<S>\n</S>\n<UNK>\n")
    assert load(folder).softmax is None and load(folder).output_words is None
    checkpoint = load(folder, softmax=True)
    assert checkpoint.softmax is not None
    assert {name: tuple(tensor.shape) for name, tensor in checkpoint.softmax.items()} == {
        "softmax.weight": (3, 4),
        "softmax.bias": (3,),
    }
    assert checkpoint.output_words == ["<S>", "</S>", "<UNK>"] and checkpoint.vocabulary is None
    again = load(save(checkpoint, tmp_path / "written", format="allennlp"), softmax=True)
    assert again.softmax is not None and again.output_words == checkpoint.output_words
    assert torch.equal(again.softmax["softmax.weight"], checkpoint.softmax["softmax.weight"])


def test_a_softmax_in_the_same_file_or_under_another_name(write_bilm, options):
    folder, _ = write_bilm(options)
    write_softmax(folder, name="output.hdf5")
    assert load(folder).softmax is None
    assert load(folder, softmax=True).softmax is not None


def test_no_softmax_is_no_error(write_bilm, options):
    folder, _ = write_bilm(options)
    assert load(folder, softmax=True).softmax is None


def test_a_softmax_with_another_vocabulary_is_refused(write_bilm, options):
    folder, _ = write_bilm(options)
    write_softmax(folder)
    (folder / "vocab.txt").write_text("one\n")
    assert load(folder).config  # not looked at unless asked for
    with pytest.raises(CheckpointError, match=r"vocab\.txt: has 1 words and its table 3 rows"):
        load(folder, softmax=True)


# ---- which file is which


def test_cached_word_vectors_beside_a_model_are_left_alone(write_bilm, options):
    folder, _ = write_bilm(options)
    with h5py.File(folder / "a_token_embeddings.hdf5", "w") as file:
        file["embedding"] = np.zeros((7, 4), "float32")
    assert load(folder).config.words is None


def test_cached_word_vectors_alone_are_not_a_model(write_bilm, options):
    folder, _ = write_bilm(options)
    (folder / "weights.hdf5").unlink()
    with h5py.File(folder / "token_embeddings.hdf5", "w") as file:
        file["embedding"] = np.zeros((7, 4), "float32")
    with pytest.raises(CheckpointError, match="cached word vectors"):
        load(folder)


def test_two_files_with_weights_are_refused(write_bilm, options):
    folder, _ = write_bilm(options)
    write_bilm(options, name="other.hdf5")
    with pytest.raises(CheckpointError, match=r"other\.hdf5, weights\.hdf5"):
        load(folder)


def test_two_options_are_refused(write_bilm, options):
    folder, _ = write_bilm(options, options_name="a_options.json")
    (folder / "b_options.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"a_options\.json, b_options\.json"):
        load(folder)


# ---- what the layout cannot say


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (
            ElmoConfig(
                CharConfig("unicode", num_symbols=9, dim=3, filters=((1, 2),)),
                lstm=LstmConfig(cell_dim=6, projection_dim=4),
            ),
            "unicode characters",
        ),
        (
            ElmoConfig(
                CharConfig(dim=3, filters=((1, 2),)),
                WordConfig(num_words=9, dim=4),
                LstmConfig(cell_dim=6, projection_dim=4),
            ),
            "words and characters",
        ),
        (ElmoConfig(None, WordConfig(9, 3), LstmConfig(cell_dim=6, projection_dim=4)), "projected after the table"),
    ],
)
def test_models_that_the_layout_cannot_express(random_checkpoint, tmp_path, config, reason):
    checkpoint = random_checkpoint(config, alphabet=list("abcdefghi"), vocabulary=list("abcdefghi"))
    with pytest.raises(OutputError, match=f"{reason}.*native"):
        save(checkpoint, tmp_path / "out", format="allennlp")
    assert not list(tmp_path.iterdir())


def test_the_layout_is_float32(random_checkpoint, tmp_path):
    with pytest.raises(InputError, match="float32 only"):
        save(random_checkpoint(), tmp_path / "out", format="allennlp", dtype="float16")


@pytest.mark.skipif(not GOLDEN.exists(), reason="the golden files are not beside this checkout")
def test_the_golden_fixture_loads():
    checkpoint = load(GOLDEN)
    assert checkpoint.config.dim == 32 and checkpoint.config.num_layers == 3
    assert checkpoint.config.projects_words and checkpoint.format == "allennlp"
