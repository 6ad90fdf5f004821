"""ko-small and zh-small, the short trials that say how they should read, and the tasks that say what they are worth.

    python recipes/korean_and_chinese.py DATA OUT [--scale 1] [--recipe small] [--jobs 9] [--epochs N]

DATA holds, for training, ko-turns.tok.xz (ko-train.txt.xz by recipes/tokenise_korean.py) and zh-train.txt.xz; for the
trials ko-part-{words,pieces,turns}.tok.xz (the first 60,000 paragraphs in each convention) and zh-words.tok.xz (the
words of a Chinese segmenter); ko-heldout-{words,pieces}.tok and zh-heldout-{chars,words}.tok; and
tasks/SET-{train,dev,test}.* of the sets named in SETS. Both models are trained while the trials run beside them: on one
GPU start NVIDIA's MPS first. OUT gets the models, `-half` folders in float16 and int8, logs/, scores.jsonl and tasks/.
`--scale 0.0001 --recipe tiny_cpu --epochs 1` rehearses it on a CPU. On one H200 the models take 6 minutes, or
7.5 with the trials beside them, and their tasks 4; run a trial again alone if it found the GPU's memory taken.
"""

import argparse
import json
import math
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

TRIAL_WORDS, FINAL_WORDS = 25e6, 260e6
UNICODE = ["--characters.scheme", "unicode"]
KO_HELD, ZH_HELD = ["ko-heldout-words.tok", "ko-heldout-pieces.tok"], ["zh-heldout-chars.tok"]
TRIALS = [  # name, text, vocabulary, options, texts to score
    ("ko-words", "ko-part-words.tok.xz", 90_000, [], KO_HELD[:1]),
    ("ko-pieces", "ko-part-pieces.tok.xz", 90_000, [], KO_HELD[1:]),
    ("ko-turns", "ko-part-turns.tok.xz", 90_000, [], KO_HELD),
    ("zh-chars", "zh-train.txt.xz", 12_000, [], ZH_HELD),
    ("zh-words", "zh-words.tok.xz", 90_000, [], ["zh-heldout-words.tok"]),
    ("ko-turns-unicode", "ko-part-turns.tok.xz", 90_000, UNICODE, KO_HELD),
    ("zh-chars-unicode", "zh-train.txt.xz", 12_000, UNICODE, ZH_HELD),
]
FINALS = [
    ("ko-small", "ko-turns.tok.xz", 90_000, ["--dropout", "0.15"], KO_HELD),
    ("zh-small", "zh-train.txt.xz", 12_000, ["--dropout", "0.15"], ZH_HELD),
]
SETS = {  # set, task, suffix, seeds, options
    "ko": [
        ("nsmc", "classify", "tsv", 3, ["--set", "words=segment", "--epochs", "12"]),
        ("klp", "tag", "conll", 2, ["--epochs", "20", "--batch-size", "64"]),
    ],
    "zh": [
        ("hotel", "classify", "tsv", 3, ["--set", "words=segment", "--epochs", "16"]),
        ("weibo", "tag", "conll", 3, ["--epochs", "30"]),
        ("waimai", "classify", "tsv", 2, ["--set", "words=segment", "--epochs", "12"]),
        ("msra", "tag", "conll", 2, ["--epochs", "12", "--batch-size", "64"]),
    ],
}
ELMO = [sys.executable, "-m", "elmokit"]
began = time.monotonic()
speaking = threading.Lock()


def say(*parts):
    with speaking:
        print(f"{time.monotonic() - began:6.0f} s ", *parts, flush=True)


def train(asked, name, text, vocabulary, options, held, words):
    """Train one model; whether that worked."""
    command = [*ELMO, "train", str(asked.data / text), "-o", str(asked.out / name), "--recipe", asked.recipe]
    command += ["--vocabulary-size", str(vocabulary), "--tokens", str(int(words * asked.scale)), *options]
    command += ["--held-out", str(asked.data / held[0]), "--held-out-tokenised"]
    command += ["--evaluate-every", str(int(words / 4)), "--checkpoint-every", "1e12"]
    command += ["--tokenised"] * text.endswith(".tok.xz")
    say(*command[2:])
    with (asked.out / "logs" / f"{name}.out").open("w") as out:
        code = subprocess.run(command, stdout=out, stderr=out).returncode
    if code:
        say(name, "failed with exit code", code)
        return False
    log = asked.out / f"{name}.training" / "log.jsonl"
    (asked.out / "logs" / f"{name}.jsonl").write_text(log.read_text(encoding="utf-8"), encoding="utf-8")
    return True


