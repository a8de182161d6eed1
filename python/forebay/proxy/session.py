"""State of the session between one client and one server: the handshake, and the requests in both directions."""

import contextlib
import dataclasses
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, InvalidStateError
from typing import Any

from forebay.errors import InvalidArgument, UpstreamFailed, UpstreamTimeout
from forebay.outputs.app.resource import declares_apps
from forebay.outputs.clients import Client, find_client
from forebay.outputs.modes import Mode
from forebay.outputs.tasks import NO_OWNER, TaskOwners
from forebay.proxy.list_pages import ToolPages
from forebay.wire.framing import Message
from forebay.wire.lazy_json import LazyJSON, dump
from forebay.wire.messages import dump_message, make_id_key, make_optional_key, parse
from forebay.wire.protocol import CLIENT_CAPABILITIES_KEY, LEGACY_VERSION, get_client_name

__all__ = [
    "CANCELLED_METHOD",
    "InternalRequests",
    "PendingRequest",
    "PendingRequests",
    "PreparingRequest",
    "ServerRequests",
    "Session",
    "UpstreamRejected",
    "make_call_timeout",
    "make_cancellation",
]

CANCELLED_METHOD = "notifications/cancelled"

_LISTEN_METHOD = "subscriptions/listen"

_MAX_CANCELLED_KEYS = 1024
"""Maximum number of cancelled requests to remember, to drop their late responses."""

_MAX_PENDING_REQUESTS = 4096
"""Maximum number of requests that wait for the response of the server, and likewise of the client."""

_MAX_ABANDONED_KEYS = 1024
"""Maximum number of unanswered requests of ended servers to remember, so that late responses to them are dropped."""

_MAX_SUBSCRIPTIONS = 1024
"""Maximum number of subscriptions that are repeated to a restarted server."""

_MAX_SUBSCRIBE_BYTES = 16 << 10
"""Maximum size of a request to subscribe that is kept."""

_INTERNAL_TIMEOUT_SECONDS = 10.0
"""How long a server may take to respond to a request of forebay itself."""


@dataclasses.dataclass(eq=False, slots=True, weakref_slot=True)
class Session:
    """The client of a session, and its handshake, log level and subscriptions, kept to repeat them to a new server.

    Since `MODERN_VERSION` there is no handshake to repeat.
    """

    version: str = LEGACY_VERSION
    """Negotiated protocol version."""
    initialize_request: Message | None = None
    """Request that starts the handshake."""
    is_negotiated: bool = False
    """Whether the server has accepted the handshake."""
    initialized_notification: Message | None = None
    """Notification that ends the handshake."""
    log_level_request: Message | None = None
    """Last `logging/setLevel` request."""
    client: Client | None = None
    """The client of the handshake, if it is a known one."""
    shows_apps: bool = False
    """Whether the client of the handshake shows apps."""
    subscribe_requests: dict[str, Message] = dataclasses.field(default_factory=dict)
    """`resources/subscribe` requests by URI: the newest ones, without those that are too large to keep."""
    principal: str | None = None
    """The principal that owns the stored results."""
    handle_length: int | None = None
    """Length of new handles; `None` for that of the output policy."""
    is_public: bool = False
    """Whether several anonymous clients may call this server. Then only unguessable handles protect their outputs."""
    is_stateless: bool = False
    """Whether this stands for all requests of a principal that belong to no session."""
    task_owners: TaskOwners = NO_OWNER
    """Owners of the tasks that the client starts, and may ask for."""

    @property
    def connection(self) -> "Session | None":
        """The session itself as the key of what belongs to one connection; `None` if there is no connection."""
        return None if self.is_stateless else self

    def set_client(self, params: Any) -> None:
        """Record who the client is and what it shows, from the params of `initialize`."""
        params = params if isinstance(params, dict) else {}
        self.client = find_client(get_client_name(params.get("clientInfo")))
        self.shows_apps = declares_apps(params.get("capabilities"))

    def accepts_apps(self, meta: Mapping[str, Any]) -> bool:
        """Return whether the client shows apps. `meta` is the `_meta` of its request."""
        return self.shows_apps or declares_apps(meta.get(CLIENT_CAPABILITIES_KEY))

    def record(self, method: str, params: Any, raw: Message) -> None:
        """Keep a client message that a restarted server needs."""
        uri = params.get("uri") if isinstance(params, dict) else None
        match method:
            case "initialize":
                self.initialize_request, self.is_negotiated, self.initialized_notification = raw, False, None
                self.set_client(params)
            case "notifications/initialized":
                self.initialized_notification = raw
            case "logging/setLevel":
                self.log_level_request = raw
            case "resources/subscribe" if isinstance(uri, str) and len(raw) <= _MAX_SUBSCRIBE_BYTES:
                self.subscribe_requests[uri] = raw
                if len(self.subscribe_requests) > _MAX_SUBSCRIPTIONS:
                    del self.subscribe_requests[next(iter(self.subscribe_requests))]
            case "resources/unsubscribe" if isinstance(uri, str):
                self.subscribe_requests.pop(uri, None)

    def replay(self, new_id: Callable[[], str]) -> Iterator[tuple[str | None, Message]]:
        """Yield the messages for a new server in order, each with the id of the response to wait for, if any."""
        if self.initialize_request is None or not self.is_negotiated:
            return
        yield _renew_id(self.initialize_request, new_id())
        if self.initialized_notification is not None:
            yield None, self.initialized_notification
            log_level = [self.log_level_request] if self.log_level_request else []
            for raw in (*log_level, *self.subscribe_requests.values()):
                yield _renew_id(raw, new_id())


