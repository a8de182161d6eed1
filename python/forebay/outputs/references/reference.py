"""The syntax of references.

{"$file": "notes/today.md"}                              a file, as text or JSON, whichever the tool's schema accepts
{"$file": "logo.png", "encoding": "base64"}              its bytes, in base64
{"$file": "app.log", "lines": [100, 120]}                lines 100 to 119, counted from 0
{"$file": "app.log", "offset": 4096, "length": 1024}     a range of bytes
{"$handle": "oh_…", "path": "/items/3/body"}             a stored output or a value in it; same options
{"$handle": "oh_…", "patch": [{"op": …}]}                a JSON document with changes (RFC 6902)
{"$query": {"handle": "oh_…", "sql": "SELECT …"}}        the rows of a query, as a list of objects
{"$$file": "…"}                                          not a reference: an object with the key "$file"
"""

import contextlib
import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

import orjson

from forebay.arguments import check_integer, check_pointer, check_text, short_repr
from forebay.errors import InvalidArgument
from forebay.wire.lazy_json import LazyJSON, dump

__all__ = [
    "FILE_KEY",
    "HANDLE_KEY",
    "QUERY_KEY",
    "ByteRange",
    "LineRange",
    "Reference",
    "ReferenceRange",
    "contains_references",
    "parse_reference",
    "unescape_key",
]

ReferenceKey: TypeAlias = Literal["$file", "$handle", "$query"]
FILE_KEY: ReferenceKey = "$file"
HANDLE_KEY: ReferenceKey = "$handle"
QUERY_KEY: ReferenceKey = "$query"
_KEYS = (FILE_KEY, HANDLE_KEY, QUERY_KEY)

_ALLOWED_OPTIONS = {
    FILE_KEY: ("encoding", "offset", "length", "lines", "patch"),
    HANDLE_KEY: ("path", "encoding", "offset", "length", "lines", "patch"),
    QUERY_KEY: ("encoding", "patch"),
}
_COMMON_MISTAKES = {"output_handle": HANDLE_KEY}
"""Wrong keys that are not spelled like a valid one, and the key that was meant."""


_MAX_KEY_BYTES = 512
"""Maximum bytes of a key that is searched for in unparsed JSON, and of the space behind it."""

_DOLLAR_KEY_PATTERN = re.compile(rb'("(?:\$|\\u0024)[^"]{0,256}")\s{0,64}:')


class ByteRange(NamedTuple):
    """A range of bytes; without a length it goes to the end."""

    offset: int = 0
    length: int | None = None


class LineRange(NamedTuple):
    """A range of lines, counted from 0 as in `output_search`; `end` is not included."""

    first: int
    end: int


ReferenceRange: TypeAlias = ByteRange | LineRange


@dataclasses.dataclass(frozen=True, slots=True)
class Reference:
    """A parsed reference to a file or to a stored output."""

    key: ReferenceKey
    target: str
    """The path of a file, or a handle."""
    path: str | None
    """JSON Pointer to a value in a stored output."""
    is_base64: bool
    selected_range: ReferenceRange
    patch: bytes | None = None
    """JSON Patch to apply to what was selected."""
    sql: str | None = None
    """The statement of a query over the stored output `target`."""


def contains_references(arguments: object) -> bool:
    """Return whether the arguments contain a reference, also if it is misspelled or escaped."""
    pending = [arguments]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            # The cheap test first: there may be many keys, and few start with "$".
            dollar_keys = [key for key in value if isinstance(key, str) and key.startswith("$")]
            if any(_match_reference_key(key) for key in dollar_keys):
                return True
            pending += value.values()
        elif isinstance(value, list):
            pending += value
        elif isinstance(value, LazyJSON) and not value.is_string and _has_reference_key(value.json_chunks()):
            return True
    return False


def _has_reference_key(chunks: Iterable[bytes | memoryview]) -> bool:
    """Return whether unparsed JSON has a key of a reference, also if it is misspelled or escaped."""
    tail = b""
    for chunk in chunks:
        text = tail + chunk
        for match in _DOLLAR_KEY_PATTERN.finditer(text):
            # The text before a quote in a string is no valid JSON, and no key.
            with contextlib.suppress(orjson.JSONDecodeError):
                if _match_reference_key(orjson.loads(match[1])):
                    return True
        tail = text[-_MAX_KEY_BYTES:]
    return False


def unescape_key(key: Any) -> Any:
    """Remove one `$` from an escaped key such as `$$file`; return other keys unchanged."""
    is_escaped = isinstance(key, str) and key.startswith("$$") and _match_reference_key(key)
    return key[1:] if is_escaped else key


def _match_reference_key(key: str) -> ReferenceKey | None:
    """Return the reference key that is meant, allowing one typo and any number of leading `$`, or `None`."""
    name = key.lstrip("$").lower()
    matches = (valid_key for valid_key in _KEYS if _is_near_match(name, valid_key[1:]))
    return next(matches, None) or _COMMON_MISTAKES.get(name)


