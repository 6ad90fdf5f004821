# pyright: reportPrivateImportUsage=false
# torch._foreach_*: one launch for many tensors, and torch has no public name for it.
"""Optimisers of a training run behind one face: clip, then move every parameter, and never wait for the device.

Arrives: a network with gradients. Leaves: the network, moved, and the norm of its gradients. Muon moves the matrices of
encoder and LSTMs, AdamW everything else (tables, output layer, biases); AdamW alone and bilm-tf's Adagrad are the
alternatives. Parameters belong to layer groups, from the words at the bottom to the output layer at the top, which is
what ULMFiT's two tools need: learning rates that fall from group to group, and unfreezing one group after another.

A step whose gradients are not finite moves nothing. Through a long sentence a gradient may grow beyond all numbers
though loss and weights are healthy; clipped, it would be 0 × inf = NaN and poison every weight.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from elmokit.errors import CheckpointError, ConfigError
from elmokit.nn.lstmp import Lstmp
from elmokit.nn.softmax import Softmax
from elmokit.pretrain.optim.muon import Muon

__all__ = ["Optimiser", "OptimiserConfig", "build_optimizer", "clipping", "layer_groups"]

Kind = Literal["muon", "adamw", "adagrad"]


@dataclass(frozen=True)
class OptimiserConfig:
    """Which optimiser, and its numbers.

    Arguments:
        optimiser: `"muon"` on matrices with AdamW on the rest, `"adamw"`, or bilm-tf's `"adagrad"`.
        learning_rate: of AdamW or Adagrad.
        muon_learning_rate: of Muon.
        betas: of AdamW.
        epsilon: of AdamW.
        momentum: of Muon.
        weight_decay: of AdamW and Muon, on matrices of encoder and LSTMs only.
        clip_norm: bound of the norm of all gradients together, `None` for none.
        loss_scale: gradients are multiplied by this before they are clipped, as if the loss had been.
        layer_decay: the learning rate of a layer group is so many times smaller than that of the group above it
            (2.6 in ULMFiT; 1 for the same rate everywhere).
        output_rate: the learning rate of the output layer is so many times that of the rest.
    """

    optimiser: Kind = "muon"
    learning_rate: float = 8e-3
    muon_learning_rate: float = 4e-3
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    momentum: float = 0.95
    weight_decay: float = 0.0
    clip_norm: float | None = 1.0
    loss_scale: float = 1.0
    layer_decay: float = 1.0
    output_rate: float = 1.0

    def __post_init__(self) -> None:
        """Reject what cannot be run."""
        if self.optimiser not in get_args(Kind):
            raise ConfigError(f"optimiser is {self.optimiser!r}: use one of {', '.join(get_args(Kind))}")
        for name in ("learning_rate", "muon_learning_rate", "loss_scale", "layer_decay", "output_rate"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} is {getattr(self, name)}: expected a number above 0")
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise ConfigError(f"clip_norm is {self.clip_norm}: expected a number above 0, or none")

    @classmethod
    def bilm_tf(cls) -> OptimiserConfig:
        """What the published models were trained with: Adagrad at 0.2, 20 times the loss, norm clipped at 10."""
        return cls(optimiser="adagrad", learning_rate=0.2, loss_scale=20.0, clip_norm=10.0)


def build_optimizer(network: nn.Module, config: OptimiserConfig) -> Optimiser:
    """The optimiser of this network."""
    return Optimiser(network, config)


class Optimiser:
    """Moves the parameters of a network.

    Attributes:
        skipped: how many steps moved nothing because their gradients were not finite, until somebody sets it to 0.

    Example:
        >>> network = nn.ModuleDict({"highway": nn.Linear(4, 4), "softmax": nn.Linear(4, 9)})
        >>> optimizer = build_optimizer(network, OptimiserConfig())
        >>> optimizer.groups
        ('words', 'softmax')
        >>> network["softmax"](network["highway"](torch.ones(2, 4))).sum().backward()
        >>> optimizer.step(0.5).shape  # at half the learning rate; gives the norm of the gradients
        torch.Size([])
        >>> optimizer.zero_grad()
    """

    def __init__(self, network: nn.Module, config: OptimiserConfig) -> None:
        self.config = config
        self._members = layer_groups(network)
        self._parameters = dict(network.named_parameters())
        self._matrices = _matrices(network)
        to_muon = set(self._matrices) if config.optimiser == "muon" else set()
        self._muon = self._build_muon(to_muon) if to_muon else None
        rest = [name for name in self._parameters if name not in to_muon]
        self._rest = self._build_rest(rest) if rest else None
        device = next(iter(self._parameters.values())).device
        self.skipped = torch.zeros((), dtype=torch.int64, device=device)

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the layer groups, from the bottom to the top."""
        return tuple(self._members)

    def step(self, lr_scale: float = 1.0) -> Tensor:
        """Clip, then move every parameter that has a gradient; gives the norm of the gradients before clipping."""
        self._set_rates(lr_scale)
        return self._move()

    def recorded(self) -> Callable[[float], Tensor]:
        """`step` as a CUDA graph, for gradients that stay where they are; after some ordinary steps.

        Hundreds of small launches then cost the host next to nothing. Learning rates are tensors from now on.
        """
        rates: dict[float, Tensor] = {}  # equal ones share a tensor: each is a launch of its own at every step
        for optimizer in self._both():
            for group in optimizer.param_groups:
                rate = torch.tensor(float(group["lr"]), device=self.skipped.device)
                group["lr"] = rates.setdefault(self._rate(optimizer, group), rate)
                group["capturable"] = True
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

    def _both(self) -> list[torch.optim.Optimizer]:
        return [optimizer for optimizer in (self._muon, self._rest) if optimizer is not None]

    def _rate(self, optimizer: torch.optim.Optimizer, group: dict[str, Any], lr_scale: float = 1.0) -> float:
        if optimizer is self._muon:
            return self.config.muon_learning_rate * lr_scale  # it multiplies with the group's own
        return self.config.learning_rate * lr_scale * group["rate"]

    def _set_rates(self, lr_scale: float) -> None:
        tensors: dict[Tensor, float] = {}
        for optimizer in self._both():
            for group in optimizer.param_groups:
                rate = self._rate(optimizer, group, lr_scale)
                if isinstance(group["lr"], Tensor):
                    tensors[group["lr"]] = rate
                else:
                    group["lr"] = rate
        for tensor, rate in tensors.items():
            tensor.fill_(rate)

    def _move(self) -> Tensor:
        gradients = [p.grad for p in self._parameters.values() if p.grad is not None]
        norm, factor = clipping(gradients, self.config.clip_norm, scale=self.config.loss_scale)
        is_lost = ~(norm < float("inf"))  # nor is NaN
        self.skipped += is_lost
        if self._muon is not None:
            self._muon.factor, self._muon.is_lost = factor, is_lost
            self._muon.step()
        if self._rest is not None:
            own = [p.grad for group in self._rest.param_groups for p in group["params"] if p.grad is not None]
            torch._foreach_mul_(own, factor)
            if isinstance(self._rest, torch.optim.Adagrad):  # moved by gradients alone, and knows no other way
                for gradient in own:
                    gradient.masked_fill_(is_lost, 0)
            else:
                # torch's name for it: AdamW then leaves all as it is.
                self._rest.found_inf = is_lost.float()  # pyright: ignore[reportAttributeAccessIssue]
            self._rest.step()
        return norm

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for parameter in self._parameters.values():
            parameter.grad = None

    def set_trainable(self, groups: Collection[str]) -> None:
        """Let these layer groups learn and freeze the others; what a frozen one has learned of its steps is kept."""
        unknown = set(groups) - set(self.groups)
        if unknown:
            raise ConfigError(f"no layer group is called {sorted(unknown)[0]!r}: use some of {', '.join(self.groups)}")
        for group, names in self._members.items():
            for name in names:
                self._parameters[name].requires_grad_(group in groups)
                if group not in groups:
                    self._parameters[name].grad = None

    def state_dict(self) -> dict[str, Any]:
        """Everything a resumed run needs to go on exactly, as tensors and plain values."""
        return {
            "optimiser": self.config.optimiser,
            "muon": None if self._muon is None else {"names": self._names(self._muon), **_state(self._muon)},
            "rest": None if self._rest is None else {"names": self._names(self._rest), **_state(self._rest)},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from this state; learning rates and the like are this optimiser's own."""
        if state.get("optimiser") != self.config.optimiser:
            raise CheckpointError(
                f"the checkpoint was trained by {state.get('optimiser')!r}, this run by {self.config.optimiser!r}: "
                "resume with the same optimiser, or start anew from its model with --from"
            )
        for key, optimizer in (("muon", self._muon), ("rest", self._rest)):
            saved = state[key]
            if optimizer is None and saved is None:
                continue
            if optimizer is None or saved is None or saved["names"] != self._names(optimizer):
                raise CheckpointError(
                    "the optimiser's state belongs to other parameters than this network has: "
                    "resume with the same model and output layer"
                )
            own_groups = optimizer.state_dict()["param_groups"]
            optimizer.load_state_dict({"state": saved["state"], "param_groups": own_groups})

    def _names(self, optimizer: torch.optim.Optimizer) -> list[str]:
        names = {id(parameter): name for name, parameter in self._parameters.items()}
        return [names[id(parameter)] for group in optimizer.param_groups for parameter in group["params"]]

    def _rates(self) -> dict[str, float]:
        """The multiplier of each group's learning rate."""
        rates = {group: self.config.layer_decay**-depth for depth, group in enumerate(reversed(self.groups))}
        return {group: rate * (self.config.output_rate if group == "softmax" else 1) for group, rate in rates.items()}

    def _build_muon(self, names: set[str]) -> Muon:
        groups = []
        for group, rate in self._rates().items():
            for parts in (1, 4):
                params = [
                    self._parameters[name]
                    for name in self._members[group]
                    if name in names and self._matrices[name] == parts
                ]
                if params:
                    groups.append({"params": params, "parts": parts, "rate": rate})
        return Muon(groups, momentum=self.config.momentum, weight_decay=self.config.weight_decay)

    def _build_rest(self, names: Collection[str]) -> torch.optim.Optimizer:
        groups = []
        for group, rate in self._rates().items():
            for decays in (True, False):
                members = [n for n in self._members[group] if n in names and (n in self._matrices) == decays]
                if members:
                    params = [self._parameters[name] for name in members]
                    settings = {"rate": rate, "weight_decay": self.config.weight_decay if decays else 0.0}
                    if groups and groups[-1] == {**settings, "params": groups[-1]["params"]}:
                        groups[-1]["params"] += params  # every group is some launches more
                    else:
                        groups.append({"params": params, **settings})
        if self.config.optimiser == "adagrad":
            # TensorFlow's: the sum of squares starts at 1, and nothing is added to its root.
            return torch.optim.Adagrad(groups, initial_accumulator_value=1.0, eps=0.0)
        return torch.optim.AdamW(groups, betas=self.config.betas, eps=self.config.epsilon, fused=True)


def clipping(gradients: list[Tensor], bound: float | None, *, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    """The joint norm of these gradients times `scale`, and the factor that makes it at most `bound` (and has `scale`).

    Both are tensors: asking for their values here would make the device stop at every step.
    """
    if not gradients:
        return torch.zeros(()), torch.ones(())
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients))) * scale
    if bound is None:
        return norm, torch.full_like(norm, scale)
    return norm, scale * (bound / (norm + 1e-6)).clamp(max=1.0)


