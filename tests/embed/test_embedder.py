import copy
import gc
import re
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.config import ElmoConfig, LstmConfig, WordConfig
from elmokit.embed import embedder as embedder_module
from elmokit.embed.embedder import Embedder
from elmokit.errors import EngineError, InputError, LayerError
from elmokit.model import Elmo
from elmokit.nn.scalar_mix import ScalarMix

TOLERANCE = 1e-5  # design guarantee 2, float32
SENTENCES = [["She", "sat", "by", "the", "bank"], [], ["the"], ["été", "北京", "the", "the"], ["a"] * 30, ["bank", "!"]]


def reference(elmo, sentence, state=None):
    """All layers (L, W, D) of one sentence, by the module itself."""
    with torch.no_grad():
        return elmo(elmo.word_ids([sentence]), state).layers[:, 0].numpy()


def assert_close(arrays, expected):
    assert len(arrays) == len(expected)
    for array, other in zip(arrays, expected, strict=True):
        assert array.shape == other.shape and array.dtype == np.float32
        np.testing.assert_allclose(array, other, atol=TOLERANCE, rtol=0)


def test_all_layers_are_those_of_the_module(elmo):
    arrays = Embedder(elmo).embed(SENTENCES, layers="all")
    assert [array.shape for array in arrays] == [(3, len(words), 12) for words in SENTENCES]
    assert_close(arrays, [reference(elmo, words) for words in SENTENCES])


@pytest.mark.parametrize(
    ("layers", "pick"), [("average", lambda a: a.mean(0)), ("top", lambda a: a[-1]), (1, lambda a: a[1])]
)
def test_layers_on_request(elmo, layers, pick):
    arrays = Embedder(elmo).embed(SENTENCES, layers=layers)
    assert_close(arrays, [pick(reference(elmo, words)) for words in SENTENCES])


def test_the_stored_mix_is_used(elmo):
    elmo = copy.deepcopy(elmo)
    assert_close(Embedder(elmo).embed(SENTENCES, layers="mix"), Embedder(elmo).embed(SENTENCES))
    elmo.store_mix(ScalarMix(3, weights=[50.0, 0.0, 0.0], gamma=3.0))
    assert_close(
        Embedder(elmo).embed(SENTENCES, layers="mix"), [3 * a for a in Embedder(elmo).embed(SENTENCES, layers=0)]
    )


@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_a_vector_does_not_depend_on_its_company(elmo, data):
    words = st.sampled_from(["the", "bank", "é", "x" * 60, "a\0b", "1", "of", "river"])
    sentences = data.draw(st.lists(st.lists(words, max_size=12), max_size=12))
    order = data.draw(st.permutations(range(len(sentences))))
    embedder = Embedder(elmo, cache_words=data.draw(st.sampled_from([0, 1, 3, 1000])))
    embedder.embed(data.draw(st.lists(st.lists(words, max_size=3), max_size=3)))
    batch_size = data.draw(st.none() | st.integers(1, 5))
    arrays = embedder.embed([sentences[place] for place in order], layers="all", batch_size=batch_size)
    assert_close(arrays, [reference(elmo, sentences[place]) for place in order])
    streamed = list(embedder.stream((sentences[place] for place in order), layers="all", batch_size=batch_size))
    assert_close(streamed, arrays)


@pytest.mark.parametrize("budget", [1, 7, 64, 10**6])
def test_a_vector_does_not_depend_on_the_budget(elmo, budget, monkeypatch):
    monkeypatch.setattr(embedder_module, "choose_budget", lambda _: budget)
    assert_close(Embedder(elmo).embed(SENTENCES, layers="all"), [reference(elmo, words) for words in SENTENCES])


def test_a_string_is_one_sentence_and_a_list_is_taken_as_it_is(elmo):
    embedder = Embedder(elmo)
    text, words, odd = embedder.embed(
        ["Two sentences. But one item.", ["Two", "sentences", ".", "But", "one", "item", "."], ["not split.", ""]]
    )
    assert_close([text], [words])
    assert odd.shape == (2, 12)


