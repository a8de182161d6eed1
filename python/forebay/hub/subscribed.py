"""What a server says to several subscriptions of one connection: whoever listens here is told once."""

from collections.abc import Mapping
from typing import Any

from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse, RequestId

__all__ = ["Subscribed"]

_FLAGS = {
    "notifications/tools/list_changed": "toolsListChanged",
    "notifications/prompts/list_changed": "promptsListChanged",
    "notifications/resources/list_changed": "resourcesListChanged",
}


class Subscribed:
    """The subscriptions that are open on a connection, by the requests that opened them."""

    def __init__(self) -> None:
        self._wanted: dict[RequestId, Mapping[str, Any]] = {}

    def sent(self, message: object) -> None:
        """A message to the server."""
        match message:
            case JSONRPCRequest(id=number, method="subscriptions/listen", params={"notifications": dict() as wanted}):
                self._wanted[number] = wanted
            case JSONRPCNotification(method="notifications/cancelled", params={"requestId": str() | int() as number}):
                self._wanted.pop(number, None)

    def received(self, message: object) -> None:
        """A message from the server."""
        if isinstance(message, JSONRPCResponse | JSONRPCError) and message.id is not None:
            self._wanted.pop(message.id, None)

    def is_repeated(self, message: JSONRPCNotification) -> bool:
        """Whether it is said to an earlier subscription, too: to the first that wants it, it is news."""
        match message.params:
            case {"_meta": {"io.modelcontextprotocol/subscriptionId": str() | int() as said}} if said in self._wanted:
                first = (other for other, wanted in self._wanted.items() if _is_wanted(message, wanted))
                return bool(next(first, said) != said)
        return False


def _is_wanted(message: JSONRPCNotification, wanted: Mapping[str, Any]) -> bool:
    if message.method == "notifications/resources/updated":
        return (message.params or {}).get("uri") in (wanted.get("resourceSubscriptions") or ())
    return wanted.get(_FLAGS.get(message.method, "")) is True
