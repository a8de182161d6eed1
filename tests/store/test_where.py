"""Pages of the items that fulfil conditions, against a loop over parsed items."""

import csv
import io
import json
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from forebay import InvalidArgument, InvalidFormat, PathNotFound, Store
from forebay.store import where as where_module
from forebay.store.scan import CHUNK_BYTES
from hypothesis import given, settings
from hypothesis import strategies as st
from peak import measured
from stores import RecordedReads, content, make_request, pages, store_at

ORDERS: list[dict[str, Any]] = [
    {
        "id": number,
        "status": ("paid", "failed", "open")[number % 3],
        "customer": {"country": ("DE", "FR")[number % 2], "name": f"Ünal {number}"},
        "total": number * 1.5,
        "lines": [{"sku": f"sku-{number % 7}"}, {"sku": f"sku-{number % 5}"}],
    }
    for number in range(20_000)
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with store_at(tmp_path_factory.mktemp("store")) as opened:
        yield opened


@pytest.fixture(scope="module")
def orders(store: Store) -> str:
    return store.put({"orders": ORDERS, "count": len(ORDERS)}).output_handle


class FirstKeys(dict[str, Any]):
    """An object in which the first of equal keys counts."""

    def __init__(self, members: list[tuple[str, Any]]) -> None:
        super().__init__(reversed(members))


def parse(text: str) -> Any:
    """Parse JSON without rounding a number."""
    return json.loads(text, object_pairs_hook=FirstKeys, parse_float=Decimal, parse_int=Decimal)


def reach(value: Any, keys: list[str]) -> Iterator[Any]:
    """Return the values of a field."""
    if not keys:
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from reach(item, keys)
    elif isinstance(value, dict) and keys[0] in value:
        yield from reach(value[keys[0]], keys[1:])


def flatten(value: Any) -> Iterator[Any]:
    """Return the values in an array, and in arrays inside it; any other value itself."""
    if isinstance(value, list):
        for item in value:
            yield from flatten(item)
    else:
        yield value


def is_equal(value: Any, operand: Any) -> bool:
    return type(value) is type(operand) and not isinstance(value, list | dict) and bool(value == operand)


def passes(value: Any, operator: str, operand: Any, is_row: bool) -> bool:
    if is_row and isinstance(operand, Decimal) and re.fullmatch(r"-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?", value, re.A):
        value = Decimal(value)
    is_same_type = type(value) is type(operand)
    match operator:
        case "=":
            return is_equal(value, operand)
        case "<":
            return is_same_type and bool(value < operand)
        case "<=":
            return is_same_type and bool(value <= operand)
        case ">":
            return is_same_type and bool(value > operand)
        case ">=":
            return is_same_type and bool(value >= operand)
        case "in":
            return any(passes(value, "=", one, is_row) for one in operand)
        case "contains" if isinstance(value, list):
            return any(is_equal(one, operand) for one in value)
        case "contains":
            return isinstance(value, str) and isinstance(operand, str) and operand in value
        case "matches":
            return isinstance(value, str) and re.search(operand, value, re.M | re.A) is not None
    raise AssertionError(operator)


def matches(item: Any, conditions: dict[str, Any], *, is_row: bool = False) -> bool:
    """Return whether an item matches: the naive twin of the filter in the core."""
    for field, condition in conditions.items():
        found = [*reach(item, [field] if is_row else field.split("."))]
        for operator, operand in (condition if isinstance(condition, dict) else {"=": condition}).items():
            if operator == "exists":
                holds = operand is bool(found)
            elif operator == "contains":
                holds = any(passes(value, operator, operand, is_row) for value in found)
            else:
                values = [inner for value in found for inner in flatten(value)]
                tested = "=" if operator == "!=" else operator
                holds = any(passes(value, tested, operand, is_row) for value in values) is (operator != "!=")
            if not holds:
                return False
    return True


numbers = st.sampled_from(
    ["0", "-0", "0.0", "1", "1.0", "10e-1", "1E400", "1e401", "-1e400", "9007199254740993", "9007199254740992", "0.1",
     "0.10000000000000001", "123456789012345678901234567890", "123456789012345678901234567891.0", "-3", "2.5e-400"]
)  # fmt: skip
texts = st.sampled_from(
    ['""', '"a"', '"ab"', '"b"', '"\\u0061"', '"a\\u0062"', '"é"', '"\\u00e9"', '"\\ud83d\\ude00"', '"😀"', '"\\ud800"',
     '"\\ud800a"', '"a\\/b"', '"a/b"', '"\\"a\\""', '"a\\nb"', '"1"', '"10"', '"\\ufffd"', '"\\uffff"']
)  # fmt: skip
scalars = numbers | texts | st.sampled_from(["null", "true", "false"])
keys = st.sampled_from(['"a"', '"b"', '"c"', '"\\u0061"', '"a.b"'])


def write_object(members: list[tuple[str, str]]) -> str:
    return "{" + ", ".join(f"{key}: {value}" for key, value in members) + "}"


items = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda values: f"[{', '.join(values)}]")
        | st.lists(st.tuples(keys, inner), max_size=4).map(write_object)
    ),
    max_leaves=10,
)
# An operand is text that UTF-8 can encode.
operands = scalars.filter(lambda text: "\\ud800" not in text)
operators = st.one_of(
    st.tuples(st.sampled_from(['"="', '"!="', '"contains"']), operands),
    st.tuples(
        st.sampled_from(['"<"', '"<="', '">"', '">="']), (numbers | texts).filter(lambda text: "\\ud800" not in text)
    ),
    st.tuples(st.just('"in"'), st.lists(operands, min_size=1, max_size=3).map(lambda values: f"[{','.join(values)}]")),
    st.tuples(st.just('"matches"'), st.sampled_from(['"a"', '"^b"', '"[ab]+$"', '"\\\\d"', '"\\u00e9"'])),
    st.tuples(st.just('"exists"'), st.sampled_from(["true", "false"])),
)
conditions = operands | st.lists(operators, min_size=1, max_size=2, unique_by=lambda pair: pair[0]).map(write_object)
where_texts = st.lists(
    st.tuples(st.sampled_from(['"a"', '"b"', '"a.b"', '"a.a"', '"b.c"']), conditions),
    min_size=1,
    max_size=3,
    unique_by=lambda pair: pair[0],
).map(write_object)


