"""What has to be done at the end, also by whoever is cancelled."""

import asyncio
import contextlib
import logging
import sys
import time
from collections.abc import Awaitable
from typing import Any, TypeVar

__all__ = ["CLEANUP_SECONDS", "wait_bounded", "wait_shielded"]

_T = TypeVar("_T")

_log = logging.getLogger("forebay")

CLEANUP_SECONDS = 5.0
"""Seconds that those who are cancelled have for it. A transport that hangs holds nobody up longer."""

_CANCEL_GRACE_SECONDS = 1.0
"""Seconds more for what was told to end: it may have something to put away."""

_abandoned_tasks: set[asyncio.Future[Any]] = set()
"""What did not end when it was told to. Nothing else may hold it, and a task that nobody holds can vanish."""


async def wait_shielded(work: Awaitable[_T]) -> _T:
    """Waits for work that goes on if whoever waits is cancelled: it has `CLEANUP_SECONDS` seconds from then."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await _wait_uncancelled(task, CLEANUP_SECONDS)
        await _cancel(task)
        raise


async def wait_bounded(work: Awaitable[_T]) -> _T:
    """Waits `CLEANUP_SECONDS` seconds for work, and no longer if it does not end then. Raises `TimeoutError`."""
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
    """Tells a task to end, if it has not. One that does not listen is left alone."""
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
        # Whoever waited was told of something else.
        task.exception()


async def _wait_uncancelled(task: asyncio.Future[Any], seconds: float) -> None:
    """Waits so long at most, however often whoever waits is cancelled meanwhile."""
    end = time.monotonic() + seconds
    with _anyio_shield():
        while not task.done() and (left := end - time.monotonic()) > 0:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([task], timeout=left)


def _anyio_shield() -> contextlib.AbstractContextManager[object]:
    """Keeps a scope of anyio from cancelling everything in it again and again, as fast as it can."""
    # Where nobody has imported it there is no such scope.
    anyio = sys.modules.get("anyio")
    return contextlib.nullcontext() if anyio is None else anyio.CancelScope(shield=True)
