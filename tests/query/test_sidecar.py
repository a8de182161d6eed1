"""Tables as sidecars: the same table as from the payload, for every query that needs no other fields."""

import contextlib
import io
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from forebay import QueryFailed, Store
from forebay.query import sidecar
from forebay.query.feed import Paths, Table, write_table
from forebay.query.names import find_paths
from forebay.query.process import POOL, QueryError, Worker
from forebay.query.sidecar import keep_table, read_table, wait_for_tables
from forebay.store.handles import get_sidecar_handle
from forebay.store.reader import PayloadReader
from forebay.system.workers import create_memory_file, get_file_path
from stores import file_of, store_at

ITEMS: list[dict[str, Any]] = [
    {
        "id": number,
        "Id": str(number),
        "big": 10**30 + number,
        "exact": 0.5,
        "mixed": [number, "x", None][number % 3],
        "who": {"HUGEINT": 10**25, 'name "HUGEINT': [{"x": 2**70}, None], "é": True},
        "deep": [[number], []],
        "none": None,
        "text": "é\0\n" * 20,
    }
    for number in range(12_000)
]
PAYLOAD = json.dumps(ITEMS).replace('"exact": 0.5}', '"exact": 0.12345678901234567890}', 1)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with store_at(tmp_path) as opened:
        yield opened


def select(table: Any, file: int, sql: str = "FROM items") -> list[Any]:
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute(f"CREATE TABLE items AS {table.select_from(get_file_path(file))}")
        result = connection.execute(sql)
        return [[(column[0], str(column[1])) for column in result.description], result.fetchall()]


def write(store: Store, handle: str, paths: Paths | None) -> list[Any]:
    """Return the table of a payload as its items give it, and keep it."""
    file = create_memory_file()
    try:
        with store.open_view(handle) as view:
            assert isinstance(view, PayloadReader)
            table = write_table(view, paths, file)
            keep_table(store.sidecars, view.footer.meta, table, file)
        return select(table, file)
    finally:
        os.close(file)
        wait_for_tables()


def read(store: Store, handle: str, paths: Paths | None, sql: str = "FROM items") -> list[Any] | None:
    """Return the table of a payload as its sidecar gives it."""
    file = create_memory_file()
    try:
        with store.open_view(handle) as view:
            assert isinstance(view, PayloadReader)
            table = read_table(store.sidecars, view.footer.meta, paths, file)
        return None if table is None or not table.has_fields(paths) else select(table, file, sql)
    finally:
        os.close(file)


def test_another_process_gets_the_same_table(store: Store, tmp_path: Path) -> None:
    handle = store.put(PAYLOAD, mime_type="application/json").output_handle
    assert read(store, handle, None) is None
    expected = write(store, handle, None)
    assert len(expected[1]) == len(ITEMS)
    with store_at(tmp_path) as other:
        assert read(other, handle, None) == expected
        # Only the columns of the statement are loaded.
        columns, _ = read(other, handle, frozenset([("ID",), ("big",)])) or pytest.fail("no table")
        assert columns == [("id", "BIGINT"), ("big", "HUGEINT")]


def test_it_serves_statements_that_need_no_other_field(store: Store) -> None:
    handle = store.put(PAYLOAD, mime_type="application/json").output_handle
    write(store, handle, find_paths("SELECT mixed, sum(id) FROM items GROUP BY ALL"))
    for sql, is_served in {
        "SELECT count(*) FROM items": True,
        "SELECT max(Id_2) AS m, min(id) FROM items ORDER BY m LIMIT 3": True,
        "SELECT MIXED AS exactly FROM items": True,
        "SELECT * FROM items": False,
        "SELECT big FROM items": False,
        "SELECT id FROM items WHERE EXACT > 0": False,
        "SELECT value FROM items": False,
    }.items():
        assert (read(store, handle, find_paths(sql), sql) is not None) == is_served, sql
    write(store, handle, find_paths("SELECT mixed, id, big FROM items"))
    assert read(store, handle, find_paths("SELECT big FROM items")) is not None


def test_it_serves_statements_that_need_no_other_member(store: Store) -> None:
    handle = store.put(PAYLOAD, mime_type="application/json").output_handle
    columns, _ = write(store, handle, find_paths("SELECT who.hugeint, i.deep, mixed.x FROM items i"))
    assert columns == [("mixed", "JSON"), ("who", "STRUCT(HUGEINT HUGEINT)"), ("deep", "BIGINT[][]")]
    for sql, is_served in {
        "SELECT count(*) FROM items": True,
        "SELECT max(items.WHO.HUGEINT) FROM items": True,
        "SELECT mixed, deep[1] FROM items": True,
        "SELECT who FROM items": False,
        "SELECT who.é FROM items": False,
        "SELECT who.hugeint, who.ghost FROM items": False,
        "SELECT who['HUGEINT'] FROM items": False,
    }.items():
        assert (read(store, handle, find_paths(sql), sql) is not None) == is_served, sql
    both = find_paths("SELECT who.é FROM items") or frozenset()
    write(store, handle, both | (find_paths("SELECT who.hugeint FROM items") or frozenset()))
    assert read(store, handle, both, "SELECT DISTINCT who.é FROM items") == [[("é", "BOOLEAN")], [(True,)]]


def test_a_damaged_one_is_not_used(store: Store, tmp_path: Path) -> None:
    handle = store.put(PAYLOAD, mime_type="application/json").output_handle
    write(store, handle, None)
    path = file_of(tmp_path, get_sidecar_handle(handle))
    path.write_bytes(path.read_bytes()[:-50])
    assert read(store, handle, None) is None


def test_a_small_table_has_none(store: Store, tmp_path: Path) -> None:
    handle = store.put('[{"a": 1}]', mime_type="application/json").output_handle
    write(store, handle, None)
    assert not list(tmp_path.glob(f"*/{get_sidecar_handle(handle)}.*"))


