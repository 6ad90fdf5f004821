# ruff: noqa: ANN001, ANN002, ANN202 (kernel arguments are pointers and numbers; Triton reads no other types)
"""What lies between the matmuls of the word encoder, in one launch per pass: bias and relu, highways.

Written plainly, a highway layer goes over its features a dozen times per pass, and torch sums the gradient of a bias in
a launch of its own. Here all is computed in float32 between one load and one store, and in the backward pass a program
sums its columns meanwhile; the sums of the programs are added in a fixed order.

Shapes: N words, F features; tiles of R rows and BF features, S programs that share a column.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["add_and_rectify", "highway"]

ROWS, FEATURES, SPLITS = 16, 128, 32


def add_and_rectify(features_NF: Tensor, bias_F: Tensor) -> Tensor:
    """`relu(features + bias)`."""
    return _rectified(features_NF, bias_F)


def highway(features_NF: Tensor, gate: tuple[Tensor, Tensor], transform: tuple[Tensor, Tensor]) -> Tensor:
    """`lerp(x, relu(transform(x)), sigmoid(gate(x)))`; gate and transform are a weight (F, F) and a bias each."""
    return _highway(features_NF, *gate, *transform)[0]


@torch.library.custom_op("elmokit::add_and_rectify", mutates_args=())
def _rectified(features_NF: Tensor, bias_F: Tensor) -> Tensor:
    features_NF = features_NF.contiguous()
    result_NF = torch.empty_like(features_NF)
    with torch.cuda.device_of(features_NF):
        _rectify_kernel[_grid(features_NF)](features_NF, bias_F, result_NF, *features_NF.shape, **_tile())
    return result_NF


@_rectified.register_fake
def _(features_NF, bias_F):
    del bias_F
    return torch.empty_like(features_NF, memory_format=torch.contiguous_format)


@torch.library.custom_op("elmokit::add_and_rectify_backward", mutates_args=())
def _rectified_backward(d_result_NF: Tensor, result_NF: Tensor) -> tuple[Tensor, Tensor]:
    d_result_NF = d_result_NF.contiguous()
    d_features_NF = torch.empty_like(result_NF)
    sums_SF = result_NF.new_empty(SPLITS, result_NF.shape[1], dtype=torch.float32)
    with torch.cuda.device_of(result_NF):
        _rectify_backward_kernel[_grid(result_NF)](
            d_result_NF, result_NF, d_features_NF, sums_SF, *result_NF.shape, **_tile()
        )
    return d_features_NF, sums_SF.sum(0, dtype=result_NF.dtype)


@_rectified_backward.register_fake
def _(d_result_NF, result_NF):
    del d_result_NF
    return torch.empty_like(result_NF), result_NF.new_empty(result_NF.shape[1])


def _keep_result(ctx, inputs, output) -> None:
    del inputs
    ctx.save_for_backward(output)


def _differentiate_rectified(ctx, d_result_NF):
    return _rectified_backward(d_result_NF, *ctx.saved_tensors)


_rectified.register_autograd(_differentiate_rectified, setup_context=_keep_result)


@torch.library.custom_op("elmokit::highway", mutates_args=())
def _highway(
    features_NF: Tensor, gate_FF: Tensor, gate_F: Tensor, transform_FF: Tensor, transform_F: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The result, and for the backward pass the inputs of sigmoid and relu."""
    features_NF = features_NF.contiguous()
    opens_NF = torch.addmm(gate_F, features_NF, gate_FF.t())
    new_NF = torch.addmm(transform_F, features_NF, transform_FF.t())
    result_NF = torch.empty_like(features_NF)
    with torch.cuda.device_of(features_NF):
        _highway_kernel[_grid(features_NF)](features_NF, opens_NF, new_NF, result_NF, *features_NF.shape, **_tile())
    return result_NF, opens_NF, new_NF


@_highway.register_fake
def _(features_NF, *weights):
    del weights
    return tuple(torch.empty_like(features_NF, memory_format=torch.contiguous_format) for _ in range(3))


