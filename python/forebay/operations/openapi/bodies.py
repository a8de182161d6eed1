"""Request bodies: choosing one of the documented content types and encoding the body in it."""

import base64
import binascii
import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias

import httpx2

from forebay.envelope.body import get_media_type, is_json_type
from forebay.operations.errors import CallError
from forebay.operations.openapi.document import Document
from forebay.operations.openapi.parameters import Pairs, dump_strict, format_pairs, to_text
from forebay.operations.openapi.schemas import BASE64_SCHEMA, SchemaBundle, holds_file
from forebay.operations.validation import Schema

__all__ = ["RequestBody", "read_body"]

_BodyType: TypeAlias = Literal["json", "form", "multipart", "text", "binary"]

_Part: TypeAlias = tuple[str | None, bytes, str | None]
"""File name, content and content type of a part of a multipart form."""

_CHARSET_PATTERN = re.compile(r"""charset\s*=\s*["']?([^\s;"']+)["']?""", re.IGNORECASE)

_TEXT_TYPES = frozenset({"application/xml", "application/yaml", "application/graphql", "application/javascript"})

_MAX_SCHEMA_DEPTH = 8
"""Maximum depth of nested `allOf` to search for the fields of a form."""


@dataclasses.dataclass(frozen=True, slots=True)
class RequestBody:
    """The request body of an operation, in the content type that is sent."""

    body_type: _BodyType
    content_type: str
    schema: Any
    properties: Mapping[str, Any]
    """Schemas of the fields of a multipart form, by name; empty for other bodies."""
    encoding: Mapping[str, Any]
    """OpenAPI encoding objects of the fields of a form, by name."""
    is_required: bool
    description: str

    def input_schema(self, bundle: SchemaBundle) -> Schema:
        """Return the schema of `body` in the operation's input."""
        if self.body_type == "binary":
            return BASE64_SCHEMA
        converted = bundle.convert(self.schema)
        return {"type": "string"} if self.body_type == "text" and converted == {} else converted

    def encode(self, value: Any) -> tuple[bytes, str]:
        """Return the encoded body and its content type."""
        match self.body_type:
            case "json":
                return _dump_json(value), _with_utf8_charset(self.content_type)
            case "form":
                return self._encode_form(value), self.content_type
            case "multipart":
                return _encode_multipart(list(self._iter_form_parts(value)))
            case "text":
                return _encode_text(value, self.content_type)
        return _decode_bytes(value, "body"), self.content_type

    def _encode_form(self, form: Any) -> bytes:
        pairs: Pairs = []
        for name, value in _get_form_fields(form):
            encoding = self._get_field_encoding(name)
            if value is None:
                continue
            is_json = isinstance(value, Mapping) or (
                isinstance(value, list | tuple) and is_json_type(str(encoding.get("contentType")))
            )
            if is_json and not {"style", "explode"} & encoding.keys():
                value = dump_strict(value).decode()
            style = encoding.get("style", "form")
            explode = encoding.get("explode", style in ("form", "deepObject"))
            allow_reserved = encoding.get("allowReserved") is True
            pairs += format_pairs(name, value, style, explode, allow_reserved=allow_reserved)
        return "&".join(f"{name}={value}" for name, value in pairs).encode()

    def _iter_form_parts(self, form: Any) -> Iterator[tuple[str, _Part]]:
        """Yield the parts of a multipart form as httpx's `files` argument takes them."""
        for name, value in _get_form_fields(form):
            schema = self.properties.get(name, {})
            for item in value if isinstance(value, list | tuple) else [value]:
                if item is not None:
                    yield name, self._encode_part(name, item, holds_file(schema))

    def _encode_part(self, name: str, value: Any, is_file: bool) -> _Part:
        content_type = str(self._get_field_encoding(name).get("contentType") or "").partition(",")[0].strip()
        content_type = "" if "*" in content_type else content_type
        match value:
            case {"content": content} if is_file:
                file_type = value.get("contentType") or content_type or "application/octet-stream"
                return value.get("filename") or name, _decode_bytes(content, name), file_type
            case bytes():
                return name, value, content_type or "application/octet-stream"
            case Mapping():
                return None, _dump_json(value), content_type or "application/json"
            case _ if is_file:
                return name, _decode_bytes(value, name), content_type or "application/octet-stream"
        return None, to_text(value).encode("utf-8", "surrogatepass"), content_type or None

    def _get_field_encoding(self, name: str) -> Mapping[str, Any]:
        encoding = self.encoding.get(name)
        return encoding if isinstance(encoding, Mapping) else {}


