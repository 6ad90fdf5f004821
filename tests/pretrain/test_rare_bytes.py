"""A model is saved without embeddings that would drown the rest of a word."""

from __future__ import annotations

import torch

from elmokit import Embedder
from elmokit.config import ElmoConfig
from elmokit.nn.output_layer import OutputLayer
from elmokit.pretrain.corpus.encoded import EncodedCorpus
from elmokit.pretrain.corpus.encoding import encode_corpus
from elmokit.pretrain.network import LanguageModelNetwork
from elmokit.pretrain.rare_bytes import calm_rare_bytes
from elmokit.pretrain.saving import save_model

NUM_SYMBOLS = ElmoConfig.tiny().characters.num_symbols
RARE = "😀".encode()[0]
WORDS = [chr(code) for code in range(0xD800)]  # letters of all scripts, but no emoji


def make_table(*, rare_scale=1.0):
    table_SE = 0.2 * torch.randn(NUM_SYMBOLS, 16, generator=torch.Generator().manual_seed(0))
    table_SE[RARE] *= rare_scale
    return table_SE


def test_rows_much_longer_than_the_letters_are_replaced_and_no_other():
    table_SE = make_table(rare_scale=20)
    calm_SE = calm_rare_bytes(table_SE, WORDS)
    others = [byte for byte in range(NUM_SYMBOLS) if byte != RARE]
    assert torch.equal(calm_SE[others], table_SE[others])
    assert calm_SE[RARE].norm() < table_SE[others].norm(dim=1).max()


def test_a_byte_that_no_word_has_may_not_be_half_as_long_again():
    table_SE = make_table(rare_scale=2.5)
    assert torch.equal(calm_rare_bytes(table_SE, [*WORDS, "😀"]), table_SE)
    calm_SE = calm_rare_bytes(table_SE, WORDS)
    assert calm_SE[RARE].norm() < 0.5 * table_SE[RARE].norm()
    assert torch.equal(calm_rare_bytes(calm_SE, WORDS), calm_SE)


def test_a_model_that_has_hardly_learned_keeps_the_letters_that_its_vocabulary_has_not():
    table_SE = 2 * torch.rand(NUM_SYMBOLS, 16, generator=torch.Generator().manual_seed(0)) - 1  # as training begins
    assert torch.equal(calm_rare_bytes(table_SE, ["the", "of"]), table_SE)


def test_boundaries_keep_rows_of_any_length():
    table_SE = make_table()
    table_SE[256:] *= 20
    assert torch.equal(calm_rare_bytes(table_SE, WORDS), table_SE)


def test_a_text_of_letters_alone_calms_every_other_byte():
    table_SE = make_table() * 100
    table_SE[ord("a") : ord("z") + 1] /= 100
    calm_SE = calm_rare_bytes(table_SE, WORDS)
    assert calm_SE[:256].norm(dim=1).max() < 6 * calm_SE[ord("a") : ord("z") + 1].norm(dim=1).median()


def test_a_saved_model_reads_an_emoji_as_calmly_as_a_word(tiny, tmp_path):
    torch.manual_seed(0)
    network = LanguageModelNetwork(tiny().model, OutputLayer(5, 8))
    with torch.no_grad():
        table_SE = network.body.state_dict()["encoder.characters.embedding"]
        table_SE[0xF0:0xF5] *= 50
    (tmp_path / "text.txt").write_text("a bank\n")
    encode_corpus(
        [tmp_path / "text.txt"], tmp_path / "corpus", vocabulary_size=5, min_count=1, tokenised=True, workers=1
    )
    save_model(tmp_path / "model", network, {}, EncodedCorpus.open(tmp_path / "corpus"), {})
    word, emoji = Embedder.from_pretrained(tmp_path / "model").embed([["bank"], ["😀"]], layers=0)
    assert (emoji**2).sum() < 9 * (word**2).sum()
