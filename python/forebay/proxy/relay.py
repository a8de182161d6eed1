"""Between a client and a server: every message goes through as it came, but for those that a handle needs."""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import forebay
from forebay import _core
from forebay.errors import UpstreamFailed, UpstreamTimeout
from forebay.outputs.pipeline import HAS_RUN
from forebay.outputs.policy import Gate
from forebay.proxy.background import Work
from forebay.proxy.call_order import Turns
from forebay.proxy.internal_requests import OwnRequests, ServerRefused
from forebay.proxy.pending import Pending, PendingRequests, Preparation
from forebay.proxy.requests import Forwarded, Requests, refused
from forebay.proxy.responses import Answers
from forebay.proxy.server_requests import Questions
from forebay.proxy.session import Session
from forebay.wire.lazy_json import written
from forebay.wire.lines import Ends, Kept, Line, Unspooled, ends_of
from forebay.wire.messages import INTERNAL_ERROR, error_message, key_of, meta_of, read

__all__ = ["End", "Relay"]

_log = logging.getLogger("forebay")

_MOST_WAITING = 64
"""How many requests may be worked on at once: what comes then waits in its pipe, not in memory."""

_STORING = 4

_VIEW = 1024
"""How much is shown of what could not be kept."""

_Message = dict[str, Any]


class End(Protocol):
    """Where messages go: to the client, or to the server."""

    def send(self, line: Kept) -> None:
        """A message, whole."""


