"""Calls of the operating system that fail: the nth call of a kind that a store makes."""

import contextlib
import errno
import os
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any
from unittest import mock

_MODULES: dict[str, ModuleType] = {}
if sys.platform != "win32":
    import fcntl

    _MODULES["flock"] = fcntl

KINDS = [
    "chmod",
    "close",
    "fchmod",
    "flock",
    "fstat",
    "fsync",
    "listdir",
    "mkdir",
    "open",
    "pread",
    "pwrite",
    "rename",
    "rmdir",
    "scandir",
    "stat",
    "unlink",
    "write",
    "writev",
]
"""The calls that a store makes. A test fails if it makes others."""

LATE_KINDS = ["close", "rename", "unlink", "write"]
"""Calls that may report an error although they took effect."""


class FailingCall:
    """The nth call of one kind that modules of the store make; it raises `OSError`."""

    def __init__(self, kind: str, number: int, *, is_late: bool = False, error_number: int = errno.EIO) -> None:
        self._kind = kind
        self._number = number
        # A descriptor whose `close` fails is closed nevertheless.
        self._is_late = is_late or kind == "close"
        self._error_number = error_number
        self._count = 0
        self.description = ""

    @property
    def has_failed(self) -> bool:
        return self._count >= self._number

    @contextlib.contextmanager
    def inject(self) -> Iterator[None]:
        """Let the call fail inside the `with` block."""
        module = _MODULES.get(self._kind, os)
        original: Callable[..., Any] = getattr(module, self._kind)

        def call(*args: Any, **kwargs: Any) -> Any:
            caller = sys._getframe(1)
            # These functions stand for the calls of the operating system.
            while caller.f_back and caller.f_globals.get("__name__", "").startswith("forebay.system"):
                caller = caller.f_back
            if not caller.f_globals.get("__name__", "").startswith("forebay.store"):
                return original(*args, **kwargs)
            self._count += 1
            if self._count != self._number:
                return original(*args, **kwargs)
            self.description = f"{self._kind} in {caller.f_code.co_qualname}, line {caller.f_lineno}"
            if self._is_late:
                original(*args, **kwargs)
            raise OSError(self._error_number, os.strerror(self._error_number))

        with mock.patch.object(module, self._kind, call):
            yield


def iter_failing_calls(kind: str, *, is_late: bool = False, maximum: int = 500) -> Iterator[FailingCall]:
    """Yield the first call of a kind, the second, and so on, until an action makes no further one."""
    for number in range(1, maximum):
        failing = FailingCall(kind, number, is_late=is_late)
        yield failing
        if not failing.has_failed:
            return
    raise AssertionError(f"an action calls {kind} more than {maximum} times")
