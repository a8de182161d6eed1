"""Streams to a server of MCP on which what is the client's own to hear or to answer is taken off, as it came."""

import asyncio
import contextlib
from typing import Any, cast

import anyio
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)

from forebay.hub.client_peer import Front, capabilities_of_request
from forebay.hub.in_flight import UnderWay
from forebay.hub.streams import ServerEnded
from forebay.hub.subscribed import Subscribed

__all__ = ["Attended"]


class Attended(ObjectReceiveStream[SessionMessage | Exception]):
    """The reading side of a connection, with what its writing side needs."""

    def __init__(
        self,
        reading: ReadStream[SessionMessage | Exception],
        writing: WriteStream[SessionMessage],
        front: Front,
        upstream: object,
    ) -> None:
        self._reading = reading
        self._writing = writing
        self._front = front
        self._upstream = upstream
        self._answering: dict[RequestId, asyncio.Task[None]] = {}
        self._subscribed = Subscribed()
        self._under_way = UnderWay()
        self._telling: asyncio.Queue[JSONRPCNotification] = asyncio.Queue()
        self._teller = asyncio.create_task(self._tell())
        self.hello: dict[str, Any] = {}
        """What the server said of itself when it was connected."""

    async def send(self, item: SessionMessage) -> None:
        """To the server: it is told what the client can do, not what the SDK can."""
        match item.message:
            case JSONRPCRequest(method="initialize", params=dict() as params):
                params["capabilities"] = self._front.capabilities
            case JSONRPCRequest(params={"_meta": {"io.modelcontextprotocol/clientCapabilities": _}} as params):
                meta = cast("dict[str, Any]", params)["_meta"]
                meta["io.modelcontextprotocol/clientCapabilities"] = (
                    self._front.capabilities if self._front.is_lasting else capabilities_of_request() or {}
                )
        self._subscribed.sent(item.message)
        self._under_way.sent(item.message)
        await self._writing.send(item)

    async def receive(self) -> SessionMessage | Exception:
        """What the SDK is to have."""
        while True:
            item = await self._reading.receive()
            if isinstance(item, ServerEnded):
                self._stop_answering()
            elif isinstance(item, Exception) or not self._is_taken(item.message, item.metadata):
                return item

    def _is_taken(self, message: object, metadata: object) -> bool:
        self._subscribed.received(message)
        self._under_way.received(message)
        match message:
            case JSONRPCRequest(method=method) if method != "ping":
                related = metadata.related_request_id if isinstance(metadata, ServerMessageMetadata) else None
                task = asyncio.create_task(self._answer(message, related))
                self._answering[message.id] = task
                task.add_done_callback(lambda _: self._answering.pop(message.id, None))
                return True
            case JSONRPCNotification(method="notifications/cancelled", params={"requestId": str() | int() as asked}):
                if asked in self._answering:
                    self._answering[asked].cancel()
                    return True
            case JSONRPCNotification() if not self._front.says_of_request(message.method, message.params):
                if not self._subscribed.is_repeated(message):
                    self._telling.put_nowait(message)
            case JSONRPCResponse(result={"capabilities": dict()} as result):
                self.hello = self.hello or result
        return False

    def _stop_answering(self) -> None:
        for task in [*self._answering.values()]:
            task.cancel()

    async def _answer(self, request: JSONRPCRequest, related: RequestId | None) -> None:
        answer: JSONRPCResponse | JSONRPCError
        try:
            if self._front.is_lasting:
                result = await self._front.ask(request.method, request.params, self._upstream)
            else:
                result = await self._under_way.ask(request.method, request.params, related)
            answer = JSONRPCResponse(jsonrpc="2.0", id=request.id, result=result)
        except MCPError as error:
            answer = JSONRPCError(jsonrpc="2.0", id=request.id, error=error.error)
        except Exception as error:
            told = ErrorData(code=INTERNAL_ERROR, message=f"the client cannot be asked: {error!s:.200}")
            answer = JSONRPCError(jsonrpc="2.0", id=request.id, error=told)
        with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            await self._writing.send(SessionMessage(answer))

    async def _tell(self) -> None:
        """One after the other, as it was said."""
        while True:
            message = await self._telling.get()
            # A client that is gone has nothing to be told.
            with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, MCPError):
                await self._front.tell(message.method, message.params)

    async def aclose(self) -> None:
        self._teller.cancel()
        self._stop_answering()
        await self._reading.aclose()


class AttendedWriting(ObjectSendStream[SessionMessage]):
    """The writing side."""

    def __init__(self, attended: Attended, writing: WriteStream[SessionMessage]) -> None:
        self._attended = attended
        self._writing = writing

    async def send(self, item: SessionMessage) -> None:
        await self._attended.send(item)

    async def aclose(self) -> None:
        await self._writing.aclose()
