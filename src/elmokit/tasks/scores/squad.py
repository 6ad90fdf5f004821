"""Scores of span question answering: exact match and F1 by SQuAD's own rules (Rajpurkar et al. 2016).

Answers as text arrive; scores from 0 to 1 leave. Before they are compared, answers are put in small letters and lose
their ASCII punctuation, the English articles and superfluous white space; F1 is over the words that are left, counted
as often as they come. A question with several reference answers counts with the best of them.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

from elmokit.errors import InputError

__all__ = ["answer_f1", "exact_match", "normalise_answer", "squad_scores"]

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def squad_scores(predicted: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """Means over all questions, from 0 to 1: `exact_match` and `f1`.

    Arguments:
        predicted: one answer per question; an empty one where there is none.
        references: for each question all its correct answers.

    Example:
        >>> squad_scores(["the Eiffel Tower", "in 1889"], [["Eiffel Tower!"], ["1889", "March 1889"]])
        {'exact_match': 0.5, 'f1': 0.8333333333333333}
    """
    if len(predicted) != len(references):
        raise InputError(f"{len(predicted)} answers came for {len(references)} questions: give one per question")
    if not references:
        raise InputError("there are no questions to score: give at least one")
    for number, correct in enumerate(references):
        if not correct:
            raise InputError(f"question {number} (from 0) has no reference answer, so it cannot be scored")
    pairs = list(zip(predicted, references, strict=True))
    matches = sum(max(exact_match(answer, reference) for reference in correct) for answer, correct in pairs)
    f1 = sum(max(answer_f1(answer, reference) for reference in correct) for answer, correct in pairs)
    return {"exact_match": matches / len(pairs), "f1": f1 / len(pairs)}


def exact_match(answer: str, reference: str) -> bool:
    """Whether two answers are the same once normalised."""
    return normalise_answer(answer) == normalise_answer(reference)


def answer_f1(answer: str, reference: str) -> float:
    """F1 of the words of an answer against those of a reference, between 0 and 1; 0 if either has none."""
    words, correct = normalise_answer(answer).split(), normalise_answer(reference).split()
    common = sum((Counter(words) & Counter(correct)).values())
    return 2 * common / (len(words) + len(correct)) if common else 0.0


def normalise_answer(answer: str) -> str:
    """An answer as it is compared.

    Example:
        >>> normalise_answer("The  U.S.-led  coalition (an alliance)")
        'usled coalition alliance'
    """
    bare = answer.lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", bare).split())
