"""Which of a server's tools a client may see and call, by what each of them is for.

A tool has one capability: what is configured for its name, else what it says itself, else the server's default. The
filter (`tools_only`, `disable_tools`) is the most that a client can ever see or call. Tools that are hidden by default
are within it: they are only not listed until `expand_tools` shows them, and can be called all the same, since the
newest version of the protocol has no state that could remember what was shown.
"""

import fnmatch
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from forebay.arguments import short_repr
from forebay.errors import CapabilityDisabled, InvalidArgument
from forebay.outputs.contract.text import to_single_line

__all__ = [
    "CORE",
    "EXPAND_DESCRIPTION",
    "EXPAND_PROPERTIES",
    "META_KEY",
    "CapabilityFilter",
    "expand_tools",
    "get_declared_capability",
    "get_tool_name",
    "record_denial",
]

if TYPE_CHECKING:
    from forebay.store.journal import Journal


_log = logging.getLogger("forebay")

CORE = "core"
"""What a tool is for that nobody said anything of."""

META_KEY = "forebay/capability"

_MAX_CAPABILITY_LENGTH = 64
_MAX_TOOL_NAME_LENGTH = 256


_CAPABILITY_KEYS = (("_meta", META_KEY), ("_meta", "capability"), ("annotations", "capability"))
"""Where a tool says what it is for."""


def get_tool_name(tool: object) -> str | None:
    """The name of what a server lists, which may be anything; `None` for what is no tool."""
    name = tool.get("name") if isinstance(tool, Mapping) else None
    return name if isinstance(name, str) else None


def get_declared_capability(tool: Mapping[str, Any]) -> str | None:
    """What a tool says that it is for: `forebay/capability` or `capability` in `_meta`, or that in its annotations.

    Tags are not asked: a tool has several of them, and each of them would be a way around the filter.
    """
    for where, key in _CAPABILITY_KEYS:
        said = tool.get(where)
        if (
            isinstance(said, Mapping)
            and isinstance(name := said.get(key), str)
            and (name := to_single_line(name, _MAX_CAPABILITY_LENGTH))
        ):
            return name
    return None


def _has_readable_capability(tool: Mapping[str, Any]) -> bool:
    """Whether a tool says what it is for in words, or not at all: what was not parsed may say anything."""
    said = [(tool.get(where), key) for where, key in _CAPABILITY_KEYS if tool.get(where) is not None]
    return all(isinstance(inner, Mapping) and isinstance(inner.get(key), str | None) for inner, key in said)


