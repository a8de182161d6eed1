"""Reading an object of a remote backend in few requests."""

from collections.abc import Callable
from typing import Self

from forebay.store.threads import fork_safe_lock

__all__ = ["READ_AHEAD_BYTES", "RemoteBlob"]

READ_AHEAD_BYTES = 8 << 20
"""Size of a request when an object is read in order."""

_MIN_CONTINUATIONS = 2
"""How many reads in a row must continue the one before until the blob reads ahead."""


class RemoteBlob:
    """An object that is fetched in ranges. The last range stays in memory, as does the tail that `open` has read.

    `fetch` returns exactly the range with a start and a length. It raises `HandleNotFound` if the object is gone, as
    `check` does.
    """

    def __init__(
        self,
        fetch: Callable[[int, int], bytes],
        check: Callable[[], None],
        *,
        size: int,
        modified_at: float,
        version: object,
        tail: bytes = b"",
    ) -> None:
        self._fetch = fetch
        self._check = check
        self.size = size
        self.modified_at = modified_at
        self.version = version
        self._tail = tail
        self._is_checked = bool(tail)
        self._lock = fork_safe_lock()
        self._piece_start = 0
        self._piece = b""
        self._continuations = 0
        self._is_ahead = False

    @property
    def tail_start(self) -> int:
        """Where the tail in memory begins."""
        return self.size - len(self._tail)

    def read(self, start: int, length: int) -> bytes:
        """Read a range. The result is shorter than `length` only at the end of the object."""
        end = min(start + length, self.size)
        tail_start = self.tail_start
        if start >= end:
            return b""
        if start >= tail_start:
            return self._tail[start - tail_start : end - tail_start]
        with self._lock:
            piece_end = min(end, tail_start)
            if not self._has(start, piece_end):
                self._fetch_piece(start, piece_end, tail_start)
            data = self._piece[start - self._piece_start : end - self._piece_start]
        return data if end <= tail_start else data[: tail_start - start] + self._tail[: end - tail_start]

    def _has(self, start: int, end: int) -> bool:
        return self._piece_start <= start and end <= self._piece_start + len(self._piece)

    def _fetch_piece(self, start: int, end: int, limit: int) -> None:
        """Fetch a range, and more of it, up to `limit`, if the object seems to be read in order."""
        piece_end = self._piece_start + len(self._piece)
        is_continuation = self._piece_start < start <= piece_end
        overlap = self._piece[start - self._piece_start :] if is_continuation else b""
        self._continuations = self._continuations + 1 if is_continuation else 0
        first = start + len(overlap)
        if self._is_ahead or self._continuations >= _MIN_CONTINUATIONS:
            end = min(max(end, first + READ_AHEAD_BYTES), limit)
        self._piece_start, self._piece = start, overlap + self._fetch(first, end - first)
        self._is_checked = True

    def read_ahead(self) -> None:
        """Read in large pieces from now on."""
        self._is_ahead = True

    def check(self) -> None:
        """Raise `HandleNotFound` if the object is gone, unless a read has already shown that it exists."""
        if not self._is_checked:
            self._check()
            self._is_checked = True

    def close(self) -> None:
        """Drop the ranges in memory."""
        self._tail = self._piece = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
