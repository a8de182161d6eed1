"""Limits for each caller: requests per minute, open connections and sessions."""

import collections
import ipaddress
import math
import time
from collections.abc import Callable, Hashable

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from forebay.adapters.mcp import get_principal

__all__ = ["ConnectionShareLimit", "RateLimit", "TokenBuckets", "get_principal_share"]

_MINUTE_NANOSECONDS = 60 * 10**9
_MAX_CALLERS = 10_000
_IPV6_PREFIX_BITS = 64
"""Prefix length that counts as one caller: an IPv6 host can choose the remaining bits freely."""

_TOO_MANY_REQUESTS_CODE = -32000

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


class RateLimit:
    """Middleware that answers 429 when a principal, or an unauthenticated address, sends too many requests."""

    def __init__(self, app: ASGIApp, buckets: TokenBuckets) -> None:
        self._app, self._buckets = app, buckets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        wait_nanoseconds = self._buckets.take(_identify_caller(scope))
        if not wait_nanoseconds:
            await self._app(scope, receive, send)
            return
        seconds = math.ceil(wait_nanoseconds / 10**9)
        response = _make_refusal(f"too many requests; try again in {seconds} seconds", seconds)
        await response(scope, receive, send)


def _identify_caller(scope: Scope) -> Hashable:
    user = scope.get("user")
    if isinstance(user, AuthenticatedUser):
        return "principal", get_principal(user.access_token)
    host = (scope.get("client") or ("",))[0]
    return "address", _get_client_network(host)


def _get_client_network(host: str) -> str:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.version == 4 or address.ipv4_mapped is not None:
        return host
    return str(ipaddress.ip_network((int(address), _IPV6_PREFIX_BITS), strict=False))


def _make_refusal(message: str, retry_after_seconds: int) -> JSONResponse:
    error = {"code": _TOO_MANY_REQUESTS_CODE, "message": message}
    headers = {"Retry-After": str(retry_after_seconds)}
    return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, 429, headers=headers)


class ConnectionShareLimit:
    """Middleware that answers 429 to a principal that already uses its share of the connections."""

    def __init__(self, app: ASGIApp, max_connections: int) -> None:
        self._app = app
        self._max_per_principal = get_principal_share(max_connections)
        self._in_flight: collections.Counter[str | None] = collections.Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        user = scope.get("user")
        if not isinstance(user, AuthenticatedUser):
            await self._app(scope, receive, send)
            return
        principal = get_principal(user.access_token)
        if self._in_flight[principal] >= self._max_per_principal:
            message = (
                f"{self._max_per_principal} requests of yours are under way, and that is all that may be at once; wait "
                "until one is answered, or ask whoever runs this server to raise max_connections"
            )
            await _make_refusal(message, 1)(scope, receive, send)
            return
        self._in_flight[principal] += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._in_flight[principal] -= 1
            if not self._in_flight[principal]:
                del self._in_flight[principal]
