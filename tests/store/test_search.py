"""Searching a stored payload: from its first part if that is enough, and with as much context as fits."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from forebay import Store
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


@given(nasty_text, nasty_text, st.integers(0, 60), asks, st.integers(0, 10**7), st.booleans())
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
    # One more character may take this much, on both sides and escaped twice.
    assert shown == whole or weight > ask["max_bytes"] - 64


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
    ask = {**ask, "limit": (ask["limit"] or 3) % 4 + 1, "context": context, "start": start, "ignore_case": fold}
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
def test_a_search_reads_the_whole_payload_only_if_needed(
    pattern: str, regex: bool, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = "a needle and some hay " * 40 + "\n"
    size = 24 << 20
    handle = store.put(line * (size // len(line)) + "only here").output_handle
    store.stat(handle)
    ranges, _ = RecordedReads(monkeypatch).measure(lambda: store.search(handle, pattern, regex=regex))
    if pattern == "needle":
        assert ranges == 1
    else:
        assert ranges >= size // FRAME_BYTES
        # The payload read for that search is cached for the next one.
        assert RecordedReads(monkeypatch).measure(lambda: store.search(handle, "needle"))[0] == 0
