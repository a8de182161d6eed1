"""Every group of benchmarks on every kind of payload: forebay and its peers agree, or the reason is given."""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest
from forebay.bench import limiting
from forebay.bench import peers as peers_module
from forebay.bench.chart import draw_chart
from forebay.bench.generate import SHAPES
from forebay.bench.payloads import Payload, generate_payload, make_payload
from forebay.bench.peers import Peer, find_peers
from forebay.bench.report import describe_machine, make_report
from forebay.bench.run import GROUPS, Run, run_groups
from forebay.bench.workspace import NotApplicable

pytestmark = pytest.mark.slow

SECONDS = 0.01
WITHOUT_SERVERS = [group for group in GROUPS if group not in ("limit", "query")]


@pytest.fixture(scope="module")
def peers() -> Mapping[str, Peer]:
    return find_peers()


def list_problems(run: Run) -> list[tuple[str, str, str]]:
    return [
        (result.benchmark.name, peer.who, peer.problem)
        for result in run.results
        for peer in result.peers
        if peer.problem
    ]


def list_reasons(payload: Payload, peers: Mapping[str, Peer]) -> dict[str, str]:
    return dict(run_groups(payload, peers, [*GROUPS], SECONDS).left_out)


@pytest.mark.parametrize("shape", SHAPES)
def test_all_sides_agree_on_generated_payloads(shape: str, peers: Mapping[str, Peer]) -> None:
    payload = generate_payload(shape, 200_000, 1)
    groups = [*GROUPS] if shape == "orders" else WITHOUT_SERVERS
    run = run_groups(payload, peers, groups, SECONDS)
    assert list_problems(run) == []
    expected = {*groups} - ({"where"} if shape == "log" else set())
    assert {result.benchmark.group for result in run.results} == expected
    assert {group for group, _ in run.left_out} == {*groups} - expected
    assert all(result.ours.timing is not None and result.peers for result in run.results)
    if shape in ("orders", "crawl", "events"):
        (pages, *_) = [result for result in run.results if result.benchmark.group == "page"]
        assert {"orjson", "json"} <= {peer.who for peer in pages.peers}


@pytest.mark.parametrize("shape", ["events", "csv"])
def test_queries_of_rows_agree(shape: str, peers: Mapping[str, Peer]) -> None:
    run = run_groups(generate_payload(shape, 100_000, 1), peers, ["query"], SECONDS)
    assert (list_problems(run), run.left_out) == ([], [])
    assert "DuckDB on a file" in {peer.who for peer in run.results[0].peers}


KEYED = {"a.b": {"c/d": {f"r{number}": {"kind": "xy"[number % 2], "n": number} for number in range(300)}}, "x": 1}
ODD_KEYS = {"a~b": {'"c"': [{"k": "éx"[number % 2]} for number in range(99)]}}
SHORT_VALUES = {f"k{number}": number for number in range(150)}


@pytest.mark.parametrize(
    "document",
    [
        KEYED,
        SHORT_VALUES,
        {"a~b": {'"c"': [{"k": "éx"[number % 2]} for number in range(99)]}},
        list(range(500)),
        [[]] * 9,
    ],
    ids=["map", "map of numbers", "array under odd keys", "numbers", "empty arrays"],
)
def test_collections_of_all_kinds(document: Any, peers: Mapping[str, Peer]) -> None:
    data = json.dumps(document, ensure_ascii=False).encode()
    run = run_groups(make_payload(data, "a.json"), peers, ["truncate", "index", "page", "where"], SECONDS)
    problems = {(who.partition(" ")[0], problem) for _, who, problem in list_problems(run)}
    # ijson joins keys by dots, and cannot name a key that has one; msgspec cannot name one with a quote.
    expected = {"a.b": "ijson", "a~b": "msgspec"}.get(next(iter(document))) if isinstance(document, dict) else None
    assert {who for who, _ in problems} <= {expected}
    assert all(problem.startswith("fails: ") for _, problem in problems)
    assert {"index", "page", "truncate"} <= {result.benchmark.group for result in run.results}


