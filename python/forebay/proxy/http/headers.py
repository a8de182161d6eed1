"""HTTP headers of the command line, and headers that repeat parts of a message (required from `MODERN_VERSION` on)."""

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from forebay.errors import InvalidArgument
from forebay.wire.framing import Message
from forebay.wire.lazy_json import LazyJSON, as_lazy
from forebay.wire.protocol import protocol_version

__all__ = ["find_header_annotations", "make_message_headers", "parse_headers"]

_NAME_PARAMS = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""Parameter that goes into the header Mcp-Name, by method."""

_ANNOTATION_KEY = "x-mcp-header"
_MIRRORED_TYPES = ("string", "integer", "boolean")

_MAX_VALUE_BYTES = 16 * 1024
"""Maximum bytes of an argument to repeat in a header. Servers refuse longer headers."""

_HEADER_NAME_PATTERN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_PLAIN_VALUE_PATTERN = re.compile(r"(?! )[\x20-\x7e]*(?<! )")
_ENCODED_VALUE_PATTERN = re.compile(r"=\?base64\?.*\?=")

# Keywords of JSON Schema whose subschemas are conditional, or describe no single argument.
_SUBSCHEMA_KEYS = {
    "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not", "propertyNames", "then",
    "unevaluatedItems", "unevaluatedProperties",
}  # fmt: skip
_SUBSCHEMA_LIST_KEYS = {"allOf", "anyOf", "oneOf", "prefixItems"}
_SUBSCHEMA_MAP_KEYS = {"$defs", "definitions", "dependentSchemas", "patternProperties"}

_ArgumentPath = tuple[str, ...]
_FindSchema = Callable[[str], Mapping[str, Any] | None]


def parse_headers(lines: Sequence[str]) -> list[tuple[str, str]]:
    """Parse headers such as `Name: value`. Error messages never show a value, since it may be a secret."""
    headers = []
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not _HEADER_NAME_PATTERN.fullmatch(name.strip()):
            raise InvalidArgument("a header is given as 'Name: value'; one of those given is not")
        if not re.fullmatch(r"[\t\x20-\x7e]*", value):
            raise InvalidArgument(f"the value of the header {name.strip()} has characters that no header can have")
        headers.append((name.strip(), value.strip()))
    return headers


def make_message_headers(message: Mapping[str, Any], raw: Message, find_schema: _FindSchema) -> dict[str, str]:
    """Return the headers that repeat parts of a message; none if the message does not name its protocol version."""
    method, params = message.get("method"), message.get("params")
    version = protocol_version(params)
    if version is None or not isinstance(method, str):
        return {}
    values = {"mcp-protocol-version": version, "mcp-method": method}
    name = params.get(_NAME_PARAMS.get(method, "")) if isinstance(params, Mapping) else None
    if isinstance(name, str):
        values["mcp-name"] = name
        if method == "tools/call":
            values |= _build_argument_headers(raw, find_schema(name))
    return {header: text for header, value in values.items() if (text := _encode_value(value)) is not None}


def _build_argument_headers(raw: Message, schema: Mapping[str, Any] | None) -> dict[str, str]:
    annotations = find_header_annotations(schema)
    try:
        values = {name: _get_value(as_lazy(raw), ("params", "arguments", *path)) for path, name in annotations.items()}
    except ValueError:
        return {}
    return {f"mcp-param-{name}": text for name, value in values.items() if (text := _format_value(value)) is not None}


def find_header_annotations(schema: object) -> dict[_ArgumentPath, str]:
    """Return the header name of each annotated argument by its path; no names if any annotation is invalid."""
    annotations: dict[_ArgumentPath, str] = {}
    for path, subschema in _walk_schemas(schema):
        if _ANNOTATION_KEY not in subschema:
            continue
        name = subschema[_ANNOTATION_KEY]
        is_valid = path and isinstance(name, str) and _HEADER_NAME_PATTERN.fullmatch(name)
        if not is_valid or subschema.get("type") not in _MIRRORED_TYPES:
            return {}
        if name.lower() in map(str.lower, annotations.values()):
            return {}
        annotations[path or ()] = name
    return annotations


def _walk_schemas(schema: object) -> Iterator[tuple[_ArgumentPath | None, dict[str, Any]]]:
    """Yield each nested schema and the path of its argument; the path is `None` if the schema is conditional."""
    stack: list[tuple[_ArgumentPath | None, object]] = [((), schema)]
    while stack:
        path, inner = stack.pop()
        if not isinstance(inner, dict):
            continue
        yield path, inner
        for key, value in inner.items():
            if key == "properties" and isinstance(value, dict):
                stack += [(None if path is None else (*path, name), member) for name, member in value.items()]
            elif key in _SUBSCHEMA_KEYS:
                stack.append((None, value))
            elif key in _SUBSCHEMA_LIST_KEYS and isinstance(value, list):
                stack += [(None, member) for member in value]
            elif key in _SUBSCHEMA_MAP_KEYS and isinstance(value, dict):
                stack += [(None, member) for member in value.values()]


def _get_value(value: LazyJSON, path: _ArgumentPath) -> object:
    """Return the value at a path; `None` if it is missing, or too large for a header. Raises `ValueError`."""
    for key in path:
        if (member := value.members((key,)).get(key)) is None:
            return None
        value = member
    # Parsed with `json`, because orjson turns integers of more than 64 bits into floats.
    return json.loads(value.json()) if len(value) <= _MAX_VALUE_BYTES else None


def _format_value(value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else None


def _encode_value(value: str) -> str | None:
    """Return a value as header text, in base64 if necessary; `None` if it contains half of a surrogate pair."""
    if _PLAIN_VALUE_PATTERN.fullmatch(value) and not _ENCODED_VALUE_PATTERN.fullmatch(value):
        return value
    try:
        return f"=?base64?{base64.b64encode(value.encode()).decode()}?="
    except UnicodeEncodeError:
        return None
