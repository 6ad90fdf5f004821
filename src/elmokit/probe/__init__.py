"""What do the layers know? Frozen vectors in, simple classifiers on top, tables and figures out.

A probe learns as little as possible – a linear layer, a threshold, the mean vector of a sense – so that what it can
do says something about the vectors, not about itself. Every probe compares the same rows: each layer, their average,
and, where given, word vectors without context as a floor and a transformer as what one would pick today.
"""

__all__ = []
