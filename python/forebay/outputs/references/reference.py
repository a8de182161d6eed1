"""What a reference is.

{"$file": "notes/today.md"}                              a file, as text or as JSON: as the tool's schema wants it
{"$file": "logo.png", "encoding": "base64"}              its bytes, in base64
{"$file": "app.log", "lines": [100, 120]}                lines 100 to 119, counted from 0
{"$file": "app.log", "offset": 4096, "length": 1024}     bytes of it
{"$handle": "oh_…", "path": "/items/3/body"}             a stored output or a value in it, and all of the above
{"$$file": "…"}                                          an object with the key "$file", and no reference
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
"""What else a reference is taken to be called, however far from it."""


class ByteRange(NamedTuple):
    """A range of bytes; without a length, to the end."""

    offset: int = 0
    length: int | None = None


class LineRange(NamedTuple):
    """A range of lines from 0, the last one not included: as `output_search` counts them."""

    first: int
    end: int


ReferenceRange: TypeAlias = ByteRange | LineRange


@dataclasses.dataclass(frozen=True, slots=True)
class Reference:
    """What stands for a file or for a stored output."""

    kind: Kind
    name: str
    path: str | None
    is_base64: bool
    part: ReferenceRange


def contains_references(arguments: object) -> bool:
    """Whether there is a reference in it, or something that was escaped so as not to be one."""
    waiting = [arguments]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            # Hardly any key begins so, and there may be very many.
            marked = [key for key in value if isinstance(key, str) and key.startswith("$")]
            if any(_match_kind(key) for key in marked):
                return True
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return False


def unescape_key(key: Any) -> Any:
    """A key as it was before it was escaped."""
    is_escaped = isinstance(key, str) and key.startswith("$$") and _match_kind(key)
    return key[1:] if is_escaped else key


def _match_kind(key: str) -> Kind | None:
    """What a key that begins with `$` is, or is all but for a slip of the pen; however often it was escaped."""
    name = key.lstrip("$").lower()
    near = (kind for kind in (FILE, HANDLE) if _is_near_match(name, kind[1:]))
    return next(near, None) or _COMMON_MISTAKES.get(name)


def _is_near_match(name: str, right: str) -> bool:
    """Whether it is the same, but for one letter too many, missing, or wrong, or two that are swapped."""
    same = 0
    while name[same : same + 1] == right[same : same + 1] != "":
        same += 1
    rest, wanted = name[same:], right[same:]
    is_swapped = rest[:2] == wanted[1::-1] and rest[2:] == wanted[2:]
    return is_swapped or rest == wanted[1:] or rest[1:] in (wanted, wanted[1:])


def _check_misspelled(value: Mapping[Any, Any]) -> None:
    """Refuses what would be a reference if its key were right: the tool would take it for the content."""
    options = (*_ALLOWED_OPTIONS[HANDLE], *_ALLOWED_OPTIONS[FILE])
    rest = [key for key in value if key not in options]
    if len(rest) != 1 or not isinstance(rest[0], str) or not isinstance(value[rest[0]], str):
        return
    (key,) = rest
    if key.startswith("$") and not key.startswith("$$") and (kind := _match_kind(key)) is not None:
        raise InvalidArgument(
            f'there is no reference "{key:.64}"; did you mean "{kind}"? To pass the object as it is, write "${key:.64}"'
        )


def parse_reference(value: Mapping[Any, Any]) -> Reference | None:
    """The reference that an object is. What is nearly one is an error: what was meant would be a guess."""
    if FILE not in value and HANDLE not in value:
        _check_misspelled(value)
        return None
    kind = FILE if FILE in value else HANDLE
    foreign = [key for key in value if key != kind and key not in _ALLOWED_OPTIONS[kind]]
    if foreign or not isinstance(value[kind], str):
        what = f"no {short_repr(foreign[0])}" if foreign else f"a text as its {kind}, not {short_repr(value[kind])}"
        raise InvalidArgument(
            f'an object with "{kind}" is a reference, which has {what} (beside it: {", ".join(_ALLOWED_OPTIONS[kind])}); '
            f'to pass the object as it is, write "${kind}" for that key'
        )
    check_text(kind, value[kind])
    # Many clients send null for what they leave out.
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
