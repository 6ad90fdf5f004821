"""A model so small that a test costs milliseconds."""

import pytest

from elmokit.config import CharConfig, ElmoConfig, LstmConfig
from elmokit.model import Elmo


@pytest.fixture(scope="session")
def config() -> ElmoConfig:
    characters = CharConfig(dim=4, filters=((1, 4), (2, 6), (3, 6)), num_highways=1)
    return ElmoConfig(characters, lstm=LstmConfig(cell_dim=12, projection_dim=6))


@pytest.fixture(scope="session")
def elmo(config: ElmoConfig) -> Elmo:
    return Elmo.random(config, seed=3).eval()
