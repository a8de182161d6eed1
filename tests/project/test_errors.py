"""The tree of errors: base classes, codes, and messages that name the next step."""

from collections.abc import Callable
from typing import Any

import forebay
import pytest
from forebay import (
    CorruptIndex,
    FileRefDenied,
    FileRefNotFound,
    FileRefTooLarge,
    ForebayError,
    InvalidArgument,
    InvalidJSON,
    InvalidPattern,
    InvalidText,
    ItemIndex,
    MissingExtra,
    PatchFailed,
    PathNotFound,
)
from forebay.errors import make_missing_extra

TREE = [
    (ForebayError, Exception, "internal"),
    (InvalidJSON, ValueError, "invalid_json"),
    (InvalidText, ValueError, "invalid_format_for_payload"),
    (InvalidArgument, ValueError, "invalid_argument"),
    (InvalidPattern, InvalidArgument, "invalid_argument"),
    (PathNotFound, LookupError, "path_not_found"),
    (PatchFailed, ValueError, "patch_failed"),
    (CorruptIndex, ValueError, "output_handle_corrupt"),
    (FileRefDenied, PermissionError, "file_ref_denied"),
    (FileRefNotFound, FileNotFoundError, "file_ref_not_found"),
    (FileRefTooLarge, ValueError, "file_ref_too_large"),
    (MissingExtra, ModuleNotFoundError, "missing_extra"),
]


@pytest.mark.parametrize(("error", "base", "code"), TREE)
def test_each_error_also_has_a_builtin_base(error: type[ForebayError], base: type[Exception], code: str) -> None:
    assert issubclass(error, base)
    assert issubclass(error, ForebayError)
    assert error.code == code
    assert (str(error("why", 7)), error("why", 7).index, error("why").index) == ("why", 7, 0)


def test_the_docstring_shows_the_tree() -> None:
    drawn = forebay.errors.__doc__ or ""
    assert [error.__name__ for error, _, _ in TREE if error.__name__ not in drawn] == []


# A wrong call, its error, the index of the byte to blame, and a part of the message.
MISTAKES: list[tuple[Callable[[], Any], type[ForebayError], int, str]] = [
    (lambda: forebay.index_items("[1, 2,]"), InvalidJSON, 6, "at byte 6"),
    (lambda: forebay.index_items("[1, 2"), InvalidJSON, 5, "unexpected end at byte 5"),
    (lambda: forebay.index_items(b'["\xff"]'), InvalidJSON, 2, "at byte 2"),
    (lambda: forebay.truncate('{"a" 1}'), InvalidJSON, 5, "expected a colon at byte 5"),
    (lambda: forebay.outline("[1, x]"), InvalidJSON, 4, "at byte 4"),
    (lambda: forebay.get("[[1, ]]", "/0"), InvalidJSON, 5, "at byte 5"),
    (lambda: forebay.project('[{"a": [1 2]}]', ["a"]), InvalidJSON, 10, "at byte 10"),
    (lambda: forebay.read_text(b"ab\xff"), InvalidText, 2, "read it as bytes instead"),
    (lambda: forebay.read_lines(b"a\n\xff"), InvalidText, 2, "read it as bytes instead"),
    (lambda: forebay.get("{}", "/a"), PathNotFound, 0, "outline() shows which paths exist"),
    (lambda: forebay.index_items('{"a": 1}', "/a"), PathNotFound, 0, "outline() shows which paths lead to one"),
    (lambda: forebay.get("{}", "a"), InvalidArgument, 0, 'write "/users/0/name"'),
    (lambda: forebay.read_lines("a", limit=0), InvalidArgument, 0, "limit must be at least 1"),
    (lambda: forebay.read_text("a", max_bytes=-3), InvalidArgument, 0, "max_bytes must not be negative, not -3"),
    (lambda: forebay.truncate("[1, 2, 3, 4, 5, 6, 7]", max_bytes=5), InvalidArgument, 0, "takes 13"),
    (lambda: forebay.project("[]", []), InvalidArgument, 0, "name at least one"),
    (lambda: forebay.search("a", "(", regex=True), InvalidPattern, 0, "pattern not usable"),
    (lambda: forebay.search("a", r"(a)\1", regex=True), InvalidPattern, 0, "pattern not usable"),
    (lambda: ItemIndex.from_bytes(b"?"), CorruptIndex, 0, "index the payload again"),
    (lambda: forebay.read_items("[", forebay.index_items("[1, 2]"), 1), CorruptIndex, 0, "index the payload again"),
]


