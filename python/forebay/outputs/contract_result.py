"""Build the tool result that carries a contract response."""

from collections.abc import Mapping
from typing import Any

from forebay.outputs.contract.artifacts import sanitize_domain
from forebay.outputs.contract.context import ResponseContext
from forebay.outputs.contract.limits import ResponseLimits
from forebay.outputs.contract.response import PayloadView, Response, build_response, make_default_summary
from forebay.outputs.result import Result, ResultPayload, text_result
from forebay.outputs.tool_call import ToolCall
from forebay.store.payload import encode, escaped_size
from forebay.wire.lazy_json import ChunkSource

__all__ = ["apply_contract"]


def apply_contract(
    result_payload: ResultPayload,
    result: Result,
    protocol_fields: dict[str, Any],
    block_fields: Mapping[str, Any],
    call: ToolCall,
    limits: ResponseLimits,
    context: ResponseContext,
) -> Result:
    """Return the result as a contract response, with as much of the payload under `data` as fits."""
    is_error, is_structured = bool(result.get("isError", False)), "structuredContent" in result

    def make_result(fields: Mapping[str, Any], text: str = "") -> Result:
        wrapped = text_result(text, is_error=is_error)
        wrapped["content"][0] |= block_fields
        if is_structured:
            # Some clients show nothing but the structured content.
            wrapped["structuredContent"] = fields
        return {**wrapped, **protocol_fields}

    def summarize(view: PayloadView) -> str:
        if not is_error:
            return make_default_summary(call.tool, view)
        start = view.read_start()
        return f"{call.tool} failed: {start}" if start else f"{call.tool} failed"

    def measure_envelope(head: Mapping[str, Any]) -> int:
        message = encode({"jsonrpc": "2.0", "id": call.request_id, "result": make_result(head)})
        return escaped_size(message, 0, is_ascii=call.is_ascii) + call.envelope_bytes

    def is_sendable(response: Response) -> bool:
        """Return whether a response that the tool built can be sent as it is."""
        fields = response.to_dict()
        if is_error and fields["success"]:
            return False
        # The tool measured one copy of its response, but a second one is sent as structured content.
        text_size = escaped_size(response.encode(), 1, is_ascii=call.is_ascii)
        return not is_structured or measure_envelope(fields) + text_size <= limits.max_bytes

    payload = result_payload.data.read_all() if isinstance(result_payload.data, ChunkSource) else result_payload.data
    response = Response(payload) if isinstance(payload, str) and payload in call.contract_responses else None
    if response is None or not is_sendable(response):
        response = build_response(
            payload,
            summarize,
            not is_error,
            limits,
            context,
            sanitize_domain(call.tool),
            artifact_id=sanitize_domain(str(call.request_id))[:32],
            mime_type=result_payload.mime_type,
            measure_envelope=measure_envelope,
            is_repeated=is_structured,
        )
    return make_result(response.to_dict(), str(response))
