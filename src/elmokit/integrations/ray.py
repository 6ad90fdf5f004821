"""`elmo embed --engine ray`: a corpus of any size in, a folder of Parquet files out, on all machines of a Ray cluster.

The corpus is cut into chunks (`embed/chunks.py`), and chunk N becomes `part-N.parquet`, with the rows that plain
`elmo embed` writes for its lines. Ray Data runs two steps: tasks read chunks and split them into words; actors, which
hold the model, embed the words and write the part. A part appears by a rename, complete or not at all, and whoever
makes it writes the same rows. So nothing is lost or doubled when an actor, a machine or the driver dies: Ray gives the
chunk to another, and a later run with `resume=True` finds what is there and makes the rest.

Until all parts are there they lie in `<output>.partial`. The folder of the output appears by one rename, with
`_elmokit.json`, which says what it holds; readers of datasets pass over such names. Input and output must be seen by
all machines under the same paths, as on a network disk.

    pip install 'elmokit[ray]'
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from elmokit.embed.chunks import CHUNK_BYTES, Chunk, cut_file, find_inputs, join_plans, write_plan
from elmokit.embed.cluster import COUNTED, PARTS, PLAN, ClusterJob, PartMaker, RunMaker, Tally, divide_plan, read_runs
from elmokit.embed.files import EmbedReport
from elmokit.embed.layers import Layers, check_layers
from elmokit.embed.mapping import EmbedBatches
from elmokit.embed.parts import PartialFolder, check_same_job, make_manifest
from elmokit.embed.progress import Progress
from elmokit.embed.rows import RowSplitter
from elmokit.embed.segments import Cutter, choose_segment_words
from elmokit.embed.sinks import Contents
from elmokit.engines.precision import PrecisionName
from elmokit.errors import ElmoError, InputError, MissingExtra, OutputError
from elmokit.io.atomic import flush_to_disk, replace_text
from elmokit.io.locks import lock_output
from elmokit.reading.encoder import StateMode

try:
    import ray  # pyright: ignore[reportMissingImports]
    import ray.data  # pyright: ignore[reportMissingImports]
    from ray.exceptions import RayError  # pyright: ignore[reportMissingImports]
except ModuleNotFoundError as problem:
    raise MissingExtra("Ray is not installed: pip install 'elmokit[ray]'") from problem

__all__ = ["connect", "embed_on_ray", "list_causes"]

FACTS = "_elmokit.json"
ANSWERS_WITHIN = 5.0  # seconds in which a cluster's head must take a connection


def embed_on_ray(
    inputs: str | PathLike[str] | Sequence[str | PathLike[str]],
    output: str | PathLike[str],
    *,
    model: str | PathLike[str] = "en-small",
    address: str | None = None,
    workers: int | None = None,
    threads: int = 1,
    column: str = "text",
    layers: Layers = "average",
    dtype: str = "float16",
    batch_size: int | None = None,
    state: StateMode = "zero",
    split: bool = False,
    tokenised: bool = False,
    resume: bool = False,
    strict: bool = False,
    overwrite: bool = False,
    device: str | None = None,
    precision: PrecisionName = "float32",
    progress: Callable[[Progress], None] | None = None,
    chunk_bytes: int = CHUNK_BYTES,
) -> EmbedReport:
    """Embed a corpus on a Ray cluster into a folder of Parquet files, whose rows are those of `embed_files`.

    Arguments:
        inputs: text files (packed ones too), patterns, Parquet files, or folders of them; each line or row is one
            sentence. All machines must find them, and the output, under the same paths.
        output: the folder to make; beside it `<output>.partial` holds an unfinished job.
        model: a model's name, a folder, a `.zip` or a hub id, which every machine can open.
        address: of a cluster, HOST:PORT, or `"auto"` for the one that this machine belongs to. Unset, RAY_ADDRESS; or
            else Ray is started on this machine, for this job alone.
        workers: actors that embed; as many as the cluster has GPUs or, without one, CPUs for.
        threads: CPU cores of each worker.
        column: of Parquet files, that has the text.
        layers: as for `embed_files`, like all that follow up to `overwrite`.
        dtype: of the vectors.
        batch_size: sentences that a model reads at once.
        state: `"zero"` or `"canonical"`.
        split: one row per sentence of a line.
        tokenised: words stand between spaces already.
        resume: continue an unfinished job.
        strict: a word that is too long or holds a NUL is an error.
        overwrite: replace the output, and throw an unfinished job away.
        device: `"cpu"` or `"cuda"`; one GPU for each worker if the cluster has any, unless told.
        precision: as for `Embedder`.
        progress: called after every part.
        chunk_bytes: of text, after which a part ends.
    """
    started, output = time.monotonic(), Path(output)
    inputs = [inputs] if isinstance(inputs, (str, PathLike)) else inputs
    _check_numbers(workers=workers, threads=threads, chunk_bytes=chunk_bytes)
    if device not in (None, "cpu", "cuda"):
        raise InputError(f"device is {device!r}: expected cpu or cuda, since Ray gives each worker a GPU of its own")
    if split and tokenised:
        raise InputError("split and tokenised exclude each other: a tokenised line is one sentence")
    if resume and overwrite:
        raise InputError("resume and overwrite exclude each other: continue the old job or start a new one")
    files, folder = find_inputs(inputs), PartialFolder(output)
    model = os.path.abspath(model) if os.path.exists(model) else model  # workers may have another working folder
    how: dict[str, Any] = {"layers": layers, "dtype": dtype, "batch_size": batch_size, "state": state}
    with lock_output(output):
        if not _check_output(output, folder, resume=resume, overwrite=overwrite):
            return EmbedReport(output, was_complete=True, seconds=time.monotonic() - started)
        # On a CPU, whatever the workers have: here the model is asked only what it is.
        embedder = EmbedBatches(model, **how, device="cpu").embedder
        layers, scheme = check_layers(layers, embedder.num_layers), embedder.elmo.scheme
        with connect(address) as cluster, _explain_failures(output):
            device = device or ("cuda" if cluster.num_gpus else "cpu")
            settings = {"device": device, "precision": precision, "column": column, "chunk_bytes": chunk_bytes}
            settings |= {"layers": layers, "dtype": dtype, "batch_size": batch_size, "split": split}
            manifest = make_manifest(embedder, files, tokenised=tokenised, format="ray", **settings)
            manifest["about"]["precision"] = precision
            if folder.exists() and resume:
                check_same_job(folder.manifest(), manifest, folder=folder.path)
            else:
                folder.start(manifest)
            job = ClusterJob(
                folder.path.resolve(),
                EmbedBatches(model, **how, device=device, precision=precision, threads=threads),
                embedder.elmo.fingerprint(),
                Contents(
                    embedder.dim,
                    dtype,
                    embedder.num_layers if layers == "all" else None,
                    split,
                    metadata=folder.manifest()["about"],
                ),
                Cutter(
                    RowSplitter(scheme, None if tokenised else embedder.segmenter, split=split, strict=strict),
                    choose_segment_words(device),
                ),
                column,
            )
            chunks = _make_plan(job, [os.path.abspath(file) for file in files], chunk_bytes)
            num_resumed, counts = _embed_chunks(
                job, chunks, cluster, workers, threads, progress, uses_gpu=device != "cpu"
            )
        facts = {"num_parts": len(chunks), "num_lines": sum(chunk.num_lines for chunk in chunks), **counts}
        _finish(job, output, folder, facts)
    return EmbedReport(
        output,
        facts["num_lines"],
        *(counts[name] for name in COUNTED),
        num_segments=len(chunks),
        num_resumed=num_resumed,
        seconds=time.monotonic() - started,
    )


@dataclass(frozen=True)
class Cluster:
    """What a cluster has to compute with."""

    num_cpus: int
    num_gpus: int


# What the driver does, in the order of its use.


def _check_numbers(**numbers: int | None) -> None:
    for name, number in numbers.items():
        if number is not None and number < 1:
            raise InputError(f"{name} is {number}: expected 1 or more")


def _check_output(output: Path, folder: PartialFolder, *, resume: bool, overwrite: bool) -> bool:
    """Refuse an output that must not be replaced, and a job that was not asked for; whether there is work to do."""
    if output.exists():
        if not (output / FACTS).is_file():
            raise OutputError(f"{output} exists already, and is no dataset of elmo embed: choose another name")
        if (folder.path / PLAN).exists() and not (folder.path / PARTS).exists():
            folder.discard()  # a kill came when the parts had just been put in place
        if resume and not folder.exists():
            return False
        if not (overwrite or resume):
            raise OutputError(f"{output} exists already: choose another name, or replace it with --overwrite")
    if folder.exists() and not (resume or overwrite):
        raise OutputError(
            f"an unfinished job lies in {folder.path}: continue it with --resume (resume=True), or start again with "
            "--overwrite (overwrite=True)"
        )
    return True


@contextmanager
def connect(address: str | None) -> Iterator[Cluster]:
    """The cluster at this address, one that the program has already connected to, or one for this job alone."""
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    is_ours = not ray.is_initialized()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's, about what Ray itself does
        if is_ours:
            _check_address(address)
            _start(address)
        try:
            has = ray.cluster_resources()
            yield Cluster(int(has.get("CPU", 0)), int(has.get("GPU", 0)))
        finally:
            if is_ours:
                ray.shutdown()


def _start(address: str) -> None:
    """Connect to Ray or start it; the driver speaks for all, as what a worker has to say arrives as an exception."""
    ray.data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    quiet: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    if address == "local":
        quiet["include_dashboard"] = False
    try:
        ray.init(address, **quiet)
    except (ConnectionError, RuntimeError, ValueError) as problem:
        raise _tell_no_cluster(address, problem) from problem


def _check_address(address: str) -> None:
    """Ask whether anybody is there: Ray itself would try for minutes."""
    if address in ("local", "auto"):
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        raise InputError(f"expected the address of a Ray cluster as HOST:PORT, or auto, found {address!r}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWERS_WITHIN).close()
    except (OSError, OverflowError) as problem:
        raise _tell_no_cluster(address, problem) from problem


def _tell_no_cluster(address: str, problem: Exception) -> InputError:
    reason = getattr(problem, "strerror", None) or " ".join(str(problem).split())[:120] or type(problem).__name__
    return InputError(
        f"no Ray cluster answers at {address} ({reason}): start one there with ray start --head, or leave --address "
        "out to use this machine alone"
    )


def _make_plan(job: ClusterJob, files: Sequence[str], chunk_bytes: int) -> list[Chunk]:
    """The chunks of the input, found by the whole cluster; those of an earlier run if there are any."""
    path = job.folder / PLAN
    if not path.exists():
        cut = ray.remote(cut_file).options(max_retries=-1)
        how = {"column": job.column, "chunk_bytes": chunk_bytes, "splits": job.cutter.splitter.split}
        pending = [cut.remote(file, **how) for file in files]
        chunks = join_plans(ray.get(each) for each in pending)
        (job.folder / PARTS).mkdir(exist_ok=True)
        temporary = path.with_suffix(".tmp")
        write_plan(temporary, chunks)
        flush_to_disk(temporary)
        os.replace(temporary, path)
    return job.plan()


def _embed_chunks(
    job: ClusterJob,
    chunks: Sequence[Chunk],
    cluster: Cluster,
    workers: int | None,
    threads: int,
    progress: Callable[[Progress], None] | None,
    *,
    uses_gpu: bool,
) -> tuple[int, dict[str, int]]:
    """Make every part that is not there yet; how many were there, and the sums of what all parts hold."""
    capacity = cluster.num_gpus if uses_gpu else cluster.num_cpus // threads
    if not capacity:
        needed = "a GPU" if uses_gpu else f"{threads} CPU cores for a worker"
        raise InputError(
            f"expected {needed}, but the Ray cluster has {cluster.num_cpus} cores, {cluster.num_gpus} GPUs"
        )
    workers = workers or capacity
    pool: dict[str, Any] = {
        "fn_constructor_args": (job,),
        "compute": ray.data.ActorPoolStrategy(min_size=min(workers, capacity), max_size=workers),
        "num_cpus": threads,
    }
    one: dict[str, Any] = {"batch_size": 1, "batch_format": "pyarrow"}
    runs = divide_plan(chunks)
    parts = ray.data.from_items(runs, override_num_blocks=len(runs))
    if uses_gpu:  # one core splits text more slowly than a GPU embeds it, so others do that
        parts = parts.map_batches(read_runs, fn_args=(job,), num_cpus=1, **one)
        parts = parts.map_batches(PartMaker, num_gpus=1, **pool, **one)
    else:
        parts = parts.map_batches(RunMaker, **pool, **one)
    tally = Tally(chunks, progress)
    for found in parts.iter_rows():
        tally.add(found)
    return tally.finish(job)


def _finish(job: ClusterJob, output: Path, folder: PartialFolder, facts: dict[str, int]) -> None:
    """Put the folder of parts in its place, and throw the rest of the job away."""
    replace_text(job.folder / PARTS / FACTS, json.dumps({**job.contents.metadata, **facts}, indent=2))
    if output.exists():  # --overwrite, and one of ours
        shutil.rmtree(output)
    os.replace(job.folder / PARTS, output)
    flush_to_disk(output.parent)
    folder.discard()


@contextmanager
def _explain_failures(output: Path) -> Iterator[None]:
    """An error of ours that a worker met is raised as it is; another that Ray reports becomes one line."""
    try:
        yield
    except RayError as problem:
        causes = list_causes(problem)
        ours = next((cause for cause in causes if isinstance(cause, ElmoError)), None)
        if ours is not None:
            raise ours.with_traceback(None) from problem
        reason = f"{type(causes[-1]).__name__}: {' '.join(str(causes[-1]).split()):.200}"
        raise OutputError(
            f"cannot write {output}: {reason}; finished parts are kept, continue with --resume (resume=True)"
        ) from problem


def list_causes(problem: BaseException) -> list[BaseException]:
    """A problem and what caused it, back to the first; Ray keeps what a worker met in an attribute of its own."""
    causes = [problem]
    while (cause := getattr(causes[-1], "cause", None) or causes[-1].__cause__) is not None and cause not in causes:
        causes.append(cause)
    return causes
