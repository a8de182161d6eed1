"""Functions that the request handler and the response handler share: describe a call, respond, record a size."""

from typing import Any, cast

from forebay.outputs.modes import Mode
from forebay.outputs.policy import OutputPolicy
from forebay.outputs.tool_call import ToolCall
from forebay.proxy.session import PendingRequest, Session
from forebay.wire.messages import make_result_message
from forebay.wire.protocol import add_result_fields

__all__ = ["make_response", "make_tool_call", "record_size"]


def make_tool_call(pending: PendingRequest, policy: OutputPolicy, session: Session) -> ToolCall:
    """Return the description of a call for the output pipeline."""
    return ToolCall(
        tool=pending.tool or pending.method,
        principal=session.principal,
        protocol_version=pending.version,
        # An id of any type is fine: the pipeline only copies it.
        request_id=cast("str | int | None", pending.id),
        handle_length=session.handle_length or policy.handle_length,
        fetch_with=policy.name_fetch_tool(pending.client),
    ).with_mode(pending.mode)


def make_response(pending: PendingRequest, result: dict[str, Any], server_info: dict[str, Any]) -> bytes:
    return make_result_message(pending.id, add_result_fields(pending.method, result, pending.version, server_info))


def record_size(
    policy: OutputPolicy, session: Session, tool: str, size: int, mode: Mode | None = None, *, is_inline: bool = True
) -> None:
    policy.record_size(
        tool, size, mode, is_inline=is_inline, principal=session.principal, connection=session.connection
    )
