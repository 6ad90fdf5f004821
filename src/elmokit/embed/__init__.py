"""Text in, numpy out: the Embedder for lists and streams, `embed_files` for whole files.

Nothing is imported until it is asked for, so that the pieces without torch stay cheap.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elmokit.embed.documents import Document
    from elmokit.embed.embedder import Embedder
    from elmokit.embed.files import EmbedReport, embed_files
    from elmokit.embed.mapping import EmbedBatches
    from elmokit.embed.progress import Progress

__all__ = ["Document", "EmbedBatches", "EmbedReport", "Embedder", "Progress", "embed_files"]

_HOMES = {
    "Document": "documents",
    "Embedder": "embedder",
    "EmbedBatches": "mapping",
    "EmbedReport": "files",
    "embed_files": "files",
    "Progress": "progress",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
