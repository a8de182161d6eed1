"""Request bodies: which of the content types that a document offers is sent, and how it is written."""

import base64
import binascii
import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias

import httpx2

from forebay.operations.envelope.body import is_json_type
from forebay.operations.errors import CallError
from forebay.operations.openapi import styles
from forebay.operations.openapi.document import Document
from forebay.operations.openapi.schemas import BASE64, SchemaBundle, holds_file
from forebay.operations.validation import Schema

__all__ = ["RequestBody", "read_body"]

_Kind: TypeAlias = Literal["json", "form", "multipart", "text", "binary"]

_Part: TypeAlias = tuple[str, tuple[str | None, bytes, str | None]]

_CHARSET = re.compile(r"""charset\s*=\s*["']?([^\s;"']+)["']?""", re.IGNORECASE)

_TEXT_TYPES = frozenset({"application/xml", "application/yaml", "application/graphql", "application/javascript"})


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

    def input_schema(self, bundle: SchemaBundle) -> Schema:
        """What `body` may be in the input."""
        if self.kind == "binary":
            return BASE64
        converted = bundle.convert(self.schema)
        return {"type": "string"} if self.kind == "text" and converted == {} else converted

    def encode(self, given: Any) -> tuple[bytes, str]:
        """The bytes of a body, and what they are said to be."""
        match self.kind:
            case "json":
                return _dump_json(given), _with_utf8_charset(self.content_type)
            case "form":
                return self._encode_form(given), self.content_type
            case "multipart":
                return _encode_multipart(list(self._encode_parts(given)))
            case "text":
                return _encode_text(given, self.content_type)
        return _decode_bytes(given, "body"), self.content_type

    def _encode_form(self, given: Any) -> bytes:
        pairs: styles.Pairs = []
        for name, value in _form_fields(given):
            how = self._field_encoding(name)
            if value is None:
                continue
            is_json = isinstance(value, Mapping) or (
                isinstance(value, list | tuple) and is_json_type(str(how.get("contentType")))
            )
            if is_json and not {"style", "explode"} & how.keys():
                value = styles.dump_strict(value).decode()
            style = how.get("style", "form")
            explode = how.get("explode", style in ("form", "deepObject"))
            pairs += styles.format_pairs(name, value, style, explode, allow_reserved=how.get("allowReserved") is True)
        return "&".join(f"{name}={value}" for name, value in pairs).encode()

    def _encode_parts(self, given: Any) -> Iterator[_Part]:
        for name, value in _form_fields(given):
            schema = self.properties.get(name, {})
            for each in value if isinstance(value, list | tuple) else [value]:
                if each is not None:
                    yield name, self._encode_part(name, each, holds_file(schema))

    def _encode_part(self, name: str, value: Any, is_file: bool) -> tuple[str | None, bytes, str | None]:
        said = str(self._field_encoding(name).get("contentType") or "").partition(",")[0].strip()
        said = "" if "*" in said else said
        match value:
            case {"content": content} if is_file:
                kind = value.get("contentType") or said or "application/octet-stream"
                return value.get("filename") or name, _decode_bytes(content, name), kind
            case bytes():
                return name, value, said or "application/octet-stream"
            case Mapping():
                return None, _dump_json(value), said or "application/json"
            case _ if is_file:
                return name, _decode_bytes(value, name), said or "application/octet-stream"
        return None, styles.to_text(value).encode("utf-8", "surrogatepass"), said or None

    def _field_encoding(self, name: str) -> Mapping[str, Any]:
        how = self.encoding.get(name)
        return how if isinstance(how, Mapping) else {}


def read_body(document: Document, node: Any) -> RequestBody | None:
    """The body that an operation takes: as JSON if that is offered, else in the first type that is."""
    if node is None:
        return None
    body = document.resolve(node, "a request body")
    offers = document.resolve(body.get("content") or {}, "the content of a request body")
    content = {str(kind): media for kind, media in offers.items()}
    if not content:
        return None
    offered = next((each for each in content if _classify(each) == "json"), next(iter(content)))
    media = document.resolve(content[offered] or {}, f"the content {offered}")
    kind, schema = _classify(offered), media.get("schema", {})
    return RequestBody(
        kind=kind,
        content_type=_concrete_type(offered, kind),
        schema=schema,
        properties=dict(_form_properties(document, schema)) if kind == "multipart" else {},
        encoding=document.resolve(media.get("encoding") or {}, "an encoding"),
        is_required=body.get("required") is True,
        description=str(body.get("description") or ""),
    )


