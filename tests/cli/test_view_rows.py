"""Rows and searches give the same as a naive reading of the whole payload."""

import csv
import io
import json
import re
from pathlib import Path

import forebay
import pytest
from forebay.cli.view.columns import choose_columns, read_cells
from forebay.cli.view.filter import filter_items
from forebay.cli.view.find import ByteFinder, Pattern, RowFinder
from forebay.cli.view.jobs import Cancelled, Job
from forebay.cli.view.rows import HexRows, ItemRows, LineRows, Row
from forebay.cli.view.source import FileSource, Source, Stored, StoredSource
from forebay.cli.view.tree import build_tree, find_node, make_pointer
from forebay.errors import InvalidJSON
from hypothesis import given, settings
from hypothesis import strategies as st

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=20,
)

ORDERS = [
    {
        "id": n,
        "status": "failed" if n % 9 == 4 else "paid",
        "total": n / 4,
        "customer": {"id": n % 50, "country": "DE" if n % 2 else "FR"},
        "note": "x" * (n % 300) + (" needle" if n % 400 == 377 else ""),
    }
    for n in range(1600)
]


@pytest.fixture(params=["file", "handle"])
def make_source(request: pytest.FixtureRequest, tmp_path: Path):  # type: ignore[no-untyped-def]
    """A function that returns bytes as a source, from a file or from a store."""
    with forebay.open_store(tmp_path / "store", sweep_interval=0, warn_bytes=1 << 40) as store:

        def make(data: bytes, name: str = "payload.json") -> Source:
            source: Source
            if request.param == "file":
                (tmp_path / name).write_bytes(data)
                source = FileSource(str(tmp_path / name))
            else:
                mime_type = "text/csv" if name.endswith(".csv") else None
                source = StoredSource(Stored(store, store.put(data, mime_type=mime_type).output_handle, None))
            request.addfinalizer(source.close)
            source.load(Job("load"))
            return source

        yield make


def read_all(rows: ItemRows | LineRows) -> list[Row]:
    return [row for first in range(0, rows.count, 97) for row in rows.read(first, 97)]


def test_items_are_rows(make_source) -> None:  # type: ignore[no-untyped-def]
    view = make_source(json.dumps({"page": 1, "orders": ORDERS}).encode()).view
    assert view.items is not None
    rows = read_all(ItemRows(view, view.items))
    assert [json.loads(row.data) for row in rows] == ORDERS
    assert [row.number for row in rows] == [*range(1600)]
    assert all(row.full is None for row in rows)


def test_a_large_item_is_an_overview_that_leads_to_all_of_it(make_source) -> None:  # type: ignore[no-untyped-def]
    items = [{"id": 1}, {"id": 2, "text": "y" * 700_000}, {"id": 3}]
    data = json.dumps(items).encode()
    view = make_source(data).view
    small, large, last = ItemRows(view, view.items).read(0, 10)
    assert (small.full, last.full) == (None, None)
    assert large.full is not None
    start, size = large.full
    assert json.loads(bytes(view.read(start, start + size))) == items[1]
    assert len(large.data) < 300_000


def test_rows_of_csv_are_items(make_source) -> None:  # type: ignore[no-untyped-def]
    text = io.StringIO()
    writer = csv.DictWriter(text, ["a.b", "c"])
    writer.writeheader()
    expected = [{"a.b": f"value\n{n}", "c": str(n)} for n in range(3000)]
    writer.writerows(expected)
    view = make_source(text.getvalue().encode(), "table.csv").view
    rows = read_all(ItemRows(view, view.items))
    assert [json.loads(row.data) for row in rows] == expected
    columns = choose_columns(rows[:20])
    assert [column.name for column in columns] == ["a.b", "c"]
    assert read_cells(rows[7].data, columns) == ["value␊7", "7"]


@pytest.mark.parametrize("end", ["", "\n"])
def test_lines_are_rows(make_source, end: str) -> None:  # type: ignore[no-untyped-def]
    lines = [f"line {n} " + "z" * (n % 130) for n in range(6000)]
    lines[3000] = "a long one " + "é" * 200_000 + " end"
    lines[10] = ""
    view = make_source(("\r\n".join(lines) + end).encode(), "some.log").view
    rows = read_all(LineRows(view, view.lines))
    assert len(rows) == len(lines)
    assert [row.data.decode() for row in rows if row.number != 3000] == [
        line for number, line in enumerate(lines) if number != 3000
    ]
    assert rows[3000].full is not None
    start, size = rows[3000].full
    assert bytes(view.read(start, start + size)).decode().rstrip() == lines[3000]


def test_bytes_are_rows_of_a_hex_dump(make_source) -> None:  # type: ignore[no-untyped-def]
    data = bytes(range(256)) * 3 + b"abc"
    rows = HexRows(make_source(data, "some.bin").view)
    assert rows.count == 49
    assert rows.read(48, 5)[0].data.decode().split() == ["0000000300", "61", "62", "63", "abc"]
    assert rows.read(0, 1)[0].data.startswith(b"0000000000  00 01 02 03 04 05 06 07  08 09")


PATTERNS = [
    Pattern("needle"),
    Pattern("NEEDLE", ignore_case=True),
    Pattern("ne+dle", regex=True),
    Pattern("x needle", values=True),
    Pattern('"id": 49'),
    Pattern("absent"),
]


