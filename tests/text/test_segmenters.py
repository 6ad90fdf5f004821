import bz2
import pickle
import time
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elmokit.errors import InputError
from elmokit.text import segmenters
from elmokit.text.segmenters import RuleSegmenter, Segmenter, Word, sentences, words

PRETRAIN = Path(__file__).parents[2].parent / "shared" / "data" / "pretrain"
PIECES = (
    "a B é 한 漢 か カー 1 . , ' ’ \" “ ” ( ) - -- … ... ! ? 。 」 @ # / : & n't 's No. J. U.S. 😀 🇰🇷 \u0301 \u200d \0"
)
MIXED_TEXT = st.lists(st.sampled_from([*PIECES.split(" "), " ", " ", "\n", "\u3000", "\x1c"]), max_size=40).map("".join)
ANY_TEXT = st.text(st.characters(exclude_categories=[]), max_size=60)

# One sentence a line; the expected words stand between spaces.
WORDS = {
    "abbreviations": [
        (
            "Mr. and Mrs. Smith met Dr. Lee, Prof. Kim and Gen. Ray.",
            "Mr. and Mrs. Smith met Dr. Lee , Prof. Kim and Gen. Ray .",
        ),
        ("the U.S. Senate, at 5 p.m., e.g. now, i.e. today", "the U.S. Senate , at 5 p.m. , e.g. now , i.e. today"),
        ("J. R. R. Tolkien, George W. Bush, J.R.R. Tolkien", "J. R. R. Tolkien , George W. Bush , J.R.R. Tolkien"),
        ("Apple Inc. vs. Sun Ltd., approx. 5, St. Louis etc.", "Apple Inc. vs. Sun Ltd. , approx. 5 , St. Louis etc."),
        ("See No. 5, p. 23 and Fig. 3 (cf. Vol. II).", "See No. 5 , p. 23 and Fig. 3 ( cf. Vol. II ) ."),
        ("U.S.-based, the U.S.'s, a Ph.D. in D.C.", "U.S.-based , the U.S. 's , a Ph.D. in D.C."),
        ("MR. LEE OF LEE INC. IN ST. LOUIS", "MR. LEE OF LEE INC. IN ST. LOUIS"),
        ("He said no.", "He said no ."),
        ("We take vitamin C.", "We take vitamin C ."),
    ],
    "numbers": [
        ("$5.99, €1,234.56 and 3.14 or 10%", "$ 5.99 , € 1,234.56 and 3.14 or 10 %"),
        ("the 1990s, the '90s, 12:30, 2024-01-15, 21st", "the 1990s , the '90s , 12:30 , 2024-01-15 , 21st"),
        ("1/2 or .500, 9/11, 3:16, 5kg, x², 4°C, #1", "1/2 or .500 , 9/11 , 3:16 , 5kg , x² , 4 ° C , # 1"),
        ("1914–18, £1.5m, US$5", "1914 – 18 , £ 1.5m , US $ 5"),
    ],
    "addresses": [
        ("See https://a.org/wiki/ELMo_(model), or www.a.com.", "See https://a.org/wiki/ELMo_(model) , or www.a.com ."),
        ("(http://a.org/b?c=d&e=1#f)", "( http://a.org/b?c=d&e=1#f )"),
        ("example.com/a/b.html!", "example.com/a/b.html !"),
        ("Mail a.b+c@example.co.uk.", "Mail a.b+c@example.co.uk ."),
        ("@elmo_kit likes #NLP2018, not and/or", "@elmo_kit likes #NLP2018 , not and / or"),
        ("Node.js, C++, C#, AT&T's R&D", "Node.js , C++ , C# , AT&T 's R&D"),
    ],
    "contractions": [
        ("I don't, can't, won't, ain't.", "I do n't , ca n't , wo n't , ai n't ."),
        ("It's they're I'm we'll you've he'd", "It 's they 're I 'm we 'll you 've he 'd"),
        ("it’s don’t DON'T IT'S", "it ’s do n’t DO N'T IT 'S"),
        ("I'd've wouldn't've", "I 'd 've would n't 've"),
        ("John's and the dogs' 1990's", "John 's and the dogs ' 1990 's"),
        ("cannot gonna o'clock O'Neil d'Artagnan Bahá'í", "cannot gonna o'clock O'Neil d'Artagnan Bahá'í"),
        ("'tis true, catch 'em", "'tis true , catch 'em"),
        ("Türkiye'de Ankara'ya м'яч", "Türkiye'de Ankara'ya м'яч"),
    ],
    "punctuation": [
        ("\"Yes,\" she said, 'no' and ``maybe''.", "\" Yes , \" she said , ' no ' and `` maybe '' ."),
        ("“Yes,” she ‘said’ (twice) [sic] {x}", "“ Yes , ” she ‘ said ’ ( twice ) [ sic ] { x }"),
        ("Wait... what…? No -- yes—or – hm", "Wait ... what … ? No -- yes — or – hm"),
        ("state-of-the-art mother-in-law's U-boat", "state-of-the-art mother-in-law 's U-boat"),
        ("What?! Stop!!", "What ? ! Stop ! !"),
        ("¿Qué pasa? ¡Hola! «Bonjour», dit-il ; l'homme", "¿ Qué pasa ? ¡ Hola ! « Bonjour » , dit-il ; l'homme"),
        ("==== *** __init__ a_b _it_", "==== *** __ init __ a_b _ it _"),
        ("<S> and </S>", "< S > and < / S >"),
    ],
    "scripts": [
        ("これはペンです", "これは ペン です"),
        ("東京タワーへ行く", "東 京 タワー へ 行 く"),
        ("2024年，ELMo模型。", "2024 年 ， ELMo 模 型 。"),
        ("한국어 '문장'은 (괄호) 있다.", "한국어 ' 문장 ' 은 ( 괄호 ) 있다 ."),
        ("यह वाक्य है।", "यह वाक्य है ।"),
        ("هل هذا سؤال؟", "هل هذا سؤال ؟"),
        ("ภาษาไทยไม่มีช่องว่าง", "ภาษาไทยไม่มีช่องว่าง"),
        ("می\u200cخواهم cafe\u0301s", "می\u200cخواهم cafe\u0301s"),
        ("Straße, naïve, Ærø", "Straße , naïve , Ærø"),
    ],
    "emoji": [
        ("ok😀👍🏽 👨\u200d👩\u200d👧", "ok 😀 👍🏽 👨\u200d👩\u200d👧"),
        ("🇰🇷🇺🇸 1️⃣ ❤️", "🇰🇷 🇺🇸 1️⃣ ❤️"),
        ("nice :) <3", "nice :) <3"),
    ],
}

