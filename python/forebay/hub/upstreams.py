"""Upstreams of the hub: HTTP APIs and Python modules, which all clients share, and connections to MCP servers."""

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
from forebay.config.upstreams import UpstreamConfig
from forebay.hub.client_peer import ClientPeer
from forebay.hub.functions import from_module
from forebay.hub.intercepted_stream import InterceptedStream, InterceptedWriter
from forebay.hub.transport import open_transport
from forebay.operations.errors import CallError
from forebay.operations.mcp.connection import ClientConnection
from forebay.operations.mcp.errors import ConnectionLost, HTTPStatusError, SessionExpired
from forebay.operations.mcp.operations import MCPOperations
from forebay.operations.registry import OperationRegistry
from forebay.outputs.policy import OutputPolicy
from forebay.proxy.http.upstream import HttpUpstream
from forebay.proxy.process_group import Grace
from forebay.proxy.stdio import Process, RestartBackoff, StdioUpstream
from forebay.store.threads import run_in_thread
from forebay.wire.framing import LineReader, create_spool
from forebay.wire.protocol import is_modern

if TYPE_CHECKING:
    from forebay.adapters.sdk_internals import TransportStreams
    from forebay.config.options import Settings
    from forebay.operations.openapi import HTTPOperations
    from forebay.operations.spec import Operation

__all__ = ["UPSTREAM_ERRORS", "MCPUpstream", "Upstreams", "retry_until_connected"]

_log = logging.getLogger("forebay")

UPSTREAM_ERRORS = (CallError, MCPError, ConnectionLost, HTTPStatusError, SessionExpired, TimeoutError)
"""Errors that a request to an MCP server may raise."""

_MIN_DELAY_SECONDS, _MAX_DELAY_SECONDS = 1.0, 30.0
"""Shortest and longest delay between attempts to reach an upstream."""

_API_TIMEOUT_SECONDS = 60.0
"""Timeout of an API call if none is configured."""

_NO_HANDSHAKE_CODES = (METHOD_NOT_FOUND, INVALID_REQUEST, INVALID_PARAMS, UNSUPPORTED_PROTOCOL_VERSION)


async def retry_until_connected(
    name: str, attempt: Callable[[], Coroutine[Any, Any, None]], first_attempt_done: asyncio.Event
) -> None:
    """Repeat `attempt` until it succeeds, and log each failure. `first_attempt_done` is set after the first attempt."""
    delay = _MIN_DELAY_SECONDS
    while True:
        try:
            await attempt()
        except Exception as error:
            _log.warning("forebay: the upstream %s cannot be used, and is tried again in %g s: %s", name, delay, error)
            _log.debug("forebay: the upstream %s", name, exc_info=True)
        else:
            return
        finally:
            first_attempt_done.set()
        await asyncio.sleep(delay)
        delay = min(2 * delay, _MAX_DELAY_SECONDS)


class Upstreams:
    """The operations of HTTP APIs and Python modules, which all clients share."""

    def __init__(
        self,
        configs: Mapping[str, UpstreamConfig],
        call_timeout: float | None = None,
        grace_seconds: float | None = None,
    ) -> None:
        self.configs = configs
        self.grace = Grace(grace_seconds)
        # This timeout also limits loading the OpenAPI document. If the call timeout is shorter, the caller applies it.
        self._timeout = max(_API_TIMEOUT_SECONDS, call_timeout or 0)
        self._operations: list[Operation] = []
        self._registries: dict[OperationRegistry, Callable[[], None]] = {}
        self._apis: list[HTTPOperations] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, wait_seconds: float) -> None:
        """Start to load the OpenAPI documents and modules, and wait for them at most `wait_seconds`."""
        first_attempts = []
        for config in self.configs.values():
            if config.upstream_type in ("openapi", "python"):
                load = self._load_document if config.openapi is not None else self._load_module
                first_attempts.append(asyncio.Event())
                self._tasks.append(
                    asyncio.create_task(retry_until_connected(config.name, partial(load, config), first_attempts[-1]))
                )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_seconds):
                for event in first_attempts:
                    await event.wait()

    async def _load_document(self, config: UpstreamConfig) -> None:
        # Only here, because it takes as long to import as the store, and most configurations have no API.
        from forebay.operations.openapi import from_openapi

        document = str(config.openapi)
        api = await from_openapi(
            document if "://" in document else Path(document),
            namespace=config.name,
            base_url=config.base_url,
            security=config.auth,
            headers=config.headers,
            timeout=self._timeout,
            cross_host_redirects=config.cross_host_redirects,
        )
        self._apis.append(api)
        self._add([*api])

    async def _load_module(self, config: UpstreamConfig) -> None:
        # In a thread, because a module that takes long to import must not delay other upstreams.
        load = partial(from_module, str(config.python), namespace=config.name, folder=config.folder)
        self._add(await run_in_thread(load, daemon=True))

    def _add(self, operations: "list[Operation]") -> None:
        self._operations += operations
        for registry, on_change in self._registries.items():
            _register(operations, registry)
            on_change()

    def attach(self, registry: OperationRegistry, on_change: Callable[[], None]) -> Callable[[], object]:
        """Register current and future operations in `registry`. Return a function that stops registering more."""
        _register(self._operations, registry)
        self._registries[registry] = on_change
        return lambda: self._registries.pop(registry, None)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        for api in self._apis:
            await api.aclose()


