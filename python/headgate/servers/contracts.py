"""Which tools of a server answer by the response contract, and within what limits."""

import fnmatch
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from headgate.contract.limits import Category, ResponseLimits, category_of, limits_for
from headgate.errors import InvalidArgument

__all__ = ["CONTRACT_SCHEMA", "ContractRules", "Contracts", "structured"]

ContractRules: TypeAlias = "bool | Iterable[str] | Mapping[str, Category | ResponseLimits | bool]"
"""All tools or none, those of these names or patterns, or what each of them is to keep to."""

_STRUCTURED = ("summary", "success", "hasMore", "artifactRef", "fetchWith")

CONTRACT_SCHEMA: dict[str, Any] = {"required": ["summary", "success", "hasMore"]}
"""What is structured of a response, for a tool that lists what its answers are."""


def structured(response: Mapping[str, Any]) -> dict[str, Any]:
    """What a tool with an output schema says beside its response: not all of it twice."""
    return {key: response[key] for key in _STRUCTURED if key in response}


class Contracts:
    """The limits of each tool: by name or pattern, the first that matches."""

    def __init__(self, rules: ContractRules) -> None:
        self._rules = _rules(rules)
        for rule in self._rules.values():
            _limits("", rule)

    def __bool__(self) -> bool:
        return bool(self._rules)

    def of(self, tool: str) -> ResponseLimits | None:
        """What a tool's responses keep to; `None` for one that answers as it likes."""
        for pattern, rule in self._rules.items():
            if fnmatch.fnmatchcase(tool, pattern):
                return _limits(tool, rule)
        return None


def _rules(rules: ContractRules) -> Mapping[str, Any]:
    if isinstance(rules, bool):
        return {"*": True} if rules else {}
    if isinstance(rules, Mapping):
        return dict(rules)
    if isinstance(rules, str) or not isinstance(rules, Iterable):
        raise InvalidArgument(f'contract is True, or names of tools such as ["*_list"], not {rules!r:.64}')
    return dict.fromkeys(rules, True)


def _limits(tool: str, rule: Any) -> ResponseLimits | None:
    if isinstance(rule, ResponseLimits):
        return rule
    if isinstance(rule, bool):
        return limits_for(category_of(tool)) if rule else None
    return limits_for(rule)
