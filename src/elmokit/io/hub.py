"""A `Checkpoint` becomes a repository of the hub: the files of a native folder with their card, in one commit.

Only this file and `source` know the hub, and both import its client when they are called: nothing is contacted before.
What is uploaded is loaded by its id (`owner/name`), here and, where it reads bytes, by transformers.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Literal

from elmokit.errors import CheckpointError, InputError, OutputError
from elmokit.io.checkpoint import Checkpoint
from elmokit.io.native import save_native
from elmokit.io.source import HUB_ID

__all__ = ["push"]


def push(
    checkpoint: Checkpoint,
    repo_id: str,
    *,
    dtype: Literal["float32", "float16", "int8"] = "float32",
    private: bool | None = None,
    token: str | None = None,
    message: str = "Upload an ELMo model with elmokit",
) -> str:
    """Upload a model to the hub and give the address of the commit.

    Arguments:
        checkpoint: the model, with its output layer if that was loaded.
        repo_id: `owner/name`; the repository is made if it does not exist.
        dtype: how weights are stored.
        private: of a new repository; the owner's default if not given.
        token: of the hub; the one of `hf auth login` if not given.
        message: of the commit.
    """
    if HUB_ID.fullmatch(repo_id) is None:
        raise InputError(f"expected a hub id, owner/name, found {repo_id!r:.100}")
    if dtype not in ("float32", "float16", "int8"):
        raise InputError(f"expected dtype float32, float16 or int8, found {dtype!r:.60}")
    from huggingface_hub import HfApi

    with tempfile.TemporaryDirectory(prefix="elmokit-") as temporary:
        try:
            checkpoint.check("the model to be uploaded")
            save_native(checkpoint, Path(temporary), dtype=dtype, source=repo_id)
        except CheckpointError as problem:
            raise OutputError(f"{repo_id}: cannot be written: {problem}") from problem
        api = HfApi(token=token)
        try:
            api.create_repo(repo_id, private=private, exist_ok=True)
            commit = api.upload_folder(repo_id=repo_id, folder_path=temporary, commit_message=message)
        except Exception as problem:  # the hub's client has a dozen kinds, and more with each version
            reason = " ".join(str(problem).split())[:200]
            raise OutputError(
                f"{repo_id}: the hub did not take the model ({type(problem).__name__}: {reason}); "
                "`hf auth login` stores a token, which must be allowed to write there"
            ) from problem
    return str(commit.commit_url)
