"""A cache that forgets the least recently used entries."""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

__all__ = ["LRUCache"]

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")
_D = TypeVar("_D")


class LRUCache(Generic[_K, _V]):
    """Entries by key, with a limit on the sum of their sizes. The caller locks.

    An entry larger than the limit replaces all others.
    """

    def __init__(self, max_size: int, get_size: Callable[[_V], int] = lambda _: 1) -> None:
        self._max_size = max_size
        self._get_size = get_size
        self._size = 0
        # A dict keeps the order of insertion; an entry that is used is inserted again.
        self._entries: dict[_K, _V] = {}

    def get(self, key: _K, default: _D) -> _V | _D:
        """Return an entry and count it as used, or return `default`."""
        if key not in self._entries:
            return default
        value = self._entries[key] = self._entries.pop(key)
        return value

    def __setitem__(self, key: _K, value: _V) -> None:
        self.remove(key)
        self._entries[key] = value
        self._size += self._get_size(value)
        while self._size > self._max_size and len(self._entries) > 1:
            self.remove(next(iter(self._entries)))

    def remove(self, key: _K) -> None:
        """Remove an entry if it exists."""
        if key in self._entries:
            self._size -= self._get_size(self._entries.pop(key))
