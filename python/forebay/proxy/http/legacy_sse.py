"""The transport of 2024-11-05: one stream that all answers come by, and another URL where messages go."""

import contextlib
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError

import httpx2

from forebay.errors import UpstreamFailed
from forebay.proxy.http.connection import Endpoint, chunks_of, is_within
from forebay.proxy.http.secrets import without_secrets
from forebay.proxy.http.streams import EVENTS, kind_of
from forebay.proxy.relay import Relay
from forebay.wire.lines import Begun, Unspooled
from forebay.wire.spool import Spool
from forebay.wire.sse import Event, Events

__all__ = ["OldStream"]

_log = logging.getLogger("forebay")

_PATIENCE = 10.0


class OldStream:
    """Until the server ends it: then nothing that was asked will be answered."""

    def __init__(self, endpoint: Endpoint, relay: Relay, begin: Callable[[], Begun]) -> None:
        self._endpoint = endpoint
        self._relay = relay
        self._events = Events(begin())
        self._place: Future[httpx2.URL] = Future()
        self.is_over = False
        threading.Thread(target=self._run, daemon=True).start()

    def place(self) -> httpx2.URL | None:
        """Where messages go; `None` if the server does not have this transport either."""
        try:
            return self._place.result(_PATIENCE)
        except (UpstreamFailed, TimeoutError):
            return None

    def _run(self) -> None:
        try:
            self._listen()
        except UpstreamFailed as reason:
            _log.debug("forebay: the server's stream broke off: %s", reason)
        self.is_over = True
        self._events.drop()
        error = UpstreamFailed("the server's stream ended before its answer; it may have done what it was asked to")
        with contextlib.suppress(InvalidStateError):
            self._place.set_exception(error)
            return
        self._relay.ended(error)

    def _listen(self) -> None:
        with self._endpoint.connection() as connection:
            response = self._endpoint.open(connection, "GET", self._endpoint.url, {"accept": EVENTS})
            with contextlib.closing(response):
                if response.status_code != 200 or kind_of(response) != EVENTS:
                    return
                for chunk in chunks_of(response):
                    for event in self._events.feed(chunk):
                        self._take(event)

    def _take(self, event: Event) -> None:
        if event.is_message:
            self._relay.from_upstream(without_secrets(event.data, self._endpoint.veiled))
        elif event.name == "endpoint" and not isinstance(event.data, Spool | Unspooled):
            place = self._endpoint.url.join(event.data.decode(errors="replace"))
            if not is_within(self._endpoint.url, place):
                raise UpstreamFailed("the server wants its messages sent elsewhere")
            with contextlib.suppress(InvalidStateError):
                self._place.set_result(place)
