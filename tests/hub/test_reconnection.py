"""Servers that end, do not answer or refuse the handshake, and the connections to those that take their place."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from forebay.hub import connection
from hub_client import CALL, Channel, HubClient, get_value, make_call, read_record, running_hub, stepping_server
from waiting import wait_until_async

pytestmark = pytest.mark.slow


def _list_methods(folder: Path) -> list[str]:
    return [message["method"] for message in read_record(folder) if "method" in message]


async def _connect(hub: Any) -> HubClient:
    client = HubClient(hub, {})
    await client.initialize()
    return client


def test_a_server_that_is_not_restarted_is_connected_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its subscriptions: the new connection is to another process."""
    monkeypatch.setattr(connection, "_RECONNECT_DELAY_SECONDS", 0.01)

    async def run() -> None:
        upstream = stepping_server(tmp_path, fatal=["ping", "resources/list"])
        async with running_hub(tmp_path, {"one": upstream}, restart_limit=0) as hub:
            client = await _connect(hub)
            assert client.session is not None
            await client.request("resources/subscribe", {"uri": "x://1"})
            response = await client.request("resources/list")
            assert "the server ended with exit code 3" in response["error"]["message"]
            server = client.session.connections["one"]
            await wait_until_async(lambda: _list_methods(tmp_path).count("resources/subscribe") == 2)
            await asyncio.wait_for(server.wait_connected(), 60)
            assert "resources" in (await client.request("resources/list"))["result"]

    asyncio.run(run())


