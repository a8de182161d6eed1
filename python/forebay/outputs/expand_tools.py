"""`expand_tools`: shows tools that are not listed at first, as far as the capability filter lets it."""

from collections.abc import Mapping, Sequence
from typing import Any

from forebay.arguments import shown
from forebay.errors import InvalidArgument
from forebay.outputs.capabilities import Capabilities, name_of
from forebay.outputs.contract.text import line

__all__ = ["ABOUT", "PROPERTIES", "expand"]

ABOUT = "Show unlisted tools by name or capability; with a query or nothing, name them."

_TEXT = {"type": "string"}
PROPERTIES: dict[str, dict[str, Any]] = {
    "name": _TEXT,
    "names": {"type": "array", "items": _TEXT},
    "capability": _TEXT,
    "query": _TEXT,
}

_MOST_NAMED = 20
"""How many names an error repeats."""

_LONGEST_ABOUT = 120

_NEXT = "call this again with names or a capability to show them"

_Tool = Mapping[str, Any]


def expand(
    capabilities: Capabilities, arguments: Mapping[str, Any], listed: Sequence[Any], expanded: set[str] | None
) -> dict[str, Any]:
    """What `expand_tools` answers to someone for whom the server lists this.

    Where a connection lasts, what is asked for joins `expanded`, and is listed from then on. Else (`None`) the answer
    has the definitions, since a list must not change by a call then.
    """
    _check(arguments)
    tools: list[_Tool] = [tool for tool in listed if name_of(tool) is not None]
    hidden = [tool for tool in tools if not capabilities.is_shown(_name(tool), expanded or ())]
    hidden = [tool for tool in hidden if capabilities.denied(_name(tool)) is None]
    if "capability" in arguments:
        asked = _of_capability(capabilities, arguments["capability"], hidden)
    elif names := [*([arguments["name"]] if "name" in arguments else []), *arguments.get("names", [])]:
        asked = _named(capabilities, names, tools, hidden)
    else:
        found = [tool for tool in hidden if _matches(tool, capabilities, arguments.get("query", ""))]
        named = {"hidden_tools": [_about(tool, capabilities) for tool in found]}
        return {**named, "next": _NEXT} if found else named
    if expanded is None:
        return {"tools": asked}
    expanded.update(map(_name, asked))
    return {"expanded": [*map(_name, asked)], "next": "they are in tools/list now"}


def _check(arguments: Mapping[str, Any]) -> None:
    names = arguments.get("names", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidArgument(f'names is a list of names of tools, such as ["crawl"], not {shown(names)}')
    for key in ("name", "capability", "query"):
        if not isinstance(arguments.get(key, ""), str):
            raise InvalidArgument(f"{key} is a text, not {shown(arguments[key])}")
    ways = [way for way in (("name", "names"), ("capability",), ("query",)) if any(key in arguments for key in way)]
    if len(ways) > 1:
        raise InvalidArgument("ask by name, by capability or with a query, not by several of them at once")


def _of_capability(capabilities: Capabilities, capability: str, hidden: Sequence[_Tool]) -> list[_Tool]:
    if (denied := capabilities.denied_capability(capability)) is not None:
        raise denied
    if asked := [tool for tool in hidden if capabilities.of(_name(tool)) == capability]:
        return asked
    there_are = _some(sorted({capabilities.of(_name(tool)) for tool in hidden}))
    raise InvalidArgument(f"no hidden tool is of the capability {shown(capability)}; there are {there_are}")


def _named(
    capabilities: Capabilities, names: Sequence[str], tools: Sequence[_Tool], hidden: Sequence[_Tool]
) -> list[_Tool]:
    by_name = {_name(tool): tool for tool in tools}
    for name in names:
        if (denied := capabilities.denied(name)) is not None:
            raise denied
        if name not in by_name:
            raise InvalidArgument(f"there is no tool {shown(name)}; hidden are {_some([*map(_name, hidden)])}")
    return [by_name[name] for name in dict.fromkeys(names)]


def _matches(tool: _Tool, capabilities: Capabilities, query: str) -> bool:
    text = f"{_name(tool)} {capabilities.of(_name(tool))} {_description(tool)}".casefold()
    return all(word in text for word in query.casefold().split())


def _about(tool: _Tool, capabilities: Capabilities) -> dict[str, str]:
    name = _name(tool)
    return {"name": name, "capability": capabilities.of(name), "description": line(_description(tool), _LONGEST_ABOUT)}


def _name(tool: _Tool) -> str:
    return str(tool["name"])


def _description(tool: _Tool) -> str:
    """What was not parsed is no text."""
    text = tool.get("description")
    return text if isinstance(text, str) else ""


def _some(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    named = ", ".join(line(name, 64) for name in names[:_MOST_NAMED]) or "none"
    return f"{named} and {more} more" if more > 0 else named
