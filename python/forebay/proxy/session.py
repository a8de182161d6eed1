"""What a server was told by its client, so that one that is started in its place can be told the same."""

import contextlib
import dataclasses
import itertools
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, InvalidStateError
from typing import Any

from forebay.errors import UpstreamFailed, UpstreamTimeout
from forebay.outputs.modes import Mode
from forebay.wire.framing import Message
from forebay.wire.messages import dump, id_key, parse_fully, parse_lazy
from forebay.wire.protocol import next_cursor

__all__ = [
    "InternalRequests",
    "PendingRequest",
    "PendingRequests",
    "PreparingRequest",
    "ServerRequests",
    "Session",
    "UpstreamRejected",
]


@dataclasses.dataclass(eq=False, slots=True, weakref_slot=True)
class Session:
    """The handshake and what lasts after it. The newest version of the protocol has neither."""

    version: str = "2025-11-25"
    """What was agreed on."""
    initialize: Message | None = None
    """The client's handshake."""
    is_negotiated: bool = False
    """Whether the server has answered it."""
    initialized: Message | None = None
    """What the client ended the handshake with."""
    log_level: Message | None = None
    """From which level on the client is told what the server logs."""
    subscriptions: dict[str, Message] = dataclasses.field(default_factory=dict)
    """What the client wants to be told of."""

    def record(self, method: str, params: Any, line: Message) -> None:
        """Remembers a message of the client, if it lasts."""
        uri = params.get("uri") if isinstance(params, dict) else None
        match method:
            case "initialize":
                self.initialize, self.is_negotiated, self.initialized = line, False, None
            case "notifications/initialized":
                self.initialized = line
            case "logging/setLevel":
                self.log_level = line
            case "resources/subscribe" if isinstance(uri, str):
                self.subscriptions[uri] = line
            case "resources/unsubscribe" if isinstance(uri, str):
                self.subscriptions.pop(uri, None)

    def replay(self, new_id: Callable[[], str]) -> Iterator[tuple[str | None, Message]]:
        """What to tell a new server, in this order: each with the id of the answer to wait for."""
        if self.initialize is None or not self.is_negotiated:
            return
        yield _with_id(self.initialize, new_id())
        if self.initialized is not None:
            yield None, self.initialized
            for line in (*([self.log_level] if self.log_level else ()), *self.subscriptions.values()):
                yield _with_id(line, new_id())


def _with_id(line: Message, request_id: str) -> tuple[str, bytes]:
    """The client's request as one of ours: the client has its answer already."""
    return request_id, dump({**parse_lazy(line), "id": request_id})


_MAX_CANCELLED = 1024

_LISTEN_METHOD = "subscriptions/listen"


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class PendingRequest:
    """What is known of a request when its answer comes."""

    method: str
    id: object
    version: str
    cursor: object = None
    """Which page of a list it asks for."""
    tool: str = ""
    mode: Mode = dataclasses.field(default_factory=Mode)
    progress_token: object = None
    """By which progress of it is reported."""

    @property
    def is_subscription(self) -> bool:
        """Whether it is answered only when the client wants no more of it: nobody waits for that."""
        return self.method == _LISTEN_METHOD


@dataclasses.dataclass(eq=False, slots=True)
class PreparingRequest:
    """Of a request that has come, and is yet to be understood."""

    key: bytes
    is_cancelled: bool = False


@dataclasses.dataclass(slots=True)
class _Entry:
    pending: PendingRequest
    deadline: float | None


