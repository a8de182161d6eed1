"""What a server answers over HTTP: one message, or a stream of them that may break off and go on."""

import contextlib
import logging
import threading
from collections.abc import Callable

import httpx2
import orjson

from forebay.errors import UpstreamFailed
from forebay.proxy.http.connection import Connection, Endpoint, chunks_of
from forebay.proxy.http.outgoing import Outgoing
from forebay.proxy.http.secrets import without_secrets
from forebay.proxy.relay import Relay
from forebay.wire.lazy_json import written
from forebay.wire.lines import Begun, Line
from forebay.wire.sse import Events

__all__ = ["EVENTS", "JSON", "Refused", "Streams", "kind_of"]

_log = logging.getLogger("forebay")

JSON, EVENTS = "application/json", "text/event-stream"

_MOST_COMPLAINT = 64 * 1024
_SHOWN_COMPLAINT = 300
_RETRY, _SOONEST_RETRY, _LONGEST_RETRY = 1.0, 0.1, 30.0
_MOST_TRIES = 5
"""How often a stream is taken up again that then says nothing."""
_LAST_WORDS = 1.0
"""How many seconds a stream may go on after the answer; a connection that ends by itself can be used again."""

_LINE_ENDS = bytes.maketrans(b"\r\n", b"  ")

_Headers = Callable[[], dict[str, str]]


