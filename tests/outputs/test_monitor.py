"""Response sizes: recorded in the journal, logged if too large, and shown by `forebay stats`."""

import json
import logging
import re
from pathlib import Path
from typing import Any

import anyio
import forebay
import pytest
from command import plain, run, run_on_terminal
from forebay.adapters.mcp import Forebay
from forebay.outputs.monitor import Monitor, summarize_responses
from hypothesis import given
from hypothesis import strategies as st
from mcp import Client
from mcp_harness import serve
from mcp_server import make_server
from stores import events, store_at
from wires import LEGACY


@pytest.mark.slow
def test_every_response_is_noted_with_its_size(era: str, tmp_path: Path) -> None:
    async def test(client: Client, middleware: Forebay) -> None:
        small = await client.call_tool("text", {"size": 1000})
        large = await client.call_tool("rows", {"count": 5000})
        handle = json.loads(large.content[0].text)["output_handle"]  # type: ignore[union-attr]
        await client.call_tool("output_fetch", {"output_handle": handle, "limit": 1})
        fetched, stored, inline = events(middleware.store, "tool_called")
        assert [(event["tool"], event["mode"]) for event in (inline, stored, fetched)] == [
            ("text", "inline"),
            ("rows", "handle"),
            ("output_fetch", "inline"),
        ]
        sent = len(small.model_dump_json(by_alias=True, exclude_unset=True).encode())
        assert abs(inline["response_bytes"] - sent) < 64
        assert stored["response_bytes"] <= 4096
        assert events(middleware.store, "response_oversize") == []

    serve(test, tmp_path / "store", era, output_mode="auto", journal=True)


def test_nothing_is_noted_where_nobody_asked(era: str, tmp_path: Path) -> None:
    async def test(client: Client, middleware: Forebay) -> None:
        await client.call_tool("text", {"size": 50_000})
        assert middleware.policy.monitor is None
        assert events(middleware.store, "tool_called") == []

    serve(test, tmp_path / "store", era, output_mode="auto")


def test_it_can_be_switched_on_and_off_alone(tmp_path: Path) -> None:
    choices: list[tuple[dict[str, Any], bool]] = [
        ({"monitor": True}, True),
        ({"monitor": False, "journal": True}, False),
    ]
    for options, is_monitored in choices:
        middleware = Forebay((tmp_path / "store").as_uri(), sweep_interval=0, **options)
        assert (middleware.policy.monitor is not None) == is_monitored
        middleware.close()


