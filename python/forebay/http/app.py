"""The ASGI application of `forebay serve --http`: `/mcp`, the dashboard, `/health`, `/ready`, tokens and limits."""

import asyncio
import contextlib
import logging
import math
import time
import urllib.parse
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import orjson

from forebay.http.dashboard import DASHBOARD_PATH, Dashboard, get_cookie_token, is_embedded, is_same_site
from forebay.http.http_exchange import JSON_TYPE, TEXT_TYPE, Disconnected, HTTPExchange, Receive, Scope, Send
from forebay.http.limits import InFlightLimit, TokenBuckets, get_client_network
from forebay.http.readiness import Readiness
from forebay.http.request_headers import find_fault, make_allowed_hosts, make_allowed_origins
from forebay.http.tokens import AccessToken, TokenFile, TokenVerifier
from forebay.http.transport import Backend, Transport
from forebay.wire.messages import INTERNAL_ERROR, make_error_message

__all__ = ["MCP_PATH", "App"]

if TYPE_CHECKING:
    from forebay.config.options import Settings

_log = logging.getLogger("forebay")

MCP_PATH = "/mcp"
_METADATA_PATH = "/.well-known/oauth-protected-resource"

_TICK_SECONDS = 0.5
"""Interval between checks of tokens, silent streams and idle sessions."""

_REFUSAL_LOG_SECONDS = 1.0
"""Minimum time between two refusals in the log."""

_TOO_MANY_REQUESTS_CODE = -32000

_BEARER_PREFIX = b"bearer "

_PREFLIGHT_SECONDS = b"600"
"""How long a browser may remember the answer to a preflight request."""


