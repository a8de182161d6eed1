"""Messages from one MCP server, on their way from the thread that reads them to the event loop."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from forebay.errors import InvalidArgument, UpstreamFailed
from forebay.hub.exchanges import Exchange, Exchanges
from forebay.proxy.inbox import Inbox, measure
from forebay.proxy.workers import ResponseWorkers
from forebay.wire.errors import RequestFailed
from forebay.wire.framing import Line, LostMessage, Message, read_head_tail
from forebay.wire.messages import INTERNAL_ERROR, dump_line, find_response_id, parse, split_batch
from forebay.wire.protocol import LEGACY_VERSION

if TYPE_CHECKING:
    from forebay.hub.connection import ServerConnection

__all__ = ["ServerReceiver"]

_log = logging.getLogger("forebay")

_MAX_EXCERPT_CHARS = 200


class ServerReceiver:
    """What the upstream of a connection calls (see `Receiver`): in its own thread on stdio, over HTTP in the loop."""

    def __init__(self, connection: "ServerConnection", exchanges: Exchanges, workers: ResponseWorkers) -> None:
        self._connection = connection
        self._exchanges = exchanges
        self._workers = workers
        self._inbox = Inbox()
        self.redact: Callable[[str], str] = str
        self.redact_line: Callable[[Line], Line] = lambda line: line
        self.negotiated_version: str | None = None
        self.call_when_settled = exchanges.call_when_settled

    def post(self, callback: Callable[[], object]) -> None:
        """Call a function in the event loop, after the messages that arrived before."""
        self._inbox.put(0, callback)

    def close(self) -> None:
        self._inbox.close()

    def receive_from_server(self, line: Line, stream_request_id: object = None, *, is_in_batch: bool = False) -> bool:
        if isinstance(line, LostMessage):
            return self._report_lost(line, stream_request_id)
        message = parse(line)
        if isinstance(message, dict):
            return self._on_message(message, line, stream_request_id)
        try:
            # A batch has no batches in it.
            batch = None if is_in_batch else split_batch(message)
        except InvalidArgument as reason:
            error = UpstreamFailed(f"the server answered with too many messages at once: {reason}")
            _log.warning("forebay: %s: %s", self._connection.name, error)
            self.post(partial(self._exchanges.fail_all, error, self._exchanges.list_unanswered()))
            return stream_request_id is not None
        if batch is None:
            self._report_unreadable(line, stream_request_id)
            return False
        lines = (self.redact_line(dump_line(inner)) for inner in batch)
        # `sum`, not `any`, so that every message is handled.
        return sum(self.receive_from_server(inner, stream_request_id, is_in_batch=True) for inner in lines) > 0

    def _on_message(self, message: dict[str, Any], raw: Message, stream_request_id: object) -> bool:
        if "method" in message:
            handle = partial(self._connection.on_server_message, message, raw, stream_request_id)
            self._inbox.put(measure(raw), handle)
            return False
        exchange = self._exchanges.find(message.get("id"))
        if exchange is None or exchange.is_answered or stream_request_id not in (None, exchange.id):
            _log.debug("forebay: a response of %s that nobody waits for is dropped", self._connection.name)
            return False
        if message.get("jsonrpc") != "2.0" or ("result" not in message and "error" not in message):
            error = RequestFailed(INTERNAL_ERROR, "the server sent a response that is not JSON-RPC 2.0")
            self.post(partial(self._exchanges.fail, exchange, error))
            return True
        if exchange.method == "initialize" and isinstance(message.get("result"), dict):
            version = message["result"].get("protocolVersion")
            self.negotiated_version = version if isinstance(version, str) else LEGACY_VERSION
        # From now on it does not fail, although the server may end before a large response is stored.
        exchange.is_answered = True
        job = partial(self._finish, exchange, message, raw)
        if len(raw) <= exchange.inline_limit:
            self._inbox.put(measure(raw), job)
        else:
            self._inbox.run_blocking(partial(self._workers.submit_response, exchange.method, len(raw), job))
        return True

    def _finish(self, exchange: Exchange, message: dict[str, Any], raw: Message) -> None:
        if exchange not in self._exchanges:
            # The result of a cancelled request must not be stored.
            return
        try:
            result = exchange.finish(message, raw)
        except Exception as error:
            self.post(partial(self._exchanges.fail, exchange, error))
        else:
            self.post(partial(self._exchanges.resolve, exchange, result))

    def _report_lost(self, lost_message: LostMessage, stream_request_id: object) -> bool:
        size, error = lost_message.size, lost_message.error
        _log.error("forebay: a message of %d bytes from %s is lost: %s", size, self._connection.name, error)
        if stream_request_id is None and lost_message.head_tail.is_request:
            return False
        request_id = lost_message.head_tail.find_id() if stream_request_id is None else stream_request_id
        exchange = self._exchanges.find(request_id)
        if exchange is not None:
            self.post(partial(self._exchanges.fail, exchange, error))
        return True

    def _report_unreadable(self, raw: Message, stream_request_id: object) -> None:
        """Fail the request whose response is complete but not JSON, for example because it contains NaN."""
        head_tail = read_head_tail(raw)
        excerpt = self.redact(head_tail.head.decode(errors="replace"))[:_MAX_EXCERPT_CHARS]
        _log.warning("forebay: %s sent a line that is not a JSON-RPC message: %r", self._connection.name, excerpt)
        exchange = self._exchanges.find(find_response_id(raw, head_tail))
        if exchange is None or (stream_request_id is not None and exchange.id != stream_request_id):
            return
        if head_tail.tail.rstrip().endswith(b"}"):
            text = "the server's response is not valid JSON; the call may have been carried out"
            self.post(partial(self._exchanges.fail, exchange, UpstreamFailed(text)))

    def is_pending(self, request_id: object) -> bool:
        return self._exchanges.find(request_id) is not None

    def fail_request(self, request_id: object, error: UpstreamFailed) -> None:
        exchange = self._exchanges.find(request_id)
        if exchange is not None and not exchange.is_answered:
            self.post(partial(self._exchanges.fail, exchange, error))

    def cancel_server_requests(self, reason: str) -> None:
        del reason
        self.post(self._connection.questions.cancel_all)

    def on_upstream_end(self, error: UpstreamFailed) -> None:
        # List them now: requests that are sent after this are for the restarted server.
        exchanges = self._exchanges.list_unanswered()
        self.post(self._connection.questions.cancel_all)
        self.post(partial(self._exchanges.fail_all, error, exchanges))

    def replay_session(self, send: Callable[[Message], None]) -> None:
        asyncio.run_coroutine_threadsafe(self._connection.replay_session(send), self._connection.loop).result()
