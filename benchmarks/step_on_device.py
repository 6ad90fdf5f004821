"""Is what surrounds a training step's large matmuls the same on a GPU as in plain torch, and how long does it take?

    PYTHONPATH=src python benchmarks/step_on_device.py [--preset small]

Dropout, bias with relu, highways, Muon and the skipping of lost steps, each compared with torch's operations on the
same device, the optimiser also recorded as a CUDA graph. Prints one line each: the largest relative difference, the
bound it must keep, and milliseconds of ours and torch's. Fails if a bound is not kept. Without a GPU it runs a tiny
model through Triton's interpreter (TRITON_INTERPRET=1), to prove itself.
"""

import argparse
import os
import time

import torch

from elmokit import engines
from elmokit.config import CharConfig, ElmoConfig, LstmConfig
from elmokit.engines.words import highway
from elmokit.nn.output_layer import OutputLayer
from elmokit.nn.word_encoder import REFERENCE, Highway
from elmokit.pretrain import network
from elmokit.pretrain.optim import muon
from elmokit.pretrain.optim.optimiser import Optimiser
from elmokit.pretrain.recipes import TrainConfig

TINY = ElmoConfig(
    CharConfig(filters=((1, 16), (3, 48)), num_highways=1), lstm=LstmConfig(cell_dim=64, projection_dim=16)
)
ON_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if ON_GPU else "cpu")
WHY_NOT = engines.why_no_triton if ON_GPU else (lambda device, dtype: None)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="small", choices=("small", "medium", "original"))
    args = parser.parse_args()
    assert ON_GPU or os.environ.get("TRITON_INTERPRET") == "1", "no GPU: set TRITON_INTERPRET=1"
    torch.manual_seed(0)
    config = getattr(ElmoConfig, args.preset)() if ON_GPU else TINY
    words, dtype = (7424, torch.bfloat16) if ON_GPU else (100, torch.float32)
    half = 2e-2 if ON_GPU else 1e-5  # relative to the norm: bfloat16 has 8 bits
    print(f"{'':32s}{'difference':>12s}{'bound':>8s}{'ours ms':>9s}{'torch ms':>10s}")
    check_dropout(config.lstm.projection_dim)
    features = config.characters.num_features
    values = torch.randn(words, features)
    check_encoder("bias and relu", highway.add_and_rectify, rectify, (values, values[0]), dtype, half)
    (gate, gate_bias), (transform, transform_bias) = Highway(features).weights()
    weights = (values, gate, gate_bias, transform, transform_bias)
    fused = lambda x, g, gb, t, tb: highway.highway(x, (g, gb), (t, tb))  # noqa: E731
    plain = lambda x, g, gb, t, tb: REFERENCE.pass_highway(x, (g, gb), (t, tb))  # noqa: E731
    check_encoder("highway", fused, plain, weights, dtype, half)
    check_muon(config, 5e-2)  # five matmuls in bfloat16, in which small differences grow
    check_lost_steps(config)


def report(name, difference, bound, ours=None, torchs=None):
    times = "".join("        -" if ms is None else f"{ms:9.3f}" for ms in (ours, torchs))
    print(f"{name:32s}{difference:12.2e}{bound:8.0e}{times}", flush=True)
    assert difference <= bound, f"{name}: differs by {difference}"


def timed(run, times=20):
    """Milliseconds of a run, or `None` where there is no GPU to time."""
    if not ON_GPU:
        return None
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(times):
        run()
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - start) / times


def apart(found, expected):
    """The largest difference of two lists of tensors, each relative to its norm."""
    pairs = [(one.double(), other.double()) for one, other in zip(found, expected, strict=True)]
    return max(((one - other).norm() / other.norm().clamp_min(1e-30)).item() for one, other in pairs)


def check_dropout(width):
    values, keys = torch.randn(20_480 if ON_GPU else 50, width), torch.arange(20_480 if ON_GPU else 50) * 977
    seed = torch.tensor((5 << 32) + 77)
    network.why_no_triton = lambda *_: "for comparison"
    expected = network.keyed_dropout(values, keys, seed=seed, place=3, rate=0.1)
    moved = [tensor.to(DEVICE) for tensor in (values, keys.int())]
    network.why_no_triton = WHY_NOT
    found = network.keyed_dropout(*moved, seed=seed.to(DEVICE), place=3, rate=0.1)
    ours = timed(lambda: network.keyed_dropout(*moved, seed=seed.to(DEVICE), place=3, rate=0.1))
    report("dropout, against a CPU", apart([found.cpu()], [expected]), 0.0, ours)


def rectify(features_NF, bias_F):
    return (features_NF + bias_F).relu()


def check_encoder(name, ours, plain, tensors, dtype, bound):
    inputs = [tensor.detach().to(DEVICE, dtype).requires_grad_() for tensor in tensors]
    upstream = torch.randn(inputs[0].shape, device=DEVICE).to(dtype)
    results = []
    for function in (ours, plain):

        def run(function=function):
            values = function(*inputs)
            return values, *torch.autograd.grad(values, inputs, upstream)

        results.append(([tensor.detach() for tensor in run()], timed(run)))
    report(f"{name}, both passes", apart(results[0][0], results[1][0]), bound, results[0][1], results[1][1])


def trained(config):
    """A network, its optimiser, and gradients that stay where they are."""
    torch.manual_seed(1)
    built = network.LanguageModelNetwork(config, OutputLayer(1000, config.lstm.projection_dim)).to(DEVICE)
    for parameter in built.parameters():
        parameter.grad = 0.01 * torch.randn_like(parameter)
    return built, Optimiser(built, TrainConfig(weight_decay=0.01))


def check_muon(config, bound):
    moves, times = [], []
    for why_not in (WHY_NOT, lambda *_: "for comparison"):
        muon.why_no_triton = why_not
        built, optimizer = trained(config)
        before = [parameter.detach().clone() for parameter in built.body.parameters()]
        for _ in range(2):
            optimizer.step(0.5)
        moves.append([after.detach() - old for after, old in zip(built.body.parameters(), before, strict=True)])
        times.append(timed(lambda step=optimizer.step: step(0.5)))
    muon.why_no_triton = WHY_NOT
    report("optimiser, what it moved", apart(*moves), bound, *times)


def check_lost_steps(config):
    built, optimizer = trained(config)
    for _ in range(4):
        optimizer.step(0.5)
    move = optimizer.record() if ON_GPU else optimizer.step
    move(0.5)
    weight = next(built.body.bilm.parameters())
    kept = weight.grad[0, 0].item()
    before = [parameter.detach().clone() for parameter in built.parameters()]
    weight.grad[0, 0] = float("inf")
    move(0.5)
    report("a lost step moves", apart(built.parameters(), before), 0.0)
    assert optimizer.skipped.item() == 1
    for parameter in built.parameters():  # what AdamW was to see has been multiplied with NaN
        parameter.grad.normal_()
    weight.grad[0, 0] = kept
    move(0.5)
    assert all(parameter.isfinite().all() for parameter in built.parameters()) and optimizer.skipped.item() == 1
    assert apart(built.parameters(), before) > 0, "the step after a lost one must move"
    if ON_GPU:
        print(f"{'optimiser, recorded':52s}{timed(lambda: move(0.5)):9.3f}")


if __name__ == "__main__":
    main()
