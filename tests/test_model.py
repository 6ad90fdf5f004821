"""The Elmo module: shapes, mixes, boundaries, state, and the ways in which people use an nn.Module."""

import copy
import pickle
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import elmokit
from elmokit.config import CharConfig, ElmoConfig, LstmConfig, WordConfig
from elmokit.errors import InputError
from elmokit.model import CANONICAL_SENTENCES, Elmo, word_ids

TINY = ElmoConfig(
    CharConfig(dim=4, filters=((1, 4), (2, 8), (3, 8)), num_highways=1), lstm=LstmConfig(cell_dim=12, projection_dim=6)
)
SENTENCES = [["The", "bank", "of", "the", "river", "."], ["hello"], [], ["a", "bank", "account"]]


@pytest.fixture
def elmo():
    return Elmo.random(TINY).eval()


def assert_near(found, expected, tolerance=1e-6):
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=0)


def test_shapes_mask_and_zeros_past_the_end(elmo):
    out = elmo(word_ids(SENTENCES))
    assert out.layers.shape == (3, 4, 6, 12)
    assert out.mask.sum(1).tolist() == [6, 1, 0, 3]
    assert not out.layers[:, ~out.mask].any()
    assert not out.mixes[0][~out.mask].any()
    assert_near(out.mixes[0], out.layers.mean(0))
    assert torch.equal(out.layers[0, ..., :6], out.layers[0, ..., 6:])


def test_each_mix_learns_on_its_own_and_dropout_waits_for_training():
    elmo = Elmo.random(TINY, num_mixes=2, dropout=0.5)
    out = elmo.eval()(word_ids(SENTENCES))
    assert torch.equal(out.mixes[0], out.mixes[1])
    with torch.no_grad():
        elmo.mixes[1].weights[2] = 5.0
    out = elmo(word_ids(SENTENCES))
    assert not torch.allclose(out.mixes[0], out.mixes[1])
    dropped = elmo.train()(word_ids(SENTENCES)).mixes[0]
    assert (dropped[0] == 0).float().mean() > 0.2


def test_boundaries_stay_on_request():
    kept = Elmo.random(TINY).eval()
    without = kept(word_ids(SENTENCES))
    kept.keep_boundaries = True
    out = kept(word_ids(SENTENCES))
    assert out.layers.shape == (3, 4, 8, 12)
    assert out.mask.sum(1).tolist() == [8, 3, 2, 5]
    assert_near(out.layers[:, 0, 1:7], without.layers[:, 0])
    assert out.layers[:, 1, 2].abs().sum() > 0, "the end of a short sentence stands behind its last word"
    assert not out.layers[:, ~out.mask].any()


def test_extra_leading_dimensions_are_kept(elmo):
    ids = word_ids(SENTENCES)
    out = elmo(ids)
    deep = elmo(ids.reshape(2, 2, 6, 50))
    assert deep.layers.shape == (3, 2, 2, 6, 12) and deep.mask.shape == (2, 2, 6)
    assert_near(deep.layers.flatten(1, 2), out.layers)
    assert deep.mixes[0].shape == (2, 2, 6, 12)


def test_frozen_and_trainable():
    frozen = Elmo.random(TINY)
    assert {name for name, p in frozen.named_parameters() if p.requires_grad} == {"mixes.0.weights", "mixes.0.gamma"}
    frozen(word_ids(SENTENCES)).mixes[0].square().sum().backward()
    assert frozen.mixes[0].gamma.grad is not None
    trainable = Elmo.random(TINY, requires_grad=True)
    trainable(word_ids(SENTENCES)).mixes[0].square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in trainable.parameters())
    assert all(p.grad.abs().sum() > 0 for name, p in trainable.named_parameters() if "weights" not in name)


def test_the_word_cnn_runs_once_a_distinct_word(elmo, monkeypatch):
    seen = []
    encode = elmo.encoder.forward
    monkeypatch.setattr(elmo.encoder, "forward", lambda ids: (seen.append(len(ids)), encode(ids))[1])
    elmo(word_ids([["a", "b", "a"], ["b", "a"]]))
    assert seen == [4]  # a, b and the two boundaries