SENTENCES = {
    "plain": ["It rained.", "Why?", "Go!", "So be it."],
    "abbreviations": ["He met Dr. Lee of Acme Inc. in St. Louis.", "Mr. W. H. Auden et al. were there."],
    "abbreviation at the end": [
        "He left at 5 p.m.",
        "The U.S. Senate sat in the U.S.",
        "They ate fruit, nuts, etc.",
        "Fine.",
    ],
    "street": ["He lives on Main St.", "He likes it."],
    "single letters": ["Take vitamin C.", "It helps.", "J. Doe agrees."],
    "number words": ["See No. 5.", "No.", "I won't.", "He said no.", "We left."],
    "numbers": ["It grew by 3.5 in 1990.", "25 people came.", "It cost $1.50."],
    "list": ["1. First of all.", "2. Then more."],
    "quotes": ["“It is so.”", "She left.", "“Stop!” Mary said.", '"Why?" he asked.', "(He knew.)", "Then [1.] came."],
    "dialogue": ["“Well,” said Legrand.", "“You may know him.”"],
    "small letters": ["The iMac vs. the rest... and so on!", "Ha! ha! said I."],
    "dots": ["Well... I think so.", "And then…", "Nothing."],
    "addresses": ["Go to www.a.org.", "Or mail me@a.org.", "Version 1.2.3 is out."],
    "spanish": ["¿Qué pasa?", "¡Hola!", "«Bien.»", "Adiós."],
    "hindi, arabic": ["यह एक वाक्य है।", "यह दूसरा है।", "هل هذا سؤال؟", "نعم."],
    "korean": ["첫 문장이다.", "2024년 두 번째 문장이다."],
    "tokenised": ["He left . ”", "She stayed .", "Why ?"],
    "emoji": ["Great day! 😀", "Next one."],
    "dash": ["Il part.", "— Bonjour.", "— Salut."],
}


@pytest.mark.parametrize(("text", "expected"), [case for cases in WORDS.values() for case in cases])
def test_words(text, expected):
    assert words(text) == expected.split(" ")


@pytest.mark.parametrize("expected", SENTENCES.values(), ids=SENTENCES)
def test_sentences(expected):
    assert sentences(" ".join(expected)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("これはペンです。私は学生！「行く。」と言った。", ["これはペンです。", "私は学生！", "「行く。」と言った。"]),
        ("我们去。“好。”他说。", ["我们去。", "“好。”", "他说。"]),
        ("One line\nanother line\r\n\n  A paragraph. ", ["One line", "another line", "A paragraph."]),
        ("", []),
        (" \n\t\u3000", []),
    ],
)
def test_sentences_without_spaces_and_over_lines(text, expected):
    assert sentences(text) == expected


def test_words_of_one_sentence_do_not_stop_at_lines_or_stops():
    assert words("It rained. Why?\nNo.") == ["It", "rained", ".", "Why", "?", "No", "."]


def test_contractions_can_be_kept():
    whole = RuleSegmenter(splits_clitics=False)
    assert [word.text for word in whole.words("I don't know John's dogs'.")] == [
        "I",
        "don't",
        "know",
        "John's",
        "dogs",
        "'",
        ".",
    ]


