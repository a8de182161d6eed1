"""Response envelopes and their JSON Schemas. An envelope holds the data of a result and metadata of its source.

Content blocks of tools are plain dicts with wire keys, the keys of the JSON that is sent (`mimeType`, not `mime_type`).
Unknown keys are preserved. This module does not need the `mcp` package.
"""

import dataclasses
import time
from collections.abc import Iterable, Mapping
from typing import Any, Generic, Literal, NotRequired, TypeAlias, TypedDict, TypeVar, cast, get_args

from typing_extensions import TypeIs

from forebay.envelope.body import dump, dump_reversible, from_jsonable, parse
from forebay.errors import InvalidArgument
from forebay.store.payload import encode

__all__ = [
    "HTTP_RESPONSE_META_SCHEMA",
    "LOCAL_RESPONSE_META_SCHEMA",
    "MAX_EPOCH_MS",
    "MCP_CONTENT_BLOCK_SCHEMA",
    "MCP_RESPONSE_META_SCHEMA",
    "RESPONSE_ENVELOPE_SCHEMA",
    "RESPONSE_META_SCHEMA",
    "RESPONSE_SOURCES",
    "HTTPResponseMeta",
    "LocalResponseMeta",
    "MCPAnnotations",
    "MCPAudioBlock",
    "MCPContentBlock",
    "MCPImageBlock",
    "MCPResourceBlock",
    "MCPResourceContent",
    "MCPResourceLink",
    "MCPResponseMeta",
    "MCPTextBlock",
    "ResponseEnvelope",
    "ResponseMeta",
    "ResponseSource",
    "content_block",
    "content_blocks",
    "http_envelope",
    "is_response_envelope",
    "local_envelope",
    "make_object_schema",
    "mcp_envelope",
    "meta_from_dict",
    "unwrap",
]


class MCPAnnotations(TypedDict, total=False):
    """The intended audience and the priority of a block."""

    audience: list[Literal["user", "assistant"]]
    priority: float
    lastModified: str


class MCPTextBlock(TypedDict):
    """A text block."""

    type: Literal["text"]
    text: str
    annotations: NotRequired[MCPAnnotations]


class MCPImageBlock(TypedDict):
    """An image in base64."""

    type: Literal["image"]
    data: str
    mimeType: str
    annotations: NotRequired[MCPAnnotations]


class MCPAudioBlock(TypedDict):
    """Audio in base64."""

    type: Literal["audio"]
    data: str
    mimeType: str
    annotations: NotRequired[MCPAnnotations]


class MCPResourceContent(TypedDict):
    """The content of a resource: text, or a blob in base64."""

    uri: str
    mimeType: NotRequired[str]
    text: NotRequired[str]
    blob: NotRequired[str]


class MCPResourceBlock(TypedDict):
    """An embedded resource."""

    type: Literal["resource"]
    resource: MCPResourceContent
    annotations: NotRequired[MCPAnnotations]


class MCPResourceLink(TypedDict):
    """A link to a resource."""

    type: Literal["resource_link"]
    uri: str
    name: str
    description: NotRequired[str]
    mimeType: NotRequired[str]
    annotations: NotRequired[MCPAnnotations]


MCPContentBlock: TypeAlias = MCPTextBlock | MCPImageBlock | MCPAudioBlock | MCPResourceBlock | MCPResourceLink


def content_block(block: object) -> MCPContentBlock:
    """Return a block as a plain dict. A block of an unknown type becomes a text block with its JSON."""
    wire_block = _to_wire_dict(block)
    match wire_block:
        case (
            {"type": "text", "text": str()}
            | {"type": "image" | "audio", "data": str(), "mimeType": str()}
            | {"type": "resource", "resource": {"uri": str()}}
            | {"type": "resource_link", "uri": str(), "name": str()}
        ):
            return cast("MCPContentBlock", wire_block)
    return {"type": "text", "text": dump(wire_block).decode()}


def content_blocks(blocks: Iterable[object] | None) -> list[MCPContentBlock]:
    """Return all blocks as plain dicts."""
    return [content_block(block) for block in blocks or ()]


def _to_wire_dict(block: object) -> Any:
    """Return a mapping or a pydantic model as a dict with wire keys, anything else unchanged."""
    if isinstance(block, dict):
        return block
    if isinstance(block, Mapping):
        return dict(block)
    model_dump = getattr(block, "model_dump", None)
    return block if model_dump is None else model_dump(mode="json", by_alias=True, exclude_none=True)


ResponseSource: TypeAlias = Literal["local", "http", "mcp"]

RESPONSE_SOURCES: tuple[ResponseSource, ...] = get_args(ResponseSource)
"""All sources; `is_response_envelope` accepts no others."""


