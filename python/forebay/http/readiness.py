"""`/ready`: whether a load balancer should send calls to this process."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from forebay.errors import ForebayError

__all__ = ["Readiness"]

_log = logging.getLogger("forebay")

_CHECK_INTERVAL_SECONDS = 1.0
"""How long the result of a check holds, so that probes cannot load the store."""

_CHECK_TIMEOUT_SECONDS = 5.0


class Readiness:
    """Whether the store answers, and whether the server is about to stop."""

    def __init__(self, check: Callable[[], Awaitable[None]]) -> None:
        self._check = check
        self._checking: asyncio.Task[None] | None = None
        self._checked_at = -_CHECK_INTERVAL_SECONDS
        self._state = "ready"
        self.is_draining = False

    async def get_state(self) -> str:
        """Return `ready`, `draining` or `store unavailable`."""
        if self.is_draining:
            return "draining"
        if self._checking is None and time.monotonic() - self._checked_at >= _CHECK_INTERVAL_SECONDS:
            self._checking = asyncio.create_task(self._run_check())
        if self._checking is not None:
            # Shielded, because a probe that goes away must not end the check that others wait for.
            await asyncio.shield(self._checking)
        return self._state

    async def _run_check(self) -> None:
        try:
            async with asyncio.timeout(_CHECK_TIMEOUT_SECONDS):
                await self._check()
            state, reason = "ready", ""
        except TimeoutError:
            state, reason = "store unavailable", f"no answer within {_CHECK_TIMEOUT_SECONDS:g} s"
        except ForebayError as error:
            state, reason = "store unavailable", str(error)
        if state != self._state:
            _log.log(logging.WARNING if reason else logging.INFO, "forebay: %s %s", state, reason)
        self._state, self._checked_at, self._checking = state, time.monotonic(), None
