"""Refuse messages that a server could interpret differently than the filter of tools."""

from collections.abc import Callable
from typing import Any

from forebay.arguments import short_repr
from forebay.errors import CapabilityDisabled
from forebay.wire.framing import Message
from forebay.wire.lazy_json import LazyJSON
from forebay.wire.messages import is_unambiguous
from forebay.wire.protocol import CLIENT_NOTIFICATIONS, CLIENT_REQUESTS

__all__ = ["find_refusal"]

_MESSAGE_MEMBERS = {"jsonrpc", "id", "method", "params", "result", "error"}

_CALL_PARAMS = {"name", "arguments", "_meta", "task", "inputResponses", "requestState"}
"""Parameters of `tools/call` in any protocol version. A server that ignores case could take `Name` for `name`."""


def find_refusal(message: Any, raw: Message, is_id_in_use: Callable[[object], bool]) -> CapabilityDisabled | None:
    """Return the error for a message that must not reach a server whose tools are filtered; `None` for any other.

    `raw` is the message as it would be sent to the server. Only responses, and requests and notifications of the
    protocol, may be sent, and only if all parsers read them alike: a server that is less strict than the protocol could
    take anything else for a call. The id of a request must not be in use, so that no response is taken for another.
    """
    if not isinstance(message, dict):
        return _refuse("this is not a JSON-RPC message")
    method, params = message.get("method"), message.get("params", {})
    if unknown := message.keys() - _MESSAGE_MEMBERS:
        return _refuse(f"{short_repr(min(unknown))} is not one of JSON-RPC's members", method)
    if not is_unambiguous(raw):
        return _refuse("this is not valid JSON in one line", method)
    if "method" not in message:
        return None
    if not isinstance(method, str) or method not in (CLIENT_REQUESTS if "id" in message else CLIENT_NOTIFICATIONS):
        kind = "requests" if "id" in message else "notifications"
        return _refuse(f"{short_repr(method)} is not one of the protocol's {kind}", method)
    if "id" in message and not _is_request_id(message["id"]):
        return _refuse("the id of a request must be a text or a number", method)
    if "id" in message and is_id_in_use(message["id"]):
        return _refuse("the id of this request is in use", method)
    if not isinstance(params, dict):
        return _refuse("params must be an object", method)
    if method != "tools/call":
        return None
    name = params.get("name")
    if not isinstance(name, str):
        return _refuse("params.name must be the name of a tool", method)
    if unknown := params.keys() - _CALL_PARAMS:
        return _refuse(f"{short_repr(min(unknown))} is not one of a call's parameters", name)
    return None


def _refuse(reason: str, tool_or_method: object = None) -> CapabilityDisabled:
    text = tool_or_method if isinstance(tool_or_method, str) else ""
    return CapabilityDisabled(f"{reason}; tools are filtered here, so send what the protocol defines", text, "")


def _is_request_id(request_id: object) -> bool:
    if isinstance(request_id, LazyJSON):
        # A long text, or a number that Python would change.
        return request_id.is_string or request_id.is_number
    return isinstance(request_id, str | int | float) and not isinstance(request_id, bool)
