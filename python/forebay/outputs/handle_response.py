"""Build the tool result that carries a descriptor, and shorten it to its limit."""

import dataclasses
from typing import Any

from forebay.outputs.result import RESOURCE_URI_PREFIX, Result, text_result
from forebay.outputs.tool_call import ToolCall
from forebay.store.handles import Descriptor
from forebay.store.payload import encode, escaped_size
from forebay.wire.protocol import SERVER_INFO_KEY

__all__ = ["MAX_MESSAGE_BYTES", "HandleResponse", "shorten_server_info"]

MAX_MESSAGE_BYTES = 4096
"""Maximum bytes of a whole JSON-RPC message that carries a descriptor."""

_MAX_SERVER_INFO_BYTES = 128
"""A server's `serverInfo` up to this size is never shortened."""


@dataclasses.dataclass(frozen=True, slots=True)
class HandleResponse:
    """A result that carries a descriptor, before it is shortened to its limit."""

    descriptor: Descriptor
    result: Result
    protocol_fields: dict[str, Any]
    """Fields to keep from the original result."""
    block_fields: dict[str, Any]
    """Fields to keep from the single content block of the original result."""
    call: ToolCall
    has_link: bool
    """Whether to add a `resource_link` block."""

    def fit(self) -> Result:
        """Return the result, shortened so that its message is at most `MAX_MESSAGE_BYTES`."""
        response, is_ascii, is_repeated = self, self.call.is_ascii, self.is_structured
        smallest_descriptor = dataclasses.replace(self.descriptor, outline=None, items_path=None)
        min_bytes = dataclasses.replace(smallest_descriptor, preview="").sent_size(
            is_ascii=is_ascii, is_repeated=is_repeated
        )
        if response.get_descriptor_budget() < min_bytes:
            response = dataclasses.replace(response, descriptor=smallest_descriptor, has_link=False)
        if response.get_descriptor_budget() < min_bytes:
            fields = {**self.protocol_fields, **shorten_server_info(self.protocol_fields)}
            response = dataclasses.replace(response, protocol_fields=fields)
        budget = response.get_descriptor_budget()
        return response.build(response.descriptor.fit(budget, is_ascii=is_ascii, is_repeated=is_repeated))

    @property
    def is_structured(self) -> bool:
        """Whether the result must have structured content, because its tool may have an output schema."""
        return "structuredContent" in self.result

    def get_descriptor_budget(self) -> int:
        """Return how many bytes of the message are left for the escaped descriptor."""
        message = encode({"jsonrpc": "2.0", "id": self.call.request_id, "result": self.build(None)})
        size = escaped_size(message, 0, is_ascii=self.call.is_ascii)
        return MAX_MESSAGE_BYTES - self.call.envelope_bytes - size

    def build(self, descriptor: Descriptor | None) -> Result:
        """Return the result with a descriptor, or with empty fields in its place to measure the rest."""
        result = text_result(descriptor.to_json() if descriptor else "", is_error=bool(self.result.get("isError")))
        result["content"][0] |= self.block_fields
        if self.has_link:
            result["content"].append(_make_resource_link(self.descriptor))
        if self.is_structured:
            # Some clients show nothing but the structured content. The schema in `tools/list` allows a descriptor.
            result["structuredContent"] = descriptor.to_dict() if descriptor else {}
        return {**result, **self.protocol_fields}


def _make_resource_link(descriptor: Descriptor) -> dict[str, Any]:
    return {
        "type": "resource_link",
        "uri": RESOURCE_URI_PREFIX + descriptor.output_handle,
        "name": descriptor.output_handle,
        "mimeType": descriptor.mime_type,
        "size": descriptor.size_bytes,
    }


def shorten_server_info(fields: dict[str, Any]) -> dict[str, Any]:
    """Return a `_meta` field whose `serverInfo` has only name and version; `{}` if `serverInfo` is short already."""
    server_info = (fields.get("_meta") or {}).get(SERVER_INFO_KEY)
    if not isinstance(server_info, dict) or len(encode(server_info)) <= _MAX_SERVER_INFO_BYTES:
        return {}
    shortened = {key: server_info[key] for key in ("name", "version") if key in server_info}
    return {"_meta": {**fields["_meta"], SERVER_INFO_KEY: shortened}}
