"""Gradients become steps: Muon, AdamW and Adagrad behind one interface."""

__all__: list[str] = []
