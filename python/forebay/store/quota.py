"""How much of a store is used, by everyone and by each principal."""

import contextlib
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from forebay.errors import StoreFull
from forebay.store.backends import Backend, Counters
from forebay.store.backends.counters import TOTAL

__all__ = ["Quota", "QuotaExceeded"]


class QuotaExceeded(StoreFull):
    """A quota has no room, as far as is counted."""


class Quota:
    """Counts what is stored, in bytes on disk, and refuses what would be too much. `None` is no limit.

    What is stored and what is counted change together, under one lock: a recount finds both or neither.
    """

    def __init__(self, backend: Backend, total: int | None, per_principal: int | None) -> None:
        self._backend = backend
        self._total = total
        self._per_principal = per_principal

    def is_counted(self) -> bool:
        """Whether what is stored was ever counted; if not, `recount` is due."""
        with self._backend.counters() as counters:
            return counters.get(TOTAL) is not None

    def usage(self) -> dict[str, int]:
        """What the counters say."""
        with self._backend.counters() as counters:
            return {name: counters.get(name) or 0 for name in counters.names()}

    def recount(self, stored: Callable[[], Iterable[tuple[str | None, int]]]) -> None:
        """Sets the counters to what is there, which after a crash they may not say."""
        with self._backend.counters() as counters:
            sums = Counter({TOTAL: 0, **dict.fromkeys(counters.names(), 0)})
            for principal, size in stored():
                sums[TOTAL] += size
                if principal is not None:
                    sums[_counter_name(principal)] += size
            for name, value in sums.items():
                counters.set(name, value)

    def explain_shortage(self, principal: str | None, size: int) -> str | None:
        """Why there seems to be no room; only `taking` knows."""
        with self._backend.counters() as counters:
            return self._explain_shortage(_read_usage(counters, principal), size)

    def explain_oversize(self, principal: str | None, size: int) -> str | None:
        """Why there would be no room even if nothing else were stored."""
        if self._explain_shortage(dict.fromkeys(_counter_names(principal), 0), size) is None:
            return None
        limits = [self._total, self._per_principal if principal is not None else None]
        least = min(limit for limit in limits if limit is not None)
        return f"this payload is larger than a quota of {least:,} bytes; store less of it, or raise the quota"

    def _explain_shortage(self, used: dict[str, int | None], size: int) -> str | None:
        for name, counted in used.items():
            if name == TOTAL and counted is None:
                return "what is stored was not counted yet; call again"
            taken = counted or 0
            whose, limit = ("the store's", self._total) if name == TOTAL else ("your", self._per_principal)
            if limit is not None and taken + size > limit:
                left = max(0, limit - taken)
                return (
                    f"{whose} quota of {limit:,} bytes has {left:,} left, and this takes at least {size:,}; "
                    "delete what is no longer needed, wait until it expires, or raise the quota"
                )
        return None

    @contextlib.contextmanager
    def reserve(self, principal: str | None, size: int) -> Iterator[None]:
        """Takes room for what the block stores, and gives it back if that fails; `StoreFull` if there is none."""
        with self._backend.counters() as counters:
            used = _read_usage(counters, principal)
            short = self._explain_shortage(used, size)
            if short is not None:
                raise QuotaExceeded(short)
            try:
                _write_usage(counters, used, size)
                yield
            except BaseException:
                _write_usage(counters, used, 0)
                raise

    def release(self, principal: str | None, size: int, delete: Callable[[], bool]) -> bool:
        """Gives back the room of what `delete` removes, if it says that it did."""
        with self._backend.counters() as counters:
            if not delete():
                return False
            _write_usage(counters, _read_usage(counters, principal), -size)
            return True


def _counter_names(principal: str | None) -> list[str]:
    return [TOTAL] if principal is None else [TOTAL, _counter_name(principal)]


def _read_usage(counters: Counters, principal: str | None) -> dict[str, int | None]:
    return {name: counters.get(name) for name in _counter_names(principal)}


def _write_usage(counters: Counters, used: dict[str, int | None], more: int) -> None:
    for name, amount in used.items():
        counters.set(name, max(0, (amount or 0) + more))


def _counter_name(principal: str) -> str:
    """Whatever a principal is called, its counter's name is harmless."""
    return "p-" + hashlib.blake2b(principal.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
