"""The capability filter: which of a server's tools a client may see and call.

A tool has one capability: the one configured for its name, else the one that the tool declares, else the default.
`tools_only` and `disable_tools` say which capabilities are allowed; `disable_tools` may also name tools. A client can
never see or call other tools. Hidden tools are allowed tools that are not listed until `expand_tools` shows them. They
can be called before that, since the newest version of the protocol has no session state to remember what was shown.
"""

import fnmatch
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from forebay.arguments import short_repr
from forebay.errors import CapabilityDisabled, InvalidArgument
from forebay.outputs.contract.text import to_single_line
from forebay.outputs.known_tools import encode_definition
from forebay.wire.lazy_json import LazyJSON, as_lazy

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
"""The default capability of a tool."""

META_KEY = "forebay/capability"

_MAX_CAPABILITY_LENGTH = 64
_MAX_TOOL_NAME_LENGTH = 256

_MAX_KNOWN_CAPABILITIES = 10_000
"""Maximum number of capabilities to remember, because a server may declare new ones in every list."""

_WILDCARDS = frozenset("*?[")

_CAPABILITY_KEYS = (("_meta", META_KEY), ("_meta", "capability"), ("annotations", "capability"))
"""Where a tool may declare its capability, in order of precedence."""


def get_tool_name(tool: object) -> str | None:
    """Return the name of an entry in a server's tool list, or `None` if it is not a valid tool."""
    name = tool.get("name") if isinstance(tool, Mapping) else None
    return name if isinstance(name, str) else None


def get_declared_capability(tool: Mapping[str, Any]) -> str | None:
    """Return the capability that a tool declares: `forebay/capability` or `capability` in `_meta` or its annotations.

    Tags are ignored: a tool can have several, and a second tag could bypass the filter.
    """
    for section, key in _CAPABILITY_KEYS:
        fields = tool.get(section)
        if (
            isinstance(fields, Mapping)
            and isinstance(name := fields.get(key), str)
            and (name := to_single_line(name, _MAX_CAPABILITY_LENGTH))
        ):
            return name
    return None


def _has_readable_capability(tool: Mapping[str, Any]) -> bool:
    """Return whether each field that may declare a capability is a string or absent. Large fields stay unparsed."""
    sections = [(tool.get(section), key) for section, key in _CAPABILITY_KEYS if tool.get(section) is not None]
    return all(isinstance(fields, Mapping) and isinstance(fields.get(key), str | None) for fields, key in sections)


