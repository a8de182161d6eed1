"""Parameters of operations: reading them from the document, and writing their values in the styles of OpenAPI."""

import dataclasses
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias
from urllib.parse import quote, unquote

from forebay.arguments import short_repr
from forebay.envelope.body import is_json_type
from forebay.errors import InvalidArgument
from forebay.operations.errors import CallError
from forebay.operations.openapi.document import Document
from forebay.store.payload import encode

__all__ = [
    "BODY_KEY",
    "Location",
    "Pairs",
    "Parameter",
    "build_cookies",
    "build_headers",
    "build_query",
    "check_header_value",
    "dump_strict",
    "fill_path",
    "format_header",
    "format_pairs",
    "format_path",
    "percent_encode",
    "read_parameters",
    "to_text",
]

Location: TypeAlias = Literal["path", "query", "header", "cookie"]

BODY_KEY = "body"
"""Key of the request body in the input of an operation."""

_STYLES: dict[Location, tuple[str, ...]] = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}
"""Styles that OpenAPI allows in each location; the first is the default."""

_IGNORED_HEADERS = frozenset(
    {"accept", "authorization", "content-type"}
    | {"connection", "content-length", "expect", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}
)
"""Headers that cannot be parameters. OpenAPI excludes the first three, and the HTTP client sets the others."""

_PLACEHOLDER_PATTERN = re.compile(r"\{([^{}/]+)\}")

Pairs = list[tuple[str, str]]
"""Escaped names and values."""

_UNESCAPED_RESERVED = ":/?@!$'()*,;="
"""Characters that `allowReserved` leaves unescaped. `#`, `&`, `+` and brackets would change the query's meaning."""

_DELIMITERS = {"form": ",", "spaceDelimited": "%20", "pipeDelimited": "%7C"}

_FORBIDDEN_IN_HEADER_PATTERN = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")


@dataclasses.dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of an operation."""

    key: str
    """Key of the parameter in the input: its name, unless another parameter has the same name."""
    name: str
    location: Location
    schema: Any
    description: str = ""
    is_required: bool = False
    style: str = "form"
    explode: bool = True
    allow_reserved: bool = False
    content_type: str | None = None
    """Content type of the value, for a parameter that is described by `content` instead of a style."""

    def prepare_value(self, value: Any) -> Any:
        """Return the value as JSON text if the parameter is described by `content`, otherwise unchanged."""
        if self.content_type is None or (isinstance(value, str) and not _is_json(self.content_type)):
            return value
        return dump_strict(value).decode()


def read_parameters(
    document: Document, path: str, path_parameters: Any, operation_parameters: Any, *, has_body: bool
) -> list[Parameter]:
    """Read the parameters of an operation: its own, those of its path, and undeclared placeholders in the path."""
    parameters: dict[tuple[str, str], Parameter] = {}
    placeholders = _PLACEHOLDER_PATTERN.findall(path)
    for node in [*_as_list(path_parameters), *_as_list(operation_parameters)]:
        parameter = _parse_parameter(document, document.resolve(node, "a parameter"))
        is_ignored = parameter.location == "header" and parameter.name.lower() in _IGNORED_HEADERS
        has_no_placeholder = parameter.location == "path" and parameter.name not in placeholders
        if not is_ignored and not has_no_placeholder:
            parameters[parameter.name, parameter.location] = parameter
    for name in placeholders:
        undeclared = Parameter(name, name, "path", {"type": "string"}, "", True, "simple", False)
        parameters.setdefault((name, "path"), undeclared)
    return _assign_keys(list(parameters.values()), {BODY_KEY} if has_body else set())


def fill_path(path: str, parameters: Sequence[Parameter], arguments: Mapping[str, Any]) -> str:
    """Return the path with its placeholders replaced. A value cannot change the number of path segments."""
    by_name = {parameter.name: parameter for parameter in parameters if parameter.location == "path"}

    def fill(placeholder: re.Match[str]) -> str:
        parameter = by_name[placeholder[1]]
        if arguments.get(parameter.key) is None:
            raise CallError("VALIDATION_ERROR", f"{parameter.key} is missing; the path {path} needs it")
        value = parameter.prepare_value(arguments[parameter.key])
        return format_path(parameter.name, value, parameter.style, parameter.explode)

    return "/".join(_fill_segment(segment, fill, path) for segment in path.split("/"))


def build_query(parameters: Sequence[Parameter], arguments: Mapping[str, Any]) -> str:
    """Return the query string of a request."""
    return "&".join(f"{name}={value}" for name, value in _build_pairs("query", parameters, arguments))


def build_cookies(parameters: Sequence[Parameter], arguments: Mapping[str, Any]) -> list[str]:
    """Return the cookies of a request as `name=value` strings."""
    return [f"{name}={value}" for name, value in _build_pairs("cookie", parameters, arguments)]


def build_headers(parameters: Sequence[Parameter], arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers that are parameters of a request."""
    headers = {}
    for parameter, value in _iter_values("header", parameters, arguments):
        text = format_header(parameter.name, value, parameter.explode)
        headers[parameter.name] = check_header_value(parameter.name, text)
    return headers


