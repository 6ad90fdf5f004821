"""C++ for processors: matmuls with weights that were laid out once, in float32 and in int8.

`building.py` compiles, `packing.py` lays weights out and remembers them, `linear.py` multiplies, `threads.py` counts
threads; `words/cpu.py` and `recurrence/cpu.py` call them. The sources know nothing of torch: they take pointers.
"""

__all__: list[str] = []
