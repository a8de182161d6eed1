"""Output modes: whether a result goes inline or becomes a handle, for a server, a tool or one call."""

import dataclasses
import fnmatch
import functools
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias, get_args

from forebay.arguments import short_repr
from forebay.errors import InvalidArgument
from forebay.outputs.contract.limits import ResponseLimits, ToolContracts
from forebay.outputs.schemas import (
    CONTRACT_SCHEMA,
    allow_alternative,
    allow_handle,
    allow_handle_for_fastmcp,
    allow_references,
    is_fastmcp_tool,
)

__all__ = [
    "MAX_REQUESTED_INLINE_BYTES",
    "MODE_ARGUMENTS",
    "MODE_META_KEY",
    "Mode",
    "OutputMode",
    "ToolListing",
    "ToolModes",
    "add_mode_arguments",
    "split_mode_arguments",
]

OutputMode: TypeAlias = Literal["inline", "handle", "auto"]

_MODE_NAME, _LIMIT_NAME = "output_mode", "output_inline_limit_bytes"
_MODE_CHOICES = ", ".join(get_args(OutputMode))

MODE_ARGUMENTS = (_MODE_NAME, _LIMIT_NAME)
"""Arguments that a call may pass to choose the mode of its own result, if the option `per_call` is on."""

_KIND_MODES = {"image": "image_mode", "audio": "audio_mode"}
"""The field of `Mode` for each type of block that has a mode of its own."""

MODE_META_KEY = "forebay/output_mode"
"""Key of a request's `_meta` by which a program asks for the result itself: `"inline"`."""

MAX_REQUESTED_INLINE_BYTES = 1_000_000
"""Maximum bytes of a result that goes inline because its call asks for that, where the server's mode would store it.

Some clients close the connection at messages above 1 MiB.
"""

_MAX_CACHED_MODES = 512
"""Maximum number of tools whose modes are cached; calls may name tools that do not exist."""


@dataclasses.dataclass(frozen=True, slots=True)
class Mode:
    """How results are returned: `inline` stores none, `handle` stores all, `auto` stores those above the limit."""

    output_mode: OutputMode = "inline"
    output_inline_limit_bytes: int = 32768
    contract: ResponseLimits | None = None
    """Limits of the response contract, if the tool is under contract. The output mode is then ignored."""
    image_mode: OutputMode = "inline"
    """The mode of images in mode `auto`: a model sees only those that go inline."""
    audio_mode: OutputMode = "inline"
    """The mode of audio in mode `auto`."""

    def __post_init__(self) -> None:
        for name in (_MODE_NAME, *_KIND_MODES.values()):
            if (value := getattr(self, name)) not in get_args(OutputMode):
                raise InvalidArgument(f"{name} is one of {_MODE_CHOICES}, not {str(value)[:32]!r}")
        limit = self.output_inline_limit_bytes
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
            raise InvalidArgument(f"{_LIMIT_NAME} is a number of bytes, such as 32768, not {short_repr(limit)}")

    @property
    def stores_all(self) -> bool:
        """Whether every result becomes a handle."""
        return self.output_mode == "handle" and self.contract is None

    def exceeds_limit(self, size: int) -> bool:
        """Return whether a response that is not a result, such as an error, is too large to be forwarded."""
        is_stored = self.contract is not None or self.output_mode != "inline"
        return is_stored and size > self.output_inline_limit_bytes

    def allows_inline(self, size: int) -> bool:
        """Return whether every response of `size` bytes goes inline, whatever it contains."""
        if self.contract is not None or self.output_mode == "handle":
            return False
        fits = size <= self.output_inline_limit_bytes and self.image_mode != "handle" != self.audio_mode
        return fits or self.output_mode == "inline"

    def list_kinds(self, output_mode: OutputMode) -> frozenset[str]:
        """Return the types of blocks that have this mode, whatever their size."""
        if self.output_mode != "auto" or self.contract is not None:
            return frozenset()
        return frozenset(kind for kind, name in _KIND_MODES.items() if getattr(self, name) == output_mode)

    def lower_limit(self, max_bytes: int) -> "Mode":
        """Return the mode with an inline limit of at most `max_bytes`."""
        if self.output_inline_limit_bytes <= max_bytes:
            return self
        return dataclasses.replace(self, output_inline_limit_bytes=max_bytes)

    def allow_inline(self) -> "Mode":
        """Return the mode for a call that asks for its result inline: up to a limit, unless all results are inline."""
        if self.output_mode == "inline" or self.contract is not None:
            return self
        limit = max(self.output_inline_limit_bytes, MAX_REQUESTED_INLINE_BYTES)
        return dataclasses.replace(self, output_mode="auto", output_inline_limit_bytes=limit)


