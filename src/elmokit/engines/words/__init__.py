"""Engines that encode words; the reference is `nn/word_encoder.py`."""

__all__: list[str] = []
