"""Tools of an MCP server as operations, over stdio, HTTP or in memory, in every protocol version.

async with from_mcp(["my-server"], namespace="crm") as server:
    server.register_into(registry)
    envelope = await registry.execute("crm.find", {"name": "Ada"})
"""

import asyncio
import dataclasses
import functools
import json
import logging
import re
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from mcp_types import Tool

from forebay.envelope import MCPContentBlock, MCPResponseMeta, ResponseEnvelope, mcp_envelope
from forebay.envelope.body import parse
from forebay.errors import InvalidArgument
from forebay.operations.errors import CallError
from forebay.operations.mcp.connection import CHOSEN_MODE_KEYS, ClientConnection
from forebay.operations.mcp.errors import ConnectionLost, SessionExpired, to_call_error
from forebay.operations.mcp.shared_connection import SharedConnection
from forebay.operations.mcp.targets import Target
from forebay.operations.registry import OperationRegistry
from forebay.operations.spec import CallContext, Operation, OperationSpec
from forebay.operations.validation import has_rules
from forebay.store.handles import is_handle

__all__ = ["MCPOperations", "from_mcp", "result_to_envelope"]

_log = logging.getLogger("forebay")

_DEFAULT_NAMESPACE = "mcp"

_MAX_DESCRIPTOR_CHARS = 4096
"""Maximum length of the descriptor of a handle."""


class MCPOperations:
    """The tools of a server as operations. Use it with `async with`, or call `connect` and `close`.

    When the server's list of tools changes, all registries that have these operations are updated.

    `target` is a URL, a command as a list, `StdioServerParameters`, a server object, a transport, a function that
    returns a transport, or an `mcp.Client`. An unconnected client is copied for every connection. A connected client
    still belongs to its owner; like a transport, it cannot be reconnected once it is lost.

    A server behind forebay is asked for the data itself. A result that it stores nevertheless, because it is too large,
    is a `CallError` whose `details` are the descriptor of the handle.

    `namespace` defaults to the server's name. `mode` is passed to `mcp.Client`. With `parse_json`, the text of a
    result is parsed if the tool has an output schema and returned one JSON text and no structured content.

    A lost connection is reopened by the next call, in up to `connect_attempts` attempts of `connect_timeout` seconds.
    Calls without a deadline have `call_timeout` seconds, or no limit with `None`.
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
    ) -> None:
        if call_timeout is not None and call_timeout <= 0:
            raise InvalidArgument("call_timeout must be more than 0")
        if namespace is not None:
            OperationSpec(namespace=namespace, name="any")
        self._shared_connection = SharedConnection(
            target, mode, timeout=connect_timeout, attempts=connect_attempts, on_open=self._on_open
        )
        self._parse_json = parse_json
        self._call_timeout = call_timeout
        self.namespace = namespace
        """Namespace of the operations; before the first connection `None`, unless the caller passed one."""
        self._operations: dict[str, Operation] = {}
        self._registrations: list[tuple[OperationRegistry, dict[str, Operation]]] = []
        self._refresh_lock = asyncio.Lock()

    @property
    def operations(self) -> list[Operation]:
        """The listed tools as operations."""
        return [*self._operations.values()]

    async def connect(self) -> Self:
        """Connect and list the tools, unless connected already. Raises `CallError` if that fails."""
        try:
            await self._shared_connection.get_connection(attempts=1)
        except BaseException:
            # A caller that failed to connect will not call `close`: close here, unless others use the connection.
            if not self._shared_connection.is_in_use:
                await self.close()
            raise
        return self

    async def close(self) -> None:
        """Disconnect, and remove the operations from the registries."""
        self._operations = {}
        self._sync_registries()
        self._registrations.clear()
        await self._shared_connection.close()

    async def __aenter__(self) -> Self:
        return await self.connect()

    async def __aexit__(
        self, error_type: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def register_into(self, registry: OperationRegistry) -> None:
        """Register the operations, and keep the registry up to date with the server's list.

        Raises `InvalidArgument` and registers nothing if one of the ids is in use.
        """
        if not self._shared_connection.has_connected:
            raise InvalidArgument("it is not connected; use async with from_mcp(...) as server, and register it there")
        for operation in self.operations:
            if registry.get_handler(operation.spec.id) is not None:
                raise InvalidArgument(f"{operation.spec.id} is registered already; give from_mcp() another namespace")
        self._registrations.append((registry, {}))
        self._sync_registries()

    async def refresh(self) -> None:
        """List the tools now. This happens automatically when the server announces a change."""
        try:
            await self._refresh(await self._shared_connection.get_connection())
        except Exception as error:
            raise to_call_error(error, f"the list of tools of {self._shared_connection.label}") from error

    async def _on_open(self, connection: ClientConnection) -> None:
        await self._refresh(connection)
        connection.follow_tool_changes(functools.partial(self._try_refresh, connection))

    async def _refresh(self, connection: ClientConnection) -> None:
        # The lock allows one listing at a time: an older list of tools must not replace a newer one.
        async with self._refresh_lock:
            tools, name = await connection.list_tools(self._shared_connection.timeout)
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
            self._operations = listed
            self._sync_registries()

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
        if known is not None and known.spec == spec:
            return known
        return Operation(spec, functools.partial(self._call, spec))

    def _sync_registries(self) -> None:
        """Register new tools and unregister removed ones, without touching operations of other sources."""
        listed = {operation.spec.id: operation for operation in self._operations.values()}
        for registry, registered in self._registrations:
            for operation_id, operation in [*registered.items()]:
                if listed.get(operation_id) != operation:
                    # Another source may have registered this id in the meantime; its operation stays.
                    if registry.get_handler(operation_id) is operation.handler:
                        registry.unregister(operation_id)
                    del registered[operation_id]
            for operation_id, operation in listed.items():
                if operation_id in registered:
                    continue
                try:
                    registry.register(operation.spec, operation.handler)
                except InvalidArgument as error:
                    _log.warning("forebay: %s", error)
                else:
                    registered[operation_id] = operation

    async def _try_refresh(self, connection: ClientConnection) -> None:
        try:
            await self._refresh(connection)
        except Exception as error:
            _log.warning("forebay: the tools of %s cannot be listed just now: %s", self.namespace, error)

    async def _call(self, spec: OperationSpec, input_data: Any, context: CallContext) -> Any:
        arguments = _check_arguments(spec, {} if input_data is None else input_data)
        try:
            result = await self._send_call(spec, arguments, context)
        except ConnectionLost as error:
            if self._shared_connection.is_closed:
                raise CallError("ABORTED", f"{spec.id} may or may not have run: its server was closed") from error
            raise to_call_error(error, spec.id) from error
        except Exception as error:
            raise to_call_error(error, spec.id) from error
        if _is_unknown_tool(result, spec.name):
            raise CallError("OPERATION_NOT_FOUND", f"{spec.id} is not there any more: its server does not know it")
        if not CHOSEN_MODE_KEYS & arguments.keys() and (descriptor := _find_descriptor(result)) is not None:
            raise CallError(
                "EXECUTION_ERROR",
                f"the result of {spec.id} has {descriptor['size_bytes']:,} bytes and was stored by its server; read it "
                f"in pages with {descriptor['fetch_with']} and output_handle {descriptor['output_handle']}",
                descriptor,
            )
        return result_to_envelope(result, spec, parse_json=self._parse_json)

    async def _send_call(self, spec: OperationSpec, arguments: dict[str, Any], context: CallContext) -> dict[str, Any]:
        try:
            return await self._send_once(spec, arguments, context)
        except SessionExpired:
            # The server did not run the call, so it is sent again. Only once: a server may forget every session.
            return await self._send_once(spec, arguments, context)

    async def _send_once(self, spec: OperationSpec, arguments: dict[str, Any], context: CallContext) -> dict[str, Any]:
        async with asyncio.timeout(_get_seconds_left(context)):
            connection = await self._shared_connection.get_connection()
        timeout = _get_seconds_left(context) or connection.client.read_timeout_seconds or self._call_timeout
        return await connection.call_tool(spec.name, arguments, timeout)


from_mcp = MCPOperations
"""Alias of `MCPOperations`, named like `from_openapi`."""


def _check_arguments(spec: OperationSpec, input_data: Any) -> dict[str, Any]:
    """Return the arguments of a tool. Raises `CallError` if they cannot be sent as JSON."""
    if not isinstance(input_data, Mapping):
        raise CallError("VALIDATION_ERROR", f"{spec.id} takes an object, with its arguments by their names")
    try:
        arguments = dict(input_data)
        json.dumps(arguments, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise CallError("VALIDATION_ERROR", f"{spec.id} takes what can be written as JSON: {error}") from None
    return arguments


def _get_seconds_left(context: CallContext) -> float | None:
    """Return the seconds until the deadline, or `None` for no deadline. Raises `TimeoutError` if it has passed."""
    if context.deadline is None:
        return None
    remaining = context.deadline - time.monotonic()
    if remaining <= 0:
        raise TimeoutError("its deadline has passed")
    return remaining


def _is_unknown_tool(result: dict[str, Any], tool_name: str) -> bool:
    """Return whether a result is the error that the SDK's servers return for an unknown tool."""
    match result:
        case {"isError": True, "content": [{"type": "text", "text": str(text)}]}:
            return text == f"Unknown tool: {tool_name}"
    return False


