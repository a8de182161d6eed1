"""What a server asks its client: an answer is for whoever asked, and for no server that takes its place."""

import itertools
import secrets
import threading
from typing import Any

from forebay.wire.lazy_json import written
from forebay.wire.lines import Kept
from forebay.wire.messages import key_of

__all__ = ["Questions"]

_MOST_DEAD = 1024

_CANCELLED = "notifications/cancelled"


class Questions:
    """Servers count from the same number: one that is started again asks by ids that the one before it has used."""

    def __init__(self) -> None:
        self._name = f"forebay-{secrets.token_hex(8)}"
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._open: dict[bytes, tuple[object, object]] = {}
        """The id that the client has, and the one that the server has, by the key of the client's."""
        self._dead: dict[bytes, None] = {}
        """What a server asked that is no more, and that may still be answered."""

    def said(self, message: dict[str, Any], line: Kept) -> Kept:
        """What a server says as the client is to have it: as it came, unless its id is that of a dead question."""
        with self._lock:
            if message["method"] == _CANCELLED:
                return self._withdrawn(message, line)
            if "id" not in message:
                return line
            theirs = ours = message["id"]
            if key_of(theirs) in self._dead:
                ours = f"{self._name}-{next(self._numbers)}"
            self._open[key_of(ours)] = ours, theirs
        return line if ours is theirs else written({**message, "id": ours})

    def _withdrawn(self, message: dict[str, Any], line: Kept) -> Kept:
        params = message["params"] if isinstance(message.get("params"), dict) else {}
        key = key_of(params.get("requestId"))
        for ours, theirs in self._open.values():
            if key_of(theirs) == key:
                del self._open[key_of(ours)]
                return line if ours is theirs else written({**message, "params": {**params, "requestId": ours}})
        return line

    def answered(self, message: dict[str, Any], line: Kept) -> Kept | None:
        """What a client answers as the server is to have it; `None` if who asked is no more."""
        key = key_of(message.get("id"))
        with self._lock:
            if key in self._dead:
                del self._dead[key]
                return None
            ours, theirs = self._open.pop(key, (None, None))
        return line if ours is theirs else written({**message, "id": theirs})

    def ended(self) -> list[bytes]:
        """The server is gone: that nobody waits for the client's answers any more."""
        with self._lock:
            asked, self._open = self._open, {}
            self._dead |= dict.fromkeys(asked)
            for key in list(self._dead)[:-_MOST_DEAD]:
                del self._dead[key]
        return [_cancelled(ours) for ours, _ in asked.values()]


def _cancelled(request_id: object) -> bytes:
    params = {"requestId": request_id, "reason": "the server has ended"}
    return written({"jsonrpc": "2.0", "method": _CANCELLED, "params": params})
