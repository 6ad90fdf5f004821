"""What `/openapi.json` says of one server: beyond the shapes of requests, the names it knows and its bounds.

Only a description. Who checks a request is `Shelf` and the library, whose messages say more than a schema can.
"""

from __future__ import annotations

from typing import Any

from elmokit.embed.layers import NAMED_LAYERS
from elmokit.serve.models import Shelf

__all__ = ["describe_server"]


def describe_server(description: dict[str, Any], shelf: Shelf) -> dict[str, Any]:
    """The description of all routes, with what this server takes in each field of a request."""
    embedders = [model.embedder for model in shelf.models.values()]
    taken: dict[tuple[str, str], dict[str, Any]] = {
        ("model", "string"): {"enum": list(shelf.models)},
        ("task", "string"): {"enum": list(shelf.tasks)},
        ("layers", "string"): {"enum": [name for name in NAMED_LAYERS if name != "all"]},
        ("layers", "integer"): {"minimum": 0, "maximum": max(each.num_layers for each in embedders) - 1},
        ("dimensions", "integer"): {"enum": sorted({each.dim for each in embedders})},
    } | {(name, "array"): {"minItems": 1, "maxItems": shelf.limits.texts} for name in ("input", "inputs", "texts")}
    for schema in description["components"]["schemas"].values():
        for name, field in schema["properties"].items():
            for choice in field.get("anyOf", ()):
                choice.update(taken.get((name, choice["type"]), {}))
    return description