def _renew_id(raw: Message, request_id: str) -> tuple[str, Message]:
    """Return `request_id` and the request with this new id. The client already has a response to the old id."""
    return request_id, dump_message({**parse(raw), "id": request_id})


_DEFAULT_MODE = Mode()


@dataclasses.dataclass(eq=False, slots=True)
class PendingRequest:
    """Client request that waits for its response, with the properties that decide how the response is handled."""

    method: str
    id: object
    version: str
    page_key: bytes | None = None
    """The cursor of the requested page of a list as `make_optional_key` returns it, or `None` for the first page."""
    tool: str = ""
    mode: Mode = _DEFAULT_MODE
    progress_key: bytes | None = None
    """The progress token as `make_optional_key` returns it. The token itself could keep the whole message in memory."""
    client: Client | None = None
    shows_apps: bool = False
    """Whether the client shows apps."""

    @property
    def is_subscription(self) -> bool:
        """Whether the response comes only when the subscription ends, so that no timeout applies."""
        return self.method == _LISTEN_METHOD


@dataclasses.dataclass(eq=False, slots=True)
class PreparingRequest:
    """Client request that is handled in the background and has not been forwarded yet."""

    key: bytes
    is_cancelled: bool = False


@dataclasses.dataclass(slots=True)
class _InFlightRequest:
    """Pending request and the monotonic time at which it expires."""

    pending: PendingRequest
    deadline: float | None


