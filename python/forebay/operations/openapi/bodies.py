"""Request bodies: which of the content types that a document offers is sent, and how it is written."""

import base64
import binascii
import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias

import httpx2

from forebay.operations.envelope.body import says_json
from forebay.operations.errors import CallError
from forebay.operations.openapi import styles
from forebay.operations.openapi.document import Document
from forebay.operations.openapi.schemas import BASE64, Bundle, is_binary
from forebay.operations.validation import Schema

__all__ = ["RequestBody", "read_body"]

_Kind: TypeAlias = Literal["json", "form", "multipart", "text", "binary"]

_Part: TypeAlias = tuple[str, tuple[str | None, bytes, str | None]]

_CHARSET = re.compile(r"""charset\s*=\s*["']?([^\s;"']+)["']?""", re.IGNORECASE)

_TEXTS = frozenset({"application/xml", "application/yaml", "application/graphql", "application/javascript"})


@dataclasses.dataclass(frozen=True, slots=True)
class RequestBody:
    """The body of an operation, in the one content type that is sent."""

    kind: _Kind
    content_type: str
    schema: Any
    properties: Mapping[str, Any]
    """Of a form: the schema of each field."""
    encoding: Mapping[str, Any]
    is_required: bool
    description: str

    def input_schema(self, bundle: Bundle) -> Schema:
        """What `body` may be in the input."""
        if self.kind == "binary":
            return BASE64
        converted = bundle.converted(self.schema)
        return {"type": "string"} if self.kind == "text" and converted == {} else converted

    def written(self, given: Any) -> tuple[bytes, str]:
        """The bytes of a body, and what they are said to be."""
        match self.kind:
            case "json":
                return _json(given), _in_utf8(self.content_type)
            case "form":
                return self._form(given), self.content_type
            case "multipart":
                return _multipart(list(self._parts(given)))
            case "text":
                return _text(given, self.content_type)
        return _bytes(given, "body"), self.content_type

    def _form(self, given: Any) -> bytes:
        pairs: styles.Pairs = []
        for name, value in _fields(given):
            how = self._encoding(name)
            if value is None:
                continue
            is_json = isinstance(value, Mapping) or (
                isinstance(value, list | tuple) and says_json(str(how.get("contentType")))
            )
            if is_json and not {"style", "explode"} & how.keys():
                value = styles.as_json(value).decode()
            style = how.get("style", "form")
            explode = how.get("explode", style in ("form", "deepObject"))
            pairs += styles.pairs(name, value, style, explode, allow_reserved=how.get("allowReserved") is True)
        return "&".join(f"{name}={value}" for name, value in pairs).encode()

    def _parts(self, given: Any) -> Iterator[_Part]:
        for name, value in _fields(given):
            schema = self.properties.get(name, {})
            for each in value if isinstance(value, list | tuple) else [value]:
                if each is not None:
                    yield name, self._part(name, each, is_binary(schema))

    def _part(self, name: str, value: Any, is_file: bool) -> tuple[str | None, bytes, str | None]:
        said = str(self._encoding(name).get("contentType") or "").partition(",")[0].strip()
        said = "" if "*" in said else said
        match value:
            case {"content": content} if is_file:
                kind = value.get("contentType") or said or "application/octet-stream"
                return value.get("filename") or name, _bytes(content, name), kind
            case bytes():
                return name, value, said or "application/octet-stream"
            case Mapping():
                return None, _json(value), said or "application/json"
            case _ if is_file:
                return name, _bytes(value, name), said or "application/octet-stream"
        return None, styles.as_text(value).encode("utf-8", "surrogatepass"), said or None

    def _encoding(self, name: str) -> Mapping[str, Any]:
        how = self.encoding.get(name)
        return how if isinstance(how, Mapping) else {}


