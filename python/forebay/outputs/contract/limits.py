"""Size limits of contract responses: by category, and by the rules that a server has for its tools."""

import dataclasses
import fnmatch
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias, cast, get_args

from forebay.arguments import check_integer, short_repr
from forebay.errors import InvalidArgument

__all__ = [
    "BUDGETS",
    "Category",
    "ContractRules",
    "ResponseLimits",
    "ToolContracts",
    "category_of",
    "resolve_limits",
]

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
"""Maximum of `max_json_depth`, which is also the maximum of the compiled core."""


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
    """Number of lines to show of a long text: half from its start, half from its end."""

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


ContractRules: TypeAlias = "bool | Iterable[str] | Mapping[str, Category | ResponseLimits | bool]"
"""True for all tools, a list of names or patterns, or a rule for each name or pattern."""


class ToolContracts:
    """The response limits of each tool, by name or pattern such as `*_list`; the first match wins."""

    def __init__(self, rules: ContractRules) -> None:
        self._rules = _parse_rules(rules)
        for rule in self._rules.values():
            _resolve_rule("", rule)

    def __bool__(self) -> bool:
        return bool(self._rules)

    def find_limits(self, tool: str) -> ResponseLimits | None:
        """Return the limits of a tool's responses, or `None` if the tool is not under contract."""
        for pattern, rule in self._rules.items():
            if fnmatch.fnmatchcase(tool, pattern):
                return _resolve_rule(tool, rule)
        return None


def _parse_rules(rules: ContractRules) -> Mapping[str, Any]:
    if isinstance(rules, bool):
        return {"*": True} if rules else {}
    if isinstance(rules, Mapping):
        return dict(rules)
    names = None if isinstance(rules, str) or not isinstance(rules, Iterable) else list(rules)
    if names is None or not all(isinstance(name, str) for name in names):
        raise InvalidArgument(f'contract is True, or names of tools such as ["*_list"], not {rules!r:.64}')
    return dict.fromkeys(names, True)


def _resolve_rule(tool: str, rule: Any) -> ResponseLimits | None:
    if isinstance(rule, ResponseLimits):
        return rule
    if isinstance(rule, bool):
        return resolve_limits(category_of(tool)) if rule else None
    if not isinstance(rule, str):
        raise InvalidArgument(f"a tool's contract is true, false, a category or ResponseLimits(...), not {rule!r:.64}")
    return resolve_limits(cast("Category", rule))