class _RecentKeys:
    """Set that keeps only the `limit` keys that were added last."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._keys: dict[bytes, None] = {}

    def __bool__(self) -> bool:
        return bool(self._keys)

    def __contains__(self, key: bytes) -> bool:
        return key in self._keys

    def add(self, keys: Iterable[bytes]) -> None:
        self._keys.update(dict.fromkeys(keys))
        while len(self._keys) > self._limit:
            del self._keys[next(iter(self._keys))]

    def discard(self, key: bytes) -> None:
        self._keys.pop(key, None)


class PendingRequests:
    """Client requests by id, until they are answered, cancelled or expired; equal ids are answered in order."""

    def __init__(self, timeout: float | None) -> None:
        self._timeout = timeout
        self._preparing_requests: list[PreparingRequest] = []
        self._in_flight: dict[bytes, list[_InFlightRequest]] = {}
        self._in_flight_count = 0
        self._answering_requests: set[PendingRequest] = set()
        self._cancelled_keys = _RecentKeys(_MAX_CANCELLED_KEYS)
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._waiter_count = 0

    def register_preparing(self, request_id: object) -> PreparingRequest:
        """Register a request that is not forwarded yet, so that it can be cancelled and waited for."""
        preparing_request = PreparingRequest(make_id_key(request_id))
        with self._lock:
            self._preparing_requests.append(preparing_request)
        return preparing_request

    def unregister_preparing(self, preparing_request: PreparingRequest) -> None:
        with self._lock:
            if preparing_request in self._preparing_requests:
                self._preparing_requests.remove(preparing_request)
            self._notify()

    def add(self, pending: PendingRequest, preparing_request: PreparingRequest | None = None) -> bool:
        """Register a request before it is forwarded; return `False` if it was cancelled while it was prepared.

        Raises `UpstreamFailed` if too many requests are pending.
        """
        key = make_id_key(pending.id)
        with self._lock:
            if preparing_request is not None and preparing_request.is_cancelled:
                return False
            if self._in_flight_count >= _MAX_PENDING_REQUESTS:
                raise UpstreamFailed(f"the server has not answered {_MAX_PENDING_REQUESTS:,} requests yet; retry later")
            self._in_flight.setdefault(key, []).append(_InFlightRequest(pending, self._new_deadline(pending)))
            self._in_flight_count += 1
            self._cancelled_keys.discard(key)
            return True

    def _new_deadline(self, pending: PendingRequest) -> float | None:
        return time.monotonic() + self._timeout if self._timeout and not pending.is_subscription else None

    def _notify(self) -> None:
        # Usually nobody waits, and a condition takes longer to find that out.
        if self._waiter_count:
            self._changed.notify_all()

    def _wait_for(self, predicate: Callable[[], bool], seconds: float | None = None) -> bool:
        with self._lock:
            self._waiter_count += 1
            try:
                return self._changed.wait_for(predicate, seconds)
            finally:
                self._waiter_count -= 1

    def is_pending(self, request_id: object) -> bool:
        """Return whether a request waits for its response."""
        with self._lock:
            return make_id_key(request_id) in self._in_flight

    def take(self, request_id: object) -> PendingRequest | None:
        """Remove and return the request with this id."""
        with self._lock:
            return self._take_by_key(make_id_key(request_id))

    def _take_by_key(self, key: bytes) -> PendingRequest | None:
        entries = self._in_flight.get(key)
        if entries is None:
            return None
        pending = entries.pop(0).pending
        self._in_flight_count -= 1
        if not entries:
            del self._in_flight[key]
        self._notify()
        return pending

    def start_response(self, request_id: object) -> PendingRequest | None:
        """Return the pending request and mark it as being answered, or return `None` if it is not pending.

        Call `finish_response` afterwards.
        """
        with self._lock:
            pending = self._take_by_key(make_id_key(request_id))
            if pending is not None:
                self._answering_requests.add(pending)
            return pending

    def finish_response(self, pending: PendingRequest) -> None:
        with self._lock:
            self._answering_requests.discard(pending)
            self._notify()

    def is_in_use(self, request_id: object) -> bool:
        """Return whether a response with this id may still come, perhaps to a request that was cancelled."""
        key = make_id_key(request_id)
        with self._lock:
            return (
                key in self._in_flight
                or key in self._cancelled_keys
                or any(preparing_request.key == key for preparing_request in self._preparing_requests)
            )

    def find(self, request_id: object) -> PendingRequest | None:
        """Return the request with this id that is answered next, or `None`."""
        with self._lock:
            entries = self._in_flight.get(make_id_key(request_id))
            return None if entries is None else entries[0].pending

    def wait_settled(self, pending: PendingRequest) -> None:
        """Wait until a request is no longer pending and its response has been sent."""
        self._wait_for(
            lambda: (
                pending not in self._answering_requests
                and all(entry.pending is not pending for entry in self._iter_in_flight())
            )
        )

    def cancel(self, request_id: object) -> None:
        """Forget a request that the client has cancelled."""
        key = make_id_key(request_id)
        with self._lock:
            if self._take_by_key(key) is not None:
                self._cancelled_keys.add([key])
                return
            for preparing_request in self._preparing_requests:
                if preparing_request.key == key:
                    preparing_request.is_cancelled = True
                    self._preparing_requests.remove(preparing_request)
                    return

    def was_cancelled(self, request_id: object) -> bool:
        return bool(self._cancelled_keys) and make_id_key(request_id) in self._cancelled_keys

    def extend_deadline(self, progress_token: object) -> None:
        """Restart the timeout of a request that reports progress."""
        key = make_optional_key(progress_token)
        if not self._timeout or key is None:
            return
        with self._lock:
            for entry in self._iter_in_flight():
                if entry.pending.progress_key == key:
                    entry.deadline = self._new_deadline(entry.pending)

    def _iter_in_flight(self) -> Iterator[_InFlightRequest]:
        return itertools.chain.from_iterable(self._in_flight.values())

    def take_expired(self) -> list[PendingRequest]:
        """Remove and return the requests whose timeout has passed."""
        now = time.monotonic()
        with self._lock:
            expired = [
                entry.pending
                for entry in self._iter_in_flight()
                if entry.deadline is not None and entry.deadline <= now
            ]
            for pending in expired:
                self._take_by_key(make_id_key(pending.id))
            self._cancelled_keys.add(make_id_key(pending.id) for pending in expired)
        return expired

    def abandon_all(self) -> list[PendingRequest]:
        """Remove and return all requests; late responses to them count as cancelled."""
        pending = self.take_all()
        with self._lock:
            self._cancelled_keys.add(make_id_key(request.id) for request in pending)
        return pending

    def take_all(self) -> list[PendingRequest]:
        with self._lock:
            pending = [entry.pending for entry in self._iter_in_flight()]
            self._in_flight.clear()
            self._in_flight_count = 0
            self._notify()
        return pending

    def wait_idle(self, seconds: float) -> bool:
        """Wait until only subscriptions are left; return `False` on timeout."""
        return self._wait_for(self._is_idle, seconds)

    def _is_idle(self) -> bool:
        is_answered = all(entry.pending.is_subscription for entry in self._iter_in_flight())
        return is_answered and not self._preparing_requests and not self._answering_requests


class UpstreamRejected(UpstreamFailed):
    """The server answered a request of our own with an error."""


class _IdSequence:
    """Sequence of request ids with a random prefix, so that they differ from all ids that a peer chooses."""

    def __init__(self) -> None:
        self.prefix = f"forebay-{os.urandom(8).hex()}"
        self._counter = itertools.count(1)

    def next_id(self) -> str:
        return f"{self.prefix}-{next(self._counter)}"


class InternalRequests:
    """Requests that forebay itself sends to the server."""

    def __init__(self) -> None:
        self._ids = _IdSequence()
        self._futures: dict[str, Future[Message]] = {}

    def new_id(self) -> str:
        """Return the id for a new request; `wait_result` must follow."""
        request_id = self._ids.next_id()
        self._futures[request_id] = Future()
        return request_id

    def accept_response(self, message: dict[str, Any], raw: Message) -> bool:
        """Pass a response to the thread that waits for it; return `False` if it does not answer an internal request."""
        request_id = message.get("id")
        future = self._futures.get(request_id) if isinstance(request_id, str) else None
        if future is None:
            return isinstance(request_id, str) and request_id.startswith(self._ids.prefix)
        # Two threads may bring two responses; the first one counts.
        with contextlib.suppress(InvalidStateError):
            future.set_result(raw)
        return True

    def is_waiting(self, request_id: object) -> bool:
        """Return whether an internal request waits for its response."""
        future = self._futures.get(request_id) if isinstance(request_id, str) else None
        return future is not None and not future.done()

    def fail(self, error: UpstreamFailed, *request_ids: object) -> None:
        """Fail the internal requests with these ids, or all of them if no ids are given."""
        for request_id, future in list(self._futures.items()):
            if not request_ids or request_id in request_ids:
                with contextlib.suppress(InvalidStateError):
                    future.set_exception(error)

    def list_tools(self, send: Callable[[Message], None], meta: Mapping[str, Any]) -> list[LazyJSON]:
        """Return the tools on all pages of the server's list, unparsed. Raises `UpstreamFailed`."""
        # Without the client's progress token, so that the client gets no progress of this request.
        meta = {key: value for key, value in meta.items() if key != "progressToken"}
        pages = ToolPages()
        for cursor in pages:
            request_id = self.new_id()
            params = {**({"_meta": meta} if meta else {}), **cursor}
            send(dump({"jsonrpc": "2.0", "id": request_id, "method": "tools/list", "params": params}))
            pages.add(*self.wait_response(request_id))
        return pages.tools

    def wait_response(self, request_id: str) -> tuple[dict[str, Any], Message]:
        """Return the response to a request, parsed lazily and as bytes.

        Raises `UpstreamRejected`, `UpstreamFailed` or `UpstreamTimeout`.
        """
        try:
            raw = self._futures[request_id].result(_INTERNAL_TIMEOUT_SECONDS)
        except TimeoutError:
            raise UpstreamTimeout(f"the server did not answer within {_INTERNAL_TIMEOUT_SECONDS:g} s") from None
        finally:
            del self._futures[request_id]
        message = parse(raw)
        if not isinstance(message.get("result"), dict):
            raise UpstreamRejected("the server refused what it was asked")
        return message, raw


