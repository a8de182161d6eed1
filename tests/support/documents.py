"""Strategies for JSON documents, and plain Python versions of what forebay finds in them."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from hypothesis import strategies as st

# No lone surrogates: a pointer cannot name a key that contains one.
texts = st.text(st.characters(codec="utf-8"), max_size=6) | st.sampled_from(
    ["a,b", "[{", "]}", '"', "\\", "/~", "é漢😀"]
)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(texts, inner, max_size=5),
    max_leaves=25,
)
# Options of `json.dumps`.
forms = st.sampled_from(
    [{"separators": (",", ":")}, {"ensure_ascii": False}, {"indent": 2}, {"indent": "\t", "ensure_ascii": False}]
)


def wrap(value: Any, keys: list[str]) -> Any:
    """Nest a value under keys, beside other members."""
    for key in reversed(keys):
        value = {"": 1, key: value, "z": [0]}
    return value


# Documents with items nested under up to six keys.
wrapped = st.builds(wrap, st.lists(values, max_size=8), st.lists(texts, max_size=6))
documents = values | wrapped


class Array(NamedTuple):
    path: str
    start: int
    end: int
    items: list[Any]


def pointer(keys: tuple[str, ...]) -> str:
    return "".join("/" + key.replace("~", "~0").replace("/", "~1") for key in keys)


def pointers(value: Any, at: str = "") -> list[tuple[str, Any]]:
    """Return every pointer into a value, with the value it points to."""
    found = [(at, value)]
    if isinstance(value, dict):
        for key, member in value.items():
            found += pointers(member, at + pointer((key,)))
    if isinstance(value, list):
        for number, item in enumerate(value):
            found += pointers(item, f"{at}/{number}")
    return found


_decode = json.JSONDecoder().raw_decode


def _skip_whitespace(text: str, at: int) -> int:
    while text[at] in " \t\r\n":
        at += 1
    return at


def _arrays(text: str, at: int, keys: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int, int, list[Any]]]:
    """Yield the arrays reachable by object keys only, in document order."""
    at = _skip_whitespace(text, at)
    value, end = _decode(text, at)
    if isinstance(value, list):
        yield keys, at, end, value
    if not isinstance(value, dict):
        return
    at = _skip_whitespace(text, at + 1)
    while text[at] != "}":
        key, at = _decode(text, at)
        at = _skip_whitespace(text, _skip_whitespace(text, at) + 1)
        yield from _arrays(text, at, (*keys, key))
        at = _skip_whitespace(text, _decode(text, at)[1])
        if text[at] == ",":
            at = _skip_whitespace(text, at + 1)


def main_array(text: str) -> Array | None:
    """Return the array with the most bytes at most four keys deep, the first of equals."""

    def byte_offset(at: int) -> int:
        return len(text[:at].encode())

    found = [
        Array(pointer(keys), byte_offset(start), byte_offset(end), items)
        for keys, start, end, items in _arrays(text, 0, ())
        if len(keys) <= 4
    ]
    return max(found, key=lambda array: array.end - array.start, default=None)
