"""A hub in the same process, with servers that take steps (`stepping_server.py`), and its clients."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from forebay.config.options import Settings
from forebay.config.upstreams import UpstreamConfig
from forebay.hub.hub import Hub
from forebay.wire.messages import parse, read_bytes
from serve_harness import upstream_command
from waiting import wait_until_async
from wires import MODERN_META

CALL = "tools/call"


class Channel:
    """The messages that reach a client on one of its streams. Implements `Reply`."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []

    def send(self, raw: bytes, _method: str, /) -> None:
        self.messages.append(json.loads(raw))

    async def next(self) -> dict[str, Any]:
        """Wait for a message, and take it."""
        await wait_until_async(lambda: self.messages)
        return self.messages.pop(0)


class HubClient:
    """A client of the handshake era, or a stateless one of 2026-07-28."""

    def __init__(self, hub: Hub, capabilities: dict[str, Any], *, is_stateless: bool = False) -> None:
        self.hub = hub
        self.outbox = Channel()
        self._capabilities = capabilities
        self.session = None if is_stateless else hub.open_session(None, self.outbox)

    async def initialize(self, *, is_complete: bool = True) -> Any:
        params = {"protocolVersion": "2025-11-25", "capabilities": self._capabilities}
        response = await self.request("initialize", params)
        if is_complete:
            await self.send({"method": "notifications/initialized"})
        return response

    async def send(self, message: dict[str, Any], channel: Channel | None = None) -> Any:
        raw = json.dumps({"jsonrpc": "2.0", **message}).encode()
        channel = channel or Channel()
        if self.session is not None:
            response = await self.session.handle(parse(raw), raw, channel)
        else:
            response = await self.hub.handle_stateless(None, parse(raw), raw, channel)
        return None if response is None else json.loads(read_bytes(response))

    async def request(self, method: str, params: Any = None, channel: Channel | None = None, number: int = 1) -> Any:
        params = params or {}
        if self.session is None:
            meta = {**MODERN_META, "io.modelcontextprotocol/clientCapabilities": self._capabilities}
            params = {**params, "_meta": {**meta, **params.get("_meta", {})}}
        return await self.send({"id": number, "method": method, "params": params}, channel)

    def start_call(self, *steps: Any, channel: Channel | None = None, number: int = 1) -> "asyncio.Task[Any]":
        return asyncio.create_task(self.request(CALL, make_call(*steps), channel, number))

    async def answer(self, question: dict[str, Any], result: dict[str, Any]) -> None:
        await self.send({"id": question["id"], "result": result})


def make_call(*steps: Any) -> dict[str, Any]:
    return {"name": "steps", "arguments": {"steps": steps}}


def get_value(response: dict[str, Any]) -> Any:
    """Return what the tool has returned."""
    return json.loads(response["result"]["content"][0]["text"])


def stepping_server(folder: Path, name: str = "one", era: str = "legacy", **options: Any) -> dict[str, Any]:
    """Return the configuration of an upstream. Its record is in the folder, under its name."""
    arguments = (era, str(folder / name), json.dumps({**options, "name": name}))
    return upstream_command("stepping_server.py", *arguments)


def read_record(folder: Path, name: str = "one") -> list[dict[str, Any]]:
    """Return the messages that a server has read."""
    path = folder / name
    return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


def make_settings(folder: Path, upstreams: dict[str, UpstreamConfig], **options: Any) -> Settings:
    """Return settings with a store in a folder."""
    options = {"store": (folder / "store").as_uri(), "sweep_interval": 0, "upstreams": upstreams, **options}
    # An option without a source would not reach the output policy: the store would be that of the user.
    return Settings(**options, sources=dict.fromkeys(options, "test"))


@contextlib.asynccontextmanager
async def running_hub(folder: Path, upstreams: dict[str, dict[str, Any]], **settings: Any) -> AsyncIterator[Hub]:
    configs = {
        name: UpstreamConfig(name=name, **{**upstream, "args": tuple(upstream.get("args", ()))})
        for name, upstream in upstreams.items()
    }
    hub = Hub(make_settings(folder, configs, **settings))
    assert hub.policy.store.folder == folder / "store"
    try:
        yield hub
    finally:
        await hub.close()