def _build_pairs(
    location: Location, parameters: Sequence[Parameter], arguments: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    for parameter, value in _iter_values(location, parameters, arguments):
        yield from format_pairs(
            parameter.name, value, parameter.style, parameter.explode, allow_reserved=parameter.allow_reserved
        )


def _iter_values(
    location: Location, parameters: Sequence[Parameter], arguments: Mapping[str, Any]
) -> Iterator[tuple[Parameter, Any]]:
    """Yield each parameter of a location that has an argument, and the value to send."""
    for parameter in parameters:
        if parameter.location == location and arguments.get(parameter.key) is not None:
            yield parameter, parameter.prepare_value(arguments[parameter.key])


def _fill_segment(segment: str, fill: Callable[[re.Match[str]], str], path: str) -> str:
    result = _PLACEHOLDER_PATTERN.sub(fill, segment)
    if result != segment and result in ("", ".", ".."):
        raise CallError("VALIDATION_ERROR", f"a value of the path {path} cannot be empty, '.' or '..'")
    return result


def _as_list(node: Any) -> list[Any]:
    return node if isinstance(node, list) else []


def _parse_parameter(document: Document, node: Mapping[str, Any]) -> Parameter:
    name, location = node.get("name"), node.get("in")
    if not isinstance(name, str) or not isinstance(location, str) or location not in _STYLES:
        raise InvalidArgument(
            f"a parameter has a name, and is in path, query, header or cookie; not {short_repr(node)}"
        )
    style, explode = node.get("style") or _STYLES[location][0], node.get("explode")
    if style not in _STYLES[location]:
        raise InvalidArgument(f"parameter {name!r:.64} in {location} cannot have the style {style!r:.32}")
    content = node.get("content")
    content_type, media = next(iter(content.items()), (None, None)) if isinstance(content, Mapping) else (None, None)
    return Parameter(
        key=name,
        name=name,
        location=location,
        schema=node.get("schema", {}) if media is None else document.resolve(media, "a content").get("schema", {}),
        description=str(node.get("description") or ""),
        is_required=location == "path" or node.get("required") is True,
        style=style,
        explode=explode if isinstance(explode, bool) else style in ("form", "deepObject"),
        allow_reserved=node.get("allowReserved") is True,
        content_type=None if content_type is None else str(content_type),
    )


def _is_json(content_type: str) -> bool:
    return is_json_type(content_type) or "*" in content_type


def _assign_keys(parameters: list[Parameter], reserved_names: set[str]) -> list[Parameter]:
    """Prefix ambiguous names with their location, such as `query_id`.

    A name is ambiguous if several parameters have it or if it is reserved.
    """
    counts = Counter(parameter.name for parameter in parameters)
    unambiguous = {name for name, count in counts.items() if count == 1 and name not in reserved_names}
    used = reserved_names | unambiguous
    result = []
    for parameter in parameters:
        key = parameter.name
        if key not in unambiguous:
            key = f"{parameter.location}_{parameter.name}"
            while key in used:
                key += "_"
            used.add(key)
        result.append(dataclasses.replace(parameter, key=key))
    return result


def percent_encode(text: str, *, allow_reserved: bool = False) -> str:
    """Escape `text` for any part of a URL."""
    return quote(text, safe=_UNESCAPED_RESERVED if allow_reserved else "")


def to_text(value: Any) -> str:
    """Return a value as the text of a parameter. Lists and objects become JSON.

    Raises `ValueError` or `TypeError` for a value that cannot be sent.
    """
    match value:
        case str():
            return value
        case None:
            return ""
        case bytes():
            return value.decode()
        case float() if not math.isfinite(value):
            raise ValueError(f"{value} is no number that can be sent")
    return dump_strict(value).decode()


def dump_strict(value: Any) -> bytes:
    """Return a value as JSON. Raises `ValueError` for NaN and infinities, which `encode` writes as null."""
    text = encode(value)
    if b"null" in text:
        json.dumps(value, allow_nan=False, skipkeys=True, default=_to_plain_types)
    return text


def _to_plain_types(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value)


def format_path(name: str, value: Any, style: str, explode: bool) -> str:
    """Return the text that replaces `{name}` in a path."""
    if style == "matrix":
        return "".join(f";{key}={text}" if text else f";{key}" for key, text in _iter_pairs(name, value, explode))
    prefix, delimiter = (".", "." if explode else ",") if style == "label" else ("", ",")
    return prefix + _join_texts(name, value, delimiter, explode, percent_encode)


def format_header(name: str, value: Any, explode: bool) -> str:
    """Return the value of a header."""
    return _join_texts(name, value, ",", explode, lambda text: text)


def format_pairs(name: str, value: Any, style: str, explode: bool, *, allow_reserved: bool = False) -> Pairs:
    """Return the escaped names and values of a parameter in a query, a form or cookies."""

    def escape(text: str) -> str:
        return percent_encode(text, allow_reserved=allow_reserved)

    if style == "deepObject" and isinstance(value, Mapping):
        return [(percent_encode(key), escape(text)) for key, text in _iter_deep_pairs(name, value)]
    if isinstance(value, list | tuple | Mapping) and not explode and style in _DELIMITERS:
        return [(percent_encode(name), _join_texts(name, value, _DELIMITERS[style], False, escape))] if value else []
    return list(_iter_pairs(name, value, explode, escape))


def _join_texts(name: str, value: Any, delimiter: str, explode: bool, escape: Callable[[str], str]) -> str:
    """Join the texts of a list or object. Raises `ValueError` if one of them contains the delimiter."""
    texts = list(_iter_texts(value, explode, escape))
    if isinstance(value, list | tuple | Mapping) and any(delimiter in text for text in texts):
        raise ValueError(f"a value of {name!r:.64} has {unquote(delimiter)!r} in it, which stands between values there")
    return delimiter.join(texts)


def _iter_texts(value: Any, explode: bool, escape: Callable[[str], str]) -> Iterator[str]:
    """Yield the texts of a value. An object becomes `key=value` texts with `explode`, else keys and values in turn."""
    match value:
        case Mapping():
            for key, inner in value.items():
                if explode:
                    yield f"{escape(str(key))}={escape(to_text(inner))}"
                else:
                    yield escape(str(key))
                    yield escape(to_text(inner))
        case list() | tuple():
            yield from (escape(to_text(item)) for item in value)
        case _:
            yield escape(to_text(value))


def _iter_pairs(
    name: str, value: Any, explode: bool, escape: Callable[[str], str] = percent_encode
) -> Iterator[tuple[str, str]]:
    """Yield names and texts for a value. With `explode`, the names for an object are its keys."""
    match value:
        case Mapping() if explode:
            yield from ((percent_encode(str(key)), escape(to_text(inner))) for key, inner in value.items())
        case list() | tuple() if explode:
            yield from ((percent_encode(name), escape(to_text(item))) for item in value)
        case _:
            yield percent_encode(name), _join_texts(name, value, ",", False, escape)


def _iter_deep_pairs(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield a value in the `deepObject` style, such as `filter[price][min]`."""
    match value:
        case Mapping():
            for key, inner in value.items():
                yield from _iter_deep_pairs(f"{name}[{key}]", inner)
        case list() | tuple():
            for inner in value:
                yield from _iter_deep_pairs(name, inner)
        case _:
            yield name, to_text(value)


def check_header_value(name: str, text: str) -> str:
    """Return a header value without surrounding spaces. Raises `CallError` for line breaks and control characters."""
    if _FORBIDDEN_IN_HEADER_PATTERN.search(text):
        # The value may be a secret, so the message shows only the name.
        raise CallError("VALIDATION_ERROR", f"the header {name!r:.64} cannot have line breaks or control characters")
    return text.strip(" \t")
