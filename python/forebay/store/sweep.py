"""Removing what has expired, and what crashed writers left."""

import dataclasses
import logging
import os
import threading
import time
from collections.abc import Iterator

from forebay.errors import ForebayError, HandleCorrupt
from forebay.store.backends import Backend, ObjectInfo
from forebay.store.catalog import Catalog
from forebay.store.journal import Journal
from forebay.store.options import Options
from forebay.store.quota import Quota
from forebay.store.threads import ForkSafeLock

__all__ = ["SweepReport", "Sweeper"]

_log = logging.getLogger("forebay")

_MAX_CLOCK_DRIFT_SECONDS = 60
"""Seconds by which the clock on the wall may leave the one that only counts before it is not believed."""


@dataclasses.dataclass(frozen=True, slots=True)
class SweepReport:
    """What a sweep did."""

    expired: int
    orphans: int
    corrupt: tuple[str, ...]
    """Handles of what is damaged: kept as long as it would have been, if nobody deletes it."""
    kept: int
    freed_bytes: int
    stored_bytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class _Entry:
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
        self._entries: dict[str, _Entry] = {}
        self._last_clocks = (options.clock(), time.monotonic())
        self._lock = ForkSafeLock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._started_pid = 0
        self._is_counted = False

    def start(self) -> None:
        """Sweeps every so often from now on, in the background."""
        if self._started_pid == os.getpid() or self._options.sweep_interval == 0:
            return
        with self._lock:
            # A child that was forked has no threads but one.
            if self._started_pid != os.getpid():
                self._started_pid = os.getpid()
                self._thread = threading.Thread(target=self._run, name="forebay-sweep", daemon=True)
                self._thread.start()

    def ensure_counted(self) -> None:
        """Sees to it that what is stored was counted."""
        if not self._is_counted:
            with self._lock:
                if not self._quota.is_counted():
                    self._sweep(wait=True)
                self._is_counted = True

    def _run(self) -> None:
        failed = ""
        while not self._wake.wait(min(self._options.sweep_interval, threading.TIMEOUT_MAX)):
            try:
                # Someone else's sweep does as well.
                with self._lock:
                    self._sweep(wait=False)
                failed = ""
            except ForebayError as error:
                # Whoever may only read the store need not hear of it every time.
                if str(error) != failed:
                    failed = str(error)
                    _log.warning("forebay: a sweep failed: %s", error)

    def stop(self) -> None:
        self._wake.set()
        if self._thread is not None and self._started_pid == os.getpid():
            self._thread.join()

    def sweep(self) -> SweepReport:
        """Removes what has expired and what no writer holds any more, and counts what is left."""
        with self._lock:
            report = self._sweep(wait=True)
        assert report is not None  # noqa: S101 - it waited
        return report

    def _sweep(self, *, wait: bool) -> SweepReport | None:
        with self._backend.lock(wait=wait) as is_alone:
            return self._sweep_locked() if is_alone else None

    def _sweep_locked(self) -> SweepReport:
        orphans = self._backend.remove_leftovers()
        now = self._options.clock()
        # If it jumped, what it says is believed the next time.
        has_jumped = self._has_clock_jumped(now)
        self._last_clocks = (now, time.monotonic())
        expired = freed = 0
        for listed in self._backend.list():
            known = self._read_entry(listed)
            if known.expires_at <= now and not has_jumped and self._remove(listed, known, "output_handle_expired"):
                expired += 1
                freed += listed.size
        if expired:
            self._backend.remove_leftovers()
        left = self._recount()
        corrupt = tuple(listed.handle for known, listed in left if known.is_corrupt)
        return SweepReport(expired, orphans, corrupt, len(left), freed, sum(listed.size for _, listed in left))

    def _recount(self) -> list[tuple[_Entry, ObjectInfo]]:
        """What is there, which from now on is also what is counted."""
        found: list[tuple[_Entry, ObjectInfo]] = []

        def stored() -> Iterator[tuple[str | None, int]]:
            for listed in self._backend.list():
                known = self._read_entry(listed)
                found.append((known, listed))
                yield known.principal, listed.size

        self._quota.recount(stored)
        self._entries = {listed.handle: known for known, listed in found}
        return found

    def free_space(self, principal: str | None, size: int) -> None:
        """Removes what has expired and then, if told so, a principal's oldest until `size` more bytes have room.

        None of those that have not expired, if there would not be room without all of them either.
        """
        with self._lock:
            now = self._options.clock()
            has_jumped = self._has_clock_jumped(now)
            if self._options.sweep_interval == 0:
                # There may never be a sweep to believe it.
                self._last_clocks = (now, time.monotonic())
            theirs: list[tuple[_Entry, ObjectInfo]] = []
            # What others removed by hand, or died in the middle of, is still counted.
            for known, listed in self._recount():
                if known.expires_at <= now and not has_jumped:
                    self._remove(listed, known, "output_handle_expired")
                elif known.principal == principal:
                    theirs.append((known, listed))
            freed = sum(listed.size for _, listed in theirs)
            if self._options.on_full != "evict" or self._quota.explain_shortage(principal, size - freed) is not None:
                return
            for known, listed in sorted(theirs, key=lambda pair: pair[0].created_at):
                if self._quota.explain_shortage(principal, size) is None:
                    return
                self._remove(listed, known, "output_handle_evicted")

    def _has_clock_jumped(self, now: float) -> bool:
        """Whether the clock on the wall went on otherwise than time did since the last sweep."""
        wall, counted = self._last_clocks
        return abs((now - wall) - (time.monotonic() - counted)) >= _MAX_CLOCK_DRIFT_SECONDS

    def _read_entry(self, listed: ObjectInfo) -> _Entry:
        known = self._entries.get(listed.handle)
        if known is not None and not known.is_corrupt:
            return known
        try:
            with self._backend.open(listed.handle) as blob:
                meta = self._catalog.read_footer(listed.handle, blob).meta
        except KeyError:
            # Someone else's sweep was first.
            return _Entry(None, listed.modified_at, listed.modified_at)
        except HandleCorrupt:
            # Nobody can read it; it is kept as long as it would have been.
            return _Entry(None, listed.modified_at, listed.modified_at + self._options.ttl, is_corrupt=True)
        known = self._entries[listed.handle] = _Entry(meta["principal"], meta["created_at"], meta["expires_at"])
        return known

    def _remove(self, listed: ObjectInfo, known: _Entry, event: str) -> bool:
        self._catalog.forget(listed.handle)
        self._entries.pop(listed.handle, None)
        if not self._quota.release(known.principal, listed.size, lambda: self._backend.delete(listed.handle)):
            return False
        self._journal.record(event, principal=known.principal, handle=listed.handle, size_bytes=listed.size)
        return True
