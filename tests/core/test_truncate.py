"""`truncate` against a plain Python version, with every budget, and on a corpus of real documents if there is one."""

from __future__ import annotations

import json
import math
import mmap
from pathlib import Path
from typing import Any

import pytest
from forebay import InvalidArgument, InvalidJSON, truncate
from hypothesis import given, settings
from hypothesis import strategies as st

REAL = Path(__file__).resolve().parents[3] / "shared" / "corpus" / "real"
BUDGETS = [1024, 2048, 4096, 10240, 32768]
UNLIMITED = 1 << 40


def naive(
    value: Any,
    depth: int = 0,
    *,
    items: int = 10,
    chars: int = 500,
    max_depth: int = 4,
    keys: int = 100,
    ensure_ascii: bool = True,
) -> Any:
    """Apply the limits, without a budget. `ensure_ascii` says how the document is written."""
    limits: dict[str, Any] = {
        "items": items, "chars": chars, "max_depth": max_depth, "keys": keys, "ensure_ascii": ensure_ascii,
    }  # fmt: skip
    if depth > max_depth:
        compact = json.dumps(value, ensure_ascii=ensure_ascii, separators=(",", ":"))
        if len(compact.encode("utf-8", "surrogatepass")) > len('"[truncated]"'):
            return "[truncated]"
        is_within_limits = naive(value, depth, **{**limits, "max_depth": UNLIMITED}) == value
        return value if is_within_limits else "[truncated]"
    match value:
        case str():
            return cut(value, chars)
        case list():
            shown = [naive(item, depth + 1, **limits) for item in value[:items]]
            if len(shown) == len(value):
                return shown
            return {"items": shown, "totalCount": len(value), "showing": len(shown)}
        case dict():
            result: dict[str, Any] = {}
            for key, member in value.items():
                name = cut(key, max(chars, 64))
                if name not in result and len(result) < keys:
                    result[name] = naive(member, depth + 1, **limits)
            if len(result) < len(value):
                marker = "..."
                while marker in result:
                    marker += "."
                result[marker] = len(value) - len(result)
            return result
        case _:
            return value


def cut(text: str, chars: int) -> str:
    return text if len(text) <= chars else text[:chars] + "..."


def parse(answer: bytes) -> Any:
    """Parse JSON and check that no key is repeated."""

    def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs), pairs
        return dict(pairs)

    return json.loads(answer, object_pairs_hook=distinct)


def is_wrapped(value: object) -> bool:
    return isinstance(value, dict) and value.keys() == {"items", "totalCount", "showing"}


def is_marker(key: str) -> bool:
    return len(key) >= 3 and not key.strip(".")


def count_members(value: dict[str, Any]) -> int:
    return sum(count if is_marker(key) else 1 for key, count in value.items())


def shows_no_less(small: Any, big: Any) -> bool:
    """Return whether `big` shows everything that `small` shows, with the same counts."""
    if small == "[truncated]":
        return True
    if isinstance(small, str) and isinstance(big, str):
        return small == big or (small.endswith("...") and big.startswith(small[:-3]))
    if is_wrapped(small):
        items = big["items"] if is_wrapped(big) else big
        count = big["totalCount"] if is_wrapped(big) else len(big)
        return (
            small["totalCount"] == count
            and small["showing"] == len(small["items"]) <= len(items)
            and all(map(shows_no_less, small["items"], items))
        )
    if isinstance(small, list):
        return isinstance(big, list) and len(small) == len(big) and all(map(shows_no_less, small, big))
    if isinstance(small, dict):
        return (
            isinstance(big, dict)
            and count_members(small) == count_members(big)
            and all(key in big and shows_no_less(small[key], big[key]) for key in small if not is_marker(key))
        )
    return bool(small == big)


