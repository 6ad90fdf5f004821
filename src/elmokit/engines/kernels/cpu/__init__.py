"""C++ for processors: products with weights that were laid out once, in float32 and in int8.

`building.py` compiles, `packing.py` lays weights out and remembers them, `linear.py` multiplies; the recurrence is
called by `engines/cpu.py`. The sources beside them know nothing of torch: they take pointers.
"""

from elmokit.engines import Precision
from elmokit.engines.kernels.cpu.building import library, why_no_library
from elmokit.engines.kernels.cpu.linear import packed_highway, packed_linear
from elmokit.engines.kernels.cpu.packing import can_run
from elmokit.engines.kernels.cpu.threads import torch_alone

__all__ = ["Precision", "can_run", "library", "packed_highway", "packed_linear", "torch_alone", "why_no_library"]
