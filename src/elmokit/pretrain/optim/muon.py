# pyright: reportPrivateImportUsage=false
# torch._foreach_*: one launch for many tensors, and torch has no public name for it.
"""Muon: each update of a matrix is made orthogonal, so that all its directions learn at the same speed.

Arrives: gradients of matrices. Leaves: the matrices, moved. Momentum first, then five Newton–Schulz steps bring the
singular values of the update near 1 (Jordan et al. 2024), then 0.2 √max(rows, columns) gives its numbers the size that
AdamW's have (Liu et al. 2025). A weight that holds several matrices side by side, as an LSTM's holds its four gates, is
cut first: the gates mean different things. Filters of a convolution are rows of one matrix.

All matrices of one shape go through the Newton–Schulz steps together, and small ones are padded with zeros to the
shape of others (which changes nothing: zero rows and columns stay zero), because a GPU spends far more time on starting
many small matmuls than on computing them. Nothing here waits for the device. What surrounds the matmuls is written
twice: in torch's operations, which say what is meant, and for GPUs in `muon_kernel.py`, which is tested to be the same.

Shapes: B matrices of a batch, R rows, C columns, R <= C.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from elmokit.devices import move_to_device
from elmokit.engines import why_no_triton

__all__ = ["Muon", "newton_schulz"]

# x (a + b x² + c x⁴) drives every singular value in (0, 1] into about 0.7..1.2 in five steps (Jordan et al. 2024).
_LINEAR, _CUBIC, _QUINTIC = 3.4445, -4.7750, 2.0315
GPU_DTYPE = torch.bfloat16  # of these steps: accurate enough, and many times faster
# Matrices of one shape are padded to another only where they then hold no more numbers than this together.
_PADDED_NUMBERS = 2**18


class Muon(torch.optim.Optimizer):
    """Momentum and orthogonal updates, for matrices only.

    Arguments:
        groups: parameter groups; beside `params` a group may hold `parts` (how many matrices lie side by side along
            the columns of each of its weights, 1 if unset).
        lr: the learning rate.
        momentum: fraction of the old momentum that is kept.
        weight_decay: how strongly the matrices are pulled towards 0.
        steps: Newton–Schulz steps.

    Attributes:
        factor: a number on the device with which gradients are multiplied, to clip them; 1 if unset.
        is_lost: a bool on the device; where it is true, a step leaves weights and momenta as they are.

    Example:
        >>> weight = torch.nn.Parameter(torch.zeros(4, 8))
        >>> optimizer = Muon([{"params": [weight], "parts": 2}], lr=0.1)
        >>> weight.sum().backward()
        >>> optimizer.step()
        >>> bool((weight < 0).all())
        True
    """

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        *,
        lr: float = 4e-3,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        steps: int = 5,
    ) -> None:
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "steps": steps, "parts": 1}
        super().__init__(list(groups), defaults)
        self.factor: Tensor | None = None
        self.is_lost: Tensor | None = None
        self._batches: dict[tuple[int, ...], list[_Batch]] = {}

    @property
    def flops(self) -> int:
        """Operations of a step, whatever the batch: a matmul each for X Xᵀ, its square, and their product with X."""
        total = 0
        for group in self.param_groups:
            for weight in group["params"]:
                rows, columns = sorted((len(weight), weight[0].numel() // group["parts"]))
                total += group["parts"] * group["steps"] * 2 * (2 * rows * rows * columns + rows**3)
        return total

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Move every weight that has a gradient."""
        assert closure is None, "Muon takes no closure"
        active = [(p, group) for group in self.param_groups for p in group["params"] if p.grad is not None]
        if not active:
            return
        weights = [p for p, _ in active]
        first = active[0][1]
        for weight in weights:
            if not self.state[weight]:
                self.state[weight]["momentum"] = torch.zeros_like(weight)
        gradients = [weight.grad for weight in weights]
        momenta = [self.state[weight]["momentum"] for weight in weights]
        batches, rate = self._batches_of(active), first["lr"]
        factor = weights[0].new_ones(()) if self.factor is None else self.factor
        is_lost = torch.zeros_like(factor, dtype=torch.bool) if self.is_lost is None else self.is_lost
        if why_no_triton(weights[0].device, weights[0].dtype) is None:
            rate = rate if isinstance(rate, Tensor) else torch.full_like(factor, rate)
            for batch in batches:
                batch.move(gradients, momenta, weights, factor, is_lost, rate, first["momentum"], first["steps"])
            return
        # A momentum that meets itself stays where it is.
        gradients = [torch.where(is_lost, m, g * factor) for m, g in zip(momenta, gradients, strict=True)]
        torch._foreach_lerp_(momenta, gradients, 1 - first["momentum"])
        updates = torch._foreach_lerp(gradients, momenta, first["momentum"])  # Nesterov: look one step ahead
        if first["weight_decay"]:
            torch._foreach_mul_(weights, torch.where(is_lost, 1.0, 1 - rate * first["weight_decay"]))
        for batch in batches:
            orthogonal_BRC = newton_schulz(batch.gather(updates), steps=first["steps"])
            batch.subtract(orthogonal_BRC * (batch.sizes_B * torch.where(is_lost, 0.0, rate)).view(-1, 1, 1), weights)

    def _batches_of(self, active: list[tuple[Tensor, dict[str, Any]]]) -> list[_Batch]:
        """The batches of these weights; made once, and again only when other weights learn."""
        key = tuple(id(weight) for weight, _ in active)
        if key not in self._batches:
            places = [
                _Place(number, p.shape, group["parts"], group["weight_decay"])
                for number, (p, group) in enumerate(active)
            ]
            shapes = share_shapes([place.shape for place in places for _ in range(place.parts)])
            grouped: dict[tuple[int, int], list[_Place]] = {}
            for place in places:
                grouped.setdefault(shapes[place.shape], []).append(place)
            device = active[0][0].device
            self._batches = {key: [_Batch(shape, members, device) for shape, members in grouped.items()]}
        return self._batches[key]


