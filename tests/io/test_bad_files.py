"""Damaged and hostile files: each gets one clear line, and nothing in it is followed, allocated or run."""

import json
import os
import shutil
import stat
import struct
import zipfile

import h5py
import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from elmokit.errors import CheckpointError
from elmokit.io import load, save

KERNEL = "RNN_0/RNN/MultiRNNCell/Cell1/LSTMCell/W_0"


def check_refused(source, *says, softmax=False):
    """The one line with which a source is refused."""
    with pytest.raises(CheckpointError) as caught:
        load(source, softmax=softmax)
    message = str(caught.value)
    assert "\n" not in message
    for words in says:
        assert words in message, message
    return message


# ---- hdf5


@pytest.fixture
def bilm(write_bilm, options):
    return write_bilm(options)[0]


@pytest.fixture
def edit(bilm):
    """A function that changes the file of weights."""

    def change(function):
        with h5py.File(bilm / "weights.hdf5", "r+") as file:
            function(file)
        return bilm

    return change


@pytest.mark.parametrize("kept", [0, 7, 100, 0.5, 0.99])
def test_truncated_hdf5(bilm, kept):
    path = bilm / "weights.hdf5"
    size = path.stat().st_size
    os.truncate(path, int(kept * size) if kept < 1 else kept)
    check_refused(bilm, "weights.hdf5", "complete HDF5 file", "fetch it anew")


def test_hdf5_that_is_something_else(bilm):
    (bilm / "weights.hdf5").write_bytes(b"<html>404 Not Found</html>" * 20)
    check_refused(bilm, "weights.hdf5", "complete HDF5 file")


def test_a_git_lfs_pointer(bilm, native_folder):
    text = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 374434792\n"
    for path in (bilm / "weights.hdf5", native_folder / "model.safetensors"):
        path.write_text(text)
        check_refused(path.parent, "Git LFS pointer", "git lfs pull")


def test_missing_files(bilm, native_folder):
    (native_folder / "model.safetensors").unlink()
    check_refused(native_folder, "model.safetensors", "missing")
    (bilm / "options.json").unlink()
    check_refused(bilm, "expected one options.json, found none beside weights.hdf5")
    (bilm / "options.json").write_text("{}")
    (bilm / "weights.hdf5").unlink()
    check_refused(bilm, "expected an hdf5 file with weights")


def test_a_missing_dataset(edit):
    check_refused(edit(lambda file: file.__delitem__(KERNEL)), KERNEL, "(8, 24)", "found none")


def test_a_file_without_any_of_the_datasets(edit):
    check_refused(edit(lambda file: file.clear()), "neither char_embed nor embedding")


def test_a_misshapen_dataset(edit):
    def reshape(file):
        del file[KERNEL]
        file[KERNEL] = np.zeros((8, 20), "float32")

    check_refused(edit(reshape), "weights.hdf5", KERNEL, "expected a dataset of shape (8, 24), found (8, 20)")


@pytest.mark.parametrize("rows", [0, 200, 263])
def test_a_character_table_of_another_length(edit, rows):
    def cut(file):
        del file["char_embed"]
        file["char_embed"] = np.zeros((rows, 3), "float32")

    check_refused(edit(cut), f"char_embed: expected a dataset of shape (261, 3), found ({rows}, 3)")


@pytest.mark.parametrize("values", [np.zeros((8, 24), "int32"), np.zeros((8, 24), "complex64")])
def test_numbers_of_another_kind(edit, values):
    def replace(file):
        del file[KERNEL]
        file[KERNEL] = values

    check_refused(edit(replace), KERNEL, "expected floating-point numbers", str(values.dtype))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none(edit, value):
    def poison(file):
        file[KERNEL][3, 3] = value

    check_refused(edit(poison), "bilm.forward_layers.1.input_weight", "NaN or infinity")


