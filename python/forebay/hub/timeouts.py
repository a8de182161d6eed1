"""How long a server may take for a request."""

import asyncio
from types import TracebackType

__all__ = ["Limit"]


class Limit:
    """Seconds from when it was asked, or last said how far it is, but for the time that its client takes to answer.

    Raises `TimeoutError` when they are over. With `None` there is no limit.
    """

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._timeout = asyncio.timeout(None)
        self._waits = 0
        self._is_running = False

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()
        self._is_running = True
        self.begin_again()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_running = False
        await self._timeout.__aexit__(kind, error, trace)

    def begin_again(self) -> None:
        """It has all of its time once more."""
        if self._is_running and not self._timeout.expired():
            is_open = self._seconds is None or self._waits
            self._timeout.reschedule(None if is_open else asyncio.get_running_loop().time() + (self._seconds or 0))

    def pause(self) -> None:
        """Someone else is to do something first; as often as this is called, `go_on` is to be."""
        self._waits += 1
        self.begin_again()

    def go_on(self) -> None:
        self._waits -= 1
        self.begin_again()
