"""Names in a statement: never without a field that it uses."""

import os
import re
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import pytest
from forebay import Store
from forebay.query.feed import Paths, write_table
from forebay.query.names import find_paths
from forebay.system.workers import create_memory_file, get_file_path
from stores import store_at

PAYLOAD = '[{"id": 1, "name": "a", "Total": 2, "tags": ["x", "y"], "customer": {"city": "b"}, "order id": 3, "d": "x"}]'


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with store_at(tmp_path_factory.mktemp("store")) as opened:
        yield opened


def run(store: Store, handle: str, sql: str, paths: Paths | None) -> tuple[list[str], list[Any]]:
    file = create_memory_file()
    try:
        with store.open_view(handle) as view, duckdb.connect(config={"threads": 1}) as connection:
            table = write_table(view, paths, file)
            connection.execute(f"CREATE TABLE items AS {table.select_from(get_file_path(file))}")
            connection.execute("CREATE VIEW orders AS FROM items")
            result = connection.execute(sql)
            return [column[0] for column in result.description], result.fetchall()
    finally:
        os.close(file)


NAMED = [
    "SELECT count(*) FROM items",
    "SELECT name, sum(id * total) AS t FROM items GROUP BY name ORDER BY t DESC",
    "SELECT items.customer.city, 2*id FROM items WHERE name LIKE 'a%' -- a comment, *",
    "select o.id, c.name from items o join orders c on o.id = c.id and o.name = c.name",
    "WITH t AS (SELECT id, customer.city AS c FROM items), u(n) AS MATERIALIZED (SELECT id FROM t) "
    "SELECT c, count(*) FROM t JOIN u ON t.id = u.n GROUP BY ALL",
    'SELECT "order id", "Total" FROM items',
    "SELECT u.tag, count(*) FROM items, unnest(tags) AS u(tag) GROUP BY ALL ORDER BY ALL",
    "SELECT unnest(tags) AS tag FROM items LIMIT 1",
    "SELECT to_json(customer)->>'$.city' FROM items",
    "SELECT id FROM items WHERE total IN (SELECT max(total) FROM orders)",
    "SELECT CASE WHEN id > 0 THEN total END * 2, list_transform(tags, lambda x: upper(x)) FROM items",
    "SELECT avg(total) FILTER (name = 'a') OVER (PARTITION BY d) FROM items",
    "SELECT id FROM items AS 'i' UNION ALL SELECT total FROM orders",
    "SELECT EXISTS (SELECT 1 FROM items WHERE id = 1)",
]

ALL_FIELDS = [
    "SELECT * FROM items",
    "SELECT items.* FROM items",
    "SELECT id, * EXCLUDE (name) FROM items",
    "SELECT DISTINCT ON (id) * FROM items",
    "FROM items",
    "FROM items SELECT id",
    "SELECT 1 FROM (FROM items)",
    "WITH t AS (SELECT id FROM items) FROM t",
    "SELECT id FROM items UNION ALL BY NAME FROM items",
    "SELECT items FROM items",
    'SELECT "items" FROM items',
    "SELECT to_json(t) FROM items t",
    "SELECT i FROM items AS i",
    "SELECT t.to_json() FROM items t",
    "SELECT count(DISTINCT t) FROM items t",
    "SELECT a.id FROM items a JOIN orders b ON a = b",
    "SELECT b FROM (items a JOIN orders b ON a.id = b.id)",
    "SELECT x FROM items AS t(x)",
    "SELECT id FROM items NATURAL JOIN orders",
    "SELECT COLUMNS('n.*') FROM items",
    "SELECT min(COLUMNS(lambda c: c LIKE 'i%')) FROM items",
    "SELECT #1 FROM items",
    "DESCRIBE items",
    "DESCRIBE SELECT id FROM items",
    "SUMMARIZE items",
    "SELECT column_name FROM (DESCRIBE items)",
    "SELECT column_name FROM (DESC items)",
    "TABLE items",
    "PIVOT items ON name USING sum(id)",
    "SELECT name FROM (UNPIVOT items ON id)",
    "SELECT count(*) FROM query('FROM items')",
    "SELECT count(*) FROM query_table('items')",
    "SELECT column_name FROM information_schema.columns",
    "SELECT column_name FROM duckdb_columns()",
    "SELECT name FROM pragma_table_info('items')",
    "SELECT column_name FROM duckdb_columns",
    "SELECT sql FROM sqlite_master",
    "SELECT attname FROM pg_catalog.pg_attribute ORDER BY ALL",
    "SELECT to_json(items) FROM main.items",
    "SELECT count(DISTINCT items) FROM memory.main.items",
    "SELECT main.items FROM items",
    "SELECT hash(main.items) FROM items",
    'SELECT id, name, total, tags, customer, "order id", d FROM items UNION DISTINCT FROM orders',
    "SELECT t AS materialized FROM items t",
    "SELECT t AS not_materialized, id --c\r, *\nFROM items t",
    """SELECT "it's" FROM items AS 'it''s'""",
    """SELECT "a""b" FROM items AS 'a"b'""",
    "SELECT E'\\'', name FROM items --'",
    "SELECT $$'$$, name FROM items --'",
    "SELECT /* ' */ name FROM items --'",
    "SELECT id\u00a0FROM items",
]