def test_a_dataset_that_was_never_written(edit):
    def hollow(file):
        del file[KERNEL]
        file.create_dataset(KERNEL, (8, 24), "float32")

    check_refused(edit(hollow), KERNEL, "expected 768 bytes, found 0")


@pytest.mark.parametrize("where", [KERNEL, "RNN_0", "char_embed"])
@pytest.mark.parametrize("kind", ["external", "soft"])
def test_links_are_not_followed(edit, tmp_path, where, kind):
    with h5py.File(tmp_path / "secret.hdf5", "w") as secret:
        secret["x"] = np.zeros(3)

    def link(file):
        file.move(where, "moved")
        file[where] = (
            h5py.ExternalLink(str(tmp_path / "secret.hdf5"), "/x") if kind == "external" else h5py.SoftLink("/moved")
        )

    check_refused(edit(link), "Link", "points elsewhere; refused")


def test_external_storage_is_not_followed(edit, tmp_path):
    (tmp_path / "raw").write_bytes(bytes(768))

    def store_outside(file):
        del file[KERNEL]
        file.create_dataset(KERNEL, (8, 24), "float32", external=[(str(tmp_path / "raw"), 0, 768)])

    check_refused(edit(store_outside), KERNEL, "found other storage; refused")


def test_virtual_datasets_are_not_followed(edit, tmp_path):
    with h5py.File(tmp_path / "secret.hdf5", "w") as secret:
        secret["x"] = np.zeros((8, 24), "float32")

    def borrow(file):
        del file[KERNEL]
        layout = h5py.VirtualLayout((8, 24), "float32")
        layout[:] = h5py.VirtualSource(str(tmp_path / "secret.hdf5"), "x", (8, 24))
        file.create_virtual_dataset(KERNEL, layout)

    check_refused(edit(borrow), KERNEL, "found other storage; refused")


def test_object_references_are_no_numbers(edit):
    def refer(file):
        del file[KERNEL]
        references = file.create_dataset(KERNEL, (8, 24), h5py.ref_dtype)
        references[0, 0] = file["char_embed"].ref

    check_refused(edit(refer), KERNEL, "expected floating-point numbers")


def test_an_oversized_claim_in_weights_and_options(write_bilm, options):
    """Both files agree on half a terabyte, which the dataset never stored."""
    folder, _ = write_bilm(options)
    options["lstm"].update(dim=2**16, projection_dim=2**16 - 1)
    (folder / "options.json").write_text(json.dumps(options))
    with h5py.File(folder / "weights.hdf5", "r+") as file:
        for direction in (0, 1):
            for layer in (0, 1):
                name = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell/W_0"
                del file[name]
                file.create_dataset(name, (2**17 - 2, 2**18), "float32", chunks=(1, 1024))
    check_refused(folder, "weights.hdf5", "describes a model of", "do not belong together")


def test_an_oversized_claim_of_the_softmax(bilm):
    with h5py.File(bilm / "softmax.hdf5", "w") as file:
        file.create_dataset("softmax/W", (2**40, 4), "float32", chunks=(1024, 4))
        file.create_dataset("softmax/b", (2**40,), "float32", chunks=(1024,))[0] = 1
    check_refused(bilm, "softmax.hdf5", "more than the file can hold", softmax=True)


def test_a_billion_layers_cost_nothing(write_bilm, options):
    folder, _ = write_bilm(options)
    options["lstm"]["n_layers"] = 10**9
    (folder / "options.json").write_text(json.dumps(options))
    check_refused(folder, "options.json", "lstm.n_layers is 1000000000: expected a whole number of at most 128")


# ---- options