@pytest.mark.parametrize(
    ("data", "name", "reasons"),
    [
        (b"", "a.json", dict.fromkeys(GROUPS, "the payload is empty")),
        (
            b'"one text"',
            "a.json",
            {
                "index": "the document has no collection of items",
                "page": "the payload has neither items nor lines",
                "where": "the payload has no items",
                "query": "the payload has no items",
                "limit": "a payload of up to 32,768 bytes is sent inline",
            },
        ),
        (
            b"\x00\xff" * 40_000,
            "-",
            {
                "truncate": "the payload is binary",
                "index": "the payload is binary",
                "page": "the payload has neither items nor lines",
                "where": "the payload has no items",
                "query": "the payload has no items",
                "limit": "the payload is no text, which a tool could return",
            },
        ),
        (
            b"[1, 2, 3]",
            "-",
            {
                "where": "no field of the items has few different texts as values",
                "query": "no field of the items has few different texts as values",
                "limit": "a payload of up to 32,768 bytes is sent inline",
            },
        ),
        (
            b'{"a": [1,, 2]}\n' * 9,
            "broken.json",
            {
                "where": "the payload has no items",
                "query": "the payload has no items",
                "limit": "a payload of up to 32,768 bytes is sent inline",
            },
        ),
    ],
    ids=["empty", "scalar", "binary", "numbers", "invalid"],
)
def test_what_does_not_apply_is_said(
    data: bytes, name: str, reasons: dict[str, str], peers: Mapping[str, Peer]
) -> None:
    assert list_reasons(make_payload(data, name), peers) == reasons


def test_what_is_not_installed_is_left_out(peers: Mapping[str, Peer]) -> None:
    # orjson is a dependency of forebay itself.
    kept = [name for name, peer in peers.items() if not peer.install or name == "orjson"]
    none = {name: peer if name in kept else peer._replace(version=None) for name, peer in peers.items()}
    run = run_groups(generate_payload("orders", 100_000, 1), none, [*GROUPS], SECONDS)
    names = {peer.who for result in run.results for peer in result.peers}
    assert names == {"memcpy", "json", "json and a loop", "orjson", "orjson and a loop", "re", "bytes.find"}
    assert dict(run.left_out) == {
        "query": "SQL needs DuckDB: pip install 'forebay[sql]'",
        "limit": "it compares servers with fastmcp: pip install 'forebay[fastmcp]'",
    }


def test_a_query_of_a_map_has_no_peer_that_reads_a_file(peers: Mapping[str, Peer]) -> None:
    run = run_groups(make_payload(json.dumps(KEYED).encode(), "a.json"), peers, ["query"], SECONDS)
    assert run.left_out == []
    names = {peer.who for peer in run.results[0].peers}
    assert names
    assert "DuckDB on a file" not in names


def test_a_peer_that_loses_an_item_is_found_out(peers: Mapping[str, Peer]) -> None:
    """A key that is repeated is one entry of a dictionary."""
    data = b"{%s}" % b",".join(b'"k%d": {"n": %d}' % (number % 99, number) for number in range(100))
    run = run_groups(make_payload(data, "a.json"), peers, ["index"], SECONDS)
    outcomes = {peer.who: peer for result in run.results for peer in result.peers}
    assert outcomes["json"].problem == "finds 99 items instead of 100"


def test_a_side_that_cannot_shorten_a_document_enough_is_found_out(peers: Mapping[str, Peer]) -> None:
    deep = {f"key {n}": {f"key {m}": {f"key {k}": "x" * 200 for k in range(9)} for m in range(9)} for n in range(9)}
    run = run_groups(make_payload(json.dumps(deep).encode(), "a.json"), peers, ["truncate"], SECONDS)
    problems = {who: problem for _, who, problem in list_problems(run)}
    assert re.fullmatch(r"returns [\d,]+ bytes: halving its limits does not make it fit", problems["orjson"])


