"""A server over a tiny random model, without a network."""

from __future__ import annotations

import pytest
import torch
from fastapi.testclient import TestClient

from elmokit import Elmo, ElmoConfig, Embedder, LanguageModel
from elmokit.nn.output_layer import OutputLayer
from elmokit.serve.app import build_app
from elmokit.serve.batching import Batcher
from elmokit.serve.metrics import Metrics
from elmokit.serve.models import ServedModel, Shelf
from elmokit.serve.settings import Limits

WORDS = ["<S>", "</S>", "<UNK>", "the", "bank", "river", "money", ".", "a"]


def make_shelf(limits: Limits, *, tasks=None, names=("tiny",)) -> Shelf:
    models = {}
    for seed, name in enumerate(names):
        torch.manual_seed(seed)
        elmo = Elmo.random(ElmoConfig.tiny())
        embedder = Embedder(elmo)
        language_model = LanguageModel(elmo, OutputLayer(len(WORDS), 64), WORDS)
        models[name] = ServedModel(name, embedder, language_model, Batcher(embedder, limits), limits)
    return Shelf(models, tasks or {}, limits)


@pytest.fixture
def serve():
    """A client of a server with these bounds; its model is `client.shelf.find_model(None)`."""
    opened = []

    def open_client(*, token=None, hosts=None, names=("tiny",), tasks=None, **bounds):
        shelf = make_shelf(Limits(**bounds), names=names, tasks=tasks)
        client = TestClient(build_app(shelf, Metrics(), token=token, hosts=hosts), raise_server_exceptions=False)
        client.__enter__()
        opened.append(client)
        client.shelf = shelf
        return client

    yield open_client
    for client in opened:
        client.__exit__(None, None, None)
