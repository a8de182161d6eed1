"""Verification of bearer tokens from a file or OAuth issuer, and middleware that ends requests with revoked tokens."""

import asyncio
import hmac
import logging
import os
import stat
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import jwt
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken, TokenVerifier
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forebay.errors import InvalidArgument
from forebay.http.issuer_keys import IssuerKeys
from forebay.http.token_lines import hash_token, parse_token_lines

__all__ = ["JWTVerifier", "RevocationMiddleware", "TokenFile"]

_log = logging.getLogger("forebay")

_MAX_FILE_BYTES = 1 << 20


class TokenFile(TokenVerifier):
    """Verifier that accepts the tokens in a file. The file is read again when it changes.

    If the changed file cannot be read, the previous tokens stay valid. Raises `InvalidArgument` if the file cannot be
    read at the start. Error messages never show the content of the file.
    """

    def __init__(self, path: str, scopes: Iterable[str] = (), *, allow_others_to_read: bool = False) -> None:
        self._path = Path(path)
        self._scopes = list(scopes)
        self._allow_others_to_read = allow_others_to_read
        # Get the signature before reading the file, so that a change during the reading is noticed next time.
        self._last_signature = self._get_signature()
        self._entries = self._read()
        if not self._entries:
            raise InvalidArgument(f"{path} has no tokens; `forebay token NAME` prints a line for it")

    async def verify_token(self, token: str) -> AccessToken | None:
        self._refresh()
        digest = hash_token(token)
        principal = None
        # Compare with every entry, so that the response time reveals nothing.
        for known_digest, name in self._entries:
            if hmac.compare_digest(known_digest, digest):
                principal = name
        # The token itself is not passed on.
        return None if principal is None else AccessToken(token="", client_id=principal, scopes=self._scopes)

    def _refresh(self) -> None:
        signature = self._get_signature()
        if signature == self._last_signature:
            return
        self._last_signature = signature
        try:
            self._entries = self._read()
        except InvalidArgument as error:
            _log.error("the tokens that were read before stay in force: %s", error)

    def _get_signature(self) -> tuple[int, ...] | None:
        """Return a value that changes when the file changes."""
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino

    def _read(self) -> list[tuple[bytes, str]]:
        try:
            with open(self._path, "rb", opener=_open_nonblocking) as file:
                self._check_status(os.fstat(file.fileno()))
                text = file.read(_MAX_FILE_BYTES).decode()
        except (OSError, UnicodeDecodeError) as error:
            # The message of a decoding error would show bytes of the file.
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise InvalidArgument(f"tokens cannot be read from {self._path}: {reason}; check the file") from None
        return parse_token_lines(text, str(self._path))

    def _check_status(self, status: os.stat_result) -> None:
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_FILE_BYTES:
            raise InvalidArgument(f"{self._path} is no file of tokens; name one with a `name: token` on each line")
        if status.st_mode & 0o077 and not self._allow_others_to_read:
            raise InvalidArgument(f"others can read the tokens in {self._path}; run: chmod 600 {self._path}")


def _open_nonblocking(path: str, flags: int) -> int:
    # Without `O_NONBLOCK`, opening a named pipe would block.
    return os.open(path, flags | os.O_NONBLOCK)


# No symmetric algorithm: the public key would be accepted as the shared secret.
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_REQUIRED_CLAIMS = ["exp", "iss", "aud", "sub"]
_LEEWAY_SECONDS = 10.0
"""Allowed difference between our clock and the issuer's."""

_MAX_TOKEN_CHARS = 16 << 10

_MAX_FETCH_THREADS = 4
"""Maximum number of threads that fetch keys: a slow issuer must not block all worker threads."""


