"""Waiting for conditions in tests."""

import asyncio
import inspect
import time
from collections.abc import Callable

_POLL_SECONDS = 0.005


def wait_until(condition: Callable[[], object], seconds: float = 10) -> None:
    """Poll `condition` until it is true; raise `AssertionError` on timeout."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not true within {seconds} s"
        time.sleep(_POLL_SECONDS)


async def wait_until_async(condition: Callable[[], object], seconds: float = 60) -> None:
    """Poll `condition`, which may be async, until it is true; raise `AssertionError` on timeout."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if await value if inspect.isawaitable(value) else value:
            return
        assert time.monotonic() < deadline, f"not true within {seconds} s"
        await asyncio.sleep(_POLL_SECONDS)
