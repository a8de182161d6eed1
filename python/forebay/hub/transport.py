"""SDK transport to an upstream server that stores large results before the SDK sees them."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakValueDictionary

import anyio
import anyio.to_thread
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCRequest, RequestId

from forebay.errors import UpstreamFailed
from forebay.hub.streams import IncomingStream, OutgoingStream
from forebay.outputs.modes import Mode
from forebay.outputs.pipeline import PLACEHOLDER_RESULT, ResultSink, current_sink
from forebay.outputs.policy import OutputPolicy
from forebay.outputs.result import TASK_RESULT_METHODS, get_task_result, parse_result, set_task_result
from forebay.proxy.intercept import ForwardedRequest, RequestHandler
from forebay.proxy.relay import Relay
from forebay.proxy.session import PendingRequest, Session
from forebay.wire.framing import Message
from forebay.wire.messages import LazyJSON, dump_message, dump_size, make_id_key, make_optional_key, protocol_version

if TYPE_CHECKING:
    from forebay.adapters.sdk_internals import TransportStreams
    from forebay.proxy.http.upstream import HttpUpstream
    from forebay.proxy.stdio import StdioUpstream

__all__ = ["open_transport"]

_INLINE_MODE = Mode()


@contextlib.asynccontextmanager
async def open_transport(
    make_upstream: "Callable[[], StdioUpstream | HttpUpstream]", policy: OutputPolicy
) -> "AsyncIterator[TransportStreams]":
    """Yield the SDK streams to an upstream. Blocking work runs in threads."""
    incoming = IncomingStream()
    start: Future[tuple[StdioUpstream | HttpUpstream, HubRelay]] = Future()

    def run() -> None:
        try:
            upstream = make_upstream()
        except BaseException as error:
            start.set_exception(error)
            return
        relay = HubRelay(policy, incoming, upstream)
        start.set_result((upstream, relay))
        upstream.run(relay)
        incoming.end()

    def close() -> None:
        # A caller that is cancelled while the server starts waits here, so that no process is left behind.
        if start.exception() is None:
            start.result()[0].close()

    threading.Thread(target=run, name="forebay-upstream", daemon=True).start()
    try:
        _, relay = await asyncio.shield(asyncio.wrap_future(start))
        outgoing = OutgoingStream(relay.receive_from_client, relay.register_result_sink, reader="a server")
        try:
            yield incoming.stream, outgoing
        finally:
            await outgoing.aclose()
    finally:
        incoming.end()
        with anyio.CancelScope(shield=True):
            # A limiter of its own: with the shared one, servers that end slowly would delay others.
            await anyio.to_thread.run_sync(close, limiter=anyio.CapacityLimiter(1))
        await incoming.stream.aclose()


class HubRelay(Relay):
    """Relay that forwards messages unchanged, except large results: those go to the result sink of their call."""

    def __init__(self, policy: OutputPolicy, client: IncomingStream, upstream: "StdioUpstream | HttpUpstream") -> None:
        super().__init__(policy, client, upstream)
        self._incoming = client
        # Weak references, so that the sinks of abandoned calls are freed.
        self._sinks: WeakValueDictionary[bytes, ResultSink] = WeakValueDictionary()
        self._request_handler = handler = _UnchangedRequests(policy, self._session, {}, lambda _: [])
        handler.sinks = self._sinks
        self._response_handler = self._deliver_result  # type: ignore[assignment]

    def register_result_sink(self, item: SessionMessage) -> None:
        """Remember the result sink of a request. Must be called in the context of its sender."""
        sink = current_sink()
        request = item.message
        if (
            sink is not None
            and isinstance(request, JSONRPCRequest)
            and request.method in ("tools/call", *TASK_RESULT_METHODS)
        ):
            self._sinks[make_id_key(request.id)] = sink

    def _forward_to_client(self, message: dict[str, Any], raw: Message, stream_request_id: object) -> None:
        del message
        self._incoming.send(raw, cast("RequestId | None", stream_request_id))

    def on_upstream_end(self, error: UpstreamFailed) -> None:
        # Notify first, so that the client's answers to requests of the ended server are dropped.
        self._incoming.notify_server_ended()
        super().on_upstream_end(error)

    def cancel_server_requests(self, reason: str) -> None:
        del reason
        # The server's requests are open in the stream, not here.
        self._incoming.notify_server_ended()

    def _deliver_result(self, pending: PendingRequest, message: dict[str, Any], raw: Message) -> Message | None:
        """Pass a large result to its sink and return a response with a placeholder.

        Return `None` to forward the response unchanged.
        """
        if pending.method == "initialize":
            self._set_version(message)
        sink = self._sinks.pop(make_id_key(pending.id), None)
        envelope = message.get("result")
        result = get_task_result(pending.method, envelope)
        if sink is None:
            return None
        if message.get("error") is not None and sink.mode.exceeds_limit(len(raw)):
            error = sink.pipeline.store_error(message["error"], sink.call)
            return None if error is None else dump_message({**message, "error": error})
        if not isinstance(result, dict | LazyJSON):
            return None

        def set_result(result: object) -> dict[str, Any]:
            return {**message, "result": set_task_result(pending.method, envelope, result)}

        envelope_bytes = dump_size(set_task_result(pending.method, envelope, 0)) - 1
        if not sink.try_store(result, len(raw) - dump_size(set_result(0)) + 1, envelope_bytes):
            return None
        return dump_message(set_result({**PLACEHOLDER_RESULT, "isError": parse_result(result).get("isError") is True}))

    def _set_version(self, message: Mapping[str, Any]) -> None:
        result = message.get("result")
        if isinstance(result, dict) and isinstance(result.get("protocolVersion"), str):
            self._session.is_negotiated, self._session.version = True, result["protocolVersion"]


class _UnchangedRequests(RequestHandler):
    """Request handler that forwards every request unchanged."""

    _session: Session
    sinks: "WeakValueDictionary[bytes, ResultSink]"

    def needs_tool_list(self, method: str, params: Mapping[str, Any]) -> bool:
        del method, params
        return False

    is_slow = needs_tool_list

    def __call__(self, request: dict[str, Any], raw: Message) -> ForwardedRequest:
        del raw
        params = request.get("params")
        params = params if isinstance(params, dict) else {}
        sink = self.sinks.get(make_id_key(request["id"]))
        meta = params.get("_meta")
        return ForwardedRequest(
            PendingRequest(
                request["method"],
                request["id"],
                protocol_version(params) or self._session.version,
                tool=str(params.get("name", "")) if request["method"] == "tools/call" else "",
                mode=_INLINE_MODE if sink is None else sink.mode,
                progress_key=make_optional_key(meta.get("progressToken")) if isinstance(meta, dict) else None,
            )
        )