@pytest.mark.parametrize(("mistake", "error", "index", "message"), MISTAKES)
def test_messages_name_the_next_step(
    mistake: Callable[[], Any], error: type[ForebayError], index: int, message: str
) -> None:
    with pytest.raises(error) as caught:
        mistake()
    assert type(caught.value) is error
    assert caught.value.index == index
    assert message in str(caught.value)
    # A message for a model must not contain Rust debug output.
    assert not any(name in str(caught.value) for name in ("ErrorKind", "Some(", "Err("))


LONG = "a" * 1_000_000


@pytest.mark.slow
@pytest.mark.parametrize(
    "mistake",
    [
        lambda: forebay.get("{}", LONG),
        lambda: forebay.get("{}", "/" + LONG),
        lambda: forebay.index_items("{}", "/" + LONG),
        lambda: forebay.ItemIndexer(LONG),
        lambda: forebay.project("{}", [LONG + "."]),
        lambda: forebay.project("{}", [".".join(LONG)]),
        lambda: forebay.search("a", LONG + "(", regex=True),
        lambda: forebay.search("a", rf"\p{{{LONG}}}", regex=True),
        lambda: forebay.search("a", f"(?P<{LONG}>a)(?P<{LONG}>a)", regex=True),
        lambda: forebay.search("a", LONG, ignore_case=True),
    ],
)
def test_messages_quote_little_of_the_input(mistake: Callable[[], Any]) -> None:
    with pytest.raises(ForebayError) as caught:
        mistake()
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda: forebay.get("{}", None), "pointer must be a str, not NoneType"),  # type: ignore[arg-type]
        (lambda: forebay.locate("{}", b""), "pointer must be a str, not bytes"),  # type: ignore[arg-type]
        (lambda: forebay.search("a", b"a"), "pattern must be a str, not bytes"),  # type: ignore[arg-type]
        (lambda: forebay.index_items("[]", 1), "path must be a str, not int"),  # type: ignore[arg-type]
        (lambda: forebay.ItemIndexer(["a"]), "path must be a str, not list"),  # type: ignore[arg-type]
    ],
)
def test_type_errors_name_the_argument(mistake: Callable[[], Any], message: str) -> None:
    with pytest.raises(TypeError) as caught:
        mistake()
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "verb",
    [
        forebay.index_items,
        forebay.truncate,
        forebay.outline,
        lambda data: forebay.get(data, ""),
        lambda data: forebay.locate(data, "/a"),
        lambda data: forebay.project(data, ["a"]),
    ],
)
@pytest.mark.parametrize("data", [b'\xef\xbb\xbf{"a": 1}', '\ufeff[{"a": 1}]', "\ufeff1\n2\n", "\ufeff"])
def test_a_byte_order_mark_is_named_in_the_error(verb: Callable[[Any], Any], data: bytes | str) -> None:
    with pytest.raises(InvalidJSON, match="starts with a byte order mark; remove it") as caught:
        verb(data)
    assert caught.value.index == 0


def test_a_missing_extra_is_named() -> None:
    error = make_missing_extra("forebay x", "y", ModuleNotFoundError("No module named 'nope.a'", name="nope.a"))
    assert (str(error), error.name) == ("forebay x needs nope: pip install 'forebay[y]'", "nope.a")


def test_the_version_that_does_not_fit_is_named() -> None:
    error = make_missing_extra("forebay x", "y", ImportError("cannot import name 'a'", name="pytest"))
    assert str(error).startswith(f"forebay x does not work with pytest {pytest.__version__}: ")
    assert "pip install 'forebay[y]' in another environment" in str(error)


def test_a_broken_module_of_forebay_is_no_missing_extra() -> None:
    broken = ImportError("cannot import name 'a'", name="forebay.store")
    with pytest.raises(ImportError, match="cannot import name") as caught:
        make_missing_extra("forebay x", "y", broken)
    assert caught.value is broken
