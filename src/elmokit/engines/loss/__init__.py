"""Engines for the loss of an output layer; the reference is `nn/output_layer.py`."""

__all__: list[str] = []
