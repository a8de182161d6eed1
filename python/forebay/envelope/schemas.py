"""JSON Schemas (2020-12) of envelopes, for call events and for receivers in other languages."""

from typing import Any

__all__ = [
    "HTTP_RESPONSE_META_SCHEMA",
    "LOCAL_RESPONSE_META_SCHEMA",
    "MCP_CONTENT_BLOCK_SCHEMA",
    "MCP_RESPONSE_META_SCHEMA",
    "RESPONSE_ENVELOPE_SCHEMA",
    "RESPONSE_META_SCHEMA",
]

_STRING: dict[str, Any] = {"type": "string"}
_OBJECT: dict[str, Any] = {"type": "object"}

_ANNOTATIONS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "audience": {"type": "array", "items": {"enum": ["user", "assistant"]}},
        "priority": {"type": "number"},
        "lastModified": _STRING,
    },
}


def _block(kind: str, required_properties: dict[str, Any], **optional: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"type": {"const": kind}, **required_properties, **optional, "annotations": _ANNOTATIONS},
        "required": ["type", *required_properties],
    }


_RESOURCE: dict[str, Any] = {
    "type": "object",
    "properties": {"uri": _STRING, "mimeType": _STRING, "text": _STRING, "blob": _STRING},
    "required": ["uri"],
}

MCP_CONTENT_BLOCK_SCHEMA: dict[str, Any] = {
    "anyOf": [
        _block("text", {"text": _STRING}),
        _block("image", {"data": _STRING, "mimeType": _STRING}),
        _block("audio", {"data": _STRING, "mimeType": _STRING}),
        _block("resource", {"resource": _RESOURCE}),
        _block("resource_link", {"uri": _STRING, "name": _STRING}, description=_STRING, mimeType=_STRING),
    ]
}


def _meta(source: str, required_properties: dict[str, Any], **optional: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"source": {"const": source}, **required_properties, **optional},
        "required": ["source", *required_properties],
    }


LOCAL_RESPONSE_META_SCHEMA = _meta("local", {"operationId": _STRING, "timestamp": {"type": "number"}})

HTTP_RESPONSE_META_SCHEMA = _meta(
    "http",
    {
        "statusCode": {"type": "integer"},
        "headers": {"type": "object", "additionalProperties": _STRING},
        "contentType": _STRING,
    },
)

MCP_RESPONSE_META_SCHEMA = _meta(
    "mcp",
    {"isError": {"type": "boolean"}, "content": {"type": "array", "items": MCP_CONTENT_BLOCK_SCHEMA}},
    # Any JSON value since 2026-07-28, an object before that.
    structuredContent={},
    _meta=_OBJECT,
)

RESPONSE_META_SCHEMA: dict[str, Any] = {
    "anyOf": [LOCAL_RESPONSE_META_SCHEMA, HTTP_RESPONSE_META_SCHEMA, MCP_RESPONSE_META_SCHEMA]
}

RESPONSE_ENVELOPE_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {"data": {"description": "What the operation answered"}, "meta": RESPONSE_META_SCHEMA},
    "required": ["data", "meta"],
}
