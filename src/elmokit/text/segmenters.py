"""Text → sentences → words: the default rules, and the protocol for bringing your own.

Raw text arrives; sentences of `Word`s leave, each word with its character span in the text, so that results can
be laid over the original. Words are those of the Penn Treebank, as in CoNLL and most English task data, with the
characters left as they are (no `-LRB-`, no changed quotes):

* punctuation, brackets, quotes, currency and percent signs stand alone; `...`, `--` and `====` stay in one piece;
* English contractions and possessives are split (`do n't`, `it 's`, `dogs '`; `RuleSegmenter(splits_clitics=False)`
  keeps `don't`), `cannot` is not; hyphenated words, O'Neil, AT&T and d'Artagnan are one word;
* numbers keep their commas, points, colons and slashes (`1,234.56`, `12:30`, `1/2`), abbreviations and initials
  their full stop, URLs, e-mail addresses, @names and #tags everything;
* Han is one character per word, Hiragana and Katakana one run per word, Korean and other spaced scripts as written,
  and Thai, Lao, Khmer, Burmese are left whole between spaces; emoji and accented letters are never cut in half.

A sentence ends at `.`, `!`, `?`, `…` (and `。`, `।`, `؟` and their like) with the quotes and brackets that close it,
unless an abbreviation or what follows speaks against it; small letters never begin a sentence. The end of a line
always ends one: a line is a paragraph.

Why so: white space never falls inside a word, and how a chunk between spaces splits depends on the chunk alone.
Text repeats its chunks, so a memory of them makes pure Python fast; the pattern below runs only on new ones.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise
from typing import NamedTuple, Protocol, runtime_checkable

import regex

from elmokit.errors import InputError

__all__ = ["RuleSegmenter", "Segmenter", "Word", "sentences", "split_at_blanks", "words"]


class Word(NamedTuple):
    """A word and where it stands: `text[word.start:word.end] == word.text`."""

    text: str
    start: int
    end: int


@runtime_checkable
class Segmenter(Protocol):
    """Anything that turns text into sentences of words."""

    def __call__(self, text: str) -> list[list[Word]]:
        """The sentences of a text, each a non-empty list of its words in order."""
        ...


class RuleSegmenter:
    """The default segmenter: deterministic rules, about a million words per second.

    Arguments:
        splits_clitics: split `don't` into `do n't` and `John's` into `John 's` (Penn Treebank), or keep them.

    Example:
        >>> [[word.text for word in sentence] for sentence in RuleSegmenter()("Mr. Lee paid $3.50. Didn't you?")]
        [['Mr.', 'Lee', 'paid', '$', '3.50', '.'], ['Did', "n't", 'you', '?']]
    """

    def __init__(self, *, splits_clitics: bool = True) -> None:
        self._splits_clitics = splits_clitics
        self._chunks: dict[str, _Chunk] = {}  # when full, these become the older ones and a new memory starts
        self._older_chunks: dict[str, _Chunk] = {}

    def __call__(self, text: str) -> list[list[Word]]:
        """The sentences of a text, each a non-empty list of its words in order."""
        _check_text(text)
        found: list[list[Word]] = []
        start = 0
        for line in text.splitlines(keepends=True):
            found += self._read_line(line, start, splits=True)
            start += len(line)
        return found

    def words(self, text: str) -> list[Word]:
        """The words of one sentence: nothing ends it but the end of the text."""
        _check_text(text)
        found = self._read_line(text, 0, splits=False)
        return found[0] if found else []

    def _read_line(self, line: str, origin: int, *, splits: bool) -> list[list[Word]]:
        """The sentences of the line that starts at `origin`; the hot loop, so most chunks take the short way."""
        found: list[list[Word]] = []
        sentence: list[Word] = []
        forms = line.split()
        known, learn, follows = self._chunks.get, self._find_chunk, line.startswith
        new = tuple.__new__  # quicker than Word()
        end = -1
        for number, form in enumerate(forms):
            chunk = known(form) or learn(form)
            # Only white space lies between the last chunk and this one: one space most times, else search.
            place = end + 1 if follows(form, end + 1) else line.find(form, end + 1)
            end = place + len(form)
            start = place + origin
            ending = chunk.ending
            if ending == _WORD:
                sentence.append(new(Word, (form, start, end + origin)))
            elif ending == _NONE:
                for piece, offset, until in chunk.pieces:
                    sentence.append(new(Word, (piece, start + offset, start + until)))
            else:
                following = learn(forms[number + 1]) if number + 1 < len(forms) else None
                after = forms[number + 2 : number + 3]
                pieces = _choose_pieces(chunk, following)
                placed = [Word(piece, start + offset, start + until) for piece, offset, until in pieces]
                for begin, stop in pairwise((0, *chunk.breaks, len(placed))):
                    sentence += placed[begin:stop]
                    ends = stop < len(placed) or _ends_sentence(chunk, following, after, sentence)
                    if ends and splits:
                        found.append(sentence)
                        sentence = []
        if sentence:
            found.append(sentence)
        return found

    def _find_chunk(self, form: str) -> _Chunk:
        chunk = self._chunks.get(form)
        if chunk is not None:
            return chunk
        chunk = self._older_chunks.get(form) or _read_chunk(form, self._splits_clitics)
        if len(form) <= LONGEST_REMEMBERED:
            if len(self._chunks) >= MEMORY:
                self._chunks, self._older_chunks = {}, self._chunks
            self._chunks[form] = chunk
        return chunk

    def __getstate__(self) -> dict[str, object]:
        return {"_splits_clitics": self._splits_clitics, "_chunks": {}, "_older_chunks": {}}


def sentences(text: str) -> list[str]:
    """The sentences of a text, in order, without the white space around them.

    Example:
        >>> sentences("He met Dr. Lee at 5 p.m. It rained. “Why?” she asked.")
        ['He met Dr. Lee at 5 p.m.', 'It rained.', '“Why?” she asked.']
    """
    return [text[found[0].start : found[-1].end] for found in _get_default_segmenter()(text)]


def words(sentence: str) -> list[str]:
    """The words of one sentence.

    Example:
        >>> words("We can't; it's the U.S. (again)!")
        ['We', 'ca', "n't", ';', 'it', "'s", 'the', 'U.S.', '(', 'again', ')', '!']
    """
    return [word.text for word in _get_default_segmenter().words(sentence)]


def split_at_blanks(text: str) -> list[str]:
    r"""The words of a sentence that is split into words already, with spaces or tabs between them.

    A word may hold other white space, such as the no-break space in `10\u00a0000`, which `str.split` would split.

    Example:
        >>> split_at_blanks("Il a payé 10\u00a0000 euros .\n")
        ['Il', 'a', 'payé', '10\xa0000', 'euros', '.']
    """
    return [word for word in text.rstrip("\r\n").replace("\t", " ").split(" ") if word]


# A chunk is what stands between white space. How it can end a sentence:
_WORD, _NONE, _SURE, _HARD, _QUOTED, _DOTS, _TITLE, _SHORT, _INITIAL, _NUMBERED, _COUNTER, _CARRIES = range(12)
#   _WORD    not at all: it is one word             _TITLE     abbreviation that never does: Mr. vs.
#   _NONE    not at all: it is several words        _SHORT     abbreviation that may: U.S. p.m. Inc.
#   _SURE    . or ! or ?, and what closes it        _INITIAL   one capital and a full stop: J.
#   _HARD    a stop that is nothing else: 。 ।       _NUMBERED  abbreviation only before a number: No. p. Fig.
#   _QUOTED  ! or ? inside a closing quote          _COUNTER   a number and a full stop: 12.
#   _DOTS    ... or …                               _CARRIES   only signs: it does if the chunk before would
# What a chunk begins with, signs aside; _CLOSER is a chunk of signs that belong to what came before.
_UPPER, _LOWER, _DIGIT, _OPENER, _DASH, _CLOSER = range(6)

MEMORY = 1 << 16  # chunks; twice as many are kept, some 50 MB
LONGEST_REMEMBERED = 64

_Piece = tuple[str, int, int]  # a word and its place in the chunk


class _Chunk(NamedTuple):
    """What is remembered of a chunk."""

    pieces: tuple[_Piece, ...]
    ending: int
    beginning: int
    starter: bool  # begins with a word that often begins a sentence: The, He, In
    breaks: tuple[int, ...]  # counts of pieces after which a sentence ends inside the chunk
    loose: tuple[_Piece, ...]  # the pieces, should the full stop not belong to the abbreviation


def _choose_pieces(chunk: _Chunk, following: _Chunk | None) -> tuple[_Piece, ...]:
    """The words of a chunk, now that the next is known: `No. 5` but `No .`, `C. Dickens` but `vitamin C .` last."""
    if chunk.ending == _NUMBERED and (following is None or following.beginning != _DIGIT):
        return chunk.loose
    if chunk.ending == _INITIAL and (following is None or following.starter):
        return chunk.loose
    return chunk.pieces


def _ends_sentence(chunk: _Chunk, following: _Chunk | None, after: list[str], sentence: list[Word]) -> bool:
    """Whether a sentence ends after this chunk, which is the last of `sentence` so far."""
    if following is None:
        return True
    ending, beginning = chunk.ending, following.beginning
    if ending == _TITLE or beginning == _CLOSER or (beginning == _LOWER and ending != _HARD):
        return False
    if ending in (_SHORT, _INITIAL):
        return following.starter
    if ending == _NUMBERED:
        return beginning != _DIGIT
    if ending == _COUNTER:  # "1. First" opens a list, "in 1990. Then" ends a sentence
        return len(sentence) > 2
    if ending == _QUOTED:  # “Stop!” Mary said
        return not after or after[0].strip(",.;:!?") not in REPORTING_VERBS
    if ending == _DOTS:  # "Well... I think": a capital I says nothing
        return following.pieces[0][0] != "I"
    if ending == _CARRIES:
        return any(word.text in STOPS for word in sentence[-4:-1])
    return True


_hangul_and_digits = re.compile("[0-9A-Za-z가-힣]+").fullmatch


@cache
def _get_default_segmenter() -> RuleSegmenter:
    return RuleSegmenter()


def _check_text(text: object) -> None:
    if not isinstance(text, str):
        raise InputError(
            f"expected a text, but {type(text).__name__} came: {text!r:.60}. A list of words is already segmented; "
            "bytes need .decode()"
        )


def _read_chunk(form: str, splits_clitics: bool) -> _Chunk:
    """Everything that the rules say about one chunk."""
    beginning, starter = _classify_beginning(form)
    if _is_run(form):  # most chunks need no pattern
        word = ((form, 0, len(form)),)
        return _Chunk(word, _WORD, beginning, starter, (), word)
    if form[-1] in ',.;:!?)"”' and _is_run(form[:-1]):  # and most others neither
        tokens = [form[:-1], form[-1]]
    else:
        tokens = [match.group() for match in _compile_pattern(not ADDRESS_SIGNS.isdisjoint(form)).finditer(form)]
    joined: list[str] = []  # the tokens, with full stops given to abbreviations
    kinds: list[int] = []
    for token in tokens:
        kind = _classify_abbreviation(joined[-1]) if token == "." and joined and kinds[-1] == _NONE else _NONE
        if kind == _NONE:
            joined.append(token)
            kinds.append(_NONE)
        else:
            joined[-1] += "."
            kinds[-1] = kind
    pieces = _place_tokens(joined, splits_clitics)
    breaks = _find_inner_ends(pieces) if not HARD_STOPS.isdisjoint(form) else ()
    last = len(joined)  # what decides stands before the closing quotes and brackets
    while last and joined[last - 1] in CLOSERS:
        last -= 1
    ending = kinds[last - 1] if last else _NONE
    if last and ending == _NONE:
        ending = _classify_stop(joined[:last], joined[last:])
    if ending == _NONE:
        ending = _CARRIES if beginning == _CLOSER or breaks else _WORD if len(pieces) == 1 else _NONE
    loose = _place_tokens(tokens, splits_clitics) if ending in (_INITIAL, _NUMBERED) else pieces
    return _Chunk(pieces, ending, beginning, starter, breaks, loose)


def _is_run(form: str) -> bool:
    """Whether a form is one word at sight: letters of spaced scripts (all alphabets to Georgian), digits, Hangul."""
    if form.isascii():
        return form.isalnum()
    return (form.isalpha() and max(form) < "\u2000") or _hangul_and_digits(form) is not None


def _place_tokens(tokens: list[str], splits_clitics: bool) -> tuple[_Piece, ...]:
    """The tokens with their places in the chunk, contractions taken apart from the right: I'd've, I 'd 've."""
    spans: list[_Piece] = []
    start = 0
    for token in tokens:
        parts: list[str] = []
        splits = splits_clitics and ("'" in token or "’" in token)
        while splits and len(parts) < 3 and (clitic := _compile_clitic().search(token, max(0, len(token) - 4))):
            parts.append(clitic.group())
            token = token[: clitic.start()]
        for part in (token, *reversed(parts)):
            spans.append((part, start, start + len(part)))
            start += len(part)
    return tuple(spans)


def _classify_abbreviation(word: str) -> int:
    """The kind of the abbreviation that a word before a full stop is; `_NONE` if it is none."""
    if len(word) == 1 and word.isupper():
        return _INITIAL
    kind = _KINDS.get(word.capitalize() if word.isupper() else word)
    if kind is not None:
        return kind
    first, *parts = word.split(".")  # U.S, p.m, Ph.D, B.Sc, but not www.a.com
    dotted = bool(parts) and all(part.isalpha() and len(part) <= 2 for part in (first, *parts))
    return _SHORT if dotted else _NONE


def _classify_stop(tokens: list[str], closers: list[str]) -> int:
    """How a chunk ends whose last tokens, before `closers`, are these and no abbreviation."""
    last = tokens[-1]
    if last[0] in "!?؟‼⁇⁈⁉":
        return _QUOTED if not QUOTES.isdisjoint(closers) else _SURE
    if last[0] in HARD_STOPS:
        return _HARD
    if last[0] == "…" or last[:2] == "..":
        return _DOTS
    if last in STOPS:
        return _COUNTER if len(tokens) == 2 and tokens[0].isdecimal() else _SURE
    return _NONE


def _classify_beginning(form: str) -> tuple[int, bool]:
    """The class of a chunk's first letter or digit, and whether its first word is a usual sentence starter."""
    if "가" <= form[0] <= "힣":
        return _UPPER, False
    letter = 0 if form[0].isalnum() else next((place for place, sign in enumerate(form) if sign.isalnum()), None)
    if form[0] in ",;:)]}”»":
        return _CLOSER, False
    if letter is None:
        return (_DASH if DASHES.issuperset(form) else _OPENER if form[0] in OPENERS else _CLOSER), False
    word = form[letter : letter + LONGEST_REMEMBERED].rstrip(",;:!?)]”\"’'").replace("’", "'").partition("'")[0]
    if word[:1].isdigit() or (len(word) > 1 and ROMAN.issuperset(word)):
        return _DIGIT, False
    return (_LOWER if form[letter].islower() else _UPPER), word in STARTERS


