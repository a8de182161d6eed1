"""Property tests for every payload: the six invariants of a response, and that nothing is lost."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import forebay
import orjson
import pytest
from documents import documents, forms
from forebay import Store
from forebay.outputs.contract import (
    BUDGETS,
    Category,
    ResponseLimits,
    paginated_list,
    retrieve_artifact,
    wrap_response,
)
from forebay.outputs.contract.response import PayloadView, find_largest_excerpt
from forebay.store.payload import encode, escaped_size
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from invariants import check, message
from stores import store_at
from texts import nasty_text

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with store_at(tmp_path_factory.mktemp("contract") / "store", durability="process") as open_store:
        yield open_store


# Texts that grow when escaped, or break when cut in the wrong place.
difficult_texts = st.builds(
    lambda character, times: character * times,
    st.sampled_from(['"', "\\", "\x01", "\x7f", "😀", "漢", "\ud83d", "a\n", "👩‍👩‍👧"]),
    st.integers(1, 3000),
)
texts = difficult_texts | nasty_text
deep = st.builds(lambda inner, levels: _nest(inner, levels), documents, st.integers(1, 12))
wide = st.lists(documents, min_size=8, max_size=40)
long_keys = st.dictionaries(texts, documents | texts, max_size=6)
payloads = documents | texts | deep | wide | long_keys | st.dictionaries(st.sampled_from("abcd"), texts)
limits = st.builds(
    ResponseLimits,
    max_bytes=st.sampled_from([1024, 1536, 2048, 10240]),
    max_array_items=st.sampled_from([1, 3, 10]),
    max_string_length=st.sampled_from([1, 40, 500]),
    max_json_depth=st.integers(1, 6),
    max_log_lines=st.sampled_from([1, 2, 20]),
)


def _nest(value: Any, levels: int) -> Any:
    for level in range(levels):
        value = [value] if level % 2 else {"k": value}
    return value


def is_same(value: Any, data: Any) -> bool:
    return json.dumps(value) == json.dumps(data)


@settings(max_examples=250, suppress_health_check=[HealthCheck.too_slow])
@given(payloads, limits, texts | st.just("ok"), st.booleans())
def test_any_payload(store: Store, payload: Any, limits: ResponseLimits, summary: str, success: bool) -> None:
    response = wrap_response(payload, summary=summary, success=success, limits=limits, store=store)
    fields = check(response, limits)
    assert fields["success"] is success
    if fields["hasMore"]:
        whole = retrieve_artifact(fields["artifactRef"], store=store)
        if isinstance(payload, str):
            # A text with a lone surrogate is stored as bytes.
            assert _to_bytes(whole) == payload.encode("utf-8", "surrogatepass") or is_same(whole, json.loads(payload))
        else:
            assert is_same(whole, json.loads(json.dumps(payload)))
    else:
        assert "artifactRef" not in fields
        assert is_same(fields["data"], payload) or is_same(fields["data"], json.loads(payload))


def _to_bytes(whole: Any) -> bytes | None:
    return whole.encode() if isinstance(whole, str) else whole if isinstance(whole, bytes) else None


@settings(max_examples=100)
@given(documents, forms)
def test_json_text_is_shown_whole_if_it_fits(store: Store, value: Any, form: dict[str, Any]) -> None:
    """Whitespace between tokens does not count as left out."""
    if not isinstance(value, list | dict):
        return
    text = json.dumps(value, **form)
    fields = check(wrap_response(text, summary="s", store=store), ResponseLimits())
    assert fields["hasMore"] == (not is_same(fields["data"], value))


@settings(max_examples=100)
@given(st.binary(max_size=300), limits)
def test_any_bytes(store: Store, payload: bytes, limits: ResponseLimits) -> None:
    fields = check(wrap_response(payload, summary="s", limits=limits, store=store), limits)
    if fields["hasMore"]:
        with store.open(fields["artifactRef"].rpartition("~")[2]) as file:
            assert file.read() == payload


@settings(max_examples=100)
@given(payloads, st.integers(32, 3000))
def test_the_excerpt_nearly_fills_the_budget(payload: Any, max_bytes: int) -> None:
    view = PayloadView(encode(payload), ResponseLimits(), "application/json")

    def measure(excerpt: bytes) -> int:
        return escaped_size(excerpt, 1)

    largest = measure(find_largest_excerpt(view.truncate, measure, max_bytes))
    assert largest <= max_bytes
    # The naive twin tries every budget.
    best = max(size for budget in range(13, max_bytes + 1) if (size := measure(view.truncate(budget))) <= max_bytes)
    assert largest >= best - 64 - max_bytes // 16


ids = st.integers() | texts | st.none()
rows = st.lists(
    st.fixed_dictionaries(
        {"id": ids}, optional={"title": texts, "severity": st.sampled_from(["critical", "low", "bad", 3])}
    ),
    max_size=45,
)


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(rows, st.integers(1, 30), limits, st.booleans())
def test_any_list(
    store: Store, rows: list[dict[str, Any]], limit: int, limits: ResponseLimits, is_stored: bool
) -> None:
    """Following the cursor returns every item exactly once."""
    items: list[Any] = []
    refs = set()
    cursor: str | None = None
    while True:
        response = paginated_list(
            rows, domain="d" * 64, limit=limit, label_field="title", cursor=cursor, limits=limits,
            store=store if is_stored else None,
        )  # fmt: skip
        fields = check(response, ResponseLimits(max_bytes=limits.max_bytes, max_array_items=limits.max_array_items))
        assert fields["count"] == len(rows)
        assert len(fields["items"]) <= min(limit, limits.max_array_items)
        for item in fields["items"]:
            assert len(item["label"]) <= 50
            assert item.keys() in ({"id", "label"}, {"id", "label", "severity"})
            assert item.get("severity", "low") in ("critical", "high", "medium", "low")
        items += fields["items"]
        refs.add(fields.get("artifactRef"))
        assert fields["hasMore"] == (len(items) < len(rows)) == ("nextCursor" in fields)
        cursor = fields.get("nextCursor")
        if cursor is None:
            break
    for item, row in zip(items, rows, strict=True):
        name = "" if row["id"] is None else re.sub("[\ud800-\udfff\0]", "\N{REPLACEMENT CHARACTER}", str(row["id"]))
        # Long ids are cut, by their escaped size.
        assert item["id"] == name or (
            len(name) > 20 and item["id"].endswith("...") and name.startswith(item["id"][:-3])
        )
    assert len(refs) == 1
    if is_stored:
        assert is_same(retrieve_artifact(refs.pop() or "", store=store), json.loads(json.dumps(rows)))


@pytest.mark.parametrize("category", BUDGETS)
@pytest.mark.parametrize("character", ['"', "\\", "\x01", "😀", "a", "\n"])
def test_every_category_keeps_and_uses_its_budget(store: Store, category: Category, character: str) -> None:
    rows = [{"id": number, "text": character * 300} for number in range(9)]
    response = wrap_response(rows, summary=character * 200, category=category, store=store)
    check(response, ResponseLimits(max_bytes=BUDGETS[category]))
    assert len(message(response)) > BUDGETS[category] * 0.6


def test_default_limits_and_budgets() -> None:
    assert ResponseLimits() == ResponseLimits(
        max_bytes=10240, max_array_items=10, max_string_length=500, max_json_depth=4, max_log_lines=20
    )
    assert BUDGETS == {"execution": 3072, "list": 2048, "status": 1536, "scan": 2048, "config": 1536}


def test_a_large_payload_is_not_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A payload passed as bytes is not parsed."""
    data = orjson.dumps([{"id": number, "text": "x" * 50} for number in range(50_000)])

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("parsed")

    with forebay.open_store(tmp_path / "store", sweep_interval=0) as store:
        monkeypatch.setattr("json.loads", refuse)
        monkeypatch.setattr("orjson.loads", refuse)
        response = wrap_response(data, summary="rows", store=store)
        monkeypatch.undo()
        assert check(response, ResponseLimits())["count"] == 50_000
