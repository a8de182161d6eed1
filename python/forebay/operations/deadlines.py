"""Deadlines of calls, and bounded waits for cleanup.

A deadline is in seconds of `time.monotonic()` inside a process, and in milliseconds since 1970 between processes.
"""

import asyncio
import contextlib
import logging
import math
import sys
import time
from collections.abc import Awaitable
from types import TracebackType
from typing import Any, TypeVar

from forebay.arguments import short_repr
from forebay.errors import InvalidArgument
from forebay.operations.errors import CallError

__all__ = [
    "CLEANUP_SECONDS",
    "DeadlineScope",
    "deadline_after",
    "earliest_deadline",
    "from_epoch_ms",
    "to_epoch_ms",
    "wait_bounded",
    "wait_shielded",
]

_T = TypeVar("_T")

_log = logging.getLogger("forebay")

CLEANUP_SECONDS = 5.0
"""Maximum seconds that a cancelled caller waits for its cleanup: a transport may hang."""

_CANCEL_GRACE_SECONDS = 1.0
"""Maximum seconds to wait for the end of a cancelled task."""

_abandoned_tasks: set[asyncio.Future[Any]] = set()
"""Tasks that ignored their cancellation. This set keeps them alive: the event loop holds only weak references."""

_MAX_TIMEOUT_SECONDS = 1e9
"""Maximum timeout of a call."""


def deadline_after(seconds: float | None) -> float | None:
    """Return the deadline `seconds` from now, or `None` if `seconds` is `None` or infinite."""
    if seconds is None or seconds == math.inf:
        return None
    if not isinstance(seconds, int | float) or not seconds < _MAX_TIMEOUT_SECONDS:
        raise InvalidArgument(f"a timeout is a number of seconds, such as 30, not {short_repr(seconds)}")
    return time.monotonic() + seconds


def earliest_deadline(*deadlines: float | None) -> float | None:
    """Return the earliest of several deadlines, or `None` if all are `None` or infinite."""
    return min((deadline for deadline in deadlines if deadline is not None and deadline != math.inf), default=None)


def to_epoch_ms(deadline: float) -> int:
    """Convert a monotonic deadline to milliseconds since 1970, rounded down so that it never moves later."""
    # `time.time()` is read first, so that the time between the two readings makes the deadline earlier, not later.
    return math.floor((time.time() + deadline - time.monotonic()) * 1000)


def from_epoch_ms(milliseconds: float) -> float:
    """Convert milliseconds since 1970 to a monotonic deadline."""
    return time.monotonic() + milliseconds / 1000 - time.time()


class DeadlineScope:
    """Context manager that cancels its body when the deadline passes, and raises `CallError` with `TIMEOUT`.

    If the deadline has passed already, the body does not start.
    """

    # A class, because a generator-based context manager costs noticeably more on every call.
    __slots__ = ("_deadline", "_has_exited", "_operation_id", "_timeout")

    def __init__(self, deadline: float | None, operation_id: str) -> None:
        self._deadline = deadline
        self._operation_id = operation_id
        self._has_exited = False

    async def __aenter__(self) -> None:
        remaining = None if self._deadline is None else self._deadline - time.monotonic()
        # `not … > 0`, because NaN counts as a deadline that has passed.
        if remaining is not None and not remaining > 0:
            raise CallError("TIMEOUT", f"{self._operation_id} was not begun: its deadline had passed; set it later")
        self._timeout = asyncio.timeout(remaining)
        await self._timeout.__aenter__()

    def remove(self) -> bool:
        """Remove the deadline. Return `False` if the deadline has passed and the body was cancelled."""
        if self._has_exited:
            # The deadline ended with the body: work after the body, such as casting a large result, has no deadline.
            return True
        if self._timeout.expired() or (self._deadline is not None and time.monotonic() >= self._deadline):
            return False
        self._timeout.reschedule(None)
        return True

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._has_exited = True
        try:
            await self._timeout.__aexit__(error_type, error, trace)
        except TimeoutError:
            reason = "was not done in time, and may have been carried out; ask for less, or give it more time"
            raise CallError("TIMEOUT", f"{self._operation_id} {reason}") from None


async def wait_shielded(work: Awaitable[_T]) -> _T:
    """Wait for work. If the caller is cancelled, the work has `CLEANUP_SECONDS` to finish."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await _wait_uncancelled(task, CLEANUP_SECONDS)
        await _cancel(task)
        raise


async def wait_bounded(work: Awaitable[_T]) -> _T:
    """Wait up to `CLEANUP_SECONDS` for work, then cancel it and raise `TimeoutError`."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([task], timeout=CLEANUP_SECONDS)
        is_late = not task.done()
    finally:
        await _cancel(task)
    if is_late:
        raise TimeoutError(f"this took more than {CLEANUP_SECONDS:g} seconds, and was given up")
    return task.result()


async def _cancel(task: asyncio.Future[Any]) -> None:
    """Cancel a task, and stop waiting for it if it ignores the cancellation."""
    task.add_done_callback(_on_done)
    if task.done():
        return
    task.cancel()
    await _wait_uncancelled(task, _CANCEL_GRACE_SECONDS)
    if not task.done():
        _abandoned_tasks.add(task)
        _log.warning("forebay: this does not end although it was cancelled, and is left alone: %.200r", task)


def _on_done(task: asyncio.Future[Any]) -> None:
    _abandoned_tasks.discard(task)
    if not task.cancelled():
        # Mark the exception as retrieved, so that asyncio does not log it. The caller has raised another one.
        task.exception()


async def _wait_uncancelled(task: asyncio.Future[Any], seconds: float) -> None:
    """Wait up to `seconds` for a task. A cancellation of the caller does not end the wait."""
    end = time.monotonic() + seconds
    with _make_anyio_shield():
        while not task.done() and (remaining := end - time.monotonic()) > 0:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([task], timeout=remaining)


def _make_anyio_shield() -> contextlib.AbstractContextManager[object]:
    """Return a shield against cancel scopes of anyio, which cancel a task again in every loop iteration."""
    # If anyio was never imported, there are no cancel scopes to shield against.
    anyio = sys.modules.get("anyio")
    return contextlib.nullcontext() if anyio is None else anyio.CancelScope(shield=True)
