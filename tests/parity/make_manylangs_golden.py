"""Make `data/manylangs-*`: small random models and the vectors that ELMoForManyLangs itself gives for them.

    python make_manylangs_golden.py

Run once, in an environment with `torch==2.13.0 overrides==3.1.0 elmoformanylangs==0.0.4.post2`. Its `Embedder` shuffles
batches and never forgets its state, so the model is called directly, batch by batch in a fixed order (`carry`), and the
`Embedder` itself on one batch from a fresh start (`zero`). The tests read what this leaves; they never run it.
"""

import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import torch  # noqa: E402
from elmoformanylangs import Embedder  # noqa: E402  # pyright: ignore[reportMissingImports]
from elmoformanylangs.elmo import read_list  # noqa: E402  # pyright: ignore[reportMissingImports]
from elmoformanylangs.frontend import create_one_batch  # noqa: E402  # pyright: ignore[reportMissingImports]
from random_models import write_manylangs  # noqa: E402

DATA = Path(__file__).parent / "data"
LONG = "abcdefghij" * 6
MODELS = {
    # The word dictionary holds a word as the package cuts it: 48 characters.
    "manylangs-words-and-characters": {"words": ("the", "bank", "river", "Übermut", "\u3000", LONG[:48])},
    "manylangs-characters-tight-clips": {"word_dim": 0, "layers": 3, "highways": 1, "cell_clip": 0.2, "proj_clip": 0.1,
                                         "columns": 12, "config_path": "/somewhere/else/characters.json"},
    "manylangs-words": {"char_dim": 0, "activation": "tanh", "words": ("the", "bank", LONG[:48], ".")},
}  # fmt: skip
# Batches of 3, 1 and 4 rows: the state shrinks, then grows.
BATCHES = [
    [["the", "river", "bank"], ["Übermut", "!"], ["x"]],
    [["銀行", "🏦", "\u3000", "the"]],
    [["<bos>", "quoted", "<eos>", "<oov>", "<pad>"], [LONG, LONG[:48], LONG[:47]], ["e\u0301"], ["the", "bank", "."]],
]


def main() -> None:
    torch.set_num_threads(1)
    with torch.no_grad():
        for seed, (name, options) in enumerate(MODELS.items()):
            folder = write_manylangs(DATA / name, np.random.default_rng(100 + seed), **options)
            arrays = {}
            carrying = Embedder(str(folder))
            columns = carrying.config["token_embedder"]["max_characters_per_token"]
            for number, sentences in enumerate(BATCHES):
                words, _ = read_list(sentences, columns)
                batch_words, batch_letters, _, masks = create_one_batch(
                    words, carrying.word_lexicon, carrying.char_lexicon, carrying.config, sort=False
                )
                arrays[f"carry_{number}"] = carrying.model.forward(batch_words, batch_letters, masks).numpy()
                arrays[f"mask_{number}"] = masks[0].numpy().astype(bool)
            # Sorted by length and back again, in one batch of its own: the same vectors for every order of sentences.
            for row, layers in enumerate(Embedder(str(folder)).sents2elmo(BATCHES[2], output_layer=-2)):
                arrays[f"zero_2_{row}"] = layers
            np.savez_compressed(folder / "golden.npz", **arrays)
    facts = {"batches": BATCHES, "elmoformanylangs": "0.0.4.post2", "torch": torch.__version__}
    (DATA / "manylangs-sentences.json").write_text(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
