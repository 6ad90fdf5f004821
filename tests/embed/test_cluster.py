"""What workers of a cluster do, without a cluster: runs of chunks in any order become the rows of the plain command."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elmokit import Embedder
from elmokit.embed import EmbedBatches, embed_files
from elmokit.embed.chunks import cut_file, join_plans, write_plan
from elmokit.embed.cluster import PARTS, PLAN, ClusterJob, PartMaker, RunMaker, Tally, divide_plan, read_runs
from elmokit.embed.rows import RowSplitter
from elmokit.embed.segments import Cutter
from elmokit.embed.sinks import Contents
from elmokit.errors import InputError, OutputError

LINES = ["She sat by the river bank. He was glad.", "", "The bank lent him money."] * 20


@pytest.fixture
def make_job(tmp_path, random_model):
    """A job over two files, with its plan; and the files."""

    def make(*, packed: bool = False, split: bool = True, fingerprint: str | None = None):
        files = [tmp_path / f"{number}.txt" for number in range(2)]
        for file in files:
            file.write_text("\n".join(LINES) + "\n", encoding="utf-8")
        if packed:
            gzip = pytest.importorskip("gzip")
            files = [Path(f"{file}.gz") for file in files]
            for file in files:
                file.write_bytes(gzip.compress(file.with_suffix("").read_bytes()))
        folder = tmp_path / "job"
        (folder / PARTS).mkdir(parents=True)
        chunks = join_plans(cut_file(str(file), column="text", chunk_bytes=300, splits=split) for file in files)
        write_plan(folder / PLAN, chunks)
        elmo = Embedder(random_model).elmo
        embed = EmbedBatches(random_model, device="cpu")
        contents = Contents(elmo.config.dim, "float16", metadata={"model": "mine"})
        cutter = Cutter(RowSplitter(elmo.scheme, Embedder(elmo).segmenter, split=split), 50)
        return ClusterJob(folder, embed, fingerprint or elmo.fingerprint(), contents, cutter, "text"), files

    return make


def run_table(runs):
    return pa.Table.from_pylist(runs)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("split", [False, True])
def test_parts_hold_the_rows_of_the_plain_command(packed, split, make_job, random_model, tmp_path):
    job, files = make_job(packed=packed, split=split)
    runs = divide_plan(job.plan())
    assert len(runs) == (2 if packed else len(job.plan()))
    assert len(job.plan()) > 4
    random.Random(1).shuffle(runs)
    told = [message for run in runs for message in RunMaker(job)(run_table([run]))]
    report = embed_files(files, tmp_path / "plain.parquet", embedder=Embedder(random_model), split=split)
    assert sum(table["num_words"][0].as_py() for table in told) == report.num_words
    found, expected = pq.read_table(job.folder / PARTS), pq.read_table(tmp_path / "plain.parquet")
    assert found.schema.equals(expected.schema)
    assert found.select(["line", "words"]).equals(expected.select(["line", "words"]))
    for one, other in zip(found["vectors"].to_pylist(), expected["vectors"].to_pylist(), strict=True):
        np.testing.assert_allclose(one, other, rtol=2**-10, atol=1e-5)  # a last bit of float16
    assert sorted(path.name for path in job.folder.iterdir()) == [PARTS, PLAN]


def test_a_chunk_may_be_sent_twice_and_a_finished_part_is_not_made_again(make_job):
    job, _ = make_job()
    runs = divide_plan(job.plan())
    first = [table.to_pylist()[0] for table in RunMaker(job)(run_table(runs))]
    before = {path: path.stat().st_mtime_ns for path in (job.folder / PARTS).iterdir()}
    job.part_path(2).unlink()
    again = [table.to_pylist()[0] for table in RunMaker(job)(run_table(runs))]
    assert [row["part"] for row in sorted(again, key=lambda row: row["part"]) if not row["was_there"]] == [2]
    strip = [sorted((row["part"], row["num_rows"], row["num_words"]) for row in rows) for rows in (first, again)]
    assert strip[0] == strip[1]
    after = {path: path.stat().st_mtime_ns for path in (job.folder / PARTS).iterdir()}
    assert {path for path in after if after[path] != before[path]} == {job.part_path(2)}


def test_two_workers_may_make_one_part_at_once(make_job):
    """A worker that was given up may still be alive: both write, under names of their own."""
    job, _ = make_job()
    messages = [next(read_runs(run_table(divide_plan(job.plan())[:1]), job)) for _ in range(2)]
    for message in messages:
        PartMaker(job)(message)
    first = pq.read_table(job.part_path(0))
    assert first["line"].to_pylist() == sorted(first["line"].to_pylist())
    assert len(list((job.folder / PARTS).iterdir())) == 1


def test_another_model_on_a_worker_is_told(make_job):
    job, _ = make_job(fingerprint="0" * 32)
    with pytest.raises(InputError, match="is not that of the driver"):
        list(RunMaker(job)(run_table(divide_plan(job.plan())[:1])))
    assert not list((job.folder / PARTS).iterdir())


def test_a_line_that_is_no_text_is_told_with_its_place(make_job):
    job, files = make_job()
    data = files[0].read_bytes().splitlines(keepends=True)
    shutil.move(files[0], files[0].with_suffix(".old"))
    files[0].write_bytes(b"".join([*data[:4], b"na\xefve\n", *data[5:]]))
    with pytest.raises(InputError, match=r"0\.txt:5: expected UTF-8"):
        list(RunMaker(job)(run_table(divide_plan(job.plan()))))


def test_a_part_is_counted_once_and_a_missing_one_is_told(make_job):
    job, _ = make_job()
    runs, moments = divide_plan(job.plan()), []
    tally = Tally(job.plan(), moments.append)
    told = [table.to_pylist()[0] for table in RunMaker(job)(run_table(runs))]
    for found in [*told[:-1], told[0]]:
        tally.add(found)
    assert len(moments) == len(told) - 1
    with pytest.raises(OutputError, match=r"1 part is missing, first part \d+: run again with --resume"):
        tally.finish(job)
    tally.add(told[-1])
    num_resumed, sums = tally.finish(job)
    assert (num_resumed, sums["num_rows"]) == (0, pq.read_table(job.folder / PARTS).num_rows)
    assert (moments[-1].lines, moments[-1].words) == (2 * len(LINES), sums["num_words"])
    assert moments[-1].bytes_done == moments[-1].bytes_total
    job.part_path(0).unlink()
    with pytest.raises(OutputError, match="1 part is missing, first part 0"):
        tally.finish(job)