class App:
    """The ASGI application. Raises `InvalidArgument` if the token file cannot be used."""

    def __init__(self, backend: Backend, settings: "Settings", dashboard: Dashboard | None = None) -> None:
        self._backend = backend
        self._transport = Transport(backend, settings)
        self._token_file, self._verifiers = _make_verifiers(settings)
        self._dashboard = dashboard
        if dashboard is not None and dashboard.link_token is not None:
            self._verifiers.append(dashboard.link_token)
        self._scopes = settings.oauth_scopes
        self._hosts, self._origins = make_allowed_hosts(settings), make_allowed_origins(settings)
        self._cors = _CORS(settings.allowed_origins, "GET, POST, DELETE") if settings.allowed_origins else None
        rate = settings.rate_limit_per_minute
        self._rate_limit = None if rate is None else TokenBuckets(rate)
        self._in_flight_limit = InFlightLimit(settings.max_connections)
        self._in_flight: set[HTTPExchange] = set()
        self.calls_in_flight = 0
        """Number of requests in flight that end by themselves: POST, and those to the dashboard."""
        self._routes: dict[str, Callable[[HTTPExchange], Awaitable[None]]] = {
            MCP_PATH: self._handle_mcp,
            "/health": _answer_health,
            "/ready": self._answer_ready,
        }
        self.readiness = Readiness(backend.check)
        self._next_refusal_log = 0.0
        """Time from which the next refusal is logged."""
        self._challenge = ""
        """End of the WWW-Authenticate header: where the metadata is."""
        if settings.oauth_issuer is not None and settings.oauth_audience is not None:
            self._add_metadata(settings.oauth_issuer, settings.oauth_audience)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
            return
        exchange = HTTPExchange(scope, receive, send)
        if self.readiness.is_draining:
            # The next request of this connection should go to another process.
            exchange.extra_headers.append((b"connection", b"close"))
        try:
            fault = find_fault(exchange.raw_headers)
            if fault is not None:
                await exchange.respond(400, fault.encode(), [TEXT_TYPE, (b"connection", b"close")])
            else:
                await self._find_route(exchange.path)(exchange)
        except Disconnected:
            # There is nobody to answer.
            pass
        except asyncio.CancelledError:
            if not await exchange.end_cancelled():
                raise

    def _find_route(self, path: str) -> Callable[[HTTPExchange], Awaitable[None]]:
        if self._dashboard is not None and (path == DASHBOARD_PATH or path.startswith(f"{DASHBOARD_PATH}/")):
            return self._handle_dashboard
        return self._routes.get(path, _answer_not_found)

    async def end_streams(self) -> None:
        """End the streams of notifications, which would not end by themselves."""
        await self._transport.end_streams()

    def end_calls(self) -> None:
        """Answer the calls in flight with an error, because the server stops."""
        if not self.calls_in_flight:
            return
        _log.warning(
            "forebay: %d calls are ended, because the server stops; --shutdown-grace-seconds gives them more time",
            self.calls_in_flight,
        )
        text = "the gateway is stopping; the call may have been carried out; retry when the gateway is back"
        for exchange in [*self._in_flight]:
            exchange.cancel(503, make_error_message(None, INTERNAL_ERROR, text))

    # The life of the server

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self._backend.start()
        except Exception as error:
            _log.exception("forebay: the server cannot start")
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        ticking = asyncio.create_task(self._tick())
        await send({"type": "lifespan.startup.complete"})
        await receive()
        ticking.cancel()
        await self._transport.close()
        if self._dashboard is not None:
            self._dashboard.close()
        await self._backend.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            self._transport.tick(time.monotonic())
            for exchange in [*self._in_flight]:
                if await self._is_revoked(exchange):
                    exchange.cancel(401)

    async def _is_revoked(self, exchange: HTTPExchange) -> bool:
        """Return whether the token was removed from the file, or has expired and the request only opens a stream."""
        token = exchange.token
        if token is None:
            return False
        if token.expires_at is not None:
            return _is_stream_request(exchange) and token.expires_at < int(time.time())
        sent = _get_bearer(exchange) or get_cookie_token(exchange)
        return self._token_file is not None and await self._token_file.verify_token(sent) != token

    async def _answer_ready(self, exchange: HTTPExchange) -> None:
        if exchange.method not in ("GET", "HEAD"):
            await _answer_wrong_method(exchange, b"GET, HEAD")
        else:
            state = await self.readiness.get_state()
            status = 200 if state == "ready" else 503
            await exchange.respond(status, orjson.dumps({"status": state}), [JSON_TYPE])

    # The checks of a request to `/mcp`, in the order of the code

    async def _handle_mcp(self, exchange: HTTPExchange) -> None:
        origin = exchange.headers.get(b"origin")
        if self._cors is not None and await self._cors.handle(exchange, origin):
            return
        if self._verifiers:
            exchange.token = await self._verify(_get_bearer(exchange))
            exchange.connection.has_valid_token = exchange.token is not None
        if await self._refuse_too_fast(exchange):
            return
        if self._verifiers:
            if exchange.token is None:
                await self._refuse_caller(exchange)
                return
            missing = self._find_missing_scope(exchange.token)
            if missing is not None:
                await self._refuse_token(exchange, 403, "insufficient_scope", f"Required scope: {missing}")
                return
        if await self._refuse_too_many(exchange):
            return
        with self._count_in_flight(exchange):
            if exchange.headers.get(b"host", b"") not in self._hosts:
                await exchange.respond(421, b"Invalid Host header; allow this host name with --allowed-hosts")
            elif origin and origin not in self._origins:
                await exchange.respond(403, b"Invalid Origin header; allow this origin with --allowed-origins")
            else:
                await self._transport.handle(exchange)

    async def _handle_dashboard(self, exchange: HTTPExchange) -> None:
        """Check a request to the dashboard like one to `/mcp`. A token may also come in a cookie."""
        if not is_same_site(exchange, self._hosts):
            await exchange.respond(421, b"Invalid Host or Origin header; allow this host name with --allowed-hosts")
            return
        if is_embedded(exchange):
            await exchange.respond(403, b"Pages of other sites cannot load the dashboard; open it in a tab of its own")
            return
        if self._verifiers:
            exchange.token = await self._verify_with_scopes(_get_bearer(exchange) or get_cookie_token(exchange))
            exchange.connection.has_valid_token = exchange.token is not None
        if await self._refuse_too_fast(exchange) or await self._refuse_too_many(exchange):
            return
        with self._count_in_flight(exchange):
            if self._dashboard is not None:
                await self._dashboard.handle(exchange, self._verify_with_scopes if self._verifiers else None)

    async def _refuse_too_fast(self, exchange: HTTPExchange) -> bool:
        """Refuse a request beyond the rate limit. Return whether it was."""
        wait_nanoseconds = 0 if self._rate_limit is None else self._rate_limit.take(_identify_caller(exchange))
        if wait_nanoseconds:
            seconds = math.ceil(wait_nanoseconds / 10**9)
            await _refuse_for_now(exchange, f"too many requests; retry in {seconds} seconds", seconds)
        return bool(wait_nanoseconds)

    async def _refuse_too_many(self, exchange: HTTPExchange) -> bool:
        """Refuse a request beyond the limit in flight. Return whether it was; else it counts until it ends."""
        principal = exchange.principal
        if principal is None or self._in_flight_limit.enter(principal):
            return False
        await _refuse_for_now(
            exchange,
            f"{self._in_flight_limit.max_per_principal} of your requests are in flight, which is the "
            "limit; wait until one is answered, or ask whoever runs this server to raise max_connections",
            1,
        )
        return True

    @contextlib.contextmanager
    def _count_in_flight(self, exchange: HTTPExchange) -> Iterator[None]:
        """Count a request that has entered the limit in flight until it ends."""
        # Only `/mcp` has streams.
        is_call, principal = exchange.method == "POST" or exchange.path != MCP_PATH, exchange.principal
        self.calls_in_flight += is_call
        self._in_flight.add(exchange)
        try:
            yield
        finally:
            self._in_flight.discard(exchange)
            self.calls_in_flight -= is_call
            if principal is not None:
                self._in_flight_limit.leave(principal)

    async def _verify_with_scopes(self, token: str) -> AccessToken | None:
        access_token = await self._verify(token)
        return None if access_token is None or self._find_missing_scope(access_token) is not None else access_token

    def _find_missing_scope(self, token: AccessToken) -> str | None:
        return next((scope for scope in self._scopes if scope not in token.scopes), None)

    async def _verify(self, token: str) -> AccessToken | None:
        if not token:
            return None
        for verifier in self._verifiers:
            access_token = await verifier.verify_token(token)
            if access_token is not None:
                expires_at = access_token.expires_at
                return None if expires_at is not None and expires_at < int(time.time()) else access_token
        return None

    async def _refuse_caller(self, exchange: HTTPExchange) -> None:
        if _get_bearer(exchange):
            self._log_refusal(exchange, "its token is not valid")
            text = "this token is not valid, or has expired; ask the operator of this server for a new one"
            await self._refuse_token(exchange, 401, "invalid_token", text)
            return
        self._log_refusal(exchange, "it has no token")
        # Without an error code, as RFC 6750 wants it where no token was sent.
        challenge = f'Bearer realm="forebay"{self._challenge}'
        body = b'{"error_description": "there is no token; send Authorization: Bearer TOKEN"}'
        await exchange.respond(401, body, [JSON_TYPE, (b"www-authenticate", challenge.encode())])

    def _log_refusal(self, exchange: HTTPExchange, reason: str) -> None:
        """Log a refusal, but not all of many, because anybody can cause them. Tokens are not logged."""
        now = time.monotonic()
        if now >= self._next_refusal_log:
            self._next_refusal_log = now + _REFUSAL_LOG_SECONDS
            _log.info("forebay: a request from %s is refused: %s", exchange.client_host, reason)

    async def _refuse_token(self, exchange: HTTPExchange, status: int, error: str, text: str) -> None:
        challenge = f'Bearer error="{error}", error_description="{text}"{self._challenge}'
        body = f'{{"error": "{error}", "error_description": "{text}"}}'
        await exchange.respond(status, body.encode(), [JSON_TYPE, (b"www-authenticate", challenge.encode())])

    # OAuth protected-resource metadata (RFC 9728)

    def _add_metadata(self, issuer: str, audience: str) -> None:
        url = urllib.parse.urlsplit(audience)
        path = _METADATA_PATH + (url.path if url.path != "/" else "")
        self._challenge = f', resource_metadata="{url.scheme}://{url.netloc}{path}"'
        metadata = {
            "resource": _normalize_url(audience),
            "authorization_servers": [_normalize_url(issuer)],
            **({"scopes_supported": [*self._scopes]} if self._scopes else {}),
            "bearer_methods_supported": ["header"],
        }
        body = orjson.dumps(metadata)
        cors = _CORS(
            None, "GET, OPTIONS", "Accept, Accept-Language, Content-Language, Content-Type, mcp-protocol-version"
        )

        async def answer(exchange: HTTPExchange) -> None:
            if await cors.handle(exchange, exchange.headers.get(b"origin")):
                return
            if exchange.method not in ("GET", "HEAD", "OPTIONS"):
                await _answer_wrong_method(exchange, b"GET, HEAD, OPTIONS")
            else:
                await exchange.respond(200, body, [JSON_TYPE, (b"cache-control", b"public, max-age=3600")])

        self._routes[path] = answer


