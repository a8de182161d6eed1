"""Routes from the names that a client sees to the servers and operations behind them."""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from forebay.errors import InvalidJSON, UpstreamFailed
from forebay.hub.translation import translate_params
from forebay.operations.responses import needs_result_wrapper, wrap_schema
from forebay.operations.tools import define_tool, describe_unknown_tool
from forebay.outputs.known_tools import parse_definition
from forebay.wire.errors import RequestFailed
from forebay.wire.lazy_json import LazyJSON, as_lazy, dump, open_container
from forebay.wire.messages import INVALID_PARAMS, METHOD_NOT_FOUND
from forebay.wire.protocol import LIST_METHODS, PageCursors, matches_template

if TYPE_CHECKING:
    from forebay.hub.connection import ServerConnection
    from forebay.operations.registry import OperationRegistry
    from forebay.operations.spec import Identity, OperationSpec
    from forebay.operations.tool_names import Origin, ToolNames

__all__ = ["Routes"]

_log = logging.getLogger("forebay")

_LIST_TIMEOUT_SECONDS = 10.0
"""How long a server may take to list its resources or prompts."""

_MAX_PAGES = 100
"""Maximum number of pages to request of each server's list."""

_Entries = list[dict[str, Any]]
_Prompts = dict[str, "tuple[ServerConnection, dict[str, Any]]"]


