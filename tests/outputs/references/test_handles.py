"""`$handle` in arguments: stored outputs and values inside them."""

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
def test_a_handle_with_options(references: ReferenceResolver, store: Store, reference: Any, text: str) -> None:
    handle = store.put(json.dumps(DOCUMENT)).output_handle
    resolved = to_objects(references.resolve({"text": {"$handle": handle, **reference}}, SCHEMA))
    assert resolved == {"text": text}


def test_stored_text_is_parsed_for_a_json_argument(references: ReferenceResolver, store: Store) -> None:
    handle = store.put(DOCUMENT).output_handle
    for path, value in (("/inner", {"a": 1}), ("/rows/1", {"id": 2}), ("", DOCUMENT)):
        resolved = to_objects(references.resolve({"json": {"$handle": handle, "path": path}}, SCHEMA))
        assert resolved == {"json": value}
    with pytest.raises(InvalidJSON):
        references.resolve({"json": {"$handle": handle, "path": "/word"}}, SCHEMA)


def test_a_json_string_is_decoded_only_with_a_path(references: ReferenceResolver, store: Store) -> None:
    handle = store.put(b' "a\\nb" ', mime_type="application/json").output_handle
    several = store.put(b'"a"\n"b"\n', mime_type="application/json").output_handle
    call = {"a": {"$handle": handle}, "b": {"$handle": handle, "path": ""}, "c": {"$handle": several, "path": ""}}
    assert to_objects(references.resolve(call)) == {"a": ' "a\\nb" ', "b": "a\nb", "c": '"a"\n"b"\n'}


def test_a_lone_surrogate_is_refused(references: ReferenceResolver, store: Store) -> None:
    handle = store.put(b'{"a": "\\ud800"}').output_handle
    with pytest.raises(InvalidJSON, match="half of a surrogate pair"):
        references.resolve({"a": {"$handle": handle, "path": "/a"}})


def test_handles_of_other_principals_are_not_found(references: ReferenceResolver, store: Store) -> None:
    handle = store.put("mine", principal="ann").output_handle
    assert to_objects(references.resolve({"a": {"$handle": handle}}, None, "ann")) == {"a": "mine"}
    for other in (None, "bob"):
        with pytest.raises(HandleNotFound):
            references.resolve({"a": {"$handle": handle}}, None, other)
    for invalid in ("", "oh_", "../" + handle, "x" * 10**6, handle + "A"):
        with pytest.raises(HandleNotFound) as caught:
            references.resolve({"a": {"$handle": invalid}}, None, "ann")
        assert len(str(caught.value)) < 300


def test_a_wrong_path_is_refused_with_the_outline(references: ReferenceResolver, store: Store) -> None:
    handle = store.put({"rows": [{"id": 1}]}).output_handle
    with pytest.raises(PathNotFound, match=r"nothing at path '/none'; there is {rows: \[{id: int}\]"):
        references.resolve({"a": {"$handle": handle, "path": "/none"}})
    with pytest.raises(InvalidFormat, match="leave the path out"):
        references.resolve({"a": {"$handle": store.put("text").output_handle, "path": "/a"}})
