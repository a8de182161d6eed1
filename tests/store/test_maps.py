"""Maps of like values page by entry, and every part of the store agrees on their items."""

import json
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from forebay import Store
from forebay.errors import InvalidFormat, PathNotFound
from hypothesis import example, given
from hypothesis import strategies as st
from stores import asks, content, make_request, pages, store_at
from texts import nasty_text

KEYS = ["git", "a/b", "m~n", "~1", "", '"', "\\", "\\u0041", "é漢😀", "_key", "0", "17", "-", "]},{"]
PLUGINS: dict[str, Any] = {
    key: {"version": f"1.{number}", "stars": number, "tags": ["x", {"y": number}]} for number, key in enumerate(KEYS)
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with store_at(tmp_path_factory.mktemp("store")) as opened:
        yield opened


def pointer(*keys: str) -> str:
    return "".join("/" + key.replace("~", "~0").replace("/", "~1") for key in keys)


def read_items(store: Store, handle: str, **ask: Any) -> list[Any]:
    return [item for page in pages(store, handle, **ask) for item in content(page)]


def make_large(count: int = 20_000) -> dict[str, Any]:
    return {f"k{number}": {"id": number, "text": "lorem " * 5, "list": [number]} for number in range(count)}


def test_a_map_is_the_collection(store: Store) -> None:
    document = {"total": 14, "plugins": PLUGINS, "notes": "n" * 200}
    descriptor = store.put(document)
    handle = descriptor.output_handle
    assert (descriptor.item_count, descriptor.items_path) == (14, "/plugins")
    expected = [{"_key": key, **value} for key, value in PLUGINS.items()]
    for ask in ({}, {"path": ""}, {"path": "/plugins"}, {"path": "/plugins", "format": "items"}):
        for max_bytes in (1200, 65536):
            assert read_items(store, handle, max_bytes=max_bytes, **ask) == expected
    page = store.fetch(handle)
    assert (page.total, page.items_path, page.not_in_items) == (
        14,
        "/plugins",
        {"size_bytes": 204, "paths": {"/notes": 202, "/total": 2}},
    )
    assert store.fetch(handle, path="/plugins").items_path is None


def test_a_path_leads_through_a_key(store: Store) -> None:
    for document, prefix in (({"total": 14, "plugins": PLUGINS}, ("plugins",)), (PLUGINS, ())):
        handle = store.put(document).output_handle
        for key, value in PLUGINS.items():
            assert orjson.loads(store.get(handle, pointer(*prefix, key))) == value
            assert orjson.loads(store.get(handle, pointer(*prefix, key, "tags", "1"))) == value["tags"][1]
        for path in (pointer(*prefix, "1"), pointer(*prefix, "git", "none"), pointer(*prefix, "git", "tags", "2")):
            with pytest.raises(PathNotFound, match="nothing at path"):
                store.get(handle, path)


def test_fields_keep_the_key(store: Store) -> None:
    handle = store.put({"plugins": PLUGINS}).output_handle
    stars = [{"_key": key, "stars": number} for number, key in enumerate(KEYS)]
    assert read_items(store, handle, fields=["stars"]) == stars
    assert read_items(store, handle, fields=["stars", "_key"], max_bytes=600) == stars
    assert read_items(store, handle, fields=["_key"]) == [{"_key": key} for key in KEYS]
    with pytest.raises(PathNotFound, match="none of the fields"):
        store.fetch(handle, fields=["none"])


def test_matches_have_the_number_of_their_entry(store: Store) -> None:
    handle = store.put(make_large()).output_handle
    for number in (0, 7, 4_999, 19_999):
        (match,) = store.search(handle, f'"k{number}":').matches
        assert match["item"] == number
        (item,) = content(store.fetch(handle, offset=number, limit=1))
        assert (item["_key"], item["id"]) == (f"k{number}", number)


def test_a_key_in_a_large_map_is_found_in_the_map_alone(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = store.put({"rest": ["x" * 100_000], "map": make_large()}).output_handle
    monkeypatch.setattr(store._catalog, "read_payload", None)
    for number in (0, 12_345, 19_999):
        assert store.get(handle, f"/map/k{number}/id") == b"%d" % number
    with pytest.raises(PathNotFound):
        store.get(handle, "/map/k20000")


def test_an_entry_larger_than_a_page_is_named_by_its_key(store: Store) -> None:
    values = {key: {"text": "lorem ipsum " * 300, "n": number} for number, key in enumerate(KEYS)}
    handle = store.put({"map": values}).output_handle
    for ask in ({}, {"path": "/map"}, {"fields": ["text"]}):
        for number, page in enumerate(pages(store, handle, max_bytes=1500, **ask)):
            (cut,) = page.truncated
            key = KEYS[number]
            assert (cut["index"], cut["path"]) == (number, pointer("map", key))
            assert cut["read_with"] == {"output_handle": handle, "path": cut["path"]}
            assert store.get(handle, cut["path"]) == orjson.dumps(values[key])
            assert cut["size_bytes"] == len(orjson.dumps(values[key]))
            assert content(page)[0]["_key"] == key


@pytest.mark.parametrize("key", ["k" * 5000, "\ud800"], ids=["long", "surrogate"])
@pytest.mark.parametrize("path", [None, "/map"])
def test_a_key_that_no_path_can_name_is_read_by_its_bytes(key: str, path: str | None, store: Store) -> None:
    value = {"text": "lorem ipsum " * 300, "n": 1}
    data = json.dumps({"map": {key: value, **{f"k{number}": value for number in range(8)}}}).encode()
    handle = store.put(data).output_handle
    page = store.fetch(handle, path=path, limit=1, max_bytes=1500)
    (cut,) = page.truncated
    assert cut["path"] is None
    call = {name: value for name, value in cut["read_with"].items() if name != "output_handle"}
    assert json.loads(content(store.fetch(handle, **call))) == value


def test_equal_keys_are_entries_of_their_own(store: Store) -> None:
    members = ",".join(f'"k":{{"n":{number}}}' for number in range(10))
    handle = store.put(f"{{{members}}}".encode()).output_handle
    assert read_items(store, handle, limit=3) == [{"_key": "k", "n": number} for number in range(10)]
    assert store.get(handle, "/k/n") == b"0"


def test_any_object_has_items_on_request(store: Store) -> None:
    document = {"user": {"name": "Ann", "tags": [1, 2]}, "meta": {"page": 1}, "rows": [{"id": 1}] * 50}
    handle = store.put(document).output_handle
    assert store.fetch(handle, path="/user").format == "text"
    user = [{"_key": "name", "_value": "Ann"}, {"_key": "tags", "_value": [1, 2]}]
    assert read_items(store, handle, path="/user", format="items") == user
    with pytest.raises(InvalidFormat, match="omit fields"):
        store.fetch(handle, path="/user", fields=["name"])
    record = store.put({"name": "Ann", "age": 3}).output_handle
    assert store.fetch(record).format == "text"
    assert read_items(store, record, path="", format="items") == [
        {"_key": "name", "_value": "Ann"},
        {"_key": "age", "_value": 3},
    ]


@pytest.mark.parametrize("as_stream", [False, True])
def test_outlines_show_one_shape(as_stream: bool, store: Store) -> None:
    data = orjson.dumps({"total": 1, "map": make_large()})
    descriptor = store.put(iter([data]) if as_stream else data)
    shape = "{<k0>: {id: int, text: str, list: [int] ×1}} ×20000"
    assert descriptor.outline == f"{{total: int, map: {shape}}}"
    assert descriptor.preview is not None
    shown = orjson.loads(descriptor.preview)
    assert shown["total"] == 1
    assert [*shown["map"].items()] == [*make_large().items()][: len(shown["map"])]
    assert len(shown["map"]) > 5


def test_a_byte_order_mark_does_not_matter(store: Store) -> None:
    descriptor = store.put(b"\xef\xbb\xbf" + orjson.dumps({"map": PLUGINS}))
    handle = descriptor.output_handle
    assert descriptor.item_count == 14
    assert read_items(store, handle, limit=4) == [{"_key": key, **value} for key, value in PLUGINS.items()]
    assert store.get(handle, "/map/git/stars") == b"0"


def test_maps_in_ndjson_are_values(store: Store) -> None:
    line = orjson.dumps({"map": PLUGINS})
    handle = store.put(line + b"\n" + line).output_handle
    assert store.fetch(handle).total == 2
    page = store.fetch(handle, path="/1/map")
    assert (page.format, page.total) == ("items", 14)


records = st.fixed_dictionaries(
    {"id": st.integers(0, 9)}, optional={"text": nasty_text, "list": st.lists(st.integers(0, 99), max_size=3)}
)
maps = st.dictionaries(nasty_text, records, min_size=8, max_size=14)


@given(maps, st.booleans(), asks)
@example(
    {**{str(number): {"id": 0} for number in range(8)}, "k" * 60: {"text": "x" * 90}}, False, make_request(None, 0, 0)
)
def test_pages_tile(store: Store, document: dict[str, Any], is_nested: bool, ask: dict[str, Any]) -> None:
    data = orjson.dumps({"n": 1, "at": document} if is_nested else document)
    descriptor = store.put(data)
    prefix = ("at",) if is_nested else ()
    assert (descriptor.item_count, descriptor.items_path) == (len(document), pointer(*prefix))
    left = list(document.items())
    for page in pages(store, descriptor.output_handle, **ask):
        entries, left = left[: page.returned], left[page.returned :]
        if not page.truncated:
            assert content(page) == [{"_key": key, **value} for key, value in entries]
            continue
        ((key, value),), (cut,) = entries, page.truncated
        if cut["path"] is not None:
            assert cut["path"] == pointer(*prefix, key)
            assert orjson.loads(store.get(descriptor.output_handle, cut["path"])) == value
        assert orjson.loads(data[cut["byte_offset"] :][: cut["size_bytes"]]) == value
    assert not left
