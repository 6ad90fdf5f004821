"""What requests look like, and refusals.

Unknown fields of a route that another server has too are ignored, as there; those of our own routes are refused:
whoever sends one has misspelt it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr

from elmokit.serve.errors import ErrorType

__all__ = [
    "CompareRequest",
    "EmbedAllRequest",
    "EmbedRequest",
    "EmbeddingsRequest",
    "ErrorAnswer",
    "InsideRequest",
    "LayersRequest",
    "PredictRequest",
    "SubstitutesRequest",
    "TagRequest",
    "TokenizeRequest",
]


def _check_unicode(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("half of a surrogate pair is no character") from None
    return text


Text = Annotated[StrictStr, AfterValidator(_check_unicode)]
Texts = Text | list[Text]
Layers = Annotated[StrictStr | StrictInt, Field(description='"average", "top", "mix" or the number of a layer')]
Top = Annotated[StrictInt, Field(ge=1, le=100, description="how many words")]


class Body(BaseModel):
    """How every request is read."""

    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True)


class Request(Body):
    """What a request for one of the models has."""

    model: StrictStr | None = Field(None, description="one of the server's models; the first if not given")


class OwnRequest(Request):
    """A request that no other server knows."""

    model_config = ConfigDict(extra="forbid")


class EmbeddingsRequest(Request):
    """OpenAI's request for embeddings."""

    input: Texts
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: StrictInt | None = None
    user: StrictStr | None = None


class EmbedRequest(Request):
    """text-embeddings-inference's request for one vector per text."""

    inputs: Texts
    normalize: StrictBool = True
    truncate: StrictBool = Field(False, description="cut texts that have too many words instead of refusing them")
    layers: Layers = "average"
    pooling: Literal["mean", "max", "first_last"] = "mean"


class EmbedAllRequest(Request):
    """text-embeddings-inference's request for the vectors of all tokens, which are words here."""

    inputs: Texts
    truncate: StrictBool = False
    layers: Layers = "average"


class TokenizeRequest(Request):
    """Which words a text has."""

    inputs: Texts
    add_special_tokens: StrictBool = True


class LayersRequest(OwnRequest):
    """Words, their places and all layers of each."""

    texts: Texts
    vectors: Literal["list", "base64"] = Field("base64", description="how layers are written in JSON")


class CompareRequest(OwnRequest):
    """A word in several sentences."""

    word: Text = Field(min_length=1, max_length=200, description='"New York" is a sequence, "bank|banks" either')
    texts: Texts


class PredictRequest(OwnRequest):
    """A text to continue at its end and at its beginning; each of its words gets its probability."""

    text: Text
    top: Top = 10


class SubstitutesRequest(OwnRequest):
    """A word of a sentence to replace."""

    text: Text
    word: Text = Field(min_length=1, description="one of its words")
    occurrence: StrictInt = Field(1, ge=1, le=10_000)
    top: Top = 10


class TagRequest(Body):
    """Texts for a task model of the server."""

    model_config = ConfigDict(extra="forbid")

    texts: Texts
    task: StrictStr | None = Field(None, description="one of the server's task models; the first if not given")


class InsideRequest(OwnRequest):
    """A word whose way through the model is to be shown."""

    word: Text = Field(min_length=1, max_length=100)


class ErrorAnswer(BaseModel):
    """Why a request was not answered."""

    error: str
    error_type: ErrorType
