"""Tokens that are taken out of their file while something is under way for them."""

import asyncio

import anyio
from mcp.server.auth.provider import AccessToken
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headgate.gateway.http.tokens import TokenFile

__all__ = ["EndRevoked"]

_EVERY = 2.0
_BEARER = "bearer "


class EndRevoked:
    """Ends it: who would not be let in any more is not told anything any more either, however long they listen."""

    def __init__(self, app: ASGIApp, tokens: TokenFile) -> None:
        self._app, self._tokens = app, tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        said = Headers(scope=scope).get("authorization", "") if scope["type"] == "http" else ""
        token = said[len(_BEARER) :] if said.lower().startswith(_BEARER) else ""
        owner = await self._tokens.verify_token(token)
        if owner is None:
            # It was let in by something else.
            await self._app(scope, receive, send)
            return
        answer = _Answer(send)
        with anyio.CancelScope() as life:
            watching = asyncio.create_task(self._watch(token, owner, life))
            try:
                await self._app(scope, receive, answer.send)
            finally:
                watching.cancel()
        if life.cancelled_caught:
            await answer.end(scope, receive)

    async def _watch(self, token: str, owner: AccessToken, life: anyio.CancelScope) -> None:
        while await self._tokens.verify_token(token) == owner:
            await asyncio.sleep(_EVERY)
        life.cancel()


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
