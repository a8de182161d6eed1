"""A cache on local disk of the pieces that were read from a remote backend.

The cache is one file without a name: nothing is left of it after a kill. The file is divided into slots of one piece
each. A table in memory has the checksum of each piece: whatever happens to the file, a wrong byte is noticed, and the
piece is read from the backend again.
"""

import itertools
import logging
import os
import tempfile
from collections import OrderedDict
from typing import IO, NamedTuple, Protocol, Self, TypeAlias

from forebay._core import checksum
from forebay.errors import InvalidArgument
from forebay.store.backends import Backend
from forebay.store.backends.remote_blob import RemoteBlob
from forebay.store.threads import fork_safe_lock
from forebay.system import files

__all__ = ["PIECE_BYTES", "CachedBackend", "ReadCache"]

_log = logging.getLogger("forebay")

PIECE_BYTES = 256 << 10
"""Size of a piece. A page then reads at least one piece instead of one frame; most frames are much smaller."""

_Key: TypeAlias = tuple[str, object, int]
"""The handle and the version of an object, and the number of the piece in it."""


class _Slot(NamedTuple):
    number: int
    length: int
    checksum: int


class ReadCache:
    """Pieces of objects in a file. The least recently used pieces make room for others."""

    def __init__(self, max_bytes: float, folder: str | os.PathLike[str] | None = None) -> None:
        self._max_slots = int(max_bytes // PIECE_BYTES)
        self._folder = folder
        self._lock = fork_safe_lock()
        try:
            self._start()
        except OSError as error:
            raise InvalidArgument(
                f"the read cache cannot be in {os.fspath(folder or tempfile.gettempdir())!r}: {error.strerror}; name "
                "another folder as read_cache_folder, or set read_cache_bytes to 0"
            ) from None

    @property
    def max_bytes(self) -> int:
        """The maximum size of the file."""
        return self._max_slots * PIECE_BYTES

    def _start(self) -> None:
        self._slots: OrderedDict[_Key, _Slot] = OrderedDict()
        self._free: list[int] = []
        self._used = 0
        self._pid = os.getpid()
        self._file: IO[bytes] | None = tempfile.TemporaryFile(prefix="forebay-", buffering=0, dir=self._folder)  # noqa: SIM115

    def get(self, key: _Key) -> bytes | None:
        """Return a piece, or `None` if the cache lacks it or the file was damaged."""
        with self._lock:
            slot = self._slots.get(key)
            if slot is None or self._file is None or self._pid != os.getpid():
                return None
            self._slots.move_to_end(key)
            try:
                data = files.read_at(self._file.fileno(), slot.length, slot.number * PIECE_BYTES)
            except OSError as error:
                self._turn_off(error)
                return None
        if checksum(data) == slot.checksum:
            return data
        with self._lock:
            if self._slots.get(key) is slot:
                del self._slots[key]
                self._free.append(slot.number)
        return None

    def put(self, key: _Key, data: bytes) -> None:
        """Add a piece. After an error of the disk, such as a full one, the cache is off."""
        digest = checksum(data)
        with self._lock:
            try:
                if self._pid != os.getpid():
                    # The parent process writes to the file that a forked child has inherited.
                    self.close()
                    self._start()
                if self._file is None or not self._max_slots or key in self._slots:
                    return
                number = self._take_slot()
                if files.write_at(self._file.fileno(), data, number * PIECE_BYTES) == len(data):
                    self._slots[key] = _Slot(number, len(data), digest)
                else:
                    # The next attempt raises the error, if the disk is still full.
                    self._free.append(number)
            except OSError as error:
                self._turn_off(error)

    def _take_slot(self) -> int:
        if self._free:
            return self._free.pop()
        if self._used < self._max_slots:
            self._used += 1
            return self._used - 1
        return self._slots.popitem(last=False)[1].number

    def _turn_off(self, error: OSError) -> None:
        _log.warning("forebay: the read cache is off: %s", error.strerror)
        self.close()

    def close(self) -> None:
        """Remove the file."""
        with self._lock:
            self._slots.clear()
            file, self._file = self._file, None
            if file is not None:
                file.close()


class _RemoteBackend(Backend, Protocol):
    def open(self, handle: str, version: object = None) -> RemoteBlob: ...


class CachedBackend:
    """A remote backend whose reads go through a cache."""

    def __init__(self, backend: _RemoteBackend, cache: ReadCache) -> None:
        self._backend = backend
        self._cache = cache
        self.folder = backend.folder
        self.expires_by_handle = backend.expires_by_handle
        self.log = backend.log
        self.call_counts = backend.call_counts
        self.check = backend.check
        self.create = backend.create
        self.is_committed = backend.is_committed
        self.list = backend.list
        self.delete = backend.delete
        self.usage = backend.usage
        self.begin_recount = backend.begin_recount
        self.remove_leftovers = backend.remove_leftovers
        self.lock = backend.lock

    def open(self, handle: str, version: object = None) -> "CachedBlob":
        return CachedBlob(self._backend.open(handle, version), handle, self._cache)

    def close(self) -> None:
        self._cache.close()
        self._backend.close()


class CachedBlob:
    """An object that is open for reading. At least one request checks that the backend still has it."""

    def __init__(self, blob: RemoteBlob, handle: str, cache: ReadCache) -> None:
        self._blob = blob
        self._handle = handle
        self._cache = cache
        self._fills_cache = True
        # Frames are smaller than pieces: reads in order need the same piece several times.
        self._last: tuple[int, bytes] = (-1, b"")
        self.size = blob.size
        self.modified_at = blob.modified_at
        self.version = blob.version

    def read(self, start: int, length: int) -> bytes:
        """Read a range. The result is shorter than `length` only at the end of the object."""
        end = min(start + length, self.size)
        if start >= min(end, self._blob.tail_start):
            return self._blob.read(start, length)
        first, last = start // PIECE_BYTES, (end - 1) // PIECE_BYTES
        pieces = [self._find(number) for number in range(first, last + 1)]
        for is_missing, group in itertools.groupby(range(len(pieces)), lambda index: pieces[index] is None):
            if is_missing:
                indexes = [*group]
                pieces[indexes[0] : indexes[-1] + 1] = self._fetch(first + indexes[0], len(indexes))
        # This makes a request only if all pieces came from the cache.
        self._blob.check()
        found = [piece for piece in pieces if piece is not None]
        self._last = last, found[-1]
        data = found[0] if len(found) == 1 else b"".join(found)
        return data[start - first * PIECE_BYTES : end - first * PIECE_BYTES]

    def _find(self, number: int) -> bytes | None:
        last_number, last = self._last
        return last if number == last_number else self._cache.get((self._handle, self.version, number))

    def _fetch(self, first: int, count: int) -> list[bytes]:
        data = self._blob.read(first * PIECE_BYTES, count * PIECE_BYTES)
        pieces = [data[start : start + PIECE_BYTES] for start in range(0, len(data), PIECE_BYTES)]
        if self._fills_cache:
            for number, piece in enumerate(pieces, first):
                self._cache.put((self._handle, self.version, number), piece)
        return pieces

    def read_ahead(self) -> None:
        """Read in large requests from now on. An object larger than the cache is not added to it."""
        self._fills_cache = self.size <= self._cache.max_bytes
        self._blob.read_ahead()

    def check(self) -> None:
        """Raise `HandleNotFound` if the object is gone, unless a read has already shown that it exists."""
        self._blob.check()

    def close(self) -> None:
        """Drop the pieces in memory."""
        self._last = (-1, b"")
        self._blob.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
