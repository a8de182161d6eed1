"""How clients present the tools of an MCP server to the model: listed, found by a search, or called from code."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Protocol

from clients.apis import Request, Tool

Action = tuple[Tool, Mapping[str, Any]]
"""A tool that the model calls, and the arguments."""


class Toolbox(Protocol):
    """A client's way to present the tools of a server. A tool is meant by the name that the server gave it."""

    def is_listed(self, tool: str, request: Request) -> bool:
        """Return whether a request shows the tool without a search."""

    def search(self, tool: str, request: Request) -> Action | None:
        """Return the action that finds the tool, if the client offers one."""

    def describe(self, tool: str, request: Request) -> str | None:
        """Return the text with the tool's parameters that the model sees after a search, if it can call the tool."""

    def call(self, tool: str, arguments: Mapping[str, Any], request: Request) -> Action:
        """Return the action that calls a tool which the model knows."""


@dataclasses.dataclass(frozen=True)
class ListedTools:
    """Each tool of the server is a tool of the model, perhaps after a search."""

    pattern: str
    """The name of a tool in the client: `{tool}` stands for the server's name of it."""
    search_tool: str | None = None
    """The client's own tool that finds tools which it does not list."""
    query: str = "select:{name}"
    """What is searched for: `{name}` stands for the name in the client, `{tool}` for the server's name."""
    bridge: str | None = None
    """The client's own tool that calls a tool which was found but is never listed."""

    def is_listed(self, tool: str, request: Request) -> bool:
        return self._name(tool) in request.tools

    def search(self, tool: str, request: Request) -> Action | None:
        if self.search_tool is None or self.search_tool not in request.tools:
            return None
        return request.tools[self.search_tool], {"query": self.query.format(name=self._name(tool), tool=tool)}

    def describe(self, tool: str, request: Request) -> str | None:
        name = self._name(tool)
        if name in request.tools:
            return json.dumps(request.tools[name].schema)
        text = _join_texts(request)
        return text if self.bridge in request.tools and name in text else None

    def call(self, tool: str, arguments: Mapping[str, Any], request: Request) -> Action:
        name = self._name(tool)
        if name in request.tools or self.bridge is None:
            return request.tools[name], arguments
        return request.tools[self.bridge], {"name": name, "arguments": arguments}

    def _name(self, tool: str) -> str:
        return self.pattern.format(tool=tool)


@dataclasses.dataclass(frozen=True)
class CodeTools:
    """The model writes JavaScript that calls the tools, and prints what it wants to see of their results."""

    pattern: str
    """The name of a tool in the code: `{tool}` stands for the server's name of it."""
    code_tool: str
    """The client's own tool that runs the code."""

    def is_listed(self, tool: str, request: Request) -> bool:
        return self.code_tool in request.tools and f"tools: {{ {self._name(tool)}(" in self._code(request).description

    def search(self, tool: str, request: Request) -> Action | None:
        if self.code_tool not in request.tools:
            return None
        return self._code(request), {"input": f"text(ALL_TOOLS.filter((tool) => tool.name.includes('{tool}')));"}

    def describe(self, tool: str, request: Request) -> str | None:
        text = _join_texts(request)
        return text if self._name(tool) in text else None

    def call(self, tool: str, arguments: Mapping[str, Any], request: Request) -> Action:
        code = f"""\
const result = await tools.{self._name(tool)}({json.dumps(arguments)});
const picture = result.content.find((block) => block.type === "image");
if (picture) image(picture); else text(result);
"""
        return self._code(request), {"input": code}

    def _name(self, tool: str) -> str:
        return self.pattern.format(tool=tool)

    def _code(self, request: Request) -> Tool:
        return request.tools[self.code_tool]


def _join_texts(request: Request) -> str:
    return "\n".join(part for part in request.latest if isinstance(part, str))
