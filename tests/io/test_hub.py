"""Models go to the hub and come back; the hub is a folder here."""

import shutil
import socket
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
import torch

from elmokit import Elmo, ElmoConfig, io, word_ids
from elmokit.errors import InputError, OutputError


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*given):
        raise AssertionError(f"reached for the network: {given}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub in a folder: what was asked of it, and its repositories."""
    asked, repositories = [], tmp_path / "hub"

    class Api:
        def __init__(self, token=None):
            asked.append({"token": token})

        def create_repo(self, repo_id, *, private, exist_ok):
            assert exist_ok
            asked[-1] |= {"private": private}
            (repositories / repo_id).mkdir(parents=True, exist_ok=True)

        def upload_folder(self, *, repo_id, folder_path, commit_message):
            asked[-1] |= {"message": commit_message}
            shutil.copytree(folder_path, repositories / repo_id, dirs_exist_ok=True)
            return SimpleNamespace(commit_url=f"https://hub/{repo_id}/commit/1")

    def snapshot_download(repo_id, *, allow_patterns, ignore_patterns):
        return str(repositories / repo_id)

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    return SimpleNamespace(asked=asked, repositories=repositories)


def test_a_model_goes_to_the_hub_and_comes_back(hub):
    elmo = Elmo.random(ElmoConfig.tiny()).eval()
    with torch.no_grad():
        elmo.mixes[0].weights.copy_(torch.tensor([1.0, 2.0, 3.0]))
    facts = {"name": "Mine", "license": "apache-2.0", "language": "en", "corpus": "three books"}
    address = elmo.push_to_hub("someone/mine", metadata=facts, mix=0, private=True, token="secret")
    assert address == "https://hub/someone/mine/commit/1"
    assert hub.asked == [{"token": "secret", "private": True, "message": "Upload an ELMo model with elmokit"}]
    loaded = Elmo.from_pretrained("someone/mine").eval()
    assert loaded.stored_mix.weights.tolist() == [1, 2, 3]
    ids = word_ids([["the", "bank"]])
    with torch.no_grad():
        assert torch.equal(loaded(ids).layers, elmo(ids).layers)


def test_the_card_says_what_is_known_and_how_to_load_it(hub):
    facts = {"name": "Mine", "license": "apache-2.0", "language": "en", "corpus": "three books"}
    Elmo.random(ElmoConfig.tiny()).push_to_hub("someone/mine", metadata=facts)
    card = huggingface_hub.ModelCard.load(hub.repositories / "someone" / "mine" / "README.md")
    assert (card.data.license, card.data.language, card.data.library_name) == ("apache-2.0", "en", "elmokit")
    assert card.data.pipeline_tag == "feature-extraction" and "elmo" in card.data.tags
    assert "# Mine" in card.text and "| corpus | three books |" in card.text
    assert 'Embedder.from_pretrained("someone/mine")' in card.text


def test_a_checkpoint_is_uploaded_with_its_output_layer(hub):
    source = Path(__file__).parents[1] / "data" / "native-v2"
    checkpoint = io.load(source, softmax=True)
    io.push(checkpoint, "someone/words", dtype="int8")
    found = {path.name for path in (hub.repositories / "someone" / "words").iterdir()}
    assert found == {path.name for path in source.iterdir()}
    loaded = io.load("someone/words", softmax=True)
    assert (loaded.output_words, loaded.vocabulary) == (checkpoint.output_words, checkpoint.vocabulary)


def test_what_the_hub_refuses_is_told(hub, monkeypatch):
    elmo = Elmo.random(ElmoConfig.tiny())
    for name in ("mine", "a/b/c", "../mine", "someone/mine.zip/"):
        with pytest.raises(InputError, match="expected a hub id, owner/name"):
            elmo.push_to_hub(name)
    with pytest.raises(InputError, match="expected dtype"):
        elmo.push_to_hub("someone/mine", dtype="float8")
    assert not hub.asked

    def refuse(*given, **options):
        raise RuntimeError("401 Unauthorized")

    monkeypatch.setattr(huggingface_hub.HfApi, "create_repo", refuse)
    with pytest.raises(
        OutputError, match=r"did not take the model \(RuntimeError: 401 Unauthorized\); `hf auth login`"
    ):
        elmo.push_to_hub("someone/mine")


def test_damaged_models_stay_here(hub):
    elmo = Elmo.random(ElmoConfig.tiny())
    with torch.no_grad():
        elmo.encoder.projection.weight[0, 0] = float("nan")
    with pytest.raises(OutputError, match="cannot be written"):
        elmo.push_to_hub("someone/mine")
    assert not hub.asked