@pytest.mark.parametrize("sql", NAMED + ALL_FIELDS)
def test_a_statement_gives_the_same_with_its_fields_alone(store: Store, sql: str) -> None:
    handle = store.put(PAYLOAD, mime_type="application/json").output_handle
    paths = find_paths(sql)
    assert (paths is None) == (sql in ALL_FIELDS)
    try:
        expected = run(store, handle, sql, None)
    except duckdb.ParserException:
        # Neither DuckDB nor we know what it means.
        assert paths is None
        return
    assert run(store, handle, sql, paths) == expected


def test_paths_are_those_of_the_statement() -> None:
    paths = find_paths('SELECT a."b ""c"" D" FROM items AS a WHERE x=\'it\'\'s\'')
    names = ["SELECT", "a", 'b "c" D', "FROM", "items", "AS", "WHERE", "x", "it's"]
    assert paths == frozenset([*((name,) for name in names), ("a", 'b "c" D')])


# Each with whether the field `owner` is used by its members alone.
MEMBERS = {
    "SELECT owner.id FROM items": True,
    'SELECT Owner.ID, "OWNER" . "Name" -- owner\n FROM items ORDER BY ALL': True,
    "SELECT items.owner.id, t.owner.name FROM items JOIN items AS t ON items.owner.id = t.owner.id ORDER BY ALL": True,
    "SELECT main.items.owner.id FROM main.items": False,
    "SELECT memory.main.items.owner.id FROM memory.main.items": False,
    "SELECT owner.id % 2 AS k, count(*) FROM items GROUP BY ALL ORDER BY ALL": True,
    "SELECT owner.at.x, owner.at.y.z FROM items": True,
    "SELECT owner.at FROM items": True,
    "SELECT owner.at.x, owner.at FROM items": True,
    "SELECT owner.tags[1], len(owner.tags), owner.list[1].x FROM items": True,
    "SELECT owner.at['x'], owner.name[1:2] FROM items": True,
    "SELECT owner.name.upper(), owner.id.abs() FROM items": True,
    "SELECT unnest(owner.list).x FROM items": True,
    "SELECT unnest(owner.at) FROM items": True,
    "SELECT struct_keys(owner.at) FROM items": True,
    "SELECT u.l.x FROM items, unnest(owner.list) AS u(l)": True,
    "SELECT list_transform(owner.list, lambda e: e.x) FROM items": True,
    "SELECT x.id FROM (SELECT owner.at AS y, owner.id FROM items) AS x": True,
    "SELECT x.id FROM (SELECT owner.at AS x, owner.id FROM items) AS x": False,
    "WITH t AS (SELECT owner.id AS n FROM items) SELECT n FROM t": True,
    "SELECT id FROM items WHERE owner.id IS NULL": True,
    "SELECT owner.ghost FROM items": True,
    "SELECT owner.id, owner.at.ghost FROM items": True,
    "SELECT owner.id.x FROM items": True,
    "SELECT owner.name.x.y.z FROM items": True,
    "SELECT owner.tags.x FROM items": True,
    "SELECT owner.list.x FROM items": True,
    "SELECT owner.any.x, owner.any FROM items": True,
    "SELECT ghost.owner.id FROM items": True,
    "SELECT owner.id, nonsense FROM items": True,
    "SELECT typeof(owner.at), owner.id::VARCHAR FROM items": True,
    "SELECT owner.at = {'x': 1} FROM items": True,
    "SELECT sum(owner.id) OVER (PARTITION BY owner.name ORDER BY owner.id) FROM items ORDER BY ALL": True,
    "SELECT owner_2.id FROM items": True,
    "SELECT owner_2.id, owner.name FROM items": True,
    "SELECT owner_2, owner.name FROM items": True,
    "SELECT owner FROM items": False,
    "SELECT owner, owner.id FROM items": False,
    "SELECT items.owner FROM items": False,
    "SELECT to_json(owner) FROM items": False,
    "SELECT owner.to_json() FROM items": False,
    "SELECT owner.struct_keys() FROM items": False,
    "SELECT (owner).id FROM items": False,
    "SELECT owner['id'] FROM items": False,
    "SELECT struct_extract(owner, 'id') FROM items": False,
    "SELECT owner.id FROM items WHERE owner IS NULL": False,
    "SELECT owner.id FROM items ORDER BY owner, owner.id": False,
    "SELECT count(DISTINCT owner) FROM items": False,
    "SELECT count(*) FROM items GROUP BY owner ORDER BY ALL": False,
    "SELECT unnest(owner) FROM items": False,
    "SELECT unnest([owner], recursive := true) FROM items": False,
    "SELECT owner.id AS owner FROM items ORDER BY owner": False,
    "SELECT owner.id FROM items AS owner": False,
    "SELECT owner.owner.id FROM items AS owner": False,
    "SELECT owner.id FROM items AS 'owner'": False,
    "SELECT x.id FROM (SELECT owner AS x FROM items)": False,
    "SELECT t.owner.id FROM (SELECT owner FROM items) AS t": False,
    "WITH owner AS (SELECT id FROM items) SELECT owner.id FROM owner": False,
    "WITH t(owner) AS (SELECT id FROM items) SELECT owner FROM t": False,
    "SELECT items['owner'].id FROM items": False,
    "SELECT a.owner.id FROM items AS a JOIN items AS b USING (owner)": False,
    "SELECT list_transform(tags, lambda owner: owner.id) FROM items": False,
    "SELECT {'owner': owner.id}.owner FROM items": False,
    "SELECT owner.* FROM items": False,
    "SELECT columns(owner.*) FROM items": False,
    "SELECT owner.id FROM items WHERE items = items": False,
}
OWNERS = [
    '{"id": 1, "name": "a", "at": {"x": 1, "y": {"z": 2}}, "tags": ["a"], "list": [{"x": 1, "y": 2}], "any": {"x": 1}}',
    '{"id": 2, "name": "c", "at": {}, "tags": [], "list": null, "any": {"x": "b"}, "more": "", "at": {"x": 5}}',
    *('{"name": "d", "id": null}', "{}", "null", '{"\\u0069d": 7, "n\\nl": "\\ud800"}'),
]
ODD_OWNERS = [
    *('"text"', "3", "[]", '[{"id": 4}]', '{"ID": 3}', '{"any": 5}', '{"at": {"X": 4}}', '{"at": "text"}', '{"": 1}'),
    *('{"more": 0.12345678901234567890}', '{"id": 18446744073709551616}', '{"id": 0.5}', '{"list": [{"x": []}]}'),
    '{"deep": ' + "[" * 140 + "]" * 140 + "}",
    "{" + ", ".join(f'"k{number}": 1' for number in range(300)) + "}",
]


