"""Output modes: whether a result goes inline or becomes a handle, for a server, a tool or one call."""

import dataclasses
import fnmatch
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, get_args

from forebay.arguments import short_repr
from forebay.errors import InvalidArgument
from forebay.outputs.contract.limits import ResponseLimits

__all__ = ["MODE_ARGUMENTS", "Mode", "OutputMode", "ToolModes", "add_mode_arguments", "split_mode_arguments"]

OutputMode: TypeAlias = Literal["inline", "handle", "auto"]

_MODE, _LIMIT = "output_mode", "output_inline_limit_bytes"
_CHOICES = ", ".join(get_args(OutputMode))

MODE_ARGUMENTS = (_MODE, _LIMIT)
"""Arguments with which a call selects the mode of its own result, if `per_call` is enabled."""


@dataclasses.dataclass(frozen=True, slots=True)
class Mode:
    """How results are returned: `inline` never stores one, `handle` always, `auto` if it is larger than the limit."""

    output_mode: OutputMode = "inline"
    output_inline_limit_bytes: int = 32768
    contract: ResponseLimits | None = None
    """Limits of the response contract, which replaces the output mode for a tool under contract."""

    def __post_init__(self) -> None:
        if self.output_mode not in get_args(OutputMode):
            raise InvalidArgument(f"{_MODE} is one of {_CHOICES}, not {str(self.output_mode)[:32]!r}")
        limit = self.output_inline_limit_bytes
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
            raise InvalidArgument(f"{_LIMIT} is a number of bytes, such as 32768, not {short_repr(limit)}")


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
                f"the mode of a tool is one of {_CHOICES}, or {_MODE} and {_LIMIT}, not {short_repr(rule)}"
            )
        changes = {_MODE: rule} if isinstance(rule, str) else dict(rule)
        if unknown := changes.keys() - set(MODE_ARGUMENTS):
            raise InvalidArgument(f"a tool has {_MODE} and {_LIMIT}, and no {', '.join(sorted(unknown))}")
        return dataclasses.replace(self._default, **changes)

    def find_mode(self, tool: str) -> Mode:
        """Return the mode of a tool, or the default if no rule matches."""
        matches = (mode for pattern, mode in self._rules.items() if fnmatch.fnmatchcase(tool, pattern))
        return next(matches, self._default)


def split_mode_arguments(mode: Mode, arguments: Mapping[str, Any]) -> tuple[Mode, dict[str, Any]]:
    """Return the mode that a call chose, and its arguments without those that chose it."""
    changes = {name: arguments[name] for name in MODE_ARGUMENTS if arguments.get(name) is not None}
    tool_arguments = {name: value for name, value in arguments.items() if name not in MODE_ARGUMENTS}
    return dataclasses.replace(mode, **changes), tool_arguments


def add_mode_arguments(schema: Mapping[str, Any], mode: Mode) -> dict[str, Any]:
    """Return an input schema with the mode arguments added."""
    mode_arguments = {
        _MODE: {"type": "string", "enum": list(get_args(OutputMode)), "default": mode.output_mode},
        _LIMIT: {"type": "integer", "minimum": 0, "default": mode.output_inline_limit_bytes},
    }
    return {**schema, "type": "object", "properties": {**(schema.get("properties") or {}), **mode_arguments}}
