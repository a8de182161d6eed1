"""Which tools of a server answer by the response contract, and within what limits."""

import fnmatch
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from forebay.errors import InvalidArgument
from forebay.outputs.contract.artifacts import sanitize_domain
from forebay.outputs.contract.context import ResponseContext
from forebay.outputs.contract.decorator import describe_view
from forebay.outputs.contract.limits import Category, ResponseLimits, category_of, resolve_limits
from forebay.outputs.contract.response import Response, build_response
from forebay.outputs.result import Result, ResultPayload
from forebay.outputs.tools import text_result
from forebay.store.pages import escaped_size
from forebay.store.payload import encode
from forebay.wire.messages import ChunkSource

if TYPE_CHECKING:
    from forebay.outputs.pipeline import ToolCall

__all__ = ["CONTRACT_SCHEMA", "ContractRules", "ToolContracts", "apply_contract"]

ContractRules: TypeAlias = "bool | Iterable[str] | Mapping[str, Category | ResponseLimits | bool]"
"""All tools or none, those of these names or patterns, or what each of them is to keep to."""

_STRUCTURED_KEYS = ("summary", "success", "hasMore", "artifactRef", "fetchWith", "error")
"""What is structured of a response of which something is left out: not all of it twice."""

CONTRACT_SCHEMA: dict[str, Any] = {"required": ["summary", "success", "hasMore"]}
"""What is structured of a response, for a tool that lists what its answers are."""


class ToolContracts:
    """The limits of each tool: by name or pattern, the first that matches."""

    def __init__(self, rules: ContractRules) -> None:
        self._rules = _parse_rules(rules)
        for rule in self._rules.values():
            _resolve_rule("", rule)

    def __bool__(self) -> bool:
        return bool(self._rules)

    def find_limits(self, tool: str) -> ResponseLimits | None:
        """What a tool's responses keep to; `None` for one that answers as it likes."""
        for pattern, rule in self._rules.items():
            if fnmatch.fnmatchcase(tool, pattern):
                return _resolve_rule(tool, rule)
        return None


def _parse_rules(rules: ContractRules) -> Mapping[str, Any]:
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


def _resolve_rule(tool: str, rule: Any) -> ResponseLimits | None:
    if isinstance(rule, ResponseLimits):
        return rule
    if isinstance(rule, bool):
        return resolve_limits(category_of(tool)) if rule else None
    if not isinstance(rule, str):
        raise InvalidArgument(f"a tool's contract is true, false, a category or ResponseLimits(...), not {rule!r:.64}")
    return resolve_limits(cast("Category", rule))


def apply_contract(
    result_payload: ResultPayload,
    result: Result,
    protocol_fields: dict[str, Any],
    block_fields: Mapping[str, Any],
    call: "ToolCall",
    limits: ResponseLimits,
    context: ResponseContext,
) -> Result:
    """A result as the contract has it: its payload stands under `data`, as far as its message has room."""
    is_error, is_structured = bool(result.get("isError", False)), "structuredContent" in result

    def answer(said: Mapping[str, Any], text: str = "") -> Result:
        answered = text_result(text, is_error=is_error)
        answered["content"][0] |= block_fields
        if is_structured:
            # Some clients show nothing else, so it says all, or where all is.
            answered["structuredContent"] = (
                {key: said[key] for key in _STRUCTURED_KEYS if key in said} if said["hasMore"] else said
            )
        return {**answered, **protocol_fields}

    def around(head: Mapping[str, Any]) -> int:
        message = encode({"jsonrpc": "2.0", "id": call.request_id, "result": answer(head)})
        return escaped_size(message, 0, is_ascii=call.is_ascii) + call.envelope_bytes

    payload = result_payload.data.read_all() if isinstance(result_payload.data, ChunkSource) else result_payload.data
    made = Response(payload) if isinstance(payload, str) and payload in call.contract_responses else None
    # What was to be a success, and then failed, says so.
    if made is not None and not (is_error and made.to_dict()["success"]):
        response = made
    else:
        response = build_response(
            payload,
            lambda view: f"{call.tool} failed: {view.read_start()}" if is_error else describe_view(call.tool, view),
            not is_error,
            limits,
            context,
            sanitize_domain(call.tool),
            id=sanitize_domain(str(call.request_id))[:32],
            mime_type=result_payload.mime_type,
            measure_envelope=around,
            is_duplicated=is_structured,
        )
    return answer(response.to_dict(), str(response))
