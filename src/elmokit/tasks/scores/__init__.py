"""Scores by the field's own rules: pure functions over gold and predicted labels, no torch."""

__all__: list[str] = []
