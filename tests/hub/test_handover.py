"""Paused calls that another process with the same store continues. Here two hubs in one process share a store.

`tests/backends/replicas` has the same with processes and stores on other machines.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from forebay.errors import StoreFull
from forebay.hub import handover
from forebay.hub.handover import Handover
from forebay.hub.hub import Hub
from forebay.store.mailbox import Mailbox
from hub_client import CALL, HubClient, get_value, make_call, read_record, running_hub, stepping_server
from waiting import wait_until_async

pytestmark = pytest.mark.slow

ELICITATION: dict[str, Any] = {"elicitation": {"form": {}}}
ACCEPTED = {"action": "accept", "content": {}}


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "_MIN_POLL_SECONDS", 0.005)
    monkeypatch.setattr(handover, "_MAX_POLL_SECONDS", 0.01)
    # Much longer than the process of a call takes to pick up answers.
    monkeypatch.setattr(handover, "_PICKUP_SECONDS", 1.5)


@contextlib.asynccontextmanager
async def _two_hubs(folder: Path, timeout: float = 60) -> AsyncIterator[list[Hub]]:
    """Run two hubs that continue each other's calls, and wait for each other at most `timeout` seconds.

    By themselves they do so only with stores on other machines.
    """
    async with contextlib.AsyncExitStack() as stack:
        hubs = []
        for name in ("one", "other"):
            upstreams = {"one": stepping_server(folder, name)}
            hub = await stack.enter_async_context(running_hub(folder, upstreams, answer_timeout_seconds=60))
            hub.policy.store.sweep()
            hub.handover = Handover(hub.policy.store.mailbox, hub.paused_calls, timeout)
            hubs.append(hub)
        yield hubs


async def _call(hub: Hub, call: dict[str, Any], required: dict[str, Any] | None = None) -> Any:
    if required is not None:
        answers = dict.fromkeys(required["inputRequests"], ACCEPTED)
        call = {**call, "requestState": required["requestState"], "inputResponses": answers}
    response = await HubClient(hub, ELICITATION, is_stateless=True).request(CALL, call)
    return response.get("error") or response["result"]


def test_a_call_of_several_rounds_is_continued_by_another_process(tmp_path: Path) -> None:
    async def run() -> None:
        async with _two_hubs(tmp_path) as (one, other):
            call = make_call({"ask": 2}, {"ask": 1})
            required = await _call(one, call)
            assert len(required["inputRequests"]) == 2
            required = await _call(other, call, required)
            assert len(required["inputRequests"]) == 1
            assert get_value({"result": await _call(other, call, required)}) == [ACCEPTED]
            # Each state can be used once.
            assert "requestState is unknown" in (await _call(other, call, required))["message"]
            assert not [message for message in read_record(tmp_path, "other") if message.get("method") == CALL]

    asyncio.run(run())


def test_an_offer_ends_with_the_call(tmp_path: Path) -> None:
    async def run() -> None:
        async with _two_hubs(tmp_path) as (one, other):
            call = make_call({"ask": 1})
            required = await _call(one, call)
            forged = {**required, "requestState": 5}
            for wrong in (make_call({"ask": 2}), {**call, "name": "other"}):
                assert "requestState is unknown" in (await _call(other, wrong, required))["message"]
            assert "requestState is unknown" in (await _call(other, call, forged))["message"]
            assert get_value({"result": await _call(one, call, required)}) == [ACCEPTED]
            mailbox, offer = one.policy.store.mailbox, f"offer/{required['requestState']}"
            await wait_until_async(lambda: mailbox.read(offer) is None)

    asyncio.run(run())


def test_the_error_of_a_call_reaches_the_other_process(tmp_path: Path) -> None:
    async def run() -> None:
        async with _two_hubs(tmp_path) as (one, other):
            call = make_call({"ask": 1}, {"die": 3})
            required = await _call(one, call)
            assert "ended with exit code 3" in (await _call(other, call, required))["message"]

    asyncio.run(run())


def test_a_server_that_does_not_answer_is_waited_for_only_for_a_time(tmp_path: Path) -> None:
    async def run() -> None:
        async with _two_hubs(tmp_path, timeout=1.5) as (one, other):
            call = make_call({"ask": 1}, "never")
            required = await _call(one, call)
            assert "has not answered; call again" in (await _call(other, call, required))["message"]

    asyncio.run(run())


def test_the_answers_for_a_process_that_is_gone_are_withdrawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover, "_PICKUP_SECONDS", 0.1)

    async def run() -> None:
        async with _two_hubs(tmp_path) as (one, other):
            call = make_call({"ask": 1})
            required = await _call(one, call)
            assert one.handover is not None
            await one.handover.close()
            assert "requestState is unknown" in (await _call(other, call, required))["message"]
            assert other.policy.store.mailbox.read(f"answers/{required['requestState']}") is None

    asyncio.run(run())


def test_a_full_store_limits_a_call_to_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    post = Mailbox.post

    def post_small(self: Mailbox, key: str, content: bytes, *args: Any) -> None:
        if key.startswith(full):
            raise StoreFull("the store is full")
        post(self, key, content, *args)

    monkeypatch.setattr(Mailbox, "post", post_small)
    full = "offer/"

    async def run() -> None:
        nonlocal full
        async with _two_hubs(tmp_path, timeout=1.5) as (one, other):
            call = make_call({"ask": 1})
            required = await _call(one, call)
            assert "requestState is unknown" in (await _call(other, call, required))["message"]
            assert get_value({"result": await _call(one, call, required)}) == [ACCEPTED]
            full = "outcome/"
            required = await _call(one, call)
            assert "has not answered; call again" in (await _call(other, call, required))["message"]

    asyncio.run(run())
    assert "only this replica can continue a paused call: the store is full" in caplog.text
    assert "a paused call cannot be continued at another replica: the store is full" in caplog.text
