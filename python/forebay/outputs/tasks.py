"""Tasks: tool calls whose result the client asks for later."""

import threading
from collections import OrderedDict
from collections.abc import Hashable, Mapping

from forebay.outputs.modes import Mode
from forebay.outputs.result import find_task_id

__all__ = ["NO_OWNER", "TaskCalls", "TaskOwners"]

_MAX_TASKS = 4096
"""Maximum number of tasks to remember. Clients need not say when they are done with a task."""

TaskOwners = tuple[Hashable, ...]
NO_OWNER: TaskOwners = (None,)
"""Owner of the tasks of a server that has only one client."""


class TaskCalls:
    """The tool and the output mode of each task, by owner and task id.

    Task ids are only unique within a server, and each owner may have a server of its own. A task may have several
    owners, such as a connection and its principal; a lookup uses the first owner that has the task.
    """

    def __init__(self) -> None:
        self._calls_by_owner: dict[Hashable, OrderedDict[str, tuple[str, Mode]]] = {}
        self._count = 0
        self._lock = threading.Lock()

    def remember(self, result: object, tool: str, mode: Mode, owners: TaskOwners = NO_OWNER) -> None:
        """Remember a call if its result is a task."""
        if (task_id := find_task_id(result)) is None:
            return
        with self._lock:
            for owner in owners:
                self._forget(owner, task_id)
                self._calls_by_owner.setdefault(owner, OrderedDict())[task_id] = (tool, mode)
                self._count += 1
            while self._count > _MAX_TASKS:
                # Evict from the owner with the most tasks, so that nobody loses tasks to another owner.
                largest = max(self._calls_by_owner, key=lambda owner: len(self._calls_by_owner[owner]))
                self._forget(largest, next(iter(self._calls_by_owner[largest])))

    def _forget(self, owner: Hashable, task_id: str) -> None:
        calls = self._calls_by_owner.get(owner)
        if calls is not None and calls.pop(task_id, None) is not None:
            self._count -= 1
            if not calls:
                del self._calls_by_owner[owner]

    def find_call(self, params: object, owners: TaskOwners = NO_OWNER) -> tuple[str, Mode] | None:
        """Return the tool and mode of the task with the `taskId` in request params, or `None` if it is unknown."""
        task_id = params.get("taskId") if isinstance(params, Mapping) else None
        if not isinstance(task_id, str):
            return None
        with self._lock:
            known = (self._calls_by_owner[owner] for owner in owners if owner in self._calls_by_owner)
            return next((calls[task_id] for calls in known if task_id in calls), None)
