"""Raw text becomes an encoded corpus: a folder that is written once and memory-mapped ever after."""

__all__: list[str] = []