def _classify(content_type: str) -> _Kind:
    kind = content_type.partition(";")[0].strip().lower()
    if is_json_type(kind) or kind in ("*/*", "application/*"):
        return "json"
    if kind == "application/x-www-form-urlencoded":
        return "form"
    if kind == "multipart/form-data":
        return "multipart"
    return "text" if kind.startswith("text/") or kind.endswith("+xml") or kind in _TEXT_TYPES else "binary"


def _concrete_type(content_type: str, kind: _Kind) -> str:
    if "*" not in content_type:
        return f"{content_type}; charset=utf-8" if kind == "text" and "charset" not in content_type else content_type
    return {"json": "application/json", "text": "text/plain; charset=utf-8"}.get(kind, "application/octet-stream")


def _form_properties(document: Document, schema: Any, depth: int = 8) -> Iterator[tuple[str, Any]]:
    """The fields of a form, also those of what it is made of, each with the schema of one of its values."""
    if not isinstance(schema, Mapping) or not depth:
        return
    found = document.resolve(schema, "a schema")
    several, properties = found.get("allOf"), found.get("properties")
    for inner in several if isinstance(several, list) else ():
        yield from _form_properties(document, inner, depth - 1)
    for name, node in properties.items() if isinstance(properties, Mapping) else ():
        one = document.resolve(node, f"property {name}") if isinstance(node, Mapping) else {}
        items = one.get("items")
        yield name, document.resolve(items, f"items of {name}") if isinstance(items, Mapping) else one


def _form_fields(given: Any) -> list[tuple[str, Any]]:
    if not isinstance(given, Mapping):
        told = type(given).__name__
        raise CallError("VALIDATION_ERROR", f"body is a form: give an object with its fields, not {told}")
    return [(str(name), value) for name, value in given.items()]


def _dump_json(given: Any) -> bytes:
    try:
        return styles.dump_strict(given)
    except (TypeError, ValueError) as error:
        raise CallError("VALIDATION_ERROR", f"body cannot be written as JSON: {error!s:.200}") from None


def _encode_text(given: Any, content_type: str) -> tuple[bytes, str]:
    """In the charset that is asked for, or in UTF-8 if that has no such characters, or there is none of the name."""
    if isinstance(given, bytes):
        return given, content_type
    text, charset = styles.to_text(given), _CHARSET.search(content_type)
    try:
        return text.encode(charset[1] if charset else "utf-8"), content_type
    except (LookupError, UnicodeError):
        return text.encode("utf-8", "surrogatepass"), _with_utf8_charset(content_type)


def _with_utf8_charset(content_type: str) -> str:
    return _CHARSET.sub("charset=utf-8", content_type)


def _decode_bytes(given: Any, what: str) -> bytes:
    if isinstance(given, bytes):
        return given
    if not isinstance(given, str):
        raise CallError("VALIDATION_ERROR", f"{what} is a {type(given).__name__}; read it, and give bytes")
    try:
        return base64.b64decode("".join(given.split()), validate=True)
    except (binascii.Error, ValueError):
        told = f"{what} is not base64; encode what it should hold, or give bytes"
        raise CallError("VALIDATION_ERROR", told) from None


def _encode_multipart(parts: list[_Part]) -> tuple[bytes, str]:
    if not parts:
        raise CallError("VALIDATION_ERROR", "body is a form of several parts: give at least one field")
    try:
        written = httpx2.Request("POST", "http://localhost/", files=parts)
    except (TypeError, ValueError) as error:
        raise CallError("VALIDATION_ERROR", f"body cannot be written: {error!s:.200}") from None
    return written.read(), written.headers["Content-Type"]