@pytest.mark.parametrize(
    ("part", "name", "value", "says"),
    [
        ("lstm", "n_layers", 3, "RNN_0/RNN/MultiRNNCell/Cell2/LSTMCell/W_0: expected a dataset of shape (8, 24)"),
        ("lstm", "n_layers", 1, "the options name 1 LSTM layers (lstm.n_layers), the weights hold 2"),
        ("lstm", "dim", 7, "expected a dataset of shape (8, 28), found (8, 24)"),
        ("lstm", "dim", 4, "the options name 0 projections"),
        ("lstm", "projection_dim", 3, "CNN_proj/W_proj: expected a dataset of shape (5, 3), found (5, 4)"),
        ("lstm", "n_layers", 0, "expected a whole number of 1 or more"),
        ("lstm", "dim", "6", "describes no model"),
        ("lstm", "cell_clip", -3, "cell_clip"),
        ("lstm", "cell_clip", "three", "describes no model"),
        ("char_cnn", "n_highway", 3, "CNN_high_2/W_carry: expected a dataset of shape (5, 5), found none"),
        ("char_cnn", "n_highway", 1, "the options name 1 highways (char_cnn.n_highway), the weights hold 2"),
        ("char_cnn", "filters", [[1, 2]], "the options name 1 convolutions (char_cnn.filters), the weights hold 2"),
        ("char_cnn", "filters", [[1, 2], [3, 3]], "expected a dataset of shape (1, 3, 3, 3), found (1, 2, 3, 3)"),
        ("char_cnn", "filters", 7, "describes no model"),
        ("char_cnn", "filters", [[1, "x"]], "describes no model"),
        ("char_cnn", "activation", "gelu", "use one of ('relu', 'tanh')"),
        ("char_cnn", "embedding", {}, "expected char_cnn.embedding.dim, found only nothing"),
        ("char_cnn", "max_characters_per_token", 1, "two markers and a character need 3"),
        ("char_cnn", "max_characters_per_token", 10**7, "char_cnn.max_characters_per_token is 10000000: expected"),
        ("char_cnn", "max_characters_per_token", 50.5, "char_cnn.max_characters_per_token is 50.5: expected"),
        ("char_cnn", "n_highway", 2.0, "char_cnn.n_highway is 2.0: expected a whole number"),
        ("char_cnn", "filters", [[10**400, 3]], "char_cnn.filters[0][0] is a number of 1,329 bits: expected"),
        ("lstm", "use_skip_connections", "false", "lstm.use_skip_connections is 'false': expected true or false"),
        ("lstm", "dim", 200_000, "lstm.dim is 200000: expected a whole number of at most 65,536"),
    ],
)
def test_options_that_contradict_the_weights(write_bilm, options, part, name, value, says):
    folder, _ = write_bilm(options)
    options[part][name] = value
    (folder / "options.json").write_text(json.dumps(options))
    check_refused(folder, says)


def test_options_of_another_kind_of_model(write_bilm, options):
    characters, _ = write_bilm(options)
    (characters / "options.json").write_text(json.dumps({"lstm": options["lstm"]}))
    check_refused(characters, "has no char_cnn", "holds a character table")
    words, _ = write_bilm({"lstm": options["lstm"]}, folder="words", num_words=5)
    (words / "options.json").write_text(json.dumps(options))
    check_refused(words, "describes character input", "holds a word table")


def test_a_forward_only_model(write_bilm, options):
    folder, _ = write_bilm({**options, "bidirectional": False})
    check_refused(folder, "bidirectional: false")
    (folder / "options.json").write_text(json.dumps({**options, "bidirectional": 0}))
    check_refused(folder, "bidirectional is 0: expected true or false")


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[1]", b"{} x", b'{"lstm": {"dim": Infinity}}', b'{"lstm": NaN', b"\xff\xfe{}", b"[" * 100_000]
)
@pytest.mark.parametrize("name", ["options.json", "config.json"])
def test_json_that_is_none(bilm, native_folder, text, name):
    folder = bilm if name == "options.json" else native_folder
    (folder / name).write_bytes(text)
    check_refused(folder, name, "expected ")


def test_options_without_an_lstm(bilm):
    (bilm / "options.json").write_text('{"char_cnn": {}}')
    check_refused(bilm, "expected an object 'lstm'", "is this an ELMo options file?")


# ---- vocabularies


