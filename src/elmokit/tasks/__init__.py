"""Task models over word vectors and ELMo: each task is one readable file that names its class `TASK`.

`find_task("tag")` imports a task when it is first asked for, so nothing here costs more than its name. `load_task`
(in `base.py`) opens a trained one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from elmokit.errors import InputError, suggest

if TYPE_CHECKING:
    from elmokit.tasks.base import TaskModel

__all__ = ["TASKS", "find_task"]

TASKS = {
    "tag": "a label for each word: names, chunks, parts of speech",
    "classify": "one class per sentence",
    "infer": "does one sentence follow from another",
    "answer": "the span of a text that answers a question",
    "roles": "who did what to whom",
    "coref": "which mentions of a document mean the same",
}
# What the field calls them, for messages alone.
OTHER_NAMES = {
    "ner": "tag",
    "pos": "tag",
    "chunk": "tag",
    "sentiment": "classify",
    "nli": "infer",
    "snli": "infer",
    "qa": "answer",
    "squad": "answer",
    "srl": "roles",
}


def find_task(name: str) -> type[TaskModel]:
    """The class of a task.

    Example:
        >>> find_task("tag").name
        'tag'
    """
    if name not in TASKS:
        ours = OTHER_NAMES.get(name.lower())
        near = suggest(name, TASKS) if ours is None else f"; the task {ours} does this: elmo task train {ours}"
        raise InputError(f"expected a task, one of {', '.join(TASKS)}, found {name!r}{near}")
    return import_module(f"elmokit.tasks.{name}").TASK
