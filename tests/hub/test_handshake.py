"""The handshake of a client with a session, and what it sends before."""

import asyncio
from pathlib import Path

import pytest
from hub_client import CALL, HubClient, make_call, read_record, running_hub, stepping_server
from waiting import wait_until_async

pytestmark = pytest.mark.slow


def test_requests_before_the_handshake_do_not_decide_what_the_client_can_do(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_hub(tmp_path, {"one": stepping_server(tmp_path)}) as hub:
            client = HubClient(hub, {"elicitation": {}})
            assert (await client.request("ping"))["result"] == {}
            refused = await client.request(CALL, make_call())
            assert refused["error"] == {"code": -32600, "message": "send initialize before other requests"}
            assert read_record(tmp_path) == []
            await client.initialize()
            assert "result" in await client.request(CALL, make_call())
            (sent, *_) = read_record(tmp_path)
            assert (sent["method"], sent["params"]["capabilities"]) == ("initialize", {"elicitation": {}})

    asyncio.run(run())


def test_a_ping_is_answered_while_servers_start(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_hub(tmp_path, {"one": stepping_server(tmp_path, deaf=["initialize"])}) as hub:
            client = HubClient(hub, {})
            starting = asyncio.create_task(client.initialize())
            await wait_until_async(lambda: read_record(tmp_path))
            assert (await client.request("ping", number=2))["result"] == {}
            assert not starting.done()
            starting.cancel()

    asyncio.run(run())