# Includes lone surrogates, which JSON can escape and which count as one character.
text = st.text(st.characters(exclude_categories=[]), max_size=12) | st.text('abc"\\\n😀', max_size=200)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text
# Some keys differ only near the place where they are cut, or after it.
keys = text.filter(lambda key: not is_marker(key)) | st.builds(
    lambda count, end: "k" * count + end, st.integers(62, 66) | st.integers(498, 502), st.text("ab.", max_size=3)
)
documents = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=14) | st.dictionaries(keys, inner, max_size=14),
    max_leaves=40,
)
limits = st.fixed_dictionaries(
    {
        "max_array_items": st.integers(0, 12),
        "max_string_chars": st.sampled_from([0, 1, 5, 40, 500]),
        "max_depth": st.integers(0, 6),
        "max_object_keys": st.integers(0, 12),
    }
)


def expected(value: Any, limits: dict[str, int], *, ensure_ascii: bool = True) -> Any:
    return naive(
        value,
        items=limits["max_array_items"],
        chars=limits["max_string_chars"],
        max_depth=limits["max_depth"],
        keys=limits["max_object_keys"],
        ensure_ascii=ensure_ascii,
    )


@pytest.mark.slow
@given(documents, limits, st.booleans(), st.sampled_from([None, 2]))
def test_without_a_budget_only_the_limits_apply(
    value: Any, limits: dict[str, int], ensure_ascii: bool, indent: int | None
) -> None:
    data = json.dumps(value, ensure_ascii=ensure_ascii, indent=indent).encode("utf-8", "surrogatepass")
    try:
        data.decode()
    except UnicodeDecodeError:
        return  # Lone surrogates are only JSON as escapes.
    answer = parse(truncate(data, max_bytes=UNLIMITED, **limits))
    reference = expected(value, limits, ensure_ascii=ensure_ascii)
    assert answer == reference
    assert json.dumps(answer) == json.dumps(reference)  # The order of keys, and 1 is not 1.0.


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(documents, limits)
def test_every_budget_holds_and_a_larger_one_shows_no_less(value: Any, limits: dict[str, int]) -> None:
    data = json.dumps(value)
    whole = len(truncate(data, max_bytes=UNLIMITED, **limits))
    last: Any = "[truncated]"
    for budget in range(13, max(whole, 13) + 2):
        answer = truncate(data, max_bytes=budget, **limits)
        assert len(answer) <= budget
        assert answer == truncate(data, max_bytes=budget, **limits)
        parsed = parse(answer)
        assert shows_no_less(last, parsed), (budget, last, parsed)
        last = parsed
    assert last == expected(value, limits)


def tweets() -> bytes:
    """Return wide, nested records with multibyte text."""
    status = {
        "metadata": {"lang": "ja", "type": "recent"},
        "text": "名前:前田あゆみ 第一印象:なんか怖っ！ " * 4,
        "user": {f"profile_field_{i}": "値" * (i % 9) if i % 3 else i for i in range(40)},
        "entities": {"urls": [], "media": [{"id": 1, "indices": [3, 15]}] * 3},
        "id": 505874924095815681,
    }
    metadata = {"count": 100, "query": "%E4%B8%80" * 9}
    return json.dumps({"statuses": [status] * 100, "search_metadata": metadata}, ensure_ascii=False).encode()


def catalog() -> bytes:
    """Return objects with many members."""
    event = {
        "description": None,
        "id": 138586341,
        "name": "30th Anniversary Tour",
        "topics": [337184269, 337184283] * 4,
    }
    names = {str(205705993 + i): f"{i}ème balcon" for i in range(80)}
    prices = [{"amount": 90250, "seatCategoryId": 338937295}] * 4
    performance = {"eventId": 138586341, "prices": prices, "areas": [{"areaId": 1, "blockIds": []}] * 20}
    events = {str(138586341 + i): event for i in range(184)}
    return json.dumps({"areaNames": names, "events": events, "performances": [performance] * 243}, indent=4).encode()


def coordinates() -> bytes:
    """Return deeply nested arrays."""
    ring = [[-65.6 + math.sin(i), 43.4 + math.cos(i)] for i in range(50)]
    return json.dumps({"type": "Polygon", "coordinates": [[ring] * 20] * 30}).encode()


