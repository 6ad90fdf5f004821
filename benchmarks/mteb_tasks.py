"""ELMo under MTEB's own runner: relatedness of sentences and classification of sentences, from local files.

    python benchmarks/mteb_tasks.py DATA [--model en-small] [--pooling mean] [--device cpu] [--output scores.json]

    DATA/sick/SICK_*.txt                    relatedness of 9,927 pairs, all of SICK, as many as MTEB's SICK-R has
    DATA/trec/TREC.{train,test}             six kinds of questions
    DATA/sst5/{train,test}.txt              five grades of opinion
    DATA/subj/subj.{objective,subjective}   two kinds of sentences; every tenth is for testing, as there is no split

Files that are not there are left out; folders may lie deeper in DATA. The tasks are MTEB's `AbsTaskSTS` and
`AbsTaskClassification` as they are (classification: logistic regression on 8 sentences per label, mean of 10 draws),
only their data come from files, because the hub's copies cannot be had offline. The encoder is sentence-transformers'
stock `Transformer` and `Pooling`. Needs: pip install 'elmokit[transformers]' sentence-transformers mteb
"""

import argparse
import csv
import json
import tempfile
from importlib.metadata import version
from pathlib import Path

import mteb
from datasets import Dataset, DatasetDict
from mteb.abstasks import AbsTaskClassification, AbsTaskSTS
from mteb.abstasks.task_metadata import TaskMetadata
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

from elmokit.integrations.transformers import ElmoModel, ElmoTokenizer
from elmokit.tasks.data.trees import read_trees


def make_encoder(source, *, pooling="mean", device="cpu"):
    """Any source of elmokit as a SentenceTransformer."""
    with tempfile.TemporaryDirectory() as folder:
        ElmoModel.from_elmokit(source).save_pretrained(folder)
        ElmoTokenizer.from_elmokit(source).save_pretrained(folder)
        words = Transformer(folder)
    return SentenceTransformer(
        modules=[words, Pooling(words.get_embedding_dimension(), pooling_mode=pooling)], device=device
    )


def make_task(base, name, splits, *, main_score):
    """A task of MTEB whose data are here: columns of each split."""
    kind = "STS" if base is AbsTaskSTS else "Classification"

    class LocalTask(base):
        metadata = TaskMetadata(
            name=name,
            dataset={"path": "local", "revision": "local"},
            description=f"{name}, read from local files",
            type=kind,
            category="t2t" if kind == "STS" else "t2c",
            eval_splits=["test"],
            eval_langs=["eng-Latn"],
            main_score=main_score,
        )
        min_score, max_score = 1, 5  # of SICK; classification does not ask

        def load_data(self, *args, **kwargs):
            self.dataset = DatasetDict({split: Dataset.from_dict(columns) for split, columns in splits.items()})
            self.data_loaded = True

    return LocalTask()


def make_relatedness_task(name, pairs):
    """Of pairs (sentence, sentence, score)."""
    first, second, scores = (list(column) for column in zip(*pairs, strict=True))
    columns = {"sentence1": first, "sentence2": second, "score": [float(score) for score in scores]}
    return make_task(AbsTaskSTS, name, {"test": columns}, main_score="cosine_spearman")


def make_classification_task(name, *, train, test):
    """Of examples (label, text); MTEB's classifiers take numbers for labels."""
    numbers = {label: number for number, label in enumerate(sorted({label for label, _ in train}))}
    splits = {}
    for split, examples in (("train", train), ("test", test)):
        splits[split] = {"label": [numbers[label] for label, _ in examples], "text": [text for _, text in examples]}
    return make_task(AbsTaskClassification, name, splits, main_score="accuracy")


def find_tasks(data):
    """The tasks whose files are in a folder."""
    if pairs := sorted(data.rglob("SICK_*.txt")):
        rows = []
        for path in pairs:
            with path.open(encoding="utf-8", newline="") as file:
                rows += list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
        yield make_relatedness_task(
            "SICK-R-local", [(row["sentence_A"], row["sentence_B"], row["relatedness_score"]) for row in rows]
        )
    for folder in {path.parent for path in data.rglob("TREC.train")}:
        train, test = (read_trec(folder / f"TREC.{split}") for split in ("train", "test"))
        yield make_classification_task("TREC-6-local", train=train, test=test)
    for folder in {path.parent for path in data.rglob("sst5/train.txt")}:
        train, test = (read_sst(folder / f"{split}.txt") for split in ("train", "test"))
        yield make_classification_task("SST-5-local", train=train, test=test)
    for folder in {path.parent for path in data.rglob("subj.objective")}:
        examples = []
        for label in ("objective", "subjective"):
            lines = (folder / f"subj.{label}").read_text(encoding="latin-1").splitlines()
            examples += [(label, line.strip()) for line in lines if line.strip()]
        train = [example for number, example in enumerate(examples) if number % 10]
        yield make_classification_task("Subj-local", train=train, test=examples[::10])


def read_trec(path):
    """(label, text) of lines such as `NUM:dist How far is it ?`, which are in Latin-1."""
    lines = path.read_text(encoding="latin-1").splitlines()
    return [(line.partition(":")[0], line.partition(" ")[2]) for line in lines if line.strip()]


def read_sst(path):
    """(label, text) of the whole trees."""
    return [(example.label, " ".join(example.words)) for example in read_trees(path)]


def run(encoder, tasks, *, batch_size=32):
    """The main score of each task, by MTEB's runner."""
    result = mteb.evaluate(encoder, tasks, cache=None, encode_kwargs={"batch_size": batch_size})
    return {each.task_name: round(100 * each.get_score(), 2) for each in result.task_results}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--model", default="en-small")
    parser.add_argument("--pooling", default="mean")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    tasks = list(find_tasks(given.data))
    if not tasks:
        parser.error(f"{given.data}: none of the files that this script knows (--help lists them)")
    names = ("torch", "transformers", "sentence-transformers", "mteb", "datasets", "scikit-learn")
    found = {
        "model": given.model,
        "pooling": given.pooling,
        "scores": run(make_encoder(given.model, pooling=given.pooling, device=given.device), tasks),
        "versions": {name: version(name) for name in names},
    }
    text = json.dumps(found, indent=2)
    print(text)
    if given.output:
        given.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