class CapabilityFilter:
    """Filter that decides which of a server's tools a client may see and call."""

    def __init__(
        self,
        *,
        tools_only: Iterable[str] | None = None,
        disable_tools: Iterable[str] = (),
        capabilities: Mapping[str, str] | None = None,
        hidden_tools: Iterable[str] = (),
        default: str | Callable[[str], str] = CORE,
        known_capabilities: Iterable[str] = (),
    ) -> None:
        self._allowed = None if tools_only is None else _check_names("tools_only", tools_only)
        self._disabled = _check_names("disable_tools", disable_tools)
        self._disabled_tools: set[str] = set()
        """Entries of `disable_tools` that were the name of a listed tool at any time."""
        self.is_active = self._allowed is not None or bool(self._disabled)
        """Whether `tools_only` or `disable_tools` is set."""
        self._capability_patterns = _check_patterns(capabilities or {})
        self._hidden_patterns = _check_names("hidden_tools", hidden_tools)
        self._default = default
        self.find_other_names: Callable[[str], Collection[str]] = lambda _: ()
        """A function from the listed name of a tool to the other names that patterns may match."""
        self._declared_capabilities: dict[str, str | None] = {}
        self._unreadable_tools: set[str] = set()
        self._known_capabilities = {CORE, *known_capabilities, *self._capability_patterns.values()} | (
            {default} if isinstance(default, str) else set()
        )
        self._knows_all_tools = False
        if "*" in self._capability_patterns and (unknown := self._find_unknown(self._allowed or ())):
            # "*" gives every tool a configured capability, so the option can be checked before tools are listed.
            raise InvalidArgument(self._describe_unknown("tools_only", unknown, "this capability"))

    @property
    def hides_tools(self) -> bool:
        """Whether `hidden_tools` is set."""
        return bool(self._hidden_patterns)

    def learn_tools(self, tools: Iterable[object], *, is_complete: bool) -> None:
        """Remember the capabilities that listed tools declare; skip entries that are not valid tools.

        `is_complete` means that these are all of the server's tools. From then on, an option that names a capability
        that no tool has is an error.
        """
        previous_error = self._find_option_error() if self._knows_all_tools else None
        names_on_page: set[str] = set()
        unreadable_on_page: set[str] = set()
        for tool in tools:
            if (name := get_tool_name(tool)) is None:
                continue
            definition = cast("Mapping[str, Any]", tool)
            # Of several tools with one name, on one page or on several, one that is denied decides.
            is_repeated = name in names_on_page or (not is_complete and name in self._declared_capabilities)
            known = self._declared_capabilities.get(name) if is_repeated else None
            if not is_repeated or self._is_allowed(known or self._get_default(name)):
                self._declare(name, get_declared_capability(definition))
            names_on_page.add(name)
            self._disabled_tools |= self._find_disabled_names(name)
            if not _has_readable_capability(definition):
                unreadable_on_page.add(name)
        self._unreadable_tools -= names_on_page
        self._unreadable_tools |= unreadable_on_page
        if is_complete and not self._knows_all_tools:
            self._warn_about_unused_patterns()
        self._knows_all_tools = self._knows_all_tools or is_complete
        if self._knows_all_tools and (option_error := self._find_option_error()) and option_error != previous_error:
            _log.error("forebay: %s; until then none of the server's tools is there", option_error)

    def _find_disabled_names(self, tool: str) -> set[str]:
        """Return the entries of `disable_tools` that are a name of the tool."""
        return {tool, *self.find_other_names(tool)}.intersection(self._disabled) if self._disabled else set()

    def _declare(self, tool: str, capability: str | None) -> None:
        self._declared_capabilities[tool] = capability
        if capability is not None and len(self._known_capabilities) < _MAX_KNOWN_CAPABILITIES:
            self._known_capabilities.add(capability)

    def forget_tools(self, names: Iterable[str]) -> None:
        """Forget listed tools. Until they are listed again they are unknown, and so disabled if there is a filter."""
        for name in names:
            self._declared_capabilities.pop(name, None)
            self._unreadable_tools.discard(name)

    def _warn_about_unused_patterns(self) -> None:
        """Log patterns that match no tool: a typo would leave a tool enabled or listed without notice."""
        names = {name for tool in self._declared_capabilities for name in (tool, *self.find_other_names(tool))}
        # An entry of `hidden_tools` is either a capability or a pattern of tool names.
        hidden = [pattern for pattern in self._hidden_patterns if pattern not in self._known_capabilities]
        for option, patterns in (("capabilities", [*self._capability_patterns]), ("hidden_tools", hidden)):
            for pattern in patterns:
                if not fnmatch.filter(names, pattern):
                    _log.warning(
                        "forebay: %s names %s, which no tool of the server is called", option, short_repr(pattern)
                    )

    def knows_tool(self, tool: str) -> bool:
        """Return whether a tool was listed, or has a capability by its full name. If not, calls of it are refused.

        A pattern with wildcards is not enough: `*` also matches every variant of the name of a disabled tool.
        """
        return tool in self._declared_capabilities or (tool in self._capability_patterns and not _WILDCARDS & {*tool})

    def get_capability(self, tool: str) -> str:
        """Return the capability of a tool, or the default if none is configured or declared."""
        return self.find_capability(tool) or self._get_default(tool)

    def _get_default(self, tool: str) -> str:
        return self._default if isinstance(self._default, str) else self._default(tool)

    def find_capability(self, tool: str) -> str | None:
        """Return the configured or declared capability of a tool, or `None`."""
        return self._find_configured(tool) or self._declared_capabilities.get(tool)

    def _find_configured(self, tool: str) -> str | None:
        return next(
            (name for pattern, name in self._capability_patterns.items() if self._matches_pattern(tool, pattern)),
            None,
        )

    def _matches_pattern(self, tool: str, pattern: str) -> bool:
        return any(fnmatch.fnmatchcase(name, pattern) for name in (tool, *self.find_other_names(tool)))

    def find_denial(self, tool: str) -> CapabilityDisabled | None:
        """Return the error for a call of a disabled tool, or `None` if the tool may be called.

        Tools that the filter does not know are disabled.
        """
        if not self.is_active:
            return None
        capability = self.get_capability(tool)
        if not self._knows_all_tools:
            reason = "the server's tools could not be listed yet; try again"
            return CapabilityDisabled(reason, tool, capability)
        if option_error := self._find_option_error():
            return CapabilityDisabled(f"{option_error}; tell whoever runs this server", tool, capability)
        if not self.knows_tool(tool):
            # Refused, because the server may accept a variant of the name of a disabled tool, such as one in capitals.
            reason = f"the server lists no tool {short_repr(tool)}; use a name as tools/list has it"
            return CapabilityDisabled(reason, tool, capability)
        if tool in self._unreadable_tools and self._find_configured(tool) is None:
            reason = f"the capability of {short_repr(tool)} in the server's list is invalid; use another tool"
            return CapabilityDisabled(reason, tool, capability)
        if self._find_disabled_names(tool):
            return CapabilityDisabled(f"{short_repr(tool)} is disabled here; use another tool", tool, capability)
        if self._is_allowed(capability):
            return None
        reason = f"{short_repr(tool)} has the capability {capability}, which is disabled here; use another tool"
        return CapabilityDisabled(reason, tool, capability)

    def find_capability_denial(self, capability: str) -> CapabilityDisabled | None:
        """Return the error for a disabled capability, or `None` if it is enabled."""
        if self._is_allowed(capability):
            return None
        return CapabilityDisabled(f"the capability {short_repr(capability)} is switched off here", "", capability)

    def _is_allowed(self, capability: str) -> bool:
        return capability not in self._disabled and (self._allowed is None or capability in self._allowed)

    def is_hidden(self, tool: str) -> bool:
        """Return whether `hidden_tools` names the tool or its capability."""
        return self.get_capability(tool) in self._hidden_patterns or any(
            self._matches_pattern(tool, pattern) for pattern in self._hidden_patterns
        )

    def is_listed(self, tool: str, expanded_tools: Collection[str] = ()) -> bool:
        """Return whether a client that has expanded these tools sees the tool in the list."""
        return self.find_denial(tool) is None and (tool in expanded_tools or not self.is_hidden(tool))

    def _find_option_error(self) -> str | None:
        """Return a message if the options name a capability or a tool that there is not."""
        if unknown := self._find_unknown(self._allowed or ()):
            return self._describe_unknown("tools_only", unknown, "this capability")
        if unknown := self._find_unknown(name for name in self._disabled if name not in self._disabled_tools):
            return self._describe_unknown("disable_tools", unknown, "this name or capability")
        return None

    def _find_unknown(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if name not in self._known_capabilities]

    def _describe_unknown(self, option: str, unknown: Sequence[str], missing: str) -> str:
        example = to_single_line(unknown[0], _MAX_CAPABILITY_LENGTH)
        return (
            f"{option} names {', '.join(map(short_repr, unknown))}, but no tool has {missing}; "
            f"the capabilities are {', '.join(sorted(self._known_capabilities))}; "
            f"--capability 'PATTERN={example}' gives it to tools"
        )


