"""Styles: whoever takes a URL apart by the table of the specification finds what was given."""

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

# A dot is never encoded, and is what stands between the parts of a label.
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="."), max_size=6)
SPECIAL = st.text("/?#&=;,+% |[]{}\\'\"\r\n\0é", max_size=6)
TEXT = TEXTS | SPECIAL
LIST = st.lists(TEXT, min_size=1, max_size=4)
OBJECT = st.dictionaries(TEXT.filter(bool), TEXT, min_size=1, max_size=4)


def sent(value: Any, **said: Any) -> str:
    """What is sent in the place of a parameter, as the client writes it into its request."""
    parameter = Parameter(NAME, NAME, schema={}, **said)
    if said["location"] == "path":
        path = parameters.fill_path("/x/{" + NAME + "}/y", [parameter], {NAME: value})
        target = httpx2.URL(f"http://localhost{path}").raw_path.decode()
        assert target.startswith("/x/")
        assert target.endswith("/y")
        assert not {*target[3:-2]} & {*"/?#"}
        return target[3:-2]
    if said["location"] == "query":
        query = parameters.build_query([parameter], {NAME: value})
        target = httpx2.URL(f"http://localhost/x?{query}").raw_path.decode()
        assert target.startswith("/x?")
        return target[3:]
    return "; ".join(parameters.build_cookies([parameter], {NAME: value}))


def pairs(parts: list[str]) -> list[tuple[str, str]]:
    found = [part.partition("=") for part in parts]
    return [(unquote(name), unquote(value)) for name, _, value in found]


def texts(value: Any) -> list[str]:
    """A value as a list: that of an object has names and values by turns."""
    if isinstance(value, Mapping):
        return [each for pair in value.items() for each in pair]
    return value if isinstance(value, list) else [value]


def named(value: Any) -> list[tuple[str, str]]:
    """A value as pairs: those of an object that explodes have its own names."""
    return [*value.items()] if isinstance(value, Mapping) else [(NAME, each) for each in texts(value)]


def is_refused(written: list[str]) -> bool:
    return written in ([""], [])


@given(TEXT | LIST | OBJECT)
def test_simple(value: Any) -> None:
    assume(not is_refused(texts(value)))
    plain = sent(value, location="path", style="simple", explode=False)
    assert [unquote(part) for part in plain.split(",")] == texts(value)
    exploded = sent(value, location="path", style="simple", explode=True).split(",")
    if isinstance(value, Mapping):
        assert pairs(exploded) == named(value)
    else:
        assert [unquote(part) for part in exploded] == texts(value)


@given(TEXT | LIST | OBJECT)
def test_label(value: Any) -> None:
    assume(not is_refused(texts(value)) and not (isinstance(value, list) and not any(value)))
    plain = sent(value, location="path", style="label", explode=False)
    assert plain[0] == "."
    assert [unquote(part) for part in plain[1:].split(",")] == texts(value)
    exploded = sent(value, location="path", style="label", explode=True)
    assert exploded[0] == "."
    parts = exploded[1:].split(".")
    assert (pairs(parts) == named(value)) if isinstance(value, Mapping) else ([*map(unquote, parts)] == texts(value))


@given(TEXT | LIST | OBJECT)
def test_matrix(value: Any) -> None:
    plain = sent(value, location="path", style="matrix", explode=False)
    [(name, together)] = [part.partition("=")[::2] for part in plain.removeprefix(";").split(";")]
    assert unquote(name) == NAME
    assert [unquote(part) for part in together.split(",")] == texts(value)
    exploded = sent(value, location="path", style="matrix", explode=True)
    assert exploded[0] == ";"
    assert pairs(exploded[1:].split(";")) == named(value)


@pytest.mark.parametrize(("location", "delimiter"), [("query", "&"), ("cookie", "; ")])
@given(value=TEXT | LIST | OBJECT)
def test_form_that_explodes(location: Any, delimiter: str, value: Any) -> None:
    arrived = sent(value, location=location, style="form", explode=True)
    assert pairs(arrived.split(delimiter)) == named(value)


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
def test_lists_and_objects_in_one(location: Any, style: str, delimiter: str, value: Any) -> None:
    if delimiter != "," and any(unquote(delimiter) in each for each in texts(value)):
        # The specification has no way to tell these two from what stands between the parts.
        with pytest.raises(ValueError, match="between values"):
            sent(value, location=location, style=style, explode=False)
        return
    arrived = sent(value, location=location, style=style, explode=False)
    name, _, together = arrived.partition("=")
    assert unquote(name) == NAME
    assert [unquote(part) for part in together.split(delimiter)] == texts(value)


@pytest.mark.parametrize(
    ("said", "delimiter"),
    [
        ({"location": "query", "style": "form", "explode": False, "allow_reserved": True}, ","),
        ({"location": "query", "style": "deepObject", "explode": False, "allow_reserved": True}, ","),
        ({"location": "path", "style": "label", "explode": True}, "."),
        ({"location": "header", "style": "simple", "explode": False}, ","),
        ({"location": "header", "style": "simple", "explode": True}, ","),
    ],
)
def test_what_would_be_taken_apart_is_refused(said: Any, delimiter: str) -> None:
    def write(value: Any) -> str:
        if said["location"] == "header":
            return parameters.build_headers([Parameter("X", "X", schema={}, **said)], {"X": value})["X"]
        return sent(value, **said)

    inside = f"a{delimiter}b"
    for value in ([inside], ["c", inside]) if said["style"] == "deepObject" else ([inside], {"c": inside}, {inside: 1}):
        with pytest.raises(ValueError, match="between values"):
            write(value)
    assert inside in write(inside)
    assert delimiter.join("ab") in write(["a", "b"])


@given(OBJECT)
def test_deep_objects(value: dict[str, str]) -> None:
    arrived = sent(value, location="query", style="deepObject", explode=True)
    assert pairs(arrived.split("&")) == [(f"{NAME}[{key}]", each) for key, each in value.items()]


@given(TEXT)
def test_what_may_stay_as_it_is_arrives_as_what_it_was(value: str) -> None:
    """Also where reserved characters are allowed, also for a reader to whom a plus is a space."""
    arrived = sent(value, location="query", style="form", explode=True, allow_reserved=True)
    assert [*httpx2.QueryParams(arrived).multi_items()] == [(NAME, value)]