@pytest.mark.parametrize("data", [b"\x1f\x8b\x08 not gzip", b"", b"\xff\xfe"])
@pytest.mark.parametrize("name", ["vocab.txt", "vocab.txt.gz"])
def test_vocabularies_that_cannot_be_read(write_bilm, options, data, name):
    folder, _ = write_bilm({"lstm": options["lstm"]}, num_words=5)
    (folder / name).write_bytes(data)
    check_refused(folder)


def test_a_list_that_unpacks_without_end(write_bilm, options, monkeypatch):
    import gzip

    from elmokit.io import text_files

    monkeypatch.setattr(text_files, "LARGEST_LIST", 2**20)
    folder, _ = write_bilm({"lstm": options["lstm"]}, num_words=5)
    (folder / "vocab.txt.gz").write_bytes(gzip.compress(b"a\n" * 2**20))
    check_refused(folder, "below 1 MiB")


# ---- safetensors


def rewrite_header(path, change, *, claim=None):
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", claim or len(text)) + text + data[8 + length :])


def first(header):
    return next(entry for name, entry in header.items() if name != "__metadata__")


@pytest.mark.parametrize("kept", [0, 5, 8, 300, 0.99])
def test_truncated_safetensors(native_folder, kept):
    path = native_folder / "model.safetensors"
    os.truncate(path, int(kept * path.stat().st_size) if 0 < kept < 1 else kept)
    check_refused(native_folder, "model.safetensors", "truncated")


@pytest.mark.parametrize("claim", [2**63, 10**12, 2**40])
def test_a_header_that_claims_terabytes(native_folder, claim):
    rewrite_header(native_folder / "model.safetensors", lambda header: None, claim=claim)
    check_refused(native_folder, f"the header claims {claim:,} bytes")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"data_offsets": [0, 2**42]}, "claims bytes 0 to 4,398,046,511,104"),
        ({"data_offsets": [8, 0]}, "the header claims bytes 8 to 0"),
        ({"data_offsets": [-4, 8]}, "is no tensor"),
        ({"data_offsets": "all"}, "is no tensor"),
        ({"shape": [2**40, 2**40]}, "the header claims"),
        ({"shape": [-1]}, "is no tensor"),
        ({"shape": [1.5]}, "is no tensor"),
        ({"shape": [True]}, "is no tensor"),
        ({"dtype": "I64"}, "found 'I64'"),
        ({"dtype": ["F32"]}, "is no tensor"),
    ],
)
def test_entries_of_the_header_that_lie(native_folder, change, says):
    rewrite_header(native_folder / "model.safetensors", lambda header: first(header).update(change))
    check_refused(native_folder, "model.safetensors", says)


def test_entries_that_are_no_entries(native_folder):
    rewrite_header(native_folder / "model.safetensors", lambda header: header.update(x=3))
    check_refused(native_folder, "'x' is no tensor")


@pytest.mark.parametrize("text", [b"[1]     ", b"\xff\xff\xff\xff\xff\xff\xff\xff", b"not json"])
def test_a_header_that_is_not_an_object(native_folder, text):
    (native_folder / "model.safetensors").write_bytes(struct.pack("<Q", 8) + text)
    check_refused(native_folder, "the header is no")


def test_bytes_that_two_tensors_share(native_folder):
    """Every entry is in range, yet they overlap: safetensors itself refuses that."""

    def overlap(header):
        entries = [entry for name, entry in header.items() if name != "__metadata__" and entry["shape"] == [24]]
        entries[1]["data_offsets"] = entries[0]["data_offsets"]

    rewrite_header(native_folder / "model.safetensors", overlap)
    check_refused(native_folder, "model.safetensors", "fetch it anew")