def _register(operations: "list[Operation]", registry: OperationRegistry) -> None:
    for operation in operations:
        registry.register(operation.spec, operation.handler)


class MCPUpstream:
    """Connection of a tenant to one MCP server."""

    def __init__(
        self,
        config: UpstreamConfig,
        client: ClientPeer,
        policy: OutputPolicy,
        settings: "Settings",
        grace: Grace,
        on_tools_changed: Callable[[], None],
    ) -> None:
        self.name = config.name
        self.call_timeout = settings.call_timeout_seconds
        self._config = config
        self._client = client
        self._policy = policy
        self._settings = settings
        self._grace = grace
        self._on_tools_changed = on_tools_changed
        self._stream: InterceptedStream | None = None
        self._operations: MCPOperations | None = None

    async def connect(self, registry: OperationRegistry) -> None:
        """Connect and register the server's tools. Raises `CallError`."""
        if self._client.has_connection:
            # Use the client's protocol era if the server has it, so that nothing needs translation.
            try:
                operations = await self._connect("legacy")
            except CallError as error:
                if not _is_handshake_refused(error):
                    raise
                operations = await self._connect("auto")
        else:
            operations = await self._connect("auto")
        operations.register_into(registry)
        self._operations = operations

    async def _connect(self, mode: str) -> MCPOperations:
        info = Implementation(name="forebay", version=forebay.__version__)
        template = Client(self._open_transport, mode=mode, client_info=info)  # type: ignore[arg-type]
        return await MCPOperations(
            template, namespace=self.name, call_timeout=self.call_timeout, on_change=self._on_tools_changed
        ).connect()

    @contextlib.asynccontextmanager
    async def _open_transport(self) -> "AsyncIterator[TransportStreams]":
        async with open_transport(self._make_upstream, self._policy) as (read_stream, write_stream):
            self._stream = stream = InterceptedStream(read_stream, write_stream, self._client, self)
            try:
                yield stream, InterceptedWriter(stream, write_stream)
            finally:
                await stream.aclose()

    def _make_upstream(self) -> StdioUpstream | HttpUpstream:
        config, settings = self._config, self._settings
        make_spool = partial(create_spool, self._policy.store)
        limits: dict[str, Any] = {"spool_above_bytes": settings.spool_above_bytes, "make_spool": make_spool}
        if config.url is not None:
            headers = [f"{name}: {value}" for name, value in config.headers.items()]
            return HttpUpstream(config.url, headers=headers, find_schema=self._get_input_schema, **limits)
        command = [str(config.command), *config.args]
        return StdioUpstream(
            Process(command, env=config.env, cwd=config.cwd),
            command,
            env=config.env,
            cwd=config.cwd,
            make_reader=partial(LineReader, **limits),
            backoff=RestartBackoff(
                settings.restart_limit, settings.restart_window_seconds, settings.restart_delay_seconds
            ),
            grace=self._grace,
            name=f"the upstream {self.name}",
        )

    def _get_input_schema(self, tool: str) -> Mapping[str, Any] | None:
        """Return a tool's input schema, which says which arguments an HTTP server wants as headers."""
        operation = None if self._operations is None else self._operations.find(tool)
        schema = None if operation is None else operation.spec.input_schema
        return schema if isinstance(schema, Mapping) else None

    async def get_connection(self) -> ClientConnection:
        """Return the connection, reconnecting if it was lost. Raises `CallError`."""
        if self._operations is None:
            raise CallError("EXECUTION_ERROR", f"{self.name} cannot be reached just now; try again in a while")
        return await self._operations.get_connection()

    @property
    def initialize_result(self) -> dict[str, Any]:
        """The server's `initialize` result; empty while it is not connected."""
        return {} if self._stream is None or self._operations is None else self._stream.initialize_result

    @property
    def capabilities(self) -> dict[str, Any]:
        capabilities = self.initialize_result.get("capabilities")
        return capabilities if isinstance(capabilities, dict) else {}

    async def is_modern(self) -> bool:
        """Return whether the server speaks 2026-07-28 or later."""
        return is_modern((await self.get_connection()).client.protocol_version)

    async def close(self) -> None:
        if self._operations is not None:
            await self._operations.close()


def _is_handshake_refused(error: CallError) -> bool:
    """Return whether the server answered that it does not support `initialize`."""
    cause = error.__cause__
    return isinstance(cause, MCPError) and cause.error.code in _NO_HANDSHAKE_CODES
