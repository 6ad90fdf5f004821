"""What a run continues with: the text and the settings that it began with, also where the text is gone since."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from elmokit.errors import ConfigError, InputError
from elmokit.pretrain.corpus.encoding import encode_corpus
from elmokit.pretrain.train import train

STOPPED = {"tokenised": True, "workers": 1, "minutes": 0}


@pytest.fixture
def copied(texts, tmp_path):
    """The text and the held-out text, as files that may go."""
    return [Path(shutil.copy(text, tmp_path)) for text in texts]


@pytest.mark.parametrize("is_pattern", [False, True])
def test_text_that_was_encoded_may_be_gone(copied, tiny, tmp_path, is_pattern):
    text, held_out = copied
    named = tmp_path / "te*.txt" if is_pattern else text
    assert train([named], tmp_path / "model", tiny(), held_out=[held_out], **STOPPED) is None
    text.unlink()
    held_out.unlink()
    again = {"tokenised": True, "workers": 1}
    with pytest.raises(InputError, match=r"other\.txt does not exist"):
        train([tmp_path / "other.txt"], tmp_path / "model", tiny(), held_out=[held_out], **again)
    assert train([named], tmp_path / "model", tiny(), held_out=[held_out], **again) == tmp_path / "model"
    assert train([named], tmp_path / "model", tiny(), held_out=[held_out], **again)  # finished, and says so


def test_fewer_files_are_another_text_though_some_are_gone(copied, tiny, tmp_path):
    train(copied, tmp_path / "model", tiny(), **STOPPED)
    copied[0].unlink()
    with pytest.raises(ConfigError, match=r"was made from text\.txt .*, held-out\.txt .*, but now text\.txt .* came"):
        train(copied[:1], tmp_path / "model", tiny(), **STOPPED)
    assert train(copied, tmp_path / "model", tiny(), **STOPPED) is None


def test_held_out_text_keeps_no_vocabulary_of_another_corpus(texts, tiny, tmp_path, monkeypatch):
    (tmp_path / "other.txt").write_text("one two three four\n" * 50)
    for name, text in (("own", texts[0]), ("other", tmp_path / "other.txt")):
        encode_corpus([text], tmp_path / name, tokenised=True, workers=1, progress=False)

    def killed(*arguments):
        raise KeyboardInterrupt

    options = {"held_out": [texts[1]], "held_out_tokenised": True, "workers": 1, "minutes": 0}
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("elmokit.pretrain.train._run", killed)  # before the first checkpoint
        train([tmp_path / "other"], tmp_path / "model", tiny(), **options)
    with pytest.raises(ConfigError, match=r"held-out was encoded with the vocabulary of another text than .*own: "):
        train([tmp_path / "own"], tmp_path / "model", tiny(), **options)
    shutil.rmtree(tmp_path / "model.training" / "held-out")  # as the message advises
    assert train([tmp_path / "own"], tmp_path / "model", tiny(), **options) is None


def test_a_run_of_adagrad_that_an_older_version_let_decay_goes_on(texts, tiny, tmp_path):
    config = tiny(optimiser="adagrad", learning_rate=0.2)
    train([texts[0]], tmp_path / "model", config, **STOPPED)
    path = tmp_path / "model.training" / "training.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "weight_decay": 0.1}))
    assert train([texts[0]], tmp_path / "model", config, tokenised=True, workers=1) == tmp_path / "model"
