"""Content blocks of tool results. They are our own types: nothing here needs the `mcp` package.

A block is a plain dict with the keys that it has on the wire, so what is not known of it yet is kept with it.
"""

import dataclasses
import time
from collections.abc import Iterable, Mapping
from typing import Any, Generic, Literal, NotRequired, TypeAlias, TypedDict, TypeVar, cast, get_args

from typing_extensions import TypeIs

from forebay.errors import InvalidArgument
from forebay.operations.envelope.body import dump, dump_reversible, from_jsonable, parse
from forebay.store.payload import encode

__all__ = [
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
    "mcp_envelope",
    "meta_from_dict",
    "unwrap",
]


class MCPAnnotations(TypedDict, total=False):
    """For whom a block is, and how much it matters."""

    audience: list[Literal["user", "assistant"]]
    priority: float
    lastModified: str


class MCPTextBlock(TypedDict):
    """Text."""

    type: Literal["text"]
    text: str
    annotations: NotRequired[MCPAnnotations]


class MCPImageBlock(TypedDict):
    """A picture, in base64."""

    type: Literal["image"]
    data: str
    mimeType: str
    annotations: NotRequired[MCPAnnotations]


class MCPAudioBlock(TypedDict):
    """A sound, in base64."""

    type: Literal["audio"]
    data: str
    mimeType: str
    annotations: NotRequired[MCPAnnotations]


class MCPResourceContent(TypedDict):
    """What a resource holds: text, or a blob in base64."""

    uri: str
    mimeType: NotRequired[str]
    text: NotRequired[str]
    blob: NotRequired[str]


class MCPResourceBlock(TypedDict):
    """A resource that is embedded."""

    type: Literal["resource"]
    resource: MCPResourceContent
    annotations: NotRequired[MCPAnnotations]


class MCPResourceLink(TypedDict):
    """A resource that can be read."""

    type: Literal["resource_link"]
    uri: str
    name: str
    description: NotRequired[str]
    mimeType: NotRequired[str]
    annotations: NotRequired[MCPAnnotations]


MCPContentBlock: TypeAlias = MCPTextBlock | MCPImageBlock | MCPAudioBlock | MCPResourceBlock | MCPResourceLink


def content_block(block: object) -> MCPContentBlock:
    """A block of a result, as a plain dict; one of a type that is not known here becomes text with its JSON."""
    plain = _to_plain(block)
    match plain:
        case (
            {"type": "text", "text": str()}
            | {"type": "image" | "audio", "data": str(), "mimeType": str()}
            | {"type": "resource", "resource": {"uri": str()}}
            | {"type": "resource_link", "uri": str(), "name": str()}
        ):
            return cast("MCPContentBlock", plain)
    return {"type": "text", "text": dump(plain).decode()}


def content_blocks(blocks: Iterable[object] | None) -> list[MCPContentBlock]:
    """All of them; a result without any has none."""
    return [content_block(block) for block in blocks or ()]


def _to_plain(block: object) -> Any:
    """A block as the wire has it, also if an SDK made a model of it."""
    if isinstance(block, dict):
        return block
    if isinstance(block, Mapping):
        return dict(block)
    dump = getattr(block, "model_dump", None)
    return block if dump is None else dump(mode="json", by_alias=True, exclude_none=True)


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


def meta_from_dict(data: Mapping[str, Any]) -> ResponseMeta:
    """The meta that JSON tells of."""
    match data:
        case {"source": "local", "operationId": str(operation), "timestamp": int() | float() as timestamp} if (
            -_MAX_EPOCH_MS < timestamp < _MAX_EPOCH_MS
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
            data.get("_meta", {}), Mapping
        ):
            return MCPResponseMeta(is_error, content_blocks(content), data.get("structuredContent"), data.get("_meta"))
        case {"source": "local" | "http" | "mcp" as source}:
            needed = _REQUIRED_KEYS[source]
            raise InvalidArgument(f"the meta of a {source} envelope has {needed}; {source}_envelope() makes one")
    raise InvalidArgument(f"source is one of {', '.join(RESPONSE_SOURCES)}, not {str(data.get('source'))[:32]!r}")


_MAX_EPOCH_MS = 1e18
"""Milliseconds beyond which no time is."""

_REQUIRED_KEYS = {
    "local": "operationId and timestamp",
    "http": "statusCode, headers and contentType",
    "mcp": "isError and content",
}


_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True, slots=True)
class ResponseEnvelope(Generic[_T]):
    """What an operation answered, and what its source says of that."""

    data: _T
    meta: ResponseMeta

    @property
    def is_error(self) -> bool:
        """Whether it is the result of a tool that ran and failed. No other source has such results: they raise."""
        return isinstance(self.meta, MCPResponseMeta) and self.meta.is_error

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it, but for the data, which is as it is."""
        return {"data": self.data, "meta": self.meta.to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "ResponseEnvelope[Any]":
        """The envelope that a dict tells of. Raises `InvalidArgument` for what is none."""
        if not isinstance(data, Mapping) or "data" not in data or not isinstance(data.get("meta"), Mapping):
            raise InvalidArgument("an envelope has data, and meta with its source")
        return ResponseEnvelope(data["data"], meta_from_dict(data["meta"]))

    def to_json(self) -> bytes:
        """The envelope as JSON. Bytes are `{"$base64": …}`, and a JSON body stands in it as it came."""
        return b'{"data":' + dump_reversible(self.data) + b',"meta":' + encode(self.meta.to_dict()) + b"}"

    @classmethod
    def from_json(cls, data: bytes | str) -> "ResponseEnvelope[Any]":
        """The envelope that was written with `to_json`."""
        try:
            content = data.encode() if isinstance(data, str) else data
            told = parse(content)
        except ValueError as error:
            raise InvalidArgument(f"this is not JSON: {error}") from None
        envelope = cls.from_dict(told)
        return dataclasses.replace(envelope, data=from_jsonable(envelope.data, content))


def is_response_envelope(value: object) -> TypeIs["ResponseEnvelope[Any] | Mapping[str, Any]"]:
    """Whether a value is an envelope, or was one before it became JSON: `meta.source` is one of ours."""
    if isinstance(value, ResponseEnvelope):
        return True
    if not isinstance(value, Mapping) or "data" not in value:
        return False
    meta = value.get("meta")
    return isinstance(meta, Mapping) and meta.get("source") in RESPONSE_SOURCES


def local_envelope(data: _T, operation_id: str) -> ResponseEnvelope[_T]:
    """Around what a function in this process returned, now."""
    return ResponseEnvelope(data, LocalResponseMeta(operation_id, time.time_ns() // 1_000_000))


def http_envelope(data: _T, *, status_code: int, headers: Mapping[str, str], content_type: str) -> ResponseEnvelope[_T]:
    """Around what a response over HTTP carried."""
    return ResponseEnvelope(data, HTTPResponseMeta(status_code, dict(headers), content_type))


def mcp_envelope(
    data: _T,
    *,
    is_error: bool = False,
    content: Iterable[object] = (),
    structured_content: Any = None,
    meta: Mapping[str, Any] | None = None,
) -> ResponseEnvelope[_T]:
    """Around what a tool answered."""
    return ResponseEnvelope(data, MCPResponseMeta(is_error, content_blocks(content), structured_content, meta))


def unwrap(envelope: ResponseEnvelope[_T]) -> _T:
    """The data, where nothing else matters."""
    return envelope.data
