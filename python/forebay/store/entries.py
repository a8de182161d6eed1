"""A compact table of what a sweep must know about each payload, because a store may have millions of them."""

import binascii
import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

from forebay.store.handles import LONG_HANDLE_LENGTH, SHORT_HANDLE_LENGTH
from forebay.store.threads import fork_safe_lock

__all__ = ["Entry", "EntryTable"]

_BUCKETS = 16384
"""Number of buckets for handles of one length. Of a million entries, about 60 are in a bucket: 1 µs to search."""

_PREFIX = "oh_"

# The characters of a handle are digits of base64, too, which packs four of them into three bytes.
_KEY_BYTES = {length: -(-length // 4) * 3 for length in (SHORT_HANDLE_LENGTH, LONG_HANDLE_LENGTH)}

_RECORDS = {length: struct.Struct(f"<{size}sddqII") for length, size in _KEY_BYTES.items()}
"""A record by the length of its handle: key, creation, expiry, size, number of the principal, last sweep to see it."""

_LAST_SEEN = struct.Struct("<I")


class Entry(NamedTuple):
    """The metadata of a stored payload that a sweep needs."""

    created_at: float
    expires_at: float
    size: int
    """Size of the file on disk."""
    principal: str | None
    is_corrupt: bool = False
    is_estimate: bool = False
    """Whether a backend knows only the latest possible expiry, and not the principal."""


class EntryTable:
    """Entries by handle in about 50 bytes each; a dictionary of objects takes 300.

    A bucket is a sequence of records, and is searched for the bytes of a handle. The table is a cache: it may lack
    payloads, and may have payloads that other processes have deleted.
    """

    def __init__(self) -> None:
        self._lock = fork_safe_lock()
        self._last_sweep = 0
        self._buckets: dict[int, bytearray] = {}
        self._count = 0
        self._principals: list[str | None] = []
        self._principal_numbers: dict[str | None, int] = {}

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[tuple[str, Entry]]:
        for index in list(self._buckets):
            with self._lock:
                records = self._read_bucket(index)
                found = [(_unpack_handle(key, index), self._make_entry(*values)) for key, *values in records]
            yield from found

    def begin_sweep(self) -> int:
        """Return the number of a new sweep."""
        with self._lock:
            self._last_sweep += 1
            return self._last_sweep

    def see(self, handle: str, sweep: int) -> tuple[Entry | None, bool]:
        """Return the entry of a payload that a sweep finds, or `None`, and whether the sweep has found it before."""
        with self._lock:
            bucket, start, record = self._find(handle)
            if start < 0:
                return None, False
            _, *values = record.unpack_from(bucket, start)
            last_seen = values[-1]
            if last_seen < sweep:
                _LAST_SEEN.pack_into(bucket, start + record.size - _LAST_SEEN.size, sweep)
            return self._make_entry(*values), last_seen == sweep

    def add(self, handle: str, entry: Entry, sweep: int) -> None:
        """Add the entry of a payload that a sweep has read, or replace it."""
        with self._lock:
            number = self._get_number(entry.principal)
            bucket, start, record = self._find(handle)
            packed = record.pack(_pack_handle(handle), entry.created_at, entry.expires_at, entry.size, number, sweep)
            if start < 0:
                # A new bytearray, because one that grows reserves more memory than it needs.
                self._buckets[_get_index(handle)] = bytearray(bucket + packed)
                self._count += 1
            else:
                bucket[start : start + record.size] = packed

    def discard(self, handle: str) -> None:
        """Remove the entry of a handle, if there is one."""
        with self._lock:
            bucket, start, record = self._find(handle)
            if start >= 0:
                del bucket[start : start + record.size]
                self._count -= 1

    def remove_unseen(self, sweep: int) -> None:
        """Remove the entries that neither this sweep nor a later one has seen."""
        for index in list(self._buckets):
            with self._lock:
                records = self._read_bucket(index)
                seen = [values for values in records if values[-1] >= sweep]
                if len(seen) < len(records):
                    self._buckets[index] = bytearray(b"".join(_get_record(index).pack(*values) for values in seen))
                    self._count -= len(records) - len(seen)
        with self._lock:
            # Principals without payloads are removed only here.
            if len(self._principals) > self._count:
                self._renumber_principals()

    def _renumber_principals(self) -> None:
        principals, self._principals, self._principal_numbers = self._principals, [], {}
        for index, bucket in self._buckets.items():
            record = _get_record(index)
            for start, values in zip(range(0, len(bucket), record.size), self._read_bucket(index), strict=True):
                *others, number, last_seen = values
                record.pack_into(bucket, start, *others, self._get_number(principals[number]), last_seen)

    def _get_number(self, principal: str | None) -> int:
        number = self._principal_numbers.setdefault(principal, len(self._principals))
        if number == len(self._principals):
            self._principals.append(principal)
        return number

    def _find(self, handle: str) -> tuple[bytearray, int, struct.Struct]:
        """Return the bucket of a handle, the position of the handle's record or -1, and the structure of records."""
        index, key = _get_index(handle), _pack_handle(handle)
        bucket, record = self._buckets.get(index) or bytearray(), _get_record(index)
        start = bucket.find(key)
        # Other fields may hold the same bytes.
        while start > 0 and start % record.size:
            start = bucket.find(key, start + 1)
        return bucket, start, record

    def _read_bucket(self, index: int) -> list[tuple[Any, ...]]:
        return [*_get_record(index).iter_unpack(self._buckets.get(index, b""))]

    def _make_entry(self, created_at: float, expires_at: float, size: int, number: int, _: int) -> Entry:
        return Entry(created_at, expires_at, size, self._principals[number])


def _get_index(handle: str) -> int:
    """Return the number of the bucket of a handle. A bucket has only handles of one length."""
    return (len(handle) - len(_PREFIX)) * _BUCKETS + hash(handle) % _BUCKETS


def _get_record(index: int) -> struct.Struct:
    return _RECORDS[index // _BUCKETS]


def _pack_handle(handle: str) -> bytes:
    characters = handle[len(_PREFIX) :]
    return binascii.a2b_base64(characters + "A" * (-len(characters) % 4))


def _unpack_handle(key: bytes, index: int) -> str:
    return _PREFIX + binascii.b2a_base64(key)[: index // _BUCKETS].decode()
