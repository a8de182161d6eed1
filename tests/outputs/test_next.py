"""`next` and `read_with` on a page are calls: made exactly as they are, they return everything once."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from forebay import Store
from forebay.outputs.tools import Caller, OutputTools
from stores import store_at

ORDERS = [{"id": i, "customer": {"name": f"Nr {i}"}, "note": "é\n" * (i % 7)} for i in range(700)]
LINES = "".join(f"{'日本' * (i % 30)} line {i}\n" for i in range(900))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with store_at(tmp_path_factory.mktemp("store")) as opened:
        yield opened


def follow(store: Store, arguments: dict[str, Any], caller: Caller) -> Iterator[dict[str, Any]]:
    """Call `output_fetch`, and go on with exactly what each page names as `next`."""
    tools = OutputTools(store, prefix="", journal=False)
    call: dict[str, Any] | None = arguments
    while call is not None:
        result = tools.call("output_fetch", call, caller)
        assert not result["isError"], result
        text = result["content"][0]["text"]
        assert len(json.dumps(text, ensure_ascii=caller.is_ascii).encode()) - 2 <= caller.max_page_bytes
        page = json.loads(text)
        yield page
        call = page.get("next")
        assert (call is None) == page["eof"]


CALLERS = [Caller(), Caller(max_page_bytes=1280), Caller(max_page_bytes=1280, is_ascii=True)]


@pytest.mark.parametrize("caller", CALLERS, ids=["default", "small", "ascii"])
@pytest.mark.parametrize("limit", [None, 40, 1 << 70])
@pytest.mark.parametrize(
    ("payload", "arguments", "unit", "expected"),
    [
        (ORDERS, {}, "items", ORDERS),
        ({"page": 1, "rows": ORDERS}, {"format": "items"}, "items", ORDERS),
        ({"a": {"b": ORDERS}, "c": "x" * 300_000}, {"path": "/a/b"}, "items", ORDERS),
        (ORDERS, {"fields": ["/customer/name"]}, "items", [{"customer": order["customer"]} for order in ORDERS]),
        ({"a": ORDERS, "c": "x" * 300_000}, {"path": "/a", "fields": ["id"]}, "items", [{"id": i} for i in range(700)]),
        (LINES, {"format": "lines"}, "lines", LINES),
        (LINES, {}, "bytes", LINES),
        ({"a": LINES}, {"path": "/a", "format": "text"}, "bytes", json.dumps(LINES, ensure_ascii=False)),
        (b"\xff" + bytes(range(256)) * 40, {}, "bytes", b"\xff" + bytes(range(256)) * 40),
    ],
    ids=["items", "rows", "path", "fields", "path and fields", "lines", "text", "text at a path", "bytes"],
)
def test_following_next_returns_everything_once(
    store: Store, payload: Any, arguments: dict[str, Any], unit: str, expected: Any, limit: int | None, caller: Caller
) -> None:
    handle = store.put(payload).output_handle
    call = {"output_handle": handle, **arguments, **({} if limit is None else {"limit": limit})}
    pages = list(follow(store, call, caller))
    contents = [page["content"] for page in pages]
    if isinstance(expected, bytes):
        assert b"".join(map(base64.b64decode, contents)) == expected
    elif isinstance(expected, str):
        assert "".join(contents) == expected
    else:
        assert [item for content in contents for item in content] == expected
    for page in pages:
        assert page["unit"] == unit
        if not page["eof"]:
            is_full = page["returned"] >= page["limit"] - (3 if page["format"] == "text" else 0)
            assert page.get("limited_by") == (None if is_full else "max_bytes")


def test_a_path_or_fields_that_fill_the_page_leave_next_offset_to_go_on_with(store: Store) -> None:
    handle = store.put(ORDERS).output_handle
    fields = ["id", *(f"customer.name{i}" for i in range(60))]
    tools = OutputTools(store, prefix="", journal=False)
    result = tools.call("output_fetch", {"output_handle": handle, "fields": fields}, Caller(max_page_bytes=1280))
    page = json.loads(result["content"][0]["text"])
    assert "next" not in page
    assert page["next_offset"] == page["returned"] > 0
