"""Quotas: limits for the bytes on disk, in total and for each principal."""

import contextlib
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from forebay.errors import StoreFull
from forebay.store.backends import TOTAL_COUNTER, Backend, Counters

__all__ = ["Quota", "QuotaExceeded"]


class QuotaExceeded(StoreFull):
    """A quota is exceeded according to the counters. After a crash they may be too high until the next recount."""


class Quota:
    """Counters of the bytes on disk, and their limits; `None` is no limit.

    An object and its counters change under one lock, so that a recount does not see only one of the changes.
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
            return {name: counters.get(name) or 0 for name in counters.names()}

    def recount(self, list_objects: Callable[[], Iterable[tuple[str | None, int]]]) -> None:
        """Set the counters to the sums of all objects. A crash may have left other values."""
        with self._backend.counters() as counters:
            sums = Counter({TOTAL_COUNTER: 0, **dict.fromkeys(counters.names(), 0)})
            for principal, size in list_objects():
                sums[TOTAL_COUNTER] += size
                if principal is not None:
                    sums[_get_counter_name(principal)] += size
            for name, value in sums.items():
                counters.set(name, value)

    def explain_shortage(self, principal: str | None, size: int) -> str | None:
        """Return why `size` more bytes do not fit now, or `None` if they do. Only `reserve` guarantees the space."""
        with self._backend.counters() as counters:
            return self._explain_shortage(_read_usage(counters, principal), size)

    def explain_oversize(self, principal: str | None, size: int) -> str | None:
        """Return why `size` bytes do not fit even into an empty store, or `None` if they do."""
        if self._explain_shortage(dict.fromkeys(_list_counter_names(principal), 0), size) is None:
            return None
        limits = [self._max_total_bytes, self._max_principal_bytes if principal is not None else None]
        smallest = min(limit for limit in limits if limit is not None)
        return f"this payload is larger than a quota of {smallest:,} bytes; store less of it, or raise the quota"

    def _explain_shortage(self, usage: dict[str, int | None], size: int) -> str | None:
        for name, counted in usage.items():
            if name == TOTAL_COUNTER and counted is None:
                return "what is stored was not counted yet; call again"
            used = counted or 0
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
                _write_usage(counters, usage, size)
                yield
            except BaseException:
                _write_usage(counters, usage, 0)
                raise

    def release(self, principal: str | None, size: int, delete: Callable[[], bool]) -> bool:
        """Call `delete` and, if it returns that the object existed, subtract the object's size."""
        with self._backend.counters() as counters:
            if not delete():
                return False
            _write_usage(counters, _read_usage(counters, principal), -size)
            return True


def _list_counter_names(principal: str | None) -> list[str]:
    return [TOTAL_COUNTER] if principal is None else [TOTAL_COUNTER, _get_counter_name(principal)]


def _read_usage(counters: Counters, principal: str | None) -> dict[str, int | None]:
    return {name: counters.get(name) for name in _list_counter_names(principal)}


def _write_usage(counters: Counters, usage: dict[str, int | None], added_bytes: int) -> None:
    for name, amount in usage.items():
        counters.set(name, max(0, (amount or 0) + added_bytes))


def _get_counter_name(principal: str) -> str:
    """Return the name of a principal's counter: a hash, because the principal may not be a valid file name."""
    return "p-" + hashlib.blake2b(principal.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
