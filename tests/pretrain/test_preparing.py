"""What is made ready for recorded steps: words in blocks of fixed size, arrays as one piece of memory."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from elmokit.pretrain import stepping
from elmokit.pretrain.batches.preparing import Layout, join_arrays, split_memory
from elmokit.pretrain.batches.sentences import SentenceReader
from elmokit.pretrain.corpus.encoding import encode_corpus
from elmokit.pretrain.network import build_network
from elmokit.pretrain.place import Place
from elmokit.pretrain.start import choose_start
from elmokit.pretrain.stepping import GraphStepper, build_stepper, fit_layout
from elmokit.pretrain.train import build_reader
from elmokit.text.characters import ByteScheme, make_scheme

CPU = Place(0, 1, torch.device("cpu"))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    long = "a" * 30
    lines = [f"one two {long}{number} three{number} four letters-{number}-more\n" for number in range(12)]
    (folder / "text.txt").write_text("".join(lines))
    return encode_corpus([folder / "text.txt"], folder / "corpus", tokenised=True, progress=False, workers=1)


def batch_and_layout(corpus, *blocks):
    scheme = ByteScheme()
    batch = next(SentenceReader(corpus, scheme, tokens_per_batch=48))
    return batch, Layout(blocks, padding_id=int(scheme.begin_ids[-1]), widest_filter=7)


@pytest.mark.parametrize(
    "blocks", [((64, 24), (64, 50)), ((128, 16), (64, 24), (64, 50)), ((128, 50),), ((3, 16), (90, 50))]
)
def test_words_point_at_their_spelling(corpus, blocks):
    batch, layout = batch_and_layout(corpus, *blocks)
    arrays = layout.lay_out(batch)
    assert arrays is not None
    *found, words_2N, targets_2N, keys_N = arrays
    assert [block.shape for block in found] == list(blocks)
    padding = layout.padding_id
    padded = [np.pad(block, ((0, 0), (0, 50 - block.shape[1])), constant_values=padding) for block in found]
    spelled_UC = np.concatenate(padded)
    columns = batch.distinct_UC.shape[1]
    for rows_N, words_N in zip(words_2N, batch.words_2N, strict=True):
        assert (spelled_UC[rows_N][:, :columns] == batch.distinct_UC[words_N]).all()
        assert (spelled_UC[rows_N][:, columns:] == padding).all()
    # what a convolution sees of a short word ends in a whole window of padding
    assert all((block[:, -7:] == padding).all() for block in found)
    assert (targets_2N == batch.targets_2N).all()
    assert keys_N.dtype == batch.keys_N.dtype and (keys_N == batch.keys_N).all()  # int32 ends at step 2,048


def test_long_words_do_not_fit_where_there_is_no_room_for_them(corpus):
    batch, layout = batch_and_layout(corpus, (64, 24), (1, 50))
    assert layout.lay_out(batch) is None
    batch, layout = batch_and_layout(corpus, (2, 24), (8, 50))
    assert layout.lay_out(batch) is None


def test_a_fitted_layout_fits_the_batches_it_was_fitted_to(corpus):
    scheme = ByteScheme()
    batches = list(SentenceReader(corpus, scheme, tokens_per_batch=48).one_epoch())
    layout = Layout.fit(batches, columns=50, padding_id=int(scheme.begin_ids[-1]), widest_filter=7)
    assert [width for _, width in layout.blocks] == [16, 24, 50]
    assert all(layout.lay_out(batch) is not None for batch in batches)
    narrow = Layout.fit(batches, columns=1, padding_id=0, widest_filter=1)  # a model of words has one column
    assert [width for _, width in narrow.blocks] == [1]


def test_arrays_come_back_from_their_bytes():
    random = np.random.default_rng(0)
    arrays = [
        random.integers(0, 99, (3, 5)).astype(np.int16),
        np.array([2**40]),
        random.random((2, 3)).astype(np.float32),
        np.zeros((0, 4), np.int32),
        random.integers(0, 99, 7).astype(np.int32),
    ]
    parts = split_memory(join_arrays(arrays), arrays)
    for part, array in zip(parts, arrays, strict=True):
        assert np.array_equal(part.numpy(), array) and part.numpy().dtype == array.dtype


@pytest.mark.parametrize(("output", "nearby"), [("full", 0.0), ("sampled", 0.0), ("full", 0.5), ("sampled", 0.5)])
def test_recorded_steps_learn_what_others_learn(texts, tiny, tmp_path, output, nearby, monkeypatch):
    # A "recording" that calls the function again stands for a CUDA graph.
    monkeypatch.setattr(stepping, "record_launches", lambda run, pool: run)
    config = tiny(output=output, nearby=nearby, tokens_per_batch=40)
    config = dataclasses.replace(config, dropout=0.2)
    corpus = encode_corpus([texts[0]], tmp_path / "c", tokenised=True, progress=False, workers=1, min_count=2)
    model, parts = choose_start(config).choose_model(corpus)
    reader = build_reader(config, corpus, make_scheme(model, **parts), CPU)
    assert isinstance(reader, SentenceReader)
    networks = [build_network(config, model, corpus, CPU.device) for _ in range(2)]
    plain = build_stepper(config, networks[0], corpus, reader, CPU)
    draws = {"sampler": plain.sampler, "nearby": plain.nearby, "seed": config.seed}
    graphs = GraphStepper(networks[1], fit_layout(config, reader), **draws)
    for number in range(1, 25):
        batch = next(reader)
        for stepper in (plain, graphs):
            stepper.zero_grad()
            stepper.step(stepper.prepare(batch, number))
        for one, other in zip(networks[0].parameters(), networks[1].parameters(), strict=True):
            assert one.grad is not None and other.grad is not None
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-6)
    assert graphs._graphs, "no shape came twice"
    torch.testing.assert_close(plain.loss_sums, graphs.loss_sums)
