"""Calls that are answered by a task: their result comes when someone asks for that."""

import threading
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from typing import Any

from forebay.outputs.modes import Mode

__all__ = ["TASK_RESULT_METHODS", "TaskCalls", "TaskOwners", "get_task_result", "set_task_result"]

_RESULT_METHOD, _GET_METHOD = "tasks/result", "tasks/get"

TASK_RESULT_METHODS = (_RESULT_METHOD, _GET_METHOD)
"""What is answered with the result of a call: until 2025-11-25 as it is, since then inside of what the task is."""

_MAX_TASKS = 4096
"""How many tasks are known: nobody says of all of them when they are over."""

TaskOwners = tuple[Hashable, ...]
_NO_OWNER: TaskOwners = (None,)


class TaskCalls:
    """Which tool a task is a call of, and how that was to be answered.

    Servers number their tasks, so that two who have servers of their own have tasks of the same name: each is known by
    whoever made it. That may be several, such as a connection and its principal; the first that knows it is right.
    """

    def __init__(self) -> None:
        self._calls_by_owner: dict[Hashable, OrderedDict[str, tuple[str, Mode]]] = {}
        self._count = 0
        self._lock = threading.Lock()

    def remember(self, answer: object, tool: str, mode: Mode, owners: TaskOwners = _NO_OWNER) -> None:
        """Remembers a call, if it is a task that it was answered with."""
        if (task := _get_task_id(answer)) is not None:
            with self._lock:
                for owner in owners:
                    self._forget(owner, task)
                    self._calls_by_owner.setdefault(owner, OrderedDict())[task] = (tool, mode)
                    self._count += 1
                while self._count > _MAX_TASKS:
                    # Of whoever has most: nobody is to lose theirs to another.
                    most = max(self._calls_by_owner, key=lambda owner: len(self._calls_by_owner[owner]))
                    self._forget(most, next(iter(self._calls_by_owner[most])))

    def _forget(self, owner: Hashable, task: str) -> None:
        made = self._calls_by_owner.get(owner)
        if made is not None and made.pop(task, None) is not None:
            self._count -= 1
            if not made:
                del self._calls_by_owner[owner]

    def find_call(self, params: object, owners: TaskOwners = _NO_OWNER) -> tuple[str, Mode] | None:
        """The call whose task a request names, if it was made here."""
        task = params.get("taskId") if isinstance(params, Mapping) else None
        if not isinstance(task, str):
            return None
        with self._lock:
            known = (self._calls_by_owner[owner] for owner in owners if owner in self._calls_by_owner)
            return next((made[task] for made in known if task in made), None)


def _get_task_id(answer: object) -> str | None:
    """The task that a call was answered with; once it stood by itself, now it is the answer."""
    if not isinstance(answer, dict):
        return None
    task = answer.get("task") if "task" in answer else answer if answer.get("resultType") == "task" else None
    found = task.get("taskId") if isinstance(task, dict) else None
    return found if isinstance(found, str) else None


def get_task_result(method: str, answer: Any) -> Any:
    """The result of a call in what a task's client gets; `None` if it is not there."""
    return answer if method != _GET_METHOD else answer.get("result") if isinstance(answer, dict) else None


def set_task_result(method: str, answer: Any, result: Any) -> Any:
    """The same answer with another result in it."""
    return {**answer, "result": result} if method == _GET_METHOD else result
