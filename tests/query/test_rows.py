"""Values of every type of DuckDB, as they come out of a query: exact, in the text that DuckDB itself prints."""

import json
from collections.abc import Iterator, Sequence
from decimal import Decimal

import pytest
from forebay import QueryFailed, Store, open_store

pytestmark = pytest.mark.slow

# Values that Python's types would change, or cannot hold.
PRINTED = [
    "'infinity'::DATE",
    "'-infinity'::DATE",
    "DATE '9999-12-31'",
    "DATE '300000-01-01'",
    "'0044-03-15 (BC)'::DATE",
    "'infinity'::TIMESTAMP",
    "'-infinity'::TIMESTAMP",
    "'infinity'::TIMESTAMP_S",
    "'infinity'::TIMESTAMP_MS",
    "'infinity'::TIMESTAMP_NS",
    "'-infinity'::TIMESTAMPTZ",
    "TIMESTAMP '294246-01-01 01:02:03.5'",
    "'0044-03-15 (BC) 01:02:03'::TIMESTAMP",
    "'0044-03-15 (BC) 01:02:03+00'::TIMESTAMPTZ",
    "TIMESTAMPTZ '20000-01-01 00:00:00+00'",
    "INTERVAL 1 MONTH",
    "INTERVAL 90 MINUTE",
    "INTERVAL '1 year 2 months -3 days 04:05:06.5'",
    "INTERVAL 2000000000 DAY",
    "TIME '24:00:00'",
    "'01:02:03.123456789'::TIME_NS",
    "'01:02:03+05:30'::TIMETZ",
    "'01:02:03-05:30:15'::TIMETZ",
    "'010101'::BIT",
    "'b'::ENUM ('a', 'b', 'it''s \"c\"')",
    "'00000000-0000-0000-0000-00000000002a'::UUID",
    "'POINT (1 2.5)'::GEOMETRY",
]

NUMBERS = [
    "340282366920938463463374607431768211455::UHUGEINT",
    "-170141183460469231731687303715884105727::HUGEINT",
    "-99999999999999999999999999999999999999999999::BIGNUM",
    "18446744073709551615::UBIGINT",
    "-0.000000000000000001::DECIMAL(38, 18)",
]

ISO = {
    "TIMESTAMP_NS '2026-11-18 01:02:03.123456789'": "2026-11-18T01:02:03.123456789",
    "TIMESTAMP_NS '2026-11-18 01:02:03.5'": "2026-11-18T01:02:03.500000",
    "TIMESTAMP_MS '2026-11-18 01:02:03.12'": "2026-11-18T01:02:03.120000",
    "TIMESTAMP_S '0001-01-01 00:00:00'": "0001-01-01T00:00:00",
    "'2026-11-18 01:02:03.123456789+01'::TIMESTAMPTZ_NS": "2026-11-18T00:02:03.123456789+00:00",
    "TIMESTAMP '9999-12-31 23:59:59.999999'": "9999-12-31T23:59:59.999999",
    "TIMESTAMPTZ '1969-12-31 23:59:59.5-01'": "1970-01-01T00:59:59.500000+00:00",
    "'01:02:03.5+02'::TIMETZ": "01:02:03.500000+02:00",
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with open_store(tmp_path_factory.mktemp("rows"), sweep_interval=0) as store:
        yield store


@pytest.fixture(scope="module")
def handle(store: Store) -> str:
    return store.put([{"id": n} for n in range(5000)]).output_handle


def nest(value: str) -> list[str]:
    """Return expressions with a value alone and in each type that holds others."""
    return [
        value,
        f"[{value}, NULL]",
        f"array_value({value}, NULL)",
        f"{{'a \"b\"': {value}, 'n': NULL}}",
        f"MAP {{'k': {value}}}",
        f"MAP {{{value}: [{value}]}}",
        f"MAP {{[{value}]: {value}}}",
        f"row({value}, NULL)",
        f"[{{'x': [{value}]}}]",
        f"union_value(u := {value})",
        f"if(true, NULL, {value})",
        f"if(true, NULL, {{'a': [{value}]}})",
    ]


def expect(value: object, in_union: object) -> list[object]:
    """Return what `nest` gives."""
    return [
        value,
        [value, None],
        [value, None],
        {'a "b"': value, "n": None},
        {"k": value},
        {str(value): [value]},
        {"key": [[value]], "value": [value]},
        [value, None],
        [{"x": [value]}],
        in_union,
        None,
        None,
    ]


def select(store: Store, handle: str, expressions: Sequence[str]) -> list[object]:
    page = store.query(handle, "SELECT " + ", ".join(expressions))
    return list(json.loads(page.content, parse_float=Decimal)[0])


@pytest.mark.parametrize("value", PRINTED)
def test_a_value_is_the_text_that_duckdb_prints(store: Store, handle: str, value: str) -> None:
    (text,) = select(store, handle, [f"({value})::VARCHAR"])
    assert select(store, handle, nest(value)) == expect(text, text)


@pytest.mark.parametrize("value", NUMBERS)
def test_a_number_keeps_its_digits(store: Store, handle: str, value: str) -> None:
    (text,) = select(store, handle, [f"({value})::VARCHAR"])
    number = Decimal(str(text)) if "." in str(text) else int(str(text))
    in_union = text if value.endswith("BIGNUM") else number
    rows = select(store, handle, nest(value))
    assert rows == [*expect(number, in_union)[:5], {text: [number]}, *expect(number, in_union)[6:]]


@pytest.mark.parametrize(("value", "expected"), ISO.items())
def test_a_time_is_iso_8601(store: Store, handle: str, value: str, expected: str) -> None:
    (text,) = select(store, handle, [f"({value})::VARCHAR"])
    assert select(store, handle, nest(value)) == expect(expected, text)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("DATE '300000-01-01'", "300000-01-01"),
        ("INTERVAL 1 MONTH", "1 month"),
        ("TIMESTAMP_NS '2026-11-18 01:02:03.123456789'", "2026-11-18 01:02:03.123456789"),
        ("{'d': 'infinity'::DATE, 'n': [1.50::DECIMAL(4, 2), NULL]}", {"d": "infinity", "n": [Decimal("1.50"), None]}),
        ("'NaN'::DOUBLE", "NaN"),
        ("'x \"y\"'", 'x "y"'),
        ("NULL", None),
    ],
)
def test_a_variant_is_json(store: Store, handle: str, value: str, expected: object) -> None:
    variant = f"({value})::VARIANT"
    nested = [variant, f"[{variant}, NULL]", f"{{'a': {variant}}}", f"MAP {{'k': {variant}}}"]
    assert select(store, handle, nested) == [expected, [expected, None], {"a": expected}, {"k": expected}]


