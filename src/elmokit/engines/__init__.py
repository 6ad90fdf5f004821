"""The three operations of `elmokit.nn`, faster: words are encoded, recurrences run, losses taken.

`README.md` beside this file holds the contracts. Importing this package registers the engines with `nn.operations`;
each is imported when it is first chosen (`choice.py`). Without it the network runs its references.

    words/        C++ tables and matmuls (float32, int8); Triton kernels
    recurrence/   plain torch without padding; C++ (float32, int8); cuDNN; Triton
    loss/         plain torch in chunks; C++ (evaluation); Triton
    cpp/          the C++ sources, how they are compiled, and weights laid out for them
"""

from collections.abc import Iterable

from torch import Tensor

from elmokit.engines.choice import TRITON_DTYPES, choose, why_no_triton
from elmokit.engines.cpp.building import why_no_library
from elmokit.engines.cpp.threads import torch_alone
from elmokit.nn.operations import register_engines

__all__ = ["TRITON_DTYPES", "choose", "torch_alone", "why_no_library", "why_no_triton"]


def _forget(weights: Iterable[Tensor]) -> None:
    from elmokit.engines.cpp.packing import forget

    forget(weights)


register_engines(
    {
        ("words", "cpu"): "elmokit.engines.words.cpu:encode",
        ("words", "int8"): "elmokit.engines.words.cpu:encode_in_int8",
        ("words", "triton"): "elmokit.engines.words.triton:encode",
        ("recurrence", "packed"): "elmokit.engines.recurrence.packed:run",
        ("recurrence", "cpu"): "elmokit.engines.recurrence.cpu:run",
        ("recurrence", "int8"): "elmokit.engines.recurrence.cpu:run_in_int8",
        ("recurrence", "cudnn"): "elmokit.engines.recurrence.cudnn:run",
        ("recurrence", "triton"): "elmokit.engines.recurrence.triton:run",
        ("loss", "chunked"): "elmokit.engines.loss.chunked:losses",
        ("loss", "cpu"): "elmokit.engines.loss.cpu:losses",
        ("loss", "triton"): "elmokit.engines.loss.linear_cross_entropy:losses",
    },
    choose,
    _forget,
)
