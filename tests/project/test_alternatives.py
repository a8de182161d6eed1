"""The comparison with alternatives: its payload, its verdicts, and forebay's own row in the real thing."""

import hashlib
import json
from pathlib import Path

import pytest
from alternatives import run
from alternatives.orders import COUNT, NUMBER, count_matches, find_order, make_payload
from alternatives.ways import WAYS
from clients.direct import describe
from clients.known import CLIENTS
from clients.script import Conversation

ORDER = '{"id": 9007199254740993, "total": 1.50, "name": "Chloë"}'


@pytest.fixture(scope="module")
def payload() -> str:
    return make_payload()


def test_the_payload_is_that_of_the_committed_results(payload: str) -> None:
    results = json.loads((Path(run.__file__).parents[2] / "benches" / "alternatives.json").read_bytes())
    parsed = json.loads(payload)
    assert results["payload"] == {
        "bytes": len(payload.encode()),
        "sha256": hashlib.sha256(payload.encode()).hexdigest(),
        "orders": COUNT,
        "number": NUMBER,
        "matches": count_matches(parsed["orders"]),
    }
    assert json.loads(find_order(payload, NUMBER)) == parsed["orders"][NUMBER]


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (f'{{"content": [{ORDER}]}}', "same bytes"),
        ('{"preview": [{"total": 1.5, "id": 9007199254740993, "name": "Chlo\\u00eb"}]}', "same values"),
        (f'cut [ {{"a": 1 {ORDER.replace("1.50", "1.5")}', "same values"),
        ('{"content": [{"id": 9007199254740992, "total": 1.50, "name": "Chloë"}]}', "missing"),
        ('{"id": 9007199254740993, "total": 1.50', "missing"),
        ("", "missing"),
    ],
)
def test_an_order_is_the_same_only_with_all_of_its_values(text: str, verdict: str) -> None:
    assert run.compare_order(text, ORDER) == verdict


@pytest.mark.slow
def test_forebay_does_what_its_row_says(payload: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "ROUNDS", 1)
    row = run.measure(WAYS[-1], payload, tmp_path)
    assert row["first"]["bytes"] <= 4096
    assert row["first"]["is_json"]
    assert (row["order"]["verdict"], row["order"]["calls"]) == ("same bytes", 2)
    assert (row["answer"]["value"], row["answer"]["calls"]) == (count_matches(json.loads(payload)["orders"]), 2)
    assert row["answer"]["bytes"] < 8192
    assert row["readable"]["orders"] == COUNT


def test_what_a_client_shows_is_searched_for_the_order(payload: str) -> None:
    conversation = Conversation(CLIENTS[0].toolbox)
    order = find_order(payload, NUMBER)
    for text, has_order in ((order, True), (json.dumps({"text": order}), True), (order[:-1], False)):
        conversation.seen["list_orders"] = ["some text", text]
        row = describe(CLIENTS[0], conversation, None, payload)
        assert (row["has_order"], row["characters"]) == (has_order, len("some text\n") + len(text))
