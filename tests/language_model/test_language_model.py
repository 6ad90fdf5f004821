"""LanguageModel: perplexity against a computation by hand, scores, predictions, substitutes, and what is refused."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch

from elmokit import CheckpointError, Elmo, ElmoConfig, InputError, LanguageModel, io
from elmokit.language_model.scores import Tally, count_word_bytes
from elmokit.nn.output_layer import OutputLayer

WORDS = ["<S>", "</S>", "<UNK>", ".", "the", "bank", "river", "money", "lent", "Bank", "sat", "by", "shore"]
SENTENCES = [
    ["the", "bank", "lent", "money", "."],
    ["the", "xylophone", "sat", "by", "the", "river", "bank", "of", "the", "shore", "."],  # two words are unknown
    [],
    ["money"],
    ["the", "river", "."],
    ["by", "the", "bank"],
]
NUM_TOKENS = sum(len(sentence) + 1 for sentence in SENTENCES)


@pytest.fixture(scope="module")
def lm() -> LanguageModel:
    torch.manual_seed(1)
    elmo = Elmo.random(ElmoConfig.tiny(), seed=3)
    for parameter in elmo.bilm.parameters():
        parameter.data *= 2  # so that what was read matters
    softmax = OutputLayer(len(WORDS), 64)
    softmax.weight.data *= 4
    softmax.bias.data.normal_()
    return LanguageModel(elmo, softmax, WORDS)


class ByHand:
    """One word at a time, in float64 and numpy, from the definition of the model."""

    def __init__(self, lm: LanguageModel) -> None:
        self.lm = lm
        self.reset()

    def reset(self) -> None:
        lstm = self.lm.elmo.config.lstm
        shape = (2, lstm.num_layers)
        self.hidden, self.cell = np.zeros((*shape, lstm.projection_dim)), np.zeros((*shape, lstm.cell_dim))

    def vector(self, word: str) -> np.ndarray:
        elmo = self.lm.elmo
        begin, end = elmo.boundary_ids
        ids = {"<S>": begin, "</S>": end}.get(word)
        ids = torch.from_numpy(elmo.scheme.word_ids([word]))[0] if ids is None else ids
        return elmo.encode_words(ids[None])[0].double().numpy()

    def says(self, direction: int, word: str) -> np.ndarray:
        """Read a word; the log-probabilities (V) of the one that follows in this direction."""
        bilm, lstm = self.lm.elmo.bilm, self.lm.elmo.config.lstm
        x = self.vector(word)
        for number, layer in enumerate((bilm.forward_layers, bilm.backward_layers)[direction]):
            w = {name: value.detach().double().numpy() for name, value in layer.named_parameters()}
            h, c = self.hidden[direction, number], self.cell[direction, number]
            i, j, f, o = np.split(x @ w["input_weight"] + h @ w["recurrent_weight"] + w["bias"], 4)
            c = np.clip(sigmoid(f) * c + sigmoid(i) * np.tanh(j), -lstm.cell_clip, lstm.cell_clip)
            h = (sigmoid(o) * np.tanh(c)) @ w["projection_weight"]
            h = np.clip(h, -lstm.projection_clip, lstm.projection_clip)
            self.hidden[direction, number], self.cell[direction, number] = h, c
            x = h + x if number else h
        softmax = self.lm.softmax
        assert isinstance(softmax, OutputLayer)
        logits = softmax.weight.detach().double().numpy() @ x + softmax.bias.detach().double().numpy()
        return logits - np.log(np.exp(logits).sum())

    def log_probs(self, sentence: list[str]) -> tuple[list[float], list[float]]:
        """Of w1 … wn </S> forward, and of wn … w1 <S> backward, from the present state."""
        row = [WORDS.index(word) if word in WORDS else WORDS.index("<UNK>") for word in sentence]
        forward = zip(["<S>", *sentence], [*row, WORDS.index("</S>")], strict=True)
        backward = zip(["</S>", *sentence[::-1]], [*row[::-1], WORDS.index("<S>")], strict=True)
        return [self.says(0, word)[target] for word, target in forward], [
            self.says(1, word)[target] for word, target in backward
        ]


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def test_perplexity_is_what_a_computation_by_hand_gives(lm):
    by_hand, sums = ByHand(lm), np.zeros(2)
    for sentence in SENTENCES:
        by_hand.reset()
        sums += [-sum(values) for values in by_hand.log_probs(sentence)]
    result = lm.perplexity(SENTENCES)
    assert result.forward == pytest.approx(math.exp(sums[0] / NUM_TOKENS), rel=1e-5)
    assert result.backward == pytest.approx(math.exp(sums[1] / NUM_TOKENS), rel=1e-5)
    assert result.mean == pytest.approx(math.exp(sums.sum() / 2 / NUM_TOKENS), rel=1e-5)
    assert abs(result.forward - result.backward) > 0.01
    assert (result.tokens, result.sentences, result.words) == (NUM_TOKENS, len(SENTENCES), NUM_TOKENS - len(SENTENCES))
    assert result.oov_rate == 2 / result.words
    written = "\n".join(map(" ".join, SENTENCES)).replace(" .", ".")  # as a file, one sentence per line
    num_bytes = len(written.encode()) + 1
    assert result.bits_per_byte == pytest.approx(sums.mean() / math.log(2) / num_bytes, rel=1e-5)


@pytest.mark.parametrize("num_rows", [1, 2, 4])
def test_carried_state_goes_on_row_by_row(lm, num_rows):
    rows, sums = [ByHand(lm) for _ in range(num_rows)], np.zeros(2)
    for number, sentence in enumerate(SENTENCES):
        sums += [-sum(values) for values in rows[number % num_rows].log_probs(sentence)]
    carried = lm.perplexity(SENTENCES, state="carry", batch_size=num_rows)
    assert carried.mean == pytest.approx(math.exp(sums.sum() / 2 / NUM_TOKENS), rel=1e-5)
    assert abs(carried.mean - lm.perplexity(SENTENCES).mean) > 1e-3
    assert carried == lm.perplexity(SENTENCES, state="carry", batch_size=num_rows)  # a call leaves nothing behind


def test_carry_takes_64_sentences_at_a_time_unless_told(lm):
    many = SENTENCES * 12
    assert lm.perplexity(many, state="carry") == lm.perplexity(many, state="carry", batch_size=64)
    assert lm.perplexity(many, state="carry") != lm.perplexity(many, state="carry", batch_size=63)


def test_batch_size_order_and_neighbours_do_not_matter(lm):
    expected = lm.perplexity(SENTENCES)
    for batch_size in (1, 2, 3, 100):
        assert lm.perplexity(SENTENCES, batch_size=batch_size).mean == pytest.approx(expected.mean, rel=1e-6)
    assert lm.perplexity(SENTENCES[::-1]).mean == pytest.approx(expected.mean, rel=1e-6)
    assert lm.perplexity(iter(SENTENCES * 3)).mean == pytest.approx(expected.mean, rel=1e-6)


def test_a_model_that_knows_nothing_has_the_perplexity_of_its_vocabulary(lm):
    softmax = OutputLayer(len(WORDS), 64)
    softmax.weight.data.zero_()
    uniform = LanguageModel(lm.elmo, softmax, WORDS)
    for state in ("zero", "carry"):
        result = uniform.perplexity(SENTENCES, state=state)
        assert [result.forward, result.backward, result.mean] == pytest.approx([len(WORDS)] * 3, rel=1e-6)
    assert uniform.score(["the", "bank"]).mean == pytest.approx(-3 * math.log(len(WORDS)), rel=1e-6)


def test_probabilities_that_are_no_numbers_are_refused():
    tally = Tally(num_tokens=2, num_sentences=1, num_bytes=5)
    tally.add_losses([(torch.tensor([1.0, torch.nan]), torch.ones(2))])
    with pytest.raises(CheckpointError, match="are not numbers.*fetch its files anew"):
        tally.result()


def test_strings_are_split_into_sentences_and_blank_ones_hold_none(lm):
    lines = ["The bank lent  money. The river sat.\n", "", " \n", "by the shore\n"]
    words = [["The", "bank", "lent", "money", "."], ["The", "river", "sat", "."], ["by", "the", "shore"]]
    one, other = lm.perplexity(lines), lm.perplexity(words)
    assert (one.mean, one.tokens) == (pytest.approx(other.mean, rel=1e-6), other.tokens)
    bits = one.tokens * math.log2(one.mean)
    # White space counts one byte, however wide; the full stops stand at their words as in the text.
    assert one.bits_per_byte == pytest.approx(bits / len("The bank lent money. The river sat.\nby the shore\n"))
    assert other.bits_per_byte == pytest.approx(one.bits_per_byte)  # which no tokenisation moves


def test_bytes_are_those_of_utf_8(lm):
    assert lm.perplexity([["Ωμέγα", "bank"]]).bits_per_byte == pytest.approx(
        3 * math.log2(lm.perplexity([["Ωμέγα", "bank"]]).mean) / len("Ωμέγα bank\n".encode())
    )


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("银 行 在 河 边 。", "银行在河边。"),
        ("我们 用 Python 写 (  程序 ) ！", "我们用Python写(程序)！"),
        ("나는 학교에서 친구를 만났다 .", "나는 학교에서 친구를 만났다."),
        ("He said , “ yes ” ( 50 % ) .", "He said, “yes” (50%)."),
        ("It 's Ann 's and I do n't know 'em .", "It's Ann's and I don't know 'em."),
        ("", ""),
    ],
)
def test_words_count_the_bytes_of_the_text_that_they_come_from(words, text):
    assert count_word_bytes(words.split()) == len(text.encode()) + 1


def test_memory_is_bounded_and_each_word_encoded_once(lm, monkeypatch):
    fresh = LanguageModel(lm.elmo, lm.softmax, WORDS)
    encoded, most, ahead = [], 0, 0

    def lines():
        nonlocal ahead, most
        for _ in range(50):
            for sentence in SENTENCES:
                ahead += 1
                most = max(most, ahead)
                yield sentence

    encode, read = fresh._encoder._encode_words, fresh._predict

    def counting_read(text, rows, state=None):
        nonlocal ahead
        ahead -= len(rows)
        return read(text, rows, state)

    monkeypatch.setattr(fresh._encoder, "_encode_words", lambda words: encoded.extend(words) or encode(words))
    monkeypatch.setattr(fresh, "_predict", counting_read)
    fresh.perplexity(lines(), batch_size=2)
    assert most <= 16  # of 300
    assert sorted(encoded) == sorted({word for sentence in SENTENCES for word in sentence})


def test_score_gives_log_probabilities_of_the_sentence_and_its_words(lm):
    sentence = SENTENCES[1]
    forward, backward = ByHand(lm).log_probs(sentence)
    score = lm.score(sentence)
    assert [word.word for word in score.words] == sentence
    assert [*(word.forward for word in score.words), score.end] == pytest.approx(forward, abs=1e-4)
    assert [score.begin, *(word.backward for word in score.words)] == pytest.approx(backward[::-1], abs=1e-4)
    assert score.forward == pytest.approx(sum(forward), abs=1e-4)
    assert score.backward == pytest.approx(sum(backward), abs=1e-4)
    assert score.mean == pytest.approx((sum(forward) + sum(backward)) / 2, abs=1e-4)


def test_a_string_is_one_sentence_to_score(lm):
    assert lm.score("The bank. the river.") == lm.score(["The", "bank", ".", "the", "river", "."])
    empty = lm.score("")
    assert empty.words == ()
    assert empty.forward == empty.end


def test_scores_and_perplexity_agree(lm):
    total = sum(lm.score(sentence).mean for sentence in SENTENCES)
    assert lm.perplexity(SENTENCES).mean == pytest.approx(math.exp(-total / NUM_TOKENS), rel=1e-6)


@pytest.mark.parametrize(("direction", "hidden"), [("forward", "<S>"), ("backward", "</S>")])
def test_predict_gives_the_models_distribution_over_what_can_come(direction, hidden, lm):
    best = lm.predict("the river bank", top=1000, direction=direction)
    assert sorted(word for word, _ in best) == sorted(set(WORDS) - {"<UNK>", hidden})
    assert math.fsum(probability for _, probability in best) == pytest.approx(1, abs=1e-6)
    assert [p for _, p in best] == sorted((p for _, p in best), reverse=True)
    by_hand = ByHand(lm)
    read = ["<S>", "the", "river", "bank"] if direction == "forward" else ["</S>", "bank", "river", "the"]
    says = [by_hand.says(int(direction == "backward"), word) for word in read][-1]
    shares = {word: math.exp(value) for word, value in zip(WORDS, says, strict=True) if word not in ("<UNK>", hidden)}
    for word, probability in best:
        assert probability == pytest.approx(shares[word] / sum(shares.values()), rel=1e-4)
    assert lm.predict(["the", "river", "bank"], top=3, direction=direction) == best[:3]


def test_predict_goes_on_with_the_nearest_sentence(lm):
    assert lm.predict("Bank lent money. The river") == lm.predict("The river")
    assert lm.predict("by the bank. The river", direction="backward") == lm.predict(
        "by the bank.", direction="backward"
    )
    assert lm.predict("") == lm.predict([])


def test_substitutes_suit_both_sides(lm):
    sentence = ["the", "river", "bank", "sat", "."]
    forward_NP, backward_NP = lm._read(sentence).layers[-1]
    before_P, after_P = forward_NP[2], backward_NP[2]  # both before they read "bank"
    softmax = OutputLayer(len(WORDS), 64)
    softmax.weight.data.zero_()
    left, right = before_P / before_P.norm(), after_P / after_P.norm()
    for word, toward in {"shore": left + right, "money": 3 * (left - right), "bank": 9 * (left + right)}.items():
        softmax.weight.data[WORDS.index(word)] = 20 * toward
    made = LanguageModel(lm.elmo, softmax, WORDS)
    assert made.predict(["the", "river"], top=3)[0][0] == "bank"
    best = made.substitutes(sentence, "bank", top=100)
    assert best[0][0] == "shore"  # "money" suits one side, "bank" is the word itself
    assert sorted(word for word, _ in best) == sorted(set(WORDS) - {"<S>", "</S>", "<UNK>", "bank", "Bank"})
    assert math.fsum(probability for _, probability in best) == pytest.approx(1, abs=1e-6)


def test_substitutes_multiply_both_sides_and_divide_by_how_frequent_a_word_is(lm):
    by_hand = ByHand(lm)
    left = [by_hand.says(0, word) for word in ["<S>", "the", "river"]][-1]
    right = [by_hand.says(1, word) for word in ["</S>", ".", "sat"]][-1]
    shares = np.exp(left + right) * np.arange(1, len(WORDS) + 1)  # Zipf: a word's frequency falls as 1 / rank
    shares[[WORDS.index(word) for word in ("<S>", "</S>", "<UNK>", "bank", "Bank")]] = 0
    found = lm.substitutes("the river bank sat.", "bank", top=100)
    assert len(found) == len(WORDS) - 5
    for word, probability in found:
        assert probability == pytest.approx(shares[WORDS.index(word)] / shares.sum(), rel=1e-4)


@pytest.mark.parametrize("state", ["zero", "carry"])
def test_perplexity_tells_how_much_of_what_it_took_is_scored(lm, state):
    taken, shares = [], []
    lines = (taken.append(line) or line for line in ["the bank by the river"] * 5)
    lm.perplexity(lines, state=state, batch_size=2, progress=lambda share: shares.append(round(share * len(taken), 6)))
    assert shares == [2, 4, 5]


def test_substitutes_of_the_right_occurrence_in_the_right_capitals(lm):
    sentence = "the Bank by the bank"
    assert lm.substitutes(sentence, "BANK") == lm.substitutes(sentence, "Bank")
    assert lm.substitutes(sentence, "BANK", occurrence=1) == lm.substitutes(sentence, "Bank")
    assert lm.substitutes(sentence, "BANK", occurrence=2) == lm.substitutes(sentence, "bank")
    assert lm.substitutes(sentence, "bank") != lm.substitutes(sentence, "Bank")
    assert lm.substitutes(sentence, "the", occurrence=2) != lm.substitutes(sentence, "the")


@pytest.mark.parametrize("format", ["native", "allennlp"])
def test_from_pretrained_reads_every_format_with_a_softmax(lm, format, tmp_path):
    softmax = {f"softmax.{name}": value.detach() for name, value in lm.softmax.state_dict().items()}
    checkpoint = dataclasses.replace(lm.elmo.to_checkpoint(), softmax=softmax, output_words=WORDS)
    io.save(checkpoint, tmp_path / "model", format=format)
    loaded = LanguageModel.from_pretrained(tmp_path / "model", device="cpu")
    assert loaded.output_words == WORDS
    assert loaded.perplexity(SENTENCES).mean == pytest.approx(lm.perplexity(SENTENCES).mean, rel=1e-6)
    assert loaded.predict("the river")[0][0] == lm.predict("the river")[0][0]


def test_a_model_without_its_softmax_is_refused(lm, tmp_path):
    lm.elmo.save_pretrained(tmp_path / "plain")
    with pytest.raises(CheckpointError, match="comes without its output layer.*put softmax.safetensors"):
        LanguageModel.from_pretrained(tmp_path / "plain")
    softmax = {"softmax.weight": torch.zeros(4, 64), "softmax.bias": torch.zeros(4)}
    io.save(dataclasses.replace(lm.elmo.to_checkpoint(), softmax=softmax), tmp_path / "nameless")
    with pytest.raises(CheckpointError, match="4 rows and no list says which words they are: put vocab.txt"):
        LanguageModel.from_pretrained(tmp_path / "nameless")


def test_a_vocabulary_that_cannot_be_right_is_refused(lm):
    with pytest.raises(CheckpointError, match="found no <S>, <UNK>"):
        LanguageModel(lm.elmo, OutputLayer(2, 64), ["</S>", "the"])
    with pytest.raises(CheckpointError, match="expected 14 words, one for each row of the output layer, found 13"):
        LanguageModel(lm.elmo, OutputLayer(14, 64), WORDS)


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda lm: lm.perplexity("one string"), "found a single string: put it into a list"),
        (lambda lm: lm.perplexity([]), "found no sentence at all"),
        (lambda lm: lm.perplexity(["", " "]), "found no sentence at all"),
        (lambda lm: lm.perplexity([["the"], 7]), "line 1: expected a string or a list of words, found int 7"),
        (lambda lm: lm.perplexity([["the", 7]]), "line 0 has the word 7 of type int"),
        (lambda lm: lm.perplexity(["a"], state="canonical"), "use one of 'zero', 'carry'"),
        (lambda lm: lm.perplexity(["a"], batch_size=0), "expected 1 or more"),
        (lambda lm: lm.score(7), "the sentence: .* found int 7"),
        (lambda lm: lm.predict("the", top=0), "expected 1 or more"),
        (lambda lm: lm.predict("the", direction="up"), "use 'forward' or 'backward'"),
        (lambda lm: lm.substitutes("the river", "bank"), "expected 'bank' in the sentence, found only.*the river"),
        (
            lambda lm: lm.substitutes("the river bank", "river bank"),
            "expected one word, found 2: 'river bank'; substitutes stand for one word",
        ),
        (lambda lm: lm.substitutes("", "bank"), "expected 'bank' in the sentence, found no words"),
        (lambda lm: lm.substitutes("the bank", "bank", occurrence=2), "stands there 1 time"),
    ],
)
def test_bad_input_says_what_was_expected(call, complaint, lm):
    with pytest.raises(InputError, match=complaint):
        call(lm)
