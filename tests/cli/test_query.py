"""`forebay query`: a handle or a file, as a table, JSON or CSV."""

import csv
import io
import json
import re
from pathlib import Path

import forebay
import pytest
from command import UNKNOWN, plain, run, run_on_terminal

pytestmark = pytest.mark.slow

SQL = "SELECT id, name FROM items WHERE id >= 298 ORDER BY id"
ORDERS = [{"id": 12345678901234567890123, "note": 'a "b"\n', "tags": [1, {"a": None}], "total": None}, {"id": 2}]


def test_json_in_a_pipe(handle: str) -> None:
    page = run("query", handle, SQL).json
    assert page["rows"] == [[298, "name [298]"], [299, "name [299]"]]
    assert page["columns"] == [{"name": "id", "type": "BIGINT"}, {"name": "name", "type": "VARCHAR"}]
    assert (page["row_count"], page["truncated"]) == (2, False)


@pytest.mark.posix
def test_a_table_on_a_terminal(handle: str) -> None:
    shown = run_on_terminal("query", handle, f"{SQL} LIMIT 1")
    assert shown.code == 0
    assert b"298  name [298]" in shown.out
    twice = run_on_terminal("query", handle, "SELECT 1 AS a, 2 AS a, 3 AS a")
    assert re.search(rb"1 +2 +3", twice.out)


@pytest.mark.posix
def test_names_and_values_send_no_controls_to_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "items.json"
    name, value = "a\x1b[31m\x9b\u202e\nb\x07", "l\x1b[32m\nm\tx"
    path.write_text(json.dumps([{name: value, "id": 7}, {name: "", "id": 8}]))
    shown = run_on_terminal("query", str(path), "SELECT * FROM items")
    assert {*"\x9b\u202e\x07"}.isdisjoint(shown.out.decode())
    assert b"\x1b[31m" not in shown.out
    heading, first, _ = plain(shown.out).splitlines()
    assert heading.split() == ["a␛[31m\ufffd\ufffd␊b␇", "id"]
    assert first.split() == ["l␛[32m␊m␉x", "7"]


@pytest.mark.parametrize("name", ["orders.json", "-"])
def test_csv_of_a_file(tmp_path: Path, name: str) -> None:
    text = json.dumps({"orders": ORDERS}).encode()
    path = tmp_path / "orders.json"
    path.write_bytes(text)
    source = name if name == "-" else str(path)
    finished = run("query", source, "SELECT id, note, tags FROM orders", "--csv", stdin=text)
    assert (finished.code, finished.err) == (0, b"")
    rows = [*csv.reader(io.StringIO(finished.out.decode(), newline=""))]
    assert rows == [["id", "note", "tags"], ["12345678901234567890123", 'a "b"\n', '[1,{"a":null}]'], ["2", "", ""]]


