"""ELMoForManyLangs folders: what is read from them, and what is refused. (Their vectors: tests/parity.)"""

import json
import os
import pickle

import numpy as np
import pytest
import torch
from random_models import write_manylangs

from elmokit.errors import CheckpointError
from elmokit.io.manylangs import load_manylangs, looks_like_manylangs

SPECIALS = ["<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>"]


@pytest.fixture
def folder(tmp_path):
    return write_manylangs(tmp_path, np.random.default_rng(0))


def change_json(path, change):
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


def change_tensors(path, change, **options):
    tensors = torch.load(path, weights_only=True)
    change(tensors)
    torch.save(tensors, path, **options)


def change_line(path, item, line):
    """Put `line` where the item's line was."""
    lines = path.read_text(encoding="utf-8").split("\n")
    lines = [line if each.split("\t")[0] == item else each for each in lines]
    path.write_text("\n".join(lines), encoding="utf-8")


def check_refused(folder, *parts):
    with pytest.raises(CheckpointError) as caught:
        load_manylangs(folder)
    for part in parts:
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_is_recognised_by_its_own_files(folder, tmp_path_factory):
    assert looks_like_manylangs(folder)
    other = tmp_path_factory.mktemp("other")
    (other / "config.json").write_text("{}")
    (other / "model.safetensors").touch()
    assert not looks_like_manylangs(other)


def test_sizes_names_and_lists(folder):
    checkpoint = load_manylangs(folder)
    checkpoint.check("the folder")
    assert (checkpoint.format, checkpoint.path, checkpoint.swaps_markers) == ("manylangs", folder, True)
    config = checkpoint.config
    assert config.characters is not None and config.words is not None
    assert (config.characters.scheme, config.characters.max_length, config.characters.num_highways) == (
        "unicode",
        50,
        2,
    )
    assert (config.lstm.num_layers, config.lstm.cell_dim, config.lstm.projection_dim) == (2, 12, 6)
    assert (config.lstm.cell_clip, config.lstm.projection_clip, config.lstm.residual) == (3, 3, True)
    assert config.projects_words and config.num_word_features == 5 + 20
    assert checkpoint.alphabet is not None and checkpoint.vocabulary is not None
    for item, row in (line.rsplit("\t", 1) for line in (folder / "char.dic").read_text().split("\n") if line):
        assert checkpoint.alphabet[int(row)] == item
    assert checkpoint.vocabulary.index("river") == int((folder / "word.dic").read_text().split("river\t")[1].split()[0])
    assert checkpoint.scheme().columns == 51


@pytest.mark.parametrize(("left_out", "kept"), [("word_dim", "characters"), ("char_dim", "words")])
def test_characters_alone_and_words_alone(tmp_path, left_out, kept):
    checkpoint = load_manylangs(write_manylangs(tmp_path, np.random.default_rng(1), **{left_out: 0}))
    checkpoint.check("the folder")
    assert [part for part in ("characters", "words") if getattr(checkpoint.config, part)] == [kept]
    assert (checkpoint.alphabet is None, checkpoint.vocabulary is None) == (kept == "words", kept == "characters")


def test_words_alone_are_cut_before_they_are_looked_up(tmp_path):
    checkpoint = load_manylangs(write_manylangs(tmp_path, np.random.default_rng(1), char_dim=0))
    assert checkpoint.config.words is not None and checkpoint.config.words.max_length == 48
    assert checkpoint.vocabulary is not None
    checkpoint.vocabulary[checkpoint.vocabulary.index("river")] = "r" * 48
    scheme = checkpoint.scheme()
    assert scheme.word_ids(["r" * 60]).tolist() == scheme.word_ids(["r" * 48]).tolist()
    assert scheme.word_ids(["r" * 60]).tolist() != scheme.word_ids(["never seen"]).tolist()


