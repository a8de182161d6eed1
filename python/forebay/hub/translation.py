"""Translation between the protocol eras.

Up to 2025-11-25 a connection starts with a handshake (`initialize`), and servers send requests to their clients. Since
2026-07-28 each request says in its `_meta` who sends it, and a server asks its client by an `input_required` result.
"""

from collections.abc import Mapping
from typing import Any

import forebay
from forebay.outputs.result import strip_server_fields
from forebay.wire.lazy_json import LazyJSON
from forebay.wire.protocol import (
    CLIENT_CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    MODERN_VERSION,
    PROTOCOL_VERSION_KEY,
    add_result_fields,
    is_modern,
)

__all__ = ["SERVER_INFO", "translate_params", "translate_result"]

SERVER_INFO = {"name": "forebay", "version": forebay.__version__}

_CONNECTION_META_KEYS = (PROTOCOL_VERSION_KEY, CLIENT_INFO_KEY, CLIENT_CAPABILITIES_KEY, "progressToken")
"""Members of `_meta` that mean something only on the connection of the client."""

_MODERN_FIELDS = ("resultType", "ttlMs", "cacheScope")


def translate_params(
    params: Mapping[str, Any], *, to_modern: bool, client_info: object = None, capabilities: object = None
) -> dict[str, Any]:
    """Return the params of a request in the other protocol era, without a progress token."""
    meta = params.get("_meta")
    if isinstance(meta, LazyJSON):
        meta = meta.open_object() if meta.is_object else None
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
        result = result.open_object()
    if not isinstance(result, dict):
        return result
    if is_modern_client:
        kept = {key: result[key] for key in _MODERN_FIELDS if key in result}
        return {**add_result_fields(method, strip_server_fields(result), client_version, SERVER_INFO), **kept}
    if "resultType" not in result:
        return result
    return {key: value for key, value in strip_server_fields(result).items() if key not in _MODERN_FIELDS}
