"""Styles: values survive serialization and parsing by the rules of the specification."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import httpx2
import pytest
from forebay.operations.openapi import parameters
from forebay.operations.openapi.parameters import Parameter
from hypothesis import assume, given
from hypothesis import strategies as st

NAME = "co&l=o;r[é"

# A dot is never escaped, and it is the delimiter of the label style.
PLAIN_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="."), max_size=6)
SPECIAL_TEXT = st.text("/?#&=;,+% |[]{}\\'\"\r\n\0é", max_size=6)
TEXT = PLAIN_TEXT | SPECIAL_TEXT
LIST = st.lists(TEXT, min_size=1, max_size=4)
OBJECT = st.dictionaries(TEXT.filter(bool), TEXT, min_size=1, max_size=4)


def serialize(value: Any, **options: Any) -> str:
    """Return a parameter as the HTTP client sends it in the path, query or cookies."""
    parameter = Parameter(NAME, NAME, schema={}, **options)
    if options["location"] == "path":
        path = parameters.fill_path("/x/{" + NAME + "}/y", [parameter], {NAME: value})
        target = httpx2.URL(f"http://localhost{path}").raw_path.decode()
        assert target.startswith("/x/")
        assert target.endswith("/y")
        assert not {*target[3:-2]} & {*"/?#"}
        return target[3:-2]
    if options["location"] == "query":
        query = parameters.build_query([parameter], {NAME: value})
        target = httpx2.URL(f"http://localhost/x?{query}").raw_path.decode()
        assert target.startswith("/x?")
        return target[3:]
    return "; ".join(parameters.build_cookies([parameter], {NAME: value}))


def parse_pairs(parts: list[str]) -> list[tuple[str, str]]:
    return [(unquote(name), unquote(value)) for name, _, value in (part.partition("=") for part in parts)]


def to_texts(value: Any) -> list[str]:
    """Return a value as a list; for an object, keys and values alternately."""
    if isinstance(value, Mapping):
        return [text for pair in value.items() for text in pair]
    return value if isinstance(value, list) else [value]


def to_pairs(value: Any) -> list[tuple[str, str]]:
    """Return a value as the pairs of its exploded form; an object uses its keys as names."""
    return [*value.items()] if isinstance(value, Mapping) else [(NAME, text) for text in to_texts(value)]


def is_refused(texts: list[str]) -> bool:
    return texts in ([""], [])


@given(TEXT | LIST | OBJECT)
def test_simple(value: Any) -> None:
    assume(not is_refused(to_texts(value)))
    plain = serialize(value, location="path", style="simple", explode=False)
    assert [unquote(part) for part in plain.split(",")] == to_texts(value)
    exploded = serialize(value, location="path", style="simple", explode=True).split(",")
    if isinstance(value, Mapping):
        assert parse_pairs(exploded) == to_pairs(value)
    else:
        assert [unquote(part) for part in exploded] == to_texts(value)


@given(TEXT | LIST | OBJECT)
def test_label(value: Any) -> None:
    assume(not is_refused(to_texts(value)) and not (isinstance(value, list) and not any(value)))
    plain = serialize(value, location="path", style="label", explode=False)
    assert plain[0] == "."
    assert [unquote(part) for part in plain[1:].split(",")] == to_texts(value)
    exploded = serialize(value, location="path", style="label", explode=True)
    assert exploded[0] == "."
    parts = exploded[1:].split(".")
    assert (
        (parse_pairs(parts) == to_pairs(value))
        if isinstance(value, Mapping)
        else ([*map(unquote, parts)] == to_texts(value))
    )


@given(TEXT | LIST | OBJECT)
def test_matrix(value: Any) -> None:
    plain = serialize(value, location="path", style="matrix", explode=False)
    [(name, joined)] = [part.partition("=")[::2] for part in plain.removeprefix(";").split(";")]
    assert unquote(name) == NAME
    assert [unquote(part) for part in joined.split(",")] == to_texts(value)
    exploded = serialize(value, location="path", style="matrix", explode=True)
    assert exploded[0] == ";"
    assert parse_pairs(exploded[1:].split(";")) == to_pairs(value)


@pytest.mark.parametrize(("location", "delimiter"), [("query", "&"), ("cookie", "; ")])
@given(value=TEXT | LIST | OBJECT)
def test_exploded_form(location: Any, delimiter: str, value: Any) -> None:
    text = serialize(value, location=location, style="form", explode=True)
    assert parse_pairs(text.split(delimiter)) == to_pairs(value)


@pytest.mark.parametrize(
    ("location", "style", "delimiter"),
    [
        ("query", "form", ","),
        ("cookie", "form", ","),
        ("query", "spaceDelimited", "%20"),
        ("query", "pipeDelimited", "%7C"),
    ],
)
@given(value=LIST | OBJECT)
def test_delimited_lists_and_objects(location: Any, style: str, delimiter: str, value: Any) -> None:
    if delimiter != "," and any(unquote(delimiter) in text for text in to_texts(value)):
        # These two delimiters cannot be escaped inside a value.
        with pytest.raises(ValueError, match="between values"):
            serialize(value, location=location, style=style, explode=False)
        return
    text = serialize(value, location=location, style=style, explode=False)
    name, _, joined = text.partition("=")
    assert unquote(name) == NAME
    assert [unquote(part) for part in joined.split(delimiter)] == to_texts(value)


@pytest.mark.parametrize(
    ("options", "delimiter"),
    [
        ({"location": "query", "style": "form", "explode": False, "allow_reserved": True}, ","),
        ({"location": "query", "style": "deepObject", "explode": False, "allow_reserved": True}, ","),
        ({"location": "path", "style": "label", "explode": True}, "."),
        ({"location": "header", "style": "simple", "explode": False}, ","),
        ({"location": "header", "style": "simple", "explode": True}, ","),
    ],
)
def test_value_with_a_delimiter_is_refused(options: Any, delimiter: str) -> None:
    def serialize_parameter(value: Any) -> str:
        if options["location"] == "header":
            return parameters.build_headers([Parameter("X", "X", schema={}, **options)], {"X": value})["X"]
        return serialize(value, **options)

    with_delimiter = f"a{delimiter}b"
    for value in (
        ([with_delimiter], ["c", with_delimiter])
        if options["style"] == "deepObject"
        else ([with_delimiter], {"c": with_delimiter}, {with_delimiter: 1})
    ):
        with pytest.raises(ValueError, match="between values"):
            serialize_parameter(value)
    assert with_delimiter in serialize_parameter(with_delimiter)
    assert delimiter.join("ab") in serialize_parameter(["a", "b"])


@given(OBJECT)
def test_deep_objects(value: dict[str, str]) -> None:
    text = serialize(value, location="query", style="deepObject", explode=True)
    assert parse_pairs(text.split("&")) == [(f"{NAME}[{key}]", item) for key, item in value.items()]


@given(TEXT)
def test_allow_reserved_round_trips(value: str) -> None:
    """Also for a server that reads a plus as a space."""
    text = serialize(value, location="query", style="form", explode=True, allow_reserved=True)
    assert [*httpx2.QueryParams(text).multi_items()] == [(NAME, value)]