def _is_near_match(name: str, valid_name: str) -> bool:
    """Return whether the names differ by at most one letter added, missing or wrong, or two neighbours swapped."""
    prefix = 0
    while name[prefix : prefix + 1] == valid_name[prefix : prefix + 1] != "":
        prefix += 1
    suffix, valid_suffix = name[prefix:], valid_name[prefix:]
    is_swapped = suffix[:2] == valid_suffix[1::-1] and suffix[2:] == valid_suffix[2:]
    return is_swapped or suffix == valid_suffix[1:] or suffix[1:] in (valid_suffix, valid_suffix[1:])


def _check_misspelled(value: Mapping[Any, Any]) -> None:
    """Raise `InvalidArgument` for a reference with a misspelled key: the tool would get it unresolved."""
    options = (*_ALLOWED_OPTIONS[HANDLE_KEY], *_ALLOWED_OPTIONS[FILE_KEY])
    other_keys = [key for key in value if key not in options]
    if len(other_keys) != 1 or not isinstance(other_keys[0], str):
        return
    (key,) = other_keys
    has_target = isinstance(value[key], str) or (isinstance(value[key], dict) and "sql" in value[key])
    if not has_target:
        return
    if key.startswith("$") and not key.startswith("$$") and (valid_key := _match_reference_key(key)) is not None:
        raise InvalidArgument(
            f'there is no reference "{key:.64}"; did you mean "{valid_key}"? '
            f'To pass the object as it is, write "${key:.64}"'
        )


def parse_reference(value: Mapping[Any, Any]) -> Reference | None:
    """Parse a reference; return `None` for any other object. Raise `InvalidArgument` if it is malformed."""
    key = next((key for key in _KEYS if key in value), None)
    if key is None:
        _check_misspelled(value)
        return None
    allowed = _ALLOWED_OPTIONS[key]
    unknown = [name for name in value if name != key and name not in allowed]
    target, sql = _parse_query(value[key]) if key == QUERY_KEY else (value[key], None)
    if unknown or not isinstance(target, str):
        problem = f"no {short_repr(unknown[0])}" if unknown else f"a text as its {key}, not {short_repr(value[key])}"
        raise InvalidArgument(
            f'an object with "{key}" is a reference, which has {problem} (beside it: {", ".join(allowed)}); '
            f'to pass the object as it is, write "${key}" for that key'
        )
    check_text(key, target)
    # Many clients send null for options that they do not set.
    options = {name: option for name, option in value.items() if name != key and option is not None}
    if "path" in options:
        check_pointer("path", options["path"])
    path, patch = options.get("path"), _dump_patch(options)
    return Reference(key, target, path, _is_base64(options), _parse_range(options), patch, sql)


def _parse_query(query: Any) -> tuple[str, str]:
    """Return the handle and the statement of a query."""
    if not isinstance(query, dict) or query.keys() != {"handle", "sql"}:
        raise InvalidArgument(
            '"$query" is an object {"handle": "oh_…", "sql": "SELECT …"}; to pass an object with this key as it is, '
            'write "$$query"'
        )
    for name in ("handle", "sql"):
        # A long statement is left unparsed.
        if isinstance(query[name], LazyJSON) and query[name].is_string:
            query = {**query, name: query[name].text().decode(errors="replace")}
        check_text(name, query[name])
    return query["handle"], query["sql"]


def _dump_patch(options: Mapping[str, Any]) -> bytes | None:
    if "patch" not in options:
        return None
    if contains_references(options["patch"]):
        raise InvalidArgument("the values of a patch are not resolved: write them out, without references inside")
    return dump(options["patch"])


def _is_base64(options: Mapping[str, Any]) -> bool:
    encoding = options.get("encoding", "utf-8")
    if encoding not in ("utf-8", "base64"):
        raise InvalidArgument(f"the encoding of a reference is utf-8 or base64, not {short_repr(encoding)}")
    return bool(encoding == "base64")


def _parse_range(options: Mapping[str, Any]) -> ReferenceRange:
    for name in ("offset", "length"):
        if name in options:
            check_integer(name, options[name], 0)
    if "lines" not in options:
        return ByteRange(options.get("offset", 0), options.get("length"))
    if "offset" in options or "length" in options:
        raise InvalidArgument("a reference has lines, or offset and length; leave one of them out")
    lines = options["lines"]
    if not isinstance(lines, list) or len(lines) != 2:
        raise InvalidArgument(f"lines are [from, to], such as [0, 100] for the first hundred, not {short_repr(lines)}")
    for number in lines:
        check_integer("each of the lines", number, 0)
    if lines[0] > lines[1]:
        raise InvalidArgument(f"lines are [from, to], and {lines[0]} is after {lines[1]}; swap them")
    return LineRange(*lines)
