"""Integer arguments: a negative value raises `InvalidArgument`, a value beyond 64 bits is clamped."""

from collections.abc import Callable
from functools import partial
from typing import Any

import forebay
import pytest
from forebay import InvalidArgument

DATA = "[1, 2]\n"
INDEX = forebay.index_items(DATA)

VERBS: dict[str, tuple[Callable[..., Any], list[str]]] = {
    "preview": (partial(forebay.preview, DATA), ["max_bytes", "max_escaped_bytes", "escape_levels"]),
    "read_items": (partial(forebay.read_items, DATA, INDEX), ["offset", "limit", "max_bytes", "last", "base"]),
    "read_lines": (partial(forebay.read_lines, DATA), ["offset", "limit", "max_bytes", "last", "escape_levels"]),
    "read_text": (partial(forebay.read_text, DATA), ["offset", "max_bytes", "last", "escape_levels"]),
    "truncate": (
        partial(forebay.truncate, DATA),
        ["max_bytes", "max_array_items", "max_string_chars", "max_depth", "max_object_keys"],
    ),
    "truncate_lines": (partial(forebay.truncate_lines, DATA), ["head", "tail", "max_bytes"]),
    "outline": (partial(forebay.outline, DATA), ["max_bytes"]),
    "patch": (partial(forebay.patch, DATA, "[]"), ["max_bytes"]),
    "search": (partial(forebay.search, DATA, "1"), ["offset", "limit", "context"]),
}
ARGUMENTS = [pytest.param(verb, name, id=f"{key}-{name}") for key, (verb, names) in VERBS.items() for name in names]


class IndexLike:
    """An object with `__index__`."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


@pytest.mark.parametrize("value", [-1, -(1 << 63), -(1 << 63) - 1, -(1 << 100)])
@pytest.mark.parametrize(("verb", "name"), ARGUMENTS)
def test_the_error_for_a_negative_integer_has_its_name(verb: Callable[..., Any], name: str, value: int) -> None:
    for argument in (value, IndexLike(value)):
        with pytest.raises(InvalidArgument, match=f"^{name} must not be negative"):
            verb(**{name: argument})


@pytest.mark.parametrize(("verb", "name"), ARGUMENTS)
def test_an_integer_beyond_64_bits_becomes_the_largest(verb: Callable[..., Any], name: str) -> None:
    def answer(value: object) -> str:
        try:
            return repr(verb(**{name: value}))
        except InvalidArgument as error:
            return f"{name} refused: {error}"

    largest = answer((1 << 63) - 1)
    for value in (1 << 63, (1 << 64) - 1, 1 << 64, 1 << 100, IndexLike(1 << 100)):
        assert answer(value) == largest


@pytest.mark.parametrize("value", [1.0, "1", b"1", [1]])
@pytest.mark.parametrize(("verb", "name"), ARGUMENTS)
def test_a_type_error_has_the_name_of_the_argument(verb: Callable[..., Any], name: str, value: object) -> None:
    with pytest.raises(TypeError) as caught:
        verb(**{name: value})
    assert str(caught.value) == f"{name} must be an integer, not {type(value).__name__}"


@pytest.mark.parametrize("value", [3, 1 << 100])
@pytest.mark.parametrize("verb", [forebay.preview, forebay.read_text, forebay.read_lines])
def test_more_than_two_levels_of_escaping_are_refused(verb: Callable[..., Any], value: int) -> None:
    with pytest.raises(InvalidArgument, match=r"^escape_levels must be at most 2, not"):
        verb(DATA, escape_levels=value)


def test_spans() -> None:
    for offset, limit in ((-1, 1), (0, -1), (-(1 << 100), 1)):
        with pytest.raises(InvalidArgument, match="must not be negative"):
            INDEX.span(offset, limit)
    assert INDEX.span(1, 1 << 100).count == 1
    assert INDEX.span(1 << 100, 1).count == 0
