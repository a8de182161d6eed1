"""Bearer tokens from a file, and the end of requests whose token is revoked."""

import asyncio
import hmac
import logging
import os
import stat
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path

import anyio
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken, TokenVerifier
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forebay.errors import InvalidArgument
from forebay.http.token_lines import hash_token, parse_token_lines

__all__ = ["RevocationMiddleware", "TokenFile"]

_log = logging.getLogger("forebay")

_MAX_FILE_BYTES = 1 << 20


class TokenFile(TokenVerifier):
    """Verifies tokens against a file, which is read again when it changes.

    If the changed file cannot be read, the tokens read before stay valid. Raises `InvalidArgument` if the file cannot
    be read at the start. Error messages never show the content of the file.
    """

    def __init__(self, path: str, scopes: Iterable[str] = (), *, allow_others_to_read: bool = False) -> None:
        self._path = Path(path)
        self._scopes = list(scopes)
        self._allow_others_to_read = allow_others_to_read
        # Take the signature before reading, so that a change in between is noticed next time.
        self._last_signature = self._signature()
        self._entries = self._read()
        if not self._entries:
            raise InvalidArgument(f"{path} has no tokens; `forebay token NAME` prints a line for it")

    async def verify_token(self, token: str) -> AccessToken | None:
        self._refresh()
        digest = hash_token(token)
        found = None
        # Compare with every entry, so that the time reveals nothing.
        for known, name in self._entries:
            if hmac.compare_digest(known, digest):
                found = name
        # The token itself is not passed on.
        return None if found is None else AccessToken(token="", client_id=found, scopes=self._scopes)

    def _refresh(self) -> None:
        now = self._signature()
        if now == self._last_signature:
            return
        self._last_signature = now
        try:
            self._entries = self._read()
        except InvalidArgument as error:
            _log.error("the tokens that were read before stay in force: %s", error)

    def _signature(self) -> tuple[int, ...] | None:
        """Return a value that changes when the file changes."""
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino

    def _read(self) -> list[tuple[bytes, str]]:
        try:
            with open(self._path, "rb", opener=_open_nonblocking) as file:
                self._check(os.fstat(file.fileno()))
                text = file.read(_MAX_FILE_BYTES).decode()
        except (OSError, UnicodeDecodeError) as error:
            # The message of a decoding error would show bytes of the file.
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise InvalidArgument(f"tokens cannot be read from {self._path}: {why}; check the file") from None
        return parse_token_lines(text, str(self._path))

    def _check(self, status: os.stat_result) -> None:
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_FILE_BYTES:
            raise InvalidArgument(f"{self._path} is no file of tokens; name one with a `name: token` on each line")
        if status.st_mode & 0o077 and not self._allow_others_to_read:
            raise InvalidArgument(f"others can read the tokens in {self._path}; run: chmod 600 {self._path}")


def _open_nonblocking(path: str, flags: int) -> int:
    # Opening a named pipe would block.
    return os.open(path, flags | os.O_NONBLOCK)


_CHECK_INTERVAL_SECONDS = 2.0
_BEARER_PREFIX = "bearer "


class RevocationMiddleware:
    """Middleware that ends requests and streams whose token is removed from the token file.

    When a JWT expires, open notification streams end, but calls in flight still get their response.
    """

    def __init__(self, app: ASGIApp, tokens: TokenFile | None) -> None:
        self._app, self._tokens = app, tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        header = headers.get("authorization", "")
        token = header[len(_BEARER_PREFIX) :] if header.lower().startswith(_BEARER_PREFIX) else ""
        owner = None if self._tokens is None else await self._tokens.verify_token(token)
        expires_at = _get_token_expiry(scope)
        if self._tokens is not None and owner is not None:
            await self._run_until(scope, receive, send, partial(_wait_until_removed, self._tokens, token, owner))
        elif expires_at is not None and _is_stream_request(scope, headers):
            await self._run_until(scope, receive, send, partial(_wait_until_expired, expires_at))
        else:
            await self._app(scope, receive, send)

    async def _run_until(self, scope: Scope, receive: Receive, send: Send, end: Callable[[], Awaitable[None]]) -> None:
        """Run the application until it finishes or `end()` returns."""
        response = _ResponseTracker(send)

        async def watch(cancel_scope: anyio.CancelScope) -> None:
            await end()
            cancel_scope.cancel()

        with anyio.CancelScope() as life:
            watching = asyncio.create_task(watch(life))
            try:
                await self._app(scope, receive, response.send)
            finally:
                watching.cancel()
        if life.cancelled_caught:
            await response.end(scope, receive)


async def _wait_until_removed(tokens: TokenFile, token: str, owner: AccessToken) -> None:
    while await tokens.verify_token(token) == owner:
        await asyncio.sleep(_CHECK_INTERVAL_SECONDS)


async def _wait_until_expired(expires_at: int) -> None:
    # One second of grace, as in verification. Poll, because the wall clock may be set.
    while (remaining := expires_at + 1 - time.time()) > 0:
        await asyncio.sleep(min(remaining, _CHECK_INTERVAL_SECONDS))


def _get_token_expiry(scope: Scope) -> int | None:
    user = scope.get("user")
    return user.access_token.expires_at if isinstance(user, AuthenticatedUser) else None


def _is_stream_request(scope: Scope, headers: Headers) -> bool:
    """Return whether the request only opens a stream of notifications."""
    return scope["method"] == "GET" or headers.get("mcp-method") == "subscriptions/listen"


class _ResponseTracker:
    """Tracks how much of a response has been sent, and can end it early."""

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
