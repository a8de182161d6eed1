"""Parameters: what a document says of them, and where a call's values go."""

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from forebay.arguments import short_repr
from forebay.errors import InvalidArgument
from forebay.operations.envelope.body import is_json_type
from forebay.operations.errors import CallError
from forebay.operations.openapi import styles
from forebay.operations.openapi.document import Document
from forebay.operations.openapi.styles import check_header_value

__all__ = [
    "BODY_KEY",
    "Location",
    "Parameter",
    "build_cookies",
    "build_headers",
    "build_query",
    "fill_path",
    "read_parameters",
]

Location: TypeAlias = Literal["path", "query", "header", "cookie"]

BODY_KEY = "body"
"""What the request body is called in the input."""

_LOCATIONS: dict[str, tuple[Location, str]] = {
    "path": ("path", "simple"),
    "query": ("query", "form"),
    "header": ("header", "simple"),
    "cookie": ("cookie", "form"),
}
"""Where parameters are, and how they are written there if the document does not say."""

_STYLES = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}

_IGNORED_HEADERS = frozenset(
    {"accept", "authorization", "content-type"}
    | {"connection", "content-length", "expect", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}
)
"""Headers that are no parameters: by the specification, or because the request itself and its connection say them."""

_PLACEHOLDER = re.compile(r"\{([^{}/]+)\}")


@dataclasses.dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of an operation."""

    key: str
    """Its name in the input: its own, unless another has that, too."""
    name: str
    location: Location
    schema: Any
    description: str = ""
    is_required: bool = False
    style: str = "form"
    explode: bool = True
    allow_reserved: bool = False
    content_type: str | None = None
    """What the document says that it is, instead of a style."""

    def prepare_value(self, given: Any) -> Any:
        """The value that the style is applied to."""
        if self.content_type is None or (isinstance(given, str) and not _is_json(self.content_type)):
            return given
        return styles.dump_strict(given).decode()


def read_parameters(document: Document, path: str, shared: Any, own: Any, *, has_body: bool) -> list[Parameter]:
    """The parameters of an operation: its own, those of its path, and those that only the path itself tells of."""
    found: dict[tuple[str, str], Parameter] = {}
    places = _PLACEHOLDER.findall(path)
    for node in [*_as_list(shared), *_as_list(own)]:
        parameter = _parse_parameter(document, document.resolve(node, "a parameter"))
        is_told_elsewhere = parameter.location == "header" and parameter.name.lower() in _IGNORED_HEADERS
        has_no_place = parameter.location == "path" and parameter.name not in places
        if not is_told_elsewhere and not has_no_place:
            found[parameter.name, parameter.location] = parameter
    for name in places:
        found.setdefault((name, "path"), Parameter(name, name, "path", {"type": "string"}, "", True, "simple", False))
    return _assign_keys(list(found.values()), {BODY_KEY} if has_body else set())


def fill_path(path: str, parameters: Sequence[Parameter], given: Mapping[str, Any]) -> str:
    """The path with its places filled. A value never becomes more than its own place: `a/b` and `..` do not travel."""
    values = {each.name: each for each in parameters if each.location == "path"}

    def fill(place: re.Match[str]) -> str:
        parameter = values[place[1]]
        if given.get(parameter.key) is None:
            raise CallError("VALIDATION_ERROR", f"{parameter.key} is missing; the path {path} needs it")
        return styles.format_path(
            parameter.name, parameter.prepare_value(given[parameter.key]), parameter.style, parameter.explode
        )

    return "/".join(_fill_segment(segment, fill, path) for segment in path.split("/"))


def build_query(parameters: Sequence[Parameter], given: Mapping[str, Any]) -> str:
    """The query of the URL."""
    return "&".join(f"{name}={value}" for name, value in _build_pairs("query", parameters, given))


def build_cookies(parameters: Sequence[Parameter], given: Mapping[str, Any]) -> list[str]:
    """The cookies, each as it stands in the header."""
    return [f"{name}={value}" for name, value in _build_pairs("cookie", parameters, given)]


def build_headers(parameters: Sequence[Parameter], given: Mapping[str, Any]) -> dict[str, str]:
    """The headers."""
    return {
        each.name: check_header_value(
            each.name, styles.format_header(each.name, each.prepare_value(given[each.key]), each.explode)
        )
        for each in parameters
        if each.location == "header" and given.get(each.key) is not None
    }


def _build_pairs(
    location: Location, parameters: Sequence[Parameter], given: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    for each in parameters:
        if each.location == location and given.get(each.key) is not None:
            value = each.prepare_value(given[each.key])
            yield from styles.format_pairs(
                each.name, value, each.style, each.explode, allow_reserved=each.allow_reserved
            )


def _fill_segment(segment: str, fill: Any, path: str) -> str:
    filled = _PLACEHOLDER.sub(fill, segment)
    if filled != segment and filled in ("", ".", ".."):
        raise CallError("VALIDATION_ERROR", f"a value of the path {path} cannot be empty, '.' or '..'")
    return filled


def _as_list(node: Any) -> list[Any]:
    return node if isinstance(node, list) else []


def _parse_parameter(document: Document, node: Mapping[str, Any]) -> Parameter:
    name, where = node.get("name"), node.get("in")
    if not isinstance(name, str) or not isinstance(where, str) or where not in _LOCATIONS:
        raise InvalidArgument(
            f"a parameter has a name, and is in path, query, header or cookie; not {short_repr(node)}"
        )
    location, usual_style = _LOCATIONS[where]
    style, explode = node.get("style") or usual_style, node.get("explode")
    if style not in _STYLES[location]:
        raise InvalidArgument(f"parameter {name!r:.64} in {location} cannot have the style {style!r:.32}")
    kind, content = next(iter(node["content"].items()), (None, None)) if _has_content(node) else (None, None)
    return Parameter(
        key=name,
        name=name,
        location=location,
        schema=node.get("schema", {}) if content is None else document.resolve(content, "a content").get("schema", {}),
        description=str(node.get("description") or ""),
        is_required=location == "path" or node.get("required") is True,
        style=style,
        explode=explode if isinstance(explode, bool) else style in ("form", "deepObject"),
        allow_reserved=node.get("allowReserved") is True,
        content_type=None if kind is None else str(kind),
    )


def _is_json(content_type: str) -> bool:
    return is_json_type(content_type) or "*" in content_type


def _has_content(node: Mapping[str, Any]) -> bool:
    return isinstance(node.get("content"), Mapping)


def _assign_keys(parameters: list[Parameter], taken: set[str]) -> list[Parameter]:
    """A name that is in several places, or is that of the body, is told by where it is: `query_id`."""
    often = Counter(each.name for each in parameters)
    single = {name for name, count in often.items() if count == 1 and name not in taken}
    used = taken | single
    found = []
    for each in parameters:
        key = each.name
        if key not in single:
            key = f"{each.location}_{each.name}"
            while key in used:
                key += "_"
            used.add(key)
        found.append(dataclasses.replace(each, key=key))
    return found
