"""Members of messages above 8 KiB, which are not parsed at first, mean the same as small ones."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hub_client import CALL, Channel, HubClient, get_value, make_call, read_record, running_hub, stepping_server
from waiting import wait_until_async
from wires import LEGACY, MODERN

pytestmark = pytest.mark.slow

ELICITATION: dict[str, Any] = {"elicitation": {}}


def _make_fields(count: int) -> dict[str, str]:
    return {f"field {number}": "value" for number in range(count)}


def list_subscribed(folder: Path) -> list[str]:
    """Return the resources that the server was asked to watch."""
    messages = [message for message in read_record(folder) if message.get("method") == "resources/subscribe"]
    return [message["params"]["uri"] for message in messages]


@pytest.mark.parametrize("count", [1, 120, 1000, 1001])
def test_a_subscription_to_many_resources(count: int, tmp_path: Path) -> None:
    async def run() -> None:
        async with running_hub(tmp_path, {"one": stepping_server(tmp_path)}) as hub:
            client, channel = HubClient(hub, {}, is_stateless=True), Channel()
            uris = [f"file:///home/user/project/src/some/folder/with/a/long/path/{number}" for number in range(count)]
            wanted = {"notifications": {"resourceSubscriptions": uris}}
            listening = asyncio.create_task(client.request("subscriptions/listen", wanted, channel))
            if count > 1000:
                assert "at most 1,000 subscriptions" in (await listening)["error"]["message"]
                return
            assert (await channel.next())["params"]["notifications"]["resourceSubscriptions"] == uris
            # The server may read them only after the client has its answer.
            await wait_until_async(lambda: list_subscribed(tmp_path) == uris)
            listening.cancel()

    asyncio.run(run())


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("size", [1, 300, 600])
def test_answers_of_any_size_continue_a_call(size: int, count: int, tmp_path: Path) -> None:
    async def run() -> None:
        async with running_hub(tmp_path, {"one": stepping_server(tmp_path)}) as hub:
            client = HubClient(hub, ELICITATION, is_stateless=True)
            call = make_call({"ask": count})
            required = (await client.request(CALL, call))["result"]
            answer = {"action": "accept", "content": _make_fields(size)}
            answers = dict.fromkeys(required["inputRequests"], answer)
            again = {**call, "requestState": required["requestState"], "inputResponses": answers}
            assert get_value(await client.request(CALL, again)) == [answer] * count

    asyncio.run(run())


@pytest.mark.parametrize(("count", "size"), [(2, 1), (40, 1), (1, 600), (40, 600)])
def test_questions_of_any_size_reach_a_client_with_a_session(count: int, size: int, tmp_path: Path) -> None:
    async def run() -> None:
        async with running_hub(tmp_path, {"one": stepping_server(tmp_path, era="modern")}) as hub:
            client, channel = HubClient(hub, ELICITATION), Channel()
            await client.initialize()
            schema = {"type": "object", "properties": {}, **_make_fields(size)}
            params = {"message": "Who are you? " * 10, "requestedSchema": schema, **_make_fields(size)}
            requests = {f"q{number}": {"method": "elicitation/create", "params": params} for number in range(count)}
            call = client.start_call({"require": requests}, channel=channel)
            await wait_until_async(lambda: len(channel.messages) == count or call.done())
            for question in channel.messages:
                assert question["params"] == params
                await client.answer(question, {"action": "decline"})
            assert get_value(await call) == {key: {"action": "decline"} for key in requests}

    asyncio.run(run())


@pytest.mark.parametrize("era", [LEGACY, MODERN])
@pytest.mark.parametrize("size", [1, 600, 4000])
def test_a_large_meta_says_who_sends_a_request(size: int, era: str, tmp_path: Path) -> None:
    async def run() -> None:
        async with running_hub(tmp_path, {"one": stepping_server(tmp_path)}) as hub:
            client, channel = HubClient(hub, {}, is_stateless=era == MODERN), Channel()
            if era == LEGACY:
                await client.initialize()
            meta = {**_make_fields(size), "progressToken": "mine", "example.com/fields": _make_fields(size)}
            response = await client.request(CALL, {**make_call({"progress": 1}), "_meta": meta}, channel)
            assert "result" in response
            assert channel.messages[0]["params"]["progressToken"] == "mine"
            sent = [message["params"]["_meta"] for message in read_record(tmp_path) if message.get("method") == CALL]
            assert sent[0].items() >= {"field 0": "value", "example.com/fields": _make_fields(size)}.items()

    asyncio.run(run())
