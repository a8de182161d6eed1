"""JSON-RPC messages: how they are read, told apart and written."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from forebay.errors import InvalidJSON
from forebay.wire.lazy_json import LazyJSON, parse_lazy, whole_of, written
from forebay.wire.lines import Kept

__all__ = [
    "INTERNAL_ERROR",
    "INVALID_PARAMS",
    "INVALID_REQUEST",
    "METHOD_NOT_FOUND",
    "PARSE_ERROR",
    "SERVER_INFO",
    "enveloped",
    "error_message",
    "is_modern",
    "key_of",
    "meta_of",
    "next_cursor",
    "read",
    "result_message",
    "version_of",
]

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603

SERVER_INFO = "io.modelcontextprotocol/serverInfo"
_VERSION = "io.modelcontextprotocol/protocolVersion"
_MODERN = "2026-07-28"

_GENEROUS = 1 << 20
"""What a message may have beside what it says."""

_MEMBERS = ("jsonrpc", "id", "method", "params", "result", "error")

_LISTS = {"tools/list", "resources/list", "resources/templates/list", "resources/read", "prompts/list"}
"""What the newest version wants to be told the lifetime of."""


def read(line: Kept) -> Any:
    """A message to be looked at, of which all that is large or delicate is `Raw`; `None` for what is no message.

    What it is for is always read: however much stands beside it, and whatever that is called.
    """
    try:
        message = parse_lazy(line)
        if _is_hidden(message):
            message = parse_lazy(line, most_container=_GENEROUS)
        return _members(line) if isinstance(message, LazyJSON) else message
    except InvalidJSON:
        return None


def _is_hidden(message: Any) -> bool:
    """Whether there is so much in it that the message itself, or what it says, is not taken apart."""
    if isinstance(message, dict):
        return any(isinstance(message.get(key), LazyJSON) for key in ("params", "result"))
    return isinstance(message, LazyJSON)


def _members(line: Kept) -> dict[str, Any] | None:
    """What a message says whose names Python cannot read, such as half of a surrogate pair, each as it came."""
    members = whole_of(line).members(_MEMBERS)
    return {name: member.taken_apart() for name, member in members.items()} or None


def key_of(request_id: object) -> bytes:
    """A request's id as a key, however it is written: 7, 7.0 and 70e-1 are one number, and "7" is none."""
    if isinstance(request_id, LazyJSON):
        text = request_id.json()
        if request_id.is_string:
            return b'"' + request_id.text()
        try:
            number = Decimal(text.decode())
        except (ArithmeticError, ValueError):
            return text
        return str(number.normalize()).encode()
    if isinstance(request_id, str):
        return b'"' + request_id.encode("utf-8", "surrogatepass")
    if isinstance(request_id, int | float) and not isinstance(request_id, bool):
        return str(Decimal(request_id).normalize()).encode()
    return written(request_id)


def meta_of(params: object) -> dict[str, Any]:
    """What a request says beside its parameters."""
    meta = params.get("_meta") if isinstance(params, Mapping) else None
    return meta if isinstance(meta, dict) else {}


def version_of(params: object) -> str | None:
    """The version of the protocol that a request names; none did so before the newest."""
    version = meta_of(params).get(_VERSION)
    return version if isinstance(version, str) else None


def is_modern(version: str) -> bool:
    """Whether a version of the protocol has no handshake, and no connections that last."""
    return version >= _MODERN


def result_message(request_id: object, result: Mapping[str, Any]) -> bytes:
    """An answer."""
    return written({"jsonrpc": "2.0", "id": request_id, "result": result})


def error_message(request_id: object, code: int, message: str, data: object = None) -> bytes:
    """An answer that there is none."""
    error = {"code": code, "message": message, **({} if data is None else {"data": data})}
    return written({"jsonrpc": "2.0", "id": request_id, "error": error})


def enveloped(method: str, result: dict[str, Any], version: str, stamp: Mapping[str, Any]) -> dict[str, Any]:
    """A result of ours as this version of the protocol has it."""
    if not is_modern(version):
        return result
    kept = {"ttlMs": 0, "cacheScope": "private"} if method in _LISTS else {}
    return {**result, "resultType": "complete", **kept, "_meta": {SERVER_INFO: stamp, **(result.get("_meta") or {})}}


def next_cursor(page: Mapping[str, Any]) -> Any:
    """`None` at the end of a list. Some servers say that by a cursor that is empty."""
    cursor = page.get("nextCursor")
    return None if cursor == "" else cursor
