"""`output_query`, the tool: listed where DuckDB is installed, within the page budget, with errors to act on."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forebay
import pytest
from forebay import Store
from forebay.outputs.tools import Caller, OutputTools
from forebay.query import duckdb_module
from forebay.store.call_counts import summarize_calls
from forebay.store.payload import escaped_size
from stores import events

ITEMS = [{"id": n, "status": "failed" if n % 4 == 0 else "paid", "note": 'ä"\\' * 5} for n in range(400)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with forebay.open_store(tmp_path_factory.mktemp("tool"), sweep_interval=0) as store:
        yield store


@pytest.fixture(scope="module")
def handle(store: Store) -> str:
    return store.put({"orders": ITEMS}, principal="ann").output_handle


def call(store: Store, caller: Caller, **arguments: Any) -> dict[str, Any]:
    tools = OutputTools(store, prefix="oc_", journal=False)
    return dict(tools.call("oc_output_query", arguments, caller))


def test_it_answers(store: Store, handle: str) -> None:
    sql = "SELECT status, count(*) FROM items GROUP BY 1 ORDER BY 1"
    result = call(store, Caller(principal="ann"), output_handle=handle, sql=sql)
    assert not result.get("isError")
    page = json.loads(result["content"][0]["text"])
    assert page["rows"] == [["failed", 100], ["paid", 300]]
    assert events(store, "output_handle_fetched")[0]["format"] == "query"
    assert summarize_calls(store.call_counts.read(None))["by_tool"]["oc_output_query"]["calls"] >= 1


@pytest.mark.parametrize("is_ascii", [False, True])
@pytest.mark.parametrize("max_page_bytes", [1500, 4096, 16_384])
def test_an_answer_fits_on_the_wire(store: Store, handle: str, max_page_bytes: int, is_ascii: bool) -> None:
    caller = Caller(principal="ann", max_page_bytes=max_page_bytes, is_ascii=is_ascii)
    result = call(store, caller, output_handle=handle, sql="SELECT * FROM items ORDER BY id")
    text = result["content"][0]["text"]
    assert escaped_size(text.encode(), 1, is_ascii=is_ascii) <= max_page_bytes
    page = json.loads(text)
    assert page["truncated"] is True
    assert page["row_count"] == 400
    assert [row[0] for row in page["rows"]] == [*range(len(page["rows"]))]


def test_an_error_names_the_next_step(store: Store, handle: str) -> None:
    result = call(store, Caller(principal="ann"), output_handle=handle, sql="SELECT sttus FROM items")
    assert result["isError"] is True
    error = json.loads(result["content"][0]["text"])["error"]
    assert error["code"] == "query_failed"
    assert error["tables"] == {"items": "id BIGINT, status VARCHAR, note VARCHAR"}
    again = call(store, Caller(principal="ann"), output_handle=handle, sql=error["example"])
    assert not again.get("isError")


def test_a_handle_of_somebody_else_does_not_exist(store: Store, handle: str) -> None:
    result = call(store, Caller(principal="bob"), output_handle=handle, sql="SELECT 1")
    assert json.loads(result["content"][0]["text"])["error"]["code"] == "output_handle_not_found"


@pytest.mark.parametrize("sql", [None, 5, ["SELECT 1"], {}])
def test_a_wrong_argument_is_refused(store: Store, handle: str, sql: Any) -> None:
    result = call(store, Caller(principal="ann"), output_handle=handle, sql=sql)
    assert json.loads(result["content"][0]["text"])["error"]["code"] == "invalid_argument"


def test_it_is_listed_only_where_duckdb_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with forebay.open_store(tmp_path) as store:
        assert "output_query" in OutputTools(store, prefix="", journal=False).names
        monkeypatch.setattr(duckdb_module, "find_duckdb", lambda: None)
        assert "output_query" not in OutputTools(store, prefix="", journal=False).names
