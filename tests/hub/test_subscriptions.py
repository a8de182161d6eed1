"""Subscriptions to resources at servers that refuse them or do not answer."""

import asyncio
from pathlib import Path

import pytest
from hub_client import Channel, HubClient, read_record, running_hub, stepping_server

pytestmark = pytest.mark.slow


def test_a_subscription_without_an_answer_ends_and_does_not_block_others(tmp_path: Path) -> None:
    async def run() -> None:
        upstream = stepping_server(tmp_path, deaf=["resources/subscribe"])
        async with running_hub(tmp_path, {"one": upstream}, call_timeout_seconds=0.1) as hub:
            client = HubClient(hub, {})
            await client.initialize()
            for _ in range(2):
                response = await asyncio.wait_for(client.request("resources/subscribe", {"uri": "x://1"}), 60)
                assert "took longer than" in response["error"]["message"]
            assert (await client.request("resources/unsubscribe", {"uri": "x://1"}))["result"] == {}
        methods = [message["method"] for message in read_record(tmp_path)][3:]
        assert methods == ["resources/subscribe", "notifications/cancelled"] * 2

    asyncio.run(run())


async def _listen(client: HubClient, uris: list[str]) -> list[str]:
    """Return the resources that the client is told it will get updates of."""
    channel = Channel()
    wanted = {"notifications": {"resourceSubscriptions": uris}}
    listening = asyncio.create_task(client.request("subscriptions/listen", wanted, channel))
    acknowledgement = (await channel.next())["params"]["notifications"]
    listening.cancel()
    return list(acknowledgement.get("resourceSubscriptions", []))


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_only_subscriptions_that_a_server_accepts_are_acknowledged(era: str, tmp_path: Path) -> None:
    async def run() -> None:
        async with running_hub(tmp_path, {"one": stepping_server(tmp_path, era=era)}) as hub:
            client = HubClient(hub, {}, is_stateless=True)
            assert await _listen(client, ["x://1", "refused://1"]) == ["x://1"]
            assert await _listen(client, ["refused://1"]) == []

    asyncio.run(run())


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_server_without_subscriptions_accepts_none(era: str, tmp_path: Path) -> None:
    async def run() -> None:
        refused = ["resources/subscribe", "subscriptions/listen"]
        async with running_hub(tmp_path, {"one": stepping_server(tmp_path, era=era, refused=refused)}) as hub:
            assert await _listen(HubClient(hub, {}, is_stateless=True), ["x://1"]) == []

    asyncio.run(run())


def test_a_resource_that_no_server_has_is_not_acknowledged(tmp_path: Path) -> None:
    async def run() -> None:
        upstreams = {name: stepping_server(tmp_path, name) for name in ("one", "two")}
        async with running_hub(tmp_path, upstreams) as hub:
            assert await _listen(HubClient(hub, {}, is_stateless=True), ["x://1", "y://1"]) == ["x://1"]

    asyncio.run(run())