@pytest.mark.parametrize("char_dim", [0, 4])
def test_the_markers_of_bilm_tf_are_ordinary_words(tmp_path, char_dim):
    write_manylangs(tmp_path, np.random.default_rng(1), char_dim=char_dim)
    dictionary = tmp_path / "word.dic"
    dictionary.write_text(dictionary.read_text().replace("river\t", "<S>\t").replace("bank\t", "</S>\t"))
    checkpoint = load_manylangs(tmp_path)
    scheme, vocabulary = checkpoint.scheme(), checkpoint.vocabulary
    assert vocabulary is not None and {"<S>", "</S>"} <= set(vocabulary)
    rows = [int(ids[0]) - 1 for ids in (scheme.begin_ids, scheme.end_ids, *scheme.word_ids(["<S>", "</S>"]))]
    assert [vocabulary[row] for row in rows] == ["<bos>", "<eos>", "<S>", "</S>"]


def test_clips_of_0_are_off(tmp_path):
    lstm = load_manylangs(write_manylangs(tmp_path, np.random.default_rng(1), cell_clip=0, proj_clip=None)).config.lstm
    assert (lstm.cell_clip, lstm.projection_clip) == (None, None)


@pytest.mark.parametrize("given", ["/home/author/configs/arch.json", "..\\configs\\arch.json", "arch.json"])
def test_the_architecture_is_found_by_its_name(tmp_path, given):
    write_manylangs(tmp_path, np.random.default_rng(2), config_path="arch.json")
    change_json(tmp_path / "config.json", lambda values: values.update(config_path=given))
    checkpoint = load_manylangs(tmp_path)
    assert checkpoint.config.lstm.cell_dim == 12
    assert checkpoint.metadata == {"architecture": "arch.json"}, "no path of this machine"


def test_the_architecture_may_lie_where_the_path_says(folder):
    (folder / "configs").mkdir()
    (folder / "architecture.json").rename(folder / "configs" / "other.json")
    change_json(folder / "config.json", lambda values: values.update(config_path="configs/other.json"))
    assert load_manylangs(folder).config.lstm.cell_dim == 12


def test_the_built_in_architecture_is_the_last_resort(folder):
    (folder / "architecture.json").unlink()
    check_refused(
        folder, "char_emb_layer.embedding.weight", "(31, 4)", "(rows, 50)", "built-in default", "architecture.json"
    )


def test_the_built_in_architecture_is_the_published_one(tmp_path):
    """Only a table of the right width is checked here: the rest would be half a gigabyte."""
    write_manylangs(tmp_path, np.random.default_rng(2), char_dim=50, word_dim=100)
    (tmp_path / "architecture.json").unlink()
    check_refused(tmp_path, "convolutions.0.weight", "(4, 50, 1)", "(32, 50, 1)")


def test_a_line_of_one_field_is_the_ideographic_space(folder):
    rows = {"\u3000": None, "a": None}
    for item in rows:
        line = next(line for line in (folder / "char.dic").read_text().split("\n") if line.startswith(item + "\t"))
        rows[item] = int(line.split("\t")[1])
    change_line(folder / "char.dic", "\u3000", f"{rows[chr(0x3000)]}\r")
    change_line(folder / "char.dic", "a", f"\u2028\t{rows['a']}")
    alphabet = load_manylangs(folder).alphabet
    assert alphabet is not None
    # Both lines lose their item when blanks are stripped; the last one counts, and the other row has no name left.
    assert alphabet[rows["\u3000"]] == "\u3000"
    assert alphabet[rows["a"]] == f"<unused {rows['a']}>"
    assert "a" not in alphabet


def test_rows_without_a_name_are_filled(folder):
    change_tensors(
        folder / "token_embedder.pkl",
        lambda tensors: tensors.update({"word_emb_layer.embedding.weight": torch.zeros(11, 5)}),
    )
    vocabulary = load_manylangs(folder).vocabulary
    assert vocabulary is not None and vocabulary[-2:] == ["<unused 9>", "<unused 10>"]


def test_old_pickles_and_other_dtypes_are_read(folder):
    expected = load_manylangs(folder).tensors
    for name in ("encoder.pkl", "token_embedder.pkl"):
        change_tensors(folder / name, lambda tensors: None, _use_new_zipfile_serialization=False)
    change_tensors(folder / "encoder.pkl", lambda tensors: tensors.update({k: t.double() for k, t in tensors.items()}))
    found = load_manylangs(folder).tensors
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
    assert all(tensor.dtype == torch.float32 for tensor in found.values())


