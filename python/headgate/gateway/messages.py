"""JSON-RPC messages: how they are read, told apart and written."""

from collections.abc import Mapping
from typing import Any

import orjson

from headgate.errors import InvalidJSON
from headgate.gateway.lines import Kept
from headgate.gateway.raw import taken_apart, written
from headgate.gateway.spool import Spool
from headgate.servers.result import SERVER_INFO

__all__ = [
    "INTERNAL_ERROR",
    "INVALID_PARAMS",
    "METHOD_NOT_FOUND",
    "enveloped",
    "error_message",
    "is_modern",
    "key_of",
    "meta_of",
    "read",
    "result_message",
    "version_of",
]

METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32601, -32602, -32603

_VERSION = "io.modelcontextprotocol/protocolVersion"
_MODERN = "2026-07-28"

_SMALL = 4096
"""What is not worth taking apart."""

_LISTS = {"tools/list", "resources/list", "resources/templates/list", "resources/read", "prompts/list"}
"""What the newest version wants to be told the lifetime of."""


def read(line: Kept) -> Any:
    """A message to be looked at; what is large or delicate in it is `Raw`, and `None` is what is no message."""
    try:
        if not isinstance(line, Spool) and len(line) <= _SMALL:
            return orjson.loads(line)
    except orjson.JSONDecodeError:
        # It may only be text that Python has no room for, such as half of a surrogate pair.
        pass
    try:
        return taken_apart(line)
    except InvalidJSON:
        return None


def key_of(request_id: object) -> bytes:
    """A request's id as a key: 1, 1.0, true and "1" are four of them."""
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
