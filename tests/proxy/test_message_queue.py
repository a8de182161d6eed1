"""The queue of messages: order, what is dropped when it is full, and when it overflows."""

import asyncio
import json
import logging
from typing import Any

import pytest
from forebay.proxy.message_queue import MAX_QUEUED_BYTES, MessageQueue

PROGRESS = "notifications/progress"
UPDATED = "notifications/resources/updated"
LARGE = "x" * (MAX_QUEUED_BYTES // 10)
"""Text of a message of which ten do not fit."""


class Client:
    """A client that reads only while `reads` is set."""

    def __init__(self) -> None:
        self.received: list[tuple[str, Any]] = []
        self.reads = asyncio.Event()
        self.overflows = 0
        self.queue = MessageQueue(self._receive, self._on_overflow)

    def send(self, method: str, params: dict[str, Any]) -> None:
        self.queue.put(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode(), method)

    async def _receive(self, raw: bytes) -> None:
        await self.reads.wait()
        message = json.loads(raw)
        self.received.append((message["method"], message["params"]))

    def _on_overflow(self) -> None:
        self.overflows += 1


async def read_all(client: Client) -> list[tuple[str, Any]]:
    client.reads.set()
    await client.queue.flush()
    return client.received


def test_a_client_that_reads_gets_everything_in_order() -> None:
    async def run() -> None:
        client = Client()
        client.reads.set()
        for number in range(100):
            client.send(PROGRESS, {"progress": number, "message": LARGE})
            await asyncio.sleep(0)
        assert [params["progress"] for _, params in await read_all(client)] == [*range(100)]

    asyncio.run(run())


def test_a_burst_of_small_messages_is_no_overflow() -> None:
    async def run() -> None:
        client = Client()
        for number in range(5000):
            client.send(UPDATED, {"uri": f"x://{number}"})
        assert client.overflows == 0
        assert [params["uri"] for _, params in await read_all(client)] == [f"x://{number}" for number in range(5000)]

    asyncio.run(run())


def test_progress_is_dropped_when_the_queue_is_full_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        client = Client()
        for number in range(100):
            client.send(PROGRESS, {"progress": number, "message": LARGE})
        progress = [params["progress"] for _, params in await read_all(client)]
        assert progress == [*range(9)]
        assert client.overflows == 0

    with caplog.at_level(logging.WARNING, "forebay"):
        asyncio.run(run())
    assert len(caplog.records) == 1


def test_other_notifications_replace_progress() -> None:
    async def run() -> None:
        client = Client()
        for number in range(9):
            client.send(PROGRESS, {"progress": number, "message": LARGE})
        client.send("notifications/custom", {"a": LARGE})
        assert await read_all(client) == [("notifications/custom", {"a": LARGE})]

    asyncio.run(run())


def test_an_overflow_is_reported_and_lasts_until_the_client_reads() -> None:
    async def run() -> None:
        client = Client()
        for _ in range(30):
            client.send("notifications/custom", {"a": LARGE})
        assert client.overflows == 1
        assert await read_all(client) == []
        client.send("notifications/custom", {"a": "later"})
        assert await read_all(client) == [("notifications/custom", {"a": "later"})]

    asyncio.run(run())


def test_the_same_update_is_queued_once() -> None:
    async def run() -> None:
        client = Client()
        for number in range(20_000):
            client.send(UPDATED, {"uri": f"x://{number % 3}"})
        assert client.overflows == 0
        await asyncio.sleep(0)
        # The first is being sent now, so that a change after it is told again.
        client.send(UPDATED, {"uri": "x://0"})
        assert [params["uri"] for _, params in await read_all(client)] == ["x://0", "x://1", "x://2", "x://0"]

    asyncio.run(run())


def test_large_notifications_count_by_their_size() -> None:
    async def run() -> None:
        client = Client()
        for size in (3 * MAX_QUEUED_BYTES, 10, MAX_QUEUED_BYTES // 2):
            client.send(PROGRESS, {"message": "x" * size})
        assert [len(params["message"]) for _, params in await read_all(client)] == [3 * MAX_QUEUED_BYTES]
        client.send(PROGRESS, {"message": "later"})
        assert len(await read_all(client)) == 2

    asyncio.run(run())


@pytest.mark.parametrize("method", [UPDATED, "notifications/tools/list_changed"])
def test_each_subscription_gets_its_own_notification(method: str) -> None:
    async def run() -> None:
        client = Client()
        client.send("notifications/custom", {})
        await asyncio.sleep(0)
        for subscription in (1, "1", 2, 1, None):
            meta = {"io.modelcontextprotocol/subscriptionId": subscription}
            client.send(method, {"uri": "x://0", "_meta": {} if subscription is None else meta})
        received = await read_all(client)
        subscriptions = [params["_meta"].get("io.modelcontextprotocol/subscriptionId") for _, params in received[1:]]
        assert subscriptions == [1, "1", 2, None]

    asyncio.run(run())