def _find_inner_ends(pieces: tuple[_Piece, ...]) -> tuple[int, ...]:
    """Where sentences end inside a chunk: after 。 and its like, with what closes them, unless と goes on quoting."""
    ends = []
    stopped = False
    for number, (piece, _, _) in enumerate(pieces):
        if piece[0] in HARD_STOPS:
            stopped = True
        elif piece not in CLOSERS:
            quoting = number > 0 and pieces[number - 1][0] in CLOSERS and piece[0] == "と"
            if stopped and not quoting:
                ends.append(number)
            stopped = False
    return tuple(ends)


@cache
def _compile_pattern(has_addresses: bool) -> regex.Pattern[str]:
    """The words of a chunk, first fit first; repeats are possessive or bounded, so a megabyte of junk stays linear."""
    letter = r"[[\p{L}\p{M}\p{N}]--[\p{Han}\p{Hiragana}\p{Katakana}ーｰﾞﾟ]]"
    run = rf"{letter}[{letter}\u200C\u200D\u00AD]*+"
    joint = r"(?:[_.·‐‑-]|(?<!\p{Hangul})['’](?!\p{Hangul})|(?<=\p{Nd})[,:/](?=\p{Nd}))"
    address = r"(?:[^\s<>\"“”«»「」『』（）。，、()]|\([^\s()]{0,200}+\))*(?<=[^.,;:!?'’…\]])"
    addresses = (
        rf"(?:https?://|ftp://|www\.(?=[^/]*/)){address}",
        rf"(?:[\p{{L}}\p{{N}}-]{{1,63}}\.){{1,8}}[a-z]{{2,12}}/{address}",
        r"[\p{L}\p{N}._%+-]{1,64}+@(?:[\p{L}\p{N}-]{1,63}\.){1,8}\p{L}{2,24}",
        rf"(?<!{letter})(?:@|\#(?=\p{{L}}))[\p{{L}}\p{{M}}\p{{N}}_]++",  # @name, #tag
    )
    rules = (
        r"\p{Regional_Indicator}{1,2}+|(?=\p{Extended_Pictographic})\X|[0-9*\#]\uFE0F?\u20E3",  # emoji, keycaps
        r"^(?:[:;=][-'^]?[()\[\]DPp|/\\]|<3)$",  # an emoticon that stands alone
        rf"(?<!{letter})(?:C\+\+|[CF]\#)(?!{letter})",
        rf"\p{{Lu}}++(?:&\p{{Lu}}++)++(?!{letter}|&\p{{Lu}})",  # AT&T; the last part is for languages without ++
        rf"(?:\p{{Lu}}\.){{2,8}}(?:-{run})++",  # U.S.-based
        rf"(?<!{letter})['’](?:\p{{Nd}}0s|(?i:em|tis|twas|twill|twould|til))(?!{letter})",
        rf"(?<=[\p{{L}}\p{{N}}.)\]\"”])['’](?i:s|m|d|re|ve|ll)(?!{letter})",  # U.S.'s
        rf"(?<![{letter}.])\.\p{{Nd}}++",
        rf"{run}(?:{joint}{run})*+",  # words and numbers
        r"\p{Han}\p{M}*+",
        r"[\p{Hiragana}][\p{Hiragana}ー\u3099\u309A]*+",
        r"[\p{Katakana}ーｰ][\p{Katakana}ーｰﾞﾟ\u3099\u309A]*+",
        r"\.{2,}+|…++|-{2,}+|—++|_++|'{2,}+|`{2,}+|={2,}+|\*{2,}+|~{2,}+|\#{2,}+|\+{2,}+|<{2,}+|>{2,}+",
        r"\X",
    )
    return regex.compile("|".join(addresses + rules if has_addresses else rules), regex.V1)