def test_spans_point_into_the_text():
    text = "  Mr. Lee\tcan't.\n\n “Why?” "
    assert RuleSegmenter()(text) == [
        [Word("Mr.", 2, 5), Word("Lee", 6, 9), Word("ca", 10, 12), Word("n't", 12, 15), Word(".", 15, 16)],
        [Word("“", 19, 20), Word("Why", 20, 23), Word("?", 23, 24), Word("”", 24, 25)],
    ]


@settings(deadline=None, max_examples=30)
@given(MIXED_TEXT | ANY_TEXT, st.booleans())
def test_words_cover_the_text_in_order(text, splits_clitics):
    segmenter = RuleSegmenter(splits_clitics=splits_clitics)
    found = segmenter(text)
    assert all(found)
    assert found == segmenter(text), "what is remembered must not change the answer"
    assert found == RuleSegmenter(splits_clitics=splits_clitics)(text)
    for flat in ([word for sentence in found for word in sentence], segmenter.words(text)):
        end = 0
        for word in flat:
            assert text[word.start : word.end] == word.text != ""
            assert not text[end : word.start].strip()
            end = word.end
        assert not text[end:].strip()


@settings(deadline=None, max_examples=20)
@given(MIXED_TEXT)
def test_the_sentences_hold_everything_but_white_space(text):
    found = sentences(text)
    assert all(sentence == sentence.strip() != "" for sentence in found)
    assert "".join("".join(found).split()) == "".join(text.split())


@settings(deadline=None, max_examples=30)
@given(st.text(st.characters(categories=["L"]), min_size=1, max_size=6), st.sampled_from(["", *',.;:!?)"”']))
def test_plain_chunks_need_no_pattern(letters, sign):
    """The short cut for runs of letters says what the pattern would."""
    by_pattern = [match.group() for match in segmenters._compile_pattern(False).finditer(letters + sign)]
    if segmenters._is_run(letters):
        assert by_pattern == [letters, sign] if sign else by_pattern == [letters]


def test_a_full_memory_changes_nothing(monkeypatch):
    text = "Mr. Lee can't pay $5. He won't, he said. Mr. Lee can't. No. 5 is alive. He won't."
    expected = RuleSegmenter()(text)
    monkeypatch.setattr(segmenters, "MEMORY", 3)
    segmenter = RuleSegmenter()
    assert segmenter(text) == segmenter(text) == expected
    assert len(segmenter._chunks) <= 3


def test_a_segmenter_travels_without_its_memory():
    segmenter = RuleSegmenter(splits_clitics=False)
    segmenter("I don't know.")
    copy = pickle.loads(pickle.dumps(segmenter))
    assert copy._chunks == {}
    assert copy("I don't.") == segmenter("I don't.")


def test_the_rule_is_a_segmenter():
    assert isinstance(RuleSegmenter(), Segmenter)


@pytest.mark.parametrize("wrong", [None, b"bytes", ["a", "list"], 3.5])
@pytest.mark.parametrize("function", [sentences, words, RuleSegmenter(), RuleSegmenter().words])
def test_what_is_no_text_is_refused(function, wrong):
    with pytest.raises(InputError, match=f"expected a text, but {type(wrong).__name__} came"):
        function(wrong)


@pytest.mark.parametrize(
    "junk", ["a", "a.", "'s", "a@b.", "http://(", "1,", "U.S.-", "。「", "🇰", "👨\u200d", "\u0301", ". ) ", "J. "]
)
def test_time_grows_with_the_text_only(junk):
    """Sixteen times the text may take some sixteen times as long, not 256 times."""
    segmenter = RuleSegmenter()

    def seconds(length):
        text = (junk * length)[:length]
        start = time.process_time()
        segmenter(text)
        return time.process_time() - start

    short, long = (min(seconds(length) for _ in range(3)) for length in (2_000, 32_000))  # a collector may come between
    assert long < 80 * short + 0.2


@pytest.mark.skipif(not PRETRAIN.exists(), reason="needs the shared data beside the checkout")
def test_words_agree_with_the_tokenised_heldout_text():
    """F1 over word spans; what is left are its `U.S .`, `10 , 000` and `- -`."""
    with bz2.open(PRETRAIN / "en-heldout.txt.bz2", "rt", encoding="utf-8") as raw:
        text = " ".join(islice(raw, 150))
    with bz2.open(PRETRAIN / "en-heldout.tok.bz2", "rt", encoding="utf-8") as tokenised:
        lines = [line.split() for line in islice(tokenised, 400)]
    signs = "".join(text.split())
    ours = _ends(word.text for word in RuleSegmenter(splits_clitics=False).words(text))
    matched = total = end = 0
    for line in lines:
        start = signs.find("".join(line), end)  # a few sentences were left out of the tokenised file
        if start < 0:
            break
        spans = _ends(line, start)
        end = max(stop for _, stop in spans)
        matched += 2 * len(spans & ours)
        total += len(spans) + sum(1 for begin, _ in ours if start <= begin < end)
    assert total > 10_000
    assert matched / total > 0.98


def _ends(forms, start=0):
    spans = set()
    for form in forms:
        spans.add((start, start + len(form)))
        start += len(form)
    return spans
