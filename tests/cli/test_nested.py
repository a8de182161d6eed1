"""Objects and lists in a cell of a table."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from command import run, run_on_terminal
from forebay.cli.output.nested import NestedCell
from hypothesis import given
from hypothesis import strategies as st

USER = {"bio": None, "address": {"city": "Bonn", "zip": "53111"}, "name": "Ann Smith", "age": 31, "roles": ["admin"]}


def write(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def summarize(value: Any, width: int) -> str:
    return NestedCell(write(value)).summarize(width)


@pytest.mark.parametrize(
    ("value", "width", "summary"),
    [
        (USER, 200, write(USER)),
        (USER, 60, "{name: Ann Smith, age: 31, address: {2}, roles: [1], 1 more}"),
        (USER, 40, "{name: Ann Smith, age: 31, 3 more}"),
        (USER, 20, "{name: Ann…, 4 more}"),
        (USER, 12, "{5 fields}"),
        (USER, 6, "{5}"),
        ([*range(100)], 20, "[0, 1, 2, 97 more]"),
        (["a, b"] * 100, 24, '["a, b", 99 more]'),
        ([{"sku": "A-1", "n": 2}] * 30, 26, "[{2}, {2}, {2}, 27 more]"),
        ([{"sku": "A-1", "n": 2}] * 30, 30, "[{sku: A-1, n: 2}, 29 more]"),
        ([{"sku": "A-1", "n": 2}] * 30, 10, "[30 items]"),
        ({"note": "null", "n": "12", "x": "true"}, 34, '{note: "null", n: "12", x: "true"}'),
    ],
)
def test_the_first_scalars_and_the_number_of_the_rest(value: Any, width: int, summary: str) -> None:
    assert summarize(value, width) == summary


def test_a_long_text_does_not_look_whole_on_a_wide_terminal() -> None:
    value = {"a": "! " * 150, "b": [1, 2, 3], "c": "z" * 300}
    assert summarize(value, 250) == '{a: "' + "! " * 100 + "…, 2 more}"
    assert NestedCell(write(value)).summarize(250, "~") == '{a: "' + "! " * 100 + "~, 2 more}"


def test_numbers_keep_their_digits() -> None:
    digits = "12345678901234567890.10"
    assert digits in NestedCell(f'{{"n": {digits}, "more": "{"x" * 90}"}}').summarize(50)


@pytest.mark.parametrize("text", ["a " * 203, "a, " * 203])
def test_a_long_text_ends_with_an_ellipsis(text: str) -> None:
    summary = summarize({"note": text}, 260)
    assert summary.rstrip('"}').endswith("…")
    assert text[:200] in summary


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=9) | st.dictionaries(st.text(max_size=6), inner, max_size=9),
    max_leaves=40,
)


@given(st.lists(values) | st.dictionaries(st.text(max_size=8), values), st.integers(10, 120))
def test_a_summary_fits_and_counts_what_it_does_not_show(value: Any, width: int) -> None:
    text = summarize(value, width)
    assert len(text) <= width
    if text == write(value):
        return
    assert text[0] + text[-1] == ("{}" if isinstance(value, dict) else "[]")
    counted = re.fullmatch(r".(\d+)( fields?| items?)?.", text)
    if counted is not None and int(counted[1]) == len(value):
        return
    # Otherwise the number of members is how many are shown, and how many more there are.
    rest = re.search(r", (\d+) more[}\]]$", text)
    assert len(value) - int(rest[1]) >= 1 if rest is not None else len(value) >= 1


def test_what_is_too_large_or_too_deep_to_parse_is_short_too() -> None:
    assert len(summarize([{"id": number, "name": "x" * 20} for number in range(9000)], 40)) <= 40
    assert summarize([[1]] * 3, 5) == "[3]"
    assert NestedCell("[" * 5000 + "]" * 5000).summarize(40).startswith("[")


@pytest.mark.posix
@pytest.mark.slow
def test_a_query_and_a_page_show_them_on_a_terminal(tmp_path: Path) -> None:
    path = tmp_path / "users.json"
    path.write_text(json.dumps([{"id": number, "user": USER | {"bio": "\x1b[31m" + "b" * 300}} for number in range(5)]))
    shown = run_on_terminal("query", str(path), "SELECT * FROM items")
    assert shown.code == 0
    assert b"{name: Ann Smith, " in shown.out
    assert b" more}" in shown.out
    assert b'{"name"' not in shown.out
    piped = run("query", str(path), "SELECT user FROM items LIMIT 1").json
    assert piped["rows"][0][0]["name"] == "Ann Smith"
    handle = run("put", str(path)).json["output_handle"]
    page = run_on_terminal("fetch", handle, "--fields", "id,user", "--limit", "1")
    assert b"{name: Ann Smith, " in page.out
