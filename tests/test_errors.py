"""The tree of errors: what each is besides, what a model is told, and that the message names the next step."""

from collections.abc import Callable
from typing import Any

import headgate
import pytest
from headgate import (
    CorruptIndex,
    FileRefDenied,
    FileRefNotFound,
    FileRefTooLarge,
    HeadgateError,
    InvalidArgument,
    InvalidJSON,
    InvalidPattern,
    InvalidText,
    ItemIndex,
    PathNotFound,
)

TREE = [
    (HeadgateError, Exception, "internal"),
    (InvalidJSON, ValueError, "invalid_json"),
    (InvalidText, ValueError, "invalid_format_for_payload"),
    (InvalidArgument, ValueError, "invalid_argument"),
    (InvalidPattern, InvalidArgument, "invalid_argument"),
    (PathNotFound, LookupError, "path_not_found"),
    (CorruptIndex, ValueError, "output_handle_corrupt"),
    (FileRefDenied, PermissionError, "file_ref_denied"),
    (FileRefNotFound, FileNotFoundError, "file_ref_not_found"),
    (FileRefTooLarge, ValueError, "file_ref_too_large"),
]


@pytest.mark.parametrize(("error", "base", "code"), TREE)
def test_each_is_also_what_callers_catch(error: type[HeadgateError], base: type[Exception], code: str) -> None:
    assert issubclass(error, base)
    assert issubclass(error, HeadgateError)
    assert error.code == code
    assert (str(error("why", 7)), error("why", 7).index, error("why").index) == ("why", 7, 0)


def test_the_docstring_draws_the_tree() -> None:
    drawn = headgate.errors.__doc__ or ""
    assert [error.__name__ for error, _, _ in TREE if error.__name__ not in drawn] == []


# What to do wrong, what comes of it, the byte to blame, and what the message tells to do or where to look.
MISTAKES: list[tuple[Callable[[], Any], type[HeadgateError], int, str]] = [
    (lambda: headgate.index_items("[1, 2,]"), InvalidJSON, 6, "at byte 6"),
    (lambda: headgate.index_items("[1, 2"), InvalidJSON, 5, "unexpected end at byte 5"),
    (lambda: headgate.index_items(b'["\xff"]'), InvalidJSON, 2, "at byte 2"),
    (lambda: headgate.truncate('{"a" 1}'), InvalidJSON, 5, "expected a colon at byte 5"),
    (lambda: headgate.outline("[1, x]"), InvalidJSON, 4, "at byte 4"),
    (lambda: headgate.get("[[1, ]]", "/0"), InvalidJSON, 5, "at byte 5"),
    (lambda: headgate.project('[{"a": [1 2]}]', ["a"]), InvalidJSON, 10, "at byte 10"),
    (lambda: headgate.read_text(b"ab\xff"), InvalidText, 2, "read it as bytes instead"),
    (lambda: headgate.read_lines(b"a\n\xff"), InvalidText, 2, "read it as bytes instead"),
    (lambda: headgate.get("{}", "/a"), PathNotFound, 0, "outline() shows which paths exist"),
    (lambda: headgate.index_items('{"a": 1}', "/a"), PathNotFound, 0, "outline() shows which paths lead to one"),
    (lambda: headgate.get("{}", "a"), InvalidArgument, 0, 'write "/users/0/name"'),
    (lambda: headgate.read_lines("a", limit=0), InvalidArgument, 0, "limit must be at least 1"),
    (lambda: headgate.read_text("a", max_bytes=-3), InvalidArgument, 0, "max_bytes must not be negative, not -3"),
    (lambda: headgate.truncate("[1, 2, 3, 4, 5, 6, 7]", max_bytes=5), InvalidArgument, 0, "takes 13"),
    (lambda: headgate.project("[]", []), InvalidArgument, 0, "name at least one"),
    (lambda: headgate.search("a", "(", regex=True), InvalidPattern, 0, "pattern not usable"),
    (lambda: headgate.search("a", r"(a)\1", regex=True), InvalidPattern, 0, "pattern not usable"),
    (lambda: ItemIndex.from_bytes(b"?"), CorruptIndex, 0, "index the payload again"),
    (lambda: headgate.read_items("[", headgate.index_items("[1, 2]"), 1), CorruptIndex, 0, "index the payload again"),
]


@pytest.mark.parametrize(("mistake", "error", "index", "told"), MISTAKES)
def test_a_mistake_is_told_with_what_to_do(
    mistake: Callable[[], Any], error: type[HeadgateError], index: int, told: str
) -> None:
    with pytest.raises(error) as caught:
        mistake()
    assert type(caught.value) is error
    assert caught.value.index == index
    assert told in str(caught.value)
    # What a model reads has no debug print of ours in it.
    assert not any(name in str(caught.value) for name in ("ErrorKind", "Some(", "Err("))


LONG = "a" * 1_000_000


@pytest.mark.parametrize(
    "mistake",
    [
        lambda: headgate.get("{}", LONG),
        lambda: headgate.get("{}", "/" + LONG),
        lambda: headgate.index_items("{}", "/" + LONG),
        lambda: headgate.ItemIndexer(LONG),
        lambda: headgate.project("{}", [LONG + "."]),
        lambda: headgate.project("{}", [".".join(LONG)]),
        lambda: headgate.search("a", LONG + "(", regex=True),
        lambda: headgate.search("a", rf"\p{{{LONG}}}", regex=True),
        lambda: headgate.search("a", f"(?P<{LONG}>a)(?P<{LONG}>a)", regex=True),
        lambda: headgate.search("a", LONG, ignore_case=True),
    ],
)
def test_a_message_quotes_no_more_than_it_takes_to_recognize(mistake: Callable[[], Any]) -> None:
    with pytest.raises(HeadgateError) as caught:
        mistake()
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("mistake", "told"),
    [
        (lambda: headgate.get("{}", None), "pointer must be a str, not NoneType"),  # type: ignore[arg-type]
        (lambda: headgate.locate("{}", b""), "pointer must be a str, not bytes"),  # type: ignore[arg-type]
        (lambda: headgate.search("a", b"a"), "pattern must be a str, not bytes"),  # type: ignore[arg-type]
        (lambda: headgate.index_items("[]", 1), "path must be a str, not int"),  # type: ignore[arg-type]
        (lambda: headgate.ItemIndexer(["a"]), "path must be a str, not list"),  # type: ignore[arg-type]
    ],
)
def test_the_wrong_type_is_told_by_the_argument(mistake: Callable[[], Any], told: str) -> None:
    with pytest.raises(TypeError) as caught:
        mistake()
    assert str(caught.value) == told


@pytest.mark.parametrize(
    "verb",
    [
        headgate.index_items,
        headgate.truncate,
        headgate.outline,
        lambda data: headgate.get(data, ""),
        lambda data: headgate.locate(data, "/a"),
        lambda data: headgate.project(data, ["a"]),
    ],
)
@pytest.mark.parametrize("data", [b'\xef\xbb\xbf{"a": 1}', '\ufeff[{"a": 1}]', "\ufeff1\n2\n", "\ufeff"])
def test_a_byte_order_mark_goes_by_its_name(verb: Callable[[Any], Any], data: bytes | str) -> None:
    with pytest.raises(InvalidJSON, match="starts with a byte order mark; remove it") as caught:
        verb(data)
    assert caught.value.index == 0