def test_tensors_that_do_not_belong(native_folder, random_checkpoint):
    tensors = random_checkpoint().tensors
    path = native_folder / "model.safetensors"

    save_file({**tensors, "surprise": torch.zeros(1)}, path)
    check_refused(native_folder, "the tensor 'surprise' (1,) is not part of a model with this config")
    name = "bilm.forward_layers.0.bias"
    save_file({**tensors, name: torch.zeros(20)}, path)
    check_refused(native_folder, f"the tensor {name} should have shape (24,), found (20,)")
    save_file({**tensors, name: torch.zeros(24, dtype=torch.int32)}, path)
    check_refused(native_folder, name, "found 'I32'")
    save_file({**tensors, name: torch.full((24,), torch.nan)}, path)
    check_refused(native_folder, name, "NaN or infinity")
    del tensors[name]
    save_file(tensors, path)
    check_refused(native_folder, f"the tensor {name} is missing: expected shape (24,)")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"elmo": {"lstm": {"num_layers": 128, "cell_dim": 2**16}}}, "do not belong together"),
        ({"elmo": {"lstm": {"num_layers": 10**9}}}, "elmo.lstm.num_layers is 1000000000: expected a whole number"),
        ({"elmo": {"lstm": {"residual": "false"}}}, "elmo.lstm.residual is 'false': expected true or false"),
        ({"swaps_markers": "false"}, "swaps_markers is 'false': expected true or false"),
        ({"has_words": 0}, "has_words is 0: expected true or false"),
        ({"format_version": True}, "found True"),
        ({"elmo": {"lstm": {"cell_dim": -1}}}, "describes no model"),
        ({"elmo": {"lstms": {}}}, "unknown fields ['lstms']"),
        ({"elmo": None}, "describes no model"),
        ({"elmo": [1]}, "describes no model"),
        ({"metadata": {"name": 3}}, "metadata.name is 3: expected a string"),
        ({"metadata": ["name"]}, "metadata is ['name']: expected an object"),
        ({"has_words": True}, "words.json"),
    ],
)
def test_configs_that_describe_something_else(native_folder, change, says):
    path = native_folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    check_refused(native_folder, says)


@pytest.mark.parametrize(
    "softmax",
    [
        {"softmax.weight": torch.zeros(3, 5), "softmax.bias": torch.zeros(3)},
        {"softmax.weight": torch.zeros(3, 4), "softmax.bias": torch.zeros(())},
        {"softmax.weight": torch.zeros(3, 4)},
        {"softmax.bias": torch.zeros(3), "x": torch.zeros(3)},
    ],
)
def test_a_softmax_of_another_shape(native_folder, softmax):
    save_file(softmax, native_folder / "softmax.safetensors")
    check_refused(native_folder, "the softmax should have the shapes", softmax=True)
    assert load(native_folder).softmax is None


def test_a_list_of_words_that_is_none(native_folder):
    path = native_folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "has_words": True}))
    (native_folder / "words.json").write_text('["a", 1]')
    check_refused(native_folder, "words.json", "expected a JSON list of strings")


# ---- archives