def layer_groups(network: nn.Module) -> dict[str, list[str]]:
    """Names of the parameters of each layer group, from the bottom to the top: words, layer1, layer2, …, softmax."""
    members: dict[str, list[str]] = {}
    for name, _ in network.named_parameters():
        members.setdefault(_group_of(name), []).append(name)
    layers = sorted((group for group in members if group.startswith("layer")), key=lambda group: int(group[5:]))
    return {group: members[group] for group in ("words", *layers, "softmax") if group in members}


def _group_of(name: str) -> str:
    layer = re.search(r"(?:forward|backward)_layers\.(\d+)\.", name)
    if layer:
        return f"layer{int(layer[1]) + 1}"
    return "softmax" if re.search(r"(?:^|\.)softmax\.", name) else "words"


def _matrices(network: nn.Module) -> dict[str, int]:
    """The weights that are matrices of encoder and LSTMs, and how many matrices lie side by side in each.

    Tables are no matrices in this sense: their rows are words or characters, and most get no gradient in a step.
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
    outputs = [f"{path}." for path, module in network.named_modules() if isinstance(module, Softmax)]
    known = dict(network.named_parameters())
    return {
        name: parts
        for name, parts in matrices.items()
        if name in known and _group_of(name) != "softmax" and not name.startswith(tuple(outputs))
    }


def _state(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    return {"state": optimizer.state_dict()["state"]}