def test_json_in_a_row_and_in_the_keys_of_a_map(store: Store, handle: str) -> None:
    document = """'{"a": [1.50]}'::JSON"""
    expected = {"a": [Decimal("1.50")]}
    page = select(store, handle, [f"row({document}, 1)", f"MAP {{[1]: {document}}}", f"MAP {{{document}: 1}}"])
    assert page == [[expected, 1], {"key": [[1]], "value": [expected]}, {'{"a": [1.50]}': 1}]


def test_names_types_and_order_stay_those_of_the_statement(store: Store, handle: str) -> None:
    sql = 'SELECT id, DATE \'2026-01-01\' AS id, id AS "I ""d", now() FROM items ORDER BY hash(id) -- it\'s all;'
    page = store.query(handle, sql, max_bytes=1 << 20)
    assert [(column["name"], column["type"]) for column in page.columns] == [
        ("id", "BIGINT"),
        ("id", "DATE"),
        ('I "d', "BIGINT"),
        ("now()", "TIMESTAMP WITH TIME ZONE"),
    ]
    ordered = store.query(handle, "SELECT id FROM items ORDER BY hash(id)", max_bytes=1 << 20)
    assert [row[0] for row in page.rows] == [row[0] for row in ordered.rows]
    assert page.row_count == 5000
    unlimited = store.query(handle, "SELECT i, DATE '2026-01-01' FROM range(1000000000000) t(i)", max_bytes=2000)
    assert (unlimited.rows[0], unlimited.row_count) == ([0, "2026-01-01"], None)


@pytest.mark.parametrize(
    "sql",
    [
        "VALUES (DATE '2026-01-01');",
        "WITH a AS (SELECT DATE '2026-01-01' AS d) FROM a /* ; */ ;;",
        "(SELECT DATE '2026-01-01') ORDER BY 1 -- '",
        "FROM items SELECT DATE '2026-01-01' LIMIT 1",
        "SELECT DATE '2026-01-01' WHERE 'it''s' <> $$ ' $$",
    ],
)
def test_every_form_of_a_statement_has_exact_values(store: Store, handle: str, sql: str) -> None:
    assert store.query(handle, sql).rows == [["2026-01-01"]]


def test_an_error_shows_only_the_statement_itself(store: Store, handle: str) -> None:
    for columns in ("DATE '2026-01-01', ('x' || left('', id))::INTEGER", "DATE '2026-01-01', 'x'::INTEGER"):
        with pytest.raises(QueryFailed) as raised:
            store.query(handle, f"SELECT {columns} FROM items")
        assert str(raised.value) == "Conversion Error: Could not convert string 'x' to INT32"
    for sql in ("SELECT nope, DATE '2026-01-01' FROM items", "SELECT 'x'::INTEGER"):
        with pytest.raises(QueryFailed) as raised:
            store.query(handle, sql)
        assert f"LINE 1: {sql}\n" in str(raised.value)
    assert store.query(handle, "SELECT 1").rows == [[1]]
