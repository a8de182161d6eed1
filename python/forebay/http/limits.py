"""Limits for each caller: requests per minute, open connections and sessions."""

import collections
import ipaddress
import math
import time
from collections.abc import Callable, Hashable

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, AuthorizationContext
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from forebay.adapters.mcp import get_principal

__all__ = ["ConnectionShareLimit", "RateLimit", "SessionManager", "TokenBuckets"]

_MINUTE_NANOSECONDS = 60 * 10**9
_MAX_CALLERS = 10_000
_IPV6_PREFIX_BITS = 64
"""Prefix length that counts as one caller: an IPv6 host can choose the remaining bits freely."""

_TOO_MANY_REQUESTS = -32000


class TokenBuckets:
    """A token bucket for each caller, which holds one minute of requests.

    Levels are integers (nanoseconds times requests per minute), so nothing is rounded. Above `max_callers`, the bucket
    that was unused for longest is dropped and starts full again.
    """

    def __init__(
        self, per_minute: int, *, max_callers: int = _MAX_CALLERS, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._per_minute, self._max_callers, self._clock = per_minute, max_callers, clock
        self._buckets: dict[Hashable, tuple[int, int]] = {}

    def take(self, caller: Hashable) -> int:
        """Take one request from the caller's bucket. Return 0, or the nanoseconds to wait if it is empty."""
        now = self._clock()
        full = _MINUTE_NANOSECONDS * self._per_minute
        level, since = self._buckets.pop(caller, (full, now))
        level = min(full, level + (now - since) * self._per_minute)
        missing = _MINUTE_NANOSECONDS - level
        self._buckets[caller] = (level if missing > 0 else level - _MINUTE_NANOSECONDS, now)
        if len(self._buckets) > self._max_callers:
            del self._buckets[next(iter(self._buckets))]
        return -(-missing // self._per_minute) if missing > 0 else 0


class RateLimit:
    """Middleware that answers 429 when a principal, or an unauthenticated address, sends too many requests."""

    def __init__(self, app: ASGIApp, buckets: TokenBuckets) -> None:
        self._app, self._buckets = app, buckets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        wait = self._buckets.take(_identify_caller(scope))
        if not wait:
            await self._app(scope, receive, send)
            return
        seconds = math.ceil(wait / 10**9)
        error = {"code": _TOO_MANY_REQUESTS, "message": f"too many requests; try again in {seconds} seconds"}
        response = JSONResponse(
            {"jsonrpc": "2.0", "id": None, "error": error}, 429, headers={"Retry-After": str(seconds)}
        )
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


_SHARE_DIVISOR = 4
"""One principal may hold a quarter of the connections or sessions, so that it cannot lock out the others."""


class ConnectionShareLimit:
    """Middleware that answers 429 to a principal that holds its share of the connections already."""

    def __init__(self, app: ASGIApp, max_connections: int) -> None:
        self._app = app
        self._max_per_principal = max(1, max_connections // _SHARE_DIVISOR)
        self._in_flight: collections.Counter[str | None] = collections.Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        user = scope.get("user")
        if not isinstance(user, AuthenticatedUser):
            await self._app(scope, receive, send)
            return
        principal = get_principal(user.access_token)
        if self._in_flight[principal] >= self._max_per_principal:
            await self._make_refusal()(scope, receive, send)
            return
        self._in_flight[principal] += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._in_flight[principal] -= 1
            if not self._in_flight[principal]:
                del self._in_flight[principal]

    def _make_refusal(self) -> JSONResponse:
        message = (
            f"{self._max_per_principal} requests of yours are under way, and that is all that may be at once; wait "
            "until one is answered, or ask whoever runs this server to raise max_connections"
        )
        error = {"code": _TOO_MANY_REQUESTS, "message": message}
        return JSONResponse({"jsonrpc": "2.0", "id": None, "error": error}, 429, headers={"Retry-After": "1"})


class SessionManager(StreamableHTTPSessionManager):
    """The SDK's session manager, limited to a share of the sessions for each principal."""

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        if requestor is not None and self.max_sessions is not None:
            own = sum(owner == requestor for owner in self._session_owners.values())
            if own >= max(1, self.max_sessions // _SHARE_DIVISOR):
                return None
        return super()._admit_session(requestor)
