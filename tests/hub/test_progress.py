"""Progress reaches only the request that it belongs to."""

import asyncio
import json
from pathlib import Path

import pytest
from hub_client import CALL, Channel, HubClient, make_call, read_record, running_hub, stepping_server
from waiting import wait_until_async

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_the_token_of_a_client_is_not_sent_with_the_request_of_a_merged_list(era: str, tmp_path: Path) -> None:
    """The server would take it for the id of another request."""

    async def run() -> None:
        upstreams = {name: stepping_server(tmp_path, name, era) for name in ("one", "two")}
        async with running_hub(tmp_path, upstreams) as hub:
            client = HubClient(hub, {})
            await client.initialize()
            meta = {"progressToken": 7, "example.com/trace": "abc"}
            response = await client.request("resources/list", {"_meta": meta})
            assert [resource["uri"] for resource in response["result"]["resources"]] == ["x://1", "x://1"]
        for name in upstreams:
            (sent,) = [message for message in read_record(tmp_path, name) if message.get("method") == "resources/list"]
            assert "progressToken" not in sent["params"]["_meta"]
            assert sent["params"]["_meta"]["example.com/trace"] == "abc"

    asyncio.run(run())


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_call_of_either_era_gets_its_own_progress(era: str, tmp_path: Path) -> None:
    async def run() -> None:
        async with running_hub(tmp_path, {"one": stepping_server(tmp_path, "one", era)}) as hub:
            for is_stateless in (False, True):
                client, channel = HubClient(hub, {}, is_stateless=is_stateless), Channel()
                if not is_stateless:
                    await client.initialize()
                params = {**make_call({"progress": 1}), "_meta": {"progressToken": "mine"}}
                assert "result" in await client.request(CALL, params, channel)
                assert channel.messages[0]["params"] == {"progressToken": "mine", "progress": 1}
                if not is_stateless and client.session is not None:
                    await client.session.close()

    asyncio.run(run())


def test_progress_on_the_stream_of_another_request_is_dropped(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_hub(tmp_path, {"one": stepping_server(tmp_path)}) as hub:
            client, channel = HubClient(hub, {}), Channel()
            await client.initialize()
            assert client.session is not None
            connection = client.session.connections["one"]
            params = {**make_call({"wait_for": str(tmp_path / "go")}), "_meta": {"progressToken": "mine"}}
            calling = asyncio.create_task(client.request(CALL, params, channel))
            await wait_until_async(lambda: [*connection.exchanges])
            (exchange,) = connection.exchanges
            for number, stream_request_id in enumerate((exchange.id + 1, exchange.id, None)):
                progress = {"progressToken": exchange.id, "progress": number}
                message = {"jsonrpc": "2.0", "method": "notifications/progress", "params": progress}
                connection.on_server_message(message, json.dumps(message).encode(), stream_request_id)
            (tmp_path / "go").touch()
            await calling
            assert [message["params"]["progress"] for message in channel.messages] == [1, 2]

    asyncio.run(run())