def test_a_csv_file_can_be_queried(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("city,n\n" + "".join(f"{'Bonn' if n % 2 else 'Kiel'},{n}\n" for n in range(100)))
    page = run("query", str(path), "SELECT city, sum(n) FROM items GROUP BY city ORDER BY city").json
    assert page["rows"] == [["Bonn", 2500], ["Kiel", 2450]]


def test_a_file_leaves_nothing_behind(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    path = tmp_path / "orders.json"
    path.write_text(json.dumps(ORDERS))
    assert run("query", str(path), "SELECT count(*) FROM items").json["rows"] == [[2]]
    assert [*temporary.iterdir()] == []
    assert not home.exists()


def test_truncated_csv_says_so(handle: str) -> None:
    finished = run("query", handle, "SELECT * FROM items", "--csv", "--max-bytes", "1000")
    assert finished.code == 0
    assert 10 < finished.out.count(b"\n") < 100
    assert b"these are the first of 300 rows" in finished.err


@pytest.mark.posix
def test_an_error_has_the_columns_and_an_example(handle: str) -> None:
    failed = run("query", handle, "SELECT nmae FROM items")
    assert failed.code == 6
    assert failed.error["code"] == "query_failed"
    assert failed.error["tables"] == {"items": "id BIGINT, name VARCHAR"}
    assert failed.error["example"] == 'SELECT "name" FROM items'
    shown = run_on_terminal("query", handle, "SELECT nmae FROM items")
    assert b"items: id BIGINT, name VARCHAR" in shown.out
    assert b'example: SELECT "name" FROM items' in shown.out


def test_other_errors(handle: str) -> None:
    assert run("query", UNKNOWN, SQL).error["code"] == "output_handle_not_found"
    assert run("query", "/no/such/file", SQL).error["code"] == "input_unreadable"
    assert run("query", handle, "SELECT count(*) FROM range(999999) a, range(999999) b", "--timeout", "1s").code == 6


def test_a_principal_queries_its_own(home: Path) -> None:
    with forebay.open_store(home.as_uri(), sweep_interval=0) as store:
        own = store.put([{"id": 1}], principal="ann").output_handle
    assert run("query", own, "SELECT id FROM items", "--principal", "ann").json["rows"] == [[1]]
    assert run("query", own, "SELECT id FROM items", "--principal", "bob").error["code"] == "output_handle_not_found"


@pytest.mark.posix
def test_a_table_shows_nulls(handle: str) -> None:
    shown = run_on_terminal("query", handle, "SELECT max(id) AS most, '' AS empty FROM items WHERE id < 0")
    assert b"most" in shown.out
    assert b"empty" in shown.out
    assert b"NULL" in shown.out
    none = run_on_terminal("query", handle, "SELECT id, name FROM items WHERE id < 0")
    assert b"name" in none.out
    assert b"nothing" not in none.out


def test_csv_tells_null_from_an_empty_text(handle: str) -> None:
    assert run("query", handle, "SELECT NULL AS a, '' AS b, 'x' AS c", "--csv").out == b'a,b,c\n,"",x\n'


def test_a_file_of_another_type() -> None:
    failed = run("query", "-", "SELECT * FROM items", stdin=b"city,n\nBonn,1\n")
    assert failed.code == 6
    assert failed.error["message"].startswith("- has no items to query")
    assert "oh_" not in failed.error["message"]
    assert run("query", "-", "SELECT n FROM items", "--mime-type", "text/csv", stdin=b"city,n\nBonn,1\n").json[
        "rows"
    ] == [[1]]


@pytest.mark.posix
@pytest.mark.parametrize("command", [["query", SQL], ["view"]], ids=lambda command: command[0])
def test_a_type_is_only_for_files(handle: str, command: list[str]) -> None:
    name, *sql = command
    failed = run_on_terminal(name, handle, *sql, "--mime-type", "text/csv; header=present")
    assert failed.code == 2
    shown = " ".join(plain(failed.out).split())
    assert "--mime-type is for files" in shown
    advice = f"`forebay cat {handle} | forebay {name} - … --mime-type 'text/csv; header=present'`"
    assert advice in shown


def test_stored_text_is_queried_with_another_type(home: Path) -> None:
    with forebay.open_store(home.as_uri(), sweep_interval=0) as store:
        handle = store.put("city,n\nBonn,1\n").output_handle
    assert run("query", handle, "SELECT n FROM items").error["code"] == "invalid_format_for_payload"
    content = run("cat", handle).out
    page = run("query", "-", "SELECT n FROM items", "--mime-type", "text/csv", stdin=content).json
    assert page["rows"] == [[1]]


def test_handles_are_no_tables_beside_a_file(tmp_path: Path, handle: str) -> None:
    path = tmp_path / "orders.json"
    path.write_text(json.dumps(ORDERS))
    failed = run("query", str(path), f"SELECT * FROM items JOIN {handle} USING (id)")
    assert failed.code == 2
    assert f"forebay put {path}" in failed.error["message"]


def test_a_hint_goes_to_standard_error(tmp_path: Path) -> None:
    path = tmp_path / "mixed.json"
    path.write_text('[{"v": 1}, {"v": "x"}]')
    assert b"TRY_CAST" in run("query", str(path), "SELECT max(v) FROM items", "--csv").err
