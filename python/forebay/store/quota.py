"""Quotas: how much is stored, in all and by each principal."""

import contextlib
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from forebay.errors import StoreFull
from forebay.store.backends import TOTAL_COUNTER, Backend, Counters

__all__ = ["Quota", "QuotaExceeded"]


class QuotaExceeded(StoreFull):
    """A quota is exceeded according to the counters. A recount may show that it is not."""


class Quota:
    """Counts the bytes on disk and enforces limits; a limit of `None` is no limit.

    Objects and counters change together under the lock of the counters, so that a recount is never half right.
    """

    def __init__(self, backend: Backend, total: int | None, per_principal: int | None) -> None:
        self._backend = backend
        self._total = total
        self._per_principal = per_principal

    def is_counted(self) -> bool:
        """Return whether the store was ever counted; if not, `recount` is due."""
        with self._backend.counters() as counters:
            return counters.get(TOTAL_COUNTER) is not None

    def usage(self) -> dict[str, int]:
        """Return all counters."""
        with self._backend.counters() as counters:
            return {name: counters.get(name) or 0 for name in counters.names()}

    def recount(self, list_objects: Callable[[], Iterable[tuple[str | None, int]]]) -> None:
        """Set the counters from the principals and sizes of all objects; after a crash they may be wrong."""
        with self._backend.counters() as counters:
            sums = Counter({TOTAL_COUNTER: 0, **dict.fromkeys(counters.names(), 0)})
            for principal, size in list_objects():
                sums[TOTAL_COUNTER] += size
                if principal is not None:
                    sums[_get_counter_name(principal)] += size
            for name, value in sums.items():
                counters.set(name, value)

    def explain_shortage(self, principal: str | None, size: int) -> str | None:
        """Return why `size` more bytes do not fit now, or `None` if they do. Only `reserve` guarantees it."""
        with self._backend.counters() as counters:
            return self._explain_shortage(_read_usage(counters, principal), size)

    def explain_oversize(self, principal: str | None, size: int) -> str | None:
        """Return why `size` bytes would not fit even into an empty store, or `None` if they would."""
        if self._explain_shortage(dict.fromkeys(_list_counter_names(principal), 0), size) is None:
            return None
        limits = [self._total, self._per_principal if principal is not None else None]
        smallest = min(limit for limit in limits if limit is not None)
        return f"this payload is larger than a quota of {smallest:,} bytes; store less of it, or raise the quota"

    def _explain_shortage(self, usage: dict[str, int | None], size: int) -> str | None:
        for name, counted in usage.items():
            if name == TOTAL_COUNTER and counted is None:
                return "what is stored was not counted yet; call again"
            used = counted or 0
            owner, limit = ("the store's", self._total) if name == TOTAL_COUNTER else ("your", self._per_principal)
            if limit is not None and used + size > limit:
                left = max(0, limit - used)
                return (
                    f"{owner} quota of {limit:,} bytes has {left:,} left, and this takes at least {size:,}; "
                    "delete what is no longer needed, wait until it expires, or raise the quota"
                )
        return None

    @contextlib.contextmanager
    def reserve(self, principal: str | None, size: int) -> Iterator[None]:
        """Count `size` bytes for the object that the block commits, unless the block raises.

        Raises `QuotaExceeded` if they do not fit.
        """
        with self._backend.counters() as counters:
            usage = _read_usage(counters, principal)
            shortage = self._explain_shortage(usage, size)
            if shortage is not None:
                raise QuotaExceeded(shortage)
            try:
                _write_usage(counters, usage, size)
                yield
            except BaseException:
                _write_usage(counters, usage, 0)
                raise

    def release(self, principal: str | None, size: int, delete: Callable[[], bool]) -> bool:
        """Delete an object, and subtract its size if `delete` returns that it existed."""
        with self._backend.counters() as counters:
            if not delete():
                return False
            _write_usage(counters, _read_usage(counters, principal), -size)
            return True


def _list_counter_names(principal: str | None) -> list[str]:
    return [TOTAL_COUNTER] if principal is None else [TOTAL_COUNTER, _get_counter_name(principal)]


def _read_usage(counters: Counters, principal: str | None) -> dict[str, int | None]:
    return {name: counters.get(name) for name in _list_counter_names(principal)}


def _write_usage(counters: Counters, usage: dict[str, int | None], change: int) -> None:
    for name, amount in usage.items():
        counters.set(name, max(0, (amount or 0) + change))


def _get_counter_name(principal: str) -> str:
    """Return the counter of a principal: a hash, because a principal may be no valid file name."""
    return "p-" + hashlib.blake2b(principal.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