def test_a_segmenter_of_ones_own(elmo):
    from elmokit.text.segmenters import Word

    embedder = Embedder(elmo, segmenter=lambda text: [[Word(c, n, n + 1)] for n, c in enumerate(text)])
    assert_close(embedder.embed(["abc"]), embedder.embed([["a", "b", "c"]]))


def test_no_sentences_and_no_words(elmo):
    embedder = Embedder(elmo)
    assert embedder.embed([]) == []
    assert [array.shape for array in embedder.embed(["", [], "  "])] == [(0, 12)] * 3
    assert embedder.embed([[]], layers="all")[0].shape == (3, 0, 12)
    assert list(embedder.stream([])) == []
    assert embedder.encode([]).shape == (0, 12) and embedder.encode([], layers="all").shape == (0, 3, 12)
    assert not embedder.encode(["", []]).any()


def test_a_very_long_sentence(elmo):
    (array,) = Embedder(elmo).embed([["word", "other"] * 1500])
    assert array.shape == (3000, 12)


@pytest.mark.parametrize("pooling", ["mean", "max", "first_last"])
def test_encode_sees_the_words_of_its_sentence_only(elmo, pooling):
    embedder = Embedder(elmo)
    together = embedder.encode(SENTENCES, pooling=pooling)
    assert together.shape == (len(SENTENCES), 12) and together.dtype == np.float32
    for vector, words in zip(together, SENTENCES, strict=True):
        np.testing.assert_allclose(vector, embedder.encode([words], pooling=pooling)[0], atol=TOLERANCE)


def test_first_last_joins_what_each_reader_knows_at_its_end(elmo):
    embedder = Embedder(elmo)
    (words_WD,) = embedder.embed([SENTENCES[0]])
    vector = embedder.encode([SENTENCES[0]], pooling="first_last")[0]
    np.testing.assert_allclose(vector, np.concatenate([words_WD[-1, :6], words_WD[0, 6:]]), atol=TOLERANCE)


def test_stream_takes_what_it_needs_and_no_more(elmo):
    taken = []
    stream = Embedder(elmo).stream((taken.append(n) or ["word"] for n in range(10**9)), batch_size=2)
    next(stream)
    assert len(taken) == 8


def test_results_do_not_hold_their_batch(elmo):
    arrays = Embedder(elmo).embed(SENTENCES, layers="all")
    assert len(arrays) == len(SENTENCES)
    assert [array.base is None and array.flags.c_contiguous for array in arrays] == [True] * len(SENTENCES)


def test_a_single_string_is_one_sentence(elmo):
    embedder = Embedder(elmo)
    assert_close([embedder.embed("a sentence .")], embedder.embed(["a sentence ."]))
    assert embedder.embed("a sentence .", layers="all").shape == (3, 3, 12)
    assert embedder.embed("").shape == (0, 12)
    np.testing.assert_array_equal(embedder.encode("a sentence ."), embedder.encode(["a sentence ."])[0])
    assert embedder.encode("a sentence .", layers="all").shape == (3, 12)
    assert not embedder.encode("").any()
    with pytest.raises(InputError, match="put it into a list"):
        embedder.stream("a sentence")


@pytest.mark.parametrize(
    ("sentences", "message"),
    [
        ([["a"], 7], "sentence 1: .* found int 7"),
        ([None], "sentence 0: .* found None"),
        ([b"bytes"], "sentence 0: .* found bytes"),
        ([["a", 3]], "sentence 0 has the word 3 of type int: expected strings"),
        ([["a", None]], "of type NoneType"),
        (None, "expected a sentence or a list of sentences, found None: a sentence is a string or a list of words"),
        (3.5, "found float 3.5"),
        (b"bytes", "found bytes: decode"),
        ({"a": "b"}, "found dict .*: pass its values"),
    ],
)
def test_what_is_no_sentence_is_refused(elmo, sentences, message):
    with pytest.raises(InputError, match=message):
        Embedder(elmo).embed(sentences)


