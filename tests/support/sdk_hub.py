"""A server of the SDK behind the HTTP side of `forebay serve`: each session or request has a connection of its own."""

import asyncio
import contextlib
import json
from typing import Any

import anyio
from forebay.proxy.message_queue import Reply
from forebay.wire.framing import Message
from forebay.wire.messages import make_id_key
from mcp.server import Server
from mcp.server.auth.middleware.auth_context import auth_context_var
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import jsonrpc_message_adapter
from starlette.requests import Request


class SdkConnection:
    """A connection to the server in this process. Implements `Session`."""

    def __init__(self, server: Server[Any], principal: str | None, outbox: Reply | None) -> None:
        self._outbox = outbox
        self._replies: dict[bytes, tuple[asyncio.Future[bytes], Reply]] = {}
        self._to_server, server_reads = anyio.create_memory_object_stream[SessionMessage | Exception](100)
        server_writes, self._from_server = anyio.create_memory_object_stream[SessionMessage](100)
        _set_token(principal)
        serving = server.run(server_reads, server_writes, server.create_initialization_options())
        self._tasks = [asyncio.create_task(serving), asyncio.create_task(self._read())]

    async def handle(self, message: Any, raw: Message, reply: Reply) -> Message | None:
        assert isinstance(raw, bytes)
        response: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        is_request = "method" in message and "id" in message
        if is_request:
            self._replies[make_id_key(message["id"])] = response, reply
        # The server's code sees that the message came over HTTP.
        metadata = ServerMessageMetadata(request_context=Request({"type": "http", "headers": []}))
        await self._to_server.send(SessionMessage(jsonrpc_message_adapter.validate_json(raw), metadata))
        return await response if is_request else None

    async def _read(self) -> None:
        async for item in self._from_server:
            message = item.message.model_dump(by_alias=True, exclude_unset=True)
            raw = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode()
            if "method" not in message:
                response, _ = self._replies.pop(make_id_key(message["id"]))
                if not response.done():
                    response.set_result(raw)
                continue
            related = getattr(item.metadata, "related_request_id", None)
            _, reply = self._replies.get(make_id_key(related), (None, self._outbox))
            if reply is not None:
                reply.send(raw, message["method"])

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _set_token(principal: str | None) -> None:
    """Let the server's code see the principal in the current context, as if the SDK had verified a token."""
    if principal is None:
        return
    kind, *names = json.loads(principal)
    issuer, name = (None, *names) if kind == "client" else names
    token = AccessToken(
        token="",
        client_id=name,
        scopes=[],
        subject=None if kind == "client" else name,
        claims=None if issuer is None else {"iss": issuer},
    )
    auth_context_var.set(AuthenticatedUser(token))


class SdkHub:
    """Hub with one server of the SDK. Implements `Hub`."""

    def __init__(self, server: Server[Any]) -> None:
        self._server = server

    async def start(self) -> None:
        pass

    async def check(self) -> None:
        pass

    async def close(self) -> None:
        pass

    def open_session(self, principal: str | None, outbox: Reply) -> SdkConnection:
        return SdkConnection(self._server, principal, outbox)

    async def handle_stateless(self, principal: str | None, message: Any, raw: Message, reply: Reply) -> Message | None:
        async with contextlib.AsyncExitStack() as opened:
            connection = SdkConnection(self._server, principal, None)
            opened.push_async_callback(connection.close)
            return await connection.handle(message, raw, reply)

    handle_sessionless = handle_stateless
