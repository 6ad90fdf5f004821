"""The recurrence with products of 8-bit whole numbers, on a processor: four times fewer bytes, several times faster.

Weights are rounded once, one scale a column; what a step reads (inputs, previous outputs, gated cells) is rounded at
that step, one scale a row. Sums are exact; gates, cells and outputs are float32. The result is near `reference.py`, not
equal to it, so this engine is taken only where it is asked for (`precision="int8"`).
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from elmokit.engines import Clips, LayerState, Recurrence, engine_named, outside_graphs
from elmokit.engines.cpu import run_in
from elmokit.engines.kernels.cpu import can_run, why_no_library
from elmokit.errors import EngineError

__all__ = ["run"]


@outside_graphs  # the compiler cannot see into a library
def run(recurrences: Sequence[Recurrence], batch_sizes: Sequence[int], clips: Clips) -> list[tuple[Tensor, LayerState]]:
    """Outputs (N, P) and final state of each recurrence."""
    if not batch_sizes:
        return engine_named("packed")(recurrences, batch_sizes, clips)
    tensors = [part for each in recurrences for part in (each.inputs_ND, *each.weights, *each.state)]
    if not can_run(*tensors):
        why = why_no_library() or "needs float32 on a CPU and no gradients (torch.no_grad())"
        raise EngineError(f'precision="int8" cannot run here: {why}. Use precision="float32"')
    return run_in("int8", recurrences, batch_sizes, clips)
