"""What holds of every response, whatever the payload is: the six invariants, and that nothing is lost."""

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
from forebay.outputs.contract.response import PayloadView, find_largest
from forebay.store.pages import escaped_size
from forebay.store.payload import encode
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from invariants import check, message
from stores import store_at
from texts import nasty_text

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with store_at(tmp_path_factory.mktemp("contract") / "store", durability="process") as opened:
        yield opened


# What weighs more in a message than it does alone, and what cutting breaks.
heavy_texts = st.builds(
    lambda of, times: of * times,
    st.sampled_from(['"', "\\", "\x01", "\x7f", "😀", "漢", "\ud83d", "a\n", "👩‍👩‍👧"]),
    st.integers(1, 3000),
)
texts = heavy_texts | nasty_text
deep = st.builds(lambda inner, levels: _nested(inner, levels), documents, st.integers(1, 12))
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


def _nested(value: Any, levels: int) -> Any:
    for level in range(levels):
        value = [value] if level % 2 else {"k": value}
    return value


def same(value: Any, data: Any) -> bool:
    return json.dumps(value) == json.dumps(data)


@settings(max_examples=250, suppress_health_check=[HealthCheck.too_slow])
@given(payloads, limits, texts | st.just("ok"), st.booleans())
def test_any_payload(store: Store, payload: Any, limits: ResponseLimits, summary: str, success: bool) -> None:
    response = wrap_response(payload, summary=summary, success=success, limits=limits, store=store)
    said = check(response, limits)
    assert said["success"] is success
    if said["hasMore"]:
        whole = retrieve_artifact(said["artifactRef"], store=store)
        if isinstance(payload, str):
            # Half of a surrogate pair is no text, and is stored as the bytes it is.
            assert _bytes(whole) == payload.encode("utf-8", "surrogatepass") or same(whole, json.loads(payload))
        else:
            assert same(whole, json.loads(json.dumps(payload)))
    else:
        assert "artifactRef" not in said
        assert same(said["data"], payload) or same(said["data"], json.loads(payload))


def _bytes(whole: Any) -> bytes | None:
    return whole.encode() if isinstance(whole, str) else whole if isinstance(whole, bytes) else None


@settings(max_examples=100)
@given(documents, forms)
def test_json_that_came_as_text_is_shown_whole_where_it_can_be(store: Store, value: Any, form: dict[str, Any]) -> None:
    """However it is written: white space is nothing that was left out."""
    if not isinstance(value, list | dict):
        return
    text = json.dumps(value, **form)
    said = check(wrap_response(text, summary="s", store=store), ResponseLimits())
    assert said["hasMore"] == (not same(said["data"], value))


@settings(max_examples=100)
@given(st.binary(max_size=300), limits)
def test_any_bytes(store: Store, payload: bytes, limits: ResponseLimits) -> None:
    said = check(wrap_response(payload, summary="s", limits=limits, store=store), limits)
    if said["hasMore"]:
        with store.open(said["artifactRef"].rpartition("~")[2]) as file:
            assert file.read() == payload


@settings(max_examples=100)
@given(payloads, st.integers(32, 3000))
def test_about_the_most_is_shown_that_fits(payload: Any, most: int) -> None:
    view = PayloadView(encode(payload), ResponseLimits(), "application/json")

    def heavy(shown: bytes) -> int:
        return escaped_size(shown, 1)

    found = heavy(find_largest(view.truncate, heavy, most))
    assert found <= most
    # Every budget tried, one after the other.
    best = max(weight for budget in range(13, most + 1) if (weight := heavy(view.truncate(budget))) <= most)
    assert found >= best - 64 - most // 16


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
    """Following the cursor gives every item once."""
    seen: list[Any] = []
    refs = set()
    cursor: str | None = None
    while True:
        response = paginated_list(
            rows, domain="d" * 64, limit=limit, label_field="title", cursor=cursor, limits=limits,
            store=store if is_stored else None,
        )  # fmt: skip
        said = check(response, ResponseLimits(max_bytes=limits.max_bytes, max_array_items=limits.max_array_items))
        assert said["count"] == len(rows)
        assert len(said["items"]) <= min(limit, limits.max_array_items)
        for item in said["items"]:
            assert len(item["label"]) <= 50
            assert item.keys() in ({"id", "label"}, {"id", "label", "severity"})
            assert item.get("severity", "low") in ("critical", "high", "medium", "low")
        seen += said["items"]
        refs.add(said.get("artifactRef"))
        assert said["hasMore"] == (len(seen) < len(rows)) == ("nextCursor" in said)
        cursor = said.get("nextCursor")
        if cursor is None:
            break
    for item, row in zip(seen, rows, strict=True):
        name = "" if row["id"] is None else re.sub("[\ud800-\udfff\0]", "\N{REPLACEMENT CHARACTER}", str(row["id"]))
        # What is long is cut, by what it weighs.
        assert item["id"] == name or (
            len(name) > 20 and item["id"].endswith("...") and name.startswith(item["id"][:-3])
        )
    assert len(refs) == 1
    if is_stored:
        assert same(retrieve_artifact(refs.pop() or "", store=store), json.loads(json.dumps(rows)))


@pytest.mark.parametrize("category", BUDGETS)
@pytest.mark.parametrize("of", ['"', "\\", "\x01", "😀", "a", "\n"])
def test_every_category_keeps_its_budget_and_uses_it(store: Store, category: Category, of: str) -> None:
    rows = [{"id": number, "text": of * 300} for number in range(9)]
    response = wrap_response(rows, summary=of * 200, category=category, store=store)
    check(response, ResponseLimits(max_bytes=BUDGETS[category]))
    assert len(message(response)) > BUDGETS[category] * 0.6


def test_the_seed_s_figures() -> None:
    assert ResponseLimits() == ResponseLimits(
        max_bytes=10240, max_array_items=10, max_string_length=500, max_json_depth=4, max_log_lines=20
    )
    assert BUDGETS == {"execution": 3072, "list": 2048, "status": 1536, "scan": 2048, "config": 1536}


def test_a_large_payload_becomes_no_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that was given as bytes is parsed."""
    data = orjson.dumps([{"id": number, "text": "x" * 50} for number in range(50_000)])

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("parsed")

    with forebay.open_store(tmp_path / "store", sweep_interval=0) as store:
        monkeypatch.setattr("json.loads", refuse)
        monkeypatch.setattr("orjson.loads", refuse)
        response = wrap_response(data, summary="rows", store=store)
        monkeypatch.undo()
        assert check(response, ResponseLimits())["count"] == 50_000