class Frame:
    """What a DataFrame of pandas is to code that does not know it."""

    columns, shape = ("text", "label"), (3, 2)

    def __iter__(self):
        return iter(self.columns)


@pytest.mark.parametrize(
    "table", [Frame(), np.array([["a", "b"]] * 3), pyarrow.table({"text": ["a", "b", "c"], "label": [1, 2, 3]})]
)
def test_a_table_is_refused(elmo, table):
    shape = re.escape(str(tuple(table.shape)))
    for call in (Embedder(elmo).embed, Embedder(elmo).encode):
        with pytest.raises(InputError, match=rf'found a table of shape {shape}: choose a column, e.g. table\["text"\]'):
            call(table)


def test_a_column_of_texts_or_of_words_is_taken(elmo):
    embedder, words = Embedder(elmo), np.empty(2, object)
    words[:] = [np.array(["a", "b"]), np.array(["c"], object)]  # as pandas gives a column of lists
    assert_close(embedder.embed(words), embedder.embed([["a", "b"], ["c"]]))
    assert_close(embedder.embed(np.array(["a b", "c"])), embedder.embed(["a b", "c"]))


def test_wrong_choices_are_refused(elmo):
    embedder = Embedder(elmo)
    with pytest.raises(LayerError, match="asked for layer 3"):
        embedder.embed([["a"]], layers=3)
    with pytest.raises(LayerError, match="asked for layers='nothing'"):
        embedder.stream([["a"]], layers="nothing")  # at the call, not at the first vector
    with pytest.raises(InputError, match="batch_size is 0"):
        embedder.embed([["a"]], batch_size=0)
    with pytest.raises(InputError, match="pooling"):
        embedder.encode([["a"]], pooling="sum")
    with pytest.raises(InputError, match="'zero', 'carry', 'canonical'"):
        Embedder(elmo, state="warm")
    with pytest.raises(InputError, match="cache_words"):
        Embedder(elmo, cache_words=-1)
    with pytest.raises(EngineError, match="float64"):
        Embedder.from_pretrained("no-such-model", precision="float64")


def test_id_only_models_take_numbers():
    config = ElmoConfig(None, WordConfig(30, 8), LstmConfig(cell_dim=8, projection_dim=8), projects_words=False)
    embedder = Embedder(Elmo.random(config))
    assert_close(embedder.embed([[3, 5, np.int64(29)]]), embedder.embed([["3", "5", "29"]]))
    with pytest.raises(InputError, match="30"):
        embedder.embed([[30]])
    with pytest.raises(InputError, match="row numbers or strings"):
        embedder.embed([[1.5]])


def test_from_pretrained_reads_a_saved_model(elmo, tmp_path):
    elmo.save_pretrained(tmp_path / "model")
    embedder = Embedder.from_pretrained(tmp_path / "model", device="cpu", cache_words=5)
    assert_close(embedder.embed(SENTENCES), Embedder(elmo).embed(SENTENCES))
    assert (embedder.dim, embedder.num_layers, embedder.cache_words) == (12, 3, 5)


def test_changed_weights_need_a_cleared_cache(elmo):
    elmo = copy.deepcopy(elmo)
    embedder = Embedder(elmo)
    before = embedder.embed(SENTENCES)
    with torch.no_grad():
        for weight in elmo.parameters():
            weight.mul_(1.5)
    embedder.clear_cache()
    after = embedder.embed(SENTENCES, layers="all")
    assert_close(after, [reference(elmo, words) for words in SENTENCES])
    assert not np.allclose(after[0].mean(0), before[0])


