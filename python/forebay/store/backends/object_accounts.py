"""Accounts of stored bytes in a bucket, whose limits all replicas together never exceed.

A replica takes a slice of an account from the ledger, and its uploads spend the slice without a request. It soon
returns the bytes of objects that it deletes, and returns unspent bytes when it has been idle for a while.
"""

import contextlib
import random
import secrets
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping

from forebay.errors import ForebayError, StoreUnavailable
from forebay.store.backends import AccountFull
from forebay.store.backends.object_client import ObjectClient
from forebay.store.backends.object_errors import OutcomeUnknown
from forebay.store.backends.object_heartbeat import Heartbeat
from forebay.store.backends.object_ledger import Ledger, Replica
from forebay.store.backends.object_ledger_file import LedgerFile
from forebay.store.threads import fork_safe_lock

__all__ = ["ObjectAccounts", "Reservation"]

# Not the generator of `random` itself, whose sequence belongs to the program.
_random = random.SystemRandom()

_SLICES_PER_LIMIT = 256
"""A slice is at most a limit divided by this and by the replicas, so that others can use 99 % of a quota."""

_UNLIMITED_SLICE_BYTES = 4 << 20

_LEASE_SECONDS = 300.0
"""How long a replica may spend its slices after its last heartbeat."""

_DEAD_SECONDS = 900.0
"""How long after its last heartbeat a replica is dropped. Clocks may differ by this minus `_LEASE_SECONDS`."""

_MAX_VIEW_SECONDS = 1.0
"""Maximum age of the ledger that `usage` returns while an upload is open, without reading it again."""

_MAX_POSITION_SECONDS = 5.0
"""Maximum age of the position that `get_position` returns without reading the ledger again."""

_MAX_ATTEMPTS = 200


