"""The server behind the gateway, over HTTP: every message is a request of its own, and so are its answers' streams."""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from queue import SimpleQueue
from typing import Any

import httpx2

from forebay.errors import UpstreamFailed, UpstreamTimeout
from forebay.proxy.background import Work
from forebay.proxy.http.connection import Connection, Endpoint
from forebay.proxy.http.headers import given_headers, mirrored
from forebay.proxy.http.legacy_sse import OldStream
from forebay.proxy.http.outgoing import Outgoing, OutgoingRequests
from forebay.proxy.http.streams import JSON, Refused, Streams
from forebay.proxy.relay import Relay
from forebay.wire.lines import Begun, Kept
from forebay.wire.messages import read
from forebay.wire.spool import Spool

__all__ = ["HttpUpstream"]

_log = logging.getLogger("forebay")

_MOST_AT_ONCE = 64
_MOST_LISTENING = 256
_ACCEPTED = 30.0
"""How many seconds a server has to take notice of what wants no answer."""
_FAREWELL = 2.0
_NO_POST = (400, 404, 405)


class _Session:
    """What a handshake gave; another handshake gives another one."""

    def __init__(self, session_id: str | None, old: OldStream | None = None) -> None:
        self.id = session_id
        self.old = old


class HttpUpstream:
    """Sends to a server at a URL; what it says goes to the relay."""

    def __init__(
        self,
        url: str,
        *,
        headers: Sequence[str] = (),
        most_bytes: int,
        make_spool: Callable[[], Spool],
        schema_of: Callable[[str], Mapping[str, Any] | None] = lambda _: None,
    ) -> None:
        self._endpoint = Endpoint(url, given_headers(headers))
        self._begin = lambda: Begun(most_bytes, make_spool)
        self._schema_of = schema_of
        self._to_send: SimpleQueue[Kept | None] = SimpleQueue()
        self._asking = Work(_MOST_AT_ONCE)
        # They last, and calls must not have to wait for them.
        self._listening = Work(_MOST_LISTENING)
        # One after the other, so that they come in the order in which they were said.
        self._telling = Work(1)
        self._requests = OutgoingRequests()
        self._session = _Session(None)
        self._renewing = threading.Lock()
        self._is_modern = False
        self._sending = threading.Lock()
        self._is_closed = False
        self._closing = threading.Event()
        self._has_sent_all = threading.Event()

    def send(self, line: Kept) -> None:
        """Soon: whoever sends never waits for the server. What goes wrong is told to whoever waits for an answer.

        Raises `UpstreamFailed` once it is closed.
        """
        with self._sending:
            if self._is_closed:
                raise UpstreamFailed("the gateway is about to end; ask again when it is back")
            self._to_send.put(line)

    def run(self, relay: Relay) -> int:
        """Until it is closed."""
        self._relay = relay
        relay.veiled = self._endpoint.veiled
        self._streams = Streams(self._endpoint, relay, self._begin, self._closing)
        while (line := self._to_send.get()) is not None:
            self._dispatch(self._outgoing(line))
        self._has_sent_all.set()
        return 0

    def _outgoing(self, line: Kept) -> Outgoing:
        message = read(line)
        headers = mirrored(message, line, self._schema_of) if isinstance(message, dict) else {}
        return Outgoing(message, line, headers)

    def _dispatch(self, message: Outgoing) -> None:
        if message.is_request:
            self._is_modern = message.is_modern
            self._requests.add(message)
        match message.method:
            case "initialize":
                # Nothing is understood before it is answered.
                self._asking.do(lambda: self._ask(message))
                self._relay.pending.settle(message.id)
            case "notifications/initialized":
                self._telling.do(lambda: self._tell(message))
                self._telling.finish(_ACCEPTED)
            case "notifications/cancelled":
                self._cancel(message)
            case "subscriptions/listen" if message.is_request:
                self._listening.do(lambda: self._ask(message))
            case _ if message.is_request:
                self._asking.do(lambda: self._ask(message))
            case _:
                self._telling.do(lambda: self._tell(message))

    def _cancel(self, message: Outgoing) -> None:
        """In the newest version a request ends with its stream; before, it has to be told, and its stream goes on."""
        request_id = message.params.get("requestId") if isinstance(message.params, dict) else None
        request = self._requests.get(request_id)
        if request is not None and request.is_modern:
            request.cut()
        elif request is not None or not self._is_modern:

            def tell() -> None:
                self._tell(message)
                if request is not None:
                    request.cut()

            self._telling.do(tell)

    def _ask(self, request: Outgoing) -> None:
        try:
            # It may have been cancelled while it waited for others.
            if self._relay.awaits(request.id):
                self._exchange(request)
        except UpstreamFailed as error:
            self._relay.failed(request.id, error)
        except Exception:
            _log.exception("forebay: a request could not be sent")
            self._relay.failed(request.id, UpstreamFailed("the request could not be sent, for a fault of the gateway"))
        finally:
            self._requests.remove(request)

    def _tell(self, message: Outgoing) -> None:
        try:
            self._exchange(message)
        except UpstreamFailed as error:
            _log.warning("forebay: the server was not told of %s: %s", message.method or "an answer", error)

    def _exchange(self, message: Outgoing, *, is_again: bool = False) -> None:
        session = self._session
        if not self._exchanged(message, session):
            if is_again:
                raise UpstreamFailed("the server forgets its sessions at once; ask again in a while")
            self._renew(session)
            self._exchange(message, is_again=True)
        elif message.method == "notifications/initialized" and self._session.old is None:
            threading.Thread(target=self._listen, args=(self._session,), daemon=True).start()

    def _exchanged(self, message: Outgoing, session: _Session) -> bool:
        """`False` if the server does not know the session any more: then it has not looked at the message."""
        if session.old is not None and message.method != "initialize":
            return self._sent_to_old(message, session.old)
        headers = self._headers(message, session)
        try:
            with self._posted(message, self._endpoint.url, headers) as (response, connection):
                if response.status_code == 404 and "mcp-session-id" in headers:
                    return False
                if message.method == "initialize" and response.is_success:
                    self._session = _Session(response.headers.get("mcp-session-id"))
                broken = self._streams.take(response, message, connection)
        except Refused as error:
            if message.method != "initialize" or error.status not in _NO_POST:
                raise
            self._greet_old(message, error)
            return True
        if broken is not None:
            self._streams.resume(message, broken, lambda: self._headers(message, session))
        return True

    @contextlib.contextmanager
    def _posted(
        self, message: Outgoing, url: httpx2.URL, headers: Mapping[str, str]
    ) -> Iterator[tuple[httpx2.Response, Connection]]:
        silence = None if message.is_request else _ACCEPTED
        with self._endpoint.connection() as connection:
            message.takes(connection)
            try:
                response = self._endpoint.open(connection, "POST", url, headers, message.line, silence)
                with contextlib.closing(response):
                    yield response, connection
            finally:
                message.takes(None)

    def _greet_old(self, hello: Outgoing, error: Refused) -> None:
        """A server that has no use for a handshake that is posted may be one from before that."""
        old = OldStream(self._endpoint, self._relay, self._begin)
        if old.place() is None:
            raise error
        self._session = _Session(None, old)
        self._sent_to_old(hello, old)

    def _sent_to_old(self, message: Outgoing, old: OldStream) -> bool:
        """The answer, if there is one, comes by the stream."""
        place = old.place()
        if old.is_over or place is None:
            return False
        with self._posted(message, place, self._headers(message, self._session)) as (response, connection):
            if not response.is_success:
                self._streams.take(response, message, connection)
        return True

    def _headers(self, message: Outgoing | None, session: _Session) -> dict[str, str]:
        headers = {"accept": f"{JSON}, text/event-stream", "content-type": JSON}
        if message is not None and (message.is_modern or message.method == "initialize"):
            return {**headers, **message.headers}
        if session.id is not None:
            headers["mcp-session-id"] = session.id
        if (version := self._relay.agreed_version) is not None:
            headers["mcp-protocol-version"] = version
        return headers

    def _renew(self, lost: _Session) -> None:
        """Another handshake, in place of a session that the server does not know any more."""
        with self._renewing:
            if self._session is lost:
                _log.info("forebay: the server has forgotten the session, and is told again what it knew")
                try:
                    self._relay.greet(self._say_again)
                except UpstreamTimeout as error:
                    raise UpstreamFailed(str(error)) from None
            if self._session is lost:
                raise UpstreamFailed("the server has forgotten the session; connect to it again")

    def _say_again(self, line: Kept) -> None:
        self._exchange(self._outgoing(line), is_again=True)

    def _listen(self, session: _Session) -> None:
        """What the server says on its own, for as long as the session lasts."""
        with contextlib.suppress(UpstreamFailed):
            self._streams.listen(lambda: self._headers(None, session), lambda: self._session is session)

    def close(self) -> None:
        """No more is to be sent. What nobody waits for is told yet; all else under way ends, and with it `run`."""
        with self._sending:
            self._is_closed = True
            self._to_send.put(None)
        if self._has_sent_all.wait(_FAREWELL):
            self._telling.finish(_FAREWELL)
        self._closing.set()
        self._endpoint.cut_all()
        if self._session.id is not None:
            farewell = threading.Thread(target=self._say_farewell, daemon=True)
            farewell.start()
            farewell.join(_FAREWELL)
        self._endpoint.close()

    def _say_farewell(self) -> None:
        # A server that does not care for it forgets the session by itself.
        with contextlib.suppress(UpstreamFailed, httpx2.HTTPError), self._endpoint.connection() as connection:
            headers = self._headers(None, self._session)
            self._endpoint.open(connection, "DELETE", self._endpoint.url, headers, silence=_FAREWELL).close()