def read_all(store: Store, handle: str, **ask: Any) -> tuple[list[Any], list[int]]:
    """Follow all pages, check them, and return the items and their numbers."""
    found: list[Any] = []
    item_numbers: list[int] = []
    for page in pages(store, handle, **ask):
        assert (page.format, page.unit, page.offset) == ("items", "matches", len(found))
        assert len(page.item_numbers) == page.returned == len(content(page))
        if page.next is not None:
            assert page.next["where"] == ask["where"]
        found += content(page)
        item_numbers += page.item_numbers
        total = page.total
    assert total == len(found)
    return found, item_numbers


@settings(max_examples=300)
@given(st.lists(items, max_size=12), where_texts, st.booleans())
def test_matches_a_loop_over_parsed_items(store: Store, written: list[str], where: str, is_ndjson: bool) -> None:
    if is_ndjson:
        written = [*written, "[]", "{}"]
    data = "\n".join(written) if is_ndjson else f"[{','.join(written)}]"
    handle = store.put(data.encode(), mime_type="application/x-ndjson" if is_ndjson else None).output_handle
    conditions = parse(where)
    expected = [number for number, item in enumerate(written) if matches(parse(item), conditions)]
    found, item_numbers = read_all(store, handle, where=where)
    assert item_numbers == expected
    assert found == [json.loads(written[number]) for number in expected]


cells = st.text('ab1,"\n é', max_size=3) | numbers | st.sampled_from(["+1", "01", "1.", " 1", "nan", "true"])


@settings(max_examples=200)
@given(st.lists(st.lists(cells, min_size=1, max_size=4), max_size=8), where_texts, st.sampled_from(["csv", "tsv"]))
def test_cells_compare_with_numbers(store: Store, rows: list[list[str]], where: str, kind: str) -> None:
    file = io.StringIO()
    delimiter = "," if kind == "csv" else "\t"
    csv.writer(file, delimiter=delimiter, lineterminator="\n").writerows([["a", "b", "a.b"], *rows])
    handle = store.put(file.getvalue(), mime_type="text/csv" if kind == "csv" else "text/tab-separated-values")
    parsed = [dict(zip(["a", "b", "a.b", "column_4"], row, strict=False)) for row in rows]
    conditions = parse(where)
    expected = [number for number, item in enumerate(parsed) if matches(item, conditions, is_row=True)]
    found, item_numbers = read_all(store, handle.output_handle, where=where)
    assert (item_numbers, found) == (expected, [parsed[number] for number in expected])


WHERE = {"status": "failed", "customer.country": "DE", "total": {">": 200}}