class ObjectAccounts:
    """The accounts of a bucket as one replica sees them."""

    def __init__(self, client: ObjectClient, is_empty: Callable[[], bool]) -> None:
        self._file = LedgerFile(client, is_empty, self._note_ledger)
        self._replica = secrets.token_hex(6)
        self._heartbeat = Heartbeat(self._beat)
        # Guards the fields below. Acquired inside the lock of the file, and never held during a request.
        self._lock = fork_safe_lock()
        self._unspent: Counter[str] = Counter()
        self._in_flight: Counter[str] = Counter()
        self._kept: list[tuple[float, list[str], int]] = []
        """Uploads with an unknown outcome: their time, accounts and size."""
        self._deleted: Counter[tuple[str, int]] = Counter()
        """Bytes to be subtracted, by account and by position of the ledger at the deletion."""
        self._ledger_id = ""
        self._epoch = 0
        """Incremented when another process has dropped this replica, and so its slices."""
        self._lease_end = 0.0
        self._has_spent = False
        self._open_uploads = 0

    def note_upload(self, change: int) -> None:
        """Take note that an upload began or ended."""
        with self._lock:
            self._open_uploads += change

    def usage(self, names: Collection[str] | None = None) -> dict[str, int]:
        """Return the bytes of accounts, including the slices of other replicas; nothing before the first recount."""
        with self._file.lock():
            last = self._file.get_last()
            # An open upload asks repeatedly.
            is_recent = self._open_uploads and self._file.age_seconds < _MAX_VIEW_SECONDS
            ledger = last[0] if last is not None and is_recent else self._file.read()
            if ledger is None:
                return {}
            with self._lock:
                usage = self._adjust(ledger)
        return {name: size for name, size in usage.items() if names is None or name in names}

    def _adjust(self, ledger: Ledger) -> Counter[str]:
        """Return the usage without the bytes that this replica has not spent or is about to return."""
        for (name, position), size in self._deleted.items():
            ledger.release_deleted(name, size, position)
        usage = ledger.usage()
        for name, size in self._unspent.items():
            usage[name] = max(0, usage[name] - size)
        return usage

    @contextlib.contextmanager
    def reserve(self, size: int, limits: Mapping[str, int | None]) -> "Iterator[Reservation]":
        """Count `size` bytes for the object that the `with` block writes, unless the block raises.

        Raises `AccountFull` if the bytes do not fit.
        """
        reservation = Reservation(self, size, limits)
        self.take(reservation)
        try:
            yield reservation
        except (AccountFull, ForebayError):
            self._give_back(reservation)
            raise
        except BaseException:
            # An interrupted block may have written the object.
            reservation.keep()
            raise
        finally:
            self._end(reservation)

    def take(self, reservation: "Reservation") -> None:
        """Take the bytes of a reservation from the slices of this replica."""
        if not self._try_to_take(reservation):
            with self._file.lock():
                # Another thread may refill the slices first, or spend what this one has refilled.
                while not self._try_to_take(reservation):
                    self._refill(reservation)
        self._heartbeat.start()

    def _try_to_take(self, reservation: "Reservation") -> bool:
        with self._lock:
            # An empty object needs no slice, but there must be a ledger.
            is_ready = self._has_lease() if reservation.size else self._file.position is not None
            if not is_ready or any(self._unspent[name] < reservation.size for name in reservation.limits):
                return False
            for name in reservation.limits:
                self._unspent[name] -= reservation.size
                self._in_flight[name] += reservation.size
            reservation.epoch = self._epoch
            self._has_spent = True
            return True

    def _has_lease(self) -> bool:
        return _now() < self._lease_end

    def _refill(self, reservation: "Reservation") -> None:
        """Take slices from the ledger for the accounts that have too few unspent bytes."""
        granted: Counter[str] = Counter()

        def grant(ledger: Ledger) -> None:
            granted.clear()
            holders = len(ledger.replicas.keys() | {self._replica})
            with self._lock:
                unspent = self._unspent.copy()
                usage = ledger.usage()
                usage.subtract(unspent)
            for name, limit in reservation.limits.items():
                missing = max(0, reservation.size - unspent[name])
                used = ledger.accounts[name].used_bytes if name in ledger.accounts else 0
                room = max(0, limit - used) if limit is not None else missing + _UNLIMITED_SLICE_BYTES
                if missing > room:
                    raise AccountFull(dict(usage))
                share = _UNLIMITED_SLICE_BYTES if limit is None else limit // (_SLICES_PER_LIMIT * (1 + holders))
                granted[name] = max(missing, min(share, room)) if missing else 0
            for name, size in granted.items():
                if size:
                    ledger.grant(name, size)

        if not self._update(grant, granted):
            raise AccountFull({})

    def _give_back(self, reservation: "Reservation") -> None:
        with self._lock:
            if not reservation.is_kept and not reservation.is_settled and reservation.epoch == self._epoch:
                self._unspent.update(dict.fromkeys(reservation.limits, reservation.size))

    def _end(self, reservation: "Reservation") -> None:
        with self._lock:
            if reservation.epoch == self._epoch and not reservation.is_kept:
                self._in_flight.subtract(dict.fromkeys(reservation.limits, reservation.size))

    def keep(self, reservation: "Reservation") -> None:
        """Keep a recount from freeing the bytes of an upload with an unknown outcome: the object may appear later."""
        with self._lock:
            self._kept.append((_now(), list(reservation.limits), reservation.size))

    def is_dropped(self, reservation: "Reservation") -> bool:
        """Return whether a recount may have dropped the bytes of a reservation while its object was written."""
        with self._lock:
            has_lease = self._has_lease()
        if not has_lease:
            with self._file.lock():
                self._update(lambda _: None)
        with self._lock:
            return reservation.epoch != self._epoch

    def get_position(self) -> int | None:
        """Return the position of the ledger, to be passed to `release`; `None` if nothing was counted yet."""
        # With a position from before the last recount, the size of the object would not be subtracted.
        if self._file.position is None or self._file.age_seconds > _MAX_POSITION_SECONDS:
            with self._file.lock():
                self._file.read()
        return self._file.position

    def release(self, size: int, names: Collection[str], position: int | None) -> None:
        """Subtract the size of an object that was deleted after `get_position` returned `position`."""
        if position is None or not size:
            return
        with self._lock:
            for name in names:
                self._deleted[name, position] += size
        self._heartbeat.start(soon=True)

    def read_ledger(self, *, drops_dead: bool = False) -> Ledger | None:
        """Return the ledger. A recount uses `drops_dead`: drop dead replicas, and bring the slices up to date first."""
        with self._file.lock():
            ledger = self._file.read()
            # What this replica has spent since its last update must not be taken for unspent.
            if drops_dead and ledger is not None and (self._lease_end or ledger.drop_replicas(_DEAD_SECONDS)):
                self._update(lambda current: current.drop_replicas(_DEAD_SECONDS))
                last = self._file.get_last()
                return None if last is None else last[0]
            return ledger

    def correct(self, change: Callable[[Ledger], bool]) -> None:
        """Apply `change` to the ledger, and write the ledger if `change` returns true."""
        with self._file.lock():
            ledger = self._file.read()
            if ledger is not None and change(ledger):
                self._update(change)

    def create_ledger(self, sums: Mapping[str, int]) -> None:
        """Write the first ledger, unless there is one."""
        with self._file.lock():
            self._file.create(sums)

    def _note_ledger(self, ledger: Ledger | None) -> None:
        with self._lock:
            is_known = ledger is not None and ledger.id == self._ledger_id and self._replica in ledger.replicas
            if self._lease_end and not is_known:
                # A recount has dropped this replica, or the ledger was removed: others may spend its slices.
                self._epoch += 1
                self._unspent.clear()
                self._in_flight.clear()
                self._kept.clear()
                self._lease_end = 0.0
            if ledger is not None and ledger.id != self._ledger_id:
                self._ledger_id = ledger.id
                self._deleted.clear()

    def _update(self, change: Callable[[Ledger], object], granted: Mapping[str, int] | None = None) -> bool:
        """Change the ledger, and return whether there is one. `change` may be called repeatedly.

        What it writes to `granted` belongs to this replica afterwards. If it raises `AccountFull`, the ledger is read
        again, in case others have made room.
        """
        is_current = False
        for attempt in range(_MAX_ATTEMPTS):
            if attempt or self._file.get_last() is None:
                self._file.read()
                is_current = True
            last, began_at = self._file.get_last(), _now()
            if last is None:
                return False
            ledger, version = last
            with self._lock:
                settled = self._deleted.copy()
                for (name, position), size in settled.items():
                    ledger.release_deleted(name, size, position)
            try:
                change(ledger)
            except AccountFull:
                if is_current:
                    raise
                continue
            with self._lock:
                slices = self._unspent + self._in_flight
                slices.update(granted or {})
            ledger.replicas.pop(self._replica, None)
            if slices:
                ledger.replicas[self._replica] = Replica(time.time(), dict(slices))
            try:
                is_written = self._file.write(ledger, version)
            except OutcomeUnknown:
                with self._lock:
                    # A second subtraction would make the accounts too low.
                    self._deleted -= settled
                raise
            if is_written:
                with self._lock:
                    self._deleted -= settled
                    self._lease_end = began_at + _LEASE_SECONDS if slices else 0.0
                    self._unspent.update(granted or {})
                return True
            time.sleep(_random.uniform(0, min(0.1, 0.002 * (attempt + 1))))
        raise StoreUnavailable("the accounts of this store are changed too often by others; call again")

    def _beat(self, is_regular: bool) -> bool:
        """Tell the ledger that this replica is alive, and return whether that is needed again."""
        with self._lock:
            is_idle = is_regular and not self._has_spent and not self._open_uploads
            self._has_spent = self._has_spent and not is_regular
        # What fails now is repeated by the next heartbeat.
        with contextlib.suppress(ForebayError):
            self._return_bytes(also_unspent=is_idle)
        with self._lock:
            return bool(self._lease_end or self._deleted)

    def _return_bytes(self, *, also_unspent: bool) -> None:
        """Return the bytes of deleted objects, and also those that this replica has not spent."""
        with self._file.lock():
            returned: Counter[str] = Counter()
            with self._lock:
                limit, epoch = _now() - _DEAD_SECONDS, self._epoch
                for _, names, size in [kept for kept in self._kept if kept[0] < limit]:
                    self._in_flight.subtract(dict.fromkeys(names, size))
                self._kept = [kept for kept in self._kept if kept[0] >= limit]
                if also_unspent:
                    returned = +self._unspent
                    self._unspent.clear()
                if not self._lease_end and not self._deleted:
                    return

            def release(ledger: Ledger) -> None:
                if epoch == self._epoch:
                    for name, size in returned.items():
                        ledger.release(name, size)

            # If the outcome is unknown, the bytes stay counted until the next recount.
            self._update(release)

    def close(self) -> None:
        """Return what this replica has not spent."""
        self._heartbeat.stop()
        with contextlib.suppress(ForebayError):
            self._return_bytes(also_unspent=True)


class Reservation:
    """Bytes that are counted for an object that is being written."""

    def __init__(self, accounts: ObjectAccounts, size: int, limits: Mapping[str, int | None]) -> None:
        self._accounts = accounts
        self.size = size
        self.limits = limits
        self.epoch = -1
        self.is_kept = self.is_settled = False

    def keep(self) -> None:
        """Count the bytes although the upload fails, because the object may appear later."""
        if not self.is_kept:
            self.is_kept = True
            self._accounts.keep(self)

    def settle(self, delete: Callable[[], None]) -> None:
        """Make sure that the written object is counted. Otherwise `delete` it and raise `AccountFull`."""
        self.is_settled = True
        if self._accounts.is_dropped(self):
            try:
                self._accounts.take(self)
            except AccountFull:
                delete()
                raise


def _now() -> float:
    """Return the seconds since the system started, including those in which it was suspended."""
    if sys.platform != "win32" and hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()