def test_state_goes_in_and_comes_out(elmo):
    first = elmo(word_ids([["one", "two"], ["three"]]))
    second = elmo(word_ids([["four"], ["five", "six"]]), state=first.state)
    cold = elmo(word_ids([["four"], ["five", "six"]]))
    assert not torch.allclose(second.layers, cold.layers, atol=1e-5)
    assert_near(second.layers[0], cold.layers[0])
    again = elmo(word_ids([["four"], ["five", "six"]]), state=first.state)
    assert torch.equal(again.layers, second.layers)


def test_canonical_state_is_the_committed_sentences_in_one_row(elmo):
    state = None
    for sentence in CANONICAL_SENTENCES:
        state = elmo(word_ids([sentence.split()]), state=state).state
    canonical = elmo.canonical_state
    assert canonical.num_rows == 1
    assert_near(canonical.cell, state.cell)
    assert elmo.canonical_state.cell.abs().sum() > 0


def test_several_threads_share_one_model(elmo):
    batches = [word_ids([[f"word{number}", "and", "more"], ["x"] * (number + 1)]) for number in range(6)]
    expected = [elmo(ids).layers for ids in batches]
    with ThreadPoolExecutor(len(batches)) as threads:
        found = list(threads.map(lambda ids: elmo(ids).layers, batches * 5))
    for one, other in zip(found, expected * 5, strict=True):
        assert_near(one, other)


def test_deepcopy_and_pickle(elmo):
    ids = word_ids(SENTENCES)
    expected = elmo(ids).layers
    assert torch.equal(copy.deepcopy(elmo)(ids).layers, expected)
    assert torch.equal(pickle.loads(pickle.dumps(elmo))(ids).layers, expected)


def test_autocast_leaves_the_recurrence_in_its_own_dtype(elmo):
    ids = word_ids(SENTENCES)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = elmo(ids)
    assert out.layers[1:].dtype == torch.float32
    assert_near(out.layers, elmo(ids).layers, 0.05)


def test_double_precision(elmo):
    ids = word_ids(SENTENCES)
    expected = elmo(ids).layers
    out = copy.deepcopy(elmo).double()(ids)
    assert out.layers.dtype == torch.float64
    assert_near(out.layers.float(), expected, 1e-5)