def test_queries_use_it_and_widen_it(store: Store, tmp_path: Path) -> None:
    handle = store.put(PAYLOAD, mime_type="application/json", principal="ann").output_handle

    def query(sql: str) -> list[Any]:
        # No worker has the table any more, as in another process.
        POOL.end_all()
        rows = store.query(handle, sql, principal="ann").rows
        wait_for_tables()
        return rows

    def get_version() -> int:
        return file_of(tmp_path, get_sidecar_handle(handle)).stat().st_ino

    total = sum(item["id"] for item in ITEMS)
    assert query("SELECT sum(id) FROM items") == [[total]]
    first = get_version()
    assert query("SELECT sum(id), count(*) FROM items") == [[total, len(ITEMS)]]
    assert get_version() == first
    assert query("SELECT max(big) FROM items") == [[ITEMS[-1]["big"]]]
    second = get_version()
    assert second != first
    # It has the fields of both.
    assert query("SELECT sum(id), min(big) FROM items") == [[total, ITEMS[0]["big"]]]
    assert query("SELECT min(who.hugeint) FROM items") == [[10**25]]
    assert query("SELECT bool_and(who.é) FROM items") == [[True]]
    third = get_version()
    assert query("SELECT min(who.hugeint), bool_or(who.é), sum(id) FROM items") == [[10**25, True, total]]
    assert get_version() == third
    assert query("SELECT who FROM items LIMIT 1")[0][0]["HUGEINT"] == 10**25
    assert query("SELECT who FROM items LIMIT 1")[0][0]["HUGEINT"] == 10**25
    store.delete(handle, principal="ann")
    assert store.sweep().stored_bytes == 0


def test_a_sidecar_that_cannot_be_read_is_replaced(store: Store, tmp_path: Path) -> None:
    handle = store.put(PAYLOAD).output_handle
    sql = "SELECT count(*), max(id) FROM items"
    expected = [[len(ITEMS), len(ITEMS) - 1]]
    assert store.query(handle, sql).rows == expected
    wait_for_tables()
    sidecar = file_of(tmp_path, get_sidecar_handle(handle))
    data = bytearray(sidecar.read_bytes())
    data[len(data) // 3] ^= 1
    sidecar.write_bytes(data)
    POOL.end_all()
    assert store.query(handle, sql).rows == expected
    wait_for_tables()
    with store.open_view(handle) as reader:
        assert isinstance(reader, PayloadReader)
        assert store.sidecars.write(reader.footer.meta, _describe(store, reader), io.BytesIO(b"not parquet" * 1000))
    POOL.end_all()
    with pytest.raises(QueryFailed):
        store.query(handle, sql)
    assert store.query(handle, sql).rows == expected


@pytest.mark.parametrize("change", [{"format": 1}, {"columns": [1]}, {"rows": None}])
def test_a_sidecar_of_another_version_is_replaced(store: Store, change: dict[str, Any]) -> None:
    handle = store.put(PAYLOAD, mime_type="application/json").output_handle
    expected = write(store, handle, None)
    with store.open_view(handle) as reader:
        assert isinstance(reader, PayloadReader)
        description = {**_describe(store, reader), **change}
        assert store.sidecars.write(reader.footer.meta, description, io.BytesIO(b"unknown" * 1000))
    assert read(store, handle, None) is None
    assert write(store, handle, None) == expected
    assert read(store, handle, None) == expected


def test_a_table_that_cannot_be_packed_is_not_kept(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    handle = store.put(PAYLOAD, mime_type="application/json").output_handle
    with monkeypatch.context() as patch:
        patch.setattr(sidecar, "_PACK_SECONDS", 0.0)
        expected = write(store, handle, None)
    assert "a table was not kept: " in caplog.text
    assert read(store, handle, None) is None
    assert write(store, handle, None) == expected
    assert read(store, handle, None) == expected


def test_no_more_tables_wait_than_the_queue_holds(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[str] = []
    may_go_on = threading.Event()

    def run_slowly(job: Any) -> None:
        assert may_go_on.wait(60)
        kept.append(job.meta["name"])

    monkeypatch.setattr(sidecar, "_run_job", run_slowly)
    file = create_memory_file()
    try:
        table = Table((), 0, 1 << 20, None, None, (), "")
        for number in range(20):
            keep_table(store.sidecars, {"name": str(number)}, table, file)
        # At most one runs and four wait; the files of the others are closed at once.
        assert count_descriptors(file) <= 1 + 5
        may_go_on.set()
        wait_for_tables()
    finally:
        may_go_on.set()
        os.close(file)
    # The fifth depends on when the thread takes the first.
    assert kept[:4] == ["0", "1", "2", "3"]
    assert len(kept) <= 5


def test_a_table_that_cannot_be_loaded_is_not_kept(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise QueryError("failure", "cannot be read")

    handle = store.put(PAYLOAD).output_handle
    monkeypatch.setattr(Worker, "load", fail)
    with pytest.raises(QueryFailed, match="cannot be loaded as a table: cannot be read"):
        store.query(handle, "SELECT max(id) FROM items")
    wait_for_tables()
    assert not list(tmp_path.glob(f"**/{get_sidecar_handle(handle)}.*"))


def count_descriptors(file: int) -> int:
    """Return how many descriptors of this process are open on the same file."""
    count = 0
    for other in range(1024):
        with contextlib.suppress(OSError):
            count += os.path.sameopenfile(file, other)
    return count


def _describe(store: Store, reader: PayloadReader) -> dict[str, Any]:
    with store.sidecars.open(reader.footer.meta) as sidecar:
        assert sidecar is not None
        return sidecar[0]
