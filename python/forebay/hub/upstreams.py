"""What is behind `forebay serve`: for every client the same operations, and connections to MCP servers."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    UNSUPPORTED_PROTOCOL_VERSION,
    Implementation,
)

import forebay
from forebay.config.targets import Target
from forebay.hub.client_peer import Front
from forebay.hub.functions import from_module
from forebay.hub.intercepted_stream import Attended, AttendedWriting
from forebay.hub.transport import relayed
from forebay.operations.errors import CallError
from forebay.operations.mcp.connection import Connection
from forebay.operations.mcp.tools import MCPOperations
from forebay.operations.openapi import HTTPOperations, from_openapi
from forebay.operations.registry import OperationRegistry
from forebay.outputs.policy import Gate
from forebay.proxy.backoff import Pace
from forebay.proxy.http.upstream import HttpUpstream
from forebay.proxy.stdio.process import Process
from forebay.proxy.stdio.upstream import Upstream
from forebay.wire.lines import Lines
from forebay.wire.messages import is_modern
from forebay.wire.spool import spool_beside

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

    from forebay.config.options import Settings
    from forebay.operations.spec import Operation

__all__ = ["MCPUpstream", "Sources", "retried"]

_log = logging.getLogger("forebay")

_FIRST_DELAY, _LONGEST_DELAY = 1.0, 30.0
"""Seconds between two attempts to reach an upstream."""

_API_TIMEOUT = 60.0
"""Seconds that a call of an API may take if nobody says how long."""

_REFUSALS = (METHOD_NOT_FOUND, INVALID_REQUEST, INVALID_PARAMS, UNSUPPORTED_PROTOCOL_VERSION)


async def retried(name: str, attempt: Callable[[], Coroutine[Any, Any, None]], tried: asyncio.Event) -> None:
    """Until it succeeds; `tried` is set after the first time, whatever came of it."""
    delay = _FIRST_DELAY
    while True:
        try:
            await attempt()
        except Exception as error:
            _log.warning("forebay: the upstream %s cannot be reached, and is tried again: %s", name, error)
            _log.debug("forebay: the upstream %s", name, exc_info=True)
        else:
            return
        finally:
            tried.set()
        await asyncio.sleep(delay)
        delay = min(2 * delay, _LONGEST_DELAY)


class Sources:
    """Operations that need no connection of a client's own: of APIs and of Python modules."""

    def __init__(self, targets: Mapping[str, Target], call_timeout: float | None = None) -> None:
        self.targets = targets
        # Less is seen to where calls are made; it is also what a document may take.
        self._timeout = max(_API_TIMEOUT, call_timeout or 0)
        self._operations: list[Operation] = []
        self._registries: dict[OperationRegistry, Callable[[], None]] = {}
        self._apis: list[HTTPOperations] = []
        self._tasks: list[asyncio.Task[None]] = []
        for target in targets.values():
            if target.python is not None:
                self._operations += from_module(target.python, namespace=target.name, folder=target.folder)

    async def start(self, patience: float) -> None:
        """Reads the documents of APIs; those that take longer come later."""
        tried = []
        for target in self.targets.values():
            if target.openapi is not None:
                tried.append(asyncio.Event())
                self._tasks.append(asyncio.create_task(retried(target.name, self._reading(target), tried[-1])))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience):
                for event in tried:
                    await event.wait()

    def _reading(self, target: Target) -> Callable[[], Coroutine[Any, Any, None]]:
        async def read() -> None:
            document = str(target.openapi)
            api = await from_openapi(
                document if "://" in document else Path(document),
                namespace=target.name,
                base_url=target.base_url,
                security=target.auth,
                headers=target.headers,
                timeout=self._timeout,
            )
            self._apis.append(api)
            self._operations += api
            for registry, changed in self._registries.items():
                _register(api, registry)
                changed()

        return read

    def attach(self, registry: OperationRegistry, changed: Callable[[], None]) -> Callable[[], object]:
        """Registers what is there, and what comes later. Returns what ends that."""
        _register(self._operations, registry)
        self._registries[registry] = changed
        return lambda: self._registries.pop(registry, None)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        for api in self._apis:
            await api.aclose()


