# ruff: noqa: ANN001, ANN202 (kernel arguments are pointers and numbers; Triton reads no other types)
"""Muon before and after its matmuls, on a GPU: three launches for all matrices of a shape, wherever they lie.

`muon.py` says what is computed. Written with torch's operations, gradients and weights travel to memory and back two
dozen times per step: clipped, chosen, mixed into the momentum, mixed with it, gathered, measured, divided, cast, and
back. Here `mix` reads gradients and momenta where they lie and leaves the updates gathered in one tensor;
`normalise` makes them ready for the matmuls; `subtract` moves the weights where they lie. Where that is stands in a
table of addresses. Sums are in a fixed order.

Shapes: B matrices of a batch, R rows, C columns, T tiles of a matrix.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["mix", "normalise", "subtract"]

NUMBERS = 2048  # of a program


def mix(
    table_B7: Tensor, shape: tuple[int, int], factor: Tensor, is_lost: Tensor, momentum: float
) -> tuple[Tensor, Tensor]:
    """Mix the gradients, times `factor`, into the momenta in place; gives updates (B, R, C) and sums of squares (B, T).

    Arguments:
        table_B7: int64, one row per matrix: addresses of gradient, momentum and weight (float32 each), how many rows
            and columns the matrix has, and the strides of both.
        shape: R and C; smaller matrices are padded with zeros.
        factor: one float32.
        is_lost: one bool; where it is true, the momenta stay as they are.
        momentum: fraction of the old momentum that is kept.
    """
    tiles = triton.cdiv(shape[0] * shape[1], NUMBERS)
    updates_BRC = factor.new_empty(len(table_B7), *shape)
    squares_BT = factor.new_empty(len(table_B7), tiles)
    with torch.cuda.device_of(factor):
        _mix_kernel[(tiles, len(table_B7))](
            table_B7, updates_BRC, squares_BT, factor, is_lost, 1 - momentum, R=shape[0], C=shape[1], BLOCK=NUMBERS
        )
    return updates_BRC, squares_BT


def normalise(updates_BRC: Tensor, squares_BT: Tensor, dtype: torch.dtype) -> Tensor:
    """The updates divided by their lengths."""
    num_matrices, tiles = squares_BT.shape
    result_BRC = torch.empty_like(updates_BRC, dtype=dtype)
    with torch.cuda.device_of(updates_BRC):
        _normalise_kernel[(tiles, num_matrices)](
            updates_BRC, squares_BT, result_BRC, updates_BRC[0].numel(), tiles,
            BT=triton.next_power_of_2(tiles), BLOCK=NUMBERS,
        )  # fmt: skip
    return result_BRC


def subtract(
    table_B7: Tensor, updates_BRC: Tensor, sizes_B: Tensor, decays_B: Tensor, rate: Tensor, is_lost: Tensor
) -> None:
    """Shrink the weights by `1 - rate * decay`, then take `rate * size` times the updates from them, in place.

    Arguments:
        table_B7: as in `mix`.
        updates_BRC: contiguous.
        sizes_B: of the updates of each matrix, float32.
        decays_B: of each matrix, float32.
        rate: one float32.
        is_lost: one bool; where it is true, the weights stay as they are.
    """
    num_matrices, num_rows, num_columns = updates_BRC.shape
    with torch.cuda.device_of(updates_BRC):
        _subtract_kernel[(triton.cdiv(num_rows * num_columns, NUMBERS), num_matrices)](
            table_B7, updates_BRC, sizes_B, decays_B, rate, is_lost, R=num_rows, C=num_columns, BLOCK=NUMBERS
        )


@triton.jit
def _mix_kernel(table, updates, squares, factor, is_lost, share, R: tl.constexpr, C: tl.constexpr, BLOCK: tl.constexpr):
    matrix = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    table += matrix * 7
    where, inside = _places(table, place, C)
    gradient = tl.load(tl.load(table).to(tl.pointer_type(tl.float32)) + where, mask=inside, other=0.0)
    momenta = tl.load(table + 1).to(tl.pointer_type(tl.float32))
    old = tl.load(momenta + where, mask=inside, other=0.0)
    gradient = tl.where(tl.load(is_lost) != 0, old, gradient * tl.load(factor))
    new = old + share * (gradient - old)
    tl.store(momenta + where, new, mask=inside)
    update = new - share * (new - gradient)  # Nesterov: look one step ahead
    tl.store(updates + matrix * (R * C) + place, update, mask=place < R * C)
    tl.store(squares + matrix * tl.num_programs(0) + tl.program_id(0), tl.sum(update * update, 0))


@triton.jit
def _normalise_kernel(updates, squares, result, count, num_tiles, BT: tl.constexpr, BLOCK: tl.constexpr):
    matrix = tl.program_id(1).to(tl.int64)
    tiles = tl.arange(0, BT)
    square = tl.sum(tl.load(squares + matrix * num_tiles + tiles, mask=tiles < num_tiles, other=0.0), 0)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    update = tl.load(updates + matrix * count + place, mask=inside, other=0.0) / (tl.sqrt(square) + 1e-7)
    tl.store(result + matrix * count + place, update.to(result.dtype.element_ty), mask=inside)


@triton.jit
def _subtract_kernel(
    table, updates, sizes, decays, rate, is_lost, R: tl.constexpr, C: tl.constexpr, BLOCK: tl.constexpr
):
    matrix = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    table += matrix * 7
    where, inside = _places(table, place, C)
    inside = inside & (tl.load(is_lost) == 0)
    weights = tl.load(table + 2).to(tl.pointer_type(tl.float32))
    weight = tl.load(weights + where, mask=inside, other=0.0)
    update = tl.load(updates + matrix * (R * C) + place, mask=inside, other=0.0).to(tl.float32)
    speed = tl.load(rate)
    weight = weight * (1.0 - speed * tl.load(decays + matrix)) - update * (speed * tl.load(sizes + matrix))
    tl.store(weights + where, weight, mask=inside)


@triton.jit
def _places(table, place, C: tl.constexpr):
    """Where in its own memory the numbers of a padded matrix lie, and which of them there are; 32 bits are enough."""
    row = place // C
    column = place % C
    inside = (row < tl.load(table + 3)) & (column < tl.load(table + 4))
    return row * tl.load(table + 5).to(tl.int32) + column * tl.load(table + 6).to(tl.int32), inside
