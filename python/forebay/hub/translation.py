"""Errors of the hub, and the translation between the protocol eras.

Up to 2025-11-25 a connection starts with a handshake (`initialize`), and servers send requests to their clients. Since
2026-07-28 each request says in its `_meta` who sends it, and a server asks its client by an `input_required` result.
"""

from collections.abc import Mapping
from typing import Any

import forebay
from forebay.outputs.result import strip_server_fields
from forebay.wire.messages import INVALID_PARAMS, LazyJSON, make_error_message
from forebay.wire.protocol import (
    CLIENT_CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    MODERN_VERSION,
    PROTOCOL_VERSION_KEY,
    add_result_fields,
    is_modern,
)

__all__ = [
    "SERVER_INFO",
    "RequestFailed",
    "check_input_request",
    "is_input_required",
    "open_object",
    "translate_params",
    "translate_result",
]

SERVER_INFO = {"name": "forebay", "version": forebay.__version__}

_CONNECTION_META_KEYS = (PROTOCOL_VERSION_KEY, CLIENT_INFO_KEY, CLIENT_CAPABILITIES_KEY, "progressToken")
"""Members of `_meta` that mean something only on the connection of the client."""

_MODERN_FIELDS = ("resultType", "ttlMs", "cacheScope")


class RequestFailed(Exception):
    """A request that is answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data

    @classmethod
    def from_response(cls, message: Mapping[str, Any]) -> "RequestFailed":
        """Return the error of a response."""
        error = message.get("error")
        if isinstance(error, LazyJSON):
            error = error.parse()
        error = error if isinstance(error, dict) else {}
        code, text = error.get("code"), error.get("message")
        return cls(code if isinstance(code, int) else -32603, text if isinstance(text, str) else "", error.get("data"))

    def to_dict(self) -> dict[str, Any]:
        """Return the error as the member `error` of a response."""
        error = {"code": self.code, "message": str(self)}
        return error if self.data is None else {**error, "data": self.data}

    def to_message(self, request_id: object) -> bytes:
        """Return the response to a request."""
        return make_error_message(request_id, self.code, str(self), self.data)


_INPUT_PARAMS: dict[str, dict[str, type]] = {
    "elicitation/create": {"message": str, "requestedSchema": dict},
    "elicitation/create by URL": {"message": str, "url": str, "elicitationId": str},
    "sampling/createMessage": {"messages": list, "maxTokens": int},
}
"""Required params of the requests that a server may send to its client."""

_TYPE_NAMES = {str: "a string", dict: "an object", list: "an array", int: "an integer"}


def check_input_request(method: str, params: Mapping[str, Any]) -> None:
    """Raise `RequestFailed` if a server's request lacks what 2026-07-28 requires, so that no client could answer it."""
    by_url = " by URL" if params.get("mode") == "url" else ""
    for name, expected in _INPUT_PARAMS.get(method + by_url, {}).items():
        value = params.get(name)
        if isinstance(value, LazyJSON):
            is_valid = {str: value.is_string, dict: value.is_object, list: value.is_array, int: value.is_number}[
                expected
            ]
        else:
            is_valid = isinstance(value, expected) and not isinstance(value, bool)
        if not is_valid:
            raise RequestFailed(INVALID_PARAMS, f"{method}: params.{name} is {_TYPE_NAMES[expected]}; send one")


def is_input_required(result: object) -> bool:
    """Return whether a result asks the client for input."""
    return isinstance(result, dict) and result.get("resultType") == "input_required"


def translate_params(
    params: Mapping[str, Any], *, to_modern: bool, client_info: object = None, capabilities: object = None
) -> dict[str, Any]:
    """Return the params of a request in the other protocol era, without a progress token."""
    meta = params.get("_meta")
    if isinstance(meta, LazyJSON):
        meta = open_object(meta) if meta.is_object else None
    meta = {key: value for key, value in meta.items() if key not in _CONNECTION_META_KEYS} if meta else {}
    if to_modern:
        meta |= {
            PROTOCOL_VERSION_KEY: MODERN_VERSION,
            CLIENT_INFO_KEY: client_info or SERVER_INFO,
            CLIENT_CAPABILITIES_KEY: capabilities or {},
        }
    bare = {key: value for key, value in params.items() if key != "_meta"}
    return {**bare, "_meta": meta} if meta else bare


def translate_result(method: str, result: Any, client_version: str) -> Any:
    """Return a server's result with the fields of the client's protocol version and with our server info.

    Large parts stay unparsed. The result itself is returned if nothing needs to change.
    """
    is_modern_client = is_modern(client_version)
    if isinstance(result, LazyJSON):
        if not result.is_object or not (is_modern_client or result.members(("resultType",))):
            return result
        result = open_object(result)
    if not isinstance(result, dict):
        return result
    if is_modern_client:
        kept = {key: result[key] for key in _MODERN_FIELDS if key in result}
        return {**add_result_fields(method, strip_server_fields(result), client_version, SERVER_INFO), **kept}
    if "resultType" not in result:
        return result
    return {key: value for key, value in strip_server_fields(result).items() if key not in _MODERN_FIELDS}


def open_object(value: LazyJSON) -> dict[str, Any]:
    """Return the members of a large object. Only its `_meta` is parsed further."""
    members: dict[str, Any] = value.parse(max_container_bytes=len(value), max_depth=1)
    meta = members.get("_meta")
    return {**members, "_meta": meta.parse()} if isinstance(meta, LazyJSON) else members
