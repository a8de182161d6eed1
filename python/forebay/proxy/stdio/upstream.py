"""The server behind the gateway: a process that is started again when it ends, and told what the one before it knew."""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from forebay.errors import UpstreamFailed
from forebay.proxy.backoff import Pace
from forebay.proxy.relay import Relay
from forebay.proxy.stdio.outbox import NobodyReads
from forebay.proxy.stdio.process import Process
from forebay.wire.lines import Kept, Line

__all__ = ["Upstream"]

_log = logging.getLogger("forebay")

_SOON = 1.0
"""A server that is back by then is worth waiting for."""
_RETURNING = UpstreamFailed("the server has ended and is being started again; ask again in a while")
_MOST_WAITING = 1000

_LARGE = 10 << 20
"""Servers of the TypeScript SDK end when a message has more bytes than this."""


class Upstream:
    """Sends to the server that runs; what it says goes to the relay."""

    def __init__(
        self,
        process: Process,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        lines: Callable[..., Iterable[Line]],
        pace: Pace | None = None,
        grace: float = 5.0,
    ) -> None:
        self._process = process
        self._start = partial(Process, command, env=env, cwd=cwd)
        self._lines = lines
        self._pace = pace or Pace()
        self._grace = grace
        self._lock = threading.Lock()
        self._waiting: list[Kept] | None = None
        """Messages for a server that is on its way; `None` while one runs."""
        self._down: UpstreamFailed | None = None
        """What whoever asks now is told."""
        self._largest = 0
        """Bytes of the largest message for the server that runs."""
        self._closing = threading.Event()

    def send(self, line: Kept) -> None:
        """To the server, or to the one that is about to take its place. Raises `UpstreamFailed`."""
        with self._lock:
            self._largest = max(self._largest, len(line))
            if self._down is not None:
                raise UpstreamFailed(str(self._down))
            if self._waiting is not None:
                if len(self._waiting) >= _MOST_WAITING:
                    raise UpstreamFailed("the server is being started, and too much waits for it; ask again in a while")
                self._waiting.append(line)
                return
            process = self._process
        try:
            process.send(line)
        except NobodyReads:
            # Most likely it has ended, and is about to be missed.
            if (code := process.ended_within(_SOON)) is None:
                raise
            raise _ended(code, self._largest) from None

    def run(self, relay: Relay) -> int:
        """Until it is closed, or the server ends without having said anything. Gives the exit code."""
        has_ever_spoken = False
        while True:
            for line in self._process.lines(self._lines):
                has_ever_spoken = True
                relay.from_upstream(line)
            code = self._process.end(self._grace)
            with self._lock:
                self._waiting = []
                largest, self._largest = self._largest, 0
            relay.ended(_ended(code, largest))
            if self._closing.is_set() or not has_ever_spoken or not self._restarted(relay):
                with self._lock:
                    self._down = UpstreamFailed(
                        f"the server {_how(code)}, and is not started again; see what it logged"
                    )
                # Whoever asked meanwhile.
                relay.ended(self._down)
                return code

    def _restarted(self, relay: Relay) -> bool:
        """Starts the server again, after a while that grows; `False` if it is not to be."""
        while (delay := self._pace.next()) is not None:
            with self._lock:
                self._down = _RETURNING if delay > _SOON else None
            _log.warning("forebay: the server has ended and is started again in %g s", delay)
            if self._closing.wait(delay):
                return False
            try:
                self._process = self._start()
            except UpstreamFailed as error:
                _log.warning("forebay: %s", error)
                continue
            with self._lock:
                self._down = None
            # Its answers come in by this very thread.
            threading.Thread(target=self._greet, args=(relay, self._process), daemon=True).start()
            return True
        return False

    def _greet(self, relay: Relay, process: Process) -> None:
        try:
            relay.greet(process.send)
        except (UpstreamFailed, TimeoutError) as error:
            _log.warning("forebay: the server that was started again does not take up its work: %s", error)
            process.end(self._grace)
            return
        while True:
            with self._lock:
                if self._waiting is None or self._process is not process:
                    return
                if not self._waiting:
                    self._waiting = None
                    return
                line = self._waiting.pop(0)
            try:
                process.send(line)
            except UpstreamFailed:
                # Whoever waits for it is told when its end is seen.
                return

    def close(self) -> None:
        """No more is to be sent; the server ends, and with it `run`."""
        self._closing.set()
        self._process.end(self._grace)


def _how(code: int) -> str:
    return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"


def _ended(code: int, largest: int) -> UpstreamFailed:
    told = f"the server {_how(code)} before it answered; it may have done what it was asked to"
    if largest > _LARGE:
        told += f"; it was sent a message of {largest} bytes, and many end at more than 10 MiB: send less at once"
    return UpstreamFailed(told)
