"""How each contestant of `elmo bench` is called: one file per library, and the program that they answer through.

`serving.py` is run as a script by the Python of an environment that has the library, which need not have elmokit; it
loads the file `use_NAME.py` from this folder. So nothing here imports elmokit but `use_elmokit.py`, and the library
itself is imported only when a model is loaded.
"""

__all__: list[str] = []