@dataclasses.dataclass(frozen=True, slots=True)
class LocalResponseMeta:
    """Metadata of a result of a function in this process."""

    operation_id: str
    timestamp: int
    """When the result was wrapped, in milliseconds since 1970."""
    source: Literal["local"] = "local"

    def to_dict(self) -> dict[str, Any]:
        """Return a dict with wire keys."""
        return {"source": "local", "operationId": self.operation_id, "timestamp": self.timestamp}


@dataclasses.dataclass(frozen=True, slots=True)
class HTTPResponseMeta:
    """Metadata of an HTTP response. Repeated headers, cookies included, are joined with `, `."""

    status_code: int
    headers: Mapping[str, str]
    content_type: str
    source: Literal["http"] = "http"

    def to_dict(self) -> dict[str, Any]:
        """Return a dict with wire keys."""
        return {
            "source": "http",
            "statusCode": self.status_code,
            "headers": dict(self.headers),
            "contentType": self.content_type,
        }


@dataclasses.dataclass(frozen=True, slots=True)
class MCPResponseMeta:
    """Metadata of an MCP tool result. `is_error` means that the tool ran and reported a failure."""

    is_error: bool
    content: list[MCPContentBlock]
    structured_content: Any = None
    meta: Mapping[str, Any] | None = None
    """The protocol's `_meta`."""
    source: Literal["mcp"] = "mcp"

    def to_dict(self) -> dict[str, Any]:
        """Return a dict with wire keys."""
        data: dict[str, Any] = {"source": "mcp", "isError": self.is_error, "content": self.content}
        if self.structured_content is not None:
            data["structuredContent"] = self.structured_content
        if self.meta is not None:
            data["_meta"] = dict(self.meta)
        return data


ResponseMeta: TypeAlias = LocalResponseMeta | HTTPResponseMeta | MCPResponseMeta


def meta_from_dict(data: Mapping[str, Any]) -> ResponseMeta:
    """Read the metadata of an envelope from a dict. Raises `InvalidArgument` if the dict is incomplete."""
    match data:
        case {"source": "local", "operationId": str(operation_id), "timestamp": int() | float() as timestamp} if (
            -MAX_EPOCH_MS < timestamp < MAX_EPOCH_MS
        ):
            return LocalResponseMeta(operation_id, int(timestamp))
        case {
            "source": "http",
            "statusCode": int(status),
            "headers": Mapping() as headers,
            "contentType": str(content_type),
        } if not isinstance(status, bool):
            return HTTPResponseMeta(status, dict(headers), content_type)
        case {"source": "mcp", "isError": bool(is_error), "content": list(content)} if isinstance(
            data.get("_meta", {}), Mapping
        ):
            return MCPResponseMeta(is_error, content_blocks(content), data.get("structuredContent"), data.get("_meta"))
        case {"source": "local" | "http" | "mcp" as source}:
            needed = _REQUIRED_KEYS[source]
            raise InvalidArgument(f"the meta of a {source} envelope has {needed}; {source}_envelope() makes one")
    raise InvalidArgument(f"source is one of {', '.join(RESPONSE_SOURCES)}, not {str(data.get('source'))[:32]!r}")


MAX_EPOCH_MS = 1e18
"""Maximum timestamp, in milliseconds since 1970."""

_REQUIRED_KEYS = {
    "local": "operationId and timestamp",
    "http": "statusCode, headers and contentType",
    "mcp": "isError and content",
}


