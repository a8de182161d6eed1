"""The syntax of references.

{"$file": "notes/today.md"}                              a file, as text or JSON, whichever the tool's schema accepts
{"$file": "logo.png", "encoding": "base64"}              its bytes, in base64
{"$file": "app.log", "lines": [100, 120]}                lines 100 to 119, counted from 0
{"$file": "app.log", "offset": 4096, "length": 1024}     a range of bytes
{"$handle": "oh_…", "path": "/items/3/body"}             a stored output or a value in it; same options
{"$$file": "…"}                                          not a reference: an object with the key "$file"
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from forebay.arguments import check_integer, check_pointer, check_text, short_repr
from forebay.errors import InvalidArgument

__all__ = [
    "FILE",
    "HANDLE",
    "ByteRange",
    "LineRange",
    "Reference",
    "ReferenceRange",
    "contains_references",
    "parse_reference",
    "unescape_key",
]

Kind: TypeAlias = Literal["$file", "$handle"]
FILE: Kind = "$file"
HANDLE: Kind = "$handle"

_ALLOWED_OPTIONS = {
    FILE: ("encoding", "offset", "length", "lines"),
    HANDLE: ("path", "encoding", "offset", "length", "lines"),
}
_COMMON_MISTAKES = {"output_handle": HANDLE}
"""Wrong names that are not near a valid one by spelling, and the name that was meant."""


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

    kind: Kind
    name: str
    path: str | None
    is_base64: bool
    part: ReferenceRange


def contains_references(arguments: object) -> bool:
    """Return whether the arguments contain a reference, a misspelled one or an escaped one."""
    pending = [arguments]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            # The cheap test first: there may be many keys, and few start with "$".
            dollar_keys = [key for key in value if isinstance(key, str) and key.startswith("$")]
            if any(_match_kind(key) for key in dollar_keys):
                return True
            pending += value.values()
        elif isinstance(value, list):
            pending += value
    return False


def unescape_key(key: Any) -> Any:
    """Remove one `$` from an escaped key such as `$$file`; return other keys unchanged."""
    is_escaped = isinstance(key, str) and key.startswith("$$") and _match_kind(key)
    return key[1:] if is_escaped else key


def _match_kind(key: str) -> Kind | None:
    """Return the kind of reference that a key names, allowing one typo and any number of leading `$`."""
    name = key.lstrip("$").lower()
    matches = (kind for kind in (FILE, HANDLE) if _is_near_match(name, kind[1:]))
    return next(matches, None) or _COMMON_MISTAKES.get(name)


def _is_near_match(name: str, valid_name: str) -> bool:
    """Return whether the names differ by at most one letter added, missing or wrong, or two neighbours swapped."""
    prefix = 0
    while name[prefix : prefix + 1] == valid_name[prefix : prefix + 1] != "":
        prefix += 1
    rest, wanted = name[prefix:], valid_name[prefix:]
    is_swapped = rest[:2] == wanted[1::-1] and rest[2:] == wanted[2:]
    return is_swapped or rest == wanted[1:] or rest[1:] in (wanted, wanted[1:])


def _check_misspelled(value: Mapping[Any, Any]) -> None:
    """Raise `InvalidArgument` for a reference with a misspelled key; the tool would take it for the content."""
    options = (*_ALLOWED_OPTIONS[HANDLE], *_ALLOWED_OPTIONS[FILE])
    other_keys = [key for key in value if key not in options]
    if len(other_keys) != 1 or not isinstance(other_keys[0], str) or not isinstance(value[other_keys[0]], str):
        return
    (key,) = other_keys
    if key.startswith("$") and not key.startswith("$$") and (kind := _match_kind(key)) is not None:
        raise InvalidArgument(
            f'there is no reference "{key:.64}"; did you mean "{kind}"? To pass the object as it is, write "${key:.64}"'
        )


def parse_reference(value: Mapping[Any, Any]) -> Reference | None:
    """Return the reference that an object is, or `None`. Raise `InvalidArgument` if it is malformed or misspelled."""
    if FILE not in value and HANDLE not in value:
        _check_misspelled(value)
        return None
    kind = FILE if FILE in value else HANDLE
    allowed = _ALLOWED_OPTIONS[kind]
    unknown = [key for key in value if key != kind and key not in allowed]
    if unknown or not isinstance(value[kind], str):
        problem = f"no {short_repr(unknown[0])}" if unknown else f"a text as its {kind}, not {short_repr(value[kind])}"
        raise InvalidArgument(
            f'an object with "{kind}" is a reference, which has {problem} (beside it: {", ".join(allowed)}); '
            f'to pass the object as it is, write "${kind}" for that key'
        )
    check_text(kind, value[kind])
    # Many clients send null for options that they do not set.
    options = {key: option for key, option in value.items() if key != kind and option is not None}
    if "path" in options:
        check_pointer("path", options["path"])
    return Reference(kind, value[kind], options.get("path"), _is_base64(options), _parse_range(options))


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