def score(asked, name, texts):
    """Perplexity and bits per UTF-8 byte; a word outside the vocabulary costs `<UNK>` and its spelling by a unigram."""
    from elmokit import LanguageModel

    model = LanguageModel.from_pretrained(asked.out / name)
    known, frequencies = set(model.output_words), Counter()
    for rank, word in enumerate(model.output_words[3:], start=1):  # words are sorted by frequency: Zipf's law
        for character in (*word, "\n"):
            frequencies[character] += 1 / rank
    total = sum(frequencies.values())

    def spell(word):
        return sum(-math.log2((frequencies[character] + 1e-4) / (total + 2)) for character in (*word, "\n"))

    for text in texts:
        sentences = [line.split() for line in (asked.data / text).open(encoding="utf-8") if line.strip()]
        result = model.perplexity(sentences)
        words = [word for sentence in sentences for word in sentence]
        bits, size = result.tokens * math.log2(result.mean), sum(len(word.encode()) for word in words)
        spelled = sum(spell(word) for word in words if word not in known)
        row = {"model": name, "text": text, "perplexity": result.mean, "forward": result.forward}
        row |= {"backward": result.backward, "tokens": result.tokens, "oov_rate": result.oov_rate}
        row |= {"bits_per_byte": bits / size, "bits_per_byte_spelled": (bits + spelled) / size}
        say(json.dumps(row))
        with (asked.out / "scores.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")


def run_trials(asked, trials):
    for name, text, vocabulary, options, texts in trials:
        if train(asked, f"trial-{name}", text, vocabulary, options, texts, TRIAL_WORDS):
            score(asked, f"trial-{name}", texts)


def make_model(asked, name, text, vocabulary, options, texts):
    if not train(asked, name, text, vocabulary, options, texts, FINAL_WORDS):
        return
    half = f"{name}-half"
    subprocess.run([sys.executable, "recipes/bundle.py", str(asked.out / name), str(asked.out / half)], check=True)
    score(asked, half, texts)
    jobs = [
        threading.Thread(target=run_task, args=(asked, key, task, suffix, options, elmo, seed))
        for key, task, suffix, seeds, options in SETS[name[:2]]
        for seed in range(seeds)
        for elmo in ("none", str(asked.out / half))
    ]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()


def run_task(asked, key, task, suffix, options, elmo, seed):
    arm = "baseline" if elmo == "none" else "elmo"
    parts = [(f"--{part}", str(asked.data / "tasks" / f"{key}-{part}.{suffix}")) for part in ("train", "dev", "test")]
    command = [*ELMO, "task", "train", task, *(word for pair in parts for word in pair), "--elmo", elmo]
    command += [*options, "--patience", "40", "--schedule", "slanted", "--learning-rate", "2e-3", "--seed", str(seed)]
    command += ["--layers-folder", str(asked.out / "layers" / key), "--results-only"]
    command += ["-o", str(asked.out / "tasks" / f"{key}-{arm}-{seed}")]
    command += [] if asked.epochs is None else ["--epochs", str(asked.epochs)]
    with asked.slots:
        run = subprocess.run(command, capture_output=True, text=True)
    results = asked.out / "tasks" / f"{key}-{arm}-{seed}" / "results.json"
    say(key, arm, seed, json.loads(results.read_text())["test"] if results.exists() else run.stderr.strip()[-300:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--recipe", default="small")
    parser.add_argument("--jobs", type=int, default=9)
    parser.add_argument("--epochs", type=int)
    asked = parser.parse_args()
    asked.slots = threading.Semaphore(asked.jobs)
    for folder in (asked.out / "logs", asked.out / "tasks", asked.out / "layers"):
        folder.mkdir(parents=True, exist_ok=True)
    work = [threading.Thread(target=make_model, args=(asked, *final)) for final in FINALS]
    work += [threading.Thread(target=run_trials, args=(asked, TRIALS[part::2])) for part in (0, 1)]
    for each in work:
        each.start()
    for each in work:
        each.join()
    say("done")


if __name__ == "__main__":
    main()