def read_body(document: Document, node: Any) -> RequestBody | None:
    """Read the request body of an operation: JSON if the document lists it, else its first content type."""
    if node is None:
        return None
    body = document.resolve(node, "a request body")
    media_types = document.resolve(body.get("content") or {}, "the content of a request body")
    content = {str(content_type): media for content_type, media in media_types.items()}
    if not content:
        return None
    content_type = next((name for name in content if _get_body_type(name) == "json"), next(iter(content)))
    media = document.resolve(content[content_type] or {}, f"the content {content_type}")
    body_type, schema = _get_body_type(content_type), media.get("schema", {})
    return RequestBody(
        body_type=body_type,
        content_type=_replace_media_type_wildcard(content_type, body_type),
        schema=schema,
        properties=dict(_iter_form_properties(document, schema)) if body_type == "multipart" else {},
        encoding=document.resolve(media.get("encoding") or {}, "an encoding"),
        is_required=body.get("required") is True,
        description=str(body.get("description") or ""),
    )


def _get_body_type(content_type: str) -> _BodyType:
    name = get_media_type(content_type)
    if is_json_type(name) or name in ("*/*", "application/*"):
        return "json"
    if name == "application/x-www-form-urlencoded":
        return "form"
    if name == "multipart/form-data":
        return "multipart"
    return "text" if name.startswith("text/") or name.endswith("+xml") or name in _TEXT_TYPES else "binary"


def _replace_media_type_wildcard(content_type: str, body_type: _BodyType) -> str:
    """Return a content type without wildcards, and with a charset if it is text."""
    if "*" in content_type:
        concrete_types = {"json": "application/json", "text": "text/plain; charset=utf-8"}
        return concrete_types.get(body_type, "application/octet-stream")
    needs_charset = body_type == "text" and "charset" not in content_type
    return f"{content_type}; charset=utf-8" if needs_charset else content_type


def _iter_form_properties(document: Document, schema: Any, depth: int = _MAX_SCHEMA_DEPTH) -> Iterator[tuple[str, Any]]:
    """Yield the name and schema of each field of a form, including fields from `allOf`.

    For a field that is an array, the schema is that of its items.
    """
    if not isinstance(schema, Mapping) or not depth:
        return
    form = document.resolve(schema, "a schema")
    included, properties = form.get("allOf"), form.get("properties")
    for included_schema in included if isinstance(included, list) else ():
        yield from _iter_form_properties(document, included_schema, depth - 1)
    for name, node in properties.items() if isinstance(properties, Mapping) else ():
        field = document.resolve(node, f"property {name}") if isinstance(node, Mapping) else {}
        items = field.get("items")
        yield name, document.resolve(items, f"items of {name}") if isinstance(items, Mapping) else field


def _get_form_fields(form: Any) -> list[tuple[str, Any]]:
    if not isinstance(form, Mapping):
        type_name = type(form).__name__
        raise CallError("VALIDATION_ERROR", f"body is a form: give an object with its fields, not {type_name}")
    return [(str(name), value) for name, value in form.items()]


def _dump_json(value: Any) -> bytes:
    try:
        return dump_strict(value)
    except (TypeError, ValueError) as error:
        raise CallError("VALIDATION_ERROR", f"body cannot be written as JSON: {error!s:.200}") from None


def _encode_text(value: Any, content_type: str) -> tuple[bytes, str]:
    """Encode a text in its charset, or in UTF-8 if the charset is unknown or lacks a character."""
    if isinstance(value, bytes):
        return value, content_type
    text, charset = to_text(value), _CHARSET_PATTERN.search(content_type)
    try:
        return text.encode(charset[1] if charset else "utf-8"), content_type
    except (LookupError, UnicodeError):
        return text.encode("utf-8", "surrogatepass"), _with_utf8_charset(content_type)


def _with_utf8_charset(content_type: str) -> str:
    return _CHARSET_PATTERN.sub("charset=utf-8", content_type)


def _decode_bytes(value: Any, label: str) -> bytes:
    """Return bytes unchanged and decode a string from base64."""
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise CallError("VALIDATION_ERROR", f"{label} is a {type(value).__name__}; read it, and give bytes")
    try:
        return base64.b64decode("".join(value.split()), validate=True)
    except (binascii.Error, ValueError):
        message = f"{label} is not base64; encode what it should hold, or give bytes"
        raise CallError("VALIDATION_ERROR", message) from None


def _encode_multipart(parts: list[tuple[str, _Part]]) -> tuple[bytes, str]:
    if not parts:
        raise CallError("VALIDATION_ERROR", "body is a form of several parts: give at least one field")
    try:
        # httpx encodes multipart forms only as part of a request, so one is built that is never sent.
        request = httpx2.Request("POST", "http://localhost/", files=parts)
    except (TypeError, ValueError) as error:
        raise CallError("VALIDATION_ERROR", f"body cannot be written: {error!s:.200}") from None
    return request.read(), request.headers["Content-Type"]
