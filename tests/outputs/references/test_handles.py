"""`$handle` in arguments: stored outputs and values inside them."""

import base64
import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forebay import (
    FileRefTooLarge,
    HandleNotFound,
    InvalidArgument,
    InvalidFormat,
    InvalidJSON,
    PatchFailed,
    PathNotFound,
    QueryFailed,
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


def test_base64_of_a_compressed_output_is_that_of_the_original(references: ReferenceResolver, store: Store) -> None:
    original = gzip.compress(b"line\n" * 100)
    reference = {"$handle": store.put(original).output_handle}
    arguments = {"text": reference, "other": {**reference, "encoding": "base64"}}
    resolved = to_objects(references.resolve(arguments, SCHEMA))
    assert (resolved["text"], base64.b64decode(resolved["other"])) == ("line\n" * 100, original)


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


RENAME = [{"op": "replace", "path": "/word", "value": "new"}]


@pytest.mark.parametrize(
    ("reference", "text"),
    [
        ({"patch": RENAME}, json.dumps(DOCUMENT | {"word": "new"})),
        ({"patch": []}, json.dumps(DOCUMENT)),
        ({"patch": None}, json.dumps(DOCUMENT)),
        ({"path": "/rows/1", "patch": [{"op": "add", "path": "/n", "value": 2**70}]}, f'{{"id": 2,"n": {2**70}}}'),
        ({"path": "/rows/1", "patch": RENAME[:0], "encoding": "base64"}, "eyJpZCI6IDJ9"),
        ({"path": "/inner", "patch": [{"op": "remove", "path": "/a"}]}, "{}"),
    ],
)
def test_a_patch_changes_what_is_passed_on(
    references: ReferenceResolver, store: Store, reference: Any, text: str
) -> None:
    handle = store.put(json.dumps(DOCUMENT)).output_handle
    resolved = to_objects(references.resolve({"text": {"$handle": handle, **reference}}, SCHEMA))
    assert resolved == {"text": text}


@pytest.mark.parametrize(
    ("value", "patch", "text"),
    [
        ("Old", [{"op": "replace", "path": "", "value": "New"}], "New"),
        ("Old", [{"op": "test", "path": "", "value": "Old"}, {"op": "add", "path": "", "value": 'a "b"\n'}], 'a "b"\n'),
        ("Old", [{"op": "replace", "path": "", "value": {"a": 1}}], '{"a":1}'),
        ("Old", [], "Old"),
        ("", [{"op": "replace", "path": "", "value": "New"}], "New"),
        ("123", [{"op": "test", "path": "", "value": "123"}], "123"),
        ("null", [{"op": "replace", "path": "", "value": "New"}], "New"),
        (' {"a": [1]}', [{"op": "replace", "path": "/a/0", "value": 2}], ' {"a": [2]}'),
        ('{"a": 1}', [{"op": "move", "from": "/a", "path": "/b"}], '{"b": 1}'),
        ('{"a": 1}', [{"op": "test", "path": "", "value": '{"a": 1}'}], '{"a": 1}'),
        ('{"a": 1}', [{"op": "replace", "path": "", "value": "New"}], "New"),
    ],
)
def test_a_text_is_patched_as_a_json_string_or_as_the_document_in_it(
    references: ReferenceResolver, store: Store, value: str, patch: Any, text: str
) -> None:
    handle = store.put({"title": value}).output_handle
    reference = {"$handle": handle, "path": "/title", "patch": patch}
    assert to_objects(references.resolve({"text": reference}, SCHEMA)) == {"text": text}


def test_a_failed_patch_of_a_text_says_what_is_there(references: ReferenceResolver, store: Store) -> None:
    handle = store.put({"title": "Old", "code": "{x"}).output_handle
    for path, operation, message in (
        ("/title", {"op": "test", "path": "", "value": "old"}, r'the value is "Old"'),
        ("/title", {"op": "replace", "path": "/title", "value": "x"}, r'patch\[0\] .*"/title"'),
        ("/code", {"op": "replace", "path": "/x", "value": 1}, r'patch\[0\] .*"/x"'),
    ):
        with pytest.raises(PatchFailed, match=message):
            references.resolve({"text": {"$handle": handle, "path": path, "patch": [operation]}}, SCHEMA)


def test_a_patched_text_keeps_to_the_limit_of_a_call(store: Store) -> None:
    references = ReferenceResolver(store, [], max_bytes=1000)
    handle = store.put({"title": "Old"}).output_handle

    def resolve(value: str) -> Any:
        patch = [{"op": "replace", "path": "", "value": value}]
        return to_objects(references.resolve({"text": {"$handle": handle, "path": "/title", "patch": patch}}, SCHEMA))

    # Its escapes do not count.
    assert resolve('"' * 1000) == {"text": '"' * 1000}
    for value in ("x" * 1001, "\n" * 1001):
        with pytest.raises(PatchFailed, match="add less"):
            resolve(value)


def test_a_failed_patch_names_the_operation_and_what_is_there(references: ReferenceResolver, store: Store) -> None:
    handle = store.put({"rows": [{"id": 1}], "word": "w"}).output_handle
    for operation, message in (
        ({"op": "replace", "path": "/wrod", "value": 1}, r"patch\[1\] .* nothing is at \"/wrod\"; there is {rows: "),
        ({"op": "test", "path": "/word", "value": "v"}, r"patch\[1\] .* the value is \"new\""),
    ):
        with pytest.raises(PatchFailed, match=message):
            references.resolve({"a": {"$handle": handle, "patch": [*RENAME, operation]}})
    (event,) = store.journal.recent(1)
    assert (event["event"], event["code"]) == ("file_ref_denied", "patch_failed")


def test_only_json_can_be_patched(references: ReferenceResolver, store: Store) -> None:
    for content in ("text", b"\x00", "1\n2\n"):
        handle = store.put(content).output_handle
        with pytest.raises(InvalidJSON, match="a patch takes"):
            references.resolve({"a": {"$handle": handle, "patch": RENAME}})
    handle = store.put(DOCUMENT).output_handle
    wrong: Any
    for wrong in ("x", {}, [1], [{"op": "delete"}], 5):
        with pytest.raises(InvalidArgument, match=r"a list of operations|patch\[0\]"):
            references.resolve({"a": {"$handle": handle, "patch": wrong}})
    nested = [{"op": "add", "path": "/x", "value": {"$handle": handle}}]
    with pytest.raises(InvalidArgument, match="without references"):
        references.resolve({"a": {"$handle": handle, "patch": nested}})


def test_a_patch_keeps_to_the_limit_of_a_call(store: Store) -> None:
    references = ReferenceResolver(store, [], max_bytes=1000)
    handle = store.put([1]).output_handle
    doubled = [{"op": "copy", "from": "", "path": "/-"}] * 30
    with pytest.raises(PatchFailed, match="more than 1000"):
        references.resolve({"a": {"$handle": handle, "patch": doubled}})
    half = {"$handle": handle, "patch": [{"op": "add", "path": "/-", "value": "x" * 600}]}
    references.resolve({"a": half})
    with pytest.raises(PatchFailed, match="add less"):
        references.resolve({"a": half, "b": half})


@pytest.mark.posix
def test_a_query_is_replaced_by_its_rows(references: ReferenceResolver, store: Store) -> None:
    pytest.importorskip("duckdb")
    handle = store.put(
        [{"id": n, "big": 10**25, "kind": "ab"[n % 2]} for n in range(3000)], principal="ann"
    ).output_handle

    def resolve(sql: str, principal: str | None = "ann", **options: Any) -> Any:
        call = {"json": {"$query": {"handle": handle, "sql": sql}, **options}}
        return to_objects(references.resolve(call, SCHEMA, principal))["json"]

    assert resolve("SELECT kind, count(*) AS n FROM items GROUP BY 1 ORDER BY 1") == [
        {"kind": "a", "n": 1500},
        {"kind": "b", "n": 1500},
    ]
    assert resolve("SELECT id FROM items ORDER BY id") == [{"id": n} for n in range(3000)]
    assert resolve("SELECT big, big FROM items LIMIT 1") == [{"big": 10**25, "big_2": 10**25}]
    patch = [{"op": "add", "path": "/0", "value": {"n": 1}}]
    assert resolve("SELECT 2 AS n FROM items LIMIT 1", patch=patch) == [{"n": 1}, {"n": 2}]
    with pytest.raises(HandleNotFound):
        resolve("SELECT 1 FROM items", "bob")
    with pytest.raises(QueryFailed):
        resolve("SELECT nothing FROM items")
    (event,) = store.journal.recent(1)
    assert (event["event"], event["code"], event["handle"]) == ("file_ref_denied", "query_failed", handle)


@pytest.mark.posix
def test_a_query_keeps_to_the_limit_of_a_call(store: Store) -> None:
    pytest.importorskip("duckdb")
    references = ReferenceResolver(store, [], max_bytes=10_000)
    handle = store.put([{"id": n} for n in range(3000)]).output_handle
    for sql in ("SELECT id FROM items", "SELECT repeat('x', 9990) AS x FROM items LIMIT 1"):
        with pytest.raises((FileRefTooLarge, QueryFailed), match="fewer"):
            references.resolve({"a": {"$query": {"handle": handle, "sql": sql}}})


@pytest.mark.parametrize(
    "query", ["SELECT 1", {"sql": "x"}, {"handle": "oh_", "sql": 1}, {"handle": "x", "sql": "y", "z": 1}, None]
)
def test_a_malformed_query_is_refused(references: ReferenceResolver, query: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"\$query|sql"):
        references.resolve({"a": {"$query": query}})
    assert references.resolve({"a": {"$$query": query}}) == {"a": {"$query": query}}