def is_wanted(order: dict[str, Any]) -> bool:
    return bool(order["status"] == "failed" and order["customer"]["country"] == "DE" and order["total"] > 200)


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("limit", [None, 7, 1000])
@pytest.mark.parametrize("path", [None, "/orders"])
def test_pages_tile(store: Store, orders: str, level: int, limit: int | None, path: str | None) -> None:
    ask = make_request(limit, level, 3000)
    found, item_numbers = read_all(store, orders, where=WHERE, path=path, **ask)
    assert found == [order for order in ORDERS if is_wanted(order)]
    assert item_numbers == [order["id"] for order in found]
    some = store.fetch(orders, where=WHERE, path=path, offset=20, limit=5)
    assert (content(some), some.total) == (found[20:25], len(found))
    past = store.fetch(orders, where=WHERE, path=path, offset=10**30)
    assert (past.content, past.eof, past.total, past.item_numbers) == (b"[]", True, len(found), ())


def test_fields_reduce_what_matches(store: Store, orders: str) -> None:
    found, item_numbers = read_all(store, orders, where=WHERE, fields=["id", "customer.name"], max_bytes=2048)
    wanted = [order for order in ORDERS if is_wanted(order)]
    assert found == [{"id": order["id"], "customer": {"name": order["customer"]["name"]}} for order in wanted]
    assert item_numbers == [order["id"] for order in wanted]
    number = item_numbers[3]
    assert json.loads(store.get(orders, f"/orders/{number}")) == ORDERS[number]
    with pytest.raises(PathNotFound, match="none of the fields"):
        store.fetch(orders, where=WHERE, fields=["nope"])


def test_entries_of_a_map_match_by_key_and_value(store: Store) -> None:
    plugins = {f"plugin-{number}": {"stars": number, "is_on": number % 2 == 0} for number in range(3000)}
    handle = store.put({"plugins": plugins, "count": 3000}).output_handle
    for path in (None, "/plugins"):
        found, item_numbers = read_all(store, handle, where={"is_on": True, "stars": {">=": 2996}}, path=path)
        assert [item["_key"] for item in found] == ["plugin-2996", "plugin-2998"]
        assert item_numbers == [2996, 2998]
        found, _ = read_all(store, handle, where={"_key": "plugin-77"}, path=path, fields=["stars"])
        assert found == [{"_key": "plugin-77", "stars": 77}]
    found, _ = read_all(store, handle, where={"_key": {"in": ["stars", "other"]}}, path="/plugins/plugin-5")
    assert found == [{"_key": "stars", "_value": 5}]


def test_an_item_larger_than_the_page_is_cut(store: Store) -> None:
    handle = store.put([{"id": 1}, {"id": 2, "text": "x" * 5000}, {"id": 2, "text": "y"}]).output_handle
    first, second = pages(store, handle, where={"id": 2}, max_bytes=1500)
    (cut,) = first.truncated
    assert (first.item_numbers, cut["index"], cut["path"]) == ((1,), 1, "/1")
    arguments = {name: value for name, value in cut["read_with"].items() if name != "output_handle"}
    assert json.loads(store.get(handle, arguments["path"])) == {"id": 2, "text": "x" * 5000}
    assert store.fetch(handle, format="bytes", offset=cut["byte_offset"], limit=7).returned == 7
    assert (second.item_numbers, content(second)) == ((2,), [{"id": 2, "text": "y"}])


@pytest.mark.parametrize(
    ("where", "hint"),
    [
        ({"statsu": "failed"}, "no item has the field 'statsu'; the items are [{id: int, status: str"),
        ({"statsu": {"!=": "failed"}}, "no item has the field 'statsu'"),
        ({"id": "17"}, "numbers and text never compare"),
        ({"statsu": {"exists": True}, "customer.city": 1}, "the field 'statsu'; no item has the field 'customer.city'"),
        ({"statsu": {"exists": False}}, None),
        ({"id": {"<": 3}}, None),
        ({"status": {"!=": "failed"}}, None),
    ],
)
def test_a_hint_says_what_may_be_wrong(store: Store, orders: str, where: dict[str, Any], hint: str | None) -> None:
    page = store.fetch(orders, where=where)
    assert (page.hint is None) if hint is None else (hint in (page.hint or ""))
    assert ("hint" in json.loads(page.to_json())) == (hint is not None)
    small = store.fetch(orders, where=where, max_bytes=700)
    assert len(small.to_json()) <= 700
    assert (small.hint is None) == (hint is None)


