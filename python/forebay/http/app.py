"""The ASGI application of `forebay serve --http`: `/mcp`, `/health`, authentication and limits."""

import functools
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from mcp.server import Server
from mcp.server.auth.middleware.auth_context import AuthContextMiddleware
from mcp.server.auth.middleware.bearer_auth import BearerAuthBackend, RequireAuthMiddleware
from mcp.server.auth.provider import AccessToken, TokenVerifier
from mcp.server.auth.routes import build_resource_metadata_url, create_protected_resource_routes
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from forebay.adapters.sdk_internals import PerOwnerLimitSessionManager
from forebay.http.limits import ConnectionShareLimit, RateLimit, TokenBuckets, get_principal_share
from forebay.http.request_headers import HeaderCheck
from forebay.http.tokens import JWTVerifier, RevocationMiddleware, TokenFile

__all__ = ["MCP_PATH", "get_session_ender", "make_app", "shorten_session_ids"]

if TYPE_CHECKING:
    from forebay.config.options import Settings


MCP_PATH = "/mcp"
_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")


def make_app(server: Server[Any], settings: "Settings") -> Starlette:
    """Return the server as an ASGI application with the limits in `settings`.

    Raises `InvalidArgument` if the token file cannot be used.
    """
    shorten_session_ids()
    sessions = PerOwnerLimitSessionManager(
        server,
        security_settings=_make_security_settings(settings),
        session_idle_timeout=settings.session_idle_seconds,
        max_request_body_size=settings.body_limit_bytes,
        max_sessions=settings.max_sessions,
        max_sessions_per_owner=get_principal_share(settings.max_sessions),
    )
    endpoint = _add_middleware(StreamableHTTPASGIApp(sessions), settings)
    routes = [
        Route(MCP_PATH, endpoint=endpoint),
        Route("/health", endpoint=_get_health, methods=["GET"]),
        *_make_metadata_routes(settings),
    ]
    app = Starlette(routes=routes, lifespan=lambda _: sessions.run(), middleware=[Middleware(HeaderCheck)])
    app.state.sessions = sessions
    # A redirect for a trailing slash would lead to any host that the caller's Host header names.
    app.router.redirect_slashes = False
    return app


def get_session_ender(request: object, session_id: str | None) -> Callable[[], Awaitable[None]] | None:
    """Return a function that ends a session, or `None` if it does not belong to an application of `make_app`."""
    if not isinstance(request, Request) or session_id is None:
        return None
    sessions = getattr(request.app.state, "sessions", None)
    if not isinstance(sessions, PerOwnerLimitSessionManager):
        return None
    return functools.partial(sessions.end_session, session_id)


async def _get_health(_: Request) -> Response:
    return JSONResponse({"status": "ok"})


def _add_middleware(app: ASGIApp, settings: "Settings") -> ASGIApp:
    """Wrap the application in authentication, rate limits and CORS, as far as they are configured."""
    verifiers = _make_verifiers(settings)
    app = ConnectionShareLimit(app, settings.max_connections)
    if verifiers:
        token_file = next((verifier for verifier in verifiers if isinstance(verifier, TokenFile)), None)
        app = RevocationMiddleware(app, token_file)
        audience = settings.oauth_audience
        metadata_url = None if audience is None else build_resource_metadata_url(AnyHttpUrl(audience))
        app = RequireAuthMiddleware(app, list(settings.oauth_scopes), metadata_url)
    if settings.rate_limit_per_minute is not None:
        app = RateLimit(app, TokenBuckets(settings.rate_limit_per_minute))
    if verifiers:
        app = AuthenticationMiddleware(
            AuthContextMiddleware(app), backend=BearerAuthBackend(_CombinedVerifier(verifiers))
        )
    if settings.allowed_origins:
        # Browsers send a preflight request without the token.
        app = CORSMiddleware(
            app,
            allow_origins=settings.allowed_origins,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["*"],
            expose_headers=["mcp-session-id", "www-authenticate", "retry-after"],
        )
    return app


def _make_verifiers(settings: "Settings") -> list[TokenVerifier]:
    verifiers: list[TokenVerifier] = []
    if settings.token_file is not None:
        # Every token in the token file has all required scopes.
        verifiers.append(TokenFile(settings.token_file, settings.oauth_scopes, allow_others_to_read=settings.insecure))
    if settings.oauth_issuer and settings.oauth_audience and settings.oauth_jwks_url:
        verifiers.append(JWTVerifier(settings.oauth_issuer, settings.oauth_audience, settings.oauth_jwks_url))
    return verifiers


class _CombinedVerifier(TokenVerifier):
    """Verifier that accepts a token if any of several verifiers accepts it."""

    def __init__(self, verifiers: Sequence[TokenVerifier]) -> None:
        self._verifiers = verifiers

    async def verify_token(self, token: str) -> AccessToken | None:
        for verifier in self._verifiers:
            if (access_token := await verifier.verify_token(token)) is not None:
                return access_token
        return None


def _make_metadata_routes(settings: "Settings") -> list[Route]:
    """Return the route of the OAuth protected-resource metadata (RFC 9728), if an issuer is configured."""
    if settings.oauth_issuer is None or settings.oauth_audience is None:
        return []
    return create_protected_resource_routes(
        resource_url=AnyHttpUrl(settings.oauth_audience),
        authorization_servers=[AnyHttpUrl(settings.oauth_issuer)],
        scopes_supported=list(settings.oauth_scopes) or None,
    )


def _make_security_settings(settings: "Settings") -> TransportSecuritySettings:
    """Return the allowed Host and Origin values, which prevent DNS rebinding."""
    host = settings.http[0] if settings.http else _LOOPBACK_NAMES[0]
    hosts = {*_LOOPBACK_NAMES, f"[{host}]" if ":" in host else host, *settings.allowed_hosts}
    origins = set(settings.allowed_origins)
    if not settings.is_beyond_loopback:
        origins |= {f"http://{name}" for name in _LOOPBACK_NAMES}
        origins |= {f"http://{name}:*" for name in _LOOPBACK_NAMES}
    return TransportSecuritySettings(
        allowed_hosts=sorted(hosts | {f"{name}:*" for name in hosts if not _has_port(name)}),
        allowed_origins=sorted(origins),
    )


def _has_port(host: str) -> bool:
    return ":" in host.rpartition("]")[2]


_SESSION_LOGGERS = ("mcp.server.streamable_http_manager", "mcp.server.streamable_http")
_SESSION_ID_PATTERN = re.compile(r"\b([0-9a-f]{8})[0-9a-f]{24}\b|(?<=session ID: )(\S{1,8})\S*")


class _SessionIDFilter(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = (
            _SESSION_ID_PATTERN.sub(lambda match: f"{match[1] or match[2]}…", record.getMessage()),
            (),
        )
        return True


_SESSION_ID_FILTER = _SessionIDFilter()


def shorten_session_ids() -> None:
    """Shorten session ids in the SDK's log messages: a full id would let a log reader take over the session."""
    for name in _SESSION_LOGGERS:
        logging.getLogger(name).addFilter(_SESSION_ID_FILTER)
