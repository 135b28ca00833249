"""Every task by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vapo._internal.options import call_with
from vapo.errors import InputError
from vapo.tasks.arithmetic import Arithmetic
from vapo.tasks.base import Task
from vapo.tasks.generated import reasoning_gym
from vapo.tasks.text import gsm8k, jsonl, svamp

__all__ = ["TASKS", "open_task"]


TASKS: Mapping[str, Callable[..., Task | Arithmetic]] = {
    "arithmetic": Arithmetic,
    "gsm8k": gsm8k,
    "svamp": svamp,
    "reasoning-gym": reasoning_gym,
    "jsonl": jsonl,
}
"""What opens each task."""


def open_task(name: str, **options: Any) -> Task:
    """Open a task by its name.

    Args:
        name: One of `TASKS`.
        options: What the task takes: see `Arithmetic`, `gsm8k`, `svamp`, `jsonl` and `reasoning_gym`.

    Raises:
        InputError: If there is no such task, if it does not take such an option, or if its questions cannot be had.

    Example:
        >>> task = open_task("arithmetic", operator="*", left=(2, 9), right=(11, 19), style="chat")
        >>> task.answer("98."), sum(len(split) for split in task.splits.values())
        ('98', 144)
    """
    if name not in TASKS:
        expected = f"one of the tasks {', '.join(TASKS)}"
        raise InputError(expected, repr(name), where="argument 'name'")
    made = call_with(TASKS[name], options, f"task '{name}'")
    return made if isinstance(made, Task) else made.open()