def _make_verifiers(settings: "Settings") -> tuple[TokenFile | None, list[TokenVerifier]]:
    """Return the verifier for the token file, and all verifiers. A token is accepted if any of them accepts it."""
    token_file = None
    verifiers: list[TokenVerifier] = []
    if settings.token_file is not None:
        # Every token in the token file has all required scopes.
        token_file = TokenFile(settings.token_file, settings.oauth_scopes, allow_others_to_read=settings.insecure)
        verifiers.append(token_file)
    if settings.oauth_issuer and settings.oauth_audience and settings.oauth_jwks_url:
        from forebay.http.oauth import JWTVerifier

        verifiers.append(JWTVerifier(settings.oauth_issuer, settings.oauth_audience, settings.oauth_jwks_url))
    return token_file, verifiers


def _get_bearer(exchange: HTTPExchange) -> str:
    header = exchange.headers.get(b"authorization", b"")
    return header[len(_BEARER_PREFIX) :].decode("latin-1") if header[:7].lower() == _BEARER_PREFIX else ""


def _is_stream_request(exchange: HTTPExchange) -> bool:
    """Return whether a request only opens a stream of notifications."""
    return exchange.method == "GET" or exchange.headers.get(b"mcp-method") == b"subscriptions/listen"


def _identify_caller(exchange: HTTPExchange) -> tuple[str, str]:
    if exchange.principal is not None:
        return "principal", exchange.principal
    return "address", get_client_network(exchange.client_host)


