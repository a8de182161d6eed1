"""SQL over a stored payload, beside parsing it and counting, and beside DuckDB on a file."""

import collections
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from forebay.bench.contest import FOREBAY, Benchmark, Contender
from forebay.bench.fields import choose_field
from forebay.bench.payloads import Payload
from forebay.bench.peers import load_module
from forebay.bench.readers import Reader
from forebay.bench.workspace import NotApplicable, Workspace

__all__ = ["list_queries"]

_TIMEOUT_SECONDS = 600.0
_MAX_RESULT_BYTES = 16 << 20

Counts = list[tuple[str | None, int]]


def list_queries(work: Workspace) -> Iterator[Benchmark]:
    """Yield the benchmarks of queries, if DuckDB is installed and the items have a field that suits."""
    payload = work.payload
    if payload.items is None:
        raise NotApplicable("the payload has no items")
    if not work.has("duckdb"):
        raise NotApplicable(f"SQL needs DuckDB: {work.peers['duckdb'].install}")
    field = choose_field(payload.data, payload.items)
    if field is None:
        raise NotApplicable("no field of the items has few different texts as values")
    # Imported here, because it starts threads.
    from forebay.query.process import POOL
    from forebay.query.sidecar import wait_for_tables

    work.stack.callback(POOL.end_all)
    sql = f'SELECT "{field.name}", count(*) FROM items GROUP BY ALL'  # noqa: S608 - a name without quotes
    peers = [_make_loop(reader, field.name) for reader in work.readers if reader.iterate is not None]
    if payload.items.kind != "map":
        peers.append(Contender("DuckDB on a file", _query_file(payload, str(work.path), field.name), _sort))
    handle = ""

    def prepare() -> None:
        """Store the payload again, because a query keeps a table beside it, and start a worker without a table."""
        nonlocal handle
        wait_for_tables()
        if handle:
            work.store.delete(handle)
        handle = work.put()
        POOL.end_all()
        with POOL.borrow(lambda _: False, _TIMEOUT_SECONDS) as worker:
            worker.parse("SELECT 1", _TIMEOUT_SECONDS)

    def query() -> Counts:
        page = work.store.query(handle, sql, timeout=_TIMEOUT_SECONDS, max_bytes=_MAX_RESULT_BYTES)
        return [(value, count) for value, count in page.rows]

    name = f"rows by {field.name}"
    size = len(payload.data)
    yield Benchmark(
        "query",
        f"{name}, first query",
        size,
        Contender(FOREBAY, query, _sort, before=prepare),
        peers,
        note="forebay reads a store in a confined process, which has started",
    )
    yield Benchmark(
        "query",
        f"{name}, asked again",
        size,
        Contender(FOREBAY, query, _sort),
        peers,
        reads_all=False,
        note="forebay has the table from the first query; peers parse the payload again",
    )


def _sort(counts: Iterable[tuple[Any, int]]) -> Counts:
    return sorted(((value, count) for value, count in counts), key=lambda row: (row[0] is None, str(row[0])))


def _make_loop(reader: Reader, name: str) -> Contender:
    def count() -> Counts:
        items: Iterable[Any] = reader.iterate() if reader.iterate is not None else ()
        return [*collections.Counter(item.get(name) if isinstance(item, dict) else None for item in items).items()]

    return Contender(f"{reader.who} and a loop", count, _sort, memory_bytes=reader.memory_bytes)


def _query_file(payload: Payload, path: str, name: str) -> Callable[[], Counts]:
    """Return a function that lets DuckDB read a file and group its rows."""
    duckdb = load_module("duckdb")
    if payload.nature in ("csv", "tsv"):
        delimiter = "\t" if payload.nature == "tsv" else ","
        source = f"read_csv(?, header = true, all_varchar = true, delim = '{delimiter}')"
    else:
        # A document counts as one object, which must fit.
        source = f"read_json(?, maximum_object_size = {2 * len(payload.data) + (16 << 20)})"
    if payload.keys:
        column = ".".join('"' + key.replace('"', '""') + '"' for key in payload.keys)
        source = f"(SELECT unnest({column}, recursive := false) AS item FROM {source})"  # noqa: S608 - quoted names
        name = f'item."{name}"'
    else:
        name = f'"{name}"'
    sql = f"SELECT {name}, count(*) FROM {source} GROUP BY ALL"  # noqa: S608 - quoted names

    def query() -> Counts:
        with duckdb.connect() as connection:
            return [
                (None if value is None else str(value), count)
                for value, count in connection.execute(sql, [path]).fetchall()
            ]

    return query