def test_compiled(elmo):
    compiled = torch.compile(elmo, backend="aot_eager")
    for sentences in (SENTENCES, SENTENCES[:2]):
        ids = word_ids(sentences)
        assert_near(compiled(ids).layers, elmo(ids).layers, 1e-5)


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile's own backend needs a C++ compiler")
@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")  # torch's own backend uses it
def test_compiled_by_the_default_backend(tmp_path, monkeypatch):
    """Once and as small as can be: each graph costs a run of the C++ compiler."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    characters = CharConfig(dim=4, filters=((2, 4),), num_highways=0)
    elmo = Elmo.random(ElmoConfig(characters, lstm=LstmConfig(num_layers=1, cell_dim=8, projection_dim=4))).eval()
    ids = word_ids([["bank"]])
    assert_near(torch.compile(elmo)(ids).layers, elmo(ids).layers, 1e-5)


def test_random_is_reproducible_and_leaves_the_global_seed_alone():
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    one, same, other = Elmo.random(TINY, seed=3), Elmo.random(TINY, seed=3), Elmo.random(TINY, seed=4)
    assert torch.rand(1) == expected
    assert torch.equal(one.bilm.forward_layers[0].input_weight, same.bilm.forward_layers[0].input_weight)
    assert not torch.equal(one.bilm.forward_layers[0].input_weight, other.bilm.forward_layers[0].input_weight)


def test_save_and_load_keep_every_number(elmo, tmp_path):
    ids = word_ids(SENTENCES)
    with torch.no_grad():
        elmo.mixes[0].weights.copy_(torch.tensor([0.1, 0.7, -0.2]))
        elmo.mixes[0].gamma.fill_(1.5)
    canonical = elmo.canonical_state
    elmo.save_pretrained(tmp_path / "model", mix=0)
    loaded = Elmo.from_pretrained(tmp_path / "model", num_mixes=2).eval()
    assert torch.equal(loaded(ids).layers, elmo(ids).layers)
    assert loaded.stored_mix is not None
    assert_near(loaded.stored_mix.weights, elmo.mixes[0].weights.detach())
    assert torch.equal(loaded.canonical_state.cell, canonical.cell)
    assert len(loaded.mixes) == 2 and loaded.mixes[0].layer_weights() == pytest.approx([1 / 3] * 3)
    elmo.save_pretrained(tmp_path / "allennlp", format="allennlp")
    assert_near(Elmo.from_pretrained(tmp_path / "allennlp").eval()(ids).layers, elmo(ids).layers)


def test_word_and_unicode_models():
    vocabulary = ["<S>", "</S>", "<UNK>", "bank", "river"]
    lstm = LstmConfig(cell_dim=12, projection_dim=6)
    words = Elmo.random(ElmoConfig(None, WordConfig(5, 6), lstm, projects_words=False), vocabulary=vocabulary).eval()
    out = words(words.word_ids([["bank", "quay"], ["river"]]))
    assert out.layers.shape == (3, 2, 2, 12)
    numbers = Elmo.random(ElmoConfig(None, WordConfig(5, 6), lstm, projects_words=False)).eval()
    assert torch.equal(numbers(numbers.word_ids([[3, 2], [4]])).layers, out.layers)
    alphabet = ["<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>", "a", "b", "가"]
    characters = CharConfig(scheme="unicode", num_symbols=9, max_length=7, dim=4, filters=((1, 4), (2, 4)))
    unicode = Elmo.random(ElmoConfig(characters, lstm=lstm), alphabet=alphabet).eval()
    assert unicode(unicode.word_ids([["가ab", "b"]])).layers.shape == (3, 1, 2, 12)


def test_models_that_number_words_otherwise_have_other_fingerprints():
    words = ElmoConfig(None, WordConfig(5, 6), TINY.lstm, projects_words=False)
    own, other = ["<S>", "</S>", "<UNK>", "cat", "dog"], ["<S>", "</S>", "<UNK>", "dog", "cat"]
    marks = ["<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>"]
    letters = ElmoConfig(
        CharConfig(scheme="unicode", num_symbols=8, dim=4, filters=((1, 4),), num_highways=1), lstm=TINY.lstm
    )
    made = [
        Elmo.random(words),
        Elmo.random(words, vocabulary=own),
        Elmo.random(words, vocabulary=other),
        Elmo.random(letters, alphabet=[*marks, "a", "b"]),
        Elmo.random(letters, alphabet=[*marks, "b", "a"]),
        Elmo(letters, alphabet=[*marks, "a", "b"], swaps_markers=True),
    ]
    made[-1].load_state_dict(made[-3].state_dict())
    assert len({model.fingerprint() for model in made}) == len(made)
    assert made[1].fingerprint() == Elmo.random(words, vocabulary=own).fingerprint()


def test_a_model_of_bytes_keeps_the_fingerprint_that_older_versions_gave_it(elmo):
    """Layer stores, task folders and unfinished jobs are named after it."""
    elmo.load_state_dict({name: torch.full_like(value, 0.5) for name, value in elmo.state_dict().items()})
    assert elmo.fingerprint() == "e2f1259ff84922a7f54f5c47808fea9a"


def test_an_empty_batch_and_only_empty_sentences(elmo):
    assert elmo(torch.zeros(0, 3, 50, dtype=torch.int64)).layers.shape == (3, 0, 3, 12)
    assert elmo(word_ids([[], []])).layers.shape == (3, 2, 0, 12)


def test_wrong_ids_are_named(elmo):
    with pytest.raises(InputError, match=r"\(…, sentences, words, 50\), found \(2, 3\)"):
        elmo(torch.ones(2, 3, dtype=torch.int64))
    advice = r"make them with this model's word_ids\(sentences\)"
    for wrong, found in (
        ([["the", "bank"]], "list "),
        ("hello", "str 'hello'"),
        (torch.ones(1, 2, 50), "a tensor of torch"),
    ):
        with pytest.raises(InputError, match=f"expected ids of shape .*, found {found}.*; {advice}"):
            elmo(wrong)
    ids = word_ids([["a", "b", "c"]])
    ids[0, 1] = 0
    with pytest.raises(InputError, match="zeros before a real word"):
        elmo(ids)


def test_the_engine_is_visible(elmo):
    assert elmo.engine.startswith(("engine=cpu (float32 on cpu", "engine=packed (float32 on cpu"))
    assert elmokit.Elmo is Elmo
