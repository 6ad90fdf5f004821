"""`elmo bench`: elmokit beside its peers on this machine, against what the machine allows.

    plan.py      what is measured, and with whom
    texts.py     sentences that nobody has embedded before
    child.py     a contestant in a process of its own; adapters/ says how each library is called
    contest.py   contestants take turns on the same text: words/s, milliseconds, agreement
    rates.py     what this machine multiplies and reads a second
    floors.py    the arithmetic of a model against those rates
    growth.py    how the cost grows with batch, sentences, words, cores and model; drawing.py draws it
    device.py    the same questions on a GPU
    report.py    all that as tables

`python -m elmokit.bench` is the same command without tyro, for machines where nothing can be installed.
"""

__all__: list[str] = []
