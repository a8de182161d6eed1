"""Fields of items: named by dots or pointers, read page by page, and refused if no item has them."""

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from forebay import PathNotFound, Store
from hypothesis import given
from hypothesis import strategies as st
from stores import RecordedReads, asks, content, long_texts, pages, read_by_offset, store_at


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with store_at(tmp_path_factory.mktemp("store")) as opened:
        yield opened


def project_item(item: Any, fields: list[str]) -> Any:
    return {key: value for key, value in item.items() if key in fields} if isinstance(item, dict) else None


rows = st.lists(
    st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers() | long_texts) | st.integers(), max_size=40
)


@pytest.mark.slow
@given(rows, st.lists(st.sampled_from(["a", "b", "d"]), min_size=1, unique=True), asks)
def test_fields_of_items_tile(store: Store, items: list[Any], fields: list[str], ask: dict[str, Any]) -> None:
    handle = store.put(json.dumps({"rows": items})).output_handle
    if items and not any(map(project_item, items, itertools.repeat(fields))):
        with pytest.raises(PathNotFound):
            store.fetch(handle, fields=fields, format="items", **ask)
        return
    found: list[Any] = []
    for page in pages(store, handle, fields=fields, format="items", **ask):
        shown = content(page)
        assert len(shown) == page.returned
        if page.truncated:
            (cut,) = page.truncated
            stands = store.get(handle, cut["path"])
            assert (cut["index"], cut["size_bytes"]) == (page.offset, len(stands))
            assert read_by_offset(store, handle, None, cut) == stands
            shown = [project_item(json.loads(stands), fields)]
        found += shown
    assert found == [project_item(item, fields) for item in items]


BULKY = [{"id": number, "text": "x" * 99_990} for number in range(400)]
MAX_READ_BYTES = 16 << 20


@pytest.fixture(scope="module")
def bulky(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, str]]:
    """Items of many bytes, of which the fields are few."""
    with store_at(tmp_path_factory.mktemp("store"), compression="none") as opened:
        yield opened, opened.put({"rows": BULKY}).output_handle


def test_a_page_of_fields_ends_early_at_the_scan_limit(
    bulky: tuple[Store, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, handle = bulky
    assert store.stat(handle).size_bytes > 2 * MAX_READ_BYTES
    reads = RecordedReads(monkeypatch)
    found = list(pages(store, handle, fields=["id"], limit=1000))
    assert [item for page in found for item in content(page)] == [{"id": number} for number in range(len(BULKY))]
    assert len(found) == 3
    for page in found:
        _, read = reads.measure(lambda page=page: store.fetch(handle, offset=page.offset, fields=["id"], limit=1000))
        assert read < MAX_READ_BYTES * 3 // 2


def test_fields_that_no_item_has_are_refused_after_a_bounded_scan(
    bulky: tuple[Store, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, handle = bulky
    reads = RecordedReads(monkeypatch)

    def ask() -> None:
        with pytest.raises(
            PathNotFound, match=r"the first (\d+) items have none of the fields \['nope', '/no/pe'\]"
        ) as raised:
            store.fetch(handle, fields=["nope", "/no/pe"])
        assert "[{id: int, text: str}]" in str(raised.value)
        offset = int(str(raised.value).rpartition("look further from offset=")[2])
        assert 0 < offset < len(BULKY)
        assert content(store.fetch(handle, offset=offset, fields=["nope"], limit=3)) == [{}, {}, {}]

    _, read = reads.measure(ask)
    assert read < 4 * MAX_READ_BYTES
    _, read = reads.measure(lambda: store.fetch(handle, offset=len(BULKY) - 1, fields=["nope"]))
    assert read < 1 << 20


@pytest.mark.slow
def test_the_error_for_unknown_fields_has_the_offset_to_continue_at(store: Store) -> None:
    handle = store.put(b"[" + b",".join([b'{"id":1}'] * 2_200_000) + b"]").output_handle
    with pytest.raises(PathNotFound) as raised:
        store.fetch(handle, fields=["nope"])
    offset = int(str(raised.value).rpartition("look further from offset=")[2])
    assert content(store.fetch(handle, offset=offset, fields=["nope"], limit=1)) == [{}]
    with pytest.raises(PathNotFound):
        store.fetch(handle, offset=offset - 1, fields=["nope"], limit=1)


@pytest.mark.parametrize("fields", [["nope"], ["a.nope"], ["/a/nope"], ["/list/0/b"], ["A"]])
@pytest.mark.parametrize("offset", [0, 3])
def test_the_error_for_unknown_fields_shows_the_fields_of_an_item(fields: list[str], offset: int, store: Store) -> None:
    handle = store.put([{"a": {"b": n}, "list": [{"b": n}]} for n in range(9)]).output_handle
    with pytest.raises(PathNotFound, match=r"name keys of an item, as in \[{a: {b: int}, list: .*}\]$") as raised:
        store.fetch(handle, fields=fields, offset=offset)
    assert "look further" not in str(raised.value)
    assert content(store.fetch(handle, fields=fields, offset=9)) == []


@given(st.integers(0, 30), st.integers(1, 31))
def test_fields_that_few_items_have_tile(store: Store, number: int, limit: int) -> None:
    items: list[Any] = [{"rare": 1} if n == number else {"a": 1} for n in range(31)]
    handle = store.put(items).output_handle
    found = [item for page in pages(store, handle, fields=["rare"], limit=limit) for item in content(page)]
    assert found == [{"rare": 1} if n == number else {} for n in range(31)]


@pytest.mark.parametrize("field", ["customer.name", "/customer/name"])
def test_a_field_is_named_by_dots_or_by_a_pointer(field: str, store: Store) -> None:
    handle = store.put({"orders": [{"id": 1, "customer": {"name": "Ann", "age": 3}}]}).output_handle
    assert content(store.fetch(handle, fields=[field])) == [{"customer": {"name": "Ann"}}]


def test_fields_may_be_an_iterator(store: Store) -> None:
    handle = store.put([{"a": "x" * 200, "b": n} for n in range(500)]).output_handle
    page = store.fetch(handle, fields=iter(["a"]), max_bytes=2048)  # type: ignore[arg-type]
    assert json.loads(page.content) == [{"a": "x" * 200}] * page.returned


def test_a_field_that_no_item_has_is_named_in_a_hint(store: Store) -> None:
    items = [{"id": n, "user": {"name": "ann"}, **({"late": 1} if n > 900 else {})} for n in range(1000)]
    handle = store.put(items).output_handle
    page = store.fetch(handle, fields=["id", "user.nmae", "Id"], limit=2)
    assert page.content == b'[{"id":0,"user":{}},{"id":1,"user":{}}]'
    assert page.hint is not None
    assert page.hint.startswith(
        "no item has the field 'user.nmae'; no item has the field 'Id'; the items are [{id: int"
    )
    assert store.fetch(handle, fields=["id", "nope"], offset=2).hint is None
    assert store.fetch(handle, fields=["id", "late"]).hint is None
    assert store.fetch(handle, where={"id": {"<": 3}}, fields=["id", "nope"]).hint is not None
    table = store.put("id,a.b\n1,2\n", mime_type="text/csv").output_handle
    assert store.fetch(table, fields=["id", "a.b"]).hint is None
    assert store.fetch(table, fields=["id", "a.c"]).hint is not None
