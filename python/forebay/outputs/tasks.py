"""Calls that are answered by a task: their result comes when someone asks for that."""

import threading
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from typing import Any

from forebay.outputs.modes import Mode

__all__ = ["ASKING", "Owners", "Tasks", "filled", "result_in"]

_RESULT, _STATE = "tasks/result", "tasks/get"

ASKING = (_RESULT, _STATE)
"""What is answered with the result of a call: until 2025-11-25 as it is, since then inside of what the task is."""

_MOST = 4096
"""How many tasks are known: nobody says of all of them when they are over."""

Owners = tuple[Hashable, ...]
_NOBODY: Owners = (None,)


class Tasks:
    """Which tool a task is a call of, and how that was to be answered.

    Servers number their tasks, so that two who have servers of their own have tasks of the same name: each is known by
    whoever made it. That may be several, such as a connection and its principal; the first that knows it is right.
    """

    def __init__(self) -> None:
        self._made_by: dict[Hashable, OrderedDict[str, tuple[str, Mode]]] = {}
        self._count = 0
        self._lock = threading.Lock()

    def note(self, answer: object, tool: str, mode: Mode, owners: Owners = _NOBODY) -> None:
        """Remembers a call, if it is a task that it was answered with."""
        if (task := _made(answer)) is not None:
            with self._lock:
                for owner in owners:
                    self._forget(owner, task)
                    self._made_by.setdefault(owner, OrderedDict())[task] = (tool, mode)
                    self._count += 1
                while self._count > _MOST:
                    # Of whoever has most: nobody is to lose theirs to another.
                    most = max(self._made_by, key=lambda owner: len(self._made_by[owner]))
                    self._forget(most, next(iter(self._made_by[most])))

    def _forget(self, owner: Hashable, task: str) -> None:
        made = self._made_by.get(owner)
        if made is not None and made.pop(task, None) is not None:
            self._count -= 1
            if not made:
                del self._made_by[owner]

    def call_of(self, params: object, owners: Owners = _NOBODY) -> tuple[str, Mode] | None:
        """The call whose task a request names, if it was made here."""
        task = params.get("taskId") if isinstance(params, Mapping) else None
        if not isinstance(task, str):
            return None
        with self._lock:
            known = (self._made_by[owner] for owner in owners if owner in self._made_by)
            return next((made[task] for made in known if task in made), None)


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