def record_denial(journal: "Journal", error: CapabilityDisabled, principal: str | None) -> None:
    """Record in the journal that a call was refused because its capability is disabled."""
    journal.record(
        "capability_denied",
        principal=principal,
        tool=to_single_line(error.tool, _MAX_TOOL_NAME_LENGTH),
        capability=to_single_line(error.capability, _MAX_CAPABILITY_LENGTH),
    )


def _check_names(option: str, names: Iterable[str]) -> list[str]:
    entries = None if isinstance(names, str | Mapping) or not isinstance(names, Iterable) else list(names)
    if entries is None or not all(isinstance(name, str) and name for name in entries):
        raise InvalidArgument(f'{option} is a list of names, such as ["core"], not {short_repr(names)}')
    return entries


def _check_patterns(capabilities: Mapping[str, str]) -> dict[str, str]:
    is_mapping = isinstance(capabilities, Mapping)
    if not is_mapping or not all(isinstance(text, str) and text for pair in capabilities.items() for text in pair):
        raise InvalidArgument(
            f'capabilities are names by pattern, such as {{"crawl*": "crawl"}}, not {short_repr(capabilities)}'
        )
    return dict(capabilities)


EXPAND_DESCRIPTION = "Show hidden tools by name or capability, or list them"

_STRING_SCHEMA = {"type": "string"}
EXPAND_PROPERTIES: dict[str, dict[str, Any]] = {
    "name": _STRING_SCHEMA,
    "names": {"type": "array", "items": _STRING_SCHEMA},
    "capability": _STRING_SCHEMA,
    "query": _STRING_SCHEMA,
}

_MAX_NAMES_IN_ERROR = 20
"""Maximum number of tool names in an error message."""

_MAX_DESCRIPTION_LENGTH = 120

_NEXT_STEP = "call this again with names or a capability to show them"


