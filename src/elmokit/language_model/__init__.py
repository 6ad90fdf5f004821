"""The biLM with its output layer: perplexity, scores, predictions, substitutes."""

__all__: list[str] = []