class JWTVerifier(TokenVerifier):
    """Verifier that accepts JWT access tokens that `issuer` signed for `audience`.

    The issuer's keys are fetched when a token names an unknown key, at most once in `refetch_cooldown` seconds.
    """

    def __init__(self, issuer: str, audience: str, jwks_url: str, *, refetch_cooldown: float = 30.0) -> None:
        self._issuer, self._audience = issuer, audience
        self._keys = IssuerKeys(jwks_url, refetch_cooldown)
        self._limiter = anyio.CapacityLimiter(_MAX_FETCH_THREADS)

    async def verify_token(self, token: str) -> AccessToken | None:
        if len(token) > _MAX_TOKEN_CHARS or token.count(".") != 2:
            return None
        try:
            header = jwt.get_unverified_header(token)
            if header.get("alg") not in _ALGORITHMS or not isinstance(header.get("kid"), str):
                return None
            claims = await anyio.to_thread.run_sync(self._decode, token, header["kid"], limiter=self._limiter)
        except jwt.PyJWTError as error:
            # The error message is not logged, because it may repeat what the caller sent.
            _log.info("a token was refused: %s", type(error).__name__)
            return None
        return self._make_access_token(claims)

    def _decode(self, token: str, kid: str) -> dict[str, Any]:
        return jwt.decode(
            token,
            self._keys.get_key(kid),
            algorithms=_ALGORITHMS,
            audience=self._audience,
            issuer=self._issuer,
            leeway=_LEEWAY_SECONDS,
            options={"require": _REQUIRED_CLAIMS, "enforce_minimum_key_length": True},
        )

    def _make_access_token(self, claims: dict[str, Any]) -> AccessToken:
        subject = claims["sub"]
        client = claims.get("client_id") or claims.get("azp") or subject
        return AccessToken(
            # The token itself is not passed on.
            token="",
            client_id=str(client),
            scopes=_parse_scopes(claims.get("scope") or claims.get("scp")),
            expires_at=int(claims["exp"]),
            resource=self._audience,
            subject=subject,
            claims={"iss": claims["iss"]},
        )


def _parse_scopes(claim: object) -> list[str]:
    """Return the scopes of a claim, which is a space-separated string or a list."""
    if isinstance(claim, str):
        return claim.split()
    return [scope for scope in claim if isinstance(scope, str)] if isinstance(claim, list) else []


_CHECK_INTERVAL_SECONDS = 2.0
"""Interval between checks whether a token is still valid."""

_BEARER_PREFIX = "bearer "


class RevocationMiddleware:
    """Middleware that ends requests and streams when their token is removed from the token file.

    When a JWT expires, only notification streams end; calls in flight still get their response.
    """

    def __init__(self, app: ASGIApp, tokens: TokenFile | None) -> None:
        self._app, self._tokens = app, tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        header = headers.get("authorization", "")
        token = header[len(_BEARER_PREFIX) :] if header.lower().startswith(_BEARER_PREFIX) else ""
        access_token = None if self._tokens is None else await self._tokens.verify_token(token)
        expires_at = _get_token_expiry(scope)
        if self._tokens is not None and access_token is not None:
            await self._run_until(scope, receive, send, partial(_wait_until_removed, self._tokens, token, access_token))
        elif expires_at is not None and _is_stream_request(scope, headers):
            await self._run_until(scope, receive, send, partial(_wait_until_expired, expires_at))
        else:
            await self._app(scope, receive, send)

    async def _run_until(
        self, scope: Scope, receive: Receive, send: Send, wait_for_end: Callable[[], Awaitable[None]]
    ) -> None:
        """Run the application until it finishes or `wait_for_end()` returns."""
        response = _ResponseTracker(send)

        async def watch(cancel_scope: anyio.CancelScope) -> None:
            await wait_for_end()
            cancel_scope.cancel()

        with anyio.CancelScope() as cancel_scope:
            watch_task = asyncio.create_task(watch(cancel_scope))
            try:
                await self._app(scope, receive, response.send)
            finally:
                watch_task.cancel()
        if cancel_scope.cancelled_caught:
            await response.end(scope, receive)


async def _wait_until_removed(tokens: TokenFile, token: str, access_token: AccessToken) -> None:
    while await tokens.verify_token(token) == access_token:
        await asyncio.sleep(_CHECK_INTERVAL_SECONDS)


async def _wait_until_expired(expires_at: int) -> None:
    # The SDK accepts a token until one second after `expires_at`. Check repeatedly, because the wall clock may be set.
    while (remaining := expires_at + 1 - time.time()) > 0:
        await asyncio.sleep(min(remaining, _CHECK_INTERVAL_SECONDS))


def _get_token_expiry(scope: Scope) -> int | None:
    user = scope.get("user")
    return user.access_token.expires_at if isinstance(user, AuthenticatedUser) else None


def _is_stream_request(scope: Scope, headers: Headers) -> bool:
    """Return whether a request only opens a stream of notifications."""
    return scope["method"] == "GET" or headers.get("mcp-method") == "subscriptions/listen"


class _ResponseTracker:
    """Sender of a response that knows how much has been sent, and can end the response early."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._is_started = self._is_complete = False

    async def send(self, message: Message) -> None:
        self._is_started = True
        self._is_complete = message["type"] == "http.response.body" and not message.get("more_body")
        await self._send(message)

    async def end(self, scope: Scope, receive: Receive) -> None:
        if not self._is_started:
            await Response(status_code=401)(scope, receive, self._send)
        elif not self._is_complete:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
