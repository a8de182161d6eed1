"""Items and lines larger than a page are cut, and the page has the arguments to read them with."""

import json
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from forebay import Page, Store
from forebay.store.frames import FRAME_BYTES
from hypothesis import given
from hypothesis import strategies as st
from stores import RecordedReads, asks, content, heavy_items, long_texts, pages, store_at
from texts import nasty_text

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with store_at(tmp_path_factory.mktemp("store")) as opened:
        yield opened


def follow(store: Store, handle: str, read_with: dict[str, Any]) -> Iterator[Page]:
    """Make the call that a page names, and go on with the next call of each page."""
    call: dict[str, Any] | None = read_with
    while call is not None:
        assert call["output_handle"] == handle
        arguments = {name: value for name, value in call.items() if name != "output_handle"}
        page = store.fetch(handle, max_bytes=1500, **arguments)
        yield page
        call = page.next
        assert (call is None) == page.eof


def read_value(store: Store, handle: str, read_with: dict[str, Any]) -> Any:
    """Read a value by following `read_with`, however often it is cut again."""
    found = list(follow(store, handle, read_with))
    if found[0].format == "text" and found[0].encoding == "json":
        return content(found[0])
    if found[0].format == "text":
        return json.loads("".join(map(content, found)))
    items: list[Any] = []
    for page in found:
        items += [read_value(store, handle, cut["read_with"]) for cut in page.truncated] or content(page)
    return items


def read_rest(store: Store, handle: str, cut: dict[str, Any], size: int) -> bytes:
    """Read bytes from where a line was cut."""
    found = b""
    for page in follow(store, handle, cut["read_with"]):
        found += content(page).encode()
        if len(found) >= size:
            break
    return found[:size]


WRAPS: dict[str, Any] = {
    "array": lambda items: (json.dumps(items), [None, ""]),
    "object": lambda items: (json.dumps({"a/b": {"~": items}, "z": 1}), [None, "", "/a~1b/~0"]),
    "inner": lambda items: (json.dumps([0, {"x": items}, 1]), ["/1/x"]),
    "lines": lambda items: ("\n".join(map(json.dumps, [*items, 1, 2])), [None, ""]),
    "in lines": lambda items: (json.dumps(1) + "\n" + json.dumps({"x": items}), ["/1/x"]),
}


@pytest.mark.parametrize("wrap", WRAPS)
@given(items=heavy_items, ask=asks)
def test_a_cut_item_can_be_read_with_the_arguments_on_the_page(
    store: Store, wrap: str, items: list[Any], ask: dict[str, Any]
) -> None:
    text, paths = WRAPS[wrap](items)
    handle = store.put(text, mime_type="application/x-ndjson" if "lines" in wrap else "application/json").output_handle
    expected = [*items, 1, 2] if wrap == "lines" else items
    for path in paths:
        for page in pages(store, handle, format="items", path=path, **ask):
            for cut in page.truncated:
                assert cut["read_with"].keys() == {"output_handle", "path"}
                assert read_value(store, handle, cut["read_with"]) == expected[cut["index"]]


@pytest.mark.parametrize("path", [None, "/1"])
@given(text=st.lists(nasty_text | long_texts, max_size=10).map("".join), ask=asks)
def test_a_cut_line_can_be_read_on_with_the_arguments_on_the_page(
    store: Store, path: str | None, text: str, ask: dict[str, Any]
) -> None:
    # The lines of a JSON value are those of its white space: this one is cut before its last byte, a bracket.
    spaces = text.count("x")
    data = text.replace("\x00", "").encode() if path is None else b"[0, [1," + b" " * 30 * spaces + b"\n2 ]]"
    handle = store.put(data, mime_type="text/plain" if path is None else "application/json").output_handle
    meant = data if path is None else store.get(handle, path)
    found = b""
    for page in pages(store, handle, format="lines", path=path, **ask):
        shown = content(page).encode()
        found += shown
        for cut in page.truncated:
            assert cut["read_with"]["format"] == "text"
            assert cut["read_with"]["limit"] == cut["size_bytes"] - len(shown)
            found += read_rest(store, handle, cut, cut["size_bytes"] - len(shown))
    assert found == meant


@pytest.mark.parametrize("size", [*range(FRAME_BYTES // 2 - 3, FRAME_BYTES // 2 + 4), FRAME_BYTES, 3 * FRAME_BYTES + 1])
@pytest.mark.parametrize("end", ["", "\n", "\nlast", "\n\n\n"])
@pytest.mark.parametrize("before", [0, 1, FRAME_BYTES // 2 - 1, FRAME_BYTES])
def test_the_size_of_a_cut_line_comes_from_the_index(size: int, end: str, before: int, store: Store) -> None:
    text = "b" * (before - 1) + "\n" * (before > 0) + "x" * size + end
    handle = store.put(text).output_handle
    for max_bytes in (600, 60_000):
        page = store.fetch(handle, format="lines", offset=int(before > 0), max_bytes=max_bytes)
        (cut,) = page.truncated
        assert cut["size_bytes"] == size + len(end[:1])
        assert page.content == "x" * (cut["byte_offset"] - before)


LONG = 24 << 20


def measure_peak(method: Any) -> int:
    """Return the peak memory of a call, as far as Python tracks it."""
    tracemalloc.start()
    try:
        method()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_page_of_a_long_line_reads_only_a_part_of_it(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store_at(tmp_path_factory.mktemp("store"), compression="none") as store:
        text = store.put(b"first\n" + b"x" * LONG + b"\nlast\n").output_handle
        store.stat(text)
        reads = RecordedReads(monkeypatch)
        assert reads.measure(lambda: store.fetch(text, format="lines", offset=1))[1] <= 3 * FRAME_BYTES
        assert measure_peak(lambda: store.fetch(text, format="lines", offset=1)) < LONG // 8
        page = store.fetch(text, format="lines", offset=1)
        assert page.truncated[0]["size_bytes"] == LONG + 1
        rows = store.put(b'{"rows":[1,\n"' + b"x" * LONG + b'"\n]}').output_handle
        assert measure_peak(lambda: store.fetch(rows, path="/rows", format="lines", offset=1)) < LONG // 4
        assert store.fetch(rows, path="/rows", format="lines").total == 3
