"""Several processes that share each batch compute what one process computes, and may be fewer or more from then on."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

from elmokit.pretrain.batches.sentences import SentenceReader
from elmokit.pretrain.corpus.encoding import encode_corpus
from elmokit.text.characters import WordScheme


def assert_same_story(one: list[dict], other: list[dict]) -> None:
    assert [line["step"] for line in one] == [line["step"] for line in other]
    for a, b in zip(one, other, strict=True):
        assert a.pop("kind") == b.pop("kind")
        assert a == pytest.approx(b, rel=1e-5)


@pytest.mark.parametrize(
    "changes",
    [
        # Batches of one sentence or two: a rank may have nothing to read.
        {"mode": "sentences", "output": "full", "tokens_per_batch": 12, "tokens": 700},
        {"mode": "sentences", "output": "full", "nearby": 0.5, "tokens_per_batch": 12, "tokens": 700},
        {"mode": "streams", "output": "sampled", "tokens_per_batch": 64, "tokens": 1_600},
    ],
    ids=["sentences-full", "sentences-full-nearby", "streams-sampled"],
)
def test_two_ranks_equal_one_process(changes, texts, tiny, tmp_path, trained, losses):
    text, held_out = texts
    config = tiny(evaluate_every=800, dropout=0.2, **changes)
    options = {"held_out": [held_out], "tokenised": True, "workers": 1}
    for world in (1, 2):
        codes = trained([text], tmp_path / f"world{world}", config, world=world, **options)
        assert codes == [0] * world
    assert_same_story(losses(tmp_path / "world1"), losses(tmp_path / "world2"))
    one, two = (load_file(tmp_path / f"world{world}" / "model.safetensors") for world in (1, 2))
    for name, weight in one.items():
        torch.testing.assert_close(two[name], weight, rtol=0, atol=1e-4)


def test_a_rank_may_have_nothing_to_read(texts, tmp_path):
    corpus = encode_corpus([texts[0]], tmp_path / "corpus", tokenised=True, progress=False, workers=1)
    scheme = WordScheme(corpus.vocabulary)
    second = SentenceReader(corpus, scheme, tokens_per_batch=12, seed=1, rank=1, world=2)
    assert 0 in {next(second).num_tokens for _ in range(60)}  # as in the first case above


@pytest.mark.parametrize("mode", ["sentences", "streams"])
def test_another_number_of_ranks_goes_on_to_the_same_losses(mode, texts, tiny, tmp_path, trained, losses):
    config = tiny(mode=mode, output="sampled", tokens=1_600, tokens_per_batch=40)
    options = {"tokenised": True, "workers": 1}
    assert trained([texts[0]], tmp_path / "one", config, **options) == [0]
    # The first process of the world of two asks its clock at step 16 for the first time.
    for world, minutes in ((2, 0), (3, 0), (1, None)):
        assert trained([texts[0]], tmp_path / "many", config, world=world, minutes=minutes, **options) == [0] * world
    assert_same_story(losses(tmp_path / "one"), losses(tmp_path / "many"))


def test_torchrun_trains(texts, tmp_path):
    settings = "--recipe tiny_cpu --lstm.cell-dim 8 --lstm.projection-dim 4 --tokens 400 --tokens-per-batch 64"
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--master-port",
        "0",
        "--rdzv-backend",
    ]
    command += ["c10d", "--rdzv-endpoint", "localhost:0", "-m", "elmokit", "train", str(texts[0]), "--tokenised"]
    command += ["--workers", "1", "-o", str(tmp_path / "model"), *settings.split()]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "2 processes" in done.stdout
    assert (tmp_path / "model" / "model.safetensors").is_file()
