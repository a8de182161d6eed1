"""Which tools of a server follow the response contract, and applying it to their results."""

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
from forebay.store.payload import encode, escaped_size
from forebay.wire.messages import ChunkSource

if TYPE_CHECKING:
    from forebay.outputs.pipeline import ToolCall

__all__ = ["CONTRACT_SCHEMA", "ContractRules", "ToolContracts", "apply_contract"]

ContractRules: TypeAlias = "bool | Iterable[str] | Mapping[str, Category | ResponseLimits | bool]"
"""True for all tools, a list of names or patterns, or a rule for each name or pattern."""

_STRUCTURED_KEYS = ("summary", "success", "hasMore", "artifactRef", "fetchWith", "error")
"""Keys repeated in `structuredContent` if `hasMore` is true; `data` would double the size."""

CONTRACT_SCHEMA: dict[str, Any] = {"required": ["summary", "success", "hasMore"]}
"""Schema of a response in `structuredContent`, added to the output schema of a tool that lists one."""


class ToolContracts:
    """Response limits by tool name or pattern; the first match counts."""

    def __init__(self, rules: ContractRules) -> None:
        self._rules = _parse_rules(rules)
        for rule in self._rules.values():
            _resolve_rule("", rule)

    def __bool__(self) -> bool:
        return bool(self._rules)

    def find_limits(self, tool: str) -> ResponseLimits | None:
        """Return the limits of a tool's responses, or `None` if no contract applies to it."""
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
    """Return the result as a contract response, with as much of the payload under `data` as fits."""
    is_error, is_structured = bool(result.get("isError", False)), "structuredContent" in result

    def make_result(fields: Mapping[str, Any], text: str = "") -> Result:
        wrapped = text_result(text, is_error=is_error)
        wrapped["content"][0] |= block_fields
        if is_structured:
            # Some clients show only structuredContent: it must hold everything, or the reference to it.
            wrapped["structuredContent"] = (
                {key: fields[key] for key in _STRUCTURED_KEYS if key in fields} if fields["hasMore"] else fields
            )
        return {**wrapped, **protocol_fields}

    def measure_envelope(head: Mapping[str, Any]) -> int:
        message = encode({"jsonrpc": "2.0", "id": call.request_id, "result": make_result(head)})
        return escaped_size(message, 0, is_ascii=call.is_ascii) + call.envelope_bytes

    payload = result_payload.data.read_all() if isinstance(result_payload.data, ChunkSource) else result_payload.data
    own_response = Response(payload) if isinstance(payload, str) and payload in call.contract_responses else None
    # A response that claims success, in a result that is an error, is wrapped again.
    if own_response is not None and not (is_error and own_response.to_dict()["success"]):
        response = own_response
    else:
        response = build_response(
            payload,
            lambda view: f"{call.tool} failed: {view.read_start()}" if is_error else describe_view(call.tool, view),
            not is_error,
            limits,
            context,
            sanitize_domain(call.tool),
            artifact_id=sanitize_domain(str(call.request_id))[:32],
            mime_type=result_payload.mime_type,
            measure_envelope=measure_envelope,
            is_duplicated=is_structured,
        )
    return make_result(response.to_dict(), str(response))
