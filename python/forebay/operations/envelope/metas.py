"""Where a result came from, and what that source says of it. `source` tells them apart."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, get_args

from forebay.errors import InvalidArgument
from forebay.operations.envelope.blocks import MCPContentBlock, content_blocks

__all__ = [
    "RESPONSE_SOURCES",
    "HTTPResponseMeta",
    "LocalResponseMeta",
    "MCPResponseMeta",
    "ResponseMeta",
    "ResponseSource",
    "meta_from_dict",
]

ResponseSource: TypeAlias = Literal["local", "http", "mcp"]

RESPONSE_SOURCES: tuple[ResponseSource, ...] = get_args(ResponseSource)
"""All there are: a new one has to be added here to be taken for one."""


@dataclasses.dataclass(frozen=True, slots=True)
class LocalResponseMeta:
    """Of a function in this process."""

    operation_id: str
    timestamp: int
    """Milliseconds since 1970, when the result was wrapped."""
    source: Literal["local"] = "local"

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"source": "local", "operationId": self.operation_id, "timestamp": self.timestamp}


@dataclasses.dataclass(frozen=True, slots=True)
class HTTPResponseMeta:
    """Of a response over HTTP. Headers of several values are joined with `, `, and so are cookies."""

    status_code: int
    headers: Mapping[str, str]
    content_type: str
    source: Literal["http"] = "http"

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "source": "http",
            "statusCode": self.status_code,
            "headers": dict(self.headers),
            "contentType": self.content_type,
        }


@dataclasses.dataclass(frozen=True, slots=True)
class MCPResponseMeta:
    """Of a tool's result. `is_error` is the tool's own word: it ran, and failed."""

    is_error: bool
    content: list[MCPContentBlock]
    structured_content: Any = None
    meta: Mapping[str, Any] | None = None
    """What the protocol calls `_meta`."""
    source: Literal["mcp"] = "mcp"

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        told: dict[str, Any] = {"source": "mcp", "isError": self.is_error, "content": self.content}
        if self.structured_content is not None:
            told["structuredContent"] = self.structured_content
        if self.meta is not None:
            told["_meta"] = dict(self.meta)
        return told


ResponseMeta: TypeAlias = LocalResponseMeta | HTTPResponseMeta | MCPResponseMeta


def meta_from_dict(told: Mapping[str, Any]) -> ResponseMeta:
    """The meta that JSON tells of."""
    match told:
        case {"source": "local", "operationId": str(operation), "timestamp": int() | float() as timestamp} if (
            -_FAR < timestamp < _FAR
        ):
            return LocalResponseMeta(operation, int(timestamp))
        case {
            "source": "http",
            "statusCode": int(status),
            "headers": Mapping() as headers,
            "contentType": str(kind),
        } if not isinstance(status, bool):
            return HTTPResponseMeta(status, dict(headers), kind)
        case {"source": "mcp", "isError": bool(is_error), "content": list(content)} if isinstance(
            told.get("_meta", {}), Mapping
        ):
            return MCPResponseMeta(is_error, content_blocks(content), told.get("structuredContent"), told.get("_meta"))
        case {"source": "local" | "http" | "mcp" as source}:
            needed = _NEEDED[source]
            raise InvalidArgument(f"the meta of a {source} envelope has {needed}; {source}_envelope() makes one")
    raise InvalidArgument(f"source is one of {', '.join(RESPONSE_SOURCES)}, not {str(told.get('source'))[:32]!r}")


_FAR = 1e18
"""Milliseconds beyond which no time is."""

_NEEDED = {
    "local": "operationId and timestamp",
    "http": "statusCode, headers and contentType",
    "mcp": "isError and content",
}
