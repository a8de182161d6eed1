"""Quotas: limits for the bytes on disk, in total and for each principal."""

import contextlib
import hashlib
import secrets
from collections import Counter
from collections.abc import Callable, Iterator

from forebay.errors import StoreFull
from forebay.store.backends import TOTAL_COUNTER, Backend, Count, Counters

__all__ = ["Quota", "QuotaExceeded", "Recount"]

_MAX_LOCKED_CORRECTIONS = 64
"""Maximum number of counters that a recount corrects before it lets other users of the counters pass."""


class QuotaExceeded(StoreFull):
    """A quota is exceeded according to the counters. After a crash they may be too high until the next recount."""


class Quota:
    """Counters of the bytes on disk, and their limits; `None` is no limit.

    An object and its counters change under one lock, so that a recount can tell what changed since it began.
    """

    def __init__(self, backend: Backend, max_total_bytes: int | None, max_principal_bytes: int | None) -> None:
        self._backend = backend
        self._max_total_bytes = max_total_bytes
        self._max_principal_bytes = max_principal_bytes

    def is_counted(self) -> bool:
        """Return whether `recount` has ever run for this store."""
        with self._backend.counters() as counters:
            return counters.get(TOTAL_COUNTER) is not None

    def usage(self) -> dict[str, int]:
        """Return the counted bytes by the name of the counter."""
        with self._backend.counters() as counters:
            counts = {name: counters.get(name) for name in counters.names()}
        return {name: count.used_bytes for name, count in counts.items() if count is not None}

    def begin_recount(self) -> "Recount":
        """Begin to count all objects."""
        return Recount(self._backend)

    def explain_shortage(self, principal: str | None, size: int) -> str | None:
        """Return why `size` more bytes do not fit now, or `None` if they do. Only `reserve` guarantees the space."""
        with self._backend.counters() as counters:
            return self._explain_shortage(_read_usage(counters, principal), size)

    def explain_oversize(self, principal: str | None, size: int) -> str | None:
        """Return why `size` bytes do not fit even into an empty store, or `None` if they do."""
        if self._explain_shortage(dict.fromkeys(_list_counter_names(principal), Count(0, 0)), size) is None:
            return None
        limits = [self._max_total_bytes, self._max_principal_bytes if principal is not None else None]
        smallest = min(limit for limit in limits if limit is not None)
        return f"this payload is larger than a quota of {smallest:,} bytes; store less of it, or raise the quota"

    def _explain_shortage(self, usage: dict[str, Count | None], size: int) -> str | None:
        for name, counted in usage.items():
            if name == TOTAL_COUNTER and counted is None:
                return "what is stored was not counted yet; call again"
            used = counted.used_bytes if counted is not None else 0
            is_total = name == TOTAL_COUNTER
            owner, limit = ("the store's", self._max_total_bytes) if is_total else ("your", self._max_principal_bytes)
            if limit is not None and used + size > limit:
                left = max(0, limit - used)
                return (
                    f"{owner} quota of {limit:,} bytes has {left:,} left, and this takes at least {size:,}; "
                    "delete what is no longer needed, wait until it expires, or raise the quota"
                )
        return None

    @contextlib.contextmanager
    def reserve(self, principal: str | None, size: int) -> Iterator[None]:
        """Count `size` bytes for the object that the `with` block commits, unless the block raises.

        Raises `QuotaExceeded` if the bytes do not fit.
        """
        with self._backend.counters() as counters:
            usage = _read_usage(counters, principal)
            shortage = self._explain_shortage(usage, size)
            if shortage is not None:
                raise QuotaExceeded(shortage)
            try:
                _add_usage(counters, usage, size)
                yield
            except BaseException:
                for name, count in usage.items():
                    counters.set(name, count or Count(0, 0))
                raise

    def release(self, principal: str | None, size: int, delete: Callable[[], bool]) -> bool:
        """Call `delete` and, if it returns that the object existed, subtract the object's size."""
        with self._backend.counters() as counters:
            if not delete():
                return False
            _add_usage(counters, _read_usage(counters, principal), -size)
            return True


class Recount:
    """A count of all objects, made without the lock of the counters, that then corrects the counters.

    Objects may be stored and deleted meanwhile. What has not changed since the beginning is set to the sum of the
    objects. What has changed is only lowered, and never below the true value: to the sum of the objects that were
    listed and of all bytes that were added meanwhile.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._sums: Counter[str | None] = Counter()
        with backend.counters() as counters:
            self._start = counters.get(TOTAL_COUNTER)

    def add(self, principal: str | None, size: int) -> None:
        """Count an object."""
        self._sums[principal] += size

    def apply(self) -> Iterator[None]:
        """Correct the counters, some at each step of the iteration."""
        sums = Counter({_get_counter_name(name): size for name, size in self._sums.items() if name is not None})
        sums[TOTAL_COUNTER] = self._sums.total()
        with self._backend.counters() as counters:
            names = {*sums, *counters.names()} - {TOTAL_COUNTER}
        # The total comes last: until it is set, nobody relies on the other counters.
        remaining = [TOTAL_COUNTER, *names]
        while remaining:
            batch = [remaining.pop() for _ in range(min(_MAX_LOCKED_CORRECTIONS, len(remaining)))]
            with self._backend.counters() as counters:
                total = counters.get(TOTAL_COUNTER)
                if not self._is_valid(total):
                    return
                for name in batch:
                    self._correct(counters, name, sums[name], total)
            yield

    def _is_valid(self, total: Count | None) -> bool:
        """Return whether the counters are still those from the beginning, and were not removed or replaced."""
        if self._start is None or total is None:
            return self._start is total
        return total.position >= self._start.position

    def _correct(self, counters: Counters, name: str, listed: int, total: Count | None) -> None:
        counted = counters.get(name)
        if self._start is None or total is None:
            # The first position is random: a count that began with the counters of another folder changes nothing.
            position = secrets.randbits(60) if name == TOTAL_COUNTER else 0
            counters.set(name, Count(listed, position))
            return
        used_bytes, position = counted or Count(0, total.position)
        if position > self._start.position:
            listed = min(used_bytes, listed + total.position - self._start.position)
        # A counter without a value was not written yet when its process was killed.
        if counted is None or listed != used_bytes:
            counters.set(name, Count(listed, position))


def _list_counter_names(principal: str | None) -> list[str]:
    return [TOTAL_COUNTER] if principal is None else [TOTAL_COUNTER, _get_counter_name(principal)]


def _read_usage(counters: Counters, principal: str | None) -> dict[str, Count | None]:
    return {name: counters.get(name) for name in _list_counter_names(principal)}


def _add_usage(counters: Counters, usage: dict[str, Count | None], added_bytes: int) -> None:
    total = usage[TOTAL_COUNTER]
    if total is None:
        # Not counted yet. A counter that is set now would look as if it were.
        return
    position = total.position + abs(added_bytes)
    for name, count in usage.items():
        used_bytes = count.used_bytes if count is not None else 0
        counters.set(name, Count(max(0, used_bytes + added_bytes), position))


def _get_counter_name(principal: str) -> str:
    """Return the name of a principal's counter: a hash, because the principal may not be a valid file name."""
    return "p-" + hashlib.blake2b(principal.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
