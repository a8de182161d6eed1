"""Waiting for cleanup work that has to finish even when its caller is cancelled."""

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
"""Seconds a cancelled caller waits for its cleanup, so that a hanging transport blocks nobody longer."""

_CANCEL_GRACE_SECONDS = 1.0
"""Seconds a cancelled task has to end before it is abandoned."""

_abandoned_tasks: set[asyncio.Future[Any]] = set()
"""Strong references to tasks that ignored their cancellation; the event loop itself holds only weak ones."""


async def wait_shielded(work: Awaitable[_T]) -> _T:
    """Wait for work that, if the caller is cancelled, goes on for up to `CLEANUP_SECONDS`."""
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
    """Cancel a task that has not ended, and abandon it if it ignores that."""
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
        # Mark the exception as retrieved: the caller has raised another one.
        task.exception()


async def _wait_uncancelled(task: asyncio.Future[Any], seconds: float) -> None:
    """Wait for a task up to that many seconds, ignoring cancellations of the caller."""
    end = time.monotonic() + seconds
    with _make_anyio_shield():
        while not task.done() and (remaining := end - time.monotonic()) > 0:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([task], timeout=remaining)


def _make_anyio_shield() -> contextlib.AbstractContextManager[object]:
    """Return a shield against anyio cancel scopes, which cancel their tasks again on every loop iteration."""
    # If anyio was never imported, no such scope exists.
    anyio = sys.modules.get("anyio")
    return contextlib.nullcontext() if anyio is None else anyio.CancelScope(shield=True)
