"""The sample: complete, small, readable by the readers that it is for, and never written over what a user changed."""

from __future__ import annotations

import pytest

import elmokit
from elmokit import InputError, OutputError
from elmokit.cli import main
from elmokit.probe.pos import read_conllu
from elmokit.probe.rated.words import read_rated_pairs
from elmokit.probe.sense_data import read_sense_texts, read_wordnet
from elmokit.probe.wic import read_wic
from elmokit.tasks.data import Problems
from elmokit.tasks.data.columns import read_columns
from elmokit.tasks.data.conll_coref import read_conll_coref
from elmokit.tasks.data.propbank import read_propbank
from elmokit.tasks.data.tables import read_table
from elmokit.tasks.scores.spans import spans_of
from elmokit.text.sample import FILES

ALL = sorted(path.relative_to(FILES).as_posix() for path in FILES.rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return elmokit.sample(tmp_path_factory.mktemp("sample"))


def sentences_of(folder, task: str, part: str) -> list[tuple[str, ...]]:
    """The words of every sentence of a labelled file."""
    problems = Problems()
    if task == "names":
        return [example.words for example in read_columns(folder / f"names-{part}.conll", problems=problems)]
    if task == "questions":
        path = folder / f"questions-{part}.tsv"
        return [tuple(each.words) for each in read_table(path, splits=elmokit.words, problems=problems)]
    if task == "roles":
        return [example.words for example in read_propbank(folder / f"roles-{part}.jsonl", problems)]
    documents = read_conll_coref(folder / f"coref-{part}.conll", problems)
    return [sentence for document in documents for sentence in document.sentences]


def test_every_file_is_explained_and_all_together_are_small(folder):
    assert [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*")) if path.is_file()] == ALL
    about = (folder / "README.md").read_text(encoding="utf-8")
    assert [name for name in ALL if name not in about] == ["README.md"]
    assert sum((folder / name).stat().st_size for name in ALL) < 150_000


@pytest.mark.parametrize(("task", "least"), [("names", 200), ("questions", 200), ("roles", 80), ("coref", 60)])
def test_labelled_sentences_are_many_and_none_is_in_both_parts(folder, task, least):
    train, dev = sentences_of(folder, task, "train"), sentences_of(folder, task, "dev")
    assert len(train) >= least
    assert len(dev) >= len(train) / 8
    assert task == "coref" or not set(train) & set(dev)  # "She burned it" may well be said twice
    assert task == "coref" or len(set(train)) == len(train)


@pytest.mark.parametrize("task", ["names", "questions", "roles", "coref"])
def test_words_are_divided_as_typed_text_is(folder, task):
    for words in sentences_of(folder, task, "train") + sentences_of(folder, task, "dev"):
        typed = " ".join(words).replace(" 's", "'s").replace(" n't", "n't")
        assert elmokit.words(typed) == list(words)


def test_names_are_of_three_kinds_and_most_of_dev_is_new(folder):
    def names_of(part):
        return {
            (span.kind, example.words[span.first : span.last + 1])
            for example in read_columns(folder / f"names-{part}.conll", problems=Problems())
            for span in spans_of(example.labels)
        }

    train, dev = names_of("train"), names_of("dev")
    assert {kind for kind, _ in train} == {kind for kind, _ in dev} == {"PER", "LOC", "ORG"}
    assert min(sum(kind == each for each, _ in train) for kind in ("PER", "LOC", "ORG")) >= 60
    assert len(dev - train) > 0.8 * len(dev)
    assert len(sentences_of(folder, "names", "train")) == 221  # as README says
    shown = {"Ann", "Lee", "Oslo", "Rome", "Robert", "Smith"}  # and that these do not occur
    assert not shown & {word for _, words in train for word in words}


def test_files_for_probes_are_read(folder):
    assert len(read_conllu(folder / "treebank-train.conllu")) >= 50
    assert len(read_conllu(folder / "treebank-test.conllu")) >= 15
    text = read_sense_texts([folder / "senses-train.jsonl", folder / "senses-test.data.xml"])
    assert len(text.instances) == len(text.sentences) == 120
    assert {sense for each in text.instances for sense in each.senses} == set(
        read_wordnet(folder / "index.sense").numbers
    )
    for part in ("train", "dev"):
        answers = [pair.is_same for pair in read_wic(folder / "wic", part)]
        assert sum(answers) * 2 == len(answers)
    assert len(read_rated_pairs(folder / "rated-words.tsv")) >= 60


def test_a_second_call_changes_nothing_and_what_a_user_changed_is_kept(tmp_path):
    folder = elmokit.sample(tmp_path / "new" / "sample")
    before = (folder / "story.txt").stat().st_mtime_ns
    (folder / "mine.txt").write_text("mine", encoding="utf-8")
    assert elmokit.sample(folder) == folder
    assert (folder / "story.txt").stat().st_mtime_ns == before

    (folder / "story.txt").write_text("my own story", encoding="utf-8")
    (folder / "rated-words.tsv").unlink()
    with pytest.raises(InputError, match=r"story\.txt exists and is not the sample file .* choose another folder"):
        elmokit.sample(folder)
    assert not (folder / "rated-words.tsv").exists()
    assert (folder / "story.txt").read_text(encoding="utf-8") == "my own story"
    elmokit.sample(folder, overwrite=True)
    assert (folder / "story.txt").read_bytes() == (FILES / "story.txt").read_bytes()
    assert (folder / "mine.txt").read_text(encoding="utf-8") == "mine"


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(OutputError, match="cannot write .*file"):
        elmokit.sample(tmp_path / "file")


def test_the_command_writes_the_files_and_says_what_they_are(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["sample", "sample"]) == 0
    said = capsys.readouterr().out
    assert all((tmp_path / "sample" / name).is_file() and (name in said or name == "README.md") for name in ALL)
    assert "elmo embed sample/story.txt -o vectors.parquet" in said

    (tmp_path / "sample" / "story.txt").write_text("", encoding="utf-8")
    assert main(["sample", "sample"]) == 2
    assert "replace it with --overwrite\n" in capsys.readouterr().err
    assert main(["sample", "sample", "--overwrite"]) == 0