class Refused(UpstreamFailed):
    """The server answered with a status that is an error, and nothing of the protocol."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Streams:
    """Hands whatever comes to the relay."""

    def __init__(self, endpoint: Endpoint, relay: Relay, begin: Callable[[], Begun], closing: threading.Event) -> None:
        self._endpoint = endpoint
        self._relay = relay
        self._begin = begin
        self._closing = closing

    def _told(self, line: Line, asked: object = None) -> bool:
        return self._relay.from_upstream(without_secrets(line, self._endpoint.veiled), asked)

    def take(self, response: httpx2.Response, message: Outgoing, connection: Connection) -> Events | None:
        """What a message is answered with; a stream that broke off before the answer is given back, to be resumed."""
        if response.status_code >= 300:
            self._refused(response, message)
        elif not message.is_request:
            # There is nothing to be said to it.
            return None
        elif kind_of(response) == EVENTS:
            events = Events(self._begin())
            if not self._followed(response, events, message, connection):
                return events
        elif kind_of(response) == JSON:
            self._whole(response, message)
        elif response.status_code == 202:
            raise UpstreamFailed("the server accepted the request, but does not answer it")
        else:
            raise UpstreamFailed(
                f"the server answered {kind_of(response)[:100] or 'nothing'!r}, which is no message; check the URL"
            )
        return None

    def _whole(self, response: httpx2.Response, message: Outgoing) -> None:
        begun = self._begin()
        try:
            for chunk in chunks_of(response):
                # A message is one line from here on; in JSON a line's end is but space.
                begun.add(chunk.translate(_LINE_ENDS) if b"\n" in chunk or b"\r" in chunk else chunk)
        except BaseException:
            begun.drop()
            raise
        if not self._told(begun.take(), message.id):
            raise UpstreamFailed(
                "the server answered what is no answer to this request; it may have done what it was asked to"
            )

    def _followed(self, response: httpx2.Response, events: Events, message: Outgoing, connection: Connection) -> bool:
        """Whether the answer came before the stream's end."""
        is_answered = False
        end = threading.Timer(_LAST_WORDS, connection.cut)
        end.daemon = True
        try:
            for chunk in chunks_of(response):
                for event in events.feed(chunk):
                    if event.is_message:
                        is_last = self._told(event.data, message.id)
                        if is_last and not is_answered:
                            is_answered = True
                            end.start()
        except (httpx2.HTTPError, UpstreamFailed) as error:
            _log.debug("forebay: a stream of the server broke off: %s", error)
        finally:
            end.cancel()
            events.drop()
        return is_answered

    def resume(self, message: Outgoing, events: Events, headers: _Headers) -> None:
        """Goes on with the stream of a request where it broke off, if its server can. Nothing is sent twice."""
        tries = 0
        while not message.is_modern and events.last_id and tries < _MOST_TRIES:
            last_id = events.last_id
            if self._closing.wait(_delay(events, tries)):
                break
            if not self._relay.awaits(message.id):
                return
            with self._endpoint.connection() as connection:
                message.takes(connection)
                try:
                    if self._resumed(message, events, headers(), connection):
                        return
                finally:
                    message.takes(None)
            tries = tries + 1 if events.last_id == last_id else 0
        raise UpstreamFailed("the server's stream ended before its answer; it may have done what it was asked to")

    def _resumed(self, message: Outgoing, events: Events, headers: dict[str, str], connection: Connection) -> bool:
        with self._opened(connection, {**headers, "last-event-id": events.last_id}) as response:
            if response.status_code != 200 or kind_of(response) != EVENTS:
                raise UpstreamFailed(
                    "the server's stream broke off and cannot be resumed; it may have done what it was asked to"
                )
            return self._followed(response, events, message, connection)

    def listen(self, headers: _Headers, is_wanted: Callable[[], bool]) -> None:
        """What the server says on its own, if it does; over and over, for as long as it is wanted."""
        events, tries = Events(self._begin()), 0
        while is_wanted() and not self._closing.is_set():
            tries += 1
            with contextlib.suppress(UpstreamFailed), self._endpoint.connection() as connection:
                resumed = {"last-event-id": events.last_id} if events.last_id else {}
                with self._opened(connection, {**headers(), **resumed}) as response:
                    if response.status_code >= 500:
                        raise UpstreamFailed("the server cannot be listened to just now")
                    if response.status_code != 200 or kind_of(response) != EVENTS:
                        return
                    for chunk in chunks_of(response):
                        for event in events.feed(chunk):
                            tries = 0
                            if event.is_message:
                                self._told(event.data)
            events.drop()
            self._closing.wait(_delay(events, tries))

    def _opened(self, connection: Connection, headers: dict[str, str]) -> "contextlib.closing[httpx2.Response]":
        wanted = {name: value for name, value in headers.items() if name != "content-type"} | {"accept": EVENTS}
        return contextlib.closing(self._endpoint.open(connection, "GET", self._endpoint.url, wanted))

    def _refused(self, response: httpx2.Response, message: Outgoing) -> None:
        """What is refused may still be answered, as the protocol has it."""
        body = bytearray()
        for chunk in chunks_of(response):
            body += chunk[: _MOST_COMPLAINT - len(body)]
            if len(body) >= _MOST_COMPLAINT:
                break
        if message.is_request and self._is_answer(bytes(body), message):
            return
        status = response.status_code
        if status in (401, 403):
            raise UpstreamFailed(
                f"{self._endpoint.name} lets nobody in like this (HTTP {status}); give what it wants with --header, or "
                "mend what was given"
            )
        start = self._endpoint.veiled(" ".join(body.decode(errors="replace").split()))[:_SHOWN_COMPLAINT]
        said = f"{': ' if start else ''}{start}"
        raise Refused(f"{self._endpoint.name} answered HTTP {status}{said}; check the URL", status)

    def _is_answer(self, body: bytes, message: Outgoing) -> bool:
        try:
            answer = orjson.loads(body)
        except orjson.JSONDecodeError:
            return False
        if not isinstance(answer, dict) or not isinstance(answer.get("error"), dict) or "jsonrpc" not in answer:
            return False
        if answer.get("id") == message.id:
            return self._told(body.translate(_LINE_ENDS), message.id)
        # It was refused before anyone looked for its id.
        return self._told(written({**answer, "id": message.id}), message.id)


def kind_of(response: httpx2.Response) -> str:
    """The type of a body, without its parameters."""
    return str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()


def _delay(events: Events, tries: int) -> float:
    first = _RETRY if events.retry is None else max(events.retry, _SOONEST_RETRY)
    return min(first * 2.0 ** max(tries - 1, 0), _LONGEST_RETRY)