def make_items(owners: list[str]) -> str:
    items = [f'{{"id": {number}, "owner": {owner}, "tags": [1]}}' for number, owner in enumerate(owners)]
    return f"[{', '.join(items)}]"


PAYLOADS = [
    make_items(OWNERS),
    make_items(OWNERS)[:-1] + ', {"Owner": {"id": 1, "name": "x"}}]',
    *(make_items([*OWNERS, odd]) for odd in ODD_OWNERS),
]


@pytest.mark.parametrize("sql", MEMBERS)
def test_a_field_is_whole_unless_all_its_uses_have_members(sql: str) -> None:
    paths = find_paths(sql)
    is_by_members = paths is not None and ("owner",) not in {tuple(map(str.lower, path)) for path in paths}
    assert is_by_members == MEMBERS[sql]


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_statement_gives_the_same_with_its_members_alone(store: Store, payload: str) -> None:
    handle = store.put(payload, mime_type="application/json").output_handle
    file = create_memory_file()

    def run_all(get_paths: Callable[[str], Paths | None]) -> Iterator[Any]:
        loaded: list[Paths | None] = []
        for sql in MEMBERS:
            paths = get_paths(sql)
            if loaded != [paths]:
                loaded = [paths]
                with store.open_view(handle) as view:
                    table = write_table(view, paths, file)
                connection.execute(f"CREATE OR REPLACE TABLE items AS {table.select_from(get_file_path(file))}")
            try:
                result = connection.execute(sql)
                yield sql, [(column[0], str(column[1])) for column in result.description], result.fetchall()
            except duckdb.Error as error:
                # The message may list the other columns. forebay adds all of them itself.
                yield sql, type(error), re.sub("Candidate bindings: .*", "", str(error))

    with duckdb.connect(config={"threads": 1}) as connection:
        expected = list(run_all(lambda _: None))
        assert list(run_all(find_paths)) == expected
    os.close(file)
