"""The envelope: data and meta, made by three factories, told by `source` alone."""

import dataclasses
import time
from collections.abc import Iterable, Mapping
from typing import Any, Generic, TypeVar

from typing_extensions import TypeIs

from forebay.errors import InvalidArgument
from forebay.operations.envelope.blocks import content_blocks
from forebay.operations.envelope.body import from_plain, parsed, written
from forebay.operations.envelope.metas import (
    RESPONSE_SOURCES,
    HTTPResponseMeta,
    LocalResponseMeta,
    MCPResponseMeta,
    ResponseMeta,
    meta_from_dict,
)
from forebay.store.payload import encoded

__all__ = [
    "ResponseEnvelope",
    "http_envelope",
    "is_response_envelope",
    "local_envelope",
    "mcp_envelope",
    "unwrap",
]

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
    def from_dict(cls, told: Mapping[str, Any]) -> "ResponseEnvelope[Any]":
        """The envelope that a dict tells of. Raises `InvalidArgument` for what is none."""
        if not isinstance(told, Mapping) or "data" not in told or not isinstance(told.get("meta"), Mapping):
            raise InvalidArgument("an envelope has data, and meta with its source")
        return ResponseEnvelope(told["data"], meta_from_dict(told["meta"]))

    def to_json(self) -> bytes:
        """The envelope as JSON. Bytes are `{"$base64": …}`, and a JSON body stands in it as it came."""
        return b'{"data":' + written(self.data) + b',"meta":' + encoded(self.meta.to_dict()) + b"}"

    @classmethod
    def from_json(cls, data: bytes | str) -> "ResponseEnvelope[Any]":
        """The envelope that was written with `to_json`."""
        try:
            content = data.encode() if isinstance(data, str) else data
            told = parsed(content)
        except ValueError as error:
            raise InvalidArgument(f"this is not JSON: {error}") from None
        envelope = cls.from_dict(told)
        return dataclasses.replace(envelope, data=from_plain(envelope.data, content))


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
