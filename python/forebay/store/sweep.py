"""Sweeping: removing expired payloads and the leftovers of crashed writers."""

import dataclasses
import logging
import os
import threading
import time
from collections.abc import Iterator

from forebay.errors import ForebayError, HandleCorrupt
from forebay.store.backends import Backend, ObjectInfo
from forebay.store.journal import Journal
from forebay.store.options import Options
from forebay.store.quota import Quota
from forebay.store.reader import Catalog
from forebay.store.threads import fork_safe_lock

__all__ = ["SweepReport", "Sweeper"]

_log = logging.getLogger("forebay")

_MAX_CLOCK_DRIFT_SECONDS = 60
"""Allowed drift between wall clock and monotonic clock. More drift means that someone has set the wall clock."""


@dataclasses.dataclass(frozen=True, slots=True)
class SweepReport:
    """The result of a sweep."""

    expired: int
    orphans: int
    """Files of crashed writers that were removed."""
    corrupt: tuple[str, ...]
    """Handles of damaged payloads, which are removed after the default time to live."""
    kept: int
    freed_bytes: int
    stored_bytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class _Entry:
    """The metadata of a stored payload that a sweep needs."""

    principal: str | None
    created_at: float
    expires_at: float
    is_corrupt: bool = False


class Sweeper:
    """Sweeper of a store: removes expired payloads, on demand and in the background, in any number of processes."""

    def __init__(self, backend: Backend, catalog: Catalog, quota: Quota, journal: Journal, options: Options) -> None:
        self._backend = backend
        self._catalog = catalog
        self._quota = quota
        self._journal = journal
        self._options = options
        self._entries: dict[str, _Entry] = {}
        self._last_clocks = (options.clock(), time.monotonic())
        self._lock = fork_safe_lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._started_pid = 0
        self._is_counted = False

    def start(self) -> None:
        """Start the background sweep, if it is not running yet."""
        if self._started_pid == os.getpid() or self._options.sweep_interval == 0:
            return
        with self._lock:
            # A forked child does not inherit the thread.
            if self._started_pid != os.getpid():
                self._started_pid = os.getpid()
                self._thread = threading.Thread(target=self._run_in_background, name="forebay-sweep", daemon=True)
                self._thread.start()

    def ensure_counted(self) -> None:
        """Count the stored bytes, unless they have been counted before."""
        if not self._is_counted:
            with self._lock:
                if not self._quota.is_counted():
                    self._sweep(wait=True)
                self._is_counted = True

    def _run_in_background(self) -> None:
        last_error = ""
        while not self._wake.wait(min(self._options.sweep_interval, threading.TIMEOUT_MAX)):
            try:
                # Not waiting: if another process is sweeping, this one need not.
                with self._lock:
                    self._sweep(wait=False)
                last_error = ""
            except ForebayError as error:
                # Logged once, not every time: a store may be read-only for this process.
                if str(error) != last_error:
                    last_error = str(error)
                    _log.warning("forebay: a sweep failed: %s", error)

    def stop(self) -> None:
        """Stop the background sweep and wait for its end."""
        self._wake.set()
        if self._thread is not None and self._started_pid == os.getpid():
            self._thread.join()

    def sweep(self) -> SweepReport:
        """Remove expired payloads and the leftovers of crashed writers, and recount the stored bytes."""
        with self._lock:
            report = self._sweep(wait=True)
        assert report is not None  # noqa: S101 - only without `wait`
        return report

    def _sweep(self, *, wait: bool) -> SweepReport | None:
        with self._backend.lock(wait=wait) as is_acquired:
            return self._sweep_locked() if is_acquired else None

    def _sweep_locked(self) -> SweepReport:
        orphans = self._backend.remove_leftovers()
        now = self._options.clock()
        # After a jump of the clock nothing expires in this sweep; the next sweep trusts the clock again.
        has_jumped = self._has_clock_jumped(now)
        self._last_clocks = (now, time.monotonic())
        expired = freed_bytes = 0
        for stored in self._backend.list():
            entry = self._read_entry(stored)
            if entry.expires_at <= now and not has_jumped and self._remove(stored, entry, "output_handle_expired"):
                expired += 1
                freed_bytes += stored.size
        if expired:
            # This also removes day folders that are empty now.
            self._backend.remove_leftovers()
        remaining = self._recount()
        return SweepReport(
            expired=expired,
            orphans=orphans,
            corrupt=tuple(stored.handle for entry, stored in remaining if entry.is_corrupt),
            kept=len(remaining),
            freed_bytes=freed_bytes,
            stored_bytes=sum(stored.size for _, stored in remaining),
        )

    def _recount(self) -> list[tuple[_Entry, ObjectInfo]]:
        """Set the counters from the stored objects, and return the objects with their entries."""
        entries: list[tuple[_Entry, ObjectInfo]] = []

        def list_objects() -> Iterator[tuple[str | None, int]]:
            for stored in self._backend.list():
                entry = self._read_entry(stored)
                entries.append((entry, stored))
                yield entry.principal, stored.size

        self._quota.recount(list_objects)
        self._entries = {stored.handle: entry for entry, stored in entries}
        return entries

    def make_space(self, principal: str | None, size: int) -> None:
        """Remove expired payloads, then with `on_full="evict"` the principal's oldest payloads until `size` bytes fit.

        Nothing is evicted if `size` bytes do not fit even after evicting all payloads of the principal.
        """
        with self._lock:
            now = self._options.clock()
            has_jumped = self._has_clock_jumped(now)
            if self._options.sweep_interval == 0:
                # Trust the clock again next time, because there are no background sweeps that would do so.
                self._last_clocks = (now, time.monotonic())
            candidates: list[tuple[_Entry, ObjectInfo]] = []
            # Recount first: objects that a user or a crash has removed may still be counted.
            for entry, stored in self._recount():
                if entry.expires_at <= now and not has_jumped:
                    self._remove(stored, entry, "output_handle_expired")
                elif entry.principal == principal:
                    candidates.append((entry, stored))
            evictable = sum(stored.size for _, stored in candidates)
            if (
                self._options.on_full != "evict"
                or self._quota.explain_shortage(principal, size - evictable) is not None
            ):
                return
            for entry, stored in sorted(candidates, key=lambda candidate: candidate[0].created_at):
                if self._quota.explain_shortage(principal, size) is None:
                    return
                self._remove(stored, entry, "output_handle_evicted")

    def _has_clock_jumped(self, now: float) -> bool:
        """Return whether the wall clock was set since the last sweep."""
        wall, monotonic = self._last_clocks
        return abs((now - wall) - (time.monotonic() - monotonic)) >= _MAX_CLOCK_DRIFT_SECONDS

    def _read_entry(self, object_info: ObjectInfo) -> _Entry:
        entry = self._entries.get(object_info.handle)
        if entry is not None and not entry.is_corrupt:
            return entry
        try:
            with self._backend.open(object_info.handle) as blob:
                meta = self._catalog.read_footer(object_info.handle, blob).meta
        except KeyError:
            # Another process removed the object.
            return _Entry(None, object_info.modified_at, object_info.modified_at)
        except HandleCorrupt:
            # The expiry of a damaged payload cannot be read, so it expires after the default time to live.
            return _Entry(None, object_info.modified_at, object_info.modified_at + self._options.ttl, is_corrupt=True)
        entry = self._entries[object_info.handle] = _Entry(meta["principal"], meta["created_at"], meta["expires_at"])
        return entry

    def _remove(self, object_info: ObjectInfo, entry: _Entry, event: str) -> bool:
        self._catalog.forget(object_info.handle)
        self._entries.pop(object_info.handle, None)
        if not self._quota.release(entry.principal, object_info.size, lambda: self._backend.delete(object_info.handle)):
            return False
        self._journal.record(event, principal=entry.principal, handle=object_info.handle, size_bytes=object_info.size)
        return True
