"""What a recorded training step launches on a GPU, counted on a machine that has none: launches and bytes by operation.

    PYTHONPATH=src python benchmarks/launches_without_gpu.py [--presets small original] [--output sampled] [--top 40]

The step and the optimiser's move run on tensors without contents (torch's fake ones) at their real sizes, along the
paths that a GPU takes; every operation of torch that computes something is counted as one launch that reads its inputs
and writes its outputs once, and so is every Triton kernel. A count of bytes is a floor of what travels, not a time. The
kernels of the recurrence get whole tables of which they use a part, so their bytes are left out.
"""

import argparse
import dataclasses
import warnings
from collections import Counter
from types import SimpleNamespace

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from triton.runtime.jit import JITFunction

from elmokit.engines.loss import linear_cross_entropy
from elmokit.engines.recurrence import triton as lstm_engine
from elmokit.engines.words import char_cnn, highway
from elmokit.nn import bilm, output_layer, word_encoder
from elmokit.nn.operations import Choice
from elmokit.pretrain import network, stepping
from elmokit.pretrain.batches.preparing import Layout, join_arrays
from elmokit.pretrain.optim import muon
from elmokit.pretrain.optim.optimiser import Optimiser
from elmokit.pretrain.recipes import recipe_named

BLOCKS = ((2688, 16), (4672, 24), (64, 50))  # what the benchmark corpus was laid out in
ROWS, LENGTH, NEGATIVES, VOCABULARY = 820, 25, 8192, 100_000
NO_LAUNCH = ("prim::", "profiler::", "empty", "new_empty", "detach", "view", "alias", "lift", "promote_types", "scalar")
STEP_KERNELS = ("forward_kernel", "backward_kernel")
BY_ADDRESS = {"_mix_kernel": 3, "_subtract_kernel": 2}  # tensors as large as the updates, found by addresses


class Counting(TorchDispatchMode):
    """Counts what computes."""

    def __init__(self):
        super().__init__()
        self.launches, self.bytes = Counter(), Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.removeprefix("aten::")
        is_view = any(a.alias_info is not None and not a.alias_info.is_write for a in func._schema.arguments)
        if not is_view and not name.lstrip("_").startswith(NO_LAUNCH):
            self.count(name, (args, result if not name.endswith("_") else None))
        return result

    def count(self, name, tensors):
        tensors = [t for t in tree_leaves(tensors) if isinstance(t, torch.Tensor)]
        # A foreach operation takes about so many tensors a launch.
        self.launches[name] += max(1, len(tensors) // 100)
        if name not in STEP_KERNELS:
            self.bytes[name] += sum(t.numel() * t.element_size() for t in tensors)
            if name in BY_ADDRESS:
                self.bytes[name] += BY_ADDRESS[name] * 4 * tensors[1].numel()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--presets", nargs="+", default=["small", "original"])
    parser.add_argument("--output", default="sampled", choices=("sampled", "full"))
    parser.add_argument("--top", type=int, default=40)
    args = parser.parse_args()
    take_the_paths_of_a_gpu()
    warnings.filterwarnings("ignore", "Accessing the data pointer of FakeTensor")
    for preset in args.presets:
        for part, counted in counts_of(preset, args.output).items():
            total = sum(counted.bytes.values())
            print(f"\n{preset} {args.output}, {part}: {sum(counted.launches.values())} launches, {total / 1e6:,.0f} MB")
            for name, number in sorted(counted.launches.items(), key=lambda item: -counted.bytes[item[0]])[: args.top]:
                print(f"{number:6d} {counted.bytes[name] / 1e6:10,.1f} MB  {name}")


def counts_of(preset, output):
    config = dataclasses.replace(recipe_named(preset), precision="bfloat16", output=output, vocabulary_size=VOCABULARY)
    counted = {"step": Counting(), "optimiser": Counting()}
    with FakeTensorMode(allow_non_fake_inputs=True):
        layer = output_layer.OutputLayer(VOCABULARY, config.model.lstm.projection_dim)
        built = network.LanguageModelNetwork(config.model, layer, dropouts=(0.1, 0.1, 0.1), dtype=torch.bfloat16)
        layout = Layout(BLOCKS, 261, config.widest_filter)
        stepper = stepping.GraphStepper(built, layout)
        optimizer = Optimiser(built, config)
        run = stepper._record(*inputs(output)).replay
        for part in (*[None] * 2, counted):  # the optimiser makes its state at first
            for name, work in (("step", lambda: (stepper.zero_grad(), run())), ("optimiser", optimizer._move)):
                if part is None:
                    work()
                else:
                    with part[name]:
                        LISTENING[:] = [part[name]]
                        work()
                    LISTENING.clear()
    return counted


def inputs(output):
    words = ROWS * LENGTH
    arrays = [np.zeros(shape, np.int16) for shape in BLOCKS]
    arrays += [np.zeros((2, words), np.int32), np.zeros((2, words), np.int32), np.zeros(words, np.int64)]
    arrays += [np.zeros(1, np.int64)]
    if output == "sampled":
        arrays += [np.zeros(NEGATIVES, np.int64), np.zeros(NEGATIVES, np.float32), np.zeros((2, words), np.float32)]
    batch = SimpleNamespace(global_tokens=words, num_rows=ROWS, batch_sizes=[ROWS] * LENGTH)
    prepared = SimpleNamespace(batch=batch, negatives=arrays[len(BLOCKS) + 4 :])
    return torch.empty(join_arrays(arrays).numel(), dtype=torch.uint8), arrays, prepared


LISTENING = []


def take_the_paths_of_a_gpu():
    """Triton's kernels are chosen, and counted instead of launched; operators of our own are looked into."""
    for module in (network, muon):
        if hasattr(module, "why_no_triton"):
            module.why_no_triton = lambda *_: None
    for module in (bilm, output_layer, word_encoder):
        module.choose = lambda request: Choice("triton", "as on a GPU")
    stepping.record_launches = lambda run, pool: run
    JITFunction.run = lambda kernel, *args, **flags: [c.count(kernel.__name__, args) for c in LISTENING]
    for module, *names in (
        (lstm_engine, "_lstmp", "_lstmp_backward"),
        (char_cnn, "best", "best_backward"),
        (highway, "_rectified", "_rectified_backward", "_highway", "_highway_backward"),
        (linear_cross_entropy, "_forward_op", "_weight_op"),
    ):
        for name in names:
            setattr(module, name, looked_into(getattr(module, name)))


def looked_into(operator):
    if operator._backward_fn is None:
        return operator._init_fn
    members = {
        "forward": staticmethod(operator._init_fn),
        "setup_context": staticmethod(operator._setup_context_fn),
        "backward": staticmethod(operator._backward_fn),
    }
    return type("LookedInto", (torch.autograd.Function,), members).apply


if __name__ == "__main__":
    main()
