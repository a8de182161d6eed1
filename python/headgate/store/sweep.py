"""Removing what has expired, and what crashed writers left."""

import dataclasses
import logging
import os
import threading
import time

from headgate.errors import HandleCorrupt, HeadgateError
from headgate.store.backend import Backend, Listed
from headgate.store.catalog import Catalog
from headgate.store.journal import Journal
from headgate.store.options import Options
from headgate.store.quota import Quota

__all__ = ["SweepReport", "Sweeper"]

_log = logging.getLogger("headgate")

_JUMP = 60
"""Seconds by which the clock on the wall may leave the one that only counts before it is not believed."""


@dataclasses.dataclass(frozen=True, slots=True)
class SweepReport:
    """What a sweep did."""

    expired: int
    orphans: int
    corrupt: int
    kept: int
    freed_bytes: int
    stored_bytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class _Known:
    principal: str | None
    created_at: float
    expires_at: float
    is_corrupt: bool = False


class Sweeper:
    """Sweeps, by itself or when asked. Any number of processes may, on one store."""

    def __init__(self, backend: Backend, catalog: Catalog, quota: Quota, journal: Journal, options: Options) -> None:
        self._backend = backend
        self._catalog = catalog
        self._quota = quota
        self._journal = journal
        self._options = options
        self._known: dict[str, _Known] = {}
        self._clocks = (options.clock(), time.monotonic())
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._started_in = 0

    def start(self) -> None:
        """Sees to it that what is stored was counted, and sweeps every so often from now on, in the background."""
        if self._started_in == os.getpid():
            return
        with self._lock:
            if self._started_in == os.getpid():
                return
            if not self._quota.is_counted():
                self._sweep()
            if self._options.sweep_interval > 0:
                self._thread = threading.Thread(target=self._run, name="headgate-sweep", daemon=True)
                self._thread.start()
            # A child that was forked has no threads but one.
            self._started_in = os.getpid()

    def _run(self) -> None:
        while not self._wake.wait(self._options.sweep_interval):
            try:
                self.sweep()
            except HeadgateError as error:
                _log.warning("a sweep failed: %s", error)

    def stop(self) -> None:
        self._wake.set()
        if self._thread is not None and self._started_in == os.getpid():
            self._thread.join()

    def sweep(self) -> SweepReport:
        """Removes what has expired and what no writer holds any more, and counts what is left."""
        with self._lock:
            return self._sweep()

    def _sweep(self) -> SweepReport:
        with self._backend.alone():
            return self._sweep_alone()

    def _sweep_alone(self) -> SweepReport:
        orphans = self._backend.tidy()
        counted = self._quota.counted()
        now = self._options.clock()
        believes = self._believes(now)
        expired = corrupt = freed = 0
        left: list[tuple[str | None, int]] = []
        seen: dict[str, _Known] = {}
        for listed in self._backend.list():
            known = self._look(listed)
            if known.expires_at <= now and believes:
                if self._remove(listed, known, "output_handle_expired"):
                    expired += 1
                    freed += listed.size
                continue
            corrupt += known.is_corrupt
            seen[listed.handle] = known
            left.append((known.principal, listed.size))
        self._known = seen
        if expired:
            self._backend.tidy()
        self._quota.recount(left, counted)
        return SweepReport(expired, orphans, corrupt, len(left), freed, sum(size for _, size in left))

    def evict(self, principal: str | None, size: int) -> None:
        """Removes the oldest payloads of a principal until there is room for `size` more bytes.

        None of them, if there would not be room without all of them either.
        """
        with self._lock:
            theirs = [(self._look(listed), listed) for listed in self._backend.list()]
            theirs = [(known, listed) for known, listed in theirs if known.principal == principal]
            if not self._quota.fits(principal, size - sum(listed.size for _, listed in theirs)):
                return
            for known, listed in sorted(theirs, key=lambda both: both[0].created_at):
                if self._quota.fits(principal, size):
                    return
                if self._remove(listed, known, "output_handle_evicted"):
                    self._quota.release(principal, listed.size)

    def _believes(self, now: float) -> bool:
        """Whether the clock on the wall went on as time did; if it jumped, what it says is believed the next time."""
        wall, counted = self._clocks
        self._clocks = (now, time.monotonic())
        return abs((now - wall) - (self._clocks[1] - counted)) < _JUMP

    def _look(self, listed: Listed) -> _Known:
        known = self._known.get(listed.handle)
        if known is not None and not known.is_corrupt:
            return known
        try:
            with self._backend.open(listed.handle) as blob:
                meta = self._catalog.contents(listed.handle, blob).meta
            return _Known(meta["principal"], meta["created_at"], meta["expires_at"])
        except KeyError:
            # Someone else's sweep was first.
            return _Known(None, listed.modified, listed.modified)
        except HandleCorrupt:
            # Nobody can read it; it is kept as long as it would have been.
            return _Known(None, listed.modified, listed.modified + self._options.ttl, is_corrupt=True)

    def _remove(self, listed: Listed, known: _Known, event: str) -> bool:
        self._catalog.forget(listed.handle)
        if not self._backend.delete(listed.handle):
            return False
        self._journal.record(event, principal=known.principal, handle=listed.handle, size_bytes=listed.size)
        return True