class CapabilityFilter:
    """What of a server a client may see and call."""

    def __init__(
        self,
        *,
        tools_only: Iterable[str] | None = None,
        disable_tools: Iterable[str] = (),
        capabilities: Mapping[str, str] | None = None,
        hidden_tools: Iterable[str] = (),
        default: str | Callable[[str], str] = CORE,
        known: Iterable[str] = (),
    ) -> None:
        self._allowed = None if tools_only is None else _check_names("tools_only", tools_only)
        self._disabled = _check_names("disable_tools", disable_tools)
        self._capability_patterns = _check_patterns(capabilities or {})
        self._hidden_patterns = _check_names("hidden_tools", hidden_tools)
        self._default = default
        self.upstream_name: Callable[[str], str] = lambda tool: tool
        """What a tool is called by its own server, where it is called otherwise here: patterns are of either name."""
        self._declared: dict[str, str | None] = {}
        self._unreadable: set[str] = set()
        self._known_capabilities = {CORE, *known, *self._capability_patterns.values()} | (
            {default} if isinstance(default, str) else set()
        )
        self._knows_all_tools = False
        if "*" in self._capability_patterns and (mistake := self._find_mistake()):
            # Every tool has one of these, so that there is nothing to wait for.
            raise InvalidArgument(mistake)

    @property
    def is_active(self) -> bool:
        """Whether there may be tools that a client can neither see nor call."""
        return self._allowed is not None or bool(self._disabled)

    @property
    def hides_tools(self) -> bool:
        """Whether there may be tools that are not listed at first."""
        return bool(self._hidden_patterns)

    def learn_tools(self, tools: Iterable[object], *, is_complete: bool) -> None:
        """Remembers what tools say of themselves; once they are all known, so is a capability that does not exist.

        What a server lists besides is none, and is passed over.
        """
        before = self._find_mistake() if self._knows_all_tools else None
        named = {
            name: tool for tool in tools if isinstance(tool, Mapping) and (name := get_tool_name(tool)) is not None
        }
        own = {name: get_declared_capability(tool) for name, tool in named.items()}
        self._declared |= own
        self._unreadable -= own.keys()
        self._unreadable |= {name for name, tool in named.items() if not _has_readable_capability(tool)}
        self._known_capabilities |= {name for name in own.values() if name is not None}
        if is_complete and not self._knows_all_tools:
            self._warn_about_unused_patterns()
        self._knows_all_tools = self._knows_all_tools or is_complete
        if self._knows_all_tools and (mistake := self._find_mistake()) and mistake != before:
            _log.error("forebay: %s; until then none of the server's tools is there", mistake)

    def _warn_about_unused_patterns(self) -> None:
        """A slip of the pen in a pattern takes nothing away that was to be taken away, and looks as if it had."""
        names = {*self._declared, *map(self.upstream_name, self._declared)}
        # What is hidden may be named by what it is for, too.
        hidden = [pattern for pattern in self._hidden_patterns if pattern not in self._known_capabilities]
        for option, patterns in (("capabilities", [*self._capability_patterns]), ("hidden_tools", hidden)):
            for pattern in patterns:
                if not fnmatch.filter(names, pattern):
                    _log.warning(
                        "forebay: %s names %s, which no tool of the server is called", option, short_repr(pattern)
                    )

    def knows_tool(self, tool: str) -> bool:
        """Whether a tool was listed, or is configured: else more could be learnt of it from what the server lists."""
        return tool in self._declared or self._find_configured(tool) is not None

    def get_capability(self, tool: str) -> str:
        """What a tool is for."""
        return self.find_capability(tool) or (self._default if isinstance(self._default, str) else self._default(tool))

    def find_capability(self, tool: str) -> str | None:
        """What a tool is for, as far as it is configured or the tool says so itself."""
        return self._find_configured(tool) or self._declared.get(tool)

    def _find_configured(self, tool: str) -> str | None:
        return next(
            (found for pattern, found in self._capability_patterns.items() if self._matches_pattern(tool, pattern)),
            None,
        )

    def _matches_pattern(self, tool: str, pattern: str) -> bool:
        return any(fnmatch.fnmatchcase(name, pattern) for name in (tool, self.upstream_name(tool)))

    def find_denial(self, tool: str) -> CapabilityDisabled | None:
        """Why a tool cannot be called, if it cannot. In doubt it cannot."""
        if not self.is_active:
            return None
        capability = self.get_capability(tool)
        if not self._knows_all_tools:
            why = "the server's tools, and so what each of them is for, could not be listed yet; try again"
            return CapabilityDisabled(why, tool, capability)
        if mistake := self._find_mistake():
            return CapabilityDisabled(f"{mistake}; tell whoever runs this server", tool, capability)
        if not self.knows_tool(tool):
            # A server may take another name for one that it lists, such as one in capitals.
            why = f"the server lists no tool {short_repr(tool)}; use a name as tools/list has it"
            return CapabilityDisabled(why, tool, capability)
        if tool in self._unreadable and self._find_configured(tool) is None:
            why = f"what {short_repr(tool)} is for cannot be read off the server's list; use another tool"
            return CapabilityDisabled(why, tool, capability)
        if self._allows(capability):
            return None
        why = f"{short_repr(tool)} is of the capability {capability}, which is switched off here; use another tool"
        return CapabilityDisabled(why, tool, capability)

    def find_capability_denial(self, capability: str) -> CapabilityDisabled | None:
        """Why none of the tools of a capability is there, if that is so."""
        if self._allows(capability):
            return None
        return CapabilityDisabled(f"the capability {short_repr(capability)} is switched off here", "", capability)

    def _allows(self, capability: str) -> bool:
        return capability not in self._disabled and (self._allowed is None or capability in self._allowed)

    def is_hidden(self, tool: str) -> bool:
        """Whether a tool is not listed at first: its name matches, or what it is for is hidden."""
        return self.get_capability(tool) in self._hidden_patterns or any(
            self._matches_pattern(tool, pattern) for pattern in self._hidden_patterns
        )

    def is_listed(self, tool: str, expanded: Collection[str] = ()) -> bool:
        """Whether a tool is listed, where these were expanded."""
        return self.find_denial(tool) is None and (tool in expanded or not self.is_hidden(tool))

    def _find_mistake(self) -> str | None:
        """What is wrong with the options, as far as what there is is known."""
        for option, names in (("tools_only", self._allowed or ()), ("disable_tools", self._disabled)):
            if unknown := [name for name in names if name not in self._known_capabilities]:
                there_are = ", ".join(sorted(self._known_capabilities))
                return (
                    f"{option} names {', '.join(map(short_repr, unknown))}, which no tool is for; there are {there_are}; "
                    f"tools are given another by name: --capability '{to_single_line(unknown[0], _MAX_CAPABILITY_LENGTH)}=…'"
                )
        return None


