"""What has to be done at the end, also by whoever is cancelled."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

__all__ = ["FAREWELL", "to_the_end"]

_T = TypeVar("_T")

FAREWELL = 5.0
"""Seconds that those who are cancelled have for it. A transport that hangs holds nobody up longer."""


async def to_the_end(work: Awaitable[_T]) -> _T:
    """Waits for work that goes on if whoever waits is cancelled: it has `FAREWELL` seconds from then.

    In a task of its own, because anyio cancels everything in a scope again at every step.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        impatience = asyncio.get_running_loop().call_later(FAREWELL, task.cancel)
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError:
                continue
        impatience.cancel()
        if not task.cancelled():
            # Being cancelled is what is told, and not what came of it.
            task.exception()
        raise
