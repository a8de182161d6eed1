"""`$handle` in arguments: a stored output, and what is in it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forebay import (
    HandleNotFound,
    InvalidFormat,
    InvalidJSON,
    PathNotFound,
    Store,
)
from forebay.outputs.references.resolver import ReferenceResolver, to_objects
from stores import store_at

SCHEMA = {"properties": {"text": {"type": "string"}, "json": {"type": ["object", "array"]}}}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with store_at(tmp_path / "store") as store:
        yield store


@pytest.fixture
def references(store: Store) -> ReferenceResolver:
    return ReferenceResolver(store, [])


DOCUMENT = {"rows": [{"id": 1, "text": 'a "quoted"\nline\nmore'}, {"id": 2}], "word": "w", "n": 7, "inner": '{"a": 1}'}


@pytest.mark.parametrize(
    ("reference", "text"),
    [
        ({}, json.dumps(DOCUMENT)),
        ({"path": ""}, json.dumps(DOCUMENT)),
        ({"path": "/rows/1"}, '{"id": 2}'),
        ({"path": "/rows"}, json.dumps(DOCUMENT["rows"])),
        ({"path": "/word"}, "w"),
        ({"path": "/n"}, "7"),
        ({"path": "/rows/0/text"}, 'a "quoted"\nline\nmore'),
        ({"path": "/rows/0/text", "lines": [1, 2]}, "line\n"),
        ({"path": "/rows/0/text", "offset": 2, "length": 8}, '"quoted"'),
        ({"path": "/word", "encoding": "base64"}, "dw=="),
    ],
)
def test_a_stored_output_and_what_is_in_it(
    references: ReferenceResolver, store: Store, reference: Any, text: str
) -> None:
    handle = store.put(json.dumps(DOCUMENT)).output_handle
    found = to_objects(references.resolve({"text": {"$handle": handle, **reference}}, SCHEMA))
    assert found == {"text": text}


def test_a_text_that_is_json_is_parsed_where_that_is_wanted(references: ReferenceResolver, store: Store) -> None:
    handle = store.put(DOCUMENT).output_handle
    for path, value in (("/inner", {"a": 1}), ("/rows/1", {"id": 2}), ("", DOCUMENT)):
        found = to_objects(references.resolve({"json": {"$handle": handle, "path": path}}, SCHEMA))
        assert found == {"json": value}
    with pytest.raises(InvalidJSON):
        references.resolve({"json": {"$handle": handle, "path": "/word"}}, SCHEMA)


def test_a_stored_string_is_its_text_by_its_path_only(references: ReferenceResolver, store: Store) -> None:
    handle = store.put(b' "a\\nb" ', mime_type="application/json").output_handle
    several = store.put(b'"a"\n"b"\n', mime_type="application/json").output_handle
    call = {"a": {"$handle": handle}, "b": {"$handle": handle, "path": ""}, "c": {"$handle": several, "path": ""}}
    assert to_objects(references.resolve(call)) == {"a": ' "a\\nb" ', "b": "a\nb", "c": '"a"\n"b"\n'}


def test_half_of_a_surrogate_pair_is_no_text(references: ReferenceResolver, store: Store) -> None:
    handle = store.put(b'{"a": "\\ud800"}').output_handle
    with pytest.raises(InvalidJSON, match="half of a surrogate pair"):
        references.resolve({"a": {"$handle": handle, "path": "/a"}})


def test_what_another_principal_stored_does_not_exist(references: ReferenceResolver, store: Store) -> None:
    handle = store.put("mine", principal="ann").output_handle
    assert to_objects(references.resolve({"a": {"$handle": handle}}, None, "ann")) == {"a": "mine"}
    for other in (None, "bob"):
        with pytest.raises(HandleNotFound):
            references.resolve({"a": {"$handle": handle}}, None, other)
    for wrong in ("", "oh_", "../" + handle, "x" * 10**6, handle + "A"):
        with pytest.raises(HandleNotFound) as caught:
            references.resolve({"a": {"$handle": wrong}}, None, "ann")
        assert len(str(caught.value)) < 300


def test_a_path_that_leads_nowhere_is_told_what_there_is(references: ReferenceResolver, store: Store) -> None:
    handle = store.put({"rows": [{"id": 1}]}).output_handle
    with pytest.raises(PathNotFound, match=r"nothing at path '/none'; there is {rows: \[{id: int}\]"):
        references.resolve({"a": {"$handle": handle, "path": "/none"}})
    with pytest.raises(InvalidFormat, match="leave the path out"):
        references.resolve({"a": {"$handle": store.put("text").output_handle, "path": "/a"}})
