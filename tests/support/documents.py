"""JSON documents, and what plain Python finds in them."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from hypothesis import strategies as st

# No lone surrogates: no pointer can name a key that has one.
texts = st.text(st.characters(codec="utf-8"), max_size=6) | st.sampled_from(
    ["a,b", "[{", "]}", '"', "\\", "/~", "é漢😀"]
)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(texts, inner, max_size=5),
    max_leaves=25,
)
# How a document may be written.
forms = st.sampled_from(
    [{"separators": (",", ":")}, {"ensure_ascii": False}, {"indent": 2}, {"indent": "\t", "ensure_ascii": False}]
)


def wrap(value: Any, keys: list[str]) -> Any:
    """Puts a value under one key after the other, beside something else."""
    for key in reversed(keys):
        value = {"": 1, key: value, "z": [0]}
    return value


# Documents whose items are under up to six keys.
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
    """Every pointer into a value, and what it points to."""
    found = [(at, value)]
    if isinstance(value, dict):
        for key, member in value.items():
            found += pointers(member, at + pointer((key,)))
    if isinstance(value, list):
        for number, item in enumerate(value):
            found += pointers(item, f"{at}/{number}")
    return found


_decode = json.JSONDecoder().raw_decode


def _white(text: str, at: int) -> int:
    while text[at] in " \t\r\n":
        at += 1
    return at


def _arrays(text: str, at: int, keys: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int, int, list[Any]]]:
    """The arrays that object keys alone lead to, in the order of the document."""
    at = _white(text, at)
    value, end = _decode(text, at)
    if isinstance(value, list):
        yield keys, at, end, value
    if not isinstance(value, dict):
        return
    at = _white(text, at + 1)
    while text[at] != "}":
        key, at = _decode(text, at)
        at = _white(text, _white(text, at) + 1)
        yield from _arrays(text, at, (*keys, key))
        at = _white(text, _decode(text, at)[1])
        if text[at] == ",":
            at = _white(text, at + 1)


def main_array(text: str) -> Array | None:
    """Of the arrays at most four keys deep the one with the most bytes, the first of equals."""

    def place(at: int) -> int:
        return len(text[:at].encode())

    found = [
        Array(pointer(keys), place(start), place(end), items)
        for keys, start, end, items in _arrays(text, 0, ())
        if len(keys) <= 4
    ]
    return max(found, key=lambda array: array.end - array.start, default=None)
