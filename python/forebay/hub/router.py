"""Router that finds the upstream for a request, and merges the lists of all upstreams."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import METHOD_NOT_FOUND

from forebay.hub.tenants import CONNECT_WAIT_SECONDS, Tenant
from forebay.hub.upstreams import UPSTREAM_ERRORS, MCPUpstream
from forebay.wire.protocol import PageCursors

__all__ = ["Router"]

_log = logging.getLogger("forebay")

_MAX_PAGES = 100
"""Maximum number of pages to request of each upstream's list."""

_LIST_METHODS = {
    "resources/list": ("resources", "resources"),
    "resources/templates/list": ("resourceTemplates", "resources"),
    "prompts/list": ("prompts", "prompts"),
}
"""The result key of each list method, and the capability of servers that have such a list."""

_ForwardFunction = Callable[[MCPUpstream, dict[str, Any]], Awaitable[dict[str, Any]]]
_Lists = list[tuple[MCPUpstream, list[dict[str, Any]]]]
_Prompts = dict[str, tuple[MCPUpstream, dict[str, Any]]]


class Router:
    """Router that finds the upstream for a request and calls `forward(upstream, params)`."""

    def __init__(self, tenant: Tenant, forward: _ForwardFunction) -> None:
        self._tenant = tenant
        self._forward = forward

    async def __call__(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return the result of a request.

        Raises `LookupError`. Its argument is the method if the method is unknown, else a message.
        """
        if method in _LIST_METHODS:
            return await self._merge_lists(method, params)
        match method, params:
            case "prompts/get", {"name": str(name)}:
                return await self._get_prompt(name, params)
            case "resources/read" | "resources/subscribe" | "resources/unsubscribe", {"uri": str(uri)}:
                return await self._forward(await self._find_resource_upstream(uri), params)
            case "completion/complete", {"ref": {"type": "ref/prompt", "name": str(name)} as ref}:
                upstream, prompt = await self._find_prompt(name)
                return await self._forward(upstream, {**params, "ref": {**ref, "name": prompt["name"]}})
            case "completion/complete", {"ref": {"type": "ref/resource", "uri": str(uri)}}:
                return await self._forward(await self._find_resource_upstream(uri), params)
            case "logging/setLevel", _:
                return await self._set_log_level(params)
        raise LookupError(method)

    def _find_upstreams_with(self, capability: str) -> list[MCPUpstream]:
        return [upstream for upstream in self._tenant.upstreams.values() if capability in upstream.capabilities]

    async def _set_log_level(self, params: dict[str, Any]) -> dict[str, Any]:
        answers = [await self._forward(upstream, dict(params)) for upstream in self._find_upstreams_with("logging")]
        if not answers:
            raise LookupError("logging/setLevel")
        return answers[0]

    async def _merge_lists(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return the lists of all upstreams as one page."""
        key, capability = _LIST_METHODS[method]
        meta = {"_meta": params["_meta"]} if "_meta" in params else {}
        upstreams = self._find_upstreams_with(capability)
        lists = await self._list_all(method, upstreams, meta)
        if key == "prompts":
            return {key: [{**prompt, "name": name} for name, (_, prompt) in _list_prompts_by_name(lists).items()]}
        return {key: [entry for _, entries in lists for entry in entries]}

    async def _list_all(self, method: str, upstreams: list[MCPUpstream], meta: dict[str, Any] | None = None) -> _Lists:
        """Return the list of each upstream. All are asked concurrently."""
        pages = (self._list_upstream(method, upstream, meta or {}) for upstream in upstreams)
        return [*zip(upstreams, await asyncio.gather(*pages), strict=True)]

    async def _list_upstream(self, method: str, upstream: MCPUpstream, meta: dict[str, Any]) -> list[dict[str, Any]]:
        key, _ = _LIST_METHODS[method]
        entries: list[dict[str, Any]] = []
        cursors = PageCursors(_MAX_PAGES)
        for cursor in cursors:
            try:
                async with asyncio.timeout(CONNECT_WAIT_SECONDS):
                    connection = await upstream.get_connection()
                    page = await connection.request(method, {**meta, **cursor}, upstream.call_timeout)
            except UPSTREAM_ERRORS as error:
                # A failing upstream must not hide the lists of the others.
                if not isinstance(error, MCPError) or error.error.code != METHOD_NOT_FOUND:
                    reason = str(error) or "it takes too long"
                    _log.warning("forebay: %s does not answer %s: %s", upstream.name, method, reason)
                break
            entries += [entry for entry in page.get(key) or () if isinstance(entry, dict)]
            cursors.follow(page)
        return entries

    async def _get_prompt(self, name: str, params: dict[str, Any]) -> dict[str, Any]:
        upstream, prompt = await self._find_prompt(name)
        return await self._forward(upstream, {**params, "name": prompt["name"]})

    async def _find_prompt(self, name: str) -> tuple[MCPUpstream, dict[str, Any]]:
        prompts = _list_prompts_by_name(await self._list_all("prompts/list", self._find_upstreams_with("prompts")))
        if name not in prompts:
            raise LookupError(f"Unknown prompt: {name:.128}; there are {', '.join(prompts)[:512] or 'none'}")
        return prompts[name]

    async def _find_resource_upstream(self, uri: str) -> MCPUpstream:
        """Return the upstream that lists a URI, else one with a matching template, else the only one with resources."""
        upstreams = self._find_upstreams_with("resources")
        for upstream, resources in await self._list_all("resources/list", upstreams):
            if any(resource.get("uri") == uri for resource in resources):
                return upstream
        for upstream, templates in await self._list_all("resources/templates/list", upstreams):
            for entry in templates:
                template = str(entry.get("uriTemplate"))
                if template == uri or _matches_template(template, uri):
                    return upstream
        if len(upstreams) == 1:
            return upstreams[0]
        raise LookupError(f"Unknown resource: {uri:.256}; resources/list has those that there are")


def _list_prompts_by_name(lists: _Lists) -> _Prompts:
    """Return the prompts by unique name: a name that several servers use gets the server's name as a prefix."""
    names = [str(prompt.get("name")) for _, prompts in lists for prompt in prompts]
    by_name: _Prompts = {}
    for upstream, prompts in lists:
        for prompt in prompts:
            name = str(prompt.get("name"))
            unique = f"{upstream.name}_{name}" if names.count(name) > 1 else name
            by_name.setdefault(unique, (upstream, {**prompt, "name": name}))
    return by_name


def _matches_template(template: str, uri: str) -> bool:
    """Return whether a URI matches a template whose variables stand for any text."""
    prefix, *later_literals = re.split(r"\{[^{}]*\}", template)
    if not later_literals or not uri.startswith(prefix):
        return False
    *literals, suffix = later_literals
    position = len(prefix)
    # Variables stand for any text, so the first occurrence of each literal is enough, without backtracking.
    for literal in literals:
        start = uri.find(literal, position)
        if start < 0:
            return False
        position = start + len(literal)
    return uri.endswith(suffix) and len(uri) - len(suffix) >= position
