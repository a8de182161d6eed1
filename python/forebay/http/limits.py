"""Limits for each caller: requests per minute, requests in flight and sessions."""

import collections
import ipaddress
import time
from collections.abc import Callable, Hashable

__all__ = ["InFlightLimit", "TokenBuckets", "get_client_network", "get_principal_share"]

_MINUTE_NANOSECONDS = 60 * 10**9
_MAX_CALLERS = 10_000
_IPV6_PREFIX_BITS = 64
"""Prefix length that counts as one caller: an IPv6 host can choose the remaining bits freely."""

_SHARE_DIVISOR = 4


def get_principal_share(limit: int) -> int:
    """Return how much of a limit one principal may use: a quarter, so that it cannot lock out the others."""
    return max(1, limit // _SHARE_DIVISOR)


class TokenBuckets:
    """One token bucket for each caller. A full bucket allows one minute of requests.

    Levels are integers (nanoseconds times requests per minute), so nothing is rounded. Above `max_callers`, the least
    recently used bucket is dropped. Its caller starts with a full bucket again.
    """

    def __init__(
        self,
        requests_per_minute: int,
        *,
        max_callers: int = _MAX_CALLERS,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._requests_per_minute = requests_per_minute
        self._max_callers = max_callers
        self._clock = clock
        self._buckets: dict[Hashable, tuple[int, int]] = {}
        """Level of each bucket and the time of its last change, by caller."""

    def take(self, caller: Hashable) -> int:
        """Take one request from the caller's bucket and return 0, or return the nanoseconds to wait if it is empty."""
        now = self._clock()
        capacity = _MINUTE_NANOSECONDS * self._requests_per_minute
        level, changed_at = self._buckets.pop(caller, (capacity, now))
        level = min(capacity, level + (now - changed_at) * self._requests_per_minute)
        missing = _MINUTE_NANOSECONDS - level
        self._buckets[caller] = (level if missing > 0 else level - _MINUTE_NANOSECONDS, now)
        if len(self._buckets) > self._max_callers:
            del self._buckets[next(iter(self._buckets))]
        return -(-missing // self._requests_per_minute) if missing > 0 else 0


def get_client_network(host: str) -> str:
    """Return what identifies an unauthenticated caller: its IPv4 address or its IPv6 network."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.version == 4 or address.ipv4_mapped is not None:
        return host
    return str(ipaddress.ip_network((int(address), _IPV6_PREFIX_BITS), strict=False))


class InFlightLimit:
    """Limit on the requests of one principal in flight: its share of the connections."""

    def __init__(self, max_connections: int) -> None:
        self.max_per_principal = get_principal_share(max_connections)
        self._in_flight: collections.Counter[str] = collections.Counter()

    def enter(self, principal: str) -> bool:
        """Count a request, and return whether the principal may make it. If so, call `leave` at its end."""
        if self._in_flight[principal] >= self.max_per_principal:
            return False
        self._in_flight[principal] += 1
        return True

    def leave(self, principal: str) -> None:
        self._in_flight[principal] -= 1
        if not self._in_flight[principal]:
            del self._in_flight[principal]
