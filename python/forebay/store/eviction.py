"""The order in which the payloads of a principal are evicted: oldest first."""

import heapq
import struct
from collections import defaultdict
from typing import NamedTuple

from forebay.store.handles import LONG_HANDLE_LENGTH

__all__ = ["Candidate", "EvictionOrder"]

_RECORD = struct.Struct(f"<d{len('oh_') + LONG_HANDLE_LENGTH}sq")
"""A packed candidate."""

_UNPACKED_SHARE = 1 / 16
"""Share of the packed candidates of a principal that are unpacked at a time."""


class Candidate(NamedTuple):
    """A payload that may be evicted."""

    created_at: float
    handle: str
    size: int


class EvictionOrder:
    """The payloads of each principal by age. Other processes may have deleted some of them, or stored more.

    The oldest are in a heap. The others stay packed until the heap is empty, because there may be millions.
    """

    def __init__(self) -> None:
        self._heaps: dict[str | None, list[Candidate]] = {}
        self._newest: dict[str | None, Candidate] = {}
        """The newest candidate of each heap when it was filled. Newer candidates are packed."""
        self._packed: defaultdict[str | None, bytearray] = defaultdict(bytearray)

    def add(self, principal: str | None, candidate: Candidate) -> None:
        newest = self._newest.get(principal)
        if newest is not None and candidate <= newest:
            heapq.heappush(self._heaps[principal], candidate)
        else:
            self._packed[principal] += _RECORD.pack(candidate.created_at, candidate.handle.encode(), candidate.size)

    def pop_oldest(self, principal: str | None) -> Candidate | None:
        """Remove and return the oldest payload of a principal, or `None` if there is none."""
        heap = self._heaps.get(principal) or self._unpack_oldest(principal)
        return heapq.heappop(heap) if heap else None

    def _unpack_oldest(self, principal: str | None) -> list[Candidate]:
        """Move a part of the packed candidates to the principal's heap, and return the heap."""
        packed = self._packed.pop(principal, bytearray())
        count = int(len(packed) / _RECORD.size * _UNPACKED_SHARE) + 1
        oldest = heapq.nsmallest(count, _RECORD.iter_unpack(packed))
        if not oldest:
            self._heaps.pop(principal, None)
            self._newest.pop(principal, None)
            return []
        # In place, because a copy would take as much memory again.
        end = 0
        for record in _RECORD.iter_unpack(packed):
            if record > oldest[-1]:
                _RECORD.pack_into(packed, end, *record)
                end += _RECORD.size
        del packed[end:]
        if packed:
            self._packed[principal] = packed
        heap = [Candidate(created_at, handle.rstrip(b"\0").decode(), size) for created_at, handle, size in oldest]
        self._heaps[principal], self._newest[principal] = heap, heap[-1]
        return heap
