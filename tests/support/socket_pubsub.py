"""A transport for events over a socket, and a server of operations behind it."""

import asyncio
import sys
from typing import Any

from forebay.envelope import Body
from forebay.operations import (
    AccessControl,
    CallContext,
    CallError,
    CallEvent,
    CallEventName,
    CallHandler,
    InProcessPubSub,
    Operation,
    OperationRegistry,
    OperationSpec,
    PendingRequestMap,
    event_from_json,
    event_to_json,
)


class SocketPubSub(InProcessPubSub):
    """Topics shared by two processes: both receive what either publishes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__()
        self._reader = reader
        self._writer = writer

    async def publish(self, topic: CallEventName, event: CallEvent) -> None:
        for part in (topic.encode(), text := event_to_json(event)):
            self._writer.write(len(part).to_bytes(4, "big") + part)
        await self._writer.drain()
        await super().publish(topic, event_from_json(text))

    def close(self) -> None:
        self._writer.close()

    async def receive(self) -> None:
        """Deliver the events of the other process until it disconnects."""
        try:
            while True:
                topic: Any = (await self._part()).decode()
                await super().publish(topic, event_from_json(await self._part()))
        except (asyncio.IncompleteReadError, ConnectionError):
            self.close()

    async def _part(self) -> bytes:
        return await self._reader.readexactly(int.from_bytes(await self._reader.readexactly(4), "big"))


def operations() -> OperationRegistry:
    cancelled = 0

    def spec(name: str, **more: Any) -> OperationSpec:
        return OperationSpec(namespace="far", name=name, **more)

    async def wait(_: Any, __: CallContext) -> None:
        nonlocal cancelled
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled += 1
            raise

    def refuse(*_: Any) -> None:
        raise CallError("ACCESS_DENIED", "not today", {"why": object()})

    async def nested(value: Any, context: CallContext) -> Any:
        return await context.env.far.who(value)

    async def who(_: Any, context: CallContext) -> Any:
        identity = context.identity
        return {
            "id": identity and identity.id,
            "scopes": sorted(identity.scopes) if identity else [],
            "has_parent": context.parent_request_id is not None,
            "has_deadline": context.deadline is not None,
        }

    return OperationRegistry(
        [
            Operation(spec("echo"), lambda value, _: value),
            Operation(spec("body"), lambda *_: Body(b'{"a":\n 1.50}', "application/json")),
            Operation(spec("unwritable"), lambda *_: object()),
            Operation(spec("refuse"), refuse),
            Operation(spec("wait"), wait),
            Operation(spec("cancelled"), lambda *_: cancelled),
            Operation(spec("who"), who),
            Operation(spec("nested"), nested),
            Operation(spec("secret", access_control=AccessControl(["admin"])), lambda *_: "gold"),
        ]
    )


async def serve(port: int) -> None:
    pubsub = SocketPubSub(*await asyncio.open_connection("127.0.0.1", port))
    async with PendingRequestMap(pubsub) as calls, CallHandler(operations(), calls):
        await pubsub.receive()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