def newton_schulz(matrices_BRC: Tensor, *, steps: int = 5) -> Tensor:
    """The nearest orthogonal matrices, nearly: singular values end up between about 0.7 and 1.2, float32."""
    lengths_B11 = torch.linalg.vector_norm(matrices_BRC, dim=(1, 2), keepdim=True)
    x_BRC = matrices_BRC / (lengths_B11 + 1e-7)
    return _orthogonal(x_BRC.to(GPU_DTYPE) if x_BRC.is_cuda else x_BRC, steps).float()


def _orthogonal(x_BRC: Tensor, steps: int) -> Tensor:
    for _ in range(steps):
        square_BRR = torch.bmm(x_BRC, x_BRC.mT)
        odd_BRR = torch.baddbmm(square_BRR, square_BRR, square_BRR, beta=_CUBIC, alpha=_QUINTIC)
        x_BRC = torch.baddbmm(x_BRC, odd_BRR, x_BRC, beta=_LINEAR)
    return x_BRC


def share_shapes(shapes: Sequence[tuple[int, int]]) -> dict[tuple[int, int], tuple[int, int]]:
    """For each shape the one it is computed in: its own, or, where little is padded, the smallest other that holds it.

    Arguments:
        shapes: rows and columns of every matrix, equal ones repeated.
    """
    distinct = sorted(set(shapes), key=math.prod, reverse=True)
    shared: dict[tuple[int, int], tuple[int, int]] = {}
    for shape in distinct:  # the largest first, so that what is padded to is never padded itself
        count = shapes.count(shape)
        holds = [o for o in set(shared.values()) if _fits(shape, o) and count * math.prod(o) <= _PADDED_NUMBERS]
        shared[shape] = min(holds, key=math.prod) if holds else shape
    return shared


