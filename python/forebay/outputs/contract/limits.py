"""How large a response may be, by what it is a response to."""

import dataclasses
import fnmatch
from typing import Literal, TypeAlias, get_args

from forebay.arguments import check_integer, short_repr
from forebay.errors import InvalidArgument

__all__ = ["BUDGETS", "Category", "ResponseLimits", "category_of", "resolve_limits"]

Category: TypeAlias = Literal["execution", "list", "status", "scan", "config"]

BUDGETS: dict[Category, int] = {"execution": 3072, "list": 2048, "status": 1536, "scan": 2048, "config": 1536}
"""The bytes of a response of each category."""

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
"""A summary, a reference and what is around them need as much."""

_MAX_DEPTH = 64
"""As deep as anything is looked into."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ResponseLimits:
    """What every response keeps to. Bytes are of the whole message, after all escaping."""

    max_bytes: int = 10240
    max_array_items: int = 10
    max_string_length: int = 500
    """In characters; the `...` that says that there were more stands behind them."""
    max_json_depth: int = 4
    """The response itself is at depth 0, and what it says of the payload under `data` at depth 1."""
    max_log_lines: int = 20
    """Of a text of many lines the first half of them and the last half are shown."""

    def __post_init__(self) -> None:
        check_integer("max_bytes", self.max_bytes, _MIN_BYTES)
        for name in ("max_array_items", "max_string_length", "max_json_depth", "max_log_lines"):
            check_integer(name, getattr(self, name), 1)
        if self.max_json_depth > _MAX_DEPTH:
            raise InvalidArgument(f"max_json_depth is at most {_MAX_DEPTH}")


def category_of(tool: str) -> Category | None:
    """What a tool's name says of its responses: `bug_list` lists, `trace_get` shows how something is."""
    return next((category for pattern, category in _CATEGORY_PATTERNS if fnmatch.fnmatchcase(tool, pattern)), None)


def resolve_limits(category: Category | None, limits: ResponseLimits | None = None) -> ResponseLimits:
    """The limits with the budget of a category, if that is the smaller one."""
    if limits is not None and not isinstance(limits, ResponseLimits):
        raise InvalidArgument(f"limits are ResponseLimits(max_bytes=4096, …), not {short_repr(limits)}")
    chosen = limits or ResponseLimits()
    if category is None:
        return chosen
    if category not in BUDGETS:
        raise InvalidArgument(f"category is one of {', '.join(get_args(Category))}, not {str(category)[:32]!r}")
    return dataclasses.replace(chosen, max_bytes=min(chosen.max_bytes, BUDGETS[category]))
