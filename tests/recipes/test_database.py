"""The database recipe: large selections become handles, and statements can only read."""

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from mcp.server.mcpserver.exceptions import ToolError
from recipe_client import connect_recipe
from recipes import database

pytestmark = pytest.mark.slow

ORDERS = 40_000
NOTE = "A sentence of a note about the order: größe ✓. " * 25
"""With this note, all orders are 50 MB of JSON."""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("shop") / "shop.db"
    with closing(sqlite3.connect(file)) as db, db:
        db.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, country TEXT, total REAL, note TEXT, seal BLOB)")
        rows = ((n, "FR" if n % 7 == 0 else "DE", n / 4, NOTE, n.to_bytes(4)) for n in range(ORDERS))
        db.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?)", rows)
        db.execute("CREATE TABLE countries (id TEXT, name TEXT)")
        db.executemany("INSERT INTO countries VALUES (?, ?)", [("DE", "Germany"), ("FR", "France")])
    return file


def test_fifty_megabytes_become_a_handle(shop: Path, tmp_path: Path, era: str) -> None:
    async def ask() -> None:
        async with connect_recipe("database.py", str(shop), era=era, home=tmp_path) as client:
            tables = await client.call("list_tables")
            assert [table["name"] for table in tables] == ["orders", "countries"]
            assert tables[0]["sql"].startswith("CREATE TABLE orders (id INTEGER")
            small = await client.call("select", sql="SELECT count(*) AS n, max(total) FROM orders")
            assert small == [{"n": ORDERS, "max(total)": (ORDERS - 1) / 4}]

            text, is_error = await client.call_tool("select", sql="SELECT nope FROM orders")
            assert is_error
            assert "no such column: nope" in text

            handle, descriptor = await client.call_large("select", sql="SELECT * FROM orders")
            assert descriptor["item_count"] == ORDERS
            assert descriptor["size_bytes"] > 50_000_000
            sql = "SELECT country, count(*), sum(total) FROM items GROUP BY 1 ORDER BY 1"
            totals = {key: [n / 4 for n in range(ORDERS) if (n % 7 == 0) == (key == "FR")] for key in ("DE", "FR")}
            expected = [[key, len(values), sum(values)] for key, values in totals.items()]
            assert await client.query(handle, sql) == expected
            last = await client.call("output_fetch", output_handle=handle, offset=ORDERS - 1)
            order = {"id": ORDERS - 1, "country": "DE", "total": (ORDERS - 1) / 4, "note": NOTE, "seal": "00009c3f"}
            assert (last["content"], last["eof"]) == ([order], True)
            found = await client.call("output_search", output_handle=handle, pattern='"seal":"00007fff"')
            assert [match["item"] for match in found["matches"]] == [32767]

            stored = client.read_stored(handle)
            assert len(stored) == descriptor["size_bytes"]
            with closing(sqlite3.connect(shop)) as db:
                for row, line in zip(db.execute("SELECT * FROM orders"), stored[1:-1].split(b",\n"), strict=True):
                    assert [*json.loads(line).values()] == [*row[:4], row[4].hex()]

    asyncio.run(ask())


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO countries VALUES ('IT', 'Italy')",
        "DELETE FROM orders",
        "DROP TABLE orders",
        "UPDATE orders SET total = 0 RETURNING id",
        "ATTACH '{other}' AS other",
        "PRAGMA journal_mode = wal",
        "PRAGMA query_only = off",
        "VACUUM INTO '{other}'",
        "BEGIN EXCLUSIVE",
        "SELECT 1; DROP TABLE orders",
        "SELECT load_extension('{other}')",
        "CREATE TEMP TABLE t AS SELECT 1",
        "SELECT zeroblob(500000000)",
        "nonsense",
    ],
)
def test_a_statement_can_only_read(sql: str, shop: Path, tmp_path: Path) -> None:
    before = shop.read_bytes()
    other = tmp_path / "other.db"
    with pytest.raises(ToolError, match="one SELECT at a time"):
        database.select(shop, sql.format(other=other))
    assert not other.exists()
    assert shop.read_bytes() == before
    assert [file.name for file in shop.parent.iterdir()] == ["shop.db"]


