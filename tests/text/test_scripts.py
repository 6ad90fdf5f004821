"""The scripts of a text: what a model was trained on, and when its reader is warned."""

import unicodedata

import pytest

from elmokit.text.scripts import FEWEST, SAMPLE, ScriptWatch, find_scripts
from elmokit.text.segmenters import words

ENGLISH = words("She sat by the river bank and watched the boats go by until it was dark.")
KOREAN = words("나는 오늘 아침에 학교에 가서 친구를 만나고 점심을 같이 먹었다.")
CHINESE = words("我们昨天在北京吃了烤鸭，非常好吃。")
GUESTS = words("The famous dish is called 北京烤鸭, which means roasted duck of the city 北京.")


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("bank ｂａｎｋ Größe", "Latin"),
        ("학교에서", "Hangul"),
        ("中国〇", "Han"),
        ("ひらがな", "Hiragana"),
        ("ｶﾀｶﾅ", "Katakana"),
        ("Москва", "Cyrillic"),
        ("العربية", "Arabic"),
    ],
)
def test_each_letter_has_its_script(text, script):
    assert find_scripts(text.split(), [1] * len(text.split())) == [script]


def test_every_letter_of_unicode_has_some_script():
    letters = [chr(code) for code in range(0x11000) if chr(code).isalpha()]
    assert len(letters) > 50_000
    assert all(find_scripts([letter], [1]) for letter in letters[::37])
    assert find_scripts([sign for sign in map(chr, range(0x1F600, 0x1F650)) if unicodedata.name(sign)], [1] * 80) == []


def test_a_guest_in_the_text_is_not_its_script():
    assert find_scripts(["학교", "KBS"], [100, 1]) == ["Hangul"]
    assert find_scripts(["학교", "KBS"], [1, 1]) == ["Latin", "Hangul"]


@pytest.mark.parametrize(
    ("scripts", "text", "foreign"),
    [
        (["Latin"], KOREAN, "Hangul"),
        (["Latin"], CHINESE, "Han"),
        (["Hangul"], ENGLISH, "Latin"),
        (["Han"], KOREAN, "Hangul"),
        (["Latin"], ENGLISH, None),
        (["Hangul"], KOREAN, None),
        (["Hangul", "Latin"], ENGLISH, None),
        (["Latin"], [*ENGLISH, "나는", "학교에", "간다", "😀"], None),
        (["Latin"], ["😀", "👩‍👩‍👧", "1998", "!", "※"] * 20, None),
        (["Latin"], ["나는", "학교에"], "Hangul"),  # one short sentence is enough
        (["Latin"], ["이승만"], None),
        (["Latin"], [*"毛泽东"], None),
        (["Latin"], GUESTS, None),
        (["Han"], ["iPhone", "Professional", "Max", *"真的很好用"], None),
        (["Hangul"], ["KBS는", "SK텔레콤", *KOREAN, "LG", "Samsung"], None),
    ],
)
def test_most_words_and_most_letters_must_be_foreign(scripts, text, foreign):
    assert ScriptWatch(scripts).look(text) == foreign


def test_words_of_several_calls_count_together_and_then_no_more():
    watch = ScriptWatch(["Latin"])
    assert [watch.look([word]) for word in KOREAN[:FEWEST]] == [None] * (FEWEST - 1) + ["Hangul"]
    watch = ScriptWatch(["Latin"])
    assert watch.look(["bank"] * (SAMPLE - 1)) is None and not watch.is_done
    assert watch.look(["bank"]) is None and watch.is_done


def test_a_large_batch_is_sampled_throughout():
    assert ScriptWatch(["Latin"]).look(ENGLISH * 20 + KOREAN * 1000) == "Hangul"
