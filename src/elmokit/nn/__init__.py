"""The network as plain `nn.Module`s: no text, no files, no frameworks.

Readable alone, in this order:
`word_encoder.py` (a word's characters become a vector), `lstmp.py` (one LSTM layer), `bilm.py` (two stacks that
read a sentence), `scalar_mix.py` (layers become one vector), `engines/` (how the recurrence is run).
"""

__all__: list[str] = []
