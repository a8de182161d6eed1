"""When a call has to be done by: `time.monotonic()` in a process, milliseconds since 1970 between them."""

import asyncio
import math
import time
from types import TracebackType

from forebay.arguments import short_repr
from forebay.errors import InvalidArgument
from forebay.operations.errors import CallError

_MAX_TIMEOUT_SECONDS = 1e9
"""Seconds after which nobody waits any more."""

__all__ = ["DeadlineScope", "deadline_after", "earliest_deadline", "from_epoch_ms", "to_epoch_ms"]


def deadline_after(seconds: float | None) -> float | None:
    """The deadline that is so far away."""
    if seconds is None or seconds == math.inf:
        return None
    if not isinstance(seconds, int | float) or not seconds < _MAX_TIMEOUT_SECONDS:
        raise InvalidArgument(f"a timeout is a number of seconds, such as 30, not {short_repr(seconds)}")
    return time.monotonic() + seconds


def earliest_deadline(*deadlines: float | None) -> float | None:
    """The first to pass; `None` where none ever does."""
    return min((deadline for deadline in deadlines if deadline is not None and deadline != math.inf), default=None)


def to_epoch_ms(deadline: float) -> int:
    """A deadline as other processes understand it; rounded down, so that it is never later than it was."""
    # The clocks are read in the order in which the time between two readings makes it earlier; so below.
    return math.floor((time.time() + deadline - time.monotonic()) * 1000)


def from_epoch_ms(milliseconds: float) -> float:
    """A deadline that another process set."""
    return time.monotonic() + milliseconds / 1000 - time.time()


class DeadlineScope:
    """Cancels what is in it when the deadline passes, and does not start it afterwards. Raises `TIMEOUT` then."""

    # No generator, for what that would cost every call.
    __slots__ = ("_deadline", "_has_exited", "_operation_id", "_timeout")

    def __init__(self, deadline: float | None, operation_id: str) -> None:
        self._deadline = deadline
        self._operation_id = operation_id
        self._has_exited = False

    async def __aenter__(self) -> None:
        left = None if self._deadline is None else self._deadline - time.monotonic()
        # What is no number has passed, too.
        if left is not None and not left > 0:
            raise CallError("TIMEOUT", f"{self._operation_id} was not begun: its deadline had passed; set it later")
        self._timeout = asyncio.timeout(left)
        await self._timeout.__aenter__()

    def lift(self) -> bool:
        """Lets what is in it take as long as it needs. `False` if the deadline has passed, and it was cancelled."""
        if self._has_exited:
            # What comes after it, such as making a large result fit, has no deadline.
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
            told = "was not done in time, and may have been carried out; ask for less, or give it more time"
            raise CallError("TIMEOUT", f"{self._operation_id} {told}") from None
