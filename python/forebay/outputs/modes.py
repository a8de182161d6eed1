"""When a result goes inline and when it becomes a handle: for a server, for a tool, and for a call."""

import dataclasses
import fnmatch
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, get_args

from forebay.arguments import short_repr
from forebay.errors import InvalidArgument
from forebay.outputs.contract.limits import ResponseLimits

__all__ = ["MODE_ARGUMENTS", "Mode", "OutputMode", "ToolModes", "add_mode_arguments", "split_mode_arguments"]

OutputMode: TypeAlias = Literal["inline", "handle", "auto"]

MODE_ARGUMENT, LIMIT_ARGUMENT = "output_mode", "output_inline_limit_bytes"
MODE_ARGUMENTS = (MODE_ARGUMENT, LIMIT_ARGUMENT)
"""What a call may say of its own result, where the server lets it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Mode:
    """`inline` never stores a result, `handle` always does, `auto` stores what is larger than the limit."""

    output_mode: OutputMode = "inline"
    output_inline_limit_bytes: int = 32768
    contract: ResponseLimits | None = None
    """What the response keeps to, where it is neither: a server has tools that answer by the contract."""

    def __post_init__(self) -> None:
        if self.output_mode not in get_args(OutputMode):
            choices = ", ".join(get_args(OutputMode))
            raise InvalidArgument(f"{MODE_ARGUMENT} is one of {choices}, not {str(self.output_mode)[:32]!r}")
        limit = self.output_inline_limit_bytes
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
            raise InvalidArgument(f"{LIMIT_ARGUMENT} is a number of bytes, such as 32768, not {short_repr(limit)}")


class ToolModes:
    """The mode of each tool: by name or pattern (`crawl`, `*_list`), the first that matches, else the server's."""

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
            choices = ", ".join(get_args(OutputMode))
            raise InvalidArgument(
                f"the mode of a tool is one of {choices}, or {MODE_ARGUMENT} and {LIMIT_ARGUMENT}, not {short_repr(rule)}"
            )
        changes = {MODE_ARGUMENT: rule} if isinstance(rule, str) else dict(rule)
        unknown = changes.keys() - set(MODE_ARGUMENTS)
        if unknown:
            raise InvalidArgument(
                f"a tool has {MODE_ARGUMENT} and {LIMIT_ARGUMENT}, and no {', '.join(sorted(unknown))}"
            )
        return dataclasses.replace(self._default, **changes)

    def find_mode(self, tool: str) -> Mode:
        """What is configured for a tool."""
        for pattern, mode in self._rules.items():
            if fnmatch.fnmatchcase(tool, pattern):
                return mode
        return self._default


def split_mode_arguments(mode: Mode, arguments: Mapping[str, Any]) -> tuple[Mode, dict[str, Any]]:
    """The mode of a call, and its arguments without what they say of it."""
    changes = {name: arguments[name] for name in MODE_ARGUMENTS if arguments.get(name) is not None}
    rest = {name: value for name, value in arguments.items() if name not in MODE_ARGUMENTS}
    return dataclasses.replace(mode, **changes), rest


def add_mode_arguments(schema: Mapping[str, Any], mode: Mode) -> dict[str, Any]:
    """A tool's input schema with the two arguments that a call may add."""
    properties = schema.get("properties") or {}
    added = {
        MODE_ARGUMENT: {"type": "string", "enum": list(get_args(OutputMode)), "default": mode.output_mode},
        LIMIT_ARGUMENT: {"type": "integer", "minimum": 0, "default": mode.output_inline_limit_bytes},
    }
    return {**schema, "type": "object", "properties": {**properties, **added}}
