"""Rules of protocol versions, and cursors of paged lists."""

from typing import Any

import pytest
from forebay.wire.protocol import (
    LEGACY_VERSION,
    MAX_LIST_PAGES,
    MODERN_VERSION,
    PageCursors,
    PageLinks,
    add_result_fields,
    find_envelope_fault,
    is_modern,
)

INFO = {"name": "forebay", "version": "1"}


def follow(pages: dict[Any, Any], max_pages: int = 10) -> tuple[list[Any], bool]:
    """Return the requested cursors of a server that answers each with the next one, and whether pages were left."""
    cursors = PageCursors(max_pages)
    requested = []
    for params in cursors:
        requested.append(params.get("cursor"))
        cursors.follow({"nextCursor": pages[requested[-1]]} if requested[-1] in pages else {})
    return requested, cursors.is_truncated


@pytest.mark.parametrize("last", [None, ""])
def test_cursors_are_followed_to_the_last_page(last: str | None) -> None:
    assert follow({None: "a", "a": "b", "b": last}) == ([None, "a", "b"], False)


def test_a_repeated_cursor_ends_the_list() -> None:
    assert follow({None: "a", "a": "a"}) == ([None, "a"], False)
    assert follow({None: "a", "a": "b", "b": "a"}) == ([None, "a", "b"], False)


def test_a_list_with_too_many_pages_is_cut() -> None:
    assert follow({None: 1, **{number: number + 1 for number in range(1, 20)}}) == ([None, *range(1, 10)], True)


def test_cursors_need_not_be_hashable() -> None:
    cursors = PageCursors()
    assert next(cursors) == {}
    cursors.follow({"nextCursor": ["odd"]})
    assert next(cursors) == {"cursor": ["odd"]}
    cursors.follow({"nextCursor": ["odd"]})
    assert next(cursors, None) is None


def test_a_page_that_is_not_followed_ends_the_list() -> None:
    assert list(PageCursors()) == [{}]


def test_results_get_the_fields_of_their_version() -> None:
    assert add_result_fields("tools/list", {"tools": []}, LEGACY_VERSION, INFO) == {"tools": []}
    modern = add_result_fields("tools/list", {"tools": [], "_meta": {"a": 1}}, MODERN_VERSION, INFO)
    meta = {"io.modelcontextprotocol/serverInfo": INFO, "a": 1}
    assert modern == {
        "tools": [],
        "resultType": "complete",
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": meta,
    }
    assert "ttlMs" not in add_result_fields("tools/call", {}, MODERN_VERSION, INFO)
    assert not is_modern(LEGACY_VERSION)


def test_the_links_of_many_pages_are_forgotten() -> None:
    links = PageLinks()
    assert not links.follow(None, b"0")
    for number in range(2 * MAX_LIST_PAGES):
        assert not links.follow(b"%d" % number, b"%d" % (number + 1))
    # The path from the first page to this one has been forgotten.
    assert not links.follow(b"%d" % (2 * MAX_LIST_PAGES), b"0")
    assert len(links._next_pages) == MAX_LIST_PAGES


def test_a_page_behind_a_loop_is_not_the_last_one() -> None:
    links = PageLinks()
    assert not links.follow(None, b"a")
    assert links.follow(b"a", b"a")
    assert not links.follow(b"b", b"c")


@pytest.mark.parametrize(
    ("meta", "code"),
    [
        ({}, -32602),
        ({"io.modelcontextprotocol/protocolVersion": MODERN_VERSION}, -32602),
        ({"io.modelcontextprotocol/protocolVersion": 5, "io.modelcontextprotocol/clientCapabilities": {}}, -32602),
        (
            {"io.modelcontextprotocol/protocolVersion": "2099-01-01", "io.modelcontextprotocol/clientCapabilities": {}},
            -32022,
        ),
    ],
)
def test_a_request_without_a_valid_version_is_refused(meta: dict[str, Any], code: int) -> None:
    fault = find_envelope_fault(meta)
    assert fault is not None
    assert fault[0] == code