def expand_tools(
    capabilities: CapabilityFilter,
    arguments: Mapping[str, Any],
    listed_tools: Iterable[Any],
    expanded_tools: set[str] | None,
) -> dict[str, Any]:
    """Return the result of the `expand_tools` tool; `listed_tools` are the server's tool definitions.

    They are not kept, because all of them together could take much memory. With a session, the requested tools join
    `expanded_tools` and are listed from then on. Without a session, `expanded_tools` is `None`: the list cannot change
    between calls, so the result holds the definitions instead.
    """
    _check_arguments(arguments)
    descriptions = {name: _get_description(tool) for tool in listed_tools if (name := get_tool_name(tool)) is not None}
    hidden = [
        name
        for name in descriptions
        if not capabilities.is_listed(name, expanded_tools or ()) and capabilities.find_denial(name) is None
    ]
    if "capability" in arguments:
        requested = _find_by_capability(capabilities, arguments["capability"], hidden)
    elif names := [*([arguments["name"]] if "name" in arguments else []), *arguments.get("names", [])]:
        requested = _check_requested(capabilities, names, descriptions, hidden)
    else:
        entries = [(name, capabilities.get_capability(name), descriptions[name]) for name in hidden]
        matches = [entry for entry in entries if _matches_query(entry, arguments.get("query", ""))]
        summary = {"hidden_tools": [_summarize_tool(*entry) for entry in matches]}
        return {**summary, "next": _NEXT_STEP} if matches else summary
    if expanded_tools is None:
        return {"tools": _collect_definitions(listed_tools, requested)}
    expanded_tools.update(requested)
    return {"expanded": requested, "next": "they are in tools/list now"}


def _check_arguments(arguments: Mapping[str, Any]) -> None:
    names = arguments.get("names", [])
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidArgument(f'names is a list of names of tools, such as ["crawl"], not {short_repr(names)}')
    for key in ("name", "capability", "query"):
        if not isinstance(arguments.get(key, ""), str):
            raise InvalidArgument(f"{key} is a text, not {short_repr(arguments[key])}")
    if sum(any(key in arguments for key in keys) for keys in (("name", "names"), ("capability",), ("query",))) > 1:
        raise InvalidArgument("ask by name, by capability or with a query, not by several of them at once")


def _find_by_capability(capabilities: CapabilityFilter, capability: str, hidden_tools: Sequence[str]) -> list[str]:
    if (denial := capabilities.find_capability_denial(capability)) is not None:
        raise denial
    if matches := [name for name in hidden_tools if capabilities.get_capability(name) == capability]:
        return matches
    available = _format_names(sorted(set(map(capabilities.get_capability, hidden_tools))))
    raise InvalidArgument(f"no hidden tool is of the capability {short_repr(capability)}; there are {available}")


def _check_requested(
    capabilities: CapabilityFilter, names: Sequence[str], tools: Collection[str], hidden_tools: Sequence[str]
) -> list[str]:
    """Return the names without duplicates. Raises `InvalidArgument` or `CapabilityDisabled`."""
    for name in names:
        if (denial := capabilities.find_denial(name)) is not None:
            raise denial
        if name not in tools:
            raise InvalidArgument(f"there is no tool {short_repr(name)}; hidden are {_format_names(hidden_tools)}")
    return [*dict.fromkeys(names)]


def _collect_definitions(tools: Iterable[Any], names: Sequence[str]) -> LazyJSON:
    """Return an array of the definitions with these names, as JSON."""
    wanted = set(names)
    definitions = {name: encode_definition(tool) for tool in tools if (name := get_tool_name(tool)) in wanted}
    return as_lazy(b"[" + b",".join(definitions[name] for name in names) + b"]")


def _matches_query(texts: Iterable[str], query: str) -> bool:
    text = " ".join(texts).casefold()
    return all(word in text for word in query.casefold().split())


def _summarize_tool(name: str, capability: str, description: str) -> dict[str, str]:
    return {
        "name": name,
        "capability": capability,
        "description": to_single_line(description, _MAX_DESCRIPTION_LENGTH),
    }


def _get_description(tool: Mapping[str, Any]) -> str:
    text = tool.get("description")
    return text if isinstance(text, str) else ""


def _format_names(names: Sequence[str]) -> str:
    omitted = len(names) - _MAX_NAMES_IN_ERROR
    text = ", ".join(to_single_line(name, 64) for name in names[:_MAX_NAMES_IN_ERROR]) or "none"
    return f"{text} and {omitted} more" if omitted > 0 else text
