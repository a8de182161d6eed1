"""Tokens that are taken out of their file, or expire, while something is under way for them."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial

import anyio
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forebay.http.tokens import TokenFile

__all__ = ["EndRevoked"]

_EVERY = 2.0
_BEARER = "bearer "


class EndRevoked:
    """Ends it: who would not be let in any more is not told anything any more either, however long they listen.

    Tokens that expire are given out anew all the time, and calls that such a one began are answered.
    """

    def __init__(self, app: ASGIApp, tokens: TokenFile | None) -> None:
        self._app, self._tokens = app, tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        said = headers.get("authorization", "")
        token = said[len(_BEARER) :] if said.lower().startswith(_BEARER) else ""
        owner = None if self._tokens is None else await self._tokens.verify_token(token)
        expires_at = _expiry(scope)
        if self._tokens is not None and owner is not None:
            await self._ended(scope, receive, send, partial(_removed, self._tokens, token, owner))
        elif expires_at is not None and _listens(scope, headers):
            await self._ended(scope, receive, send, partial(_expired, expires_at))
        else:
            await self._app(scope, receive, send)

    async def _ended(self, scope: Scope, receive: Receive, send: Send, end: Callable[[], Awaitable[None]]) -> None:
        """Answers, until that end comes."""
        answer = _Answer(send)

        async def watch(life: anyio.CancelScope) -> None:
            await end()
            life.cancel()

        with anyio.CancelScope() as life:
            watching = asyncio.create_task(watch(life))
            try:
                await self._app(scope, receive, answer.send)
            finally:
                watching.cancel()
        if life.cancelled_caught:
            await answer.end(scope, receive)


async def _removed(tokens: TokenFile, token: str, owner: AccessToken) -> None:
    while await tokens.verify_token(token) == owner:
        await asyncio.sleep(_EVERY)


async def _expired(at: int) -> None:
    # As long as it is let in; and clocks are set.
    while (left := at + 1 - time.time()) > 0:
        await asyncio.sleep(min(left, _EVERY))


def _expiry(scope: Scope) -> int | None:
    user = scope.get("user")
    return user.access_token.expires_at if isinstance(user, AuthenticatedUser) else None


def _listens(scope: Scope, headers: Headers) -> bool:
    """Whether nothing is asked for but news."""
    return scope["method"] == "GET" or headers.get("mcp-method") == "subscriptions/listen"


class _Answer:
    """How far an answer has come."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._is_begun = self._is_over = False

    async def send(self, message: Message) -> None:
        self._is_begun = True
        self._is_over = message["type"] == "http.response.body" and not message.get("more_body")
        await self._send(message)

    async def end(self, scope: Scope, receive: Receive) -> None:
        if not self._is_begun:
            await Response(status_code=401)(scope, receive, self._send)
        elif not self._is_over:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})
