"""Engines for the loss of an output layer; the reference is `nn/softmax.py`."""

__all__: list[str] = []
