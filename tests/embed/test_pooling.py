import numpy as np
import pytest

from elmokit.embed.pooling import checked_pooling, pooled
from elmokit.errors import InputError

WORDS_WD = np.array([[1, 2, 3, 4], [5, 0, 7, 0]], np.float32)


@pytest.mark.parametrize(
    ("pooling", "expected"), [("mean", [3, 1, 5, 2]), ("max", [5, 2, 7, 4]), ("first_last", [5, 0, 3, 4])]
)
def test_pooling_over_words(pooling, expected):
    assert pooled(WORDS_WD, pooling).tolist() == expected
    assert pooled(np.stack([WORDS_WD, -WORDS_WD]), pooling).shape == (2, 4)


@pytest.mark.parametrize("pooling", ["mean", "max", "first_last"])
def test_a_sentence_without_words_pools_to_zeros(pooling):
    assert pooled(np.zeros((0, 4), np.float32), pooling).tolist() == [0, 0, 0, 0]
    assert pooled(np.zeros((3, 0, 4), np.float32), pooling).shape == (3, 4)


def test_an_unknown_pooling_is_refused():
    with pytest.raises(InputError, match="'mean', 'max', 'first_last'"):
        checked_pooling("median")
