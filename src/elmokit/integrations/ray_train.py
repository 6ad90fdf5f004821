"""Training on a Ray cluster: `elmo train`'s own function, in the workers of Ray Train's `TorchTrainer`.

Ray starts the processes and introduces them to each other; each takes its rows of every batch, as under torchrun, so
the losses are those of one process. When a worker or a machine is lost, Ray starts all of them again, and the run
continues from its own checkpoint, to the same losses. Text and model must be seen by all machines under the same
paths; what Ray itself keeps goes to `<destination>.ray`, and is removed at the end.

    pip install 'elmokit[ray]'
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from elmokit.cores import use_threads
from elmokit.errors import ElmoError, InputError, TrainingError
from elmokit.integrations.ray import connect, list_causes
from elmokit.pretrain.folder import Texts
from elmokit.pretrain.place import PATIENCE
from elmokit.pretrain.recipes import TrainConfig
from elmokit.pretrain.train import train
from elmokit.text.files import find_files

__all__ = ["train_on_ray"]


def train_on_ray(
    texts: Texts,
    destination: str | os.PathLike[str],
    config: TrainConfig,
    *,
    num_workers: int,
    uses_gpu: bool = False,
    threads: int = 1,
    max_failures: int = 3,
    patience: float = PATIENCE,
    address: str | None = None,
    **options: Any,  # noqa: ANN401
) -> Path:
    """Train a model on text with several workers of a Ray cluster, and write it to `destination`.

    Arguments:
        texts: as for `pretrain.train.train`.
        destination: the model's folder; a run begun for it continues.
        config: what to compute.
        num_workers: processes that share each batch.
        uses_gpu: whether each has a GPU.
        threads: CPU cores of each.
        max_failures: how often lost workers are replaced before the run is given up.
        patience: seconds that one waits for the others.
        address: of a cluster, as for `embed_on_ray`.
        options: of `train`, by name: `held_out`, `tokenised` and so on.
    """
    import ray.train  # pyright: ignore[reportMissingImports]
    from ray.train.torch import TorchConfig, TorchTrainer  # pyright: ignore[reportMissingImports]

    if num_workers < 1 or threads < 1:
        raise InputError(f"num_workers is {num_workers} and threads is {threads}: expected 1 or more of both")
    texts = [texts] if isinstance(texts, (str, os.PathLike)) else list(texts)
    model_folder, kept = Path(destination).absolute(), Path(f"{Path(destination).absolute()}.ray")
    with connect(address) as cluster:
        has = cluster.num_gpus if uses_gpu else cluster.num_cpus // threads
        if has < num_workers:
            what = "GPUs" if uses_gpu else f"times {threads} cores"
            raise InputError(f"asked for {num_workers} workers, but the Ray cluster has {has} {what}: ask for fewer")
        trainer = TorchTrainer(
            _train_as_worker,
            train_loop_config={
                "texts": [os.path.abspath(file) for file in find_files(texts)],
                "destination": model_folder,
                "config": config,
                "threads": threads,
                "options": {"device": "cuda" if uses_gpu else "cpu", "quiet": True, **options},
            },
            scaling_config=ray.train.ScalingConfig(
                num_workers=num_workers, use_gpu=uses_gpu, resources_per_worker={"CPU": threads, "GPU": int(uses_gpu)}
            ),
            torch_config=TorchConfig(backend="nccl" if uses_gpu else "gloo", timeout_s=int(patience)),
            run_config=ray.train.RunConfig(
                name=model_folder.name,
                storage_path=str(kept),
                failure_config=ray.train.FailureConfig(max_failures=max_failures),
            ),
        )
        try:
            trainer.fit()
        except Exception as problem:  # Ray's own, around what the workers met
            raise _explain(problem) from problem
        finally:
            shutil.rmtree(kept, ignore_errors=True)
    return model_folder


def _train_as_worker(given: dict[str, Any]) -> None:
    use_threads(given["threads"])
    train(given["texts"], given["destination"], given["config"], **given["options"])


def _explain(problem: BaseException) -> ElmoError:
    """The error of ours that a worker met, or else what Ray says, in one line."""
    met = [*getattr(problem, "worker_failures", {}).values(), problem]
    ours = [cause for found in met for cause in list_causes(found) if isinstance(cause, ElmoError)]
    if ours:
        return ours[0]
    return TrainingError(f"{' '.join(str(met[0]).split()):.300}; the checkpoints are kept, call again to continue")
