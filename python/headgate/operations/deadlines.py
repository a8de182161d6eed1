"""When a call has to be done by: `time.monotonic()` in a process, milliseconds since 1970 between them."""

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator

from headgate.operations.errors import CallError

__all__ = ["after", "earliest", "from_wire", "to_wire", "within"]


def after(seconds: float | None) -> float | None:
    """The deadline that is so far away."""
    return None if seconds is None else time.monotonic() + seconds


def earliest(*deadlines: float | None) -> float | None:
    """The first to pass; `None` where none ever does."""
    return min((deadline for deadline in deadlines if deadline is not None and deadline != math.inf), default=None)


def to_wire(deadline: float) -> int:
    """A deadline as other processes understand it; rounded down, so that it is never later than it was."""
    # The clocks are read in the order in which the time between two readings makes it earlier; so below.
    return math.floor((time.time() + deadline - time.monotonic()) * 1000)


def from_wire(milliseconds: float) -> float:
    """A deadline that another process set."""
    return time.monotonic() + milliseconds / 1000 - time.time()


@contextlib.asynccontextmanager
async def within(deadline: float | None, operation_id: str) -> AsyncIterator[None]:
    """Cancels what is in it when the deadline passes, and does not start it afterwards. Raises `TIMEOUT` then."""
    left = None if deadline is None else deadline - time.monotonic()
    if left is not None and left <= 0:
        raise _too_late(operation_id)
    limit = asyncio.timeout(left)
    try:
        async with limit:
            yield
    except TimeoutError:
        if limit.expired():
            raise _too_late(operation_id) from None
        raise


def _too_late(operation_id: str) -> CallError:
    return CallError("TIMEOUT", f"{operation_id} was not done by its deadline; ask for less, or give it more time")
