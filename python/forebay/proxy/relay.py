"""The relay between a client and a server: it forwards messages, and lets handlers answer or change some of them."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import forebay
from forebay import _core
from forebay.errors import CapabilityDisabled, InvalidArgument, UpstreamFailed
from forebay.outputs.capabilities import record_denial
from forebay.outputs.pipeline import HAS_RUN_NOTE
from forebay.outputs.policy import OutputPolicy
from forebay.proxy.list_pages import parse_tools
from forebay.proxy.refusals import find_refusal
from forebay.proxy.request_handler import ForwardedRequest, RequestHandler
from forebay.proxy.response_handler import ResponseHandler
from forebay.proxy.session import (
    CANCELLED_METHOD,
    InternalRequests,
    PendingRequest,
    PendingRequests,
    PreparingRequest,
    ServerRequests,
    Session,
    UpstreamRejected,
    make_call_timeout,
    make_cancellation,
)
from forebay.proxy.workers import CallOrder, Capacity, ResponseWorkers, WorkerPool
from forebay.wire.framing import HeadTail, Line, LostMessage, Message, count_memory_bytes, read_head_tail
from forebay.wire.lazy_json import LazyJSON, as_lazy, dump, dump_size
from forebay.wire.messages import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    PARSE_ERROR,
    dump_line,
    find_response_id,
    get_meta,
    make_error_message,
    make_id_key,
    parse,
    split_batch,
)

__all__ = ["Relay", "Sender"]

_log = logging.getLogger("forebay")

_MAX_PREPARING = 64
"""Maximum number of requests prepared at once. Further messages wait in the pipe, not in memory."""

_MAX_PREPARING_BYTES = 16 << 20
"""Maximum bytes in memory of these requests."""

_MAX_ID_BYTES = 1024
"""Maximum bytes of the id of a request, because the id is kept until the response."""

_MAX_CANCELLATION_BYTES = 4096
"""Maximum bytes of a cancellation that need not wait for the messages before it."""

_MAX_EXCERPT_BYTES = 1024
"""Bytes of a lost or unreadable message that an error shows."""

_PLAIN_ID_TYPES = (int, str, float)

_MessageDict = dict[str, Any]


class Sender(Protocol):
    """Destination of messages: the client or the server."""

    def send(self, raw: Message, /) -> None:
        """Send one complete message."""


class Relay:
    """Relay that forwards messages between one client and one server.

    One thread calls `receive_from_client`, and one thread per server stream calls `receive_from_server`. Slow work
    runs in worker threads.

    Over HTTP, each request can have a stream of its own. `stream_request_id` is the id of the request whose stream
    carried a message, else `None`. The only response allowed on such a stream is the one to that request.

    `wait_ready` is called before each message of the client, and blocks while the upstream has too much to send.
    `flush` is called before the relay waits for its workers, and writes the messages that the senders hold back.
    """

    def __init__(
        self,
        policy: OutputPolicy,
        client: Sender,
        upstream: Sender,
        *,
        call_timeout: float | None = None,
        wait_ready: Callable[[], None] = lambda: None,
        flush: Callable[[], None] = lambda: None,
    ) -> None:
        self._policy, self._client, self._upstream = policy, client, upstream
        self._wait_ready, self._flush = wait_ready, flush
        server_info = {"name": "forebay", "version": forebay.__version__}
        self._session = Session()
        self._request_handler = RequestHandler(policy, self._session, server_info, self._list_tools)
        self._response_handler = ResponseHandler(policy, self._session, server_info)
        self._internal_requests = InternalRequests()
        self._server_requests = ServerRequests()
        self._call_order = CallOrder()
        # Two pools: a worker that waits for the server's tool list must not delay storing that list.
        self._workers = WorkerPool()
        self._capacity = Capacity(_MAX_PREPARING, _MAX_PREPARING_BYTES)
        self._store_workers = ResponseWorkers()
        self._listing_lock = threading.Lock()
        self._listing_count = 0
        """How often the server's tools were requested."""
        self.pending = PendingRequests(call_timeout)
        self.redact: Callable[[str], str] = str
        """Removes credentials from server output before it is logged."""
        self.redact_line: Callable[[Line], Line] = lambda line: line
        """Removes credentials from an error that comes in a batch."""
        self.has_reported_failure = threading.Event()
        """Set when the client has received an error because the server is down."""

    @property
    def _has_redactions(self) -> bool:
        return bool(self._policy.store.options.redactions)

    def receive_from_client(self, line: Line) -> None:
        """Handle a message from the client."""
        if isinstance(line, LostMessage):
            self._refuse_lost(line)
            return
        message = parse(line)
        try:
            self._on_client_message(message, line)
        except Exception:
            self._report_failure(message)

    def _refuse_lost(self, lost_message: LostMessage) -> None:
        """Answer a request of the client that was lost."""
        size, error = lost_message.size, lost_message.error
        _log.error("forebay: a message of %d bytes from the client is lost: %s", size, error)
        request_id = lost_message.head_tail.find_id()
        if lost_message.head_tail.is_request and request_id is not None:
            self._client.send(make_error_message(request_id, INTERNAL_ERROR, str(error), error.to_dict()["error"]))

    @contextlib.contextmanager
    def _report_errors(self, message: Any) -> Iterator[None]:
        """Answer a request with an error if handling it fails, so that the client does not wait forever."""
        try:
            yield
        except Exception:
            self._report_failure(message)

    def _report_failure(self, message: Any) -> None:
        _log.exception("forebay: a message of the client could not be handled")
        if isinstance(message, dict) and "id" in message:
            text = "the gateway failed; its log says why; try other arguments"
            self._client.send(make_error_message(message["id"], INTERNAL_ERROR, text))

    def _on_client_message(self, message: Any, raw: Message) -> None:
        try:
            batch = split_batch(message)
        except InvalidArgument as error:
            self._client.send(make_error_message(None, INVALID_REQUEST, str(error), error.to_dict()["error"]))
            return
        if batch and all(map(_is_object, batch)):
            for inner in batch:
                self.receive_from_client(dump_line(inner))
            return
        if isinstance(message, dict) and "method" in message and not _shorten_id(message):
            self._client.send(_make_long_id_error())
            return
        if not self._wait_upstream(message, raw):
            return
        if self._policy.capabilities.is_active:
            # Serialize the message again: the server might parse the client's bytes differently and see another call.
            line = dump_line(message)
            if isinstance(line, LostMessage):
                self._refuse_lost(line)
                return
            if (refusal := find_refusal(message, line, self.pending.is_in_use)) is not None:
                self._refuse(message, refusal)
                return
            raw = line
        if not isinstance(message, dict):
            self._send_upstream(raw)
        elif "method" not in message:
            if (response := self._server_requests.translate_response(message, raw)) is not None:
                self._send_upstream(response)
        elif not isinstance(message["method"], str):
            self._send_upstream(raw)
        elif "id" in message:
            self._on_request(message, raw)
        else:
            self._on_client_notification(message, raw)

    def _wait_upstream(self, message: Any, raw: Message) -> bool:
        """Wait until the upstream takes another message; refuse the message and return `False` if that is too long."""
        if self._is_useful_cancellation(message, raw):
            # It ends what the other messages wait for.
            return True
        try:
            self._wait_ready()
        except UpstreamFailed as error:
            _log.warning("forebay: a message of the client was refused: %s", error)
            if isinstance(message, dict) and "method" in message and "id" in message:
                data = error.to_dict()["error"]
                self._client.send(make_error_message(message["id"], INTERNAL_ERROR, str(error), data))
            return False
        return True

    def _is_useful_cancellation(self, message: Any, raw: Message) -> bool:
        """Return whether a message is small and cancels a pending request: there can only be few such messages."""
        if not isinstance(message, dict) or message.get("method") != CANCELLED_METHOD:
            return False
        params = message.get("params")
        if not isinstance(params, dict) or "requestId" not in params:
            return False
        return len(raw) <= _MAX_CANCELLATION_BYTES and self.pending.is_pending(params["requestId"])

    def _refuse(self, message: Any, refusal: CapabilityDisabled) -> None:
        """Record a message that the server must not get, and answer it, unless it is a notification."""
        record_denial(self._policy.store.journal, refusal, self._session.principal)
        _log.warning("forebay: a message of the client was refused: %s", refusal)
        if not isinstance(message, dict):
            self._client.send(make_error_message(None, PARSE_ERROR, str(refusal)))
        elif "id" in message:
            self._client.send(make_error_message(message["id"], INVALID_REQUEST, str(refusal)))

    def _on_request(self, message: _MessageDict, raw: Message) -> None:
        params = message["params"] if isinstance(message.get("params"), dict) else {}
        self._session.record(message["method"], params, raw)
        name = params.get("name")
        is_call = message["method"] == "tools/call" and isinstance(name, str) and name not in self._policy.tools.names
        if self._request_handler.needs_tool_list(message["method"], params):
            listing_count = self._listing_count
            self._run_in_background(message, raw, lambda: self._learn_tools(raw, listing_count), is_call=is_call)
        elif self._request_handler.is_slow(message["method"], params) or (is_call and self._call_order):
            self._run_in_background(message, raw, is_call=is_call)
        else:
            self._finish_request(self._request_handler(message, raw), raw)

    def _run_in_background(
        self, message: _MessageDict, raw: Message, *first_steps: Callable[[], None], is_call: bool
    ) -> None:
        """Handle a request in a worker thread, so that other requests and a cancellation of this one need not wait.

        `first_steps` run first, in the same thread. Calls are forwarded in the order in which they arrived.
        """
        memory_bytes, request = count_memory_bytes(raw), {"id": message["id"]}
        self._flush()
        self._capacity.acquire(memory_bytes)
        preparing_request = self.pending.register_preparing(request["id"])
        slot = self._call_order.reserve() if is_call else None

        def handle() -> None:
            outcome: list[bytes] | ForwardedRequest | None = None
            with self._report_errors(request):
                # Parsed again, because a parsed message takes more memory than its bytes while it waits.
                outcome = self._request_handler({**parse(raw), **request}, raw)

            def finish() -> None:
                try:
                    with self._report_errors(request):
                        if outcome is not None:
                            self._finish_request(outcome, raw, preparing_request)
                finally:
                    self.pending.unregister_preparing(preparing_request)
                    self._capacity.release(memory_bytes)

            if slot is None:
                finish()
            else:
                self._call_order.run_in_order(slot, finish)

        self._workers.submit(*first_steps, handle)

    def _finish_request(
        self,
        outcome: list[bytes] | ForwardedRequest,
        raw: Message,
        preparing_request: PreparingRequest | None = None,
    ) -> None:
        """Forward or answer a request that was handled."""
        if isinstance(outcome, ForwardedRequest):
            self._forward(outcome, raw, preparing_request)
        elif preparing_request is None or not preparing_request.is_cancelled:
            for response in outcome:
                self._client.send(response)

    def _forward(self, request: ForwardedRequest, raw: Message, preparing_request: PreparingRequest | None) -> None:
        try:
            if not self.pending.add(request.pending, preparing_request):
                return
        except UpstreamFailed as error:
            self._client.send(self._request_handler.make_error_response(request.pending, error))
            return
        try:
            self._upstream.send(raw if request.replacement is None else request.replacement)
        except UpstreamFailed as error:
            if self.pending.take(request.pending.id) is not None:
                self._client.send(self._request_handler.make_error_response(request.pending, error))
                self.has_reported_failure.set()

    def _on_client_notification(self, message: _MessageDict, raw: Message) -> None:
        params = message.get("params")
        self._session.record(message["method"], params, raw)
        if message["method"] == CANCELLED_METHOD and isinstance(params, dict):
            self.pending.cancel(params.get("requestId"))
        self._send_upstream(raw)

    def _send_upstream(self, raw: Message) -> None:
        """Send a message that needs no response; if the server is down, drop it."""
        with contextlib.suppress(UpstreamFailed):
            self._upstream.send(raw)

    def receive_from_server(self, line: Line, stream_request_id: object = None) -> bool:
        """Handle a message from the server; return whether it was a response that the client or forebay expected."""
        if isinstance(line, LostMessage):
            return self._report_lost(line, stream_request_id)
        message = parse(line)
        try:
            return self._on_server_message(message, line, stream_request_id)
        except Exception:
            # The call has already run, so the client gets its result even without our changes.
            _log.exception("forebay: a message of the server goes on as it came")
            self._client.send(line)
            return True

    def _on_server_message(self, message: Any, raw: Message, stream_request_id: object) -> bool:
        try:
            batch = split_batch(message)
        except InvalidArgument as error:
            return self._refuse_server_batch(error, stream_request_id)
        if batch is not None:
            lines = (self.redact_line(dump_line(inner)) for inner in batch if _is_object(inner))
            # `sum`, not `any`, so that every message is handled.
            return sum(self.receive_from_server(line, stream_request_id) for line in lines) > 0
        if not isinstance(message, dict):
            head_tail = read_head_tail(raw)
            # It may be a result that is not JSON, which cannot be redacted.
            head = b"" if self._has_redactions else head_tail.head[:_MAX_EXCERPT_BYTES]
            excerpt = self.redact(head.decode(errors="replace"))
            _log.warning("forebay: a line of the server is not a JSON-RPC message, and is dropped: %.200r", excerpt)
            self._report_unreadable(raw, head_tail, stream_request_id)
            return False
        if "method" in message:
            if not _shorten_id(message):
                self._send_upstream(_make_long_id_error())
                return False
            self._on_server_notification(message)
            self._forward_to_client(message, raw, stream_request_id)
            return False
        if stream_request_id is not None and make_id_key(message.get("id")) != make_id_key(stream_request_id):
            _log.warning("forebay: the server answered one request with what is for another; clients are spared it")
            return False
        if not self._internal_requests.accept_response(message, raw):
            self._on_response(message, raw)
        return True

    def _refuse_server_batch(self, reason: InvalidArgument, stream_request_id: object) -> bool:
        """Fail the requests that a batch with too many messages may answer."""
        error = UpstreamFailed(f"the server answered with too many messages at once: {reason}")
        _log.warning("forebay: %s", error)
        if stream_request_id is not None:
            self.fail_request(stream_request_id, error)
            return True
        self._internal_requests.fail(error)
        for pending in self.pending.abandon_all():
            self._client.send(self._request_handler.make_error_response(pending, error))
        return False

    def _report_unreadable(self, raw: Message, head_tail: HeadTail, stream_request_id: object) -> None:
        """Fail the request whose response is complete but not JSON, for example because it contains NaN."""
        request_id = find_response_id(raw, head_tail)
        if request_id is None or (
            stream_request_id is not None and make_id_key(request_id) != make_id_key(stream_request_id)
        ):
            return
        if head_tail.tail.rstrip().endswith(b"}"):
            text = "the server's response is not valid JSON; the call may have been carried out"
            self.fail_request(request_id, UpstreamFailed(text))

    def _forward_to_client(self, message: _MessageDict, raw: Message, stream_request_id: object) -> None:
        """Send a request or notification of the server to the client."""
        del stream_request_id
        try:
            forwarded = self._server_requests.translate_message(message, raw)
        except InvalidArgument as error:
            _log.warning("forebay: a request of the server was refused: %s", error)
            self._send_upstream(make_error_message(message["id"], INTERNAL_ERROR, str(error)))
        else:
            self._client.send(forwarded)

    def _on_server_notification(self, message: _MessageDict) -> None:
        params = message.get("params")
        match message["method"]:
            case "notifications/tools/list_changed":
                self._policy.knows_tools = False
            case "notifications/progress" if isinstance(params, dict):
                self.pending.extend_deadline(params.get("progressToken"))

    def _on_response(self, message: _MessageDict, raw: Message) -> None:
        if self.pending.was_cancelled(message.get("id")):
            # The client ignores the response to a cancelled request. Drop it, so that a large result is not stored.
            _log.debug("forebay: an answer that nobody waits for any more was dropped")
            return
        pending = self.pending.start_response(message.get("id"))
        if pending is None:
            if self._policy.capabilities.is_active:
                # It could be a list of tools that were never filtered, or teach the filter other tools.
                _log.warning("forebay: the server answered what nobody has asked; clients are spared it")
                return
            pending = self._make_unmatched_request(message)
        if len(raw) > pending.mode.output_inline_limit_bytes:
            self._flush()
            self._store_workers.submit_response(pending.method, len(raw), lambda: self._respond(pending, message, raw))
        else:
            self._respond(pending, message, raw)

    def _respond(self, pending: PendingRequest, message: _MessageDict, raw: Message) -> None:
        try:
            self._client.send(self._build_response(pending, message, raw))
        finally:
            self.pending.finish_response(pending)

    def _build_response(self, pending: PendingRequest, message: _MessageDict, raw: Message) -> Message:
        try:
            replacement = self._response_handler(pending, message, raw)
        except Exception:
            # The call has already run, so the client gets its result even without our changes.
            return self._request_handler.report_unhandled_response(pending) or raw
        return raw if replacement is None else replacement

    def _make_unmatched_request(self, message: _MessageDict) -> PendingRequest:
        """Return a substitute request for a response that matches no request, so that the pipeline still handles it."""
        mode, _ = self._policy.resolve_mode("", {})
        result = message.get("result")
        method = "tools/list" if isinstance(result, dict) and "tools" in result else "tools/call"
        return PendingRequest(method, message.get("id"), self._session.version, mode=mode)

    def _report_lost(self, lost_message: LostMessage, stream_request_id: object) -> bool:
        """Fail the request whose response was lost; the error shows the start of that response."""
        _log.error("forebay: a message of %d bytes from the server is lost: %s", lost_message.size, lost_message.error)
        if stream_request_id is None and lost_message.head_tail.is_request:
            return False
        request_id = lost_message.head_tail.find_id() if stream_request_id is None else stream_request_id
        self._internal_requests.fail(UpstreamFailed(str(lost_message.error)), request_id)
        pending = self.pending.take(request_id)
        if pending is not None:
            details: dict[str, Any] = {"size_bytes": lost_message.size}
            if pending.method == "tools/call":
                details["note"] = HAS_RUN_NOTE
            head = lost_message.head_tail.head
            text = _core.unescape(head).decode(errors="replace")
            if not self._has_redactions and self.redact(text) == text:
                details["preview"] = _core.preview(head, _MAX_EXCERPT_BYTES)
            self._client.send(self._request_handler.make_error_response(pending, lost_message.error, **details))
        return True

    def _learn_tools(self, raw: Message, listing_count: int) -> None:
        """Request the server's tool list, to distinguish calls to its tools from calls to forebay's own.

        `raw` is the request that needs the list, and `listing_count` the number of lists at the time of that request.
        """
        with self._listing_lock:
            if self._listing_count != listing_count:
                # Another request needed the list, too.
                return
            try:
                meta = get_meta(parse(raw).get("params"))
                self._policy.learn_tools(parse_tools(self._list_tools(meta)))
            except Exception as error:
                # Without the list, calls still work, unless the capability filter needs to know the called tool.
                _log.warning("forebay: the server does not say what tools it has: %s", error)
            self._listing_count += 1

    def _list_tools(self, meta: Mapping[str, Any]) -> list[LazyJSON]:
        return self._internal_requests.list_tools(self._upstream.send, meta)

    def replay_session(self, send: Callable[[Message], None]) -> None:
        """Repeat the handshake and subscriptions to a restarted server. Raises `UpstreamFailed`."""
        for index, (request_id, raw) in enumerate(self._session.replay(self._internal_requests.new_id)):
            send(raw)
            if request_id is None:
                continue
            try:
                self._internal_requests.wait_response(request_id)
            except UpstreamRejected:
                # Only the handshake must succeed. The other messages may have been rejected before the restart, too.
                if index == 0:
                    raise

    @property
    def negotiated_version(self) -> str | None:
        """Protocol version of the handshake; `None` without one."""
        return self._session.version if self._session.is_negotiated else None

    def is_pending(self, request_id: object) -> bool:
        """Return whether the response to a request is still expected."""
        return self.pending.is_pending(request_id) or self._internal_requests.is_waiting(request_id)

    def call_when_settled(self, request_id: object, callback: Callable[[], None]) -> None:
        """Call `callback`, in another thread, when a pending request is answered, cancelled or failed."""
        pending = self.pending.find(request_id)
        if pending is None:
            callback()
            return

        def wait() -> None:
            self.pending.wait_settled(pending)
            callback()

        threading.Thread(target=wait, daemon=True).start()

    def fail_request(self, request_id: object, error: UpstreamFailed) -> None:
        """Answer a client request with an error, or fail an internal request."""
        self._internal_requests.fail(error, request_id)
        pending = self.pending.take(request_id)
        if pending is not None:
            self._client.send(self._request_handler.make_error_response(pending, error))

    def on_unsent(self, raw: Message, error: UpstreamFailed) -> None:
        """Fail the request in a message that was not sent after all."""
        message = parse(raw)
        if isinstance(message, dict) and "id" in message and "method" in message:
            self.fail_request(message["id"], error)
            self.has_reported_failure.set()

    def on_upstream_end(self, error: UpstreamFailed) -> None:
        """Fail all requests to a server that has ended, and cancel its requests to the client."""
        self._internal_requests.fail(error)
        # Take all requests before sending anything: requests that arrive afterwards are for the next server.
        cancellations = self._server_requests.cancel_all("the server has ended")
        requests = self.pending.take_all()
        for cancellation in cancellations:
            self._client.send(cancellation)
        for pending in requests:
            self._client.send(self._request_handler.make_error_response(pending, error))
            self.has_reported_failure.set()

    def cancel_server_requests(self, reason: str) -> None:
        """Cancel the requests of the server to the client, whose answers nobody would receive."""
        for cancellation in self._server_requests.cancel_all(reason):
            self._client.send(cancellation)

    def expire_requests(self, timeout: float) -> None:
        """Fail the requests that have waited longer than the timeout in seconds, and cancel them at the server."""
        for pending in self.pending.take_expired():
            error = make_call_timeout(pending.tool or pending.method, timeout)
            self._client.send(self._request_handler.make_error_response(pending, error))
            self._send_upstream(make_cancellation(pending.id, "timeout"))

    def wait_idle(self, seconds: float) -> bool:
        """Wait until all requests are answered; return `False` on timeout."""
        deadline = time.monotonic() + seconds
        waits = (self.pending.wait_idle, self._workers.wait_idle, self._store_workers.wait_idle)
        return all(wait(deadline - time.monotonic()) for wait in waits)


def _shorten_id(message: _MessageDict) -> bool:
    """Copy an unparsed id out of its message, so that it does not keep the message; return `False` if it is too long.

    The id is kept until the response.
    """
    request_id = message.get("id")
    if request_id is None or isinstance(request_id, _PLAIN_ID_TYPES):
        return True
    if dump_size(request_id) > _MAX_ID_BYTES:
        return False
    message["id"] = as_lazy(dump(request_id))
    return True


def _make_long_id_error() -> bytes:
    # Without the id, which may be too long for memory.
    text = f"the id of a request has at most {_MAX_ID_BYTES} bytes; use a number or a short text"
    return make_error_message(None, INVALID_REQUEST, text)


def _is_object(message: object) -> bool:
    return isinstance(message, dict) or (isinstance(message, LazyJSON) and message.is_object)