def test_a_statement_ends_in_time(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "MAX_SECONDS", 0.2)
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    with pytest.raises(ToolError, match=r"interrupted; .* at most 0\.2 s"):
        database.select(shop, endless)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT instr(hex(zeroblob(400000)), hex(zeroblob(200000)) || '1')",
        "SELECT trim(hex(zeroblob(140000)), '0')",
        f"SELECT note GLOB '*{'0' * 4000}1' FROM orders",
        f"SELECT note LIKE '%{'0' * 4000}1' FROM orders",
    ],
)
def test_no_call_of_a_function_takes_long(sql: str, shop: Path) -> None:
    with pytest.raises(ToolError, match=r"(too big|too complex); .* on rows of at most 262,144 bytes"):
        database.select(shop, sql)


def test_slow_calls_in_one_row_end_in_time(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "MAX_SECONDS", 0.3)
    # Each takes 20 ms or more. SQLite would call no progress handler until all are done.
    calls = [f"instr(hex(zeroblob(50000)), hex(zeroblob({25_000 - number})) || '1')" for number in range(900)]
    with pytest.raises(ToolError, match=r"interrupted; .* at most 0\.3 s"):
        database.select(shop, f"SELECT {', '.join(calls)}")


def test_the_time_is_checked_between_slow_calls(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "MAX_SECONDS", 0.1)
    slow = "sum(instr(hex(zeroblob(50000 + id % 2)), hex(zeroblob(25000 + id % 2)) || '1'))"
    with pytest.raises(ToolError, match="interrupted"):
        database.select(shop, f"SELECT {slow} FROM orders WHERE id < 400")


def test_half_of_a_surrogate_pair_is_an_error(shop: Path) -> None:
    with pytest.raises(ToolError, match="character 8 of the statement is half of a surrogate pair"):
        database.select(shop, "SELECT '\ud83d'")


def test_a_result_has_a_limit(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "MAX_RESULT_BYTES", 10_000)
    with pytest.raises(ToolError, match="more than 10,000 bytes; select fewer rows"):
        database.select(shop, "SELECT * FROM orders")


def test_a_temporary_file_has_a_limit(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of a recursive statement are kept to find those that repeat: gigabytes before its time ends."""
    monkeypatch.setattr(database, "MAX_TEMPORARY_BYTES", 1 << 20)
    values = "SELECT 1 AS i, x'00' AS v UNION SELECT i + 1, randomblob(100000) FROM n WHERE i < {}"
    with pytest.raises(ToolError, match=r"disk.* temporary files of at most 1,048,576 bytes"):
        database.select(shop, f"WITH RECURSIVE n AS ({values.format(300)}) SELECT count(*) FROM n")
    assert json.loads(database.select(shop, f"WITH RECURSIVE n AS ({values.format(5)}) SELECT count(*) AS n FROM n"))


def test_no_column_is_lost(shop: Path) -> None:
    sql = "SELECT o.id, c.id, 1 AS id_2, c.id FROM orders o JOIN countries c ON c.id = o.country WHERE o.id = 7"
    assert json.loads(database.select(shop, sql)) == [{"id": 7, "id_2": "FR", "id_2_2": 1, "id_3": "FR"}]
    assert json.loads(database.select(shop, "SELECT 1 AS n WHERE 0")) == []


def test_as_many_columns_of_one_name_as_sqlite_allows(shop: Path) -> None:
    (row,) = json.loads(database.select(shop, f"SELECT {', '.join(['1 AS n'] * 2000)}"))
    assert [*row] == ["n", *(f"n_{number}" for number in range(2, 2001))]


def test_text_in_another_encoding_is_read(tmp_path: Path) -> None:
    file = tmp_path / "old.db"
    with closing(sqlite3.connect(file)) as db, db:
        db.execute("CREATE TABLE t (name TEXT)")
        db.execute("INSERT INTO t VALUES (CAST(x'67726fdf' AS TEXT))")
    assert json.loads(database.select(file, "SELECT name FROM t")) == [{"name": r"gro\xdf"}]
