"""Deadlines of calls: `time.monotonic()` inside a process, milliseconds since 1970 between processes."""

import asyncio
import math
import time
from types import TracebackType

from forebay.arguments import short_repr
from forebay.errors import InvalidArgument
from forebay.operations.errors import CallError

__all__ = ["DeadlineScope", "deadline_after", "earliest_deadline", "from_epoch_ms", "to_epoch_ms"]

_MAX_TIMEOUT_SECONDS = 1e9
"""Maximum timeout of a call."""


def deadline_after(seconds: float | None) -> float | None:
    """Return the deadline that many seconds from now, or `None` for no deadline."""
    if seconds is None or seconds == math.inf:
        return None
    if not isinstance(seconds, int | float) or not seconds < _MAX_TIMEOUT_SECONDS:
        raise InvalidArgument(f"a timeout is a number of seconds, such as 30, not {short_repr(seconds)}")
    return time.monotonic() + seconds


def earliest_deadline(*deadlines: float | None) -> float | None:
    """Return the earliest deadline, or `None` if there is none."""
    return min((deadline for deadline in deadlines if deadline is not None and deadline != math.inf), default=None)


def to_epoch_ms(deadline: float) -> int:
    """Convert a monotonic deadline to milliseconds since 1970, rounded down so that it never moves later."""
    # The clocks are read in this order so that the time between the two readings makes the deadline earlier.
    return math.floor((time.time() + deadline - time.monotonic()) * 1000)


def from_epoch_ms(milliseconds: float) -> float:
    """Convert milliseconds since 1970 to a monotonic deadline."""
    return time.monotonic() + milliseconds / 1000 - time.time()


class DeadlineScope:
    """Context manager that cancels its body when the deadline passes, and raises `TIMEOUT`.

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
        # Written so that NaN counts as passed.
        if remaining is not None and not remaining > 0:
            raise CallError("TIMEOUT", f"{self._operation_id} was not begun: its deadline had passed; set it later")
        self._timeout = asyncio.timeout(remaining)
        await self._timeout.__aenter__()

    def lift(self) -> bool:
        """Remove the deadline. Return `False` if it has passed and the body was cancelled."""
        if self._has_exited:
            # Work after the body, such as casting a large result, has no deadline.
            return True
        if self._timeout.expired() or (self._deadline is not None and time.monotonic() >= self._deadline):
            return False
        self._timeout.reschedule(None)
        return True

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._has_exited = True
        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError:
            reason = "was not done in time, and may have been carried out; ask for less, or give it more time"
            raise CallError("TIMEOUT", f"{self._operation_id} {reason}") from None
