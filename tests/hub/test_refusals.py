"""What the hub refuses: messages that a filter forbids, invalid params, what is over a limit, and unknown resources."""

import asyncio
import errno
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from forebay.config.upstreams import UpstreamConfig
from forebay.errors import UpstreamFailed
from forebay.hub.exchanges import Exchanges
from forebay.hub.health import list_upstreams
from forebay.hub.hub import Hub
from forebay.hub.stateless import TenantPool
from forebay.wire.framing import Spool
from forebay.wire.messages import parse
from hub_client import (
    CALL,
    Channel,
    HubClient,
    get_value,
    make_call,
    make_settings,
    read_record,
    running_hub,
    stepping_server,
)
from waiting import wait_until_async

pytestmark = pytest.mark.slow

ELICITATION: dict[str, Any] = {"elicitation": {}}


async def _connect(hub: Hub, capabilities: dict[str, Any] | None = None) -> HubClient:
    client = HubClient(hub, capabilities or {})
    await client.initialize()
    return client


def _methods(folder: Path, name: str = "one") -> list[str]:
    return [message["method"] for message in read_record(folder, name) if "method" in message]


def test_a_filter_refuses_what_is_not_of_the_protocol(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with running_hub(tmp_path, {"one": stepping_server(tmp_path)}, disable_tools=["core"]) as hub:
            client, channel = await _connect(hub, ELICITATION), Channel()
            error = (await client.request("Tools/Call", make_call()))["error"]
            assert (error["code"], "not one of the protocol's requests" in error["message"]) == (-32600, True)
            assert await client.send({"method": "notifications/other"}) is None
            assert await client.send({"method": "tools/call", "params": make_call()}) is None
            await client.send({"method": "notifications/roots/list_changed"})
            call = client.start_call({"ask": 1}, channel=channel)
            question = await channel.next()
            # A name that some parser could take for another member.
            await client.send({"id": question["id"], "result": {}, "Method": "tools/call", "params": make_call()})
            (answer,) = get_value(await call)
            assert answer["code"] == -32600
            # Answers to nothing, and twice to the same, are dropped.
            for number in (question["id"], 999, None):
                await client.send({"id": number, "result": {}})
        assert _methods(tmp_path).count(CALL) == 1
        assert "notifications/roots/list_changed" in _methods(tmp_path)
        assert "notifications/other" not in _methods(tmp_path)

    asyncio.run(run())
    assert "a message of a client was refused" in caplog.text


def test_a_filter_needs_room_to_write_a_large_message_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(folder: str) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), folder)

    async def run() -> None:
        async with running_hub(tmp_path, {"one": stepping_server(tmp_path)}, disable_tools=["core"]) as hub:
            client = await _connect(hub)
            assert client.session is not None
            message = {"jsonrpc": "2.0", "id": 5, "method": CALL, "params": {**make_call(), "x": "x" * 3_000_000}}
            with _spool(tmp_path, json.dumps(message).encode()) as spool:
                monkeypatch.setattr("forebay.system.files.create_temporary", fail)
                response = await client.session.handle(parse(spool), spool, Channel())
            assert isinstance(response, bytes)
            assert "the disk has no room" in json.loads(response)["error"]["message"]

    asyncio.run(run())


def _spool(folder: Path, content: bytes) -> Spool:
    spool = Spool(folder)
    spool.write(content)
    return spool


def test_invalid_params_are_errors(tmp_path: Path) -> None:
    (tmp_path / "some_functions.py").write_text("def double(x: int) -> int:\n    return 2 * x\n")
    module = {"python": "some_functions", "folder": str(tmp_path)}

    async def run() -> None:
        upstreams = {"one": stepping_server(tmp_path), "two": stepping_server(tmp_path, "two"), "more": module}
        async with running_hub(tmp_path, upstreams) as hub:
            await hub.start()
            client = await _connect(hub)
            for method, params, text in [
                (CALL, {}, "params.name must be the name of a tool"),
                (CALL, {"name": "double", "arguments": [1]}, "params.arguments must be an object"),
                ("resources/subscribe", {"uri": 5}, "params.uri must be the URI of a resource"),
                # None of the servers has declared it.
                ("logging/setLevel", {"level": "info"}, "Method not found"),
            ]:
                assert text in (await client.request(method, params))["error"]["message"], method
            assert await client.send({"method": "tools/call", "params": make_call()}) is None
            result = (await client.request(CALL, {"name": "double", "arguments": {"x": 4}}))["result"]
            assert get_value({"result": result}) == 8
            states = {upstream.name: upstream.state for upstream in list_upstreams(hub, None)}
            assert states == {"one": "connected", "two": "connected", "more": "loaded"}

    asyncio.run(run())


