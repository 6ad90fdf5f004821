"""`elmo bench`: elmokit beside its peers on this machine, against what the machine allows.

plan.py       what is measured, and with whom
texts.py      sentences that nobody has embedded before
child.py      a contestant in a process of its own; adapters/ says how each library is called
contest.py    contestants take turns on the same text: words/s, milliseconds, agreement
floors.py     the arithmetic of a model against what this machine multiplies and reads per second
growth.py     how the cost grows with batch, sentences, words, cores and model, as points and as a picture
device.py     ids to layers on a GPU
measuring.py  all that from top to bottom; report.py shows it as tables, machine.py says where it was measured
"""

__all__: list[str] = []
