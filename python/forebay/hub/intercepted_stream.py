"""SDK streams to an MCP server. The server's requests and notifications go to the client instead of the SDK."""

import asyncio
import contextlib
from typing import Any, cast

import anyio
from anyio.abc import ObjectReceiveStream, ObjectSendStream
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

from forebay.adapters.sdk_internals import ReadStream, WriteStream
from forebay.hub.client_peer import ClientPeer, get_current_capabilities
from forebay.hub.in_flight import InFlight, OpenSubscriptions
from forebay.hub.notification_queue import NotificationQueue
from forebay.hub.streams import ServerEnded

__all__ = ["InterceptedStream"]

_MAX_SERVER_REQUESTS = 256
"""Maximum number of requests of one server that wait for an answer of the client."""

_TOO_MANY_REQUESTS_MESSAGE = "too many of your requests, or one with the same id, are unanswered; send this one later"


class InterceptedStream(ObjectReceiveStream[SessionMessage | Exception]):
    """Stream of messages from a server. The `InterceptedWriter` of the same connection shares its state."""

    def __init__(
        self,
        read_stream: ReadStream[SessionMessage | Exception],
        write_stream: WriteStream[SessionMessage],
        client: ClientPeer,
        upstream: object,
    ) -> None:
        self._read_stream = read_stream
        self._write_stream = write_stream
        self._client = client
        self._upstream = upstream
        self._answer_tasks: dict[RequestId, asyncio.Task[None]] = {}
        self._open_subscriptions = OpenSubscriptions()
        self._in_flight = InFlight()
        self._notifications = NotificationQueue(client.forward_notification, client.on_overflow)
        self.initialize_result: dict[str, Any] = {}
        """The server's result of `initialize` or `server/discover`."""

    async def send(self, item: SessionMessage) -> None:
        """Send a message to the server, with the capabilities of the client instead of the SDK's."""
        match item.message:
            case JSONRPCRequest(method="initialize", params=dict() as params):
                params["capabilities"] = self._client.capabilities
            case JSONRPCRequest(params={"_meta": {"io.modelcontextprotocol/clientCapabilities": _}} as params):
                meta = cast("dict[str, Any]", params)["_meta"]
                meta["io.modelcontextprotocol/clientCapabilities"] = (
                    None if self._client.has_connection else get_current_capabilities()
                ) or self._client.capabilities
        self._open_subscriptions.on_sent(item.message)
        self._in_flight.on_sent(item.message)
        await self._write_stream.send(item)

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message that the SDK must handle."""
        while True:
            item = await self._read_stream.receive()
            if isinstance(item, ServerEnded):
                self._cancel_answers()
            elif isinstance(item, Exception) or not await self._intercept(item.message, item.metadata):
                return item

    async def _intercept(self, message: object, metadata: object) -> bool:
        """Handle a message from the server; return whether the SDK must not see it."""
        self._open_subscriptions.on_received(message)
        self._in_flight.on_received(message)
        match message:
            case JSONRPCRequest(method=method) if method != "ping":
                if len(self._answer_tasks) >= _MAX_SERVER_REQUESTS or message.id in self._answer_tasks:
                    error = ErrorData(code=INTERNAL_ERROR, message=_TOO_MANY_REQUESTS_MESSAGE)
                    await self._send_answer(JSONRPCError(jsonrpc="2.0", id=message.id, error=error))
                    return True
                related = metadata.related_request_id if isinstance(metadata, ServerMessageMetadata) else None
                task = asyncio.create_task(self._answer(message, related))
                self._answer_tasks[message.id] = task
                task.add_done_callback(lambda task: self._forget_answer(message.id, task))
                return True
            case JSONRPCNotification(
                method="notifications/cancelled", params={"requestId": str() | int() as request_id}
            ):
                if request_id in self._answer_tasks:
                    self._answer_tasks[request_id].cancel()
                    return True
            case JSONRPCNotification() if not self._client.forward_to_client_request(message.method, message.params):
                if not self._open_subscriptions.is_duplicate(message):
                    self._notifications.put(message.method, message.params)
            case JSONRPCResponse(result={"capabilities": dict()} as result):
                self.initialize_result = self.initialize_result or result
        return False

    def _forget_answer(self, request_id: RequestId, task: asyncio.Task[None]) -> None:
        # A restarted server may have used the id again.
        if self._answer_tasks.get(request_id) is task:
            del self._answer_tasks[request_id]

    def _cancel_answers(self) -> None:
        tasks, self._answer_tasks = self._answer_tasks, {}
        for task in tasks.values():
            task.cancel()

    async def _answer(self, request: JSONRPCRequest, related_request_id: RequestId | None) -> None:
        answer: JSONRPCResponse | JSONRPCError
        try:
            if self._client.has_connection:
                result = await self._client.request(request.method, request.params, self._upstream)
            else:
                result = await self._in_flight.request_input(request.method, request.params, related_request_id)
            answer = JSONRPCResponse(jsonrpc="2.0", id=request.id, result=result)
        except MCPError as error:
            answer = JSONRPCError(jsonrpc="2.0", id=request.id, error=error.error)
        except Exception as error:
            failure = ErrorData(code=INTERNAL_ERROR, message=f"the client cannot be asked: {error!s:.200}")
            answer = JSONRPCError(jsonrpc="2.0", id=request.id, error=failure)
        await self._send_answer(answer)

    async def _send_answer(self, answer: JSONRPCResponse | JSONRPCError) -> None:
        # The server may be gone.
        with contextlib.suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            await self._write_stream.send(SessionMessage(answer))

    async def aclose(self) -> None:
        self._notifications.close()
        self._cancel_answers()
        await self._read_stream.aclose()


class InterceptedWriter(ObjectSendStream[SessionMessage]):
    """Stream of messages to a server, for the same connection as an `InterceptedStream`."""

    def __init__(self, stream: InterceptedStream, write_stream: WriteStream[SessionMessage]) -> None:
        self._stream = stream
        self._write_stream = write_stream

    async def send(self, item: SessionMessage) -> None:
        await self._stream.send(item)

    async def aclose(self) -> None:
        await self._write_stream.aclose()
