"""Engines that run the recurrence of one layer in both directions; the reference is `nn/lstmp.py`."""

__all__: list[str] = []
