"""Size limits of responses, by category of tool."""

import dataclasses
import fnmatch
from typing import Literal, TypeAlias, get_args

from forebay.arguments import check_integer, short_repr
from forebay.errors import InvalidArgument

__all__ = ["BUDGETS", "Category", "ResponseLimits", "category_of", "resolve_limits"]

Category: TypeAlias = Literal["execution", "list", "status", "scan", "config"]

BUDGETS: dict[Category, int] = {"execution": 3072, "list": 2048, "status": 1536, "scan": 2048, "config": 1536}
"""Maximum bytes of a response, by category."""

_CATEGORY_PATTERNS: tuple[tuple[str, Category], ...] = (
    ("*_scan", "scan"),
    ("scan_*", "scan"),
    ("*_list", "list"),
    ("list_*", "list"),
    ("*_run", "execution"),
    ("run_*", "execution"),
    ("*_execute", "execution"),
    ("execute_*", "execution"),
    ("*_status", "status"),
    ("status_*", "status"),
    ("config_*", "config"),
    ("*_config", "config"),
    ("memory_*", "config"),
    ("*_get", "status"),
    ("get_*", "status"),
)

_MIN_BYTES = 1024
"""Minimum of `max_bytes`: room for a summary, a reference and the message around them."""

_MAX_DEPTH = 64
"""Maximum of `max_json_depth`: the core does not look deeper."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ResponseLimits:
    """Limits for one response. `max_bytes` bounds the whole message, after all escaping."""

    max_bytes: int = 10240
    max_array_items: int = 10
    max_string_length: int = 500
    """In characters, not counting the `...` appended to a shortened string."""
    max_json_depth: int = 4
    """The response is at depth 0, its `data` at depth 1."""
    max_log_lines: int = 20
    """Lines shown of a long text: half from its start, half from its end."""

    def __post_init__(self) -> None:
        check_integer("max_bytes", self.max_bytes, _MIN_BYTES)
        for name in ("max_array_items", "max_string_length", "max_json_depth", "max_log_lines"):
            check_integer(name, getattr(self, name), 1)
        if self.max_json_depth > _MAX_DEPTH:
            raise InvalidArgument(f"max_json_depth is at most {_MAX_DEPTH}")


def category_of(tool: str) -> Category | None:
    """Return the category that a tool's name suggests: `bug_list` is "list", `trace_get` is "status"."""
    return next((category for pattern, category in _CATEGORY_PATTERNS if fnmatch.fnmatchcase(tool, pattern)), None)


def resolve_limits(category: Category | None, limits: ResponseLimits | None = None) -> ResponseLimits:
    """Return the limits, with `max_bytes` lowered to the category's budget."""
    if limits is not None and not isinstance(limits, ResponseLimits):
        raise InvalidArgument(f"limits are ResponseLimits(max_bytes=4096, …), not {short_repr(limits)}")
    limits = limits or ResponseLimits()
    if category is None:
        return limits
    if category not in BUDGETS:
        raise InvalidArgument(f"category is one of {', '.join(get_args(Category))}, not {str(category)[:32]!r}")
    return dataclasses.replace(limits, max_bytes=min(limits.max_bytes, BUDGETS[category]))