class PendingRequests:
    """By id, until they are answered, cancelled, or too late. Of several with one id the oldest is answered first."""

    def __init__(self, timeout: float | None) -> None:
        self._timeout = timeout
        self._preparing: list[PreparingRequest] = []
        self._in_flight: dict[bytes, list[_Entry]] = {}
        self._answering: set[PendingRequest] = set()
        self._cancelled: OrderedDict[bytes, None] = OrderedDict()
        self._changed = threading.Condition()

    def begin_preparing(self, request_id: object) -> PreparingRequest:
        """A request is worked on before it is sent: it can be cancelled, and whoever waits for all waits for it."""
        preparation = PreparingRequest(id_key(request_id))
        with self._changed:
            self._preparing.append(preparation)
        return preparation

    def end_preparing(self, preparation: PreparingRequest) -> None:
        with self._changed:
            if preparation in self._preparing:
                self._preparing.remove(preparation)
            self._changed.notify_all()

    def add(self, pending: PendingRequest, preparation: PreparingRequest | None = None) -> bool:
        """Whether anyone still wants it: it is to be sent then."""
        key = id_key(pending.id)
        with self._changed:
            if preparation is not None and preparation.is_cancelled:
                return False
            self._in_flight.setdefault(key, []).append(_Entry(pending, self._new_deadline(pending)))
            self._cancelled.pop(key, None)
            return True

    def _new_deadline(self, pending: PendingRequest) -> float | None:
        return time.monotonic() + self._timeout if self._timeout and not pending.is_subscription else None

    def is_pending(self, request_id: object) -> bool:
        """Whether anyone waits for its answer."""
        with self._changed:
            return id_key(request_id) in self._in_flight

    def take(self, request_id: object) -> PendingRequest | None:
        """The request that an answer is for; it waits no more."""
        with self._changed:
            return self._take(id_key(request_id))

    def _take(self, key: bytes) -> PendingRequest | None:
        waiting = self._in_flight.get(key)
        if waiting is None:
            return None
        found = waiting.pop(0).pending
        if not waiting:
            del self._in_flight[key]
        self._changed.notify_all()
        return found

    def start_response(self, request_id: object) -> PendingRequest | None:
        """The same; that its answer has gone out is told by `answered`."""
        with self._changed:
            found = self._take(id_key(request_id))
            if found is not None:
                self._answering.add(found)
            return found

    def finish_response(self, pending: PendingRequest) -> None:
        with self._changed:
            self._answering.discard(pending)
            self._changed.notify_all()

    def wait_settled(self, request_id: object) -> None:
        """Returns when a request waits no more, and its answer has gone out."""
        key = id_key(request_id)

        def is_settled() -> bool:
            return key not in self._in_flight and not any(id_key(one.id) == key for one in self._answering)

        with self._changed:
            self._changed.wait_for(is_settled)

    def cancel(self, request_id: object) -> None:
        """Nobody waits for its answer any more."""
        key = id_key(request_id)
        with self._changed:
            if self._take(key) is not None:
                self._remember_cancelled(key)
            elif (found := next((one for one in self._preparing if one.key == key), None)) is not None:
                found.is_cancelled = True
                self._preparing.remove(found)

    def _remember_cancelled(self, key: bytes) -> None:
        self._cancelled[key] = None
        if len(self._cancelled) > _MAX_CANCELLED:
            self._cancelled.popitem(last=False)

    def was_cancelled(self, request_id: object) -> bool:
        with self._changed:
            return id_key(request_id) in self._cancelled

    def extend_deadline(self, token: object) -> None:
        """Whoever still reports progress is not late."""
        if not self._timeout:
            return
        key = id_key(token)
        with self._changed:
            for waiting in self._entries():
                if id_key(waiting.pending.progress_token) == key:
                    waiting.deadline = self._new_deadline(waiting.pending)

    def _entries(self) -> Iterator[_Entry]:
        return (waiting for several in self._in_flight.values() for waiting in several)

    def take_expired(self) -> list[PendingRequest]:
        """Those that waited too long; they wait no more."""
        now = time.monotonic()
        with self._changed:
            late = [one.pending for one in self._entries() if one.deadline is not None and one.deadline <= now]
            for pending in late:
                key = id_key(pending.id)
                self._take(key)
                self._remember_cancelled(key)
        return late

    def take_all(self) -> list[PendingRequest]:
        with self._changed:
            found = [waiting.pending for waiting in self._entries()]
            self._in_flight.clear()
            self._changed.notify_all()
        return found

    def wait_idle(self, seconds: float) -> bool:
        """Until nothing waits any more that will be answered; `False` if that takes longer."""
        with self._changed:
            return self._changed.wait_for(self._is_idle, seconds)

    def _is_idle(self) -> bool:
        return (
            not self._preparing
            and not self._answering
            and all(waiting.pending.is_subscription for waiting in self._entries())
        )


_TIMEOUT_SECONDS = 10.0
"""How many seconds a server has to answer."""


_MAX_PAGES = 1000
"""How many pages of tools are looked through."""


class UpstreamRejected(UpstreamFailed):
    """The server is there, and says no."""