def test_a_failure_of_the_gateway_is_an_error_of_the_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Reading a stored result needs a thread, and the system may have none left."""

    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def run() -> None:
        async with running_hub(tmp_path, {"one": stepping_server(tmp_path)}) as hub:
            client = await _connect(hub)
            with monkeypatch.context() as patch:
                patch.setattr(threading.Thread, "start", fail)
                response = await client.request(CALL, {"name": "output_fetch", "arguments": {}})
            assert "the gateway failed; its log says why" in response["error"]["message"]
            assert get_value(await client.start_call()) is None

    asyncio.run(run())
    assert "can't start new thread" in caplog.text


def test_a_result_that_cannot_be_translated_goes_out_as_it_is(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_hub(tmp_path, {"one": stepping_server(tmp_path, era="modern")}) as hub:
            client = await _connect(hub)
            fields = {"resultType": "complete", "content": []}
            # No reader of text accepts this name.
            line = json.dumps({"jsonrpc": "2.0", "id": "ID", "result": {**fields, "\ud800": 1}}).replace('"ID"', "ID")
            result = (await client.start_call({"write": line}, "never"))["result"]
            assert result["content"] == []

    asyncio.run(run())


# A command line of Windows has at most 32 KiB.
@pytest.mark.parametrize("size", [1, pytest.param(100, marks=pytest.mark.posix)])
def test_a_list_of_tools_of_any_size_is_merged(size: int, tmp_path: Path) -> None:
    async def run() -> None:
        definition = {"description": "x" * size * 1000}
        names = ("one", "two", "three")
        upstreams = {name: stepping_server(tmp_path, name, definition=definition) for name in names}
        async with running_hub(tmp_path, upstreams) as hub:
            listed = (await (await _connect(hub)).request("tools/list"))["result"]["tools"]
            assert {*(f"{name}_steps" for name in names), "output_fetch"} <= {tool["name"] for tool in listed}

    asyncio.run(run())


def test_an_unlisted_resource_is_that_of_the_only_server_with_resources(tmp_path: Path) -> None:
    async def run() -> None:
        upstreams = {
            "one": stepping_server(tmp_path, "one"),
            "two": stepping_server(tmp_path, "two", capabilities={"tools": {}}),
        }
        async with running_hub(tmp_path, upstreams) as hub:
            client = await _connect(hub)
            response = await client.request("resources/read", {"uri": "x://unlisted"})
            assert response["error"]["message"] == "no resources/read"
        assert "resources/read" in _methods(tmp_path, "one")
        assert "resources/read" not in _methods(tmp_path, "two")

    asyncio.run(run())


def test_a_session_that_has_ended_opens_no_connections(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_hub(tmp_path, {"one": stepping_server(tmp_path)}) as hub:
            client = HubClient(hub, {})
            assert client.session is not None
            await client.session.close()
            await client.initialize()
            assert client.session.connections == {}

    asyncio.run(run())


def test_the_number_of_open_requests_to_a_server_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forebay.hub.exchanges._MAX_EXCHANGES", 2)

    async def run() -> None:
        exchanges = Exchanges("one", lambda _exchange, _reason: None)
        opened = [exchanges.new("ping") for _ in range(2)]
        for exchange in opened:
            exchanges.add(exchange)
        with pytest.raises(UpstreamFailed, match="one has not answered 2 requests yet; retry later"):
            exchanges.new("ping")
        ended: list[int] = []
        exchanges.call_when_settled(opened[0].id, lambda: ended.append(1))
        exchanges.resolve(opened[0], None)
        assert exchanges.new("ping") not in exchanges
        await asyncio.sleep(0)
        # At once, because it has ended already.
        exchanges.call_when_settled(opened[0].id, lambda: ended.append(2))
        assert ended == [1, 2]

    asyncio.run(run())


def test_the_number_of_subscriptions_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forebay.hub.stateless._MAX_LISTENERS", 1)

    async def run() -> None:
        async with running_hub(tmp_path, {"one": stepping_server(tmp_path)}) as hub:
            client, channel = HubClient(hub, {}, is_stateless=True), Channel()
            wanted = {"notifications": {"promptsListChanged": True}}
            listening = asyncio.create_task(client.request("subscriptions/listen", wanted, channel))
            await channel.next()
            assert (await client.request("subscriptions/listen", wanted))["error"]["code"] == -32603
            listening.cancel()

    asyncio.run(run())


def test_changes_before_the_acknowledgement_of_a_subscription_follow_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("forebay.hub.subscriptions._ACCEPT_SECONDS", 0.5)

    async def run() -> None:
        async with running_hub(tmp_path, {"one": stepping_server(tmp_path, deaf=["resources/subscribe"])}) as hub:
            client, channel = HubClient(hub, {}, is_stateless=True), Channel()
            wanted = {"notifications": {"promptsListChanged": True, "resourceSubscriptions": ["x://1"]}}
            listening = asyncio.create_task(client.request("subscriptions/listen", wanted, channel))
            await wait_until_async(lambda: "resources/subscribe" in _methods(tmp_path))
            await client.start_call({"notify": "notifications/prompts/list_changed", "count": 1})
            methods = [(await channel.next())["method"] for _ in range(2)]
            assert methods == ["notifications/subscriptions/acknowledged", "notifications/prompts/list_changed"]
            listening.cancel()

    asyncio.run(run())


def test_a_repetition_with_other_arguments_is_refused_however_deep_they_are(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_hub(tmp_path, {"one": stepping_server(tmp_path)}) as hub:

            async def call(depth: int, **more: Any) -> Any:
                deep = "[" * depth + "]" * depth
                params = {**make_call({"ask": 1}), **more, "x": 0, "_meta": _META}
                message = {"jsonrpc": "2.0", "id": 1, "method": CALL, "params": params}
                raw = json.dumps(message).replace('"x": 0', f'"x": {deep}').encode()
                response = await hub.handle_stateless(None, parse(raw), raw, Channel())
                assert isinstance(response, bytes)
                return json.loads(response)

            required = (await call(5000))["result"]
            answers = {key: {"action": "decline"} for key in required["inputRequests"]}
            more = {"requestState": required["requestState"], "inputResponses": answers}
            assert "requestState is unknown" in (await call(5001, **more))["error"]["message"]
            assert "result" in await call(5000, **more)

    asyncio.run(run())


_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": ELICITATION,
}


def test_a_principal_has_a_limited_number_of_sets_of_capabilities(tmp_path: Path) -> None:
    async def run() -> None:
        hub = Hub(make_settings(tmp_path, dict[str, UpstreamConfig]()))
        pool = TenantPool(hub._make_stateless, 2, None, max_tenants_per_principal=1)
        async with pool.acquire("ann", {}):
            with pytest.raises(Exception, match="1 different sets of client capabilities are in flight"):
                pool.acquire("ann", ELICITATION)
            async with pool.acquire("bob", ELICITATION):
                pass
            # Another one waits until the servers of this one have ended. It may be cancelled meanwhile.
            closing = asyncio.Event()
            (bob,) = [tenant for tenant in pool if tenant.session.principal == "bob"]
            close = bob.close

            async def close_later() -> None:
                await closing.wait()
                await close()

            bob.close = close_later  # type: ignore[method-assign]
            entry = pool.acquire("cid", {})
            waiting = asyncio.create_task(entry.__aenter__())
            await asyncio.sleep(0.01)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert entry.request_count == 0
            closing.set()
        await pool.close()
        await hub.close()

    asyncio.run(run())
