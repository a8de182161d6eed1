"""Which of a server's tools a client may see and call, by what each of them is for.

A tool has one capability: what is configured for its name, else what it says itself, else the server's default. The
filter (`tools_only`, `disable_tools`) is the most that a client can ever see or call. Tools that are hidden by default
are within it: they are only not listed until `expand_tools` shows them, and can be called all the same, since the
newest version of the protocol has no state that could remember what was shown.
"""

import fnmatch
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from forebay.arguments import shown
from forebay.errors import CapabilityDisabled, InvalidArgument
from forebay.outputs.contract.text import line

if TYPE_CHECKING:
    from forebay.store.journal import Journal

__all__ = ["CORE", "META_KEY", "Capabilities", "name_of", "own_capability", "record_denial"]

_log = logging.getLogger("forebay")

CORE = "core"
"""What a tool is for that nobody said anything of."""

META_KEY = "forebay/capability"

_LONGEST = 64
_LONGEST_TOOL = 256


_PLACES = (("_meta", META_KEY), ("_meta", "capability"), ("annotations", "capability"))
"""Where a tool says what it is for."""


def name_of(tool: object) -> str | None:
    """The name of what a server lists, which may be anything; `None` for what is no tool."""
    name = tool.get("name") if isinstance(tool, Mapping) else None
    return name if isinstance(name, str) else None


def own_capability(tool: Mapping[str, Any]) -> str | None:
    """What a tool says that it is for: `forebay/capability` or `capability` in `_meta`, or that in its annotations.

    Tags are not asked: a tool has several of them, and each of them would be a way around the filter.
    """
    for where, key in _PLACES:
        said = tool.get(where)
        if isinstance(said, Mapping) and isinstance(name := said.get(key), str) and (name := line(name, _LONGEST)):
            return name
    return None


def _is_clear(tool: Mapping[str, Any]) -> bool:
    """Whether a tool says what it is for in words, or not at all: what was not parsed may say anything."""
    said = [(tool.get(where), key) for where, key in _PLACES if tool.get(where) is not None]
    return all(isinstance(inner, Mapping) and isinstance(inner.get(key), str | None) for inner, key in said)


