"""The drop-in for AllenNLP: the old signatures, and AllenNLP's own numbers (`tests/parity`)."""

import json

import numpy as np
import pytest
import torch
from comparing import DATA, TOLERANCE, largest_difference

from elmokit import Elmo as PlainElmo
from elmokit.errors import ConfigError, InputError
from elmokit.integrations.allennlp import Elmo, ElmoEmbedder, batch_to_ids

FACTS = json.loads((DATA / "allennlp-sentences.json").read_text())
BATCHES = FACTS["batches"]
FOLDER = DATA / "allennlp-two-layers"
FILES = (FOLDER / "options.json", FOLDER / "weights.hdf5")
LINES = [line.split() for line in (DATA / "carried-sentences.txt").read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def golden():
    with np.load(FOLDER / "golden.npz") as file:
        return dict(file)


@pytest.fixture(scope="module")
def tops():
    """The top layer of 30 sentences, read as ten batches of three."""
    with np.load(FOLDER / "carried.npz") as file:
        padded = [row for number in range(10) for row in file[f"top_{number}"]]
    return [top[: len(line)] for top, line in zip(padded, LINES, strict=True)]


def expected_layers(golden, number):
    return [golden[f"carry_{number}"][:, row, 1 : len(words) + 1] for row, words in enumerate(BATCHES[number])]


def test_the_embedder_against_allennlp(golden):
    embedder = ElmoEmbedder(*FILES, -1)
    for number, sentences in enumerate(BATCHES):
        assert largest_difference(embedder.embed_batch(sentences), expected_layers(golden, number)) < TOLERANCE


def test_embed_sentences_against_allennlp(tops):
    arrays = list(ElmoEmbedder(*FILES).embed_sentences(iter(LINES), batch_size=3))
    assert largest_difference([layers[-1] for layers in arrays], tops) < TOLERANCE


def test_embed_sentences_reads_what_is_left_over_as_a_last_batch():
    one, other = ElmoEmbedder(*FILES), ElmoEmbedder(*FILES)
    arrays = list(one.embed_sentences(LINES[:5], 3))
    assert largest_difference(arrays, other.embed_batch(LINES[:3]) + other.embed_batch(LINES[3:5])) == 0
    assert list(one.embed_sentences([])) == []


def test_batch_to_embeddings_pads_and_masks(golden):
    layers_BLWD, mask_BW = ElmoEmbedder(*FILES).batch_to_embeddings(BATCHES[0])
    assert not layers_BLWD.permute(0, 2, 1, 3)[~mask_BW].any()
    rows = [layers[:, mask].numpy() for layers, mask in zip(layers_BLWD, mask_BW, strict=True)]
    assert largest_difference(rows, expected_layers(golden, 0)) < TOLERANCE


def test_an_empty_sentence_alone_is_not_read():
    embedder, other = ElmoEmbedder(*FILES), ElmoEmbedder(*FILES)
    assert embedder.embed_sentence([]).shape == (3, 0, embedder.embedder.dim)
    assert np.array_equal(embedder.embed_sentence(LINES[0]), other.embed_sentence(LINES[0]))


def test_zero_state_gives_the_same_vectors_again():
    carrying, starting = ElmoEmbedder(*FILES), ElmoEmbedder(*FILES, state="zero")
    assert not np.allclose(carrying.embed_sentence(LINES[0]), carrying.embed_sentence(LINES[0]), atol=1e-3)
    assert np.allclose(starting.embed_sentence(LINES[0]), starting.embed_sentence(LINES[0]), atol=1e-6)


def test_the_module_against_allennlp(tops):
    elmo = Elmo(*FILES, 2, False, False, 0.0, scalar_mix_parameters=[-9e10, -9e10, 1])
    assert not any(weight.requires_grad for weight in elmo.parameters())
    for start in range(0, len(LINES), 3):
        out = elmo(batch_to_ids(LINES[start : start + 3]))
        assert set(out) == {"elmo_representations", "mask"}
        first, second = out["elmo_representations"]
        assert torch.equal(first, second)
        rows = [mixed[mask].numpy() for mixed, mask in zip(first, out["mask"], strict=True)]
        assert largest_difference(rows, tops[start : start + 3]) < TOLERANCE


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("keeps", [False, True])
def test_mixes_against_allennlp(golden, norm, keeps):
    elmo = Elmo(*FILES, len(FACTS["mixes"]), do_layer_norm=norm, dropout=0, keep_sentence_boundaries=keeps)
    with torch.no_grad():
        for mix, (weights, gamma) in zip(elmo.elmo.mixes, FACTS["mixes"], strict=True):
            mix.weights.copy_(torch.tensor(weights[:3]))
            mix.gamma.fill_(gamma)
        out = elmo(batch_to_ids(BATCHES[0]))
    mask = golden[f"mask_keep_{int(keeps)}"]
    np.testing.assert_array_equal(out["mask"].numpy(), mask)
    for k, mixed in enumerate(out["elmo_representations"]):
        theirs = golden[f"mix_{k}_norm_{int(norm)}_keep_{int(keeps)}"]
        assert np.abs(mixed.numpy()[mask] - theirs[mask]).max() < TOLERANCE


def test_rows_that_a_smaller_batch_leaves_out_keep_their_state():
    elmo = Elmo(*FILES, 1, dropout=0.0)
    elmo(batch_to_ids(LINES[:3]))
    third = elmo.carried_state.hidden[:, :, 2].clone()
    elmo(batch_to_ids(LINES[3:5]))
    assert elmo.carried_state.num_rows == 3
    assert torch.equal(elmo.carried_state.hidden[:, :, 2], third)
    elmo.reset_states()
    again = elmo(batch_to_ids(LINES[:1]))["elmo_representations"][0]
    fresh = Elmo(*FILES, 1, dropout=0.0, state="zero")
    assert torch.allclose(again, fresh(batch_to_ids(LINES[:1]))["elmo_representations"][0], atol=1e-6)
    assert fresh.carried_state is None


def test_only_the_mixes_learn_unless_asked():
    frozen, learning = Elmo(*FILES, 1), Elmo(*FILES, 1, requires_grad=True)
    for elmo in (frozen, learning):
        for _ in range(2):  # a carried state must not hold on to the first backward pass
            elmo(batch_to_ids(LINES[:2]))["elmo_representations"][0].sum().backward()
    learns = {name for name, weight in frozen.named_parameters() if weight.grad is not None}
    assert learns == {"elmo.mixes.0.weights", "elmo.mixes.0.gamma"}
    assert all(weight.grad is not None for weight in learning.parameters())


def test_four_dimensions_keep_boundaries_too():
    """AllenNLP fails here: it gives the boundaries no room."""
    ids = batch_to_ids(LINES[:4])
    elmo = Elmo(*FILES, 1, keep_sentence_boundaries=True)
    out = elmo(ids.unflatten(0, (2, 2)))
    assert out["mask"].shape == (2, 2, ids.shape[1] + 2)
    assert out["elmo_representations"][0].shape == (2, 2, ids.shape[1] + 2, elmo.get_output_dim())


def test_words_of_a_cached_vocabulary_are_read_by_number():
    words = ["", *sorted({word for line in LINES[:2] for word in line})]
    elmo, plain = (Elmo(*FILES, 1, dropout=0.0, vocab_to_cache=given) for given in (words, None))
    ids = batch_to_ids(LINES[:2])
    numbers = torch.zeros(ids.shape[:2], dtype=torch.long)
    for row, line in enumerate(LINES[:2]):
        numbers[row, : len(line)] = torch.tensor([words.index(word) for word in line])
    expected = plain(ids, numbers)["elmo_representations"][0]  # without a vocabulary, numbers are ignored
    assert torch.equal(elmo(None, numbers)["elmo_representations"][0], expected)
    elmo.reset_states()
    assert torch.equal(elmo(ids, numbers + len(words))["elmo_representations"][0], expected)  # as ids: no such numbers
    with pytest.raises(InputError, match="no ids came"):
        plain(None)


def test_a_moved_and_copied_module_goes_on(tmp_path):
    elmo = Elmo(*FILES, 1, dropout=0.0)
    elmo(batch_to_ids(LINES[:2]))
    torch.save(elmo, tmp_path / "elmo.pt")
    copy = torch.load(tmp_path / "elmo.pt", weights_only=False)
    one, other = (each(batch_to_ids(LINES[2:4]))["elmo_representations"][0] for each in (elmo, copy))
    assert torch.equal(one, other)
    half = elmo.to(torch.bfloat16)
    assert half(batch_to_ids(LINES[:2]))["elmo_representations"][0].dtype == torch.bfloat16


def test_the_two_files_may_lie_anywhere(tmp_path):
    (tmp_path / "a").mkdir()
    for source, name in zip(FILES, ("a/elmo_2x16.json", "weights_of_2018.h5"), strict=True):
        (tmp_path / name).write_bytes(source.read_bytes())
    elmo = Elmo(str(tmp_path / "a/elmo_2x16.json"), str(tmp_path / "weights_of_2018.h5"), 1)
    assert elmo.elmo.fingerprint() == PlainElmo.from_pretrained(FOLDER).fingerprint()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ElmoEmbedder(), "no options_file came"),
        (lambda: Elmo(FILES[0], "https://s3.amazonaws.com/allennlp/w.hdf5", 1), "weight_file is the address .* fetch"),
        (lambda: Elmo(FOLDER, FILES[1], 1), "options_file is .* found no such file"),
        (lambda: Elmo(*FILES, 1, module=torch.nn.Identity()), "module= is not taken"),
        (lambda: Elmo(*FILES, 1, state="warm"), "use 'carry' or 'zero'"),
        (lambda: ElmoEmbedder(*FILES, state="warm"), "'zero', 'carry', 'canonical'"),
        (lambda: ElmoEmbedder(*FILES).embed_sentence("The bank"), "each a list of words, found str 'The bank'"),
        (lambda: ElmoEmbedder(*FILES).embed_batch("The bank"), "each a list of words, found str 'The bank'"),
        (lambda: batch_to_ids(["The bank"]), "words"),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_a_mix_of_another_number_of_layers_is_refused():
    with pytest.raises(ConfigError, match="3 layers"):
        Elmo(*FILES, 1, scalar_mix_parameters=[1.0, 2.0])
