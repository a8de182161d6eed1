"""The tools of an MCP server as operations, over stdio, HTTP or in memory, in every version of the protocol.

async with from_mcp(["my-server"], namespace="crm") as server:
    server.register_into(registry)
    envelope = await registry.execute("crm.find", {"name": "Ada"})
"""

import asyncio
import functools
import json
import logging
import re
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from mcp_types import Tool

from forebay.errors import InvalidArgument
from forebay.operations.errors import CallError
from forebay.operations.mcp.connection import ClientConnection
from forebay.operations.mcp.errors import (
    ConnectionLost,
    SessionExpired,
    is_unknown_tool,
    result_to_envelope,
    to_call_error,
)
from forebay.operations.mcp.shared_connection import SharedConnection
from forebay.operations.mcp.targets import Target
from forebay.operations.registry import OperationRegistry
from forebay.operations.spec import CallContext, Operation, OperationSpec

__all__ = ["MCPOperations", "from_mcp"]

_log = logging.getLogger("forebay")

_DEFAULT_NAMESPACE = "mcp"


class MCPOperations:
    """The tools of a server, as operations. Use it with `async with`, or `connect` and `close` it.

    What the server lists is followed, in all registries that they were registered into.

    `target` is a URL, a command as a list, `StdioServerParameters`, a server object, a transport, a function that
    makes one, or an `mcp.Client`. A client that is not connected yet serves as the pattern of every connection; one
    that is stays its owner's, and neither it nor a transport can be connected again once it is lost.

    `namespace` is the server's name if it is not given. `mode` is as `mcp.Client` has it. With `parse_json`, a tool
    that lists an output schema and answers with one text that is JSON, and nothing structured, has answered that JSON.
    A connection that is lost is made again by the next call, in up to `connect_attempts` of `connect_timeout` seconds.
    A call that has no deadline of its own has `call_timeout` seconds; with `None`, it waits for as long as it takes.
    `on_change` is called whenever other tools are listed than before, or the server says that they changed.
    """

    def __init__(
        self,
        target: Target,
        *,
        namespace: str | None = None,
        mode: str = "auto",
        parse_json: bool = True,
        connect_timeout: float = 30.0,
        connect_attempts: int = 5,
        call_timeout: float | None = 300.0,
        on_change: Callable[[], object] = lambda: None,
    ) -> None:
        if call_timeout is not None and call_timeout <= 0:
            raise InvalidArgument("call_timeout must be more than 0")
        if namespace is not None:
            OperationSpec(namespace=namespace, name="any")
        self._shared = SharedConnection(
            target, mode, timeout=connect_timeout, attempts=connect_attempts, on_open=self._on_open
        )
        self._parse_json = parse_json
        self._call_timeout = call_timeout
        self.namespace = namespace
        """What the operations are under. Until a server is connected it is `None`, unless it was given."""
        self._operations: dict[str, Operation] = {}
        self._registered: list[tuple[OperationRegistry, dict[str, Operation]]] = []
        self._on_change = on_change
        self._refresh_lock = asyncio.Lock()

    @property
    def operations(self) -> list[Operation]:
        """What the server lists, as operations."""
        return [*self._operations.values()]

    def find(self, tool: str) -> Operation | None:
        """The operation that a tool is."""
        return self._operations.get(tool)

    async def connect(self) -> Self:
        """Connects and asks for the tools, unless it is connected. Raises `CallError` if that cannot be done."""
        try:
            await self._shared.get_connection(attempts=1)
        except BaseException:
            # Whoever cannot connect will not think of closing; but others may be connected, or wait for it.
            if not self._shared.is_in_use:
                await self.close()
            raise
        return self

    async def close(self) -> None:
        """Leaves the server, and takes its operations out of the registries."""
        self._operations = {}
        self._sync_registries()
        self._registered.clear()
        await self._shared.close()

    async def __aenter__(self) -> Self:
        return await self.connect()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def register_into(self, registry: OperationRegistry) -> None:
        """Registers the operations, and keeps them as the server lists them.

        Raises `InvalidArgument`, and registers none of them, if one of their ids is taken.
        """
        if not self._shared.has_connected:
            raise InvalidArgument("it is not connected; use async with from_mcp(...) as server, and register it there")
        if taken := [each.spec.id for each in self.operations if registry.get_handler(each.spec.id) is not None]:
            raise InvalidArgument(f"{taken[0]} is registered already; give from_mcp() another namespace")
        self._registered.append((registry, {}))
        self._sync_registries()

    async def get_connection(self) -> ClientConnection:
        """The connection to the server, made again if it was lost. Raises `CallError` if that cannot be done."""
        return await self._shared.get_connection()

    async def refresh(self) -> None:
        """Asks the server for its tools now. It happens by itself when the server says that they changed."""
        try:
            await self._refresh(await self._shared.get_connection())
        except Exception as error:
            raise to_call_error(error, f"the list of tools of {self._shared.label}") from error

    async def _on_open(self, connection: ClientConnection) -> None:
        await self._refresh(connection)
        connection.start_following(functools.partial(self._try_refresh, connection))

    async def _refresh(self, connection: ClientConnection, is_announced: bool = False) -> None:
        # Of two lists that are asked for at once, the one asked for last must be the one that stays.
        async with self._refresh_lock:
            tools, name = await connection.list_tools(self._shared.timeout)
            if self.namespace is None:
                self.namespace = _to_namespace(name)
            listed: dict[str, Operation] = {}
            for tool in tools:
                if tool.name in listed:
                    _log.warning("forebay: %s lists two tools %.64r; the first is taken", self.namespace, tool.name)
                    continue
                try:
                    listed[tool.name] = self._to_operation(self.namespace, tool)
                except InvalidArgument as error:
                    _log.warning("forebay: the tool %.64r of %s is left out: %s", tool.name, self.namespace, error)
            is_changed = listed != self._operations
            self._operations = listed
            self._sync_registries()
            if is_changed or is_announced:
                self._on_change()

    def _to_operation(self, namespace: str, tool: Tool) -> Operation:
        is_read_only = tool.annotations is not None and tool.annotations.read_only_hint is True
        spec = OperationSpec(
            namespace=namespace,
            name=tool.name,
            type="query" if is_read_only else "mutation",
            description=tool.description or "",
            input_schema=tool.input_schema,
            output_schema=tool.output_schema,
        )
        known = self._operations.get(tool.name)
        return (
            known if known is not None and known.spec == spec else Operation(spec, functools.partial(self._call, spec))
        )

    def _sync_registries(self) -> None:
        """Makes every registry hold what the server lists, and leaves what others have put there."""
        listed = {operation.spec.id: operation for operation in self._operations.values()}
        for registry, ours in self._registered:
            for operation_id, operation in [*ours.items()]:
                if listed.get(operation_id) != operation:
                    # Someone may have put another in its place.
                    if registry.get_handler(operation_id) is operation.handler:
                        registry.unregister(operation_id)
                    del ours[operation_id]
            for operation_id, operation in listed.items():
                if operation_id in ours:
                    continue
                try:
                    registry.register(operation.spec, operation.handler)
                except InvalidArgument as error:
                    _log.warning("forebay: %s", error)
                else:
                    ours[operation_id] = operation

    async def _try_refresh(self, connection: ClientConnection, is_said: bool) -> None:
        try:
            await self._refresh(connection, is_said)
        except Exception as error:
            _log.warning("forebay: the tools of %s cannot be listed just now: %s", self.namespace, error)

    async def _call(self, spec: OperationSpec, given: Any, context: CallContext) -> Any:
        arguments = _check_arguments(spec, {} if given is None else given)
        try:
            result = await self._send_call(spec, arguments, context)
        except ConnectionLost as error:
            if self._shared.is_closed:
                raise CallError("ABORTED", f"{spec.id} may or may not have run: its server was closed") from error
            raise to_call_error(error, spec.id) from error
        except Exception as error:
            raise to_call_error(error, spec.id) from error
        if is_unknown_tool(result, spec.name):
            raise CallError("OPERATION_NOT_FOUND", f"{spec.id} is not there any more: its server does not know it")
        return result_to_envelope(result, spec, parse_json=self._parse_json)

    async def _send_call(self, spec: OperationSpec, arguments: dict[str, Any], context: CallContext) -> dict[str, Any]:
        try:
            return await self._send_once(spec, arguments, context)
        except SessionExpired:
            # Nobody has run it, so that it can be sent again; once, because a server may forget every session.
            return await self._send_once(spec, arguments, context)

    async def _send_once(self, spec: OperationSpec, arguments: dict[str, Any], context: CallContext) -> dict[str, Any]:
        async with asyncio.timeout(_seconds_left(context)):
            connection = await self._shared.get_connection()
        timeout = _seconds_left(context) or connection.client.read_timeout_seconds or self._call_timeout
        return await connection.call_tool(spec.name, arguments, timeout)


from_mcp = MCPOperations
"""What it is called where it is used, beside `from_openapi`."""


def _check_arguments(spec: OperationSpec, given: Any) -> dict[str, Any]:
    """What a tool is called with. In the SDK, what cannot be written would take the connection down with it."""
    if not isinstance(given, Mapping):
        raise CallError("VALIDATION_ERROR", f"{spec.id} takes an object, with its arguments by their names")
    try:
        arguments = dict(given)
        json.dumps(arguments, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise CallError("VALIDATION_ERROR", f"{spec.id} takes what can be written as JSON: {error}") from None
    return arguments


def _seconds_left(context: CallContext) -> float | None:
    """How many seconds a call has left. Raises `TimeoutError` if it has none."""
    if context.deadline is None:
        return None
    left = context.deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("its deadline has passed")
    return left


def _to_namespace(name: str | None) -> str:
    """A server's name as a namespace."""
    return re.sub(r"[^A-Za-z0-9_./-]+", "_", name or "").lstrip("./")[:128] or _DEFAULT_NAMESPACE
