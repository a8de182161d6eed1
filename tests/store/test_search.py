"""Searching a stored payload: from its first part if that is enough, and with as much context as fits."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from forebay import InvalidArgument, InvalidFormat, PathNotFound, Store
from forebay.store import match_counts
from forebay.store import search as store_search
from forebay.store.frames import FRAME_BYTES
from hypothesis import given
from hypothesis import strategies as st
from stores import RecordedReads, asks, store_at
from texts import nasty_text, weigh

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with store_at(tmp_path_factory.mktemp("store")) as opened:
        yield opened


HALF_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*\\(?:u[0-9a-f]{0,3})?\Z")


@given(nasty_text, nasty_text, st.integers(0, 60), asks, st.integers(1, 10**7), st.booleans())
def test_a_context_is_cut_to_the_budget(
    store: Store, before: str, after: str, times: int, ask: dict[str, Any], context: int, as_json: bool
) -> None:
    text = (before * times + "NEEDLE" + after * times).replace("\x00", "")
    data = json.dumps([text]) if as_json else text
    handle = store.put(data, mime_type=None if as_json else "text/plain").output_handle
    ask = {**ask, "limit": 1}
    page = store.search(handle, "NEEDLE", context=context, **ask)
    weight = weigh(page.to_json().decode(), ask["escape_levels"])
    assert weight <= ask["max_bytes"]
    (match,) = page.matches
    shown = match["context"]
    assert "NEEDLE" in shown
    assert shown in data
    if as_json:
        assert not HALF_ESCAPE.search(shown)
    whole = store.search(handle, "NEEDLE", context=context, max_bytes=1 << 20, limit=1).matches[0]["context"]
    # One more character may take this much, on both sides and escaped twice. The keys that only other pages have are
    # left out of this one.
    other_keys = 160 * (1 + ask["escape_levels"])
    assert shown == whole or weight > ask["max_bytes"] - other_keys - 64


@pytest.mark.parametrize("text", ["\x01" * 500, "漢" * 500, '"' * 500, "\\" * 501])
def test_a_match_that_does_not_fit_is_cut(text: str, store: Store) -> None:
    handle = store.put(text, mime_type="text/plain").output_handle
    page = store.search(handle, ".+", regex=True, max_bytes=512)
    (match,) = page.matches
    assert len(page.to_json()) <= 512
    assert match["size_bytes"] == len(text.encode())
    assert 10 < len(match["context"]) < 256
    assert text.startswith(match["context"])


@pytest.mark.parametrize(
    "document",
    [
        {"tags": ["a", "needle", "c"], "body": "b" * 4000},
        {"body": "b" * 4000, "more": {"text": "needle"}, "tags": ["a", "c"]},
    ],
    ids=["in the list", "beside it"],
)
def test_a_match_has_no_item_number_if_pages_are_text(document: Any, store: Store) -> None:
    handle = store.put(json.dumps(document, indent=1)).output_handle
    (match,) = store.search(handle, "needle").matches
    assert "item" not in match
    assert "needle" in str(store.fetch(handle, offset=match["line"], limit=1, format="lines").content)
    assert str(store.fetch(handle, offset=match["byte_offset"]).content).startswith("needle")


def test_a_match_that_is_not_text_has_no_context(store: Store) -> None:
    handle = store.put(b"\xff\x00" * 500).output_handle
    page = store.search(handle, r"(?-u:\xff)", regex=True, max_bytes=512, context=10**6)
    assert {match["context"] for match in page.matches} == {None}


payloads = st.one_of(
    st.lists(st.text('abé"\\\n漢', max_size=30), max_size=30).map(lambda items: json.dumps({"rows": items})),
    st.lists(st.text('abé"\\\n漢', max_size=30), min_size=2, max_size=30).map(
        lambda items: "\n".join(json.dumps(item, ensure_ascii=False) for item in items)
    ),
    st.text("abé\\\n漢\x00", max_size=600),
)


@given(
    payloads,
    st.sampled_from(["a", "ab", "é", "\\u", "aba", "\n", "漢"]),
    st.booleans(),
    asks,
    st.integers(0, 60),
    st.integers(0, 300),
    st.integers(1, 700),
)
def test_the_first_part_gives_the_matches_of_the_whole_payload(
    store: Store, text: str, pattern: str, fold: bool, ask: dict[str, Any], context: int, start: int, part: int
) -> None:
    handle = store.put(text).output_handle
    ask = {**ask, "limit": (ask["limit"] or 3) % 4 + 1, "context": context, "offset": start, "ignore_case": fold}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_search, "_FIRST_SEARCH_BYTES", part)
        found = store.search(handle, pattern, **ask)
        patch.setattr(store_search, "_FIRST_SEARCH_BYTES", 1 << 40)
        assert found == store.search(handle, pattern, **ask)


@pytest.mark.parametrize("context", [0, 1, 5, 30])
@pytest.mark.parametrize("limit", [1, 2, 3])
def test_a_first_part_of_any_size_gives_the_matches_of_the_whole_payload(
    context: int, limit: int, store: Store
) -> None:
    texts = ["aa\\n", "😀a", "é", "a漢", "\\", "aaa"]
    handle = store.put(json.dumps(texts * 2)).output_handle
    lines = store.put("a\n" + "\n".join(texts * 2)).output_handle
    for one, size in ((handle, store.stat(handle).size_bytes), (lines, store.stat(lines).size_bytes)):
        expected = store.search(one, "a", limit=limit, context=context)
        for part in range(1, size + 1):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(store_search, "_FIRST_SEARCH_BYTES", part)
                # A cached payload is searched whole.
                store._catalog.forget(one)
                assert store.search(one, "a", limit=limit, context=context) == expected


@pytest.mark.parametrize(("pattern", "regex"), [("needle", False), ("needle.*", True), ("only here", False)])
def test_a_payload_is_read_and_counted_once(
    pattern: str, regex: bool, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = "a needle and some hay " * 40 + "\n"
    size = 24 << 20
    handle = store.put(line * (size // len(line)) + "only here").output_handle
    store.stat(handle)
    ranges, _ = RecordedReads(monkeypatch).measure(lambda: store.search(handle, pattern, regex=regex))
    # A search that does not see all matches counts them.
    assert ranges >= size // FRAME_BYTES
    ranges, _ = RecordedReads(monkeypatch).measure(lambda: store.search(handle, pattern, regex=regex, limit=7))
    # The total of the first search is remembered, and the payload is cached if all of it was searched.
    assert ranges == (1 if pattern == "needle" else 0)


ORDERS = {
    "orders": [{"id": n, "note": f"caf\u00e9 {n % 3}", "tags": ["new"] * (n % 2)} for n in range(9)],
    "end": "new",
}


@pytest.fixture(scope="module")
def orders(store: Store) -> str:
    return store.put(json.dumps(ORDERS)).output_handle


def test_a_match_names_its_item_and_its_path(store: Store, orders: str) -> None:
    found = store.search(orders, "new", context=1000)
    assert [(match["item"], match["path"]) for match in found.matches] == [
        *((n, f"/orders/{n}/tags/0") for n in (1, 3, 5, 7)),
        (None, "/end"),
    ]
    assert all("line" not in match for match in found.matches)
    # The context ends with the item.
    assert [json.loads(match["context"]) for match in found.matches[:4]] == ORDERS["orders"][1:9:2]
    assert found.matches[0]["path"] == store.search(orders, '"new"').matches[0]["path"]
    assert store.search(orders, "note").matches[2]["path"] == "/orders/2/note"


def test_a_match_in_a_map_has_the_key_of_its_entry(store: Store) -> None:
    plugins = {f"p{n}": {"name": f"n{n}", "tags": ["new"] if n == 7 else []} for n in range(40)}
    handle = store.put(json.dumps({"plugins": plugins})).output_handle
    page = json.loads(store.search(handle, "new", fields=["_key", "name"]).to_json())
    (match,) = page["matches"]
    assert (match["item"], match["path"]) == (7, "/plugins/p7/tags/0")
    assert match["value"] == {"_key": "p7", "name": "n7"}
    (match,) = store.search(handle, "n17", context=1000, mode="values").matches
    assert match["context"] == json.dumps({"p17": plugins["p17"]})[1:-1]
    counts = store.search(handle, "tags", count_only=True)
    assert (counts.total_matches, counts.items_with_matches) == (40, 40)


@pytest.mark.parametrize("indent", [None, 2])
def test_a_match_in_a_document_without_items_has_a_path(indent: int | None, store: Store) -> None:
    document = {"a": {"b/c": [0, "needle"]}, "body": "x" * 4000}
    (match,) = store.search(store.put(json.dumps(document, indent=indent)).output_handle, "needle").matches
    assert match["path"] == "/a/b~1c/1"
    # On one line, the number of the line says nothing.
    assert match.get("line") == (None if indent is None else 4)
    assert "item" not in match


def test_values_are_searched_as_they_are_read(store: Store) -> None:
    handle = store.put(r'[{"caf\u00e9":"a\"b\nc"},{"n":17,"ok":true},"17\u0021"]').output_handle
    for pattern, paths in {
        "é": ["/0/café"],
        'a"b': ["/0/café"],
        "b\nc": ["/0/café"],
        "17": ["/1/n", "/2"],
        "7!": ["/2"],
        "true": ["/1/ok"],
        '":"': [],
        "},{": [],
    }.items():
        page = store.search(handle, pattern, mode="values")
        assert [match["path"] for match in page.matches] == paths, pattern
        assert page.total_matches == len(paths)
    assert [match["path"] for match in store.search(handle, "^17$", regex=True, mode="values").matches] == ["/1/n"]


def test_a_search_can_only_count(store: Store, orders: str) -> None:
    page = store.search(orders, "new", count_only=True)
    assert json.loads(page.to_json()) == {
        "output_handle": orders,
        "pattern": "new",
        "total_matches": 5,
        "items_with_matches": 4,
    }
    page = store.search(orders, '"(id|note)"', regex=True, count_only=True, offset=300, limit=1)
    assert (page.total_matches, page.items_with_matches) == (18, 9)
    log = store.put("error\nok\nerror error\n").output_handle
    page = store.search(log, "error", count_only=True)
    assert (page.total_matches, page.items_with_matches) == (3, None)


def test_without_context_a_match_shows_what_an_expression_matched(store: Store, orders: str) -> None:
    (match,) = store.search(orders, r'"id": [7-7]', regex=True, context=0).matches
    assert match["match"] == '"id": 7'
    assert "context" not in match
    (match,) = store.search(orders, '"id": 7', context=0).matches
    assert {*match} == {"item", "path", "byte_offset", "size_bytes"}


def test_fields_of_the_item_replace_the_context(store: Store, orders: str) -> None:
    page = json.loads(store.search(orders, "new", fields=["id", "note"]).to_json())
    assert [match.get("value") for match in page["matches"]] == [
        *({"id": n, "note": f"café {n % 3}"} for n in (1, 3, 5, 7)),
        None,
    ]
    assert all("context" not in match for match in page["matches"])
    # The value is shown once for all matches in an item.
    page = json.loads(store.search(orders, "note|new", regex=True, fields=["id"], limit=3).to_json())
    assert [(match["match"] if "value" not in match else match["value"]) for match in page["matches"][:2]] == [
        {"id": 0},
        {"id": 1},
    ]
    assert {*page["matches"][2]} == {"item", "path", "byte_offset", "size_bytes"}
    with pytest.raises(PathNotFound, match=r"none of these items has the fields \['nope'\].*id: int"):
        store.search(orders, "new", fields=["nope"])


@given(st.integers(512, 3000), st.integers(0, 2))
def test_a_value_is_cut_to_the_budget(store: Store, max_bytes: int, level: int) -> None:
    rows = [{"id": n, "text": 'long "quoted" text ' * 200, "more": [{"a": "é\n" * 50}] * 9} for n in range(3)]
    handle = store.put(json.dumps(rows)).output_handle
    ask: dict[str, Any] = {"max_bytes": max_bytes * (1 + level), "escape_levels": level}
    offset: int | None = 0
    items = []
    while offset is not None:
        page = store.search(handle, '"id"', fields=["text", "more"], offset=offset, **ask)
        assert weigh(page.to_json().decode(), level) <= ask["max_bytes"]
        sent = json.loads(page.to_json())["matches"]
        assert all(match["truncated"] and match["value"] for match in sent)
        items += [match["item"] for match in sent]
        offset = page.next_offset
    assert items == [0, 1, 2]


def test_next_has_the_arguments_of_the_next_page(store: Store, orders: str) -> None:
    ask: dict[str, Any] = {"pattern": "N(EW|ote)", "regex": True, "ignore_case": True, "limit": 4, "fields": ["id"]}
    found: list[Any] = []
    arguments: dict[str, Any] | None = {"output_handle": orders, **ask}
    while arguments is not None:
        assert {**arguments, "offset": 0} == {"output_handle": orders, **ask, "offset": 0}
        handle = arguments.pop("output_handle")
        page = json.loads(store.search(handle, **arguments).to_json())
        assert (page["unit"], page["returned"]) == ("bytes", len(page["matches"]))
        assert page["total_matches"] == 14
        found += page["matches"]
        arguments = page.get("next")
    assert len(found) == 14
    assert store.search(orders, "note", limit=3).limited_by is None
    # A long pattern is not repeated.
    long = store.put("x" * 999).output_handle
    assert store.search(long, "x" * 99, limit=1, max_bytes=700).next is None


def test_a_page_that_the_budget_ended_says_so(store: Store) -> None:
    handle = store.put("needle " * 500).output_handle
    page = store.search(handle, "needle", max_bytes=1000)
    assert page.returned < 50
    assert (page.limited_by, page.total_matches) == ("max_bytes", 500)


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_a_search_without_matches_says_what_was_searched(separators: tuple[str, str], store: Store) -> None:
    data = json.dumps([{"name": f"n{n}", "a": '":"'} for n in range(9)], separators=separators)
    handle = store.put(data).output_handle
    page = store.search(handle, "nowhere")
    written = f'"name"{separators[1]}…'
    assert page.searched == (
        f"{len(data):,} bytes of JSON as written, with members written as {written}, case-sensitive; "
        "mode='values' searches decoded keys and values"
    )
    assert page.total_matches == 0
    assert str(store.search(handle, "nowhere", mode="values", count_only=True).searched).startswith("the decoded keys")
    assert store.search(handle, "name").searched is None
    # Beyond the last match there is none, but there are some.
    assert store.search(handle, "name", offset=len(data) - 5).searched is None
    text = store.put("only text").output_handle
    assert store.search(text, "JSON", ignore_case=True).searched == "9 bytes of text"
    scalars = store.put("[1, 2]").output_handle
    assert "members" not in str(store.search(scalars, "x").searched)


def test_a_count_that_stops_is_a_lower_bound(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(match_counts, "_MAX_SECONDS", 0.0)
    text = "error " * 500_000
    page = store.search(store.put(text).output_handle, "err.r", regex=True, limit=2)
    assert page.total_is_lower_bound
    assert json.loads(page.to_json())["total_is_lower_bound"] is True
    assert 1 <= page.total_matches <= 500_000
    monkeypatch.setattr(match_counts, "MAX_STREAMED_BYTES", FRAME_BYTES)
    monkeypatch.setattr(store_search, "_FIRST_SEARCH_BYTES", 4096)
    handle = store.put(text).output_handle
    page = store.search(handle, "error", limit=2)
    assert (page.total_matches, page.total_is_lower_bound) == (FRAME_BYTES // 6, True)


def test_searches_that_a_payload_does_not_allow_are_refused(store: Store, orders: str) -> None:
    text = store.put("only text").output_handle
    with pytest.raises(InvalidFormat, match="leave the mode out"):
        store.search(text, "o", mode="values")
    with pytest.raises(InvalidFormat, match="omit fields"):
        store.search(text, "o", fields=["id"])
    with pytest.raises(InvalidArgument, match="mode is one of text, values, not 'value'"):
        store.search(orders, "o", mode="value")  # type: ignore[arg-type]


@given(
    st.recursive(
        st.text('aé"\\\n漢/~', max_size=6) | st.integers(-20, 20) | st.booleans() | st.none(),
        lambda inner: (
            st.lists(inner, max_size=4) | st.dictionaries(st.text('aé"\\\n/~', max_size=4), inner, max_size=4)
        ),
        max_leaves=20,
    ),
    st.booleans(),
    st.sampled_from([None, 1]),
    st.sampled_from(["a", "é", '"', "\n", "\\", "1", "true", "u", "/"]),
    st.integers(1, 5),
)
def test_values_and_paths_are_those_of_the_parsed_document(
    store: Store, value: Any, is_ascii: bool, indent: int | None, pattern: str, limit: int
) -> None:
    handle = store.put(json.dumps({"rows": [value] * 2}, ensure_ascii=is_ascii, indent=indent)).output_handle
    expected = [path for path, text in iter_texts({"rows": [value] * 2}, "") for _ in range(text.count(pattern))]
    found: list[str] = []
    offset: int | None = 0
    while offset is not None:
        page = store.search(handle, pattern, mode="values", offset=offset, limit=limit)
        assert page.total_matches == len(expected)
        found += [match["path"] for match in page.matches]
        offset = page.next_offset
    assert found == expected


def iter_texts(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Return every key and scalar of a document as text, with the path of its value."""
    if isinstance(value, dict):
        for key, member in value.items():
            inner = f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
            yield inner, key
            yield from iter_texts(member, inner)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from iter_texts(item, f"{path}/{number}")
    else:
        yield path, value if isinstance(value, str) else json.dumps(value)
