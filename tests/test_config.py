"""Configs that cannot be wrong: presets, JSON, refusals."""

import json
import math

import pytest

from elmokit.config import CharConfig, ElmoConfig, LstmConfig, WordConfig
from elmokit.errors import ConfigError


@pytest.mark.parametrize("preset", ["tiny", "small", "medium", "original"])
def test_presets_survive_json(preset):
    config = getattr(ElmoConfig, preset)()
    assert ElmoConfig.from_dict(json.loads(config.to_json())) == config


def test_word_models_survive_json():
    config = ElmoConfig(None, WordConfig(7, 16), LstmConfig(cell_dim=32, projection_dim=16), projects_words=False)
    assert ElmoConfig.from_dict(config.to_dict()) == config
    assert config.num_word_features == 16 and config.dim == 32 and config.num_layers == 3


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: CharConfig(scheme="letters"), "characters.scheme is 'letters'"),
        (lambda: CharConfig(activation="gelu"), "characters.activation is 'gelu'"),
        (lambda: CharConfig(max_length=2), "characters.max_length is 2"),
        (lambda: CharConfig(num_symbols=262), "261 symbols, not characters.num_symbols=262"),
        (lambda: CharConfig(filters=()), "characters.filters is empty"),
        (lambda: CharConfig(filters=((51, 4),)), r"\(51, 4\): a width is 1 to max_length=50"),
        (lambda: CharConfig(num_highways=-1), "num_highways is -1"),
        (lambda: CharConfig(dim=0), "characters.dim is 0"),
        (lambda: WordConfig(0, 3), "words.num_words is 0"),
        (lambda: LstmConfig(cell_dim=True), "lstm.cell_dim is True"),
        (lambda: LstmConfig(cell_clip=0), "lstm.cell_clip is 0.*null for none"),
        (lambda: ElmoConfig(characters=None), "neither was given"),
        (lambda: ElmoConfig(projects_words=False), "2048 wide and lstm.projection_dim is 512"),
        (lambda: ElmoConfig.from_dict({"lstm": {"wings": 2}}), r"lstm has the unknown fields \['wings'\]"),
        (lambda: ElmoConfig.from_dict({"beak": 1}), r"config has the unknown fields \['beak'\]"),
        (lambda: ElmoConfig.from_dict({"words": {"dim": 3}}), "expected words.num_words, found only dim"),
        (
            lambda: ElmoConfig.from_dict({"characters": {"filters": [[1, 2, 3]]}}),
            r"characters.filters\[0\] is \[1, 2, 3\]",
        ),
        (lambda: ElmoConfig.from_dict([1]), "should be an object"),
        (lambda: CharConfig(max_length=10**7), "characters.max_length is 10000000: expected .* at most 1,024"),
        (lambda: CharConfig(max_length=50.5), "characters.max_length is 50.5: expected a whole number"),
        (lambda: CharConfig(num_highways=1.0), "characters.num_highways is 1.0: expected a whole number"),
        (lambda: CharConfig(filters=((math.inf, 4),)), r"characters.filters\[0\]\[0\] is inf: expected a whole"),
        (lambda: CharConfig(filters=((1, 4),) * 200), "characters.filters has 200 entries: expected at most 128"),
        (lambda: CharConfig(filters="ab"), "characters.filters is 'ab': expected a list"),
        (lambda: LstmConfig(num_layers=10**9), "lstm.num_layers is 1000000000: expected .* at most 128"),
        (lambda: LstmConfig(cell_dim=10**400), "lstm.cell_dim is a number of 1,329 bits"),
        (lambda: LstmConfig(cell_clip=math.nan), "lstm.cell_clip is nan: expected a finite number"),
        (lambda: LstmConfig(residual="false"), "lstm.residual is 'false': expected true or false"),
        (lambda: LstmConfig(residual=1), "lstm.residual is 1: expected true or false"),
        (lambda: ElmoConfig(lstm={"cell_dim": "4"}), "lstm.cell_dim is '4': expected a whole number"),
        (lambda: ElmoConfig.from_dict({"characters": {"dim": [1]}}), r"characters.dim is \[1\]: expected a whole"),
    ],
)
def test_nonsense_is_refused_with_its_name(build, message):
    with pytest.raises(ConfigError, match=message):
        build()
