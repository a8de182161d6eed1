"""Between a client and a server: every message goes through as it came, but for those that a handle needs."""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import forebay
from forebay import _core
from forebay.errors import UpstreamFailed, UpstreamTimeout
from forebay.outputs.pipeline import HAS_RUN_NOTE
from forebay.outputs.policy import OutputPolicy
from forebay.proxy.intercept import ForwardedRequest, RequestHandler, ResponseHandler, find_refusal
from forebay.proxy.session import (
    InternalRequests,
    PendingRequest,
    PendingRequests,
    PreparingRequest,
    ServerRequests,
    Session,
    UpstreamRejected,
)
from forebay.proxy.workers import CallOrder, WorkerPool
from forebay.wire.framing import HeadTail, Line, LostMessage, Message, read_head_tail
from forebay.wire.messages import INTERNAL_ERROR, dump, error_message, get_meta, id_key, parse

__all__ = ["Relay", "Sender"]

_log = logging.getLogger("forebay")

_MAX_IN_FLIGHT = 64
"""How many requests may be worked on at once: what comes then waits in its pipe, not in memory."""

_STORE_WORKERS = 4

_EXCERPT_BYTES = 1024
"""How much is shown of what could not be kept."""

_MessageDict = dict[str, Any]


class Sender(Protocol):
    """Where messages go: to the client, or to the server."""

    def send(self, line: Message) -> None:
        """A message, whole."""