@pytest.mark.parametrize("state", ["zero", "canonical"])
def test_several_threads_share_an_embedder(elmo, state):
    embedder = Embedder(elmo, state=state, cache_words=4)
    expected = embedder.embed(SENTENCES, layers="all")

    def work(seed):
        for step in range(8):
            order = np.random.default_rng([seed, step]).permutation(len(SENTENCES))
            arrays = embedder.embed([SENTENCES[place] for place in order], layers="all", batch_size=1 + seed)
            assert_close(arrays, [expected[place] for place in order])

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))


def test_canonical_starts_every_sentence_from_the_same_state(elmo):
    arrays = Embedder(elmo, state="canonical").embed(SENTENCES, layers="all", batch_size=2)
    assert_close(arrays, [reference(elmo, words, elmo.canonical_state) for words in SENTENCES])
    assert not np.allclose(arrays[0], reference(elmo, SENTENCES[0]), atol=1e-4)


def carried_by_hand(elmo, sentences, batch_size):
    arrays, state = [], None
    for start in range(0, len(sentences), batch_size):
        batch = sentences[start : start + batch_size]
        with torch.no_grad():
            out = elmo(elmo.word_ids(batch), None if state is None else state.resize(len(batch)))
        arrays += [out.layers[:, row, : len(words)].numpy() for row, words in enumerate(batch)]
        kept = None if state is None else [part[:, :, len(batch) :] for part in state]
        state = (
            out.state
            if kept is None
            else type(out.state)(*(torch.cat(p, 2) for p in zip(out.state, kept, strict=True)))
        )
    return arrays


@pytest.mark.parametrize("batch_size", [1, 2, 4, 100])
def test_carry_goes_on_row_by_row_in_input_order(elmo, batch_size):
    sentences = SENTENCES + SENTENCES[::-1]
    expected = carried_by_hand(elmo, sentences, batch_size)
    embedder = Embedder(elmo, state="carry")
    assert_close(embedder.embed(sentences, layers="all", batch_size=batch_size), expected)
    embedder.reset_state()
    assert_close(list(embedder.stream(sentences, layers="all", batch_size=batch_size)), expected)


def test_carry_keeps_its_state_between_calls_until_reset(elmo):
    embedder = Embedder(elmo, state="carry")
    first = embedder.embed(SENTENCES)
    second = embedder.embed(SENTENCES[:2])  # a smaller batch: the other rows wait
    third = embedder.embed(SENTENCES)
    expected = [array.mean(0) for array in carried_by_hand(elmo, SENTENCES, 6)]
    assert_close(first, expected)
    assert not np.allclose(second[0], first[0], atol=1e-4)
    assert not np.allclose(third[3], first[3], atol=1e-4)
    embedder.reset_state()
    assert_close(embedder.embed(SENTENCES), first)


def test_carry_batches_hold_64_sentences_unless_told(elmo):
    sentences = [["word"]] * 65
    arrays = Embedder(elmo, state="carry").embed(sentences)
    assert np.array_equal(arrays[0], arrays[63])
    assert not np.allclose(arrays[0], arrays[64], atol=1e-4)


def test_carry_is_for_one_thread_at_a_time(elmo):
    embedder = Embedder(elmo, state="carry")
    stream = embedder.stream(SENTENCES, batch_size=1)
    next(stream)
    for call in (lambda: embedder.embed(SENTENCES), lambda: next(embedder.stream(SENTENCES)), embedder.reset_state):
        with pytest.raises(InputError, match="its own Embedder"):
            call()
    stream.close()
    assert len(embedder.embed(SENTENCES)) == len(SENTENCES)


class ScarceMemory:
    """A `read_packed` that fails when more than so many rows come."""

    def __init__(self, elmo, most, problem):
        self.read, self.most, self.problem, self.rows = elmo.bilm.read_packed, most, problem, []

    def __call__(self, words, batch_sizes, state):
        self.rows.append(batch_sizes[0])
        if batch_sizes[0] > self.most:
            raise self.problem
        return self.read(words, batch_sizes, state)


OUT_OF_MEMORY = [
    torch.OutOfMemoryError("CUDA out of memory."),
    MemoryError(),
    RuntimeError("[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: 99 bytes"),
    RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 99 bytes."),
]