def test_no_items_match_nothing(store: Store) -> None:
    page = store.fetch(store.put([]).output_handle, where={"a": 1})
    assert (page.content, page.total, page.eof, page.hint) == (b"[]", 0, True, None)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("", "not valid JSON"),
        ("{}", "no conditions"),
        ('{"a": \ud800}', "surrogate"),
        ({"a": "\ud800"}, "surrogate"),
        (["status"], "where must be an object"),
        (5, "where must be an object"),
        ({"a": float("nan")}, "where must be JSON"),
        ({"a": {1, 2}}, "where must be JSON"),
        ({"a": [1]}, "in"),
        ({"a": {"$gt": 1}}, 'did you mean ">"'),
        ({"a": {"matches": "("}}, "unclosed group"),
        ({"customer": {"country": "DE"}}, 'write "customer.country"'),
    ],
)
def test_wrong_conditions_are_refused(store: Store, orders: str, where: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=re.escape(message)):
        store.fetch(orders, where=where)


def test_an_empty_object_is_no_condition(store: Store, orders: str) -> None:
    assert store.fetch(orders, where={}, limit=2) == store.fetch(orders, limit=2)


def test_large_integers_are_exact(store: Store) -> None:
    large = 10**40
    handle = store.put(f'[{{"n": {large}}}, {{"n": {large + 1}}}, {{"n": {large}.0}}]'.encode()).output_handle
    page = store.fetch(handle, where={"n": large}, limit=1)
    assert (page.total, page.item_numbers) == (2, (0,))
    assert page.next is not None
    following = store.fetch(handle, **{name: value for name, value in page.next.items() if name != "output_handle"})
    assert following.item_numbers == (2,)


def test_only_items_have_conditions(store: Store, orders: str) -> None:
    with pytest.raises(InvalidFormat, match="where works only with format='items'"):
        store.fetch(orders, where={"a": 1}, format="text")
    for payload in ("some text", b"\x00\xff"):
        with pytest.raises(InvalidFormat, match="omit where"):
            store.fetch(store.put(payload).output_handle, where={"a": 1})


def test_the_next_page_needs_no_scan(store: Store, orders: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where = {"id": {"in": [3, 4, 19_000]}}
    reads = RecordedReads(monkeypatch)
    first = store.fetch(orders, where=where, limit=1)
    _, scanned = reads.measure(lambda: store.fetch(orders, where={"id": {"in": [3, 4, 19_001]}}, limit=1))
    _, read = reads.measure(lambda: store.fetch(orders, where=where, offset=2, limit=1))
    assert first.total == 3
    assert read < scanned / 4
    # A payload with other conditions, or another path, is another entry.
    assert store.fetch(orders, where=where, path="/orders").total == 3


def test_the_counts_of_many_payloads_are_bounded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(where_module, "_MAX_CACHED_BYTES", 3000)
    cache = where_module.MatchCache()
    handle = store.put([{"a": number} for number in range(10)]).output_handle
    for number in range(10):
        with store._open_reader(handle, None) as reader:
            assert reader.items is not None
            found = cache.find(reader, None, reader, reader.items, json.dumps({"a": number}))
            assert found.total == 1
    assert len(cache._entries._entries) <= 2


SCAN = """
import forebay, pathlib
store = forebay.open_store(pathlib.Path(sys.argv[1]).as_uri(), sweep_interval=0)
store.fetch(sys.argv[2], where={"id": 1})
before = peak()
page = store.fetch(sys.argv[3], where={"status": "failed", "n": {">": 10}})
assert page.total > 100, page
print(peak() - before)
"""


@pytest.mark.posix
@pytest.mark.slow
def test_a_scan_takes_little_memory(tmp_path: Path) -> None:
    def rows() -> Iterator[bytes]:
        yield b"["
        for block in range(1000):
            lines = (
                json.dumps({"n": number, "status": "failed" if number % 99 == 0 else "ok", "pad": "x" * 150})
                for number in range(block * 300, block * 300 + 300)
            )
            yield (",\n".join(lines) + ",").encode()
        yield b"{}]"

    with store_at(tmp_path) as store:
        small = store.put([{"id": number} for number in range(200_000)]).output_handle
        large = store.put(rows(), mime_type="application/json").output_handle
        assert store.stat(large).size_bytes > 50 * CHUNK_BYTES
    (growth,) = measured(SCAN, str(tmp_path), small, large)
    assert growth < 20 << 20