def read_body(document: Document, node: Any) -> RequestBody | None:
    """The body that an operation takes: as JSON if that is offered, else in the first type that is."""
    if node is None:
        return None
    body = document.resolved(node, "a request body")
    offers = document.resolved(body.get("content") or {}, "the content of a request body")
    content = {str(kind): media for kind, media in offers.items()}
    if not content:
        return None
    offered = next((each for each in content if _kind(each) == "json"), next(iter(content)))
    media = document.resolved(content[offered] or {}, f"the content {offered}")
    kind, schema = _kind(offered), media.get("schema", {})
    return RequestBody(
        kind=kind,
        content_type=_concrete(offered, kind),
        schema=schema,
        properties=dict(_properties(document, schema)) if kind == "multipart" else {},
        encoding=document.resolved(media.get("encoding") or {}, "an encoding"),
        is_required=body.get("required") is True,
        description=str(body.get("description") or ""),
    )


def _kind(content_type: str) -> _Kind:
    kind = content_type.partition(";")[0].strip().lower()
    if says_json(kind) or kind in ("*/*", "application/*"):
        return "json"
    if kind == "application/x-www-form-urlencoded":
        return "form"
    if kind == "multipart/form-data":
        return "multipart"
    return "text" if kind.startswith("text/") or kind.endswith("+xml") or kind in _TEXTS else "binary"


def _concrete(content_type: str, kind: _Kind) -> str:
    if "*" not in content_type:
        return f"{content_type}; charset=utf-8" if kind == "text" and "charset" not in content_type else content_type
    return {"json": "application/json", "text": "text/plain; charset=utf-8"}.get(kind, "application/octet-stream")


def _properties(document: Document, schema: Any, depth: int = 8) -> Iterator[tuple[str, Any]]:
    """The fields of a form, also those of what it is made of, each with the schema of one of its values."""
    if not isinstance(schema, Mapping) or not depth:
        return
    found = document.resolved(schema, "a schema")
    several, properties = found.get("allOf"), found.get("properties")
    for inner in several if isinstance(several, list) else ():
        yield from _properties(document, inner, depth - 1)
    for name, node in properties.items() if isinstance(properties, Mapping) else ():
        one = document.resolved(node, f"property {name}") if isinstance(node, Mapping) else {}
        items = one.get("items")
        yield name, document.resolved(items, f"items of {name}") if isinstance(items, Mapping) else one


def _fields(given: Any) -> list[tuple[str, Any]]:
    if not isinstance(given, Mapping):
        told = type(given).__name__
        raise CallError("VALIDATION_ERROR", f"body is a form: give an object with its fields, not {told}")
    return [(str(name), value) for name, value in given.items()]


def _json(given: Any) -> bytes:
    try:
        return styles.as_json(given)
    except (TypeError, ValueError) as error:
        raise CallError("VALIDATION_ERROR", f"body cannot be written as JSON: {error!s:.200}") from None


def _text(given: Any, content_type: str) -> tuple[bytes, str]:
    """In the charset that is asked for, or in UTF-8 if that has no such characters, or there is none of the name."""
    if isinstance(given, bytes):
        return given, content_type
    text, charset = styles.as_text(given), _CHARSET.search(content_type)
    try:
        return text.encode(charset[1] if charset else "utf-8"), content_type
    except (LookupError, UnicodeError):
        return text.encode("utf-8", "surrogatepass"), _in_utf8(content_type)


def _in_utf8(content_type: str) -> str:
    return _CHARSET.sub("charset=utf-8", content_type)


def _bytes(given: Any, what: str) -> bytes:
    if isinstance(given, bytes):
        return given
    if not isinstance(given, str):
        raise CallError("VALIDATION_ERROR", f"{what} is a {type(given).__name__}; read it, and give bytes")
    try:
        return base64.b64decode("".join(given.split()), validate=True)
    except (binascii.Error, ValueError):
        told = f"{what} is not base64; encode what it should hold, or give bytes"
        raise CallError("VALIDATION_ERROR", told) from None


def _multipart(parts: list[_Part]) -> tuple[bytes, str]:
    if not parts:
        raise CallError("VALIDATION_ERROR", "body is a form of several parts: give at least one field")
    try:
        written = httpx2.Request("POST", "http://localhost/", files=parts)
    except (TypeError, ValueError) as error:
        raise CallError("VALIDATION_ERROR", f"body cannot be written: {error!s:.200}") from None
    return written.read(), written.headers["Content-Type"]