@pytest.mark.parametrize("problem", OUT_OF_MEMORY)
@pytest.mark.parametrize("state", ["zero", "carry", "canonical"])
def test_a_batch_too_big_for_the_memory_is_halved(elmo, state, problem, monkeypatch):
    expected = [Embedder(elmo, state=state).embed(SENTENCES * 2, layers="all", batch_size=n) for n in (5, 5)][0]
    scarce = ScarceMemory(elmo, 2, problem)
    monkeypatch.setattr(elmo.bilm, "read_packed", scarce)
    embedder = Embedder(elmo, state=state)
    assert_close(embedder.embed(SENTENCES * 2, layers="all", batch_size=5), expected)
    assert max(scarce.rows) == 5 and 2 in scarce.rows


def test_one_sentence_too_big_for_the_memory_is_a_clear_error(elmo, monkeypatch):
    monkeypatch.setattr(elmo.bilm, "read_packed", ScarceMemory(elmo, 0, MemoryError()))
    with pytest.raises(EngineError, match="single sentence of 30 words"):
        Embedder(elmo).embed(SENTENCES)


def test_another_failure_is_not_taken_for_a_lack_of_memory(elmo, monkeypatch):
    monkeypatch.setattr(elmo.bilm, "read_packed", ScarceMemory(elmo, 0, RuntimeError("shapes do not match")))
    with pytest.raises(RuntimeError, match="shapes do not match"):
        Embedder(elmo).embed(SENTENCES)


def test_the_model_can_still_learn_afterwards(elmo):
    elmo = copy.deepcopy(elmo).requires_grad_(True)
    Embedder(elmo, state="canonical").embed(SENTENCES)
    elmo(elmo.word_ids([["a"]]), elmo.canonical_state).mixes[0].square().sum().backward()
    gradient = elmo.bilm.forward_layers[0].input_weight.grad
    assert gradient is not None and gradient.abs().sum() > 0


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_thousands_of_calls_leave_nothing_behind(elmo):
    """New words in every call, so that the cache turns over; memory after a warm-up stays where it is."""
    embedder = Embedder(elmo, cache_words=200)

    def resident_mb():
        gc.collect()
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20

    def calls(first, last):
        for number in range(first, last):
            embedder.embed([["word", str(number)], [f"and{number}", "more"]], layers="all")
            embedder.encode([["x", str(-number)]])

    calls(0, 300)
    before = resident_mb()
    calls(300, 2300)
    assert resident_mb() - before < 2.0