def archive(path, *entries):
    """A zip with the entries: a name and its bytes, or a ZipInfo and its bytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in entries:
            packed.writestr(name, data)
    return path


@pytest.mark.parametrize(
    "name", ["../evil.json", "/etc/evil.json", "a/../../evil.json", "..\\evil.json", "C:\\evil.json", "C:evil.json"]
)
def test_a_zip_that_writes_outside_its_folder(tmp_path, name):
    path = archive(tmp_path / "model.zip", ("options.json", b"{}"), (name, b"{}"))
    check_refused(path, "model.zip", "outside its folder; refused")
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.zip"]


def test_a_zip_with_a_link(tmp_path):
    link = zipfile.ZipInfo("options.json")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    path = archive(tmp_path / "model.zip", (link, b"/etc/passwd"))
    check_refused(path, "is a link or a device, expected a file; refused")


def test_a_zip_bomb(tmp_path):
    path = archive(tmp_path / "model.zip", ("weights.hdf5", bytes(2**27)))
    check_refused(path, "claim to unpack to 134.2 MB", "refused")


def test_a_zip_that_claims_more_than_any_disk(tmp_path):
    path = archive(tmp_path / "model.zip", ("weights.hdf5", b"x" * 100))
    data = bytearray(path.read_bytes())
    directory = data.rindex(b"PK\x01\x02")
    data[directory + 24 : directory + 28] = struct.pack("<I", 2**32 - 2)
    path.write_bytes(data)
    check_refused(path, "claim to unpack to 4,295.0 MB")


def test_a_zip_of_too_many_files(tmp_path, monkeypatch):
    from elmokit.io import archive as module

    monkeypatch.setattr(module, "MOST_ENTRIES", 10)
    path = archive(tmp_path / "model.zip", *((f"{i}.json", b"{}") for i in range(11)))
    check_refused(path, "expected a model of a few files, found 11")


def test_a_zip_with_the_same_name_twice(tmp_path):
    with pytest.warns(UserWarning, match="Duplicate name"):
        path = archive(tmp_path / "model.zip", ("options.json", b"{}"), ("options.json", b"{}"))
    check_refused(path, "cannot be unpacked")


def test_an_encrypted_zip(tmp_path):
    path = archive(tmp_path / "model.zip", ("options.json", b"{}"))
    data = bytearray(path.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(signature) + offset] |= 1
    path.write_bytes(data)
    check_refused(path, "is encrypted")


@pytest.mark.parametrize("kept", [0, 30, 0.5, 0.95])
def test_a_truncated_zip(bilm, tmp_path, kept):
    path = tmp_path / "model.zip"
    shutil.make_archive(str(path.with_suffix("")), "zip", bilm)
    os.truncate(path, int(kept * path.stat().st_size) if 0 < kept < 1 else kept)
    check_refused(path, "model.zip", "expected a complete zip archive")


def test_a_damaged_zip(bilm, tmp_path):
    path = tmp_path / "model.zip"
    shutil.make_archive(str(path.with_suffix("")), "zip", bilm)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    check_refused(path, "model.zip")


def test_a_bad_model_in_a_zip_is_told_by_the_name_of_the_zip(bilm, tmp_path):
    (bilm / "options.json").write_text("{}")
    shutil.make_archive(str(tmp_path / "model"), "zip", bilm)
    message = check_refused(tmp_path / "model.zip", str(tmp_path / "model.zip"))
    assert "elmokit-" not in message


def test_a_zip_of_nothing(tmp_path):
    check_refused(archive(tmp_path / "model.zip", ("thesis.tex", b"x")), "model.zip", "found thesis.tex")


def test_a_pickle_in_a_native_folder_is_never_opened(native_folder):
    (native_folder / "pytorch_model.pkl").write_bytes(b"cos\nsystem\n(S'exit 1'\ntR.")
    assert load(native_folder).config.dim == 8


def test_tensors_in_memory_are_checked_before_they_are_written(random_checkpoint, tmp_path):
    checkpoint = random_checkpoint()
    del checkpoint.tensors["encoder.projection.bias"]
    with pytest.raises(OSError, match=r"encoder\.projection\.bias is missing"):
        save(checkpoint, tmp_path / "model")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["weights.hdf5", "options.json", "model.safetensors", "config.json", "model.zip"])
def test_random_damage_is_refused_or_harmless(bilm, native_folder, tmp_path, name):
    """Whatever bytes change, loading succeeds or says one line of its own: no other exception comes through."""
    shutil.make_archive(str(tmp_path / "model"), "zip", bilm)
    source = {"model.zip": tmp_path / "model.zip"}.get(name, bilm if (bilm / name).exists() else native_folder)
    path = source if name == "model.zip" else source / name
    original, random = path.read_bytes(), np.random.default_rng(0)
    for _ in range(40):
        data = bytearray(original)
        for place in random.integers(0, min(len(data), 4000), size=random.integers(1, 9)):
            data[place] = random.integers(0, 256)
        path.write_bytes(data)
        try:
            load(source)
        except CheckpointError as problem:
            assert "\n" not in str(problem)
