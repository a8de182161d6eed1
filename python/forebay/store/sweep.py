"""Sweeping: removing expired payloads and the leftovers of crashed writers."""

import contextlib
import dataclasses
import logging
import math
import os
import random
import threading
import time
from collections import deque
from collections.abc import Iterator

from forebay.errors import ForebayError, HandleCorrupt, StoreFull
from forebay.store.allowance import Allowance
from forebay.store.backends import Backend
from forebay.store.catalog import Catalog
from forebay.store.entries import Entry, EntryTable
from forebay.store.eviction import Candidate, EvictionOrder
from forebay.store.handles import is_sidecar_handle
from forebay.store.journal import Journal
from forebay.store.mailbox import Mailbox
from forebay.store.options import Options
from forebay.store.quota import Quota
from forebay.store.sidecars import delete_sidecar
from forebay.store.threads import fork_safe_lock

__all__ = ["SweepReport", "Sweeper"]

_log = logging.getLogger("forebay")

_MAX_CLOCK_DRIFT_SECONDS = 60
"""Allowed drift between wall clock and monotonic clock. More drift means that someone has set the wall clock."""

_MAX_COUNTED_PER_SECOND = 1000
"""Maximum number of payloads that the puts to a full store count per second. The next put continues the count."""

_MIN_COUNTED_PER_PUT = 100
_MAX_COUNTING_SECONDS = 0.05
"""How long one put to a full store counts, once it has counted `_MIN_COUNTED_PER_PUT` payloads."""

_MIN_SECONDS_BETWEEN_LISTINGS = 1.0
"""Minimum time between two listings of a large store for payloads to evict."""

_MAX_LISTING_SHARE = 0.1
"""Maximum share of the time that puts spend on listing a large store while there are payloads to evict."""

_SWEEP_KEY = "sweep"
"""Key of the message that a sweep leaves for other processes."""

_DUE_SHARE = 0.8
"""Share of the interval between sweeps after which the next one is due."""

_MAX_NEW_CANDIDATES = 1000
"""Maximum number of newly stored payloads to remember until the next eviction. A listing finds the others."""


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


class _Pass:
    """One walk over all payloads: removes the expired ones and recounts the others."""

    def __init__(self) -> None:
        self.expires_before = -math.inf
        """The time up to which payloads are expired; it may be set again while the walk continues."""
        self.drops_sidecars = False
        """Whether sidecars are removed, to make space."""
        self.pid = os.getpid()
        """The process that began the walk. A forked child would share the listing with it."""
        self.kept = self.expired = self.freed_bytes = self.stored_bytes = 0
        self.corrupt: list[Candidate] = []


