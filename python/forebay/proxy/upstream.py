"""What a connection to a server needs from the relay that takes its messages."""

from collections.abc import Callable
from typing import Protocol

from forebay.errors import UpstreamFailed
from forebay.wire.framing import Line, Message

__all__ = ["Receiver"]


class Receiver(Protocol):
    """Destination of a server's messages: the relay of `forebay wrap`, or the hub.

    An upstream calls all methods except `replay_session` in the thread or threads that read from the server. They may
    block, which delays the messages of this server.
    """

    redact: Callable[[str], str]
    """Removes credentials from server output before it is logged. An HTTP upstream sets it in `run`."""

    redact_line: Callable[[Line], Line]
    """Removes credentials from an error that comes in a batch. An HTTP upstream sets it in `run`."""

    @property
    def negotiated_version(self) -> str | None:
        """Protocol version of the handshake; `None` without one."""

    def receive_from_server(self, line: Line, stream_request_id: object = None) -> bool:
        """Handle a message from the server; return whether it was a response that was expected.

        `stream_request_id` is the id of the request whose HTTP response carried the message, else `None`. The only
        response allowed there is the one to that request.
        """

    def is_pending(self, request_id: object) -> bool:
        """Return whether the response to a request is still expected."""

    def call_when_settled(self, request_id: object, callback: Callable[[], None]) -> None:
        """Call `callback` when the request that now has this id is answered, cancelled or failed, in any thread.

        Answered means that `negotiated_version` is up to date. If there is no such request, call it at once.
        """

    def fail_request(self, request_id: object, error: UpstreamFailed) -> None:
        """Answer a request with an error. Do nothing if it is no longer pending."""

    def replay_session(self, send: Callable[[Message], None]) -> None:
        """Repeat the handshake and subscriptions to a server that has lost them. Raises `UpstreamFailed`.

        It is called in a thread of its own, and waits for the responses.
        """

    def cancel_server_requests(self, reason: str) -> None:
        """Cancel the requests of the server to the client, whose answers nobody would receive."""

    def on_upstream_end(self, error: UpstreamFailed) -> None:
        """Fail all requests to a server that has ended, and cancel its requests to the client."""