def test_torchs_compiler_is_left_alone(random_model):
    """It takes two seconds to import, and nobody compiles here."""
    code = (
        "import sys, elmokit; embedder = elmokit.Embedder.from_pretrained(sys.argv[1], device='cpu'); "
        "embedder.embed(['The bank .']); sys.exit('torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(random_model)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_an_embedder_of_a_source(elmo, tmp_path):
    elmo.save_pretrained(tmp_path / "model")
    embedders = [
        Embedder(tmp_path / "model", device="cpu"),
        Embedder(str(tmp_path / "model"), device="cpu", precision="float32"),
        Embedder.from_pretrained(tmp_path / "model", device="cpu"),
    ]
    for embedder in embedders:
        assert embedder.source == str(tmp_path / "model") and embedder.precision == "float32"
        assert_close(embedder.embed(SENTENCES), Embedder(elmo).embed(SENTENCES))


@pytest.mark.parametrize("thing", [None, 3, ["en-small"], ElmoConfig.tiny(), b"en-small"])
def test_what_is_no_model_is_refused(thing):
    with pytest.raises(InputError, match="expected the name or path of a model, or an Elmo, found"):
        Embedder(thing)


def test_an_embedder_says_what_it_is(elmo):
    embedder = Embedder(elmo, state="canonical")
    embedder.source = "en-small"
    expected = "Embedder('en-small', dim=12, layers=3, device='cpu', precision='float32', state='canonical')"
    assert repr(embedder) == expected


@pytest.mark.parametrize("layers", ["average", "all"])
def test_sentence_vectors_of_unit_length(elmo, layers):
    embedder = Embedder(elmo)
    plain = embedder.encode(SENTENCES, layers=layers)
    unit = embedder.encode(SENTENCES, layers=layers, normalize=True)
    assert unit.dtype == np.float32
    lengths = np.linalg.norm(unit, axis=-1)
    np.testing.assert_allclose(np.delete(lengths, 1, axis=0), 1, atol=1e-6)
    assert not unit[1].any()  # a sentence without words
    np.testing.assert_allclose(unit * np.linalg.norm(plain, axis=-1, keepdims=True), plain, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(embedder.encode("a b", normalize=True)), 1, atol=1e-6)


def test_tensors_on_request(elmo):
    embedder = Embedder(elmo)
    tensors = embedder.embed(SENTENCES, as_tensor=True)
    assert all(isinstance(t, torch.Tensor) and t.device == embedder.device for t in tensors)
    assert_close([t.numpy() for t in tensors], embedder.embed(SENTENCES))
    assert embedder.embed("one two", as_tensor=True).shape == (2, 12)
    encoded = embedder.encode(SENTENCES, as_tensor=True)
    assert torch.equal(encoded, torch.from_numpy(embedder.encode(SENTENCES)))
    weight = torch.ones(12, requires_grad=True)
    (encoded @ weight).sum().backward()  # no tensors of inference mode
    assert weight.grad is not None


@pytest.mark.parametrize("call", ["embed", "encode"])
@pytest.mark.parametrize("state", ["zero", "carry"])
def test_progress_is_shown_on_standard_error_when_asked_for(elmo, call, state, capsys):
    work = getattr(Embedder(elmo, state=state), call)
    work(SENTENCES)
    assert capsys.readouterr() == ("", "")
    work(iter(SENTENCES), progress=True)
    work(SENTENCES, progress=True)
    out, err = capsys.readouterr()
    assert out == "" and f"{len(SENTENCES)}/{len(SENTENCES)}" in err


def test_similarity_of_sentences_and_of_vectors(elmo):
    embedder = Embedder(elmo)
    first, second = SENTENCES[:3], ["the bank", "She sat"]
    cosines = embedder.similarity(first, second)
    assert cosines.shape == (3, 2) and cosines.dtype == np.float32
    assert not cosines[1].any()  # a sentence without words
    a, b = embedder.encode(first), embedder.encode(second)
    expected = a[0] @ b[1] / np.linalg.norm(a[0]) / np.linalg.norm(b[1])
    np.testing.assert_allclose(cosines[0, 1], expected, atol=1e-6)
    for vectors in (b, torch.from_numpy(b), list(b), list(torch.from_numpy(b))):
        np.testing.assert_allclose(embedder.similarity(a, vectors), cosines, atol=1e-6)
    np.testing.assert_allclose(embedder.similarity(first, b), cosines, atol=1e-6)
    np.testing.assert_allclose(embedder.similarity("the bank", b[0]), [[1]], atol=1e-6)
    assert embedder.similarity("the bank", "the bank").max() <= 1
    assert embedder.similarity([], second).shape == (0, 2)
    top = embedder.similarity(first, second, layers="top", pooling="max")
    assert np.abs(top - cosines).max() > 1e-3


def test_vectors_that_cannot_be_compared_are_refused(elmo):
    embedder = Embedder(elmo)
    with pytest.raises(InputError, match=r"of one width, found the shapes \(1, 12\) and \(2, 3\)"):
        embedder.similarity("a", np.ones((2, 3)))
    with pytest.raises(InputError, match="of one width"):
        embedder.similarity(["a"], ["b"], layers="all")
    with pytest.raises(InputError, match="found None"):
        embedder.similarity(["a"], None)