class Sweeper:
    """Sweeper of a store: removes expired payloads, on demand and in the background, in any number of processes."""

    def __init__(
        self,
        backend: Backend,
        catalog: Catalog,
        quota: Quota,
        journal: Journal,
        mailbox: Mailbox,
        options: Options,
    ) -> None:
        self._backend = backend
        self._mailbox = mailbox
        self._catalog = catalog
        self._quota = quota
        self._journal = journal
        self._options = options
        self._entries = EntryTable()
        self._corrupt: list[Candidate] = []
        self._last_clocks = (options.clock(), time.monotonic())
        self._lock = fork_safe_lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._started_pid = 0
        self._is_counted = False
        self._allowance = Allowance(_MAX_COUNTED_PER_SECOND)
        self._paused: tuple[_Pass, Iterator[None]] | None = None
        self._order = EvictionOrder()
        self._is_order_outdated = False
        self._listed_at = -math.inf
        self._listing_seconds = 0.0
        self._new_candidates: deque[tuple[str | None, Candidate]] = deque(maxlen=_MAX_NEW_CANDIDATES)

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
            if not self._quota.is_counted():
                with self._lock:
                    if not self._quota.is_counted():
                        self._sweep(wait=True)
            self._is_counted = True

    def _run_in_background(self) -> None:
        last_error = ""
        # Not all replicas at once.
        while not self._wake.wait(min(self._options.sweep_interval * _random.uniform(0.9, 1.1), threading.TIMEOUT_MAX)):
            try:
                self.sweep_if_due()
                last_error = ""
            except ForebayError as error:
                # Logged once, not every time: a store may be read-only for this process.
                if str(error) != last_error:
                    last_error = str(error)
                    _log.warning("forebay: a sweep failed: %s", error)

    def sweep_if_due(self) -> bool:
        """Sweep, unless another process does, or has done it lately; return whether this one did."""
        # On one machine a sweep costs little. Replicas would list the same objects again and again.
        if self._backend.folder is None and self._mailbox.read(_SWEEP_KEY) is not None:
            return False
        is_done = self._sweep(wait=False) is not None
        if is_done and self._backend.folder is None:
            # A store that is full has no room for the message: then other processes sweep, too.
            with contextlib.suppress(StoreFull):
                self._mailbox.post(_SWEEP_KEY, b"", self._options.sweep_interval * _DUE_SHARE)
        return is_done

    def stop(self) -> None:
        """Stop the background sweep and wait for its end."""
        self._wake.set()
        if self._thread is not None and self._started_pid == os.getpid():
            self._thread.join()

    def sweep(self) -> SweepReport:
        """Remove expired payloads and the leftovers of crashed writers, and recount the stored bytes."""
        report = self._sweep(wait=True)
        assert report is not None  # noqa: S101 - only without `wait`
        return report

    def _sweep(self, *, wait: bool) -> SweepReport | None:
        with self._backend.lock(wait=wait) as is_acquired:
            return self._sweep_locked() if is_acquired else None

    def _sweep_locked(self) -> SweepReport:
        orphans = self._backend.remove_leftovers()
        swept = self._complete_pass(self._get_expiry_limit(is_sweep=True))
        if swept.expired:
            # This also removes day folders that are empty now.
            self._backend.remove_leftovers()
        return SweepReport(
            expired=swept.expired,
            orphans=orphans,
            corrupt=tuple(candidate.handle for candidate in swept.corrupt),
            kept=swept.kept,
            freed_bytes=swept.freed_bytes,
            stored_bytes=swept.stored_bytes,
        )

    def _get_expiry_limit(self, *, is_sweep: bool) -> float:
        """Return the time up to which payloads are expired. After a jump of the clock nothing expires in this sweep."""
        now = self._options.clock()
        has_jumped = self._has_clock_jumped(now)
        # The next sweep trusts the clock again; or the next put, if there are no background sweeps.
        if is_sweep or self._options.sweep_interval == 0:
            self._last_clocks = (now, time.monotonic())
        return -math.inf if has_jumped else now

    def _complete_pass(self, expires_before: float, *, drops_sidecars: bool = False) -> _Pass:
        started_at = time.monotonic()
        current = _Pass()
        current.expires_before, current.drops_sidecars = expires_before, drops_sidecars
        for _ in self._walk(current):
            pass
        self._paused = None
        self._listed_at = time.monotonic()
        self._listing_seconds = self._listed_at - started_at
        return current

    def _walk(self, current: _Pass) -> Iterator[None]:
        """Remove expired payloads and recount the others, in steps of about the same work."""
        recount = self._backend.begin_recount()
        sweep = self._entries.begin_sweep()
        for handle, known in self._backend.list():
            entry, is_repeated = self._entries.see(handle, sweep)
            if is_repeated:
                # A folder that changes, or that a forked child closes, may return a name twice.
                continue
            if known is not None and known.is_estimate and (entry or known.expires_at > current.expires_before):
                # It tells less than the footer: not the principal, whose account the payload counts in.
                known = None
            if entry is None or known not in (None, entry):
                # What the backend knows is newer than what an earlier sweep has seen: a sidecar may be replaced.
                entry = self._find_entry(handle, known, sweep)
            is_in_the_way = current.drops_sidecars and is_sidecar_handle(handle)
            if entry is not None and (is_in_the_way or entry.expires_at <= current.expires_before):
                if self._remove(handle, entry.size, entry.principal, "output_handle_expired"):
                    current.expired += 1
                    current.freed_bytes += entry.size
            elif entry is not None:
                recount.add(entry.principal, entry.size)
                current.kept += 1
                current.stored_bytes += entry.size
                if entry.is_corrupt:
                    current.corrupt.append(Candidate(entry.created_at, handle, entry.size))
            yield
        yield from recount.apply()
        if len(self._entries) > current.kept - len(current.corrupt):
            self._entries.remove_unseen(sweep)
        self._corrupt, self._is_order_outdated = current.corrupt, True

    def make_space(self, principal: str | None, size: int) -> None:
        """Remove expired payloads and all sidecars, then with `on_full="evict"` the principal's oldest payloads.

        A sidecar can be computed again, so it never takes the place of a payload. Payloads are evicted until `size`
        bytes fit.

        In a large store a call looks only at some payloads, and the next call continues. Nothing is evicted if `size`
        bytes do not fit even after evicting all payloads of the principal.
        """
        with self._lock:
            expires_before = self._get_expiry_limit(is_sweep=False)
            is_evicting = self._options.on_full == "evict"
            if not self._quota.is_counted() or (is_evicting and self._is_listing_due(self._listing_seconds)):
                self._complete_pass(expires_before, drops_sidecars=True)
            elif not is_evicting:
                self._continue_pass(expires_before)
            # Other processes may have stored payloads since the last listing.
            if is_evicting and not self._evict(principal, size) and self._is_listing_due(0):
                self._complete_pass(expires_before, drops_sidecars=True)
                self._evict(principal, size)

    def _continue_pass(self, expires_before: float) -> None:
        """Continue the walk over all payloads, or begin a new one, as far as the allowance goes."""
        paused = self._paused
        current, steps = paused if paused is not None and paused[0].pid == os.getpid() else self._begin_pass()
        current.expires_before = expires_before
        current.drops_sidecars = True
        self._paused = None
        deadline = time.monotonic() + _MAX_COUNTING_SECONDS
        count = 0
        while (count < _MIN_COUNTED_PER_PUT or time.monotonic() < deadline) and self._allowance.take():
            if next(steps, self) is self:
                return
            count += 1
        self._paused = current, steps

    def _begin_pass(self) -> tuple[_Pass, Iterator[None]]:
        current = _Pass()
        return current, self._walk(current)

    def _is_listing_due(self, listing_seconds: float) -> bool:
        """Return whether to list the payloads again: always in a small store, else after some time."""
        interval = max(_MIN_SECONDS_BETWEEN_LISTINGS, listing_seconds / _MAX_LISTING_SHARE)
        return len(self._entries) <= _MAX_COUNTED_PER_SECOND or time.monotonic() - self._listed_at >= interval

    def _evict(self, principal: str | None, size: int) -> bool:
        """Evict the oldest payloads of a principal until `size` bytes fit, and return whether they do."""
        if self._is_order_outdated:
            self._rebuild_order()
        while self._new_candidates:
            self._order.add(*self._new_candidates.popleft())
        chosen: list[Candidate] = []
        freed_bytes = 0
        while self._quota.explain_shortage(principal, size - freed_bytes) is not None:
            candidate = self._order.pop_oldest(principal)
            if candidate is None:
                self._put_back(principal, chosen)
                return False
            # A payload may have been added twice: when it was stored, and by a listing.
            if candidate not in chosen[-1:] and self._exists(candidate.handle):
                chosen.append(candidate)
                freed_bytes += candidate.size
        for number, candidate in enumerate(chosen):
            if self._quota.explain_shortage(principal, size) is None:
                self._put_back(principal, chosen[number:])
                return True
            self._remove(candidate.handle, candidate.size, principal, "output_handle_evicted")
        return self._quota.explain_shortage(principal, size) is None

    def _rebuild_order(self) -> None:
        self._is_order_outdated = False
        # Empty first, because both together would take twice the memory.
        self._order = EvictionOrder()
        for handle, entry in self._entries:
            # Sidecars go first: they can be computed again.
            created_at = 0.0 if is_sidecar_handle(handle) else entry.created_at
            self._order.add(entry.principal, Candidate(created_at, handle, entry.size))
        self._put_back(None, self._corrupt)

    def _put_back(self, principal: str | None, candidates: list[Candidate]) -> None:
        for candidate in candidates:
            self._order.add(principal, candidate)

    def _exists(self, handle: str) -> bool:
        try:
            self._backend.open(handle).close()
        except KeyError:
            return False
        return True

    def note_stored(self, handle: str, entry: Entry) -> None:
        """Take note of a payload that this process has stored, so that it can be evicted before the next listing."""
        # Without the lock: this put need not wait for the listing of another.
        if self._options.on_full == "evict":
            self._new_candidates.append((entry.principal, Candidate(entry.created_at, handle, entry.size)))

    def _has_clock_jumped(self, now: float) -> bool:
        """Return whether the wall clock was set since the last sweep."""
        wall, monotonic = self._last_clocks
        return abs((now - wall) - (time.monotonic() - monotonic)) >= _MAX_CLOCK_DRIFT_SECONDS

    def _find_entry(self, handle: str, known: Entry | None, sweep: int) -> Entry | None:
        """Return the metadata of a listed payload, or `None` if another process has removed it."""
        entry = known or self._read_entry(handle)
        # Damaged payloads are read again by each sweep.
        if entry is not None and not entry.is_corrupt:
            self._entries.add(handle, entry, sweep)
        return entry

    def _read_entry(self, handle: str) -> Entry | None:
        try:
            blob = self._backend.open(handle)
        except KeyError:
            return None
        with blob:
            try:
                meta = self._catalog.read_footer(handle, blob).meta
            except HandleCorrupt:
                # The expiry of a damaged payload cannot be read, so it expires after the default time to live.
                return Entry(blob.modified_at, blob.modified_at + self._options.ttl, blob.size, None, is_corrupt=True)
        return Entry(meta["created_at"], meta["expires_at"], blob.size, meta["principal"])

    def _remove(self, handle: str, size: int, principal: str | None, event: str) -> bool:
        self._catalog.forget(handle)
        self._entries.discard(handle)
        if not self._quota.delete(handle, principal, size):
            return False
        if is_sidecar_handle(handle):
            return True
        if event != "output_handle_expired":
            # A sidecar expires with its payload.
            delete_sidecar(self._backend, self._quota, handle, principal)
        self._journal.record(event, principal=principal, handle=handle, size_bytes=size)
        return True


# Not the generator of `random` itself, whose sequence belongs to the program.
_random = random.SystemRandom()
