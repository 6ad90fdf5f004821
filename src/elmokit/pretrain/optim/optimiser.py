# pyright: reportPrivateImportUsage=false
# torch._foreach_*: one launch for many tensors, and torch has no public name for it.
"""The optimiser of a training run: clip the gradients, then move every parameter, and never wait for the device.

Arrives: a network with gradients. Leaves: the network, moved, and the norm of its gradients. Muon moves the matrices of
encoder, LSTMs and a second task, AdamW everything else (embedding tables, output layer, biases); AdamW alone and
bilm-tf's Adagrad are the alternatives.

A step whose gradients are not finite moves nothing. Through a long sentence a gradient may grow beyond all numbers
though loss and weights are healthy; clipped, it would be 0 × inf = NaN and poison every weight.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from elmokit.errors import CheckpointError
from elmokit.io.checkpoint import check_finite, compare_shapes
from elmokit.nn.lstmp import Lstmp
from elmokit.nn.output_layer import OutputLayer
from elmokit.pretrain.optim.muon import Muon
from elmokit.pretrain.recipes import TrainConfig

__all__ = ["Optimiser", "clip_factor"]

STATES = {"muon": ("momentum",), "adamw": ("exp_avg", "exp_avg_sq"), "adagrad": ("sum",)}  # what each keeps of a weight
BILM_TF_LOSS_SCALE = 20.0  # bilm-tf multiplies its loss by the 20 words of its window, before it clips


class Optimiser:
    """Moves the parameters of a network.

    Arguments:
        network: whose parameters.
        config: which optimiser, its rates, weight decay and the bound of the gradients' norm.

    Attributes:
        skipped: how many steps moved nothing because their gradients were not finite, until somebody sets it to 0.

    Example:
        >>> network = nn.Linear(4, 9)
        >>> optimiser = Optimiser(network, TrainConfig())
        >>> network(torch.ones(2, 4)).sum().backward()
        >>> optimiser.step(0.5).shape  # at half the learning rates; gives the norm of the gradients
        torch.Size([])
    """

    def __init__(self, network: nn.Module, config: TrainConfig) -> None:
        self.config = config
        self._parameters = dict(network.named_parameters())
        matrices = find_matrices(network)
        on_muon = matrices if config.optimiser == "muon" else {}
        rest = [name for name in self._parameters if name not in on_muon]
        self._muon = self._build_muon(on_muon) if on_muon else None
        self._rest = self._build_rest(rest, matrices) if rest else None
        self._loss_scale = BILM_TF_LOSS_SCALE if config.optimiser == "adagrad" else 1.0
        self.skipped = torch.zeros((), dtype=torch.int64, device=next(iter(self._parameters.values())).device)

    def step(self, lr_scale: float = 1.0) -> Tensor:
        """Clip, then move every parameter that has a gradient; gives the norm of the gradients before clipping."""
        self._set_rates(lr_scale)
        return self._move()

    def record(self) -> Callable[[float], Tensor]:
        """`step` as a CUDA graph, for gradients that stay where they are; after some ordinary steps.

        Hundreds of small launches then cost the host next to nothing. Learning rates are tensors from now on.
        """
        for optimizer in self._both():
            rate = torch.tensor(self._rate(optimizer), device=self.skipped.device)
            for group in optimizer.param_groups:  # all share a tensor: each would be a launch of its own at every step
                group["lr"], group["capturable"] = rate, True
            for state in optimizer.state.values():  # AdamW counts its steps on the device then
                if "step" in state:
                    state["step"] = state["step"].to(optimizer.param_groups[0]["params"][0].device)
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            norm = self._move()

        def replay(lr_scale: float) -> Tensor:
            self._set_rates(lr_scale)
            graph.replay()
            return norm

        return replay

    def state_dict(self) -> dict[str, Any]:
        """Everything a resumed run needs to continue exactly, as tensors and plain values."""

        def state_of(optimizer: torch.optim.Optimizer | None) -> dict[str, Any] | None:
            if optimizer is None:
                return None
            return {"names": self._names(optimizer), "state": optimizer.state_dict()["state"]}

        return {"optimiser": self.config.optimiser, "muon": state_of(self._muon), "rest": state_of(self._rest)}

    def load_state_dict(self, state: dict[str, Any], where: str | Path = "the checkpoint") -> None:
        """Continue from this state; learning rates and the like are this optimiser's own.

        Arguments:
            state: as `state_dict` gave it.
            where: what messages call it.
        """
        if state.get("optimiser") != self.config.optimiser:
            raise CheckpointError(
                f"{where} was trained by {state.get('optimiser')!r}, this run by {self.config.optimiser!r}: "
                "resume with the same optimiser, or start anew from its model with --from"
            )
        for key, optimizer in (("muon", self._muon), ("rest", self._rest)):
            saved = state[key]
            if optimizer is None and saved is None:
                continue
            own = [] if optimizer is None else self._names(optimizer)
            if optimizer is None or saved is None or sorted(saved["names"]) != sorted(own):
                raise CheckpointError(
                    f"{where}: the optimiser's state belongs to other parameters than this network has: "
                    "resume with the same model and output layer"
                )
            # By name: another version may have had the parameters in another order.
            states = {own.index(saved["names"][number]): state for number, state in saved["state"].items()}
            for number, values in states.items():
                self._check_state(key if key == "muon" else self._rest_kind, own[number], values, where)
            optimizer.load_state_dict({"state": states, "param_groups": optimizer.state_dict()["param_groups"]})

    def _check_state(self, kind: str, name: str, values: dict[str, Any], where: str | Path) -> None:
        named = {f"{part} of {name}": value for part, value in values.items()}
        other = next((part for part, value in named.items() if not isinstance(value, Tensor)), None)
        if other is not None:
            raise CheckpointError(f"{where}: expected {other!s:.80} to be a tensor, found {named[other]!r:.40}")
        wanted = {f"{part} of {name}": tuple(self._parameters[name].shape) for part in STATES[kind]}
        if kind != "muon":
            wanted[f"step of {name}"] = ()
        compare_shapes(wanted, {part: tuple(value.shape) for part, value in named.items()}, where)
        check_finite(named, where)

    @property
    def _rest_kind(self) -> str:
        return "adagrad" if isinstance(self._rest, torch.optim.Adagrad) else "adamw"

    def _both(self) -> list[torch.optim.Optimizer]:
        return [optimizer for optimizer in (self._muon, self._rest) if optimizer is not None]

    def _rate(self, optimizer: torch.optim.Optimizer) -> float:
        return self.config.muon_learning_rate if optimizer is self._muon else self.config.learning_rate

    def _set_rates(self, lr_scale: float) -> None:
        for optimizer in self._both():
            rate, groups = self._rate(optimizer) * lr_scale, optimizer.param_groups
            if isinstance(groups[0]["lr"], Tensor):
                groups[0]["lr"].fill_(rate)
            else:
                for group in groups:
                    group["lr"] = rate

    def _move(self) -> Tensor:
        gradients = [p.grad for p in self._parameters.values() if p.grad is not None]
        norm, factor = clip_factor(gradients, self.config.clip_norm, scale=self._loss_scale)
        is_lost = ~(norm < float("inf"))  # nor is NaN
        self.skipped += is_lost
        if self._muon is not None:
            self._muon.factor, self._muon.is_lost = factor, is_lost
            self._muon.step()
        if self._rest is not None:
            own = [p.grad for group in self._rest.param_groups for p in group["params"] if p.grad is not None]
            torch._foreach_mul_(own, factor)
            if isinstance(self._rest, torch.optim.Adagrad):  # moved by gradients alone: it has no weight decay
                for gradient in own:
                    gradient.masked_fill_(is_lost, 0)
            else:
                # torch's name for it: AdamW then leaves all as it is.
                self._rest.found_inf = is_lost.float()  # pyright: ignore[reportAttributeAccessIssue]
            self._rest.step()
        return norm

    @property
    def flops(self) -> int:
        """Operations of Muon's step, which do not depend on the words of a batch; the others cost next to nothing."""
        return 0 if self._muon is None else self._muon.flops

    def _names(self, optimizer: torch.optim.Optimizer) -> list[str]:
        names = {id(parameter): name for name, parameter in self._parameters.items()}
        return [names[id(parameter)] for group in optimizer.param_groups for parameter in group["params"]]

    def _build_muon(self, matrices: dict[str, int]) -> Muon:
        grouped: dict[int, list[Tensor]] = {}
        for name, parts in matrices.items():
            grouped.setdefault(parts, []).append(self._parameters[name])
        groups = [{"params": params, "parts": parts} for parts, params in grouped.items()]
        return Muon(groups, weight_decay=self.config.weight_decay)

    def _build_rest(self, names: Collection[str], matrices: Collection[str]) -> torch.optim.Optimizer:
        decaying = [self._parameters[name] for name in names if name in matrices]
        others = [self._parameters[name] for name in names if name not in matrices]
        decays = ((decaying, self.config.weight_decay), (others, 0.0))
        groups = [{"params": params, "weight_decay": decay} for params, decay in decays if params]
        if self.config.optimiser == "adagrad":
            # TensorFlow's: the sum of squares starts at 1, and nothing is added to its root.
            return torch.optim.Adagrad(groups, initial_accumulator_value=1.0, eps=0.0)
        return torch.optim.AdamW(groups, fused=True)


