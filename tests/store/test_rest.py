"""The last page of items names what the payload has besides them."""

import json
from pathlib import Path
from typing import Any

import pytest
from forebay import open_store

ROWS = [{"id": number, "text": "a row"} for number in range(500)]


def last_page(payload: Any, folder: Path, **request: Any) -> dict[str, Any]:
    with open_store(folder.as_uri(), sweep_interval=0) as store:
        handle = store.put(payload).output_handle
        offset: int | None = 0
        page: dict[str, Any] = {}
        while offset is not None:
            page = json.loads(store.fetch(handle, offset=offset, **request).to_json())
            assert "not_in_items" not in page or page["eof"]
            offset = page["next_offset"]
        return page


def size(value: object) -> int:
    return len(json.dumps(value, separators=(",", ":")))


def test_the_last_page_names_the_rest(tmp_path: Path) -> None:
    included = ROWS[:300]
    page = last_page({"data": ROWS, "included": included, "links/~": {"next": None}, "n": 7}, tmp_path)
    assert page["items_path"] == "/data"
    paths = {"/included": size(included), "/links~1~0": 13, "/n": 1}
    assert page["not_in_items"] == {"size_bytes": sum(paths.values()), "paths": paths}


def test_every_named_path_can_be_fetched(tmp_path: Path) -> None:
    payload = {"meta": {"a": 1}, "body": {"x~/y": "é" * 200, "rows": ROWS}}
    page = last_page(payload, tmp_path)
    assert set(page["not_in_items"]["paths"]) == {"/meta", "/body/x~0~1y"}
    for path, length in page["not_in_items"]["paths"].items():
        assert last_page(payload, tmp_path, path=path, format="text")["total"] == length


@pytest.mark.parametrize(
    "payload", [ROWS, {"rows": ROWS}, {"rows": ROWS, "n": 7}, {"a": {"rows": ROWS}}, "\n".join(map(json.dumps, ROWS))]
)
def test_a_payload_without_a_rest_has_no_such_field(payload: Any, tmp_path: Path) -> None:
    assert "not_in_items" not in last_page(payload, tmp_path, format="items")


@pytest.mark.parametrize("max_bytes", [600, 1000, 4096])
def test_the_page_stays_within_its_budget(max_bytes: int, tmp_path: Path) -> None:
    rest = {f"key {number} é" * 3: "x" * number for number in range(1, 200)}
    with open_store(tmp_path.as_uri(), sweep_interval=0) as store:
        handle = store.put({"data": ROWS * 3, **rest}).output_handle
        page = store.fetch(handle, offset=1499, max_bytes=max_bytes, format="items")
        assert page.eof
        assert len(page.to_json()) <= max_bytes
        assert page.not_in_items is not None
        shown = list(page.not_in_items.get("paths", {}).values())
        assert shown == sorted(shown, reverse=True)


@pytest.mark.parametrize("rest", [{"k" * 70_000: 1}, {str(number): 1 for number in range(300)}])
def test_the_size_of_an_odd_rest_is_named(rest: dict[str, int], tmp_path: Path) -> None:
    page = last_page({"data": ROWS * 10, **rest}, tmp_path, format="items")
    assert page["not_in_items"].keys() == {"size_bytes"}


def test_white_space_is_no_rest(tmp_path: Path) -> None:
    assert "not_in_items" not in last_page(json.dumps({"a": {"rows": ROWS}}, indent=2), tmp_path, format="items")


def test_a_very_large_rest_is_not_read(tmp_path: Path) -> None:
    payload = {"data": ["x" * 1000] * 30_000, "text": "y" * 17_000_000}
    page = last_page(payload, tmp_path, limit=100_000, max_bytes=1 << 26)
    assert page["not_in_items"].keys() == {"size_bytes"}
    assert page["not_in_items"]["size_bytes"] > 17_000_000