class InternalRequests:
    """By ids that no client has."""

    def __init__(self) -> None:
        self._id_prefix = f"forebay-{secrets.token_hex(8)}"
        self._counter = itertools.count(1)
        self._futures: dict[str, Future[dict[str, Any]]] = {}

    def new_id(self) -> str:
        """The id of a request whose answer is to be waited for."""
        request_id = f"{self._id_prefix}-{next(self._counter)}"
        self._futures[request_id] = Future()
        return request_id

    def resolve(self, message: dict[str, Any], line: Message) -> bool:
        """Whether an answer is to one of these: then it goes nowhere else."""
        request_id = message.get("id")
        future = self._futures.get(request_id) if isinstance(request_id, str) else None
        if future is None:
            return isinstance(request_id, str) and request_id.startswith(self._id_prefix)
        # Two threads may bring two answers; the first one counts.
        with contextlib.suppress(InvalidStateError):
            future.set_result(parse_fully(line))
        return True

    def is_waiting(self, request_id: object) -> bool:
        """Whether the answer to one of these is yet to come."""
        future = self._futures.get(request_id) if isinstance(request_id, str) else None
        return future is not None and not future.done()

    def fail(self, error: UpstreamFailed, *request_ids: object) -> None:
        """Nothing of what was asked will be answered, or not these."""
        for request_id, future in list(self._futures.items()):
            if not request_ids or request_id in request_ids:
                with contextlib.suppress(InvalidStateError):
                    future.set_exception(error)

    def list_tools(self, send: Callable[[Message], None], meta: Mapping[str, Any]) -> list[Any]:
        """What the server lists, of all pages."""
        tools: list[Any] = []
        cursors: list[Any] = [None]
        # Its progress is nobody's.
        meta = {key: value for key, value in meta.items() if key != "progressToken"}
        # Some servers give the same page for every cursor.
        while len(cursors) <= _MAX_PAGES and cursors.count(cursors[-1]) == 1:
            cursor = {} if cursors[-1] is None else {"cursor": cursors[-1]}
            request_id = self.new_id()
            send(self.dump_request(request_id, "tools/list", {**({"_meta": meta} if meta else {}), **cursor}))
            page = self.wait_result(request_id)
            listed = page.get("tools")
            tools += listed if isinstance(listed, list) else []
            cursors.append(next_cursor(page))
        if cursors[-1] is not None and cursors.count(cursors[-1]) == 1:
            raise UpstreamFailed(f"the server lists its tools in more than {_MAX_PAGES} pages")
        return tools

    def wait_result(self, request_id: str) -> dict[str, Any]:
        """The result of a request; an error of the server is one of ours."""
        try:
            message = self._futures[request_id].result(_TIMEOUT_SECONDS)
        except TimeoutError:
            raise UpstreamTimeout(f"the server did not answer within {_TIMEOUT_SECONDS:g} s") from None
        finally:
            del self._futures[request_id]
        result = message.get("result")
        if not isinstance(result, dict):
            raise UpstreamRejected("the server refused what it was asked")
        return result

    @staticmethod
    def dump_request(request_id: str, method: str, params: Mapping[str, Any]) -> bytes:
        """As it is sent."""
        return dump({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})


_MAX_ABANDONED = 1024

_CANCELLED_METHOD = "notifications/cancelled"


class ServerRequests:
    """Servers count from the same number: one that is started again asks by ids that the one before it has used."""

    def __init__(self) -> None:
        self._id_prefix = f"forebay-{secrets.token_hex(8)}"
        self._counter = itertools.count(1)
        self._lock = threading.Lock()
        self._open: dict[bytes, tuple[object, object]] = {}
        """The id that the client has, and the one that the server has, by the key of the client's."""
        self._abandoned: dict[bytes, None] = {}
        """What a server asked that is no more, and that may still be answered."""

    def translate_message(self, message: dict[str, Any], line: Message) -> Message:
        """What a server says as the client is to have it: as it came, unless its id is that of a dead question."""
        with self._lock:
            if message["method"] == _CANCELLED_METHOD:
                return self._translate_cancel(message, line)
            if "id" not in message:
                return line
            theirs = ours = message["id"]
            if id_key(theirs) in self._abandoned:
                ours = f"{self._id_prefix}-{next(self._counter)}"
            self._open[id_key(ours)] = ours, theirs
        return line if ours is theirs else dump({**message, "id": ours})

    def _translate_cancel(self, message: dict[str, Any], line: Message) -> Message:
        params = message["params"] if isinstance(message.get("params"), dict) else {}
        key = id_key(params.get("requestId"))
        for ours, theirs in self._open.values():
            if id_key(theirs) == key:
                del self._open[id_key(ours)]
                return line if ours is theirs else dump({**message, "params": {**params, "requestId": ours}})
        return line

    def translate_response(self, message: dict[str, Any], line: Message) -> Message | None:
        """What a client answers as the server is to have it; `None` if who asked is no more."""
        key = id_key(message.get("id"))
        with self._lock:
            if key in self._abandoned:
                del self._abandoned[key]
                return None
            ours, theirs = self._open.pop(key, (None, None))
        return line if ours is theirs else dump({**message, "id": theirs})

    def cancel_all(self) -> list[bytes]:
        """The server is gone: that nobody waits for the client's answers any more."""
        with self._lock:
            asked, self._open = self._open, {}
            self._abandoned |= dict.fromkeys(asked)
            for key in list(self._abandoned)[:-_MAX_ABANDONED]:
                del self._abandoned[key]
        return [_cancel_notification(ours) for ours, _ in asked.values()]


def _cancel_notification(request_id: object) -> bytes:
    params = {"requestId": request_id, "reason": "the server has ended"}
    return dump({"jsonrpc": "2.0", "method": _CANCELLED_METHOD, "params": params})