def test_gates_and_highways_are_turned_over(folder):
    tensors = load_manylangs(folder).tensors
    theirs = torch.load(folder / "encoder.pkl", weights_only=True)
    i, f, g, o = theirs["backward_layer_1.state_linearity.weight"].chunk(4)
    expected = torch.cat([i, g, f, o]).t()
    assert torch.equal(tensors["bilm.backward_layers.1.recurrent_weight"], expected)
    highway = torch.load(folder / "token_embedder.pkl", weights_only=True)["highways._layers.1.bias"]
    assert torch.equal(tensors["encoder.characters.highways.1.transform.bias"], highway[:20])
    assert torch.equal(tensors["encoder.characters.highways.1.gate.bias"], -highway[20:])


# ---- what is refused ----


@pytest.mark.parametrize("name", ["config.json", "char.dic", "word.dic", "encoder.pkl", "token_embedder.pkl"])
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    check_refused(folder, name, "missing")


@pytest.mark.parametrize("name", ["config.json", "architecture.json", "encoder.pkl", "token_embedder.pkl"])
@pytest.mark.parametrize("kept", [0, 1, 40, 0.5, 0.99])
def test_a_truncated_file_is_named(folder, name, kept):
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[: kept if isinstance(kept, int) else int(kept * len(data))])
    check_refused(folder, name)


def test_a_pickle_that_runs_code_is_refused_before_it_runs(folder, tmp_path_factory):
    trace = tmp_path_factory.mktemp("trace") / "ran"

    class Hostile:
        def __reduce__(self):
            return os.mkdir, (str(trace),)

    (folder / "encoder.pkl").write_bytes(pickle.dumps({"weight": Hostile()}))
    check_refused(folder, "encoder.pkl", "code")
    torch.save({"weight": Hostile()}, folder / "encoder.pkl")
    check_refused(folder, "encoder.pkl", "code")
    assert not trace.exists()


def test_a_pickle_of_something_else_is_refused(folder):
    torch.save([torch.zeros(2)], folder / "encoder.pkl")
    check_refused(folder, "encoder.pkl", "dictionary of tensors", "list")
    torch.save({"weight": 3}, folder / "encoder.pkl")
    check_refused(folder, "encoder.pkl", "dictionary of tensors")


@pytest.mark.parametrize("value", [torch.zeros(1).expand(48, 6), torch.zeros(48, 6, dtype=torch.int64)])
def test_a_tensor_that_claims_more_than_it_holds_is_refused(folder, value):
    name = "forward_layer_0.input_linearity.weight"
    change_tensors(folder / "encoder.pkl", lambda tensors: tensors.update({name: value}))
    check_refused(folder, name, "(48, 6)")


def test_a_pointer_to_a_large_file_is_refused(folder):
    (folder / "encoder.pkl").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    check_refused(folder, "encoder.pkl", "git lfs pull")


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("encoder.pkl", "backward_layer_1.state_projection.weight"),
        ("encoder.pkl", "forward_layer_0.state_linearity.bias"),
        ("token_embedder.pkl", "projection.bias"),
        ("token_embedder.pkl", "highways._layers.1.weight"),
        ("token_embedder.pkl", "convolutions.2.weight"),
        ("token_embedder.pkl", "char_emb_layer.embedding.weight"),
        ("token_embedder.pkl", "word_emb_layer.embedding.weight"),
    ],
)
def test_a_missing_or_misshapen_tensor_is_named(folder, file, name):
    shape = tuple(torch.load(folder / file, weights_only=True)[name].shape)
    wrong = (*shape[:-1], shape[-1] + 1)
    change_tensors(folder / file, lambda tensors: tensors.update({name: torch.zeros(wrong)}))
    check_refused(folder, file, name, str(wrong), str(shape[-1]))
    change_tensors(folder / file, lambda tensors: tensors.pop(name))
    check_refused(folder, file, name, "lacks")


