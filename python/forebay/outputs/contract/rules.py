"""Which tools of a server answer by the response contract, and within what limits."""

import fnmatch
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from forebay.errors import InvalidArgument
from forebay.outputs.contract.artifacts import plain_domain
from forebay.outputs.contract.context import Place
from forebay.outputs.contract.decorator import described
from forebay.outputs.contract.limits import Category, ResponseLimits, category_of, limits_for
from forebay.outputs.contract.response import Response, respond
from forebay.outputs.result import Found, Result
from forebay.outputs.tools import text_result
from forebay.store.pages import weigh
from forebay.store.payload import encoded
from forebay.wire.lazy_json import Pieces

if TYPE_CHECKING:
    from forebay.outputs.pipeline import Call

__all__ = ["CONTRACT_SCHEMA", "ContractRules", "Contracts", "by_contract"]

ContractRules: TypeAlias = "bool | Iterable[str] | Mapping[str, Category | ResponseLimits | bool]"
"""All tools or none, those of these names or patterns, or what each of them is to keep to."""

_STRUCTURED = ("summary", "success", "hasMore", "artifactRef", "fetchWith", "error")
"""What is structured of a response of which something is left out: not all of it twice."""

CONTRACT_SCHEMA: dict[str, Any] = {"required": ["summary", "success", "hasMore"]}
"""What is structured of a response, for a tool that lists what its answers are."""


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
    names = list(rules)
    if not all(isinstance(name, str) for name in names):
        raise InvalidArgument(f'contract is True, or names of tools such as ["*_list"], not {rules!r:.64}')
    return dict.fromkeys(names, True)


def _limits(tool: str, rule: Any) -> ResponseLimits | None:
    if isinstance(rule, ResponseLimits):
        return rule
    if isinstance(rule, bool):
        return limits_for(category_of(tool)) if rule else None
    if not isinstance(rule, str):
        raise InvalidArgument(f"a tool's contract is true, false, a category or ResponseLimits(...), not {rule!r:.64}")
    return limits_for(cast("Category", rule))


def by_contract(
    found: Found,
    result: Result,
    kept: dict[str, Any],
    said_beside: Mapping[str, Any],
    call: "Call",
    limits: ResponseLimits,
    place: Place,
) -> Result:
    """A result as the contract has it: its payload stands under `data`, as far as its message has room."""
    is_error, is_structured = bool(result.get("isError", False)), "structuredContent" in result

    def answer(said: Mapping[str, Any], text: str = "") -> Result:
        answered = text_result(text, is_error=is_error)
        answered["content"][0] |= said_beside
        if is_structured:
            # Some clients show nothing else, so it says all, or where all is.
            answered["structuredContent"] = (
                {key: said[key] for key in _STRUCTURED if key in said} if said["hasMore"] else said
            )
        return {**answered, **kept}

    def around(head: Mapping[str, Any]) -> int:
        message = encoded({"jsonrpc": "2.0", "id": call.request_id, "result": answer(head)})
        return weigh(message, 0, is_ascii=call.is_ascii) + call.around

    payload = found.payload.whole() if isinstance(found.payload, Pieces) else found.payload
    made = Response(payload) if isinstance(payload, str) and payload in call.made else None
    # What was to be a success, and then failed, says so.
    if made is not None and not (is_error and made.to_dict()["success"]):
        response = made
    else:
        response = respond(
            payload,
            lambda view: f"{call.tool} failed: {view.start()}" if is_error else described(call.tool, view),
            not is_error,
            limits,
            place,
            plain_domain(call.tool),
            id=plain_domain(str(call.request_id))[:32],
            mime_type=found.mime_type,
            around=around,
            is_twice=is_structured,
        )
    return answer(response.to_dict(), str(response))