def record_denial(journal: "Journal", error: CapabilityDisabled, principal: str | None) -> None:
    """Notes that something was asked for that is switched off."""
    tool = to_single_line(error.tool, _MAX_TOOL_NAME_LENGTH)
    journal.record(
        "capability_denied",
        principal=principal,
        tool=tool,
        capability=to_single_line(error.capability, _MAX_CAPABILITY_LENGTH),
    )


def _check_names(option: str, names: Iterable[str]) -> list[str]:
    given = None if isinstance(names, str | Mapping) or not isinstance(names, Iterable) else list(names)
    if given is None or not all(isinstance(name, str) and name for name in given):
        raise InvalidArgument(f'{option} is a list of names, such as ["core"], not {short_repr(names)}')
    return given


def _check_patterns(capabilities: Mapping[str, str]) -> dict[str, str]:
    is_mapping = isinstance(capabilities, Mapping)
    if not is_mapping or not all(isinstance(text, str) and text for pair in capabilities.items() for text in pair):
        raise InvalidArgument(
            f'capabilities are names by pattern, such as {{"crawl*": "crawl"}}, not {short_repr(capabilities)}'
        )
    return dict(capabilities)


EXPAND_DESCRIPTION = "Show unlisted tools by name or capability; with a query or nothing, name them."

_STRING_SCHEMA = {"type": "string"}
EXPAND_PROPERTIES: dict[str, dict[str, Any]] = {
    "name": _STRING_SCHEMA,
    "names": {"type": "array", "items": _STRING_SCHEMA},
    "capability": _STRING_SCHEMA,
    "query": _STRING_SCHEMA,
}

_MAX_NAMES_IN_ERROR = 20
"""How many names an error repeats."""

_MAX_DESCRIPTION_LENGTH = 120

_NEXT_STEP = "call this again with names or a capability to show them"

_ToolDefinition = Mapping[str, Any]


