"""Calls that are answered by a task: their result comes when someone asks for that."""

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from headgate.servers.modes import Mode

__all__ = ["ASKING", "Tasks", "filled", "result_in"]

_RESULT, _STATE = "tasks/result", "tasks/get"

ASKING = (_RESULT, _STATE)
"""What is answered with the result of a call: until 2025-11-25 as it is, since then inside of what the task is."""

_MOST = 4096
"""How many tasks are known: nobody says of all of them when they are over."""


class Tasks:
    """Which tool a task is a call of, and how that was to be answered."""

    def __init__(self) -> None:
        self._calls: OrderedDict[str, tuple[str, Mode]] = OrderedDict()
        self._lock = threading.Lock()

    def note(self, answer: object, tool: str, mode: Mode) -> None:
        """Remembers a call, if it is a task that it was answered with."""
        if (task := _made(answer)) is not None:
            with self._lock:
                self._calls[task] = (tool, mode)
                self._calls.move_to_end(task)
                if len(self._calls) > _MOST:
                    self._calls.popitem(last=False)

    def call_of(self, params: object) -> tuple[str, Mode] | None:
        """The call whose task a request names, if it was made here."""
        task = params.get("taskId") if isinstance(params, Mapping) else None
        return self._calls.get(task) if isinstance(task, str) else None


def _made(answer: object) -> str | None:
    """The task that a call was answered with; once it stood by itself, now it is the answer."""
    if not isinstance(answer, dict):
        return None
    task = answer.get("task") if "task" in answer else answer if answer.get("resultType") == "task" else None
    found = task.get("taskId") if isinstance(task, dict) else None
    return found if isinstance(found, str) else None


def result_in(method: str, answer: Any) -> Any:
    """The result of a call in what a task's client gets; `None` if it is not there."""
    return answer if method != _STATE else answer.get("result") if isinstance(answer, dict) else None


def filled(method: str, answer: Any, result: Any) -> Any:
    """The same answer with another result in it."""
    return {**answer, "result": result} if method == _STATE else result