class Capabilities:
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
        self._only = None if tools_only is None else _names("tools_only", tools_only)
        self._disabled = _names("disable_tools", disable_tools)
        self._patterns = _patterns(capabilities or {})
        self._hidden = _names("hidden_tools", hidden_tools)
        self._default = default
        self.alias: Callable[[str], str] = lambda tool: tool
        """What a tool is called by its own server, where it is called otherwise here: patterns are of either name."""
        self._own: dict[str, str | None] = {}
        self._unclear: set[str] = set()
        self._known = {CORE, *known, *self._patterns.values()} | ({default} if isinstance(default, str) else set())
        self._is_complete = False
        if "*" in self._patterns and (mistake := self._mistake()):
            # Every tool has one of these, so that there is nothing to wait for.
            raise InvalidArgument(mistake)

    @property
    def is_filter(self) -> bool:
        """Whether there may be tools that a client can neither see nor call."""
        return self._only is not None or bool(self._disabled)

    @property
    def hides(self) -> bool:
        """Whether there may be tools that are not listed at first."""
        return bool(self._hidden)

    def learn(self, tools: Iterable[object], *, is_all: bool) -> None:
        """Remembers what tools say of themselves; once they are all known, so is a capability that does not exist.

        What a server lists besides is none, and is passed over.
        """
        before = self._mistake() if self._is_complete else None
        named = {name: tool for tool in tools if isinstance(tool, Mapping) and (name := name_of(tool)) is not None}
        own = {name: own_capability(tool) for name, tool in named.items()}
        self._own |= own
        self._unclear -= own.keys()
        self._unclear |= {name for name, tool in named.items() if not _is_clear(tool)}
        self._known |= {name for name in own.values() if name is not None}
        if is_all and not self._is_complete:
            self._warn_of_idle_patterns()
        self._is_complete = self._is_complete or is_all
        if self._is_complete and (mistake := self._mistake()) and mistake != before:
            _log.error("forebay: %s; until then none of the server's tools is there", mistake)

    def _warn_of_idle_patterns(self) -> None:
        """A slip of the pen in a pattern takes nothing away that was to be taken away, and looks as if it had."""
        names = {*self._own, *map(self.alias, self._own)}
        # What is hidden may be named by what it is for, too.
        hidden = [pattern for pattern in self._hidden if pattern not in self._known]
        for option, patterns in (("capabilities", [*self._patterns]), ("hidden_tools", hidden)):
            for pattern in patterns:
                if not fnmatch.filter(names, pattern):
                    _log.warning("forebay: %s names %s, which no tool of the server is called", option, shown(pattern))

    def knows(self, tool: str) -> bool:
        """Whether a tool was listed, or is configured: else more could be learnt of it from what the server lists."""
        return tool in self._own or self._configured(tool) is not None

    def of(self, tool: str) -> str:
        """What a tool is for."""
        return self.said(tool) or (self._default if isinstance(self._default, str) else self._default(tool))

    def said(self, tool: str) -> str | None:
        """What a tool is for, as far as it is configured or the tool says so itself."""
        return self._configured(tool) or self._own.get(tool)

    def _configured(self, tool: str) -> str | None:
        return next((found for pattern, found in self._patterns.items() if self._fits(tool, pattern)), None)

    def _fits(self, tool: str, pattern: str) -> bool:
        return any(fnmatch.fnmatchcase(name, pattern) for name in (tool, self.alias(tool)))

    def denied(self, tool: str) -> CapabilityDisabled | None:
        """Why a tool cannot be called, if it cannot. In doubt it cannot."""
        if not self.is_filter:
            return None
        capability = self.of(tool)
        if not self._is_complete:
            why = "the server's tools, and so what each of them is for, could not be listed yet; try again"
            return CapabilityDisabled(why, tool, capability)
        if mistake := self._mistake():
            return CapabilityDisabled(f"{mistake}; tell whoever runs this server", tool, capability)
        if not self.knows(tool):
            # A server may take another name for one that it lists, such as one in capitals.
            why = f"the server lists no tool {shown(tool)}; use a name as tools/list has it"
            return CapabilityDisabled(why, tool, capability)
        if tool in self._unclear and self._configured(tool) is None:
            why = f"what {shown(tool)} is for cannot be read off the server's list; use another tool"
            return CapabilityDisabled(why, tool, capability)
        if self._allows(capability):
            return None
        why = f"{shown(tool)} is of the capability {capability}, which is switched off here; use another tool"
        return CapabilityDisabled(why, tool, capability)

    def denied_capability(self, capability: str) -> CapabilityDisabled | None:
        """Why none of the tools of a capability is there, if that is so."""
        if self._allows(capability):
            return None
        return CapabilityDisabled(f"the capability {shown(capability)} is switched off here", "", capability)

    def _allows(self, capability: str) -> bool:
        return capability not in self._disabled and (self._only is None or capability in self._only)

    def is_hidden(self, tool: str) -> bool:
        """Whether a tool is not listed at first: its name matches, or what it is for is hidden."""
        return self.of(tool) in self._hidden or any(self._fits(tool, pattern) for pattern in self._hidden)

    def is_shown(self, tool: str, expanded: Collection[str] = ()) -> bool:
        """Whether a tool is listed, where these were expanded."""
        return self.denied(tool) is None and (tool in expanded or not self.is_hidden(tool))

    def _mistake(self) -> str | None:
        """What is wrong with the options, as far as what there is is known."""
        for option, names in (("tools_only", self._only or ()), ("disable_tools", self._disabled)):
            if unknown := [name for name in names if name not in self._known]:
                there_are = ", ".join(sorted(self._known))
                return (
                    f"{option} names {', '.join(map(shown, unknown))}, which no tool is for; there are {there_are}; "
                    f"tools are given another by name: --capability '{line(unknown[0], _LONGEST)}=…'"
                )
        return None


def record_denial(journal: "Journal", error: CapabilityDisabled, principal: str | None) -> None:
    """Notes that something was asked for that is switched off."""
    tool = line(error.tool, _LONGEST_TOOL)
    journal.record("capability_denied", principal=principal, tool=tool, capability=line(error.capability, _LONGEST))


def _names(option: str, names: Iterable[str]) -> list[str]:
    given = None if isinstance(names, str | Mapping) or not isinstance(names, Iterable) else list(names)
    if given is None or not all(isinstance(name, str) and name for name in given):
        raise InvalidArgument(f'{option} is a list of names, such as ["core"], not {shown(names)}')
    return given


def _patterns(capabilities: Mapping[str, str]) -> dict[str, str]:
    is_mapping = isinstance(capabilities, Mapping)
    if not is_mapping or not all(isinstance(text, str) and text for pair in capabilities.items() for text in pair):
        raise InvalidArgument(
            f'capabilities are names by pattern, such as {{"crawl*": "crawl"}}, not {shown(capabilities)}'
        )
    return dict(capabilities)