class Relay:
    """Takes what comes from either end, and sends on what the other is to have.

    `from_client` is called by one thread, `from_upstream` by as many as a server has streams; what takes long is done
    by others meanwhile.
    """

    def __init__(self, gate: Gate, client: End, upstream: End, *, call_timeout: float | None = None) -> None:
        self._gate, self._client, self._upstream = gate, client, upstream
        stamp = {"name": "forebay", "version": forebay.__version__}
        self._session = Session()
        self._requests = Requests(gate, self._session, stamp, self._all_tools)
        self._answers = Answers(gate, self._session, stamp)
        self._own = OwnRequests()
        self._questions = Questions()
        self._turns = Turns(_MOST_WAITING)
        # Two of them: who waits for a list must not keep it from coming in.
        self._work, self._storing = Work(most=_MOST_WAITING), Work(_STORING, most=_STORING)
        self.pending = PendingRequests(call_timeout)
        self.veiled: Callable[[str], str] = str
        """What of a server's words may be logged: it may repeat what it was given in confidence."""
        self.has_refused = threading.Event()
        """Whether someone was told that the server is gone."""

    def from_client(self, line: Line) -> None:
        """A message of the client."""
        if isinstance(line, Unspooled):
            _log.error("forebay: a message of %d bytes from the client is lost: %s", line.size, line.error)
            request_id = line.ends.request_id()
            if line.ends.is_request and request_id is not None:
                about = line.error.to_dict()["error"]
                self._client.send(error_message(request_id, INTERNAL_ERROR, str(line.error), about))
            return
        message = read(line)
        with self._answering_for(message):
            self._heard(message, line)

    @contextlib.contextmanager
    def _answering_for(self, message: Any) -> Iterator[None]:
        """A mistake of ours must not leave anyone waiting."""
        try:
            yield
        except Exception:
            _log.exception("forebay: a message of the client could not be handled")
            if isinstance(message, dict) and "id" in message:
                told = "the gateway failed; ask in another way"
                self._client.send(error_message(message["id"], INTERNAL_ERROR, told))

    def _heard(self, message: Any, line: Kept) -> None:
        if isinstance(message, list) and message and all(isinstance(inner, dict) for inner in message):
            for inner in message:
                self.from_client(written(inner))
            return
        if self._gate.capabilities.is_filter:
            if (refusal := refused(message)) is not None:
                self._client.send(refusal)
                return
            # As it was understood: what is read in another way by the server could be another call.
            line = written(message)
        if not isinstance(message, dict):
            self._to_upstream(line)
        elif "method" not in message:
            if (answer := self._questions.answered(message, line)) is not None:
                self._to_upstream(answer)
        elif not isinstance(message["method"], str):
            self._to_upstream(line)
        elif "id" in message:
            self._asked(message, line)
        else:
            self._notified(message, line)

    def _asked(self, message: _Message, line: Kept) -> None:
        params = message["params"] if isinstance(message.get("params"), dict) else {}
        self._session.heard(message["method"], params, line)
        name = params.get("name")
        is_call = message["method"] == "tools/call" and isinstance(name, str) and name not in self._gate.tools
        if self._requests.needs_tools(message["method"], params):
            self._later(message, line, lambda: self._learn(meta_of(params)), is_call=is_call)
        elif self._requests.takes_long(message["method"], params) or (is_call and self._turns):
            self._later(message, line, is_call=is_call)
        else:
            self._step(message, line)()

    def _later(self, message: _Message, line: Kept, *before: Callable[[], None], is_call: bool) -> None:
        """By another thread, so that what it takes keeps nobody: not even who cancels it. Calls stay in their order."""
        preparation = self.pending.prepare(message["id"])
        turn = self._turns.take() if is_call else None

        def go_on() -> None:
            step: Callable[[], None] | None = None
            with self._answering_for(message):
                step = self._step(message, line, preparation)

            def finish() -> None:
                try:
                    with self._answering_for(message):
                        if step is not None:
                            step()
                finally:
                    self.pending.prepared(preparation)

            if turn is None:
                finish()
            else:
                self._turns.ready(turn, finish)

        self._work.do(*before, go_on)

    def _step(self, message: _Message, line: Kept, preparation: Preparation | None = None) -> Callable[[], None]:
        """What is to be done about a request, once it is understood."""
        outcome = self._requests(message, line)
        if isinstance(outcome, Forwarded):
            return lambda: self._forward(outcome, line, preparation)

        def answer() -> None:
            if preparation is None or not preparation.is_cancelled:
                for told in outcome:
                    self._client.send(told)

        return answer

    def _forward(self, request: Forwarded, line: Kept, preparation: Preparation | None) -> None:
        if not self.pending.add(request.pending, preparation):
            return
        try:
            self._upstream.send(line if request.line is None else request.line)
        except UpstreamFailed as error:
            if self.pending.take(request.pending.id) is not None:
                self._client.send(self._requests.failed(request.pending, error))
                self.has_refused.set()

    def _notified(self, message: _Message, line: Kept) -> None:
        params = message.get("params")
        self._session.heard(message["method"], params, line)
        if message["method"] == "notifications/cancelled" and isinstance(params, dict):
            self.pending.cancel(params.get("requestId"))
        self._to_upstream(line)

    def _to_upstream(self, line: Kept) -> None:
        # What nobody waits for is nobody's to miss.
        with contextlib.suppress(UpstreamFailed):
            self._upstream.send(line)

    def from_upstream(self, line: Line, asked: object = None) -> bool:
        """A message of the server. One that came for a request can be the answer to that alone: was it?"""
        if isinstance(line, Unspooled):
            return self._lost(line, asked)
        message = read(line)
        try:
            return self._said(message, line, asked)
        except Exception:
            # A mistake of ours must not cost what the server has done.
            _log.exception("forebay: a message of the server goes on as it came")
            self._client.send(line)
            return True

    def _said(self, message: Any, line: Kept, asked: object) -> bool:
        if isinstance(message, list):
            # All of them, whichever is the answer.
            inner = [written(one) for one in message if isinstance(one, dict)]
            return sum(self.from_upstream(one, asked) for one in inner) > 0
        if not isinstance(message, dict):
            ends = ends_of(line)
            shown = self.veiled(ends.head[:_VIEW].decode(errors="replace"))
            _log.warning("forebay: the server wrote what is no message, and clients are spared it: %.200r", shown)
            self._misread(ends, asked)
            return False
        if "method" in message:
            self._told(message)
            self._pass_on(message, line, asked)
            return False
        if asked is not None and key_of(message.get("id")) != key_of(asked):
            _log.warning("forebay: the server answered one request with what is for another; clients are spared it")
            return False
        if not self._own.answered(message, line):
            self._answered(message, line)
        return True

    def _misread(self, ends: Ends, asked: object) -> None:
        """Whoever waits for what is whole but no JSON, such as an answer with NaN in it, would wait for ever."""
        request_id = ends.request_id()
        if request_id is None or (asked is not None and key_of(request_id) != key_of(asked)):
            return
        if not ends.is_request and ends.tail.rstrip().endswith(b"}"):
            told = "what the server answered is no JSON that can be read; it may have done what it was asked to"
            self.failed(request_id, UpstreamFailed(told))

    def _pass_on(self, message: _Message, line: Kept, asked: object) -> None:
        """What a server says or asks, on account of a request if it came by the stream of one."""
        del asked
        self._client.send(self._questions.said(message, line))

    def _told(self, message: _Message) -> None:
        params = message.get("params")
        match message["method"]:
            case "notifications/tools/list_changed":
                self._gate.has_learnt = False
            case "notifications/progress" if isinstance(params, dict):
                self.pending.progressed(params.get("progressToken"))

    def _answered(self, message: _Message, line: Kept) -> None:
        if self.pending.was_cancelled(message.get("id")):
            # Its client has forgotten it, and what is large is not worth storing for nobody.
            _log.debug("forebay: an answer that nobody waits for any more was dropped")
            return
        pending = self.pending.answer(message.get("id")) or self._unexpected(message)

        def answer() -> None:
            try:
                self._client.send(self._made(pending, message, line))
            finally:
                self.pending.answered(pending)

        if len(line) > pending.mode.output_inline_limit_bytes:
            self._storing.do(answer)
        else:
            answer()

    def _made(self, pending: Pending, message: _Message, line: Kept) -> Kept:
        try:
            made = self._answers(pending, message, line)
        except Exception:
            # A mistake of ours must not cost what the server has done.
            _log.exception("forebay: the answer to %.64s goes on as it came", pending.method)
            return line
        return line if made is None else made

    def _unexpected(self, message: _Message) -> Pending:
        """Of an answer to nothing that was asked, or of a second one: it is the client's, but no way around us."""
        mode, _ = self._gate.mode_of("", {})
        result = message.get("result")
        method = "tools/list" if isinstance(result, dict) and "tools" in result else "tools/call"
        return Pending(method, message.get("id"), self._session.version, mode=mode)

    def _lost(self, line: Unspooled, asked: object) -> bool:
        """Whoever waits for a message that there was no room for is told, and shown its start."""
        _log.error("forebay: a message of %d bytes from the server is lost: %s", line.size, line.error)
        if asked is None and line.ends.is_request:
            return False
        request_id = line.ends.request_id() if asked is None else asked
        self._own.failed(UpstreamFailed(str(line.error)), request_id)
        pending = self.pending.take(request_id)
        if pending is not None:
            told: dict[str, Any] = {"size_bytes": line.size}
            if pending.method == "tools/call":
                told["note"] = HAS_RUN
            if not self._gate.store.options.redactions:
                told["preview"] = _core.preview(line.ends.head, _VIEW)
            self._client.send(self._requests.failed(pending, line.error, **told))
        return True

    def _learn(self, meta: Mapping[str, Any]) -> None:
        """Asks the server for its tools: before that a call of one of ours could be of one of its own."""
        try:
            self._gate.learn(self._all_tools(meta))
        except Exception as error:
            # It can still be called, unless it has to be known what for.
            _log.warning("forebay: the server does not say what tools it has: %s", error)

    def _all_tools(self, meta: Mapping[str, Any]) -> list[Any]:
        return self._own.all_tools(self._upstream.send, meta)

    def greet(self, send: Callable[[Kept], None]) -> None:
        """Tells a server that was started in place of another what that one was told. Raises `UpstreamFailed`."""
        for number, (request_id, line) in enumerate(self._session.again(self._own.new_id)):
            send(line)
            if request_id is None:
                continue
            try:
                self._own.wait(request_id)
            except ServerRefused:
                # The one before it may have refused the same; without the handshake alone there is no server.
                if number == 0:
                    raise

    @property
    def agreed_version(self) -> str | None:
        """Of the protocol, once there was a handshake."""
        return self._session.version if self._session.is_agreed else None

    def awaits(self, request_id: object) -> bool:
        """Whether anyone still waits for the answer to a request."""
        return self.pending.awaits(request_id) or self._own.is_waiting(request_id)

    def failed(self, request_id: object, error: UpstreamFailed) -> None:
        """A request will not be answered: whoever waits for it is told."""
        self._own.failed(error, request_id)
        pending = self.pending.take(request_id)
        if pending is not None:
            self._client.send(self._requests.failed(pending, error))

    def ended(self, error: UpstreamFailed) -> None:
        """The server is gone: whoever waits for it is told."""
        self._own.failed(error)
        # All that it leaves, before anyone hears of it: what they ask then is for the next one.
        questions, left = self._questions.ended(), self.pending.take_all()
        for cancelled in questions:
            self._client.send(cancelled)
        for pending in left:
            self._client.send(self._requests.failed(pending, error))
            self.has_refused.set()

    def check(self, seconds: float) -> None:
        """Answers in place of a server that takes too long, and tells it."""
        for pending in self.pending.late():
            error = UpstreamTimeout(f"the server did not answer within {seconds:g} s; ask for less, or allow it longer")
            self._client.send(self._requests.failed(pending, error))
            params = {"requestId": pending.id, "reason": "timeout"}
            cancelled = written({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
            self._to_upstream(cancelled)

    def finish(self, seconds: float) -> bool:
        """Waits for what is under way; `False` if that takes longer."""
        return self.pending.wait(seconds) and self._work.finish(seconds) and self._storing.finish(seconds)
