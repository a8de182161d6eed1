"""The order in which the payloads of a principal are evicted: oldest first."""

import heapq
from collections import defaultdict
from typing import NamedTuple

__all__ = ["Candidate", "EvictionOrder"]


class Candidate(NamedTuple):
    """A payload that may be evicted."""

    created_at: float
    handle: str
    size: int


class EvictionOrder:
    """The payloads of each principal by age. Other processes may have deleted some of them, or stored more."""

    def __init__(self) -> None:
        self._heaps: defaultdict[str | None, list[Candidate]] = defaultdict(list)

    def add(self, principal: str | None, candidate: Candidate) -> None:
        heapq.heappush(self._heaps[principal], candidate)

    def pop_oldest(self, principal: str | None) -> Candidate | None:
        """Remove and return the oldest payload of a principal, or `None` if there is none."""
        heap = self._heaps.get(principal)
        if not heap:
            return None
        candidate = heapq.heappop(heap)
        if not heap:
            del self._heaps[principal]
        return candidate