def _register(operations: "list[Operation] | HTTPOperations", registry: OperationRegistry) -> None:
    for operation in operations:
        registry.register(operation.spec, operation.handler)


class MCPUpstream:
    """A client's own connection to a server of MCP."""

    def __init__(
        self,
        target: Target,
        front: Front,
        gate: Gate,
        settings: "Settings",
        changed: Callable[[], None],
    ) -> None:
        self.name = target.name
        self.call_timeout = settings.call_timeout_seconds
        self._target = target
        self._front = front
        self._gate = gate
        self._settings = settings
        self._changed = changed
        self._attended: Attended | None = None
        self._operations: MCPOperations | None = None

    async def connect(self, registry: OperationRegistry) -> None:
        """Connects, and registers the server's tools. Raises `CallError`."""
        if self._front.is_lasting:
            # As its client does, so that all that either of them knows is known to the other.
            try:
                operations = await self._connected("legacy")
            except CallError as error:
                if not _is_refused(error):
                    raise
                operations = await self._connected("auto")
        else:
            operations = await self._connected("auto")
        operations.register_into(registry)
        self._operations = operations

    async def _connected(self, mode: str) -> MCPOperations:
        info = Implementation(name="forebay", version=forebay.__version__)
        pattern = Client(self._transport, mode=mode, client_info=info)  # type: ignore[arg-type]
        return await MCPOperations(
            pattern, namespace=self.name, call_timeout=self.call_timeout, changed=self._changed
        ).connect()

    @contextlib.asynccontextmanager
    async def _transport(self) -> "AsyncIterator[TransportStreams]":
        async with relayed(self._upstream, self._gate) as (reading, writing):
            self._attended = attended = Attended(reading, writing, self._front, self)
            try:
                yield attended, AttendedWriting(attended, writing)
            finally:
                await attended.aclose()

    def _upstream(self) -> Upstream | HttpUpstream:
        target, settings = self._target, self._settings
        make_spool = partial(spool_beside, self._gate.store)
        limits: dict[str, Any] = {"most_bytes": settings.stream_above_bytes, "make_spool": make_spool}
        if target.url is not None:
            headers = [f"{name}: {value}" for name, value in target.headers.items()]
            return HttpUpstream(target.url, headers=headers, schema_of=self._input_schema, **limits)
        command = [str(target.command), *target.args]
        return Upstream(
            Process(command, env=target.env, cwd=target.cwd),
            command,
            env=target.env,
            cwd=target.cwd,
            lines=partial(Lines, **limits),
            pace=Pace(settings.restart_limit, settings.restart_window_seconds, settings.restart_delay_seconds),
            grace=settings.shutdown_grace_seconds,
        )

    def _input_schema(self, tool: str) -> Mapping[str, Any] | None:
        """What a server over HTTP wants to see in headers is said by the schema."""
        found = None if self._operations is None else self._operations.find(tool)
        schema = None if found is None else found.spec.input_schema
        return schema if isinstance(schema, Mapping) else None

    async def connection(self) -> Connection:
        """The connection, made again if it was lost. Raises `CallError`."""
        if self._operations is None:
            raise CallError("EXECUTION_ERROR", f"{self.name} cannot be reached just now; try again in a while")
        return await self._operations.connection()

    @property
    def hello(self) -> dict[str, Any]:
        """What the server said of itself; nothing, while it is not connected."""
        return {} if self._attended is None or self._operations is None else self._attended.hello

    @property
    def capabilities(self) -> dict[str, Any]:
        capabilities = self.hello.get("capabilities")
        return capabilities if isinstance(capabilities, dict) else {}

    async def is_modern(self) -> bool:
        """Whether it speaks the newest version of the protocol."""
        return is_modern((await self.connection()).client.protocol_version)

    async def close(self) -> None:
        if self._operations is not None:
            await self._operations.close()


def _is_refused(error: CallError) -> bool:
    """Whether a server has answered that it knows no handshake."""
    cause = error.__cause__
    return isinstance(cause, MCPError) and cause.error.code in _REFUSALS