@pytest.mark.parametrize("pattern", PATTERNS, ids=repr)
@pytest.mark.parametrize("kind", ["items", "matches", "lines"])
def test_every_row_with_a_match_is_found_in_both_directions(make_source, pattern: Pattern, kind: str) -> None:  # type: ignore[no-untyped-def]
    naive = re.compile(pattern.text.encode(), re.IGNORECASE if pattern.ignore_case else 0)
    separator = ",\n" if kind == "lines" else ", "
    data = "[" + separator.join(json.dumps(order) for order in ORDERS) + "]"
    source = make_source(data.encode())
    view = source.view
    items = ItemRows(view, view.items)
    rows = LineRows(view, view.lines) if kind == "lines" else items
    finder: ByteFinder | RowFinder
    if kind == "matches":
        matches, hint = filter_items(items, '{"status": "failed"}', Job("filter"))
        assert (matches.count, hint) == (178, "")
        found = [row for first in range(0, 178, 50) for row in matches.read(first, 50)]
        assert [json.loads(row.data) for row in found] == [order for order in ORDERS if order["status"] == "failed"]
        assert all(json.loads(row.data)["id"] == row.number for row in found)
        finder = RowFinder(matches, "item")
    else:
        found = read_all(rows)
        finder = ByteFinder(view, rows.index, "line" if kind == "lines" else "item", source.map)
    expected = [position for position, row in enumerate(found) if naive.search(row.data)]
    job = Job("search")
    for is_backward in (False, True):
        row = finder.find(pattern, len(found) if is_backward else -1, job, is_backward=is_backward)
        seen = []
        while row is not None:
            seen.append(row)
            row = finder.find(pattern, row, job, is_backward=is_backward)
        assert seen == (expected[::-1] if is_backward else expected)
    assert finder.count(pattern, job).split()[0] == str(sum(len(naive.findall(row.data)) for row in found))


def test_a_job_that_was_cancelled_stops(make_source) -> None:  # type: ignore[no-untyped-def]
    source = make_source(json.dumps(ORDERS).encode())
    job = Job("search")
    job.cancel()
    finder = ByteFinder(source.view, source.view.items, "item", source.map)
    with pytest.raises(Cancelled):
        finder.find(Pattern("absent"), -1, job)
    with pytest.raises(Cancelled):
        filter_items(ItemRows(source.view, source.view.items), '{"id": 1}', job)


def test_conditions_that_match_nothing_say_why(make_source) -> None:  # type: ignore[no-untyped-def]
    view = make_source(json.dumps(ORDERS).encode()).view
    _, hint = filter_items(ItemRows(view, view.items), '{"stauts": "failed"}', Job("filter"))
    assert "no item has the field 'stauts'" in hint
    assert "status: str" in hint


def test_columns_are_the_fields_of_the_items() -> None:
    rows = [Row(n, json.dumps(order).encode()) for n, order in enumerate(ORDERS[:10])]
    columns = choose_columns(rows)
    assert [column.name for column in columns] == ["id", "status", "total", "customer.id", "customer.country", "note"]
    assert [column.is_right for column in columns] == [True, False, True, True, False, False]
    assert [column.pointer for column in columns][3] == "/customer/id"
    chosen = choose_columns(rows, ["customer", "customer.country", "/total", "none"])
    assert read_cells(rows[1].data, chosen) == ['{"id": 1, "country": "DE"}', "DE", "0.25", ""]


def test_items_without_keys_have_one_column() -> None:
    rows = [Row(n, data) for n, data in enumerate([b"1", b'"two"', b"[3,\n 4]", b'{"a": 1}'])]
    columns = choose_columns(rows)
    assert [column.name for column in columns] == ["value"]
    assert [read_cells(row.data, columns)[0] for row in rows] == ["1", "two", "[3, 4]", '{"a": 1}']


def test_entries_that_have_little_in_common_are_keys_and_values(make_source) -> None:  # type: ignore[no-untyped-def]
    entries = {f"key{n}": {f"field{n}": n} for n in range(40)} | {"k": [1, 2], "s": "text"}
    source = make_source(json.dumps(entries).encode())
    index = forebay.index_items(source.map(Job("map")), "")
    rows = ItemRows(source.view, index).read(0, 50)
    columns = choose_columns(rows, is_map=True)
    assert [column.name for column in columns] == ["_key", "value"]
    assert read_cells(rows[3].data, columns) == ["key3", '{"field3": 3}']
    assert read_cells(rows[40].data, columns) == ["k", "[1, 2]"]
    assert read_cells(rows[41].data, columns) == ["s", "text"]


@given(JSON_VALUES, st.sampled_from([None, 1]))
@settings(max_examples=60)
def test_every_value_of_a_tree_is_where_its_pointer_leads(value: object, indent: int | None) -> None:
    data = json.dumps(value, indent=indent).encode()
    nodes = build_tree(data)
    for number, node in enumerate(nodes):
        pointer = make_pointer(nodes, number)
        raw = data[node.start : node.end]
        if json.loads(forebay.get(data, pointer)) != json.loads(raw):
            # Only of a repeated key, and Python's dictionaries have none.
            raise AssertionError(pointer)
        if node.children is not None:
            assert node.children == len(json.loads(raw))
        assert find_node(nodes, node.start) == number
        assert all(nodes[inner].depth > node.depth for inner in range(number + 1, node.last + 1))


@pytest.mark.parametrize("data", [b"", b"[1", b'{"a": [}', b"]"])
def test_what_is_no_json_is_no_tree(data: bytes) -> None:
    with pytest.raises(InvalidJSON):
        build_tree(data)
