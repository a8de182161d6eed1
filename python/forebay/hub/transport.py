"""Servers of MCP for a client of the `mcp` SDK, to which no large result ever comes."""

import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakValueDictionary

import anyio.to_thread
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCRequest, RequestId

from forebay.errors import UpstreamFailed
from forebay.hub.streams import Incoming, Outgoing
from forebay.outputs.modes import Mode
from forebay.outputs.policy import Gate
from forebay.outputs.result import seen
from forebay.outputs.sink import PLACEHOLDER, Delivery, current_delivery
from forebay.outputs.tasks import ASKING, filled, result_in
from forebay.proxy.pending import Pending
from forebay.proxy.relay import Relay
from forebay.proxy.requests import Forwarded, Requests
from forebay.proxy.session import Session
from forebay.wire.lazy_json import LazyJSON, written
from forebay.wire.lines import Kept
from forebay.wire.messages import key_of, version_of

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

    from forebay.proxy.http.upstream import HttpUpstream
    from forebay.proxy.stdio.upstream import Upstream

__all__ = ["relayed"]

_INLINE = Mode()


@contextlib.asynccontextmanager
async def relayed(make: "Callable[[], Upstream | HttpUpstream]", gate: Gate) -> "AsyncIterator[TransportStreams]":
    """The streams to a server, until this is left. What is to be waited for is done by threads."""
    upstream = await anyio.to_thread.run_sync(make)
    incoming = Incoming()
    relay = DeliveringRelay(gate, incoming, upstream)

    def run() -> None:
        upstream.run(relay)
        incoming.end()

    threading.Thread(target=run, name="forebay-upstream", daemon=True).start()
    outgoing = Outgoing(relay.from_client, relay.note)
    try:
        yield incoming.stream, outgoing
    finally:
        await outgoing.aclose()
        incoming.end()
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(upstream.close)
        await incoming.stream.aclose()


class DeliveringRelay(Relay):
    """Every message goes through as it came, but for large results: they are delivered to whoever asked for them."""

    def __init__(self, gate: Gate, client: Incoming, upstream: "Upstream | HttpUpstream") -> None:
        super().__init__(gate, client, upstream)
        self._incoming = client
        # Those that nobody waits for any more are nobody's.
        self._deliveries: WeakValueDictionary[bytes, Delivery] = WeakValueDictionary()
        self._requests = _Unchanged(gate, self._session, {}, lambda _: [])
        self._requests.deliveries = self._deliveries
        self._answers = self._delivered  # type: ignore[assignment]

    def note(self, item: SessionMessage) -> None:
        """Remembers for whom a request is made; called where it is made."""
        delivery = current_delivery()
        asked = item.message
        if delivery is not None and isinstance(asked, JSONRPCRequest) and asked.method in ("tools/call", *ASKING):
            self._deliveries[key_of(asked.id)] = delivery

    def _pass_on(self, message: dict[str, Any], line: Kept, asked: object) -> None:
        del message
        self._incoming.send(line, cast("RequestId | None", asked))

    def ended(self, error: UpstreamFailed) -> None:
        # First: whoever is told of it must not answer what the server had asked.
        self._incoming.server_ended()
        super().ended(error)

    def _delivered(self, pending: Pending, message: dict[str, Any], line: Kept) -> bytes | None:
        if pending.method == "initialize":
            self._agree(message)
        delivery = self._deliveries.pop(key_of(pending.id), None)
        whole = message.get("result")
        result = result_in(pending.method, whole)
        if delivery is None or not isinstance(result, dict | LazyJSON):
            return None

        def answered(answer: object) -> bytes:
            return written({**message, "result": filled(pending.method, whole, answer)})

        around = len(written(filled(pending.method, whole, 0))) - 1
        if not delivery.take(result, len(line) - len(answered(0)) + 1, around):
            return None
        return answered({**PLACEHOLDER, "isError": seen(result).get("isError") is True})

    def _agree(self, message: Mapping[str, Any]) -> None:
        result = message.get("result")
        if isinstance(result, dict) and isinstance(result.get("protocolVersion"), str):
            self._session.is_agreed, self._session.version = True, result["protocolVersion"]


class _Unchanged(Requests):
    """All requests are the server's own."""

    _session: Session
    deliveries: "WeakValueDictionary[bytes, Delivery]"

    def needs_tools(self, method: str, params: Mapping[str, Any]) -> bool:
        del method, params
        return False

    takes_long = needs_tools

    def __call__(self, request: dict[str, Any], line: Kept) -> Forwarded:
        del line
        params = request.get("params")
        params = params if isinstance(params, dict) else {}
        delivery = self.deliveries.get(key_of(request["id"]))
        meta = params.get("_meta")
        return Forwarded(
            Pending(
                request["method"],
                request["id"],
                version_of(params) or self._session.version,
                tool=str(params.get("name", "")) if request["method"] == "tools/call" else "",
                mode=_INLINE if delivery is None else delivery.mode,
                token=meta.get("progressToken") if isinstance(meta, dict) else None,
            )
        )
