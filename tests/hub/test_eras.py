"""Clients of one protocol era with servers of the other: subscriptions, tools, large members, and what cannot work."""

import asyncio
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from forebay.hub.hub import Hub
from forebay.wire.lazy_json import dump
from forebay.wire.messages import parse
from hub_client import CALL, Channel, HubClient, get_value, make_call, read_record, running_hub, stepping_server
from waiting import wait_until_async
from wires import INITIALIZE_PARAMS

pytestmark = pytest.mark.slow

QUESTION = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {"type": "object"}}}


async def _connect(hub: Hub) -> HubClient:
    client = HubClient(hub, {})
    await client.initialize()
    return client


def _count(folder: Path, method: str) -> int:
    return sum(message.get("method") == method for message in read_record(folder))


def test_a_session_subscribes_at_a_server_without_sessions(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_hub(tmp_path, {"one": stepping_server(tmp_path, era="modern")}) as hub:
            client = await _connect(hub)
            # The hub itself follows changes of the lists.
            await wait_until_async(lambda: _count(tmp_path, "subscriptions/listen") == 1)
            for _ in range(2):
                assert (await client.request("resources/subscribe", {"uri": "x://1"}))["result"] == {}
            assert (await client.request("resources/subscribe", {"uri": "x://2"}))["result"] == {}
            # The second request for the same resource changes nothing.
            assert _count(tmp_path, "subscriptions/listen") == 3
            wanted = read_record(tmp_path)[-1]["params"]["notifications"]
            assert wanted == {"resourceSubscriptions": ["x://1", "x://2"]}
            listening = read_record(tmp_path)[-1]["id"]
            meta = {"io.modelcontextprotocol/subscriptionId": listening}
            updated = {"method": "notifications/resources/updated", "params": {"uri": "x://2", "_meta": meta}}
            await client.start_call({"write": dump({"jsonrpc": "2.0", **updated}).decode()})
            message = await client.outbox.next()
            assert (message["method"], message["params"]) == (updated["method"], {"uri": "x://2"})
            for uri in ("x://1", "x://2"):
                assert (await client.request("resources/unsubscribe", {"uri": uri}))["result"] == {}
            assert _count(tmp_path, "subscriptions/listen") == 4
            await wait_until_async(lambda: _count(tmp_path, "notifications/cancelled") == 3)

    asyncio.run(run())


def test_the_subscriptions_of_a_session_end_with_it(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_hub(tmp_path, {"one": stepping_server(tmp_path, era="modern")}) as hub:
            client, other = await _connect(hub), await _connect(hub)
            await client.request("resources/subscribe", {"uri": "x://1"})
            assert client.session is not None
            await client.session.close()
            await wait_until_async(lambda: _count(tmp_path, "notifications/cancelled") == 1)
            assert get_value(await other.start_call()) is None

    asyncio.run(run())


def test_a_session_gets_objects_from_a_tool_that_returns_others(tmp_path: Path) -> None:
    """Before 2026-07-28 structured content is an object."""

    async def run() -> None:
        definition = {"outputSchema": {"type": "array", "items": {"type": "integer"}}}
        async with running_hub(
            tmp_path, {"one": stepping_server(tmp_path, era="modern", definition=definition)}
        ) as hub:
            client = await _connect(hub)
            tools = (await client.request("tools/list"))["result"]["tools"]
            (schema,) = [tool["outputSchema"] for tool in tools if tool["name"] == "steps"]
            assert schema["type"] == "object"
            answer = {"content": [{"type": "text", "text": "[1]"}], "structuredContent": [1]}
            result = (await client.start_call({"result": answer}))["result"]
            assert result["structuredContent"] == {"result": [1]}
            jsonschema.validate(result["structuredContent"], schema)
            with pytest.raises(jsonschema.ValidationError):
                jsonschema.validate([1], schema)

    asyncio.run(run())


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("is_stateless", [False, True])
@pytest.mark.parametrize("is_renamed", [False, True])
def test_params_and_results_of_any_size_are_translated(
    is_renamed: bool, is_stateless: bool, era: str, tmp_path: Path
) -> None:
    async def run() -> None:
        names = ("one", "two") if is_renamed else ("one",)
        upstreams = {name: stepping_server(tmp_path, name, era) for name in names}
        async with running_hub(tmp_path, upstreams, output_mode="inline") as hub:
            client = HubClient(hub, {}, is_stateless=is_stateless)
            if not is_stateless:
                await client.initialize()
            # More members than are parsed, in the result and beside the arguments.
            fields = {f"field {number}": "v" * 100 for number in range(4000)}
            call = {**make_call({"result": {"content": [], **fields}}), "x-more": fields}
            if is_renamed:
                call["name"] = "one_steps"
            response = await client.request(CALL, call)
            assert {key: response["result"][key] for key in fields} == fields
            assert ("resultType" in response["result"]) == is_stateless
            (sent,) = [message["params"] for message in read_record(tmp_path, "one") if message.get("method") == CALL]
            assert (sent["name"], sent["x-more"]) == ("steps", fields)

    asyncio.run(run())


def test_very_many_params_are_translated(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_hub(tmp_path, {"one": stepping_server(tmp_path, era="modern")}) as hub:
            client = await _connect(hub)
            fields = {f"field {number}": "v" * 100 for number in range(4000)}
            for method, params in (("resources/list", fields), (CALL, {**make_call(), "_meta": fields})):
                assert "result" in await client.request(method, params)
                sent = read_record(tmp_path)[-1]
                assert sent["method"] == method
                meta = sent["params"]["_meta"]
                assert meta["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
                assert fields.items() <= {**sent["params"], **meta}.items()

    asyncio.run(run())


def test_a_client_without_session_cannot_be_asked(tmp_path: Path) -> None:
    async def run() -> None:
        upstream = stepping_server(tmp_path, era="modern", capabilities={"tools": {}, "resources": 5})
        async with running_hub(tmp_path, {"one": upstream}) as hub:

            async def request(method: str, params: Any, principal: str = "ann") -> Any:
                raw = dump({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
                return parse(await hub.handle_sessionless(principal, parse(raw), raw, Channel()))  # type: ignore[arg-type]

            capabilities = (await request("initialize", INITIALIZE_PARAMS))["result"]["capabilities"]
            assert capabilities["resources"] == 5
            error = (await request(CALL, make_call({"require": {"who": QUESTION}})))["error"]
            assert "which needs a session" in error["message"]
            assert "result" in await request(CALL, make_call())

    asyncio.run(run())


def test_a_full_gateway_refuses_requests_without_session(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_hub(tmp_path, {"one": stepping_server(tmp_path)}, max_principals=1) as hub:

            def start(principal: str, *steps: Any) -> "asyncio.Task[Any]":
                raw = dump({"jsonrpc": "2.0", "id": 1, "method": CALL, "params": make_call(*steps)})
                return asyncio.create_task(hub.handle_sessionless(principal, parse(raw), raw, Channel()))

            call = start("ann", {"wait_for": str(tmp_path / "go")})
            await wait_until_async(lambda: _count(tmp_path, CALL))
            error = parse(await start("bob"))["error"]
            assert "which is the limit" in error["message"]
            (tmp_path / "go").touch()
            assert "result" in parse(await call)

    asyncio.run(run())


def test_requests_of_the_wrong_era_are_errors(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_hub(tmp_path, {"one": stepping_server(tmp_path)}) as hub:
            client = HubClient(hub, {}, is_stateless=True)
            assert (await client.request("initialize", INITIALIZE_PARAMS))["error"]["code"] == -32601
            # The server speaks an earlier version, which has pings.
            assert "result" in await client.request("ping")
            # A response, of which stateless clients have none to send.
            assert await client.send({"id": 1, "result": {}}) is None
            bare = {"id": 1, "method": "ping", "params": {"_meta": {}}}
            assert "missing the required envelope" in (await client.send(bare))["error"]["message"]

    asyncio.run(run())
