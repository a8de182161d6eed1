"""What the newest version of the protocol says of a request in HTTP headers too, for those who look at nothing else."""

import base64
import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from forebay.errors import InvalidArgument
from forebay.wire.framing import Spool
from forebay.wire.messages import protocol_version

__all__ = ["mirror_headers", "parse_headers"]

_NAME_PARAMS = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_ANNOTATION = "x-mcp-header"
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_PLAIN = re.compile(r"(?! )[\x20-\x7e]*(?<! )")
_ENCODED = re.compile(r"=\?base64\?.*\?=")
_MIRRORED_TYPES = ("string", "integer", "boolean")

# Where else in a schema there are schemas. What they say of a value holds for some values only.
_SUBSCHEMA_KEYS = {
    "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not", "propertyNames", "then",
    "unevaluatedItems", "unevaluatedProperties",
}  # fmt: skip
_SUBSCHEMA_LIST_KEYS = {"allOf", "anyOf", "oneOf", "prefixItems"}
_SUBSCHEMA_MAP_KEYS = {"$defs", "definitions", "dependentSchemas", "patternProperties"}

_Path = tuple[str, ...]
_FindSchema = Callable[[str], Mapping[str, Any] | None]


def parse_headers(lines: Sequence[str]) -> list[tuple[str, str]]:
    """Headers as they are given, `Name: value`. No message shows a value: it may be a secret."""
    found = []
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not _TOKEN.fullmatch(name.strip()):
            raise InvalidArgument("a header is given as 'Name: value'; one of those given is not")
        if not re.fullmatch(r"[\t\x20-\x7e]*", value):
            raise InvalidArgument(f"the value of the header {name.strip()} has characters that no header can have")
        found.append((name.strip(), value.strip()))
    return found


def mirror_headers(
    message: Mapping[str, Any], line: "bytes | bytearray | Spool", find_schema: _FindSchema
) -> dict[str, str]:
    """The headers of a message that names its version of the protocol; others have none."""
    method, params = message.get("method"), message.get("params")
    version = protocol_version(params)
    if version is None or not isinstance(method, str):
        return {}
    found = {"mcp-protocol-version": version, "mcp-method": method}
    name = params.get(_NAME_PARAMS.get(method, "")) if isinstance(params, Mapping) else None
    if isinstance(name, str):
        found["mcp-name"] = name
        if method == "tools/call":
            found |= _argument_headers(line, find_schema(name))
    return {name: written for name, value in found.items() if (written := _encode_value(value)) is not None}


def _argument_headers(line: "bytes | bytearray | Spool", schema: Mapping[str, Any] | None) -> dict[str, str]:
    annotated = find_annotations(schema)
    if not annotated or isinstance(line, Spool):
        return {}
    # Not by orjson: to that an integer of more than 64 bits is a float, and its header would be another one.
    try:
        arguments = json.loads(line)["params"].get("arguments")
    except ValueError:
        return {}
    values = {token: functools.reduce(_get_member, path, arguments) for path, token in annotated.items()}
    return {
        f"mcp-param-{token}": shown for token, value in values.items() if (shown := _format_value(value)) is not None
    }


def find_annotations(schema: object) -> dict[_Path, str]:
    """Which arguments are in headers, and in which: none where a schema does not say so as it must."""
    found: dict[_Path, str] = {}
    for path, inner in _walk_schemas(schema):
        if _ANNOTATION not in inner:
            continue
        token = inner[_ANNOTATION]
        is_right = path and isinstance(token, str) and _TOKEN.fullmatch(token)
        if not is_right or inner.get("type") not in _MIRRORED_TYPES or token.lower() in map(str.lower, found.values()):
            return {}
        found[path or ()] = token
    return found


def _walk_schemas(schema: object) -> Iterator[tuple[_Path | None, dict[str, Any]]]:
    """Every schema in a schema, and the path of the value that it is always for."""
    waiting: list[tuple[_Path | None, object]] = [((), schema)]
    while waiting:
        path, inner = waiting.pop()
        if not isinstance(inner, dict):
            continue
        yield path, inner
        for key, value in inner.items():
            if key == "properties" and isinstance(value, dict):
                waiting += [(None if path is None else (*path, name), of) for name, of in value.items()]
            elif key in _SUBSCHEMA_KEYS:
                waiting.append((None, value))
            elif key in _SUBSCHEMA_LIST_KEYS and isinstance(value, list):
                waiting += [(None, of) for of in value]
            elif key in _SUBSCHEMA_MAP_KEYS and isinstance(value, dict):
                waiting += [(None, of) for of in value.values()]


def _get_member(value: object, key: str) -> object:
    return value.get(key) if isinstance(value, dict) else None


def _format_value(value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else None


def _encode_value(value: str) -> str | None:
    """A value as a header can have it; `None` for half of a surrogate pair, which is not text."""
    if _PLAIN.fullmatch(value) and not _ENCODED.fullmatch(value):
        return value
    try:
        return f"=?base64?{base64.b64encode(value.encode()).decode()}?="
    except UnicodeEncodeError:
        return None