def expand_tools(
    capabilities: CapabilityFilter, arguments: Mapping[str, Any], listed: Sequence[Any], expanded: set[str] | None
) -> dict[str, Any]:
    """What `expand_tools` answers to someone for whom the server lists this.

    Where a connection lasts, what is asked for joins `expanded`, and is listed from then on. Else (`None`) the answer
    has the definitions, since a list must not change by a call then.
    """
    _check_arguments(arguments)
    tools: list[_ToolDefinition] = [tool for tool in listed if get_tool_name(tool) is not None]
    hidden = [tool for tool in tools if not capabilities.is_listed(_get_name(tool), expanded or ())]
    hidden = [tool for tool in hidden if capabilities.find_denial(_get_name(tool)) is None]
    if "capability" in arguments:
        asked = _find_by_capability(capabilities, arguments["capability"], hidden)
    elif names := [*([arguments["name"]] if "name" in arguments else []), *arguments.get("names", [])]:
        asked = _find_by_name(capabilities, names, tools, hidden)
    else:
        found = [tool for tool in hidden if _matches_query(tool, capabilities, arguments.get("query", ""))]
        named = {"hidden_tools": [_summarize_tool(tool, capabilities) for tool in found]}
        return {**named, "next": _NEXT_STEP} if found else named
    if expanded is None:
        return {"tools": asked}
    expanded.update(map(_get_name, asked))
    return {"expanded": [*map(_get_name, asked)], "next": "they are in tools/list now"}


def _check_arguments(arguments: Mapping[str, Any]) -> None:
    names = arguments.get("names", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidArgument(f'names is a list of names of tools, such as ["crawl"], not {short_repr(names)}')
    for key in ("name", "capability", "query"):
        if not isinstance(arguments.get(key, ""), str):
            raise InvalidArgument(f"{key} is a text, not {short_repr(arguments[key])}")
    ways = [way for way in (("name", "names"), ("capability",), ("query",)) if any(key in arguments for key in way)]
    if len(ways) > 1:
        raise InvalidArgument("ask by name, by capability or with a query, not by several of them at once")


def _find_by_capability(
    capabilities: CapabilityFilter, capability: str, hidden: Sequence[_ToolDefinition]
) -> list[_ToolDefinition]:
    if (denied := capabilities.find_capability_denial(capability)) is not None:
        raise denied
    if asked := [tool for tool in hidden if capabilities.get_capability(_get_name(tool)) == capability]:
        return asked
    there_are = _format_names(sorted({capabilities.get_capability(_get_name(tool)) for tool in hidden}))
    raise InvalidArgument(f"no hidden tool is of the capability {short_repr(capability)}; there are {there_are}")


def _find_by_name(
    capabilities: CapabilityFilter,
    names: Sequence[str],
    tools: Sequence[_ToolDefinition],
    hidden: Sequence[_ToolDefinition],
) -> list[_ToolDefinition]:
    by_name = {_get_name(tool): tool for tool in tools}
    for name in names:
        if (denied := capabilities.find_denial(name)) is not None:
            raise denied
        if name not in by_name:
            raise InvalidArgument(
                f"there is no tool {short_repr(name)}; hidden are {_format_names([*map(_get_name, hidden)])}"
            )
    return [by_name[name] for name in dict.fromkeys(names)]


def _matches_query(tool: _ToolDefinition, capabilities: CapabilityFilter, query: str) -> bool:
    text = f"{_get_name(tool)} {capabilities.get_capability(_get_name(tool))} {_get_description(tool)}".casefold()
    return all(word in text for word in query.casefold().split())


def _summarize_tool(tool: _ToolDefinition, capabilities: CapabilityFilter) -> dict[str, str]:
    name = _get_name(tool)
    return {
        "name": name,
        "capability": capabilities.get_capability(name),
        "description": to_single_line(_get_description(tool), _MAX_DESCRIPTION_LENGTH),
    }


def _get_name(tool: _ToolDefinition) -> str:
    return str(tool["name"])


def _get_description(tool: _ToolDefinition) -> str:
    """What was not parsed is no text."""
    text = tool.get("description")
    return text if isinstance(text, str) else ""


def _format_names(names: Sequence[str]) -> str:
    more = len(names) - _MAX_NAMES_IN_ERROR
    named = ", ".join(to_single_line(name, 64) for name in names[:_MAX_NAMES_IN_ERROR]) or "none"
    return f"{named} and {more} more" if more > 0 else named
