"""What a server answers is what the library computes."""

from __future__ import annotations

import base64
import io

import numpy as np
import pyarrow as pa
import pytest

from elmokit import ElmoConfig
from elmokit.serve.models import ServedTask

TEXTS = ["The bank lent the money .", "A river bank", ""]


def decode(text):
    return np.frombuffer(base64.b64decode(text), "<f4")


@pytest.fixture
def client(serve):
    return serve(names=("tiny", "other"))


def embedder_of(client, name=None):
    return client.shelf.find_model(name).embedder


@pytest.mark.parametrize("layers", ["average", "top", 0, 1])
@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_embed_is_encode(client, layers, pooling):
    asked = {"inputs": TEXTS, "layers": layers, "pooling": pooling}
    expected = embedder_of(client).encode(TEXTS, layers=layers, pooling=pooling, normalize=True)
    np.testing.assert_allclose(client.post("/embed", json=asked).json(), expected, atol=1e-6)
    raw = client.post("/embed", json=asked | {"normalize": False}, headers={"accept": "application/x-npy"})
    array = np.load(io.BytesIO(raw.content), allow_pickle=False)
    np.testing.assert_allclose(array, embedder_of(client).encode(TEXTS, layers=layers, pooling=pooling), atol=1e-6)


def test_a_single_text_is_a_list_of_one(client):
    answer = client.post("/embed", json={"inputs": TEXTS[0]}).json()
    assert np.shape(answer) == (1, embedder_of(client).dim)


def test_embed_all_is_embed(client):
    expected = embedder_of(client).embed(TEXTS, layers=1)
    answer = client.post("/embed_all", json={"inputs": TEXTS, "layers": 1}).json()
    assert [len(each) for each in answer] == [6, 3, 0]
    for each, vectors in zip(answer[:2], expected[:2], strict=True):
        np.testing.assert_allclose(each, vectors, atol=1e-6)
    arrow = client.post(
        "/embed_all",
        json={"inputs": TEXTS, "layers": 1},
        headers={"accept": "application/vnd.apache.arrow.stream"},
    )
    table = pa.ipc.open_stream(arrow.content).read_all()
    assert table["words"].to_pylist() == [["The", "bank", "lent", "the", "money", "."], ["A", "river", "bank"], []]
    np.testing.assert_allclose(table["vectors"][1].as_py(), expected[1], atol=1e-6)


def test_openai_embeddings_are_the_mean_over_words_at_length_1(client):
    asked = {"input": TEXTS[:2], "model": "other"}
    expected = embedder_of(client, "other").encode(TEXTS[:2], normalize=True)
    plain = client.post("/v1/embeddings", json=asked).json()
    coded = client.post("/v1/embeddings", json=asked | {"encoding_format": "base64"}).json()
    assert plain["usage"] == {"prompt_tokens": 9, "total_tokens": 9} and plain["model"] == "other"
    for index in range(2):
        np.testing.assert_allclose(plain["data"][index]["embedding"], expected[index], atol=1e-6)
        np.testing.assert_array_equal(decode(coded["data"][index]["embedding"]), expected[index])
    assert [model["id"] for model in client.get("/v1/models").json()["data"]] == ["tiny", "other"]
    assert client.post("/v1/embeddings", json=asked | {"dimensions": 5}).status_code == 422


def test_words_and_their_places(client):
    text = "It's 😀 late."
    (found,) = client.post("/tokenize", json={"inputs": text}).json()
    assert [each["text"] for each in found] == ["It", "'s", "😀", "late", "."]
    assert all(text[each["start"] : each["stop"]] == each["text"] for each in found)


def test_layers_are_those_of_read(client):
    text = "The bank lent money. A river bank!"
    document = embedder_of(client).read(text, layers="all")
    answer = client.post("/layers", json={"texts": [text, ""]}).json()
    first, empty = answer["texts"]
    assert first["words"] == document.words and first["sentences"] == [list(each) for each in document.sentences]
    assert first["spans"] == [list(each) for each in document.spans]
    np.testing.assert_allclose(
        decode(first["layers"]).reshape(answer["shape"][0], -1, answer["shape"][1]), document.vectors, atol=1e-6
    )
    assert empty["words"] == [] and empty["layers"] == ""
    listed = client.post("/layers", json={"texts": text, "vectors": "list"}).json()["texts"][0]["layers"]
    np.testing.assert_allclose(listed, document.vectors, atol=1e-6)
    arrow = client.post("/layers", json={"texts": text}, headers={"accept": "application/vnd.apache.arrow.stream"})
    table = pa.ipc.open_stream(arrow.content).read_all()
    np.testing.assert_allclose(table["layer_2"][0].as_py(), document.vectors[2], atol=1e-6)


def test_a_word_is_compared_across_sentences(client):
    texts = ["The bank lent money. A river bank, the bank!", "None here."]
    answer = client.post("/compare", json={"word": "BANK", "texts": texts}).json()
    assert [use["label"] for use in answer["uses"]] == ["1", "2.1", "2.2"]
    assert [each["words"][1] for each in answer["sentences"]] == ["bank", "river"]
    vectors = decode(answer["vectors"]).reshape(answer["shape"])
    first = embedder_of(client).embed(["The bank lent money."], layers="all")[0][:, 1]
    np.testing.assert_allclose(vectors[0], first, atol=1e-6)
    np.testing.assert_allclose(answer["layers"][0], np.ones((3, 3)), atol=1e-5)  # layer 0 sees the word alone
    above = np.array(answer["layers"][2])
    np.testing.assert_allclose(above, above.T, atol=1e-6)
    assert above[0, 1] < 0.9999
    missing = client.post("/compare", json={"word": "sea", "texts": texts})
    assert missing.status_code == 422 and missing.json()["error_type"] == "Empty"


