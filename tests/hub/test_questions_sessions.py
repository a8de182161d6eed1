"""Questions to clients of the handshake era: on which stream they arrive, and when they end."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hub_client import Channel, HubClient, get_value, read_record, running_hub, stepping_server
from waiting import wait_until_async

pytestmark = pytest.mark.slow

ELICITATION: dict[str, Any] = {"elicitation": {}}
ACCEPTED = {"action": "accept", "content": {}}


def _read_answers(folder: Path) -> list[dict[str, Any]]:
    return [message for message in read_record(folder) if "method" not in message]


@pytest.mark.parametrize("end", ["cancel", "close"])
def test_a_question_ends_with_its_call(end: str, tmp_path: Path) -> None:
    async def run() -> None:
        async with running_hub(tmp_path, {"one": stepping_server(tmp_path)}) as hub:
            # Another session keeps the connection open.
            other, client, channel = HubClient(hub, ELICITATION), HubClient(hub, ELICITATION), Channel()
            await other.initialize()
            await client.initialize()
            assert client.session is not None
            call = client.start_call({"ask": 1}, channel=channel, number=7)
            question = await channel.next()
            if end == "cancel":
                await client.send({"method": "notifications/cancelled", "params": {"requestId": 7}})
            else:
                call.cancel()
                await client.session.close()
            await wait_until_async(lambda: _read_answers(tmp_path))
            (answer,) = _read_answers(tmp_path)
            assert answer["error"]["message"] == "the call that this belongs to has been cancelled"
            assert (await channel.next())["params"]["requestId"] == question["id"]

    asyncio.run(run())


def test_a_question_outlives_an_answered_call(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_hub(tmp_path, {"one": stepping_server(tmp_path)}) as hub:
            client, channel = HubClient(hub, ELICITATION), Channel()
            await client.initialize()
            await client.start_call({"ask_without_waiting": "q"}, channel=channel)
            await client.answer(await channel.next(), ACCEPTED)
            await wait_until_async(lambda: _read_answers(tmp_path))
            assert _read_answers(tmp_path)[0]["result"] == ACCEPTED

    asyncio.run(run())


def test_a_question_outlives_the_cancellation_of_another_call(tmp_path: Path) -> None:
    """On stdio nobody knows which of the calls in flight a question belongs to."""

    async def run() -> None:
        async with running_hub(tmp_path, {"one": stepping_server(tmp_path)}) as hub:
            client, channel = HubClient(hub, ELICITATION), Channel()
            await client.initialize()
            call = client.start_call({"ask": 1}, channel=channel, number=1)
            question = await channel.next()
            other = client.start_call({"ask": 1}, channel=channel, number=2)
            later = await channel.next()
            await client.send({"method": "notifications/cancelled", "params": {"requestId": 2}})
            assert await other is None
            for asked in (question, later):
                await client.answer(asked, ACCEPTED)
            assert get_value(await call) == [ACCEPTED]

    asyncio.run(run())


def test_a_question_outside_of_calls_ends_with_its_session(tmp_path: Path) -> None:
    async def run() -> None:
        upstream = stepping_server(tmp_path, asks_at_start=True)
        async with running_hub(tmp_path, {"one": upstream}) as hub:
            client = HubClient(hub, ELICITATION)
            await client.initialize()
            assert client.session is not None
            await client.outbox.next()
            connection = client.session.connections["one"]
            # As if another session still used it.
            connection.tenants[hub.open_session(None, Channel())] = None
            await client.session.close()
            await wait_until_async(lambda: _read_answers(tmp_path))
            assert _read_answers(tmp_path)[0]["error"]["message"] == "the client has ended its session"
            await connection.close()

    asyncio.run(run())


QUESTION = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {"type": "object"}}}


def test_a_question_of_a_server_without_handshake_is_on_the_stream_of_its_call(tmp_path: Path) -> None:
    async def run() -> None:
        async with running_hub(tmp_path, {"one": stepping_server(tmp_path, era="modern")}) as hub:
            client, channel, other = HubClient(hub, ELICITATION), Channel(), Channel()
            await client.initialize()
            steps = ({"wait_for": str(tmp_path / "go")}, {"require": {"who": QUESTION}})
            call = client.start_call(*steps, channel=channel, number=1)
            later = client.start_call({"wait_for": str(tmp_path / "never")}, channel=other, number=2)
            await wait_until_async(lambda: len(read_record(tmp_path)) >= 4)
            (tmp_path / "go").touch()
            await client.answer(await channel.next(), ACCEPTED)
            assert get_value(await call) == {"who": ACCEPTED}
            assert (channel.messages, other.messages) == ([], [])
            later.cancel()

    asyncio.run(run())


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_client_that_does_not_finish_the_handshake_delays_its_questions_for_a_time_only(
    era: str, tmp_path: Path
) -> None:
    async def run() -> None:
        upstreams = {"one": stepping_server(tmp_path, era=era)}
        async with running_hub(tmp_path, upstreams, answer_timeout_seconds=0.1) as hub:
            client, channel = HubClient(hub, ELICITATION), Channel()
            await client.initialize(is_complete=False)
            step: dict[str, Any] = {"ask": 1} if era == "legacy" else {"require": {"who": QUESTION}}
            response = await asyncio.wait_for(client.start_call(step, channel=channel), 60)
            error = get_value(response)[0] if era == "legacy" else response["error"]
            assert error["message"] == "the client did not answer within 0.1 s"
            assert [message["method"] for message in channel.messages] == ["notifications/cancelled"]

    asyncio.run(run())
