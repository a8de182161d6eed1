"""The parts of a `tools/call` request that its response depends on."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from forebay.outputs.contract.limits import ResponseLimits
from forebay.outputs.modes import Mode

__all__ = ["ToolCall"]


@dataclasses.dataclass(frozen=True, slots=True)
class ToolCall:
    """A `tools/call` request, without its arguments."""

    tool: str
    principal: str | None = None
    protocol_version: str = "2025-11-25"
    request_id: str | int | None = None
    handle_length: int | None = None
    is_ascii: bool = False
    """Whether the transport escapes non-ASCII characters; one character may then take twelve bytes."""
    contract: ResponseLimits | None = None
    """The limits of the response contract, if the tool is under contract."""
    contract_responses: Sequence[str] = ()
    """Contract responses that the tool built itself; they are not wrapped again."""
    envelope_bytes: int = 0
    """Bytes of the message around the result, in addition to the fields that every JSON-RPC response has."""
    server_info: Mapping[str, Any] | None = None
    """Replacement for the server's `serverInfo` in the response; `None` keeps the server's."""
    fetch_with: str | None = None
    """The client's name for `output_fetch`, if it differs from the server's."""
    inline_kinds: frozenset[str] = frozenset()
    """Types of content blocks, such as `image`, that go inline beside the descriptor."""
    is_mounted: bool = False
    """Whether this server is mounted in another one, which does not serve our resource URIs."""

    def with_mode(self, mode: Mode) -> "ToolCall":
        """Return a copy with the settings of a mode that affect the response."""
        return dataclasses.replace(self, contract=mode.contract, inline_kinds=mode.list_kinds("inline"))