async def _refuse_for_now(exchange: HTTPExchange, text: str, seconds: int) -> None:
    body = make_error_message(None, _TOO_MANY_REQUESTS_CODE, text)
    await exchange.respond(429, body, [JSON_TYPE, (b"retry-after", b"%d" % seconds)])


async def _answer_health(exchange: HTTPExchange) -> None:
    if exchange.method not in ("GET", "HEAD"):
        await _answer_wrong_method(exchange, b"GET, HEAD")
    else:
        await exchange.respond(200, b'{"status":"ok"}', [JSON_TYPE])


async def _answer_not_found(exchange: HTTPExchange) -> None:
    await exchange.respond(404, f"Not Found; the address for MCP is {MCP_PATH}".encode(), [TEXT_TYPE])


async def _answer_wrong_method(exchange: HTTPExchange, allowed: bytes) -> None:
    await exchange.respond(405, b"Method Not Allowed", [TEXT_TYPE, (b"allow", allowed)])


def _normalize_url(url: str) -> str:
    """Return a URL with a path, as clients compare it."""
    return url if urllib.parse.urlsplit(url).path else f"{url}/"


class _CORS:
    """Answers to browsers that ask what pages of other origins may do (CORS)."""

    def __init__(self, origins: Iterable[str] | None, methods: str, headers: str | None = None) -> None:
        self._origins = None if origins is None else frozenset(origin.encode() for origin in origins)
        """Allowed origins; `None` allows all."""
        self._methods, self._headers = methods, headers
        """Allowed methods, and headers; `None` allows all headers."""

    async def handle(self, exchange: HTTPExchange, origin: bytes | None) -> bool:
        """Answer a preflight request and return `True`, or add headers to the response of another one."""
        is_allowed = self._origins is None or origin in self._origins
        requested_method = exchange.headers.get(b"access-control-request-method")
        if origin is not None and exchange.method == "OPTIONS" and requested_method is not None:
            await self._answer_preflight(exchange, origin if is_allowed else None, requested_method)
            return True
        if origin is not None:
            if self._origins is not None:
                exposed = b"mcp-session-id, www-authenticate, retry-after"
                exchange.extra_headers.append((b"access-control-expose-headers", exposed))
            if is_allowed:
                allowed = b"*" if self._origins is None else origin
                exchange.extra_headers.append((b"access-control-allow-origin", allowed))
        exchange.extra_headers.append((b"vary", b"Origin"))
        return False

    async def _answer_preflight(self, exchange: HTTPExchange, origin: bytes | None, method: bytes) -> None:
        """Send what is allowed. `origin` is `None` if that is not allowed."""
        vary = b"Origin, Access-Control-Request-Method, Access-Control-Request-Headers"
        headers = [
            TEXT_TYPE,
            (b"vary", vary),
            (b"access-control-allow-methods", self._methods.encode()),
            (b"access-control-max-age", _PREFLIGHT_SECONDS),
        ]
        if origin is not None:
            headers.append((b"access-control-allow-origin", b"*" if self._origins is None else origin))
        requested_headers = exchange.headers.get(b"access-control-request-headers")
        allowed_headers = requested_headers if self._headers is None else self._headers.encode()
        if allowed_headers is not None:
            headers.append((b"access-control-allow-headers", allowed_headers))
        faults = [] if origin is not None else ["origin"]
        if method.decode("latin-1") not in self._methods.split(", "):
            faults.append("method")
        if self._headers is not None and requested_headers is not None:
            known = {name.lower() for name in self._headers.split(", ")}
            if any(name.strip() not in known for name in requested_headers.decode("latin-1").lower().split(",")):
                faults.append("headers")
        if faults:
            await exchange.respond(400, f"Disallowed CORS {', '.join(faults)}".encode(), headers)
        else:
            await exchange.respond(200, b"OK", headers)