GENERATED = {"tweets": tweets(), "catalog": catalog(), "coordinates": coordinates()}


def check_fill(data: bytes, **limits: int) -> None:
    whole = truncate(data, max_bytes=UNLIMITED, **limits)
    last: Any = "[truncated]"
    for budget in BUDGETS:
        answer = truncate(data, max_bytes=budget, **limits)
        assert min(len(whole), 0.9 * budget) <= len(answer) <= budget
        assert shows_no_less(last, json.loads(answer))
        last = json.loads(answer)


@pytest.mark.parametrize("max_depth", [4, 9])
@pytest.mark.parametrize("name", GENERATED)
def test_the_budget_is_used(name: str, max_depth: int) -> None:
    check_fill(GENERATED[name], max_depth=max_depth)


@pytest.mark.skipif(not REAL.is_dir(), reason="the corpus is not here")
@pytest.mark.parametrize("max_depth", [4, 9])
@pytest.mark.parametrize("name", ["twitter", "twitterescaped", "citm_catalog", "canada"])
def test_the_budget_is_used_on_the_corpus(name: str, max_depth: int) -> None:
    data = (REAL / f"{name}.json").read_bytes()
    check_fill(data, max_depth=max_depth)
    reference = naive(json.loads(data), ensure_ascii=name == "twitterescaped")
    assert json.loads(truncate(data, max_bytes=UNLIMITED)) == reference


def test_the_overview_survives_a_small_budget() -> None:
    answer = json.loads(truncate(GENERATED["catalog"], max_bytes=1024))
    assert list(answer) == ["areaNames", "events", "performances"]
    answer = json.loads(truncate(GENERATED["tweets"], max_bytes=1024))
    assert (answer["statuses"]["totalCount"], answer["statuses"]["showing"]) == (100, 10)
    example, *others = answer["statuses"]["items"]
    assert list(example) == ["metadata", "text", "user", "entities", "id"]
    assert [count_members(other) for other in others] == [5] * 9
    assert max(map(len, others)) - min(map(len, others)) <= 1


def test_lines_are_the_items_of_an_array() -> None:
    values = [{"id": i, "name": "n" * 100} for i in range(50)]
    lines = "\n".join(map(json.dumps, values))
    for budget in (13, 100, 1024, UNLIMITED):
        assert truncate(lines, max_bytes=budget) == truncate(json.dumps(values), max_bytes=budget)


def test_payloads_are_bytes_text_and_read_only_buffers(tmp_path: Path) -> None:
    data = GENERATED["tweets"]
    path = tmp_path / "payload.json"
    path.write_bytes(data)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert truncate(mapped) == truncate(data) == truncate(memoryview(data)) == truncate(data.decode())


@pytest.mark.parametrize(("data", "index"), [("", 0), ("[1,2", 4), ("1 2", 2), ('{"a":tru}', 5), ('{"a":1}\n}', 8)])
def test_the_error_for_invalid_json_has_the_byte(data: str, index: int) -> None:
    with pytest.raises(InvalidJSON) as caught:
        truncate(data)
    assert caught.value.index == index


def test_the_error_for_a_small_budget_has_the_smallest_valid_one() -> None:
    with pytest.raises(InvalidArgument, match="takes 13"):
        truncate(json.dumps(["long enough to be left out"] * 9), max_bytes=12)
    assert truncate(json.dumps(["long enough to be left out"] * 9), max_bytes=13) == b'"[truncated]"'
    with pytest.raises(InvalidArgument, match="max_depth"):
        truncate("1", max_depth=65)


@given(st.binary(max_size=60), st.integers(0, 100))
def test_any_bytes_are_json_or_an_error(data: bytes, budget: int) -> None:
    try:
        answer = truncate(data, max_bytes=budget)
    except (InvalidJSON, InvalidArgument):
        return
    json.loads(answer)
    assert len(answer) <= budget