def _find_descriptor(result: dict[str, Any]) -> dict[str, Any] | None:
    """Return the descriptor that a server behind forebay sent in place of a large result, or `None`."""
    candidate: Any = result.get("structuredContent")
    if candidate is None:
        match result.get("content"):
            case [{"type": "text", "text": str(text)}] if len(text) <= _MAX_DESCRIPTOR_CHARS:
                candidate = _parse_single_text(result["content"])
    match candidate:
        case {"output_handle": handle, "size_bytes": int(), "fetch_with": str()} if is_handle(handle):
            return None if result.get("isError") is True else dict(candidate)
    return None


def result_to_envelope(result: dict[str, Any], spec: OperationSpec, *, parse_json: bool) -> ResponseEnvelope[Any]:
    """Return the envelope of a tool result. Its data is the structured content, else the content blocks."""
    content = result.get("content")
    envelope: ResponseEnvelope[Any] = mcp_envelope(
        result.get("structuredContent"),
        is_error=result.get("isError") is True,
        content=content if isinstance(content, list) else (),
        structured_content=result.get("structuredContent"),
        meta=result["_meta"] if isinstance(result.get("_meta"), dict) else None,
    )
    meta = envelope.meta
    if envelope.data is not None or not isinstance(meta, MCPResponseMeta):
        return envelope
    should_parse = parse_json and not meta.is_error and has_rules(spec.output_schema)
    return dataclasses.replace(envelope, data=_parse_single_text(meta.content) if should_parse else meta.content)


def _parse_single_text(blocks: list[MCPContentBlock]) -> Any:
    """Return the parsed text if the only block is JSON text, else the blocks."""
    match blocks:
        case [{"type": "text", "text": str(text)}]:
            try:
                return parse(text.encode())
            except ValueError:
                pass
    return blocks


def _to_namespace(name: str | None) -> str:
    """Return a valid namespace from a server's name."""
    return re.sub(r"[^A-Za-z0-9_./-]+", "_", name or "").lstrip("./")[:128] or _DEFAULT_NAMESPACE
