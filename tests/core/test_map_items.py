"""Maps of like values: which object is the main collection, and pages of its entries, compared with parsed ones."""

import json
from typing import Any

import pytest
from documents import forms, texts, values
from forebay import ItemIndex, PathNotFound, index_items, read_items
from forebay._core import ItemIndexer
from hypothesis import given
from hypothesis import strategies as st
from item_pages import MIN_BYTES, read_pages

RECORDS = {f"r{number}": {"id": number, "tags": ["a", "b"]} for number in range(8)}
NASTY_KEYS = [
    "",
    "_key",
    "_value",
    "a/b",
    "m~n",
    "~1",
    '"',
    "\\",
    "\\u0041",
    "A",
    "é漢😀",
    "[{",
    "]},",
    "k" * 5000,
    "\n",
]


class Pairs(list[tuple[str, Any]]):
    """An object with all of its members, in order."""


def to_item(key: str, value: Any) -> Any:
    if isinstance(value, Pairs) and all(name != "_key" for name, _ in value):
        return Pairs([("_key", key), *value])
    return Pairs([("_key", key), ("_value", value)])


def parse(data: bytes) -> Any:
    return json.loads(data, object_pairs_hook=Pairs)


def check_pages(data: bytes, index: ItemIndex, limit: int, max_bytes: int) -> None:
    entries = parse(data[index.start : index.end])
    assert index.kind == "map"
    assert len(index) == len(entries)
    count = 0
    for page in read_pages(data, index, limit, max_bytes):
        content = parse(page.content)
        if page.truncated:
            (cut,) = page.truncated
            key, value = entries[count]
            assert (cut.index, page.truncated_key, page.returned) == (count, key, 1)
            whole = data[cut.byte_offset : cut.byte_offset + cut.size_bytes]
            assert parse(whole) == value
            assert whole == whole.strip()
        else:
            assert page.truncated_key is None
            assert content == [to_item(*entry) for entry in entries[count : count + page.returned]]
        count += page.returned
    assert count == len(entries)


@pytest.mark.parametrize(
    ("document", "found"),
    [
        (RECORDS, ("map", "", 8)),
        ({"total": 8, "rows": RECORDS}, ("map", "/rows", 8)),
        ({"a": {"b": {"c": {"d": RECORDS}}}}, ("map", "/a/b/c/d", 8)),
        ({"a": {"b": {"c": {"d": {"e": RECORDS}}}}}, None),
        (dict(list(RECORDS.items())[:7]), ("array", "/r0/tags", 2)),
        ({**RECORDS, "list": ["x" * 500]}, ("array", "/list", 1)),
        ({**RECORDS, "list": ["x" * 100]}, ("map", "", 9)),
        ({"deep": {"list": ["x" * 500]}, **RECORDS}, ("array", "/deep/list", 1)),
        ({"list": ["x" * 500], "rows": RECORDS}, ("array", "/list", 1)),
        ({"list": ["x" * 50], "rows": RECORDS}, ("map", "/rows", 8)),
        ({**RECORDS, "last": None}, ("map", "", 9)),
        ({"first": None, **RECORDS}, ("map", "", 9)),
        ({"page": 1, **RECORDS}, ("array", "/r0/tags", 2)),
        ({f"r{number}": {f"k{number}": 1} for number in range(9)}, None),
        ({f"r{number}": {"id": 1, f"k{number}": 1} for number in range(9)}, None),
        ({f"r{number}": {"id": 1, "x": 2, f"k{number}": 1} for number in range(9)}, ("map", "", 9)),
        ({f"k{number}": number for number in range(99)}, None),
        ({f"k{number}": number for number in range(100)}, ("map", "", 100)),
        ({f"k{number}": number if number % 2 else "x" for number in range(200)}, None),
        ({f"k{number}": [number] for number in range(32)}, ("map", "", 32)),
        ({f"k{number}": [number] for number in range(31)}, ("array", "/k10", 1)),
        ({"user": {"id": 1}, "meta": {"id": 2}}, None),
        ({}, None),
    ],
)
def test_the_main_collection(document: Any, found: tuple[str, str, int] | None) -> None:
    for data in (json.dumps(document).encode(), json.dumps(document, indent=1).encode()):
        index = index_items(data)
        assert (index.kind, index.path, len(index)) == (found or (None, None, 0))
        indexer = ItemIndexer()
        for byte in data:
            indexer.feed(bytes([byte]))
        assert indexer.finish() == index


@given(st.dictionaries(texts | st.sampled_from(NASTY_KEYS), values, max_size=12), forms, st.data())
def test_pages_are_the_entries_of_any_object(
    document: dict[str, Any], form: dict[str, Any], pick: st.DataObject
) -> None:
    data = json.dumps({"": 0, "at": document}, **form).encode()
    index = index_items(data, "/at")
    assert (index.kind, index.path) == ("map", "/at")
    limit = pick.draw(st.integers(1, 15))
    check_pages(data, index, limit, pick.draw(st.integers(MIN_BYTES, len(data) + 200)))
    assert ItemIndex.from_bytes(index.to_bytes()) == index


@pytest.mark.parametrize("form", [{"separators": (",", ":")}, {"indent": 2}], ids=str)
def test_every_budget_is_kept(form: dict[str, Any]) -> None:
    document = {key: {"n": [1, {"a": key[:9]}]} if number % 3 else key[:9] for number, key in enumerate(NASTY_KEYS)}
    data = json.dumps(document | {"k" * 5000: 1}, **form).encode()
    index = index_items(data, "")
    for max_bytes in [*range(MIN_BYTES, 700), *range(4900, 5100), 12_000]:
        check_pages(data, index, 100, max_bytes)


def test_equal_keys_are_entries_of_their_own() -> None:
    data = b'{"a": 1, "\\u0061": {"x": 2}, "a": {"_key": 3}, "b": {"x": 4, "x": 5}}'
    page = read_items(data, index_items(data, ""))
    assert page.content == (
        b'[{"_key":"a","_value":1},{"_key":"\\u0061","x": 2},{"_key":"a","_value":{"_key": 3}},'
        b'{"_key":"b","x": 4, "x": 5}]'
    )


def test_a_key_that_is_not_text_has_no_name() -> None:
    data = b'{"\\ud800": [' + b"1," * 100 + b"2]}"
    page = read_items(data, index_items(data, ""), max_bytes=50)
    assert page.truncated_key is None
    assert page.content.startswith(b'[{"_key":"\\ud800"')
    assert page.truncated[0].byte_offset == data.index(b"[")


@pytest.mark.parametrize("data", [b"1", b'"a"', b"null", b'{"a": 1}'])
def test_only_containers_have_items(data: bytes) -> None:
    with pytest.raises(PathNotFound, match="no array or object at path"):
        index_items(data, "/a")


def test_an_object_may_have_no_entries() -> None:
    index = index_items(b" { } ", "")
    assert (index.kind, len(index), index.start, index.end) == ("map", 0, 1, 4)
    assert read_items(b" { } ", index).content == b"[]"


def test_lines_of_maps_are_ndjson() -> None:
    line = json.dumps(RECORDS).encode()
    for path in (None, ""):
        index = index_items(line + b"\n" + line, path)
        assert (index.kind, len(index)) == ("ndjson", 2)
