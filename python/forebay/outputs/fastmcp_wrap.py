"""What fastmcp's client goes by when it makes `data` of an answer. Servers of fastmcp say it, wherever forebay is."""

from collections.abc import Mapping
from typing import Any

from forebay.outputs.listing import HANDLE_SCHEMA, or_handle
from forebay.outputs.result import Result

__all__ = ["is_of_fastmcp", "or_handle_typed", "without_wrap"]

_WRAPS = "x-fastmcp-wrap-result"
"""What fastmcp says in an output schema of a tool whose answer it puts under `result`."""

_PLAIN = {"type", "properties", "required", "additionalProperties", "title", "description", "$defs", _WRAPS}

_HANDLE_PROPERTIES: dict[str, Any] = {"output_handle": {"type": "string"}, "fetch_with": {"type": "string"}}


def is_of_fastmcp(tool: Mapping[str, Any]) -> bool:
    """Whether a tool is listed by a server of fastmcp."""
    meta, schema = tool.get("_meta"), tool.get("outputSchema")
    return (isinstance(meta, dict) and "fastmcp" in meta) or (isinstance(schema, dict) and _WRAPS in schema)


def or_handle_typed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """What `or_handle` means, said in a way that fastmcp's client makes `data` of: it looks for properties at the top.

    That an answer is under `result` each answer says itself, and a handle does not.
    """
    if not _is_plain(schema):
        return or_handle(schema)
    rest = {key: value for key, value in schema.items() if key not in ("required", _WRAPS)}
    rest["properties"] = {**schema["properties"], **_HANDLE_PROPERTIES}
    return {**rest, "type": "object", "anyOf": [{"required": schema.get("required", [])}, HANDLE_SCHEMA]}


def _is_plain(schema: Mapping[str, Any]) -> bool:
    """Whether a schema says of an object only what its properties are."""
    properties = schema.get("properties") or {}
    return schema.keys() <= _PLAIN and bool(properties) and not properties.keys() & _HANDLE_PROPERTIES.keys()


def without_wrap(result: Result) -> Result:
    """Without fastmcp's word that what is structured is under `result`: of a handle that is not so."""
    meta = result.get("_meta")
    said = meta.get("fastmcp") if isinstance(meta, dict) else None
    if not isinstance(meta, dict) or not isinstance(said, dict) or "wrap_result" not in said:
        return result
    kept = {key: value for key, value in meta.items() if key != "fastmcp"}
    rest = {key: value for key, value in said.items() if key != "wrap_result"}
    return {**result, "_meta": {**kept, **({"fastmcp": rest} if rest else {})}}
