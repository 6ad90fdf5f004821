"""Pairs that people have rated: words alone, words in their sentences, whole sentences.

Nothing is learned here: the cosine of two vectors stands beside the rating, and the correlation over all pairs is the
score.
"""

__all__ = []
