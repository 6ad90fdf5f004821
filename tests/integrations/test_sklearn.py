"""The scikit-learn transformer: scikit-learn's own checks, and the places where people put it."""

import copy
import pickle
import sys
from importlib import import_module

import joblib
import numpy as np
import pytest
from comparing import DATA
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import SkipTestWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import estimator_checks_generator

from elmokit import Embedder
from elmokit.errors import InputError, LayerError, MissingExtra
from elmokit.integrations.sklearn import ElmoTransformer

MODEL = str(DATA / "allennlp-two-layers")
TEXTS = ["The cat sat on the mat .", "A dog ran .", "Cats and dogs .", "", "Money in the bank .", "He paid the bill ."]
LABELS = [0, 0, 0, 0, 1, 1]


def spell(numbers):
    """A sentence per row, a word per number."""
    return [[f"{number:.6g}" for number in row] for row in np.asarray(numbers, float)]


class TransformerOfNumbers(ElmoTransformer):
    """The transformer behind a reader of numbers: scikit-learn's checks have tables of numbers only."""

    def __init__(
        self,
        source=MODEL,
        *,
        layers="average",
        pooling="mean",
        normalize=False,
        precision="float32",
        device=None,
        segmenter=None,
    ):
        super().__init__(
            source,
            layers=layers,
            pooling=pooling,
            normalize=normalize,
            precision=precision,
            device=device,
            segmenter=segmenter,
        )

    def fit(self, X, y=None):
        return super().fit(spell(X), y)

    def transform(self, X):
        return super().transform(spell(X))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        return tags


NUMBERS = "validates numbers, and there are none in text"
COLUMNS = "counts the columns of a table, and sentences have none"
CANNOT_APPLY = {
    "check_complex_data": NUMBERS,
    "check_estimators_nan_inf": NUMBERS,
    "check_estimator_sparse_array": NUMBERS,
    "check_estimator_sparse_matrix": NUMBERS,
    "check_estimator_sparse_tag": NUMBERS,
    "check_fit1d": "refuses one dimension, which is what a list of sentences has",
    "check_fit2d_predict1d": "refuses one dimension, which is what a list of sentences has",
    "check_n_features_in": COLUMNS,
    "check_n_features_in_after_fitting": COLUMNS,
    "check_estimators_empty_data_messages": "a list without sentences is no error: it has no vectors",
}


def list_checks():
    """What `parametrize_with_checks` gives, which with scikit-learn 1.7, the last for Python 3.10, warns."""
    for _, check in estimator_checks_generator(TransformerOfNumbers()):
        name = check.func.__name__
        marks = [pytest.mark.xfail(reason=CANNOT_APPLY[name], strict=True)] if name in CANNOT_APPLY else []
        yield pytest.param(check, id=name, marks=marks)


@pytest.mark.parametrize("check", list(list_checks()))
def test_scikit_learns_checks(check):
    check(TransformerOfNumbers())


def test_scikit_learn_knows_that_it_takes_text():
    with pytest.warns(SkipTestWarning, match="requires input"):
        for estimator, check in estimator_checks_generator(ElmoTransformer()):
            check(estimator)


@pytest.mark.parametrize("layers", ["average", "all", 0])
@pytest.mark.parametrize("normalize", [False, True])
def test_vectors_are_those_of_encode(layers, normalize):
    transformer = ElmoTransformer(MODEL, layers=layers, pooling="max", normalize=normalize)
    vectors = transformer.fit_transform(TEXTS)
    expected = Embedder(MODEL).encode(TEXTS, layers=layers, pooling="max", normalize=normalize)
    assert vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors, expected.reshape(len(TEXTS), -1))
    assert len(transformer.get_feature_names_out()) == vectors.shape[1]
    assert transformer.get_feature_names_out()[1] == "elmotransformer1"
    assert transformer.transform([]).shape == (0, vectors.shape[1])


@pytest.mark.parametrize(
    "column",
    [
        tuple(TEXTS),
        np.array(TEXTS),
        np.array(TEXTS, object),
        np.array(TEXTS, object)[:, None],
        [text.split() for text in TEXTS],
        iter(TEXTS),
    ],
    ids=["tuple", "array", "objects", "one column", "words", "iterator"],
)
def test_sentences_come_in_many_forms(column):
    np.testing.assert_array_equal(ElmoTransformer(MODEL).transform(column), ElmoTransformer(MODEL).transform(TEXTS))


def test_a_pipeline_is_searched_and_saved(tmp_path):
    pipeline = make_pipeline(ElmoTransformer(MODEL), LogisticRegression())
    grid = {"elmotransformer__layers": [0, "top"], "elmotransformer__pooling": ["mean", "max"]}
    search = GridSearchCV(pipeline, grid, cv=2).fit(TEXTS, LABELS)
    assert len(search.cv_results_["params"]) == 4
    assert not np.isnan(search.cv_results_["mean_test_score"]).any()
    joblib.dump(search.best_estimator_, tmp_path / "pipeline.joblib")
    assert (tmp_path / "pipeline.joblib").stat().st_size < 20_000  # no weights
    loaded = joblib.load(tmp_path / "pipeline.joblib")
    np.testing.assert_array_equal(loaded.predict_proba(TEXTS), search.predict_proba(TEXTS))


def test_a_column_of_a_table():
    table = np.array([[text, str(number)] for number, text in enumerate(TEXTS)], object)
    vectors = ColumnTransformer([("elmo", ElmoTransformer(MODEL), 0)]).fit_transform(table)
    np.testing.assert_array_equal(vectors, ElmoTransformer(MODEL).transform(TEXTS))


@pytest.mark.parametrize("how", [clone, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_a_copy_gives_the_same(how):
    transformer = ElmoTransformer(MODEL, layers="top", normalize=True).fit(TEXTS)
    other = how(transformer)
    assert other.get_params() == transformer.get_params()
    np.testing.assert_array_equal(other.transform(TEXTS), transformer.transform(TEXTS))


def test_another_source_is_opened_when_it_is_set():
    transformer = ElmoTransformer(MODEL).fit(TEXTS)
    first = transformer.transform(TEXTS)
    transformer.set_params(source=str(DATA / "allennlp-three-layers-tight-clips"))
    assert not np.array_equal(first, transformer.transform(TEXTS)[:, : first.shape[1]])


@pytest.mark.parametrize(
    ("settings", "sentences", "kind", "message"),
    [
        ({"layers": "botom"}, TEXTS, LayerError, "botom"),
        ({"pooling": "sum"}, TEXTS, InputError, "pooling='sum'"),
        ({}, "One sentence.", InputError, "put it into a list"),
        ({}, np.zeros((3, 2)), InputError, r"table of shape \(3, 2\): choose a column"),
        ({}, np.zeros(3), InputError, r"found numbers \(float64\)"),
    ],
)
def test_bad_input_is_named(settings, sentences, kind, message):
    with pytest.raises(kind, match=message):
        ElmoTransformer(MODEL, **settings).fit(sentences)


def test_without_scikit_learn_the_command_is_named(monkeypatch):
    name = "elmokit.integrations.sklearn"
    monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    with pytest.raises(MissingExtra, match=r"pip install 'elmokit\[sklearn\]'"):
        import_module(name)