def test_what_is_over_its_budget_is_told(era: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test(client: Client, middleware: Forebay) -> None:
        await client.call_tool("text", {"size": 4000})
        await client.call_tool("text", {"size": 11_000})
        assert middleware.policy.monitor is not None
        assert middleware.policy.monitor.oversize == {"text": 1}
        (event,) = events(middleware.store, "response_oversize")
        assert (event["tool"], event["mode"], event["budget_bytes"]) == ("text", "inline", 10240)
        assert event["response_bytes"] > 10240

    with caplog.at_level(logging.WARNING, logger="forebay"):
        serve(test, tmp_path / "store", era, journal=True, connection_limit_bytes=10**9)
    assert [record.getMessage().split(",")[0][:29] for record in caplog.records] == ["forebay: a response of text t"]


def test_a_connection_is_told_of_once(era: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test(client: Client, middleware: Forebay) -> None:  # noqa: ARG001
        for _ in range(9):
            await client.call_tool("text", {"size": 3000})

    with caplog.at_level(logging.WARNING, logger="forebay"):
        # A text that is also structured content is sent twice.
        serve(test, tmp_path / "store", era, journal=True)
    (record,) = caplog.records
    receiver = "a connection" if era == LEGACY else "a principal"
    assert f"the responses to {receiver} take" in record.getMessage()
    assert "25600 were to be enough" in record.getMessage()


def test_totals_are_a_connection_s_own(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    middleware = Forebay((tmp_path / "store").as_uri(), sweep_interval=0, journal=True)
    server = middleware.install(make_server())

    async def connect_three_times() -> None:
        for _ in range(3):
            async with Client(server, mode=LEGACY) as client:
                await client.call_tool("text", {"size": 6000})

    with caplog.at_level(logging.WARNING, logger="forebay"):
        anyio.run(connect_three_times)
    middleware.close()
    assert [record for record in caplog.records if "a connection" in record.getMessage()] == []
    assert len(read_events(tmp_path / "store")) == 3


def read_events(root: Path) -> list[dict[str, Any]]:
    with store_at(root) as store:
        return events(store, "tool_called")


def test_connections_that_ended_are_forgotten_and_principals_are_bounded(tmp_path: Path) -> None:
    class Connection:
        pass

    with store_at(tmp_path / "store") as store:
        monitor = Monitor(store.journal)
        open_connection, closed = Connection(), Connection()
        for connection in (open_connection, closed, open_connection):
            monitor.record("t", 10, mode="inline", budget=100, connection=connection)
        del connection, closed
        assert len(monitor._connections) == 1
        assert monitor.get_sent_bytes(connection=open_connection) == 20
        for number in range(5000):
            monitor.record("t", 1, mode="inline", budget=100, principal=str(number))
        assert monitor._get_principal_total.cache_info().currsize <= 4096
        assert monitor.get_sent_bytes("4999") == 1
        with pytest.raises(forebay.InvalidArgument, match="connection_limit_bytes"):
            Monitor(store.journal, 0)


def test_an_answer_that_cannot_be_written_is_left_alone(tmp_path: Path) -> None:
    middleware = Forebay((tmp_path / "store").as_uri(), sweep_interval=0, monitor=True)
    middleware.policy.record_response("odd", {"structuredContent": [2**70, float("inf")]})
    middleware.policy.record_response("odd", {"content": []})
    assert len(events(middleware.store, "tool_called")) == 1
    middleware.close()


def test_a_tool_may_be_called_anything(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with store_at(tmp_path / "store") as store, caplog.at_level(logging.CRITICAL, logger="forebay"):
        monitor = Monitor(store.journal)
        for name in ("half \ud83d", "two\nlines", "x" * 100_000):
            monitor.record(name, 500, mode="inline", budget=100)
        assert [event["tool"][:9] for event in events(store, "tool_called")] == [
            "xxxxxxxxx",
            "two lines",
            "half \ufffd",
        ]
        for number in range(5000):
            monitor.record(f"tool {number}", 500, mode="inline", budget=100)
        assert len(monitor.oversize) <= 4097
        assert monitor.oversize.total() == 5003


@given(st.dictionaries(st.text(max_size=5), st.lists(st.integers(0, 10**7), min_size=1, max_size=60), max_size=4))
def test_stats_are_what_counting_gives(calls: dict[str, list[int]]) -> None:
    called = [
        {"event": "tool_called", "tool": tool, "response_bytes": size}
        for tool, sizes in calls.items()
        for size in sizes
    ]
    noise: list[dict[str, Any]] = [
        {"event": "tool_called", "tool": 3, "response_bytes": 1},
        {"event": "tool_called", "tool": "x", "response_bytes": "many"},
        {"event": "output_handle_created", "size_bytes": 9},
    ]
    stats = summarize_responses([*noise, *called])
    assert stats.keys() == calls.keys()
    for tool, sizes in calls.items():
        row = stats[tool]
        assert (row["count"], row["max_bytes"], row["oversize"]) == (len(sizes), max(sizes), 0)
        assert abs(row["average_bytes"] - sum(sizes) / len(sizes)) <= 0.5
        enough = [size for size in sizes if sum(other <= size for other in sizes) >= 0.95 * len(sizes)]
        assert row["p95_bytes"] == min(enough)


@pytest.fixture
def monitored(home: Path) -> Path:
    with store_at(home) as store:
        monitor = Monitor(store.journal, 10**9)
        for size in range(1, 101):
            monitor.record("bug_scan", size * 100, mode="contract", budget=9_900, principal="ada")
        monitor.record("[red]odd", 7, mode="inline", budget=100, principal="bob")
        store.put({"rows": [1] * 5000}, principal="ada")
    return home


@pytest.mark.slow
@pytest.mark.usefixtures("monitored")
def test_the_command_shows_stats_in_a_pipe() -> None:
    stats = run("stats").json
    assert list(stats["tools"]) == ["bug_scan", "[red]odd"]
    assert stats["tools"]["bug_scan"] == {
        "count": 100, "max_bytes": 10_000, "average_bytes": 5050, "p95_bytes": 9500, "oversize": 1,
    }  # fmt: skip
    storage = stats["storage"]
    assert (storage["payloads"], storage["size_bytes"]) == (
        1,
        len(json.dumps({"rows": [1] * 5000}, separators=(",", ":"))),
    )
    assert 0 < storage["stored_bytes"] < storage["size_bytes"]
    bob = run("stats", "--principal", "bob").json
    assert (list(bob["tools"]), bob["storage"]["payloads"]) == (["[red]odd"], 0)


@pytest.mark.posix
@pytest.mark.usefixtures("monitored")
def test_the_command_shows_stats_on_a_terminal() -> None:
    ran = run_on_terminal("stats")
    assert ran.code == 0
    head, scan, odd, _, _, stored, *_ = plain(ran.out).splitlines()
    assert head.split() == ["response", "sizes", "recorded", "max", "average", "p95", "over", "budget"]
    assert scan.split() == ["bug_scan", "100", "10.0", "kB", "5.0", "kB", "9.5", "kB", "1"]
    assert odd.split()[:4] == ["[red]odd", "1", "7", "B"]
    assert stored.startswith("stored  1 payload, 10.0 kB, ")


@pytest.mark.posix
@pytest.mark.slow
@pytest.mark.usefixtures("home")
def test_stats_of_nothing() -> None:
    stats = run("stats").json
    assert (stats["tools"], stats["storage"]) == ({}, {"payloads": 0, "size_bytes": 0, "stored_bytes": 0})
    assert (stats["usage"]["calls"], stats["usage"]["by_tool"], stats["usage"]["by_day"]) == (0, {}, {})
    assert "no call was counted yet; every call through forebay is counted" in plain(run_on_terminal("stats").out)


@pytest.mark.posix
@pytest.mark.usefixtures("home")
def test_every_call_is_counted_without_being_asked_for(era: str, tmp_path: Path) -> None:
    async def test(client: Client, _: Forebay) -> None:
        await client.call_tool("text", {"size": 1000})
        stored = await client.call_tool("text", {"size": 50_000})
        handle = json.loads(stored.content[0].text)["output_handle"]  # type: ignore[union-attr]
        await client.call_tool("output_fetch", {"output_handle": handle, "limit": 100})

    serve(test, tmp_path, era, make_server(), output_mode="auto")
    (folder,) = (path.parent for path in tmp_path.rglob("calls"))
    usage = run("stats", "--store", folder.as_uri()).json["usage"]
    tools = usage["by_tool"]
    assert {tool: (row["calls"], row["handles"]) for tool, row in tools.items()} == {
        "text": (2, 1),
        "output_fetch": (1, 0),
    }
    assert (tools["text"]["stored_bytes"], 0 < tools["text"]["shown_bytes"] <= 4096) == (50_000, True)
    assert -1000 < tools["output_fetch"]["saved_bytes"] < -100
    assert usage["saved_tokens"] == usage["saved_bytes"] // 4
    (day,) = usage["by_day"].values()
    assert (day["calls"], day["saved_bytes"]) == (3, usage["saved_bytes"])
    screen = plain(run_on_terminal("stats", "--store", folder.as_uri()).out)
    assert "tool  " in screen
    assert "(UTC)" in screen
    assert f"about {usage['saved_tokens']:,} tokens" in screen
    assert re.search(r"calls +3 .* 1 stored \(33%\), 2 inline", screen)
