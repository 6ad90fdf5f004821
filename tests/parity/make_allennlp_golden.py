"""Make `data/allennlp-*`: small random models and the vectors that AllenNLP's own code gives for them.

    python make_allennlp_golden.py SHIM_FOLDER

Run once, in an environment with `torch==2.13.0 numpy h5py tqdm more_itertools overrides==3.1.0` and
`allennlp==2.10.1` installed with `--no-deps`. SHIM_FOLDER holds `allennlp_shim.py`, which makes that release importable
on a current Python without touching the code that computes vectors. The tests read what this leaves; they never run it.
"""

import importlib
import json
import sys
from pathlib import Path

import numpy as np

sys.path[:0] = [sys.argv[1], str(Path(__file__).parent)]
importlib.import_module("allennlp_shim").install()
import torch  # noqa: E402
from allennlp.modules.elmo import Elmo, _ElmoBiLm, batch_to_ids  # noqa: E402  # pyright: ignore[reportMissingImports]
from allennlp.nn.util import remove_sentence_boundaries  # noqa: E402  # pyright: ignore[reportMissingImports]
from random_models import write_bilm  # noqa: E402

DATA = Path(__file__).parent / "data"
MODELS = {
    "allennlp-two-layers": {"layers": 2, "highways": 2},
    "allennlp-three-layers-tight-clips": {"layers": 3, "highways": 1, "cell_clip": 0.2, "proj_clip": 0.1},
    "allennlp-one-layer-no-clips": {"layers": 1, "highways": 1, "cell_clip": None, "proj_clip": None,
                                    "activation": "tanh", "filters": ((1, 3), (4, 5), (2, 4))},
}  # fmt: skip
# Batches of 3, 2, 5, 1, 4 and 2 rows: the state shrinks, grows and keeps what it does not use; one sentence is empty.
BATCHES = [
    [["The", "river", "bank", "."], ["Ein", "Übermut", "!"], ["x"]],
    [["naïve", "café", "銀行", "🏦🏦🏦"], ["She", "sat", "by", "the", "river", "bank", "."]],
    [["<S>", "quoted", "</S>"], ["a"] * 3, ["w" * 47 + "é" * 3, "w" * 60], ["ok"], ["<UNK>", "<bos>", "'s"]],
    [["k\u0301", "\u200b", "tab\tinside", " "]],
    [["again", "."], [], ["The", "river", "bank", "."], ["last", "one", "here"]],
    [["after"], ["the", "empty", "one"]],
]
# Ten batches of three rows, sentence i of a row following sentence i - 1 of it: what a user runs who embeds a text in
# `carry` mode. Rounding errors grow with the words that a state has read, so these are whole sentences.
LINES = [line.split() for line in (DATA / "carried-sentences.txt").read_text(encoding="utf-8").splitlines()]
MIXES = [([0.3, -1.2, 0.7, 1.9], 0.8), ([-9e10, 1.0, -9e10, -9e10], 1.0)]


def bilm(folder: Path) -> _ElmoBiLm:
    return _ElmoBiLm(str(folder / "options.json"), str(folder / "weights.hdf5")).eval()


def layers(model: _ElmoBiLm, ids: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Layers with boundaries (L + 1, B, W + 2, D), and without (L + 1, B, W, D)."""
    out = model(ids)
    bare = [remove_sentence_boundaries(layer, out["mask"])[0] for layer in out["activations"]]
    return torch.stack(list(out["activations"])).numpy(), torch.stack(bare).numpy()


def golden(folder: Path, num_layers: int) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}
    carrying = bilm(folder)
    for number, sentences in enumerate(BATCHES):
        ids = batch_to_ids(sentences)
        arrays[f"ids_{number}"] = ids.numpy().astype(np.int16)
        arrays[f"carry_{number}"], bare = layers(carrying, ids)
        if number == 2:
            arrays[f"carry_bare_{number}"] = bare
    arrays["zero_2"], _ = layers(bilm(folder), batch_to_ids(BATCHES[2]))
    for norm in (False, True):
        for keeps in (False, True):
            elmo = Elmo(str(folder / "options.json"), str(folder / "weights.hdf5"), len(MIXES), dropout=0.0,
                        do_layer_norm=norm, keep_sentence_boundaries=keeps).eval()  # fmt: skip
            for k, (weights, gamma) in enumerate(MIXES):
                mix = getattr(elmo, f"scalar_mix_{k}")
                for parameter, value in zip(mix.scalar_parameters, weights[:num_layers], strict=True):
                    parameter.data.fill_(value)
                mix.gamma.data.fill_(gamma)
            out = elmo(batch_to_ids(BATCHES[0]))
            for k, mixed in enumerate(out["elmo_representations"]):
                arrays[f"mix_{k}_norm_{int(norm)}_keep_{int(keeps)}"] = mixed.detach().numpy()
            arrays[f"mask_keep_{int(keeps)}"] = out["mask"].numpy()
    return arrays


def carried(folder: Path) -> dict[str, np.ndarray]:
    """The top layer of ten batches of three rows, state carried, and layer 0 of each distinct word, sorted."""
    model = bilm(folder)
    batches = [LINES[start : start + 3] for start in range(0, len(LINES), 3)]
    arrays = {f"top_{number}": layers(model, batch_to_ids(batch))[1][-1] for number, batch in enumerate(batches)}
    words = sorted({word for line in LINES for word in line})
    arrays["words"] = layers(bilm(folder), batch_to_ids([words]))[1][0, 0]
    return arrays


def main() -> None:
    torch.set_num_threads(1)
    with torch.no_grad():
        for seed, (name, options) in enumerate(MODELS.items()):
            folder = write_bilm(DATA / name, np.random.default_rng(seed), **options)
            arrays = golden(folder, options["layers"] + 1)
            np.savez_compressed(folder / "golden.npz", **arrays)
            np.savez_compressed(folder / "carried.npz", **carried(folder))
    facts = {"batches": BATCHES, "mixes": MIXES, "allennlp": "2.10.1", "torch": torch.__version__}
    (DATA / "allennlp-sentences.json").write_text(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