@torch.library.custom_op("elmokit::highway_backward", mutates_args=())
def _highway_backward(
    d_result_NF: Tensor, features_NF: Tensor, gate_FF: Tensor, transform_FF: Tensor, opens_NF: Tensor, new_NF: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of the features and of both weights and biases."""
    d_result_NF, features_NF = d_result_NF.contiguous(), features_NF.contiguous()
    d_features_NF, d_opens_NF, d_new_NF = (torch.empty_like(features_NF) for _ in range(3))
    open_sums_SF, new_sums_SF = (
        features_NF.new_empty(SPLITS, features_NF.shape[1], dtype=torch.float32) for _ in range(2)
    )
    with torch.cuda.device_of(features_NF):
        _highway_backward_kernel[_grid(features_NF)](
            d_result_NF, features_NF, opens_NF, new_NF, d_features_NF, d_opens_NF, d_new_NF,
            open_sums_SF, new_sums_SF, *features_NF.shape, **_tile(),
        )  # fmt: skip
    # The gradient of the direct path is there already; the matmuls add theirs.
    d_features_NF.addmm_(d_opens_NF, gate_FF).addmm_(d_new_NF, transform_FF)
    d_gate_FF, d_transform_FF = torch.mm(d_opens_NF.t(), features_NF), torch.mm(d_new_NF.t(), features_NF)
    d_gate_F, d_transform_F = (sums_SF.sum(0, dtype=features_NF.dtype) for sums_SF in (open_sums_SF, new_sums_SF))
    return d_features_NF, d_gate_FF, d_gate_F, d_transform_FF, d_transform_F


@_highway_backward.register_fake
def _(d_result_NF, features_NF, gate_FF, transform_FF, opens_NF, new_NF):
    del d_result_NF, opens_NF, new_NF
    width = features_NF.shape[1]
    biases = features_NF.new_empty(width), features_NF.new_empty(width)
    d_features_NF = torch.empty_like(features_NF, memory_format=torch.contiguous_format)
    return d_features_NF, torch.empty_like(gate_FF), biases[0], torch.empty_like(transform_FF), biases[1]


def _keep(ctx, inputs, output) -> None:
    features_NF, gate_FF, _, transform_FF, _ = inputs
    ctx.save_for_backward(features_NF, gate_FF, transform_FF, *output[1:])
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)  # what is kept would get as many zeros


def _differentiate(ctx, d_result_NF, *others):
    del others
    return (None,) * 5 if d_result_NF is None else _highway_backward(d_result_NF, *ctx.saved_tensors)


_highway.register_autograd(_differentiate, setup_context=_keep)


def _grid(features_NF: Tensor) -> tuple[int, int]:
    return triton.cdiv(features_NF.shape[1], FEATURES), SPLITS


def _tile() -> dict[str, int]:
    return {"R": ROWS, "BF": FEATURES, "SPLITS": SPLITS, "num_warps": 4}


@triton.jit(do_not_specialize=["num_rows"])
def _rectify_kernel(
    features, bias, result, num_rows, num_features, R: tl.constexpr, BF: tl.constexpr, SPLITS: tl.constexpr
):
    columns = tl.program_id(0) * BF + tl.arange(0, BF)
    exists = columns < num_features
    bias_F = tl.load(bias + columns, mask=exists, other=0.0).to(tl.float32)[None, :]
    for first in range(tl.program_id(1) * R, num_rows, SPLITS * R):
        rows = first + tl.arange(0, R)
        inside = (rows < num_rows)[:, None] & exists[None, :]
        place = rows.to(tl.int64)[:, None] * num_features + columns[None, :]
        sum_RF = tl.load(features + place, mask=inside, other=0.0).to(tl.float32) + bias_F
        sum_RF = tl.where(sum_RF < 0.0, 0.0, sum_RF)  # NaN stays NaN, as with torch
        tl.store(result + place, sum_RF.to(result.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["num_rows"])
def _rectify_backward_kernel(
    d_result, result, d_features, sums, num_rows, num_features,
    R: tl.constexpr, BF: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    columns = tl.program_id(0) * BF + tl.arange(0, BF)
    exists = columns < num_features
    sum_RF = tl.zeros((R, BF), tl.float32)
    for first in range(tl.program_id(1) * R, num_rows, SPLITS * R):
        rows = first + tl.arange(0, R)
        inside = (rows < num_rows)[:, None] & exists[None, :]
        place = rows.to(tl.int64)[:, None] * num_features + columns[None, :]
        d_RF = tl.load(d_result + place, mask=inside, other=0.0).to(tl.float32)
        d_RF = tl.where(tl.load(result + place, mask=inside, other=0.0) > 0.0, d_RF, 0.0)
        tl.store(d_features + place, d_RF.to(d_features.dtype.element_ty), mask=inside)
        sum_RF += d_RF
    tl.store(sums + tl.program_id(1) * num_features + columns, tl.sum(sum_RF, 0), mask=exists)


@triton.jit(do_not_specialize=["num_rows"])
def _highway_kernel(
    features, opens, new, result, num_rows, num_features, R: tl.constexpr, BF: tl.constexpr, SPLITS: tl.constexpr
):
    columns = tl.program_id(0) * BF + tl.arange(0, BF)
    exists = columns < num_features
    for first in range(tl.program_id(1) * R, num_rows, SPLITS * R):
        rows = first + tl.arange(0, R)
        inside = (rows < num_rows)[:, None] & exists[None, :]
        place = rows.to(tl.int64)[:, None] * num_features + columns[None, :]
        old_RF = tl.load(features + place, mask=inside, other=0.0).to(tl.float32)
        new_RF = tl.load(new + place, mask=inside, other=0.0).to(tl.float32)
        new_RF = tl.where(new_RF < 0.0, 0.0, new_RF)
        open_RF = tl.sigmoid(tl.load(opens + place, mask=inside, other=0.0).to(tl.float32))
        tl.store(result + place, (old_RF + open_RF * (new_RF - old_RF)).to(result.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["num_rows"])
def _highway_backward_kernel(
    d_result, features, opens, new, d_features, d_opens, d_new, open_sums, new_sums, num_rows, num_features,
    R: tl.constexpr, BF: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    columns = tl.program_id(0) * BF + tl.arange(0, BF)
    exists = columns < num_features
    open_sum_RF = tl.zeros((R, BF), tl.float32)
    new_sum_RF = tl.zeros((R, BF), tl.float32)
    kind = d_features.dtype.element_ty
    for first in range(tl.program_id(1) * R, num_rows, SPLITS * R):
        rows = first + tl.arange(0, R)
        inside = (rows < num_rows)[:, None] & exists[None, :]
        place = rows.to(tl.int64)[:, None] * num_features + columns[None, :]
        d_RF = tl.load(d_result + place, mask=inside, other=0.0).to(tl.float32)
        old_RF = tl.load(features + place, mask=inside, other=0.0).to(tl.float32)
        new_RF = tl.load(new + place, mask=inside, other=0.0).to(tl.float32)
        open_RF = tl.sigmoid(tl.load(opens + place, mask=inside, other=0.0).to(tl.float32))
        d_new_RF = tl.where(new_RF > 0.0, d_RF * open_RF, 0.0)
        d_open_RF = d_RF * (tl.where(new_RF < 0.0, 0.0, new_RF) - old_RF) * open_RF * (1.0 - open_RF)
        tl.store(d_features + place, (d_RF * (1.0 - open_RF)).to(kind), mask=inside)
        tl.store(d_opens + place, d_open_RF.to(kind), mask=inside)
        tl.store(d_new + place, d_new_RF.to(kind), mask=inside)
        open_sum_RF += d_open_RF
        new_sum_RF += d_new_RF
    place = tl.program_id(1) * num_features + columns
    tl.store(open_sums + place, tl.sum(open_sum_RF, 0), mask=exists)
    tl.store(new_sums + place, tl.sum(new_sum_RF, 0), mask=exists)
