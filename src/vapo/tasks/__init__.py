"""Tasks: questions with trusted answers, their splits, prompts and answer extraction."""

from vapo.tasks.base import Oracle, Prompt, Question, Reading, Task
from vapo.tasks.catalogue import TASKS, open_task

__all__ = ["TASKS", "Oracle", "Prompt", "Question", "Reading", "Task", "open_task"]