_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True, slots=True)
class ResponseEnvelope(Generic[_T]):
    """The data of a result and the metadata of its source."""

    data: _T
    meta: ResponseMeta

    @property
    def is_error(self) -> bool:
        """Whether a tool ran and reported a failure. Failures of other sources are raised instead."""
        return isinstance(self.meta, MCPResponseMeta) and self.meta.is_error

    def to_dict(self) -> dict[str, Any]:
        """Return a dict with wire keys; the data itself is not converted."""
        return {"data": self.data, "meta": self.meta.to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ResponseEnvelope[Any]":
        """Read an envelope from a dict with wire keys. Raises `InvalidArgument` for anything else."""
        if not isinstance(data, Mapping) or "data" not in data or not isinstance(data.get("meta"), Mapping):
            raise InvalidArgument("an envelope has data, and meta with its source")
        return ResponseEnvelope(data["data"], meta_from_dict(data["meta"]))

    def to_json(self) -> bytes:
        """Dump the envelope as JSON. Bytes become `{"$base64": …}`, JSON bodies are embedded unchanged."""
        return b'{"data":' + dump_reversible(self.data) + b',"meta":' + encode(self.meta.to_dict()) + b"}"

    @classmethod
    def from_json(cls, data: bytes | str) -> "ResponseEnvelope[Any]":
        """Read an envelope that `to_json` wrote. Raises `InvalidArgument` for anything else."""
        try:
            content = data.encode() if isinstance(data, str) else data
            value = parse(content)
        except ValueError as error:
            raise InvalidArgument(f"this is not JSON: {error}") from None
        envelope = cls.from_dict(value)
        return dataclasses.replace(envelope, data=from_jsonable(envelope.data, content))


def is_response_envelope(value: object) -> TypeIs["ResponseEnvelope[Any] | Mapping[str, Any]"]:
    """Return whether a value is an envelope, or a dict with `data` and a known `meta.source`."""
    if isinstance(value, ResponseEnvelope):
        return True
    if not isinstance(value, Mapping) or "data" not in value:
        return False
    meta = value.get("meta")
    return isinstance(meta, Mapping) and meta.get("source") in RESPONSE_SOURCES


def local_envelope(data: _T, operation_id: str) -> ResponseEnvelope[_T]:
    """Wrap the result of a function in this process, with the current time."""
    return ResponseEnvelope(data, LocalResponseMeta(operation_id, time.time_ns() // 1_000_000))


def http_envelope(data: _T, *, status_code: int, headers: Mapping[str, str], content_type: str) -> ResponseEnvelope[_T]:
    """Wrap the data of an HTTP response."""
    return ResponseEnvelope(data, HTTPResponseMeta(status_code, dict(headers), content_type))


def mcp_envelope(
    data: _T,
    *,
    is_error: bool = False,
    content: Iterable[object] = (),
    structured_content: Any = None,
    meta: Mapping[str, Any] | None = None,
) -> ResponseEnvelope[_T]:
    """Wrap the data of a tool result."""
    return ResponseEnvelope(data, MCPResponseMeta(is_error, content_blocks(content), structured_content, meta))


def unwrap(envelope: ResponseEnvelope[_T]) -> _T:
    """Return the data of an envelope."""
    return envelope.data


# JSON Schemas (2020-12) of envelopes, for call events and for receivers in other languages.

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


def make_object_schema(required_properties: dict[str, Any], **optional_properties: Any) -> dict[str, Any]:
    """Return the JSON Schema of an object with these properties."""
    return {
        "type": "object",
        "properties": {**required_properties, **optional_properties},
        "required": [*required_properties],
    }


def _make_block_schema(
    block_type: str, required_properties: dict[str, Any], **optional_properties: Any
) -> dict[str, Any]:
    return make_object_schema(
        {"type": {"const": block_type}, **required_properties}, **optional_properties, annotations=_ANNOTATIONS
    )


_RESOURCE = make_object_schema({"uri": _STRING}, mimeType=_STRING, text=_STRING, blob=_STRING)

MCP_CONTENT_BLOCK_SCHEMA: dict[str, Any] = {
    "anyOf": [
        _make_block_schema("text", {"text": _STRING}),
        _make_block_schema("image", {"data": _STRING, "mimeType": _STRING}),
        _make_block_schema("audio", {"data": _STRING, "mimeType": _STRING}),
        _make_block_schema("resource", {"resource": _RESOURCE}),
        _make_block_schema("resource_link", {"uri": _STRING, "name": _STRING}, description=_STRING, mimeType=_STRING),
    ]
}

LOCAL_RESPONSE_META_SCHEMA = make_object_schema(
    {"source": {"const": "local"}, "operationId": _STRING, "timestamp": {"type": "number"}}
)

HTTP_RESPONSE_META_SCHEMA = make_object_schema(
    {
        "source": {"const": "http"},
        "statusCode": {"type": "integer"},
        "headers": {"type": "object", "additionalProperties": _STRING},
        "contentType": _STRING,
    },
)

MCP_RESPONSE_META_SCHEMA = make_object_schema(
    {
        "source": {"const": "mcp"},
        "isError": {"type": "boolean"},
        "content": {"type": "array", "items": MCP_CONTENT_BLOCK_SCHEMA},
    },
    # Structured content is any JSON value since protocol version 2026-07-28, an object before that.
    structuredContent={},
    _meta=_OBJECT,
)

RESPONSE_META_SCHEMA: dict[str, Any] = {
    "anyOf": [LOCAL_RESPONSE_META_SCHEMA, HTTP_RESPONSE_META_SCHEMA, MCP_RESPONSE_META_SCHEMA]
}

RESPONSE_ENVELOPE_SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    **make_object_schema({"data": {"description": "What the operation answered"}, "meta": RESPONSE_META_SCHEMA}),
}
