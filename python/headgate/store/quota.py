"""How much of a store is used, by everyone and by each principal."""

import hashlib
from collections.abc import Iterable

from headgate.errors import StoreFull
from headgate.store.backend import Backend

__all__ = ["Quota"]

_TOTAL = "total"


class Quota:
    """Counts what is stored, in bytes on disk, and refuses what would be too much. `None` is no limit."""

    def __init__(self, backend: Backend, total: int | None, per_principal: int | None) -> None:
        self._backend = backend
        self._total = total
        self._per_principal = per_principal

    def is_counted(self) -> bool:
        """Whether what is stored was ever counted; if not, `recount` is due."""
        return self._backend.counter(_TOTAL).value() is not None

    def counted(self) -> dict[str, int]:
        """What the counters say."""
        return {name: self._backend.counter(name).value() or 0 for name in {_TOTAL, *self._backend.counters()}}

    def recount(self, stored: Iterable[tuple[str | None, int]], before: dict[str, int]) -> None:
        """Corrects the counters by what is there, which after a crash they may not say.

        `before` is what they said before anyone looked. They may have changed since, and keep what was added.
        """
        sums = dict.fromkeys((_TOTAL, *before), 0)
        for principal, size in stored:
            sums[_TOTAL] += size
            if principal is not None:
                name = _name(principal)
                sums[name] = sums.get(name, 0) + size
        for name, value in sums.items():
            self._backend.counter(name).add(value - before.get(name, 0))

    def fits(self, principal: str | None, size: int) -> bool:
        """Whether there seems to be room; only `take` knows."""
        used = self._backend.counter(_TOTAL).value() or 0
        if self._total is not None and used + size > self._total:
            return False
        if principal is None or self._per_principal is None:
            return True
        return (self._backend.counter(_name(principal)).value() or 0) + size <= self._per_principal

    def holds(self, principal: str | None, size: int) -> bool:
        """Whether there would be room if nothing else were stored."""
        limits = [self._total, self._per_principal if principal is not None else None]
        return all(limit is None or size <= limit for limit in limits)

    def take(self, principal: str | None, size: int) -> None:
        """Takes room; raises `StoreFull` if there is none."""
        total = self._backend.counter(_TOTAL)
        if not total.add(size, self._total):
            raise StoreFull(f"the store's quota of {self._total:,} bytes is used up; {_NEXT}")
        if principal is not None and not self._backend.counter(_name(principal)).add(size, self._per_principal):
            total.add(-size)
            raise StoreFull(f"your quota of {self._per_principal:,} bytes is used up; {_NEXT}")

    def release(self, principal: str | None, size: int) -> None:
        """Gives room back."""
        self._backend.counter(_TOTAL).add(-size)
        if principal is not None:
            self._backend.counter(_name(principal)).add(-size)


_NEXT = "delete what is no longer needed, wait until it expires, or raise the quota"


def _name(principal: str) -> str:
    """Whatever a principal is called, its counter's name is harmless."""
    return "p-" + hashlib.blake2b(principal.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