def _fits(shape: tuple[int, int], other: tuple[int, int]) -> bool:
    return shape[0] <= other[0] and shape[1] <= other[1]


class _Place(NamedTuple):
    """Where the matrices of one weight lie: which weight, and how to see them."""

    number: int
    weight_shape: torch.Size
    parts: int
    decay: float

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of one matrix, lying down: rows are the shorter side."""
        rows, columns = self._standing
        return min(rows, columns), max(rows, columns)

    @property
    def _standing(self) -> tuple[int, int]:
        rows, columns = self.weight_shape[0], math.prod(self.weight_shape[1:])
        return rows, columns // self.parts

    def view(self, weight: Tensor) -> Tensor:
        """The matrices (parts, rows, columns) inside this weight, lying down, without a copy."""
        rows, columns = self._standing
        matrices = weight.view(rows, self.parts, columns).transpose(0, 1)
        return matrices if rows <= columns else matrices.mT


class _Batch:
    """All matrices that are computed in one shape."""

    def __init__(self, shape: tuple[int, int], places: list[_Place], device: torch.device) -> None:
        self.shape = shape
        self.places = places
        sizes = [0.2 * math.sqrt(max(place.shape)) for place in places for _ in range(place.parts)]
        decays = [place.decay for place in places for _ in range(place.parts)]
        self.sizes_B, self.decays_B = torch.tensor(sizes, device=device), torch.tensor(decays, device=device)
        self._table: tuple[list[list[int]], Tensor] | None = None

    def move(
        self,
        gradients: Sequence[Tensor],
        momenta: Sequence[Tensor],
        weights: Sequence[Tensor],
        factor: Tensor,
        is_lost: Tensor,
        rate: Tensor,
        momentum: float,
        steps: int,
    ) -> None:
        """All that a step does to these matrices, by Triton's kernels."""
        from elmokit.pretrain.optim import muon_kernel as kernels

        table_B7 = self._table_of(gradients, momenta, weights)
        updates_BRC, squares_BT = kernels.mix(table_B7, self.shape, factor, is_lost, momentum)
        x_BRC = kernels.normalise(updates_BRC, squares_BT, GPU_DTYPE)
        kernels.subtract(table_B7, _orthogonal(x_BRC, steps), self.sizes_B, self.decays_B, rate, is_lost)

    def _table_of(self, *tensors: Sequence[Tensor]) -> Tensor:
        """Where the matrices inside these tensors lie, on the device; copied there only when it has changed."""
        rows = []
        for place in self.places:
            members = [each[place.number] for each in tensors]
            assert all(member.is_contiguous() for member in members), "a matrix with gaps has no one address"
            views = [place.view(member) for member in members]
            for part in range(place.parts):
                rows.append([view[part].data_ptr() for view in views] + [*views[0].shape[1:], *views[0].stride()[1:]])
        if self._table is None or self._table[0] != rows:
            self._table = rows, move_to_device(torch.tensor(rows), self.sizes_B.device)
        return self._table[1]

    def gather(self, tensors: Sequence[Tensor]) -> Tensor:
        """The matrices (B, R, C) inside these tensors, padded with zeros where they are smaller."""
        rows, columns = self.shape
        views = [place.view(tensors[place.number]) for place in self.places]
        return torch.cat(
            [
                view
                if place.shape == self.shape
                else F.pad(view, (0, columns - view.shape[2], 0, rows - view.shape[1]))
                for place, view in zip(self.places, views, strict=True)
            ]
        )

    def subtract(self, updates_BRC: Tensor, weights: Sequence[Tensor]) -> None:
        """Move the matrices inside these weights against the updates."""
        parts = updates_BRC.split([place.parts for place in self.places])
        inside = [place.view(weights[place.number]) for place in self.places]
        cut = [part[:, : view.shape[1], : view.shape[2]] for part, view in zip(parts, inside, strict=True)]
        torch._foreach_sub_(inside, cut)