def clip_factor(gradients: list[Tensor], bound: float, *, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    """The joint norm of these gradients times `scale`, and the factor that makes it at most `bound` (and has `scale`).

    Both are tensors: asking for their values here would make the device stop at every step.
    """
    if not gradients:
        return torch.zeros(()), torch.ones(())
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients))) * scale
    return norm, scale * (bound / (norm + 1e-6)).clamp(max=1.0)


def find_matrices(network: nn.Module) -> dict[str, int]:
    """The weights that are matrices, and how many matrices lie side by side in each.

    Embedding tables and the output layer are none: their rows are words or characters, and most get no gradient in a
    step.
    """
    matrices: dict[str, int] = {}
    for path, module in network.named_modules():
        prefix = f"{path}." if path else ""
        if isinstance(module, Lstmp):
            matrices |= {f"{prefix}input_weight": 4, f"{prefix}recurrent_weight": 4}
            if module.projection_weight is not None:
                matrices[f"{prefix}projection_weight"] = 1
        elif isinstance(module, nn.Linear | nn.Conv1d):
            matrices[f"{prefix}weight"] = 1
    outputs = tuple(f"{path}." for path, module in network.named_modules() if isinstance(module, OutputLayer))
    known = dict(network.named_parameters())
    return {name: n for name, n in matrices.items() if name in known and not name.startswith(outputs or "\n")}