class Routes:
    """The tools, resources and prompts that a client sees, and the server or operation of each.

    Lists are requested again when a client asks for them, and when a name is not found.
    """

    def __init__(
        self,
        connections: "Mapping[str, ServerConnection]",
        registry: "OperationRegistry",
        names: "ToolNames",
        identity: "Identity | None",
    ) -> None:
        self._connections = connections
        self._registry = registry
        self._names = names
        self._identity = identity
        self._origins: dict[str, Origin] | None = None
        self._lists: dict[tuple[str, str], _Entries] = {}
        """The lists of servers that were read last, by server and method."""

    def forget(self, connection: "ServerConnection | None" = None) -> None:
        """Forget the names of tools and, if a connection is given, its other lists, because they may have changed."""
        self._origins = None
        if connection is not None:
            for method in LIST_METHODS:
                self._lists.pop((connection.name, method), None)

    @property
    def tools(self) -> "Mapping[str, Origin]":
        """The upstream and original name of each listed tool."""
        if self._origins is None:
            operations = [(spec.namespace, spec.name) for spec in self._visible_operations()]
            servers = [(name, tool) for name, connection in self._connections.items() for tool in connection.tools]
            self._origins = self._names.assign([*servers, *operations])
        return self._origins

    def _visible_operations(self) -> "Iterator[OperationSpec]":
        for spec in self._registry:
            if spec.type != "subscription" and spec.access_control.allows(self._identity):
                yield spec

    def find_tool(self, name: str) -> "tuple[ServerConnection, str] | OperationSpec | None":
        """Return the server and the tool's name there, or the operation; `None` if there is no such tool.

        Earlier names of a tool, from before a name clash, work too.
        """
        origin = self.tools.get(name) or self._names.origins.get(name)
        if origin is None:
            return None
        upstream, original = origin
        connection = self._connections.get(upstream)
        if connection is not None:
            return (connection, original) if original in connection.tools else None
        return next((spec for spec in self._visible_operations() if (spec.namespace, spec.name) == origin), None)

    def make_unknown_tool_error(self, name: str, unloaded_sources: Iterable[str]) -> RequestFailed:
        lost = (upstream for upstream, connection in self._connections.items() if not connection.is_connected)
        return RequestFailed(INVALID_PARAMS, describe_unknown_tool(name, self.tools, [*lost, *unloaded_sources]))

    def list_tools(self, *, is_legacy: bool) -> list[LazyJSON]:
        """Return the definitions of all tools, as a client of this era gets them."""
        operations = {(spec.namespace, spec.name): spec for spec in self._visible_operations()}
        definitions = []
        for name, (upstream, original) in self.tools.items():
            connection = self._connections.get(upstream)
            if connection is None:
                tool = define_tool(name, operations[upstream, original], is_legacy=is_legacy)
                definitions.append(as_lazy(dump(tool)))
            elif original in connection.tools:
                definitions.append(_rename(connection, original, name, is_legacy=is_legacy))
        return definitions

    def find_capable(self, capability: str) -> "list[ServerConnection]":
        return [connection for connection in self._connections.values() if capability in connection.server_capabilities]

    async def merge_lists(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the lists of all servers as one page."""
        key, capability = LIST_METHODS[method]
        lists = await self._read_lists(method, self.find_capable(capability), params)
        if key == "prompts":
            return {key: [{**prompt, "name": name} for name, (_, prompt) in _name_prompts(lists).items()]}
        return {key: [entry for _, entries in lists for entry in entries]}

    async def _read_lists(
        self, method: str, connections: "list[ServerConnection]", params: Mapping[str, Any] | None = None
    ) -> "list[tuple[ServerConnection, _Entries]]":
        """Return the list of each server. All are asked concurrently."""
        # Without the cursor, because all pages are read.
        meta = {key: value for key, value in translate_params(params or {}, to_modern=False).items() if key == "_meta"}
        lists = await asyncio.gather(*(self._read_list(method, connection, meta) for connection in connections))
        return [*zip(connections, lists, strict=True)]

    async def _read_list(self, method: str, connection: "ServerConnection", meta: Mapping[str, Any]) -> _Entries:
        key, _ = LIST_METHODS[method]
        entries: _Entries = []
        cursors = PageCursors(_MAX_PAGES)
        for cursor in cursors:
            try:
                async with asyncio.timeout(_LIST_TIMEOUT_SECONDS):
                    page = await connection.request(method, {**meta, **cursor})
                items = open_container(page.get(key))
            except (RequestFailed, UpstreamFailed, TimeoutError, InvalidJSON) as error:
                # A failing server must not hide the lists of the others.
                if not isinstance(error, RequestFailed) or error.code != METHOD_NOT_FOUND:
                    reason = str(error) or "it takes too long"
                    _log.warning("forebay: %s does not answer %s: %s", connection.name, method, reason)
                break
            entries += [entry for entry in items or () if isinstance(entry, dict)]
            cursors.follow(page)
        self._lists[connection.name, method] = entries
        return entries

    async def _list_known(
        self, method: str, connections: "list[ServerConnection]", *, again: bool
    ) -> "list[tuple[ServerConnection, _Entries]]":
        """Return the list of each server: the one that was read last, unless it must be read again."""
        unread = [connection for connection in connections if again or (connection.name, method) not in self._lists]
        await self._read_lists(method, unread)
        return [(connection, self._lists[connection.name, method]) for connection in connections]

    async def find_prompt(self, name: str) -> "tuple[ServerConnection, str]":
        """Return the server of a prompt, and the prompt's name there. Raises `RequestFailed`."""
        connections = self.find_capable("prompts")
        prompts: _Prompts = {}
        for again in (False, True):
            prompts = _name_prompts(await self._list_known("prompts/list", connections, again=again))
            if name in prompts:
                connection, prompt = prompts[name]
                return connection, prompt["name"]
        known = ", ".join(prompts)[:512] or "none"
        raise RequestFailed(INVALID_PARAMS, f"Unknown prompt: {name:.128}; there are {known}")

    async def find_resource(self, uri: str) -> "ServerConnection":
        """Return the server that lists a URI, else one with a matching template, else the only one with resources.

        Lists are not read if there is one server. Raises `RequestFailed`.
        """
        if len(self._connections) == 1:
            return next(iter(self._connections.values()))
        connections = self.find_capable("resources")
        for again in (False, True):
            for connection, resources in await self._list_known("resources/list", connections, again=again):
                if any(resource.get("uri") == uri for resource in resources):
                    return connection
            for connection, templates in await self._list_known("resources/templates/list", connections, again=again):
                for entry in templates:
                    template = str(entry.get("uriTemplate"))
                    if template == uri or matches_template(template, uri):
                        return connection
            if len(connections) == 1:
                return connections[0]
        text = f"Unknown resource: {uri:.256}; resources/list has those that there are"
        raise RequestFailed(INVALID_PARAMS, text)


def _rename(connection: "ServerConnection", original: str, name: str, *, is_legacy: bool) -> LazyJSON:
    """Return a tool's definition with the name that clients see, and with an output schema that they accept."""
    item = connection.tools[original]
    is_translated = is_legacy and connection.is_modern
    if name == original and not is_translated:
        return item
    definition = parse_definition(item)
    definition["name"] = name
    if is_translated and needs_result_wrapper(definition.get("outputSchema")):
        definition["outputSchema"] = {"type": "object", **wrap_schema(definition["outputSchema"])}
    return as_lazy(dump(definition))


def _name_prompts(lists: "list[tuple[ServerConnection, _Entries]]") -> _Prompts:
    """Return the prompts by unique name: a name that several servers use gets the server's name as a prefix.

    Unlike names of tools, those of prompts may hold any characters, so they stay as they are.
    """
    prompts: dict[tuple[ServerConnection, str], dict[str, Any]] = {}
    for connection, listed in lists:
        for prompt in listed:
            prompts.setdefault((connection, str(prompt.get("name"))), prompt)
    counts = Counter(name for _, name in prompts)
    by_name: _Prompts = {}
    for (connection, name), prompt in prompts.items():
        unique = prefixed = f"{connection.name}_{name}" if counts[name] > 1 else name
        number = 1
        while unique in by_name or (unique != name and unique in counts):
            number += 1
            unique = f"{prefixed}_{number}"
        by_name[unique] = connection, {**prompt, "name": name}
    return by_name