class ToolModes:
    """The configured mode of each tool, by name or pattern such as `*_list`; the first match wins."""

    def __init__(self, default: Mode, tools: Mapping[str, OutputMode | Mode | Mapping[str, Any]]) -> None:
        if not isinstance(tools, Mapping):
            raise InvalidArgument(
                f'tools are modes by name or pattern, such as {{"*_list": "auto"}}, not {short_repr(tools)}'
            )
        self._default = default
        self._rules = {pattern: self._parse_rule(rule) for pattern, rule in tools.items()}

    def _parse_rule(self, rule: OutputMode | Mode | Mapping[str, Any]) -> Mode:
        if isinstance(rule, Mode):
            return rule
        if not isinstance(rule, str | Mapping):
            raise InvalidArgument(
                f"the mode of a tool is one of {_MODE_CHOICES}, or {_MODE_NAME} and {_LIMIT_NAME}, "
                f"not {short_repr(rule)}"
            )
        changes = {_MODE_NAME: rule} if isinstance(rule, str) else dict(rule)
        known = (*MODE_ARGUMENTS, *_KIND_MODES.values())
        if unknown := changes.keys() - set(known):
            raise InvalidArgument(f"a tool has {', '.join(known)}, and no {', '.join(sorted(unknown))}")
        return dataclasses.replace(self._default, **changes)

    def find_mode(self, tool: str) -> Mode:
        """Return the mode of a tool, or the default if no rule matches."""
        matches = (mode for pattern, mode in self._rules.items() if fnmatch.fnmatchcase(tool, pattern))
        return next(matches, self._default)


def split_mode_arguments(mode: Mode, arguments: Mapping[str, Any]) -> tuple[Mode, dict[str, Any]]:
    """Return the mode that a call chooses by its arguments, and the arguments without `MODE_ARGUMENTS`."""
    changes = {name: arguments[name] for name in MODE_ARGUMENTS if arguments.get(name) is not None}
    tool_arguments = {name: value for name, value in arguments.items() if name not in MODE_ARGUMENTS}
    chosen = dataclasses.replace(mode, **changes)
    return mode.allow_inline() if chosen.output_mode == "inline" else chosen, tool_arguments


def add_mode_arguments(schema: Mapping[str, Any], mode: Mode) -> dict[str, Any]:
    """Return an input schema with `MODE_ARGUMENTS` added."""
    choices: dict[str, Any] = {"type": "string", "enum": list(get_args(OutputMode)), "default": mode.output_mode}
    if mode.output_mode != "inline":
        choices["description"] = (
            f"inline is for programs: the result itself, up to {MAX_REQUESTED_INLINE_BYTES:,} bytes"
        )
    mode_arguments = {
        _MODE_NAME: choices,
        _LIMIT_NAME: {"type": "integer", "minimum": 0, "default": mode.output_inline_limit_bytes},
    }
    return {**schema, "type": "object", "properties": {**(schema.get("properties") or {}), **mode_arguments}}


class ToolListing:
    """Rewriter of the tools in `tools/list`, so that their schemas match what calls accept and return."""

    def __init__(
        self, modes: ToolModes, contracts: ToolContracts, *, has_mode_arguments: bool, has_references: bool
    ) -> None:
        self._modes = modes
        self._contracts = contracts
        self.has_mode_arguments = has_mode_arguments
        """Whether calls may pass `MODE_ARGUMENTS`."""
        self._has_references = has_references
        self.find_mode = functools.lru_cache(_MAX_CACHED_MODES)(self._find_mode)
        """Return the mode of a tool, with its contract and an inline limit of at most `max_bytes`."""

    def _find_mode(self, tool: str, max_bytes: int | None = None) -> Mode:
        mode, limits = self._modes.find_mode(tool), self._contracts.find_limits(tool)
        mode = mode if limits is None else dataclasses.replace(mode, contract=limits)
        return mode if max_bytes is None else mode.lower_limit(max_bytes)

    def rewrite_tool(self, definition: Mapping[str, Any]) -> dict[str, Any]:
        """Return the definition to list for a tool of the server."""
        tool = dict(definition)
        mode = self.find_mode(tool["name"])
        may_choose_mode = self._may_choose_mode(tool)
        input_schema = _get_input_schema(tool)
        if self._has_references and input_schema is not None:
            tool["inputSchema"] = input_schema = allow_references(input_schema)
        if may_choose_mode and input_schema is not None:
            tool["inputSchema"] = add_mode_arguments(input_schema, mode)
        schema = tool.get("outputSchema")
        if isinstance(schema, dict) and mode.contract is not None:
            tool["outputSchema"] = allow_alternative(schema, CONTRACT_SCHEMA)
        elif isinstance(schema, dict) and (may_choose_mode or mode.output_mode != "inline"):
            tool["outputSchema"] = allow_handle_for_fastmcp(schema) if is_fastmcp_tool(tool) else allow_handle(schema)
        return tool

    def choose_mode(
        self,
        mode: Mode,
        tool: str,
        find_definition: Callable[[str], Mapping[str, Any] | None],
        arguments: Mapping[str, Any],
    ) -> tuple[Mode, Mapping[str, Any]]:
        """Return the mode that a call chooses in place of `mode`, and the arguments to pass to the tool."""
        if not any(name in arguments for name in MODE_ARGUMENTS):
            return mode, arguments
        # These arguments are passed on to an unknown tool, because its schema may have arguments of the same names.
        definition = find_definition(tool)
        if definition is None or not self._may_choose_mode(definition):
            return mode, arguments
        return split_mode_arguments(mode, arguments)

    def _may_choose_mode(self, tool: Mapping[str, Any]) -> bool:
        """Return whether calls may choose the mode.

        They may not if the tool is under contract, or if its own schema has an argument named like a mode argument.
        """
        if not self.has_mode_arguments or self._contracts.find_limits(tool["name"]) is not None:
            return False
        properties = (_get_input_schema(tool) or {}).get("properties") or {}
        return isinstance(properties, Mapping) and not any(name in properties for name in MODE_ARGUMENTS)


def _get_input_schema(tool: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the tool's input schema, or `None` if it is not an object and must stay unchanged."""
    schema = tool.get("inputSchema") or {}
    return schema if isinstance(schema, Mapping) else None
