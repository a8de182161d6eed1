"""A message on its way to a server over HTTP."""

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from forebay.errors import UpstreamFailed
from forebay.proxy.http.connection import Connection
from forebay.wire.messages import key_of, version_of

if TYPE_CHECKING:
    from forebay.wire.spool import Spool

__all__ = ["Outgoing", "OutgoingRequests"]


class Outgoing:
    """What it is, and the connection that it takes. One that is cut goes no further."""

    def __init__(self, message: object, line: "bytes | bytearray | Spool", headers: Mapping[str, str]) -> None:
        fields: Mapping[str, Any] = message if isinstance(message, dict) else {}
        self.line = line
        self.headers = headers
        """What of it is said in headers too."""
        method = fields.get("method")
        self.method: str = method if isinstance(method, str) else ""
        self.params = fields.get("params")
        self.is_request = bool(self.method) and "id" in fields
        self.id: object = fields.get("id") if self.is_request else None
        self.is_modern = version_of(self.params) is not None
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self.is_cut = False

    def takes(self, connection: Connection | None) -> None:
        """From now on it is this connection that is to be cut; `None` for none."""
        with self._lock:
            self._connection = connection
            if self.is_cut and connection is not None:
                raise UpstreamFailed("nobody waits for it any more")

    def cut(self) -> None:
        with self._lock:
            self.is_cut = True
            if self._connection is not None:
                self._connection.cut()


class OutgoingRequests:
    """Those that are not answered yet, by id."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_id: dict[bytes, Outgoing] = {}

    def add(self, request: Outgoing) -> None:
        with self._lock:
            self._by_id[key_of(request.id)] = request

    def remove(self, request: Outgoing) -> None:
        with self._lock:
            # A client may have used the id again.
            if self._by_id.get(key_of(request.id)) is request:
                del self._by_id[key_of(request.id)]

    def get(self, request_id: object) -> Outgoing | None:
        with self._lock:
            return self._by_id.get(key_of(request_id))