@cache
def _compile_clitic() -> regex.Pattern[str]:
    return regex.compile(r"(?i)(?<=\p{L})n['’]t$|(?<=[\p{L}\p{N}])['’](?:s|m|d|re|ve|ll)$")


def _split_list(text: str) -> frozenset[str]:
    return frozenset(text.split())


HARD_STOPS = frozenset("。．！？｡।॥")
STOPS = frozenset([".", "!", "?", "...", "…", "؟", "۔", "።", "։", "។", *HARD_STOPS])
QUOTES = frozenset("\"'”’»›」』")
CLOSERS = QUOTES | frozenset([*")]}）】》〉", "''"])
OPENERS = frozenset("“‘„«‹([{（「『【《〈¿¡•▪●")
ADDRESS_SIGNS = frozenset("@/#")
DASHES = frozenset("-–—―")
ROMAN = frozenset("IVXLC")
REPORTING_VERBS = _split_list(
    "added answered asked began called continued cried demanded exclaimed inquired murmured muttered observed "
    "remarked repeated replied responded returned said says screamed shouted thought whispered yelled"
)
STARTERS = _split_list(
    "A After All Also Although Among An And Another Any As At Because Before Both But By Despite During Each Even "
    "For From He Her Here His How However I If In It Its Later Many More Most My No Nor Not Now On Once One Only Or "
    "Other Our She Since So Some Such Than That The Their Then There These They This Those Though Through Thus To "
    "Today Two Under Until Upon We What When Where Whether Which While Who Why With Yet You Your"
)
_ABBREVIATIONS = {
    _TITLE: "Adj Adm Brig Capt Cmdr Col Cpl Cpt Dr Dra Drs Fr Ft Gen Gov Hon Insp Lieut Lt Maj Messrs Mgr Mlle Mme "
    "Mmes Mr Mrs Ms Msgr Mt Pres Prof Pvt Rep Reps Rev Sen Sens Sgt Sra Srta Supt Vol Vols vol vols pp Nr Nos nos "
    "Figs figs approx ca cf e.g i.e eg ie viz vs v incl resp bzw al",
    _SHORT: "Ave Bros Blvd Co Corp Cos Dept Est Esq Inc Jr Ltd Plc Rd Sr St Ste Univ dept Jan Feb Mar Apr Jun Jul Aug "
    "Sep Sept Oct Nov Dec Ala Ariz Ark Calif Colo Conn Del Fla Ga Ill Ind Kan Ky La Md Mich Minn Miss Mo Mont Neb Nev "
    "Okla Ore Pa Penn Tenn Tex Va Vt Wash Wis Wyo ibid usw",
    _NUMBERED: "No no Fig fig p P c b d Art art Ch ch Chap chap Op op Sec sec Eq eq",
    _SURE: "etc",
}
_KINDS = {word: kind for kind, listed in _ABBREVIATIONS.items() for word in listed.split()}