def test_predictions_are_those_of_the_language_model(client):
    model = client.shelf.find_model(None).language_model
    answer = client.post("/predict", json={"text": "the river", "top": 3}).json()
    assert [(each["word"], each["probability"]) for each in answer["next"]] == model.predict(["the", "river"], top=3)
    backward = model.predict(["the", "river"], top=3, direction="backward")
    assert [(each["word"], each["probability"]) for each in answer["previous"]] == backward
    assert [each["forward"] for each in answer["words"]] == [
        each.forward for each in model.score(["the", "river"]).words
    ]
    asked = {"text": "the river bank .", "word": "bank", "top": 2}
    found = client.post("/substitutes", json=asked).json()["substitutes"]
    assert [(each["word"], each["probability"]) for each in found] == model.substitutes(
        ["the", "river", "bank", "."], "bank", top=2
    )
    assert client.post("/substitutes", json=asked | {"word": "sea"}).status_code == 422


def test_a_look_inside_shows_the_symbols_and_the_windows(client):
    answer = client.post("/inside", json={"word": "né"}).json()
    assert [each["hex"] for each in answer["symbols"]] == ["", "6e", "c3", "a9", ""]
    for each in answer["filters"]:
        values = [one["value"] for one in each["strongest"]]
        assert values == sorted(values, reverse=True)
        assert all(0 <= one["begin"] <= answer["columns"] - each["width"] for one in each["strongest"])
    assert sum(each["channels"] for each in answer["filters"]) == answer["widths"]["features"]
    assert answer["widths"]["vector"] == embedder_of(client).dim


class Shouter:
    """Stands for a task model: what it needs of one, and an answer that can be told."""

    texts = ("sentence",)

    def example_of(self, text, *, segmenter):
        return [word.text for sentence in segmenter(text) for word in sentence]

    def predict_all(self, examples):
        return [[word.upper() for word in example] for example in examples]

    def show(self, example, prediction):
        return " ".join(prediction)


def test_a_task_model_answers_each_text(serve):
    client = serve()
    batcher = client.shelf.find_model(None).batcher
    client.shelf.tasks["names"] = ServedTask("names", "Tag", Shouter(), batcher)
    answer = client.post("/tag", json={"texts": ["Ann left .", "Oslo"]}).json()
    assert [each["shown"] for each in answer["answers"]] == ["ANN LEFT .", "OSLO"]
    assert client.post("/tag", json={"texts": "x", "task": "none"}).status_code == 422


def test_the_server_tells_what_it_is_and_what_it_did(client):
    client.post("/embed", json={"inputs": "the bank"})
    info = client.get("/info").json()
    assert [each["name"] for each in info["models"]] == ["tiny", "other"]
    assert info["models"][0]["dim"] == embedder_of(client).dim
    assert client.get("/health").json() == {"status": "ok"}
    assert 'elmokit_requests_total{route="/embed",status="200"} 1.0' in client.get("/metrics").text
    assert "/embed_all" in client.get("/openapi.json").json()["paths"]


def test_the_description_names_what_this_server_takes(serve):
    plain = serve(names=("tiny", "other"), texts=7).get("/openapi.json").json()
    fields = plain["components"]["schemas"]["EmbedRequest"]["properties"]
    assert fields["model"]["anyOf"][0] == {"type": "string", "enum": ["tiny", "other"]}
    names, numbers = fields["layers"]["anyOf"]
    assert names["enum"] == ["average", "top", "mix"] and (numbers["minimum"], numbers["maximum"]) == (0, 2)
    texts = fields["inputs"]["anyOf"][1]
    assert (texts["minItems"], texts["maxItems"]) == (1, 7)
    dimensions = plain["components"]["schemas"]["EmbeddingsRequest"]["properties"]["dimensions"]
    assert dimensions["anyOf"][0]["enum"] == [ElmoConfig.tiny().dim]
    assert "/tag" not in plain["paths"]  # nothing would be answered there
    tagging = serve(tasks={"names": ServedTask("names", "Tag", Shouter(), None)}).get("/openapi.json").json()
    task = tagging["components"]["schemas"]["TagRequest"]["properties"]["task"]
    assert task["anyOf"][0]["enum"] == ["names"] and "/tag" in tagging["paths"]


def test_the_explorer_needs_no_token_and_is_asked_for_anew(serve):
    client = serve(token="a-token-of-many-letters")
    for path in ["/", "/static/app.js", "/static/views/compare.js", "/static/style.css"]:
        answer = client.get(path)
        assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-cache")
        assert "script-src 'self'" in answer.headers["content-security-policy"]
    again = client.get("/static/app.js", headers={"if-none-match": client.get("/static/app.js").headers["etag"]})
    assert again.status_code == 304
    assert client.get("/static/none.js").status_code == 401
    assert client.get("/info").status_code == 401