def test_numbers_that_are_none_are_refused(folder):
    change_tensors(folder / "token_embedder.pkl", lambda tensors: tensors["projection.bias"].fill_(float("nan")))
    check_refused(folder, "encoder.projection.bias", "NaN")


def test_an_architecture_of_fewer_layers_is_refused(folder):
    change_json(folder / "architecture.json", lambda values: values["encoder"].update(n_layers=1))
    check_refused(folder, "encoder.pkl", "architecture.json", "layer_1")


@pytest.mark.parametrize(
    ("section", "changes", "said"),
    [
        ("encoder", {"name": "lstm"}, "ordinary bidirectional LSTM"),
        ("token_embedder", {"name": "lstm"}, "reads characters by an LSTM"),
        ("encoder", {"dim": 6}, "projects all the same"),
        ("encoder", {"dim": "large"}, "encoder.dim is 'large': expected a whole number"),
        ("encoder", {"dim": 12.0}, "encoder.dim is 12.0: expected a whole number"),
        ("encoder", {"n_layers": 0}, "encoder.n_layers is 0: expected a whole number of 1 or more"),
        ("encoder", {"cell_clip": -1}, "cell_clip"),
        ("encoder", {"cell_clip": "x"}, "does not describe a model"),
        ("token_embedder", {"filters": [[1, 2, 3]]}, "does not describe a model"),
        ("token_embedder", {"filters": []}, "filters"),
        ("token_embedder", {"activation": "gelu"}, "activation"),
        ("token_embedder", {"char_dim": 0, "word_dim": 0}, "neither"),
        ("token_embedder", {"char_dim": 4.5}, "char_dim"),
        ("token_embedder", {"n_highway": 3}, "highways._layers.2.weight"),
        ("token_embedder", {"n_highway": 10**9}, "token_embedder.n_highway is 1000000000: expected"),
        ("token_embedder", {"max_characters_per_token": 10**7}, "max_characters_per_token is 10000000: expected"),
    ],
)
def test_an_architecture_that_is_no_elmo_is_refused(folder, section, changes, said):
    change_json(folder / "architecture.json", lambda values: values[section].update(changes))
    check_refused(folder, said)


def test_settings_of_another_kind_are_refused(folder):
    change_json(folder / "config.json", lambda values: values.pop("config_path"))
    check_refused(folder, "config.json", "config_path")
    (folder / "config.json").write_text("[1]")
    check_refused(folder, "config.json")
    (folder / "config.json").write_text(json.dumps({"config_path": "architecture.json"}))
    (folder / "architecture.json").write_text('{"encoder": 3}')
    check_refused(folder, "architecture.json", "encoder")
    for name in ("a\0b", "a" * 5000, "\ud800"):
        (folder / "config.json").write_text(json.dumps({"config_path": name}))
        check_refused(folder, "built-in default")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("a\tb\t3", "expected an item, a tab and a row number"),
        ("a\tthree", "expected an item, a tab and a row number"),
        ("a\t-1", "expected an item, a tab and a row number"),
        ("a\t99999999999999", "expected an item, a tab and a row number"),
        ("a\t31", "31 rows"),
    ],
)
def test_a_broken_line_of_a_dictionary_is_refused(folder, line, said):
    change_line(folder / "char.dic", "a", line)
    check_refused(folder, "char.dic", said)


def test_a_dictionary_that_contradicts_itself_is_refused(folder):
    text = (folder / "char.dic").read_text()
    row = text.split("b\t")[1].split()[0]
    change_line(folder / "char.dic", "a", f"a\t{row}")
    check_refused(folder, "char.dic", "'a'", "'b'", f"row {row}")


@pytest.mark.parametrize("name", ["char.dic", "word.dic"])
def test_a_dictionary_without_its_specials_is_refused(folder, name):
    change_line(folder / name, "<oov>", "")
    check_refused(folder, name, "<oov>")
    (folder / name).write_bytes(b"\xff\xfe\t3\n")
    check_refused(folder, name, "UTF-8")