def test_a_restarted_server_gets_the_log_level_and_the_subscriptions_again(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_hub(tmp_path, {"one": stepping_server(tmp_path, fatal=["resources/list"])}) as hub:
            client = await _connect(hub)
            await client.request("logging/setLevel", {"level": "error"})
            await client.request("resources/subscribe", {"uri": "x://1"})
            start = len(read_record(tmp_path))
            assert "error" in await client.request("resources/list")
            assert "result" in await client.request("resources/list")
            again = [message for message in read_record(tmp_path)[start + 1 :] if message["method"] != "tools/list"]
            assert [message["method"] for message in again[:5]] == [
                *("initialize", "notifications/initialized", "logging/setLevel", "resources/subscribe"),
                "resources/list",
            ]
            assert [message["params"] for message in again[2:4]] == [{"level": "error"}, {"uri": "x://1"}]

    asyncio.run(run())


@pytest.mark.parametrize(
    ("option", "reason"),
    [("failing", "the server refused what it was asked"), ("deaf", "the server did not answer within 0.2 s")],
)
def test_a_restarted_server_without_a_handshake_is_restarted_again(
    option: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The second start of three refuses the handshake, or ignores it."""
    script = f"""
import json, pathlib, sys
folder = pathlib.Path({str(tmp_path)!r})
start = len([*folder.glob("start-*")])
(folder / f"start-{{start}}").touch()
for line in sys.stdin:
    message = json.loads(line)
    answer = {{"result": {{"protocolVersion": "2025-11-25", "capabilities": {{}}, "tools": [], "content": []}}}}
    if message["method"] == "initialize" and start == 1:
        answer = {{"error": {{"code": -32603, "message": "not now"}}}} if {option == "failing"} else None
    if message["method"] == "tools/call" and start == 0:
        sys.exit(3)
    if "id" in message and answer:
        print(json.dumps({{"jsonrpc": "2.0", "id": message["id"], **answer}}), flush=True)
"""

    async def run() -> None:
        upstream = {"command": sys.executable, "args": ["-c", script]}
        async with running_hub(tmp_path, {"one": upstream}, restart_delay_seconds=0.01) as hub:
            client = await _connect(hub)
            if option == "deaf":
                monkeypatch.setattr(connection, "_CONNECT_TIMEOUT_SECONDS", 0.2)
            assert (await client.request(CALL, {"name": "any"}))["result"]["isError"]
            await wait_until_async(lambda: "its session cannot be restored" in caplog.text)
            monkeypatch.setattr(connection, "_CONNECT_TIMEOUT_SECONDS", 30.0)

            async def is_back() -> bool:
                return "isError" not in (await client.request(CALL, {"name": "any"}))["result"]

            await wait_until_async(is_back)

    asyncio.run(run())
    assert reason in caplog.text
    assert len([*tmp_path.glob("start-*")]) == 3


def test_a_server_that_does_not_answer_its_first_request_is_a_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connection, "_CONNECT_TIMEOUT_SECONDS", 0.3)

    async def run() -> None:
        async with running_hub(tmp_path, {"one": stepping_server(tmp_path, deaf=["initialize"])}) as hub:
            client = await _connect(hub)
            # There is no server to send either to.
            await client.send({"method": "notifications/roots/list_changed"})
            response = await client.request(CALL, make_call())
            assert "one cannot be reached just now" in response["result"]["content"][0]["text"]

    asyncio.run(run())
    assert "the server did not answer within 0.3 s" in caplog.text


def test_a_server_that_refuses_both_ways_to_connect_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        upstream = stepping_server(tmp_path, failing={"server/discover": -32601, "initialize": -32000})
        async with running_hub(tmp_path, {"one": upstream}) as hub:
            client = HubClient(hub, {}, is_stateless=True)
            assert {tool["name"] for tool in (await client.request("tools/list"))["result"]["tools"]} == {
                *hub.policy.tools.names
            }

    asyncio.run(run())
    assert "one cannot be used" in caplog.text
    assert "failed" in caplog.text


def test_a_server_of_a_later_version_is_asked_for_a_handshake(tmp_path: Path) -> None:
    script = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    result = {"supportedVersions": ["2099-01-01"], "capabilities": {}, "tools": [], "content": []}
    if message["method"] == "initialize":
        result["protocolVersion"] = "2025-11-25"
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""

    async def run() -> None:
        async with running_hub(tmp_path, {"one": {"command": sys.executable, "args": ["-c", script]}}) as hub:
            client = HubClient(hub, {}, is_stateless=True)
            assert "result" in await client.request(CALL, {"name": "any"})
            (tenant,) = hub.tenants
            assert (tenant.connections["one"].is_connected, tenant.connections["one"].is_modern) == (True, False)

    asyncio.run(run())


@pytest.mark.parametrize(("code", "is_connected"), [(-32601, True), (-32603, False)])
def test_a_server_without_tools_is_used_but_not_one_that_cannot_list_them(
    code: int, is_connected: bool, tmp_path: Path
) -> None:
    async def run() -> None:
        upstream = stepping_server(tmp_path, failing={"tools/list": code})
        async with running_hub(tmp_path, {"one": upstream}) as hub:
            client = await _connect(hub)
            response = await client.request("resources/list")
            assert ("result" in response) == is_connected
            # The tool may be one that the server does not list.
            assert ("isError" not in (await client.request(CALL, make_call()))["result"]) == is_connected

    asyncio.run(run())


def test_a_subscription_survives_a_server_that_ends_when_it_is_asked(tmp_path: Path) -> None:
    async def run() -> None:
        upstream = stepping_server(tmp_path, fatal=["resources/subscribe"])
        async with running_hub(tmp_path, {"one": upstream}) as hub:
            client, channel = HubClient(hub, {}, is_stateless=True), Channel()
            wanted = {"notifications": {"resourceSubscriptions": ["x://1"]}}
            listening = asyncio.create_task(client.request("subscriptions/listen", wanted, channel))
            assert (await channel.next())["params"]["notifications"] == {"resourceSubscriptions": ["x://1"]}
            await wait_until_async(lambda: _list_methods(tmp_path).count("resources/subscribe") == 2)
            step = {"notify": "notifications/resources/updated", "count": 2}
            assert get_value(await client.request(CALL, make_call(step))) is None
            assert (await channel.next())["params"]["uri"] == "x://1"
            listening.cancel()

    asyncio.run(run())


def test_a_server_that_ends_subscriptions_is_asked_again_later_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The delays double up to a limit, and start again after a subscription that lasted for longer than that."""
    script = """
import json, sys, time
count = 0
for line in sys.stdin:
    message = json.loads(line)
    result = {"supportedVersions": ["2026-07-28"], "capabilities": {}, "tools": [], "resultType": "complete"}
    if message["method"] == "subscriptions/listen":
        count += 1
        time.sleep(1.2 if count == 5 else 0)
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""
    delays: list[float] = []
    sleep = asyncio.sleep

    async def record_and_sleep(seconds: float) -> None:
        if seconds >= 0.25:
            delays.append(seconds)
        await sleep(0.001 if seconds >= 0.25 else seconds)

    monkeypatch.setattr(connection, "_MIN_LISTEN_DELAY_SECONDS", 0.25)
    monkeypatch.setattr(connection, "_MAX_LISTEN_DELAY_SECONDS", 1.0)

    async def run() -> None:
        async with running_hub(tmp_path, {"one": {"command": sys.executable, "args": ["-c", script]}}) as hub:
            client = HubClient(hub, {}, is_stateless=True)
            monkeypatch.setattr(asyncio, "sleep", record_and_sleep)
            await client.request("tools/list")
            await wait_until_async(lambda: len(delays) >= 6)
            # The fifth subscription lasts.
            assert delays[:6] == [0.25, 0.5, 1.0, 1.0, 0.25, 0.5]

    asyncio.run(run())
