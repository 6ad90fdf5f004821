"""From words to what the biLM reads: which sentences run together, and the vectors of their words."""

__all__: list[str] = []