class Relay:
    """Takes what comes from either end, and sends on what the other is to have.

    `from_client` is called by one thread, `from_upstream` by as many as a server has streams; what takes long is done
    by others meanwhile.
    """

    def __init__(
        self, policy: OutputPolicy, client: Sender, upstream: Sender, *, call_timeout: float | None = None
    ) -> None:
        self._policy, self._client, self._upstream = policy, client, upstream
        stamp = {"name": "forebay", "version": forebay.__version__}
        self._session = Session()
        self._request_handler = RequestHandler(policy, self._session, stamp, self._list_tools)
        self._response_handler = ResponseHandler(policy, self._session, stamp)
        self._internal = InternalRequests()
        self._server_requests = ServerRequests()
        self._call_order = CallOrder(_MAX_IN_FLIGHT)
        # Two of them: who waits for a list must not keep it from coming in.
        self._workers, self._store_workers = (
            WorkerPool(max_jobs=_MAX_IN_FLIGHT),
            WorkerPool(_STORE_WORKERS, max_jobs=_STORE_WORKERS),
        )
        self.pending = PendingRequests(call_timeout)
        self.redact: Callable[[str], str] = str
        """What of a server's words may be logged: it may repeat what it was given in confidence."""
        self.has_reported_failure = threading.Event()
        """Whether someone was told that the server is gone."""

    def receive_from_client(self, line: Line) -> None:
        """A message of the client."""
        if isinstance(line, LostMessage):
            _log.error("forebay: a message of %d bytes from the client is lost: %s", line.size, line.error)
            request_id = line.head_tail.find_id()
            if line.head_tail.is_request and request_id is not None:
                about = line.error.to_dict()["error"]
                self._client.send(error_message(request_id, INTERNAL_ERROR, str(line.error), about))
            return
        message = parse(line)
        with self._reporting_errors(message):
            self._on_client_message(message, line)

    @contextlib.contextmanager
    def _reporting_errors(self, message: Any) -> Iterator[None]:
        """A mistake of ours must not leave anyone waiting."""
        try:
            yield
        except Exception:
            _log.exception("forebay: a message of the client could not be handled")
            if isinstance(message, dict) and "id" in message:
                told = "the gateway failed; ask in another way"
                self._client.send(error_message(message["id"], INTERNAL_ERROR, told))

    def _on_client_message(self, message: Any, line: Message) -> None:
        if isinstance(message, list) and message and all(isinstance(inner, dict) for inner in message):
            for inner in message:
                self.receive_from_client(dump(inner))
            return
        if self._policy.capabilities.is_active:
            if (refusal := find_refusal(message)) is not None:
                self._client.send(refusal)
                return
            # As it was understood: what is read in another way by the server could be another call.
            line = dump(message)
        if not isinstance(message, dict):
            self._send_upstream(line)
        elif "method" not in message:
            if (answer := self._server_requests.translate_response(message, line)) is not None:
                self._send_upstream(answer)
        elif not isinstance(message["method"], str):
            self._send_upstream(line)
        elif "id" in message:
            self._on_request(message, line)
        else:
            self._on_client_notification(message, line)

    def _on_request(self, message: _MessageDict, line: Message) -> None:
        params = message["params"] if isinstance(message.get("params"), dict) else {}
        self._session.record(message["method"], params, line)
        name = params.get("name")
        is_call = message["method"] == "tools/call" and isinstance(name, str) and name not in self._policy.tools
        if self._request_handler.needs_tool_list(message["method"], params):
            self._run_in_background(message, line, lambda: self._learn_tools(get_meta(params)), is_call=is_call)
        elif self._request_handler.is_slow(message["method"], params) or (is_call and self._call_order):
            self._run_in_background(message, line, is_call=is_call)
        else:
            self._prepare_action(message, line)()

    def _run_in_background(
        self, message: _MessageDict, line: Message, *before: Callable[[], None], is_call: bool
    ) -> None:
        """By another thread, so that what it takes keeps nobody: not even who cancels it. Calls stay in their order."""
        preparation = self.pending.begin_preparing(message["id"])
        turn = self._call_order.reserve() if is_call else None

        def go_on() -> None:
            step: Callable[[], None] | None = None
            with self._reporting_errors(message):
                step = self._prepare_action(message, line, preparation)

            def finish() -> None:
                try:
                    with self._reporting_errors(message):
                        if step is not None:
                            step()
                finally:
                    self.pending.end_preparing(preparation)

            if turn is None:
                finish()
            else:
                self._call_order.run_in_order(turn, finish)

        self._workers.submit(*before, go_on)

    def _prepare_action(
        self, message: _MessageDict, line: Message, preparation: PreparingRequest | None = None
    ) -> Callable[[], None]:
        """What is to be done about a request, once it is understood."""
        outcome = self._request_handler(message, line)
        if isinstance(outcome, ForwardedRequest):
            return lambda: self._forward(outcome, line, preparation)

        def answer() -> None:
            if preparation is None or not preparation.is_cancelled:
                for told in outcome:
                    self._client.send(told)

        return answer

    def _forward(self, request: ForwardedRequest, line: Message, preparation: PreparingRequest | None) -> None:
        if not self.pending.add(request.pending, preparation):
            return
        try:
            self._upstream.send(line if request.replacement is None else request.replacement)
        except UpstreamFailed as error:
            if self.pending.take(request.pending.id) is not None:
                self._client.send(self._request_handler.error_response(request.pending, error))
                self.has_reported_failure.set()

    def _on_client_notification(self, message: _MessageDict, line: Message) -> None:
        params = message.get("params")
        self._session.record(message["method"], params, line)
        if message["method"] == "notifications/cancelled" and isinstance(params, dict):
            self.pending.cancel(params.get("requestId"))
        self._send_upstream(line)

    def _send_upstream(self, line: Message) -> None:
        # What nobody waits for is nobody's to miss.
        with contextlib.suppress(UpstreamFailed):
            self._upstream.send(line)

    def receive_from_server(self, line: Line, asked: object = None) -> bool:
        """A message of the server. One that came for a request can be the answer to that alone: was it?"""
        if isinstance(line, LostMessage):
            return self._report_lost(line, asked)
        message = parse(line)
        try:
            return self._on_server_message(message, line, asked)
        except Exception:
            # A mistake of ours must not cost what the server has done.
            _log.exception("forebay: a message of the server goes on as it came")
            self._client.send(line)
            return True

    def _on_server_message(self, message: Any, line: Message, asked: object) -> bool:
        if isinstance(message, list):
            # All of them, whichever is the answer.
            inner = [dump(one) for one in message if isinstance(one, dict)]
            return sum(self.receive_from_server(one, asked) for one in inner) > 0
        if not isinstance(message, dict):
            ends = read_head_tail(line)
            shown = self.redact(ends.head[:_EXCERPT_BYTES].decode(errors="replace"))
            _log.warning("forebay: the server wrote what is no message, and clients are spared it: %.200r", shown)
            self._report_unreadable(ends, asked)
            return False
        if "method" in message:
            self._on_server_notification(message)
            self._forward_to_client(message, line, asked)
            return False
        if asked is not None and id_key(message.get("id")) != id_key(asked):
            _log.warning("forebay: the server answered one request with what is for another; clients are spared it")
            return False
        if not self._internal.resolve(message, line):
            self._on_response(message, line)
        return True

    def _report_unreadable(self, ends: HeadTail, asked: object) -> None:
        """Whoever waits for what is whole but no JSON, such as an answer with NaN in it, would wait for ever."""
        request_id = ends.find_id()
        if request_id is None or (asked is not None and id_key(request_id) != id_key(asked)):
            return
        if not ends.is_request and ends.tail.rstrip().endswith(b"}"):
            told = "what the server answered is no JSON that can be read; it may have done what it was asked to"
            self.fail_request(request_id, UpstreamFailed(told))

    def _forward_to_client(self, message: _MessageDict, line: Message, asked: object) -> None:
        """What a server says or asks, on account of a request if it came by the stream of one."""
        del asked
        self._client.send(self._server_requests.translate_message(message, line))

    def _on_server_notification(self, message: _MessageDict) -> None:
        params = message.get("params")
        match message["method"]:
            case "notifications/tools/list_changed":
                self._policy.knows_tools = False
            case "notifications/progress" if isinstance(params, dict):
                self.pending.extend_deadline(params.get("progressToken"))

    def _on_response(self, message: _MessageDict, line: Message) -> None:
        if self.pending.was_cancelled(message.get("id")):
            # Its client has forgotten it, and what is large is not worth storing for nobody.
            _log.debug("forebay: an answer that nobody waits for any more was dropped")
            return
        pending = self.pending.start_response(message.get("id")) or self._unexpected_request(message)

        def answer() -> None:
            try:
                self._client.send(self._build_response(pending, message, line))
            finally:
                self.pending.finish_response(pending)

        if len(line) > pending.mode.output_inline_limit_bytes:
            self._store_workers.submit(answer)
        else:
            answer()

    def _build_response(self, pending: PendingRequest, message: _MessageDict, line: Message) -> Message:
        try:
            made = self._response_handler(pending, message, line)
        except Exception:
            # A mistake of ours must not cost what the server has done.
            _log.exception("forebay: the answer to %.64s goes on as it came", pending.method)
            return line
        return line if made is None else made

    def _unexpected_request(self, message: _MessageDict) -> PendingRequest:
        """Of an answer to nothing that was asked, or of a second one: it is the client's, but no way around us."""
        mode, _ = self._policy.resolve_mode("", {})
        result = message.get("result")
        method = "tools/list" if isinstance(result, dict) and "tools" in result else "tools/call"
        return PendingRequest(method, message.get("id"), self._session.version, mode=mode)

    def _report_lost(self, line: LostMessage, asked: object) -> bool:
        """Whoever waits for a message that there was no room for is told, and shown its start."""
        _log.error("forebay: a message of %d bytes from the server is lost: %s", line.size, line.error)
        if asked is None and line.head_tail.is_request:
            return False
        request_id = line.head_tail.find_id() if asked is None else asked
        self._internal.fail(UpstreamFailed(str(line.error)), request_id)
        pending = self.pending.take(request_id)
        if pending is not None:
            told: dict[str, Any] = {"size_bytes": line.size}
            if pending.method == "tools/call":
                told["note"] = HAS_RUN_NOTE
            if not self._policy.store.options.redactions:
                told["preview"] = _core.preview(line.head_tail.head, _EXCERPT_BYTES)
            self._client.send(self._request_handler.error_response(pending, line.error, **told))
        return True

    def _learn_tools(self, meta: Mapping[str, Any]) -> None:
        """Asks the server for its tools: before that a call of one of ours could be of one of its own."""
        try:
            self._policy.learn_tools(self._list_tools(meta))
        except Exception as error:
            # It can still be called, unless it has to be known what for.
            _log.warning("forebay: the server does not say what tools it has: %s", error)

    def _list_tools(self, meta: Mapping[str, Any]) -> list[Any]:
        return self._internal.list_tools(self._upstream.send, meta)

    def replay_session(self, send: Callable[[Message], None]) -> None:
        """Tells a server that was started in place of another what that one was told. Raises `UpstreamFailed`."""
        for number, (request_id, line) in enumerate(self._session.replay(self._internal.new_id)):
            send(line)
            if request_id is None:
                continue
            try:
                self._internal.wait_result(request_id)
            except UpstreamRejected:
                # The one before it may have refused the same; without the handshake alone there is no server.
                if number == 0:
                    raise

    @property
    def negotiated_version(self) -> str | None:
        """Of the protocol, once there was a handshake."""
        return self._session.version if self._session.is_negotiated else None

    def is_pending(self, request_id: object) -> bool:
        """Whether anyone still waits for the answer to a request."""
        return self.pending.is_pending(request_id) or self._internal.is_waiting(request_id)

    def fail_request(self, request_id: object, error: UpstreamFailed) -> None:
        """A request will not be answered: whoever waits for it is told."""
        self._internal.fail(error, request_id)
        pending = self.pending.take(request_id)
        if pending is not None:
            self._client.send(self._request_handler.error_response(pending, error))

    def on_upstream_end(self, error: UpstreamFailed) -> None:
        """The server is gone: whoever waits for it is told."""
        self._internal.fail(error)
        # All that it leaves, before anyone hears of it: what they ask then is for the next one.
        questions, left = self._server_requests.cancel_all(), self.pending.take_all()
        for cancelled in questions:
            self._client.send(cancelled)
        for pending in left:
            self._client.send(self._request_handler.error_response(pending, error))
            self.has_reported_failure.set()

    def expire_requests(self, seconds: float) -> None:
        """Answers in place of a server that takes too long, and tells it."""
        for pending in self.pending.take_expired():
            error = UpstreamTimeout(f"the server did not answer within {seconds:g} s; ask for less, or allow it longer")
            self._client.send(self._request_handler.error_response(pending, error))
            params = {"requestId": pending.id, "reason": "timeout"}
            cancelled = dump({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
            self._send_upstream(cancelled)

    def wait_idle(self, seconds: float) -> bool:
        """Waits for what is under way; `False` if that takes longer."""
        return (
            self.pending.wait_idle(seconds)
            and self._workers.wait_idle(seconds)
            and self._store_workers.wait_idle(seconds)
        )
