"""Which of several servers a request is for."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import METHOD_NOT_FOUND

from forebay.hub.tenants import CONNECT_WAIT_SECONDS, Tenant
from forebay.hub.upstreams import MCPUpstream
from forebay.operations.errors import CallError
from forebay.operations.mcp.errors import ConnectionLost, HTTPStatusError, SessionExpired
from forebay.wire.protocol import next_cursor

__all__ = ["Router"]

_log = logging.getLogger("forebay")

_MAX_PAGES = 100

_LISTS = {
    "resources/list": ("resources", "resources"),
    "resources/templates/list": ("resourceTemplates", "resources"),
    "prompts/list": ("prompts", "prompts"),
}
"""The key of each list, and the capability that a server with such a list has."""

_Forward = Callable[[MCPUpstream, dict[str, Any]], Awaitable[dict[str, Any]]]
_Lists = list[tuple[MCPUpstream, list[dict[str, Any]]]]
_Prompts = dict[str, tuple[MCPUpstream, dict[str, Any]]]


class Router:
    """One request among several servers. `forward` sends it to one of them, under the method that it has."""

    def __init__(self, tenant: Tenant, forward: _Forward) -> None:
        self._tenant = tenant
        self._forward = forward

    async def __call__(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """What they answer. Raises `LookupError` with the method if it is not known, else with what is wrong."""
        if method in _LISTS:
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

    def _upstreams_with(self, capability: str) -> list[MCPUpstream]:
        return [upstream for upstream in self._tenant.upstreams.values() if capability in upstream.capabilities]

    async def _set_log_level(self, params: dict[str, Any]) -> dict[str, Any]:
        answers = [await self._forward(upstream, dict(params)) for upstream in self._upstreams_with("logging")]
        if not answers:
            raise LookupError("logging/setLevel")
        return answers[0]

    async def _merge_lists(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """All that they list, on one page."""
        key, capability = _LISTS[method]
        meta = {"_meta": params["_meta"]} if "_meta" in params else {}
        upstreams = self._upstreams_with(capability)
        found = await self._list_all(method, upstreams, meta)
        if key == "prompts":
            return {key: [{**prompt, "name": name} for name, (_, prompt) in _prompts_by_name(found).items()]}
        return {key: [one for _, listed in found for one in listed]}

    async def _list_all(self, method: str, upstreams: list[MCPUpstream], meta: dict[str, Any] | None = None) -> _Lists:
        """What each of them lists; they are asked at once, since each may take its time."""
        pages = (self._list_upstream(method, upstream, meta or {}) for upstream in upstreams)
        return [*zip(upstreams, await asyncio.gather(*pages), strict=True)]

    async def _list_upstream(self, method: str, upstream: MCPUpstream, meta: dict[str, Any]) -> list[dict[str, Any]]:
        key, _ = _LISTS[method]
        listed: list[dict[str, Any]] = []
        cursors: list[Any] = [None]
        # Some servers give the same page for every cursor.
        while len(cursors) <= _MAX_PAGES and cursors.count(cursors[-1]) == 1:
            cursor = {} if cursors[-1] is None else {"cursor": cursors[-1]}
            try:
                async with asyncio.timeout(CONNECT_WAIT_SECONDS):
                    connection = await upstream.connection()
                    page = await connection.request(method, {**meta, **cursor}, upstream.call_timeout)
            except (CallError, MCPError, ConnectionLost, HTTPStatusError, SessionExpired, TimeoutError) as error:
                # What one of them cannot say just now does not keep the others from being heard.
                if not isinstance(error, MCPError) or error.error.code != METHOD_NOT_FOUND:
                    why = str(error) or "it takes too long"
                    _log.warning("forebay: %s does not answer %s: %s", upstream.name, method, why)
                break
            listed += [each for each in page.get(key) or () if isinstance(each, dict)]
            cursors.append(next_cursor(page))
        return listed

    async def _get_prompt(self, name: str, params: dict[str, Any]) -> dict[str, Any]:
        upstream, prompt = await self._find_prompt(name)
        return await self._forward(upstream, {**params, "name": prompt["name"]})

    async def _find_prompt(self, name: str) -> tuple[MCPUpstream, dict[str, Any]]:
        named = _prompts_by_name(await self._list_all("prompts/list", self._upstreams_with("prompts")))
        if name not in named:
            raise LookupError(f"Unknown prompt: {name:.128}; there are {', '.join(named)[:512] or 'none'}")
        return named[name]

    async def _find_resource_upstream(self, uri: str) -> MCPUpstream:
        """Who lists an address, else who has a template for it, else the only one that could."""
        upstreams = self._upstreams_with("resources")
        for upstream, listed in await self._list_all("resources/list", upstreams):
            if any(each.get("uri") == uri for each in listed):
                return upstream
        for upstream, listed in await self._list_all("resources/templates/list", upstreams):
            for each in listed:
                template = str(each.get("uriTemplate"))
                if template == uri or _matches_template(template, uri):
                    return upstream
        if len(upstreams) == 1:
            return upstreams[0]
        raise LookupError(f"Unknown resource: {uri:.256}; resources/list has those that there are")


def _prompts_by_name(found: _Lists) -> _Prompts:
    """Prompts by what they are called here: with their server's name before them where two have the same."""
    names = [str(prompt.get("name")) for _, listed in found for prompt in listed]
    named: _Prompts = {}
    for upstream, listed in found:
        for prompt in listed:
            name = str(prompt.get("name"))
            called = f"{upstream.name}_{name}" if names.count(name) > 1 else name
            named.setdefault(called, (upstream, {**prompt, "name": name}))
    return named


def _matches_template(template: str, uri: str) -> bool:
    """Whether a template may have made an address: what it leaves open is anything."""
    first, *others = re.split(r"\{[^{}]*\}", template)
    if not others or not uri.startswith(first):
        return False
    *between, last = others
    at = len(first)
    # The first place is as good as any, and looking for others would take for ever.
    for literal in between:
        found = uri.find(literal, at)
        if found < 0:
            return False
        at = found + len(literal)
    return uri.endswith(last) and len(uri) - len(last) >= at
