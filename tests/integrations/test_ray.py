"""On a Ray cluster: the rows of the plain command and the losses of one process, whoever is killed on the way."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ray = pytest.importorskip("ray")
pytest.importorskip("ray.data")

from elmokit import Embedder, errors  # noqa: E402
from elmokit.cli import main  # noqa: E402
from elmokit.config import CharConfig, ElmoConfig, LstmConfig  # noqa: E402
from elmokit.embed import EmbedBatches, embed_files  # noqa: E402
from elmokit.integrations import ray as integration  # noqa: E402
from elmokit.integrations.ray import embed_on_ray  # noqa: E402
from elmokit.integrations.ray_train import train_on_ray  # noqa: E402
from elmokit.pretrain.recipes import TrainConfig  # noqa: E402
from elmokit.pretrain.train import train  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own, some at its end, where no test can be blamed
LINES = ["She sat by the river bank. He was glad.", "", "The bank lent him money, and he paid it back later."] * 200


@pytest.fixture(scope="module")
def cluster():
    """Ray on this machine, for all tests that need not start it themselves; it believes that there is a GPU."""
    ray.shutdown()  # a page may have left it
    ray.init("local", num_cpus=4, num_gpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


@pytest.fixture
def corpus(tmp_path) -> Path:
    folder = tmp_path / "corpus"
    folder.mkdir()
    for name in ("a.txt", "b.txt"):
        (folder / name).write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return folder


def find_workers() -> list[int]:
    """Processes of Ray that hold a model."""
    found = subprocess.run(["ps", "-eo", "pid=,args="], capture_output=True, text=True, check=True).stdout
    return [int(line.split()[0]) for line in found.splitlines() if "ray::MapWorker" in line]


def assert_same_rows(folder: Path, plain: Path) -> None:
    found, expected = pq.read_table(folder), pq.read_table(plain)
    assert found.schema.equals(expected.schema)
    assert found.select(["line", "words"]).equals(expected.select(["line", "words"]))
    for one, other in zip(found["vectors"].to_pylist(), expected["vectors"].to_pylist(), strict=True):
        np.testing.assert_allclose(one, other, rtol=2**-10, atol=1e-5)  # a last bit of float16


@pytest.fixture
def plain(corpus, random_model, tmp_path) -> Path:
    """What the plain command makes of the corpus."""
    embed_files(sorted(corpus.iterdir()), tmp_path / "plain.parquet", embedder=Embedder(random_model), split=True)
    return tmp_path / "plain.parquet"


def test_rows_are_those_of_the_plain_command(cluster, corpus, plain, random_model, tmp_path):
    moments = []
    report = embed_on_ray(
        corpus,
        tmp_path / "out",
        model=random_model,
        device="cpu",
        split=True,
        workers=2,
        chunk_bytes=4000,
        progress=moments.append,
    )
    assert_same_rows(tmp_path / "out", plain)
    assert report.num_lines == moments[-1].lines == 2 * len(LINES)
    assert moments[-1].bytes_done == moments[-1].bytes_total
    facts = json.loads((tmp_path / "out/_elmokit.json").read_text())
    assert (facts["num_parts"], facts["num_rows"]) == (report.num_segments, report.num_rows)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus", "out", "plain.parquet"]
    assert embed_on_ray(corpus, tmp_path / "out", model=random_model, device="cpu", resume=True).was_complete
    with pytest.raises(errors.OutputError, match="exists already.*--overwrite"):
        embed_on_ray(corpus, tmp_path / "out", model=random_model, device="cpu")


def test_a_parquet_dataset_is_read_too(cluster, random_model, tmp_path):
    (tmp_path / "in").mkdir()
    for number in range(2):
        pq.write_table(pa.table({"body": LINES}), tmp_path / f"in/{number}.parquet")
    how = {"model": random_model, "device": "cpu", "column": "body", "layers": "all", "chunk_bytes": 9000}
    embed_on_ray(tmp_path / "in", tmp_path / "out", **how)
    table = pq.read_table(tmp_path / "out")
    assert table["line"].to_pylist() == list(range(2 * len(LINES)))
    assert table.schema.names == ["line", "words", "layer_0", "layer_1", "layer_2"]


def test_a_dead_worker_costs_no_line_and_doubles_none(cluster, corpus, plain, random_model, tmp_path):
    killed = []

    def kill_one(moment):
        if not killed:
            killed.append(find_workers()[0])
            os.kill(killed[0], signal.SIGKILL)

    how = {"model": random_model, "device": "cpu", "split": True, "workers": 2, "chunk_bytes": 2000}
    report = embed_on_ray(corpus, tmp_path / "out", **how, progress=kill_one)
    assert killed
    assert report.num_lines == 2 * len(LINES)
    assert_same_rows(tmp_path / "out", plain)


@pytest.mark.parametrize("kills", [False, True])
def test_text_is_split_apart_from_a_gpu(kills, cluster, corpus, plain, random_model, tmp_path, monkeypatch):
    """As with a GPU, which is a CPU here: tasks split the text, one actor embeds."""
    run = integration._embed_chunks
    monkeypatch.setattr(integration, "_embed_chunks", lambda *given, uses_gpu: run(*given, uses_gpu=True))
    killed = []

    def kill_one(moment):
        if kills and not killed:
            killed.append(find_workers()[0])
            os.kill(killed[0], signal.SIGKILL)

    how = {"model": random_model, "device": "cpu", "split": True, "chunk_bytes": 4000}
    report = embed_on_ray(corpus, tmp_path / "out", **how, progress=kill_one)
    assert bool(killed) == kills
    assert report.num_lines == 2 * len(LINES)
    assert_same_rows(tmp_path / "out", plain)


def test_a_killed_driver_is_resumed(corpus, plain, random_model, tmp_path):
    command = [sys.executable, "-m", "elmokit", "embed", str(corpus), "-o", "out", "--engine", "ray", "--split"]
    command += ["--workers", "1", "--model", str(random_model)]
    (corpus / "b.txt").write_text((corpus / "b.txt").read_text() * 150)  # long enough to be killed in the middle
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE)
    parts = tmp_path / "out.partial/parts"
    for _ in range(600):
        if parts.exists() and len(list(parts.iterdir())) >= 1:
            break
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.1)
    process.kill()
    process.communicate()
    made = len(list(parts.iterdir()))
    assert not (tmp_path / "out").exists()
    done = subprocess.run([*command, "--resume"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    facts = json.loads((tmp_path / "out/_elmokit.json").read_text())
    assert facts["num_parts"] > made
    lines = pq.read_table(tmp_path / "out", columns=["line"])["line"].to_numpy()
    assert np.array_equal(np.unique(lines), np.arange(151 * len(LINES)))
    assert len(lines) == facts["num_rows"]
    assert (np.diff(lines) >= 0).all()
    found, expected = (pq.read_table(each, columns=["line", "words"]) for each in (tmp_path / "out", plain))
    assert found.slice(0, len(expected)).equals(expected)


def test_a_kill_at_the_end_and_a_resumed_replacement(cluster, corpus, plain, random_model, tmp_path):
    how = {"model": random_model, "device": "cpu", "split": True, "chunk_bytes": 4000}
    embed_on_ray(corpus, tmp_path / "out", **how)
    output, folder = tmp_path / "out", tmp_path / "out.partial"

    def stop(moment):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):  # while a new output is made in the place of the old one
        embed_on_ray(corpus, output, **how, overwrite=True, progress=stop)
    assert len(list((folder / "parts").iterdir())) > 0
    report = embed_on_ray(corpus, output, **how, resume=True)
    assert 0 < report.num_resumed <= report.num_segments
    assert_same_rows(output, plain)
    folder.mkdir()  # as if the folder of the job could not be removed any more
    (folder / "plan.parquet").write_bytes(b"")
    assert embed_on_ray(corpus, output, **how, resume=True).was_complete
    assert not folder.exists()
    (tmp_path / "foreign").mkdir()
    with pytest.raises(errors.OutputError, match="no dataset of elmo embed"):
        embed_on_ray(corpus, tmp_path / "foreign", **how, overwrite=True)


@pytest.mark.parametrize(
    ("arguments", "code", "naming"),
    [
        (["--address", "127.0.0.1:9"], 2, "no Ray cluster answers at 127.0.0.1:9 (Connection refused): start one"),
        (["--address", "somewhere"], 2, "as HOST:PORT, or auto, found 'somewhere'"),
        (["--state", "carry"], 2, "several workers cannot keep"),
        (["--format", "npy"], 2, "a folder of Parquet files"),
        (["--workers", "0"], 2, "workers is 0"),
        (["--device", "cuda:1"], 2, "expected cpu or cuda"),
        (["--layers", "9"], 2, "asked for layer 9"),
        (["--overwrite", "--resume"], 2, "exclude each other"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(arguments, code, naming, corpus, random_model, capsys, monkeypatch):
    monkeypatch.chdir(corpus.parent)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    given = ["embed", str(corpus), "-o", "out", "--engine", "ray", "--model", str(random_model), *arguments]
    assert main(given) == code
    said = capsys.readouterr().err
    assert naming in said
    assert said.count("\n") == 1
    assert sorted(path.name for path in corpus.parent.iterdir()) == ["corpus"]


def test_what_a_worker_meets_is_told_as_it_is(cluster, corpus, random_model, tmp_path):
    (corpus / "b.txt").write_bytes(b"fine\nna\xefve\n")
    with pytest.raises(errors.InputError, match=r"b\.txt:2: expected UTF-8, found the byte 0xef"):
        embed_on_ray(corpus, tmp_path / "out", model=random_model, device="cpu")
    assert not (tmp_path / "out").exists()


def test_the_callable_in_ray_data(cluster, random_model):
    rows = ray.data.from_items([{"text": line} for line in LINES[:6]])
    embed = EmbedBatches(random_model, dtype="float32")
    found = rows.map_batches(
        EmbedBatches,
        fn_constructor_args=(random_model,),
        fn_constructor_kwargs={"dtype": "float32", "threads": 1},
        batch_size=3,
        compute=ray.data.ActorPoolStrategy(size=1),
    ).take_all()
    expected = embed({"text": LINES[:6]})
    for row, vectors in zip(found, expected["vectors"], strict=True):
        np.testing.assert_allclose(np.stack(list(row["vectors"])) if len(vectors) else vectors, vectors, atol=1e-5)


def tiny_config() -> TrainConfig:
    characters = CharConfig(max_length=12, dim=4, filters=((1, 4), (2, 8)), num_highways=1)
    lstm = LstmConfig(cell_dim=12, projection_dim=8, cell_clip=None, projection_clip=None)
    return dataclasses.replace(
        TrainConfig(model=ElmoConfig(characters, lstm=lstm)),
        vocabulary_size=100,
        tokens=8_000,
        tokens_per_batch=160,
        warmup_tokens=400,
        checkpoint_every=500,
        log_every=500,
        dropout=0.2,
    )


def read_losses(model: Path) -> list[tuple[int, float]]:
    lines = model.with_name(f"{model.name}.training").joinpath("log.jsonl").read_text().splitlines()
    return [(line["step"], line["loss"]) for line in map(json.loads, lines) if line["kind"] == "train"]


def test_ray_train_has_the_losses_of_one_process(cluster, corpus, tmp_path):
    text = str(corpus / "a.txt")
    train([text], tmp_path / "one", tiny_config(), workers=1, device="cpu", quiet=True)
    train_on_ray([text], tmp_path / "two", tiny_config(), num_workers=2, workers=1)
    one, two = read_losses(tmp_path / "one"), read_losses(tmp_path / "two")
    assert [step for step, _ in one] == [step for step, _ in two]
    assert [loss for _, loss in two] == pytest.approx([loss for _, loss in one], rel=1e-5)
    assert (tmp_path / "two/model.safetensors").is_file()
    assert not (tmp_path / "two.ray").exists()


def test_training_survives_a_lost_worker(cluster, corpus, tmp_path):
    text, config = str(corpus / "a.txt"), dataclasses.replace(tiny_config(), tokens=60_000, log_every=2000)
    train([text], tmp_path / "one", config, workers=1, device="cpu", quiet=True)
    code = (
        "import os, signal, subprocess, sys, time\n"
        "log = sys.argv[1]\n"
        "while not (os.path.exists(log) and open(log).read().count('\\n') > 3): time.sleep(0.05)\n"
        "out = subprocess.run(['ps', '-eo', 'pid=,args='], capture_output=True, text=True).stdout\n"
        "found = [int(line.split()[0]) for line in out.splitlines() if 'ray::RayTrainWorker' in line]\n"
        "os.kill(found[-1], signal.SIGKILL); print(len(found))\n"
    )
    killer = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "two.training/log.jsonl")], stdout=subprocess.PIPE, text=True
    )
    train_on_ray([text], tmp_path / "two", config, num_workers=2, workers=1)
    assert killer.communicate(timeout=60)[0].strip() == "2"
    one, two = read_losses(tmp_path / "one"), read_losses(tmp_path / "two")
    assert [step for step, _ in one] == [step for step, _ in two]
    assert [loss for _, loss in two] == pytest.approx([loss for _, loss in one], rel=1e-4)
