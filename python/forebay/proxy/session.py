"""What a server was told by its client, so that one that is started in its place can be told the same."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from forebay.wire.lazy_json import parse_lazy, written
from forebay.wire.lines import Kept

__all__ = ["Session"]


@dataclasses.dataclass(eq=False, slots=True, weakref_slot=True)
class Session:
    """The handshake and what lasts after it. The newest version of the protocol has neither."""

    version: str = "2025-11-25"
    """What was agreed on."""
    hello: Kept | None = None
    """The client's handshake."""
    is_agreed: bool = False
    """Whether the server has answered it."""
    initialized: Kept | None = None
    """What the client ended the handshake with."""
    level: Kept | None = None
    """From which level on the client is told what the server logs."""
    subscriptions: dict[str, Kept] = dataclasses.field(default_factory=dict)
    """What the client wants to be told of."""

    def heard(self, method: str, params: Any, line: Kept) -> None:
        """Remembers a message of the client, if it lasts."""
        uri = params.get("uri") if isinstance(params, dict) else None
        match method:
            case "initialize":
                self.hello, self.is_agreed, self.initialized = line, False, None
            case "notifications/initialized":
                self.initialized = line
            case "logging/setLevel":
                self.level = line
            case "resources/subscribe" if isinstance(uri, str):
                self.subscriptions[uri] = line
            case "resources/unsubscribe" if isinstance(uri, str):
                self.subscriptions.pop(uri, None)

    def again(self, new_id: Callable[[], str]) -> Iterator[tuple[str | None, Kept]]:
        """What to tell a new server, in this order: each with the id of the answer to wait for."""
        if self.hello is None or not self.is_agreed:
            return
        yield _renamed(self.hello, new_id())
        if self.initialized is not None:
            yield None, self.initialized
            for line in (*([self.level] if self.level else ()), *self.subscriptions.values()):
                yield _renamed(line, new_id())


def _renamed(line: Kept, request_id: str) -> tuple[str, bytes]:
    """The client's request as one of ours: the client has its answer already."""
    return request_id, written({**parse_lazy(line), "id": request_id})