class ServerRequests:
    """Requests of the server to the client.

    When a server ends, its open requests are abandoned: late responses to them are dropped. A restarted server starts
    its ids again. If one of them equals that of an abandoned request, the client gets the request with another id.
    """

    def __init__(self) -> None:
        self._ids = _IdSequence()
        self._lock = threading.Lock()
        self._open_requests: dict[bytes, tuple[object, object]] = {}
        """The client's and the server's id of each open request, by the key of the client's id."""
        self._abandoned_keys = _RecentKeys(_MAX_ABANDONED_KEYS)
        """Keys of requests that the client may still answer although their server has ended."""

    def translate_message(self, message: dict[str, Any], raw: Message) -> Message:
        """Return a server's request or notification with the id that the client knows.

        Raises `InvalidArgument` if too many requests of the server are open.
        """
        with self._lock:
            if message["method"] == CANCELLED_METHOD:
                return self._translate_cancel(message, raw)
            if "id" not in message:
                return raw
            if len(self._open_requests) >= _MAX_PENDING_REQUESTS:
                raise InvalidArgument(
                    f"the client has not answered {_MAX_PENDING_REQUESTS:,} requests yet; wait for some of the answers"
                )
            client_id = server_id = message["id"]
            if make_id_key(server_id) in self._abandoned_keys:
                client_id = self._ids.next_id()
            self._open_requests[make_id_key(client_id)] = client_id, server_id
        return raw if client_id is server_id else dump_message({**message, "id": client_id})

    def _translate_cancel(self, message: dict[str, Any], raw: Message) -> Message:
        params = message["params"] if isinstance(message.get("params"), dict) else {}
        key = make_id_key(params.get("requestId"))
        for client_id, server_id in self._open_requests.values():
            if make_id_key(server_id) == key:
                del self._open_requests[make_id_key(client_id)]
                if client_id is server_id:
                    return raw
                return dump_message({**message, "params": {**params, "requestId": client_id}})
        return raw

    def translate_response(self, message: dict[str, Any], raw: Message) -> Message | None:
        """Return a client's response with the server's id; `None` if the server that asked has ended."""
        key = make_id_key(message.get("id"))
        with self._lock:
            if key in self._abandoned_keys:
                self._abandoned_keys.discard(key)
                return None
            client_id, server_id = self._open_requests.pop(key, (None, None))
        return raw if client_id is server_id else dump_message({**message, "id": server_id})

    def cancel_all(self, reason: str) -> list[bytes]:
        """Abandon all requests of a server or session that has ended; return the cancellations for the client."""
        with self._lock:
            requests, self._open_requests = self._open_requests, {}
            self._abandoned_keys.add(requests)
        return [make_cancellation(client_id, reason) for client_id, _ in requests.values()]


def make_call_timeout(subject: str, seconds: float) -> UpstreamTimeout:
    """Return the error for a call of a tool, or another request, that was not answered in time."""
    limit = f"{seconds:g} s (call_timeout_seconds)"
    return UpstreamTimeout(f"{subject:.128} took longer than {limit}; ask for less, or allow it longer")


def make_cancellation(request_id: object, reason: str) -> bytes:
    """Return the notification that cancels a request."""
    params = {"requestId": request_id, "reason": reason}
    return dump({"jsonrpc": "2.0", "method": CANCELLED_METHOD, "params": params})