def test_a_peer_that_changes_a_value_is_found_out(peers: Mapping[str, Peer]) -> None:
    """orjson reads an integer of more than 64 bits as a float."""
    data = b"[%s]" % b",".join([b"123456789012345678901234567890"] * 50)
    run = run_groups(make_payload(data, "a.json"), peers, ["index"], SECONDS)
    validated = next(result for result in run.results if "every byte" in result.benchmark.name)
    outcomes = {peer.who: peer for peer in validated.peers}
    assert outcomes["json"].problem == "changes the value of the first or the last item"


def test_the_limiter_of_fastmcp_loses_what_forebay_stores(peers: Mapping[str, Peer]) -> None:
    payload = generate_payload("orders", 300_000, 1)
    run = run_groups(payload, peers, ["limit"], SECONDS)
    ((_, ours, (limiter,)),) = run.results
    assert ours.note.startswith("JSON with a handle to all of it, ")
    assert limiter.note.startswith("invalid JSON, the rest lost, ")
    assert limiter.timing is not None
    chart = draw_chart(dict(orjson.loads(orjson.dumps(make_report(payload, describe_machine(), peers, run)))))
    # The sides do not return the same, so the chart says what each returns.
    assert f"forebay: {ours.note}" in chart
    assert f"{limiter.who}: {limiter.note}" in chart


@pytest.mark.parametrize(
    ("text", "result", "note"),
    [
        ("[1, 2]", '{"output_handle": "oh_x"}', "JSON with a handle to all of it, 25 bytes"),
        ("[1, 2]", "[1]", "valid JSON, the rest lost, 3 bytes"),
        ("[1, 2]", "[1", "invalid JSON, the rest lost, 2 bytes"),
        ("one two", "one", "cut text, the rest lost, 3 bytes"),
    ],
)
def test_what_a_client_got_is_described(text: str, result: str, note: str) -> None:
    assert limiting._describe(text, result) == note


def test_servers_that_cannot_run_are_left_out(peers: Mapping[str, Peer], monkeypatch: pytest.MonkeyPatch) -> None:
    payload = generate_payload("orders", 100_000, 1)
    with (
        pytest.raises(NotApplicable, match="a server with fastmcp does not start: "),
        limiting._open_clients(["http://127.0.0.1:1/mcp"]),
    ):
        pass
    with monkeypatch.context() as changed:
        changed.setattr(limiting, "get_available_bytes", lambda: 1000)
        assert "the memory that is free" in dict(run_groups(payload, peers, ["limit"], SECONDS).left_out)["limit"]
    monkeypatch.setitem(sys.modules, "fastmcp", None)
    reason = dict(run_groups(payload, peers, ["limit"], SECONDS).left_out)["limit"]
    assert reason.startswith(f"fastmcp {peers['fastmcp'].version} cannot be used: ")


def test_versions_of_what_is_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "ijson", None)
    jq = tmp_path / "jq"
    for script, version in (("echo jq-1.7", "1.7"), ("exit 3", None), ("true", "unknown")):
        jq.write_text(f"#!/bin/sh\n{script}\n")
        jq.chmod(0o700)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        found = find_peers()
        assert (found["jq"].version, found["ijson"].version) == (version, None)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert find_peers()["jq"].version is None
    # A module that came without the data of its package.
    assert peers_module._find_version("no-such-package", "json") == "unknown"


def test_progress_names_what_runs(peers: Mapping[str, Peer]) -> None:
    steps: list[tuple[int, int, str]] = []
    payload = make_payload(orjson.dumps([{"k": "ab"[number % 2]} for number in range(100)]), "a.json")
    run = run_groups(
        payload,
        peers,
        ["index", "page"],
        SECONDS,
        on_progress=lambda *step: steps.append(step),
    )
    assert steps[:2] == [(0, 0, "prepare index"), (0, 0, "prepare page")]
    assert steps[2] == (0, len(run.results), "index, forebay")
    assert [done for done, _, _ in steps] == sorted(done for done, _, _ in steps)
