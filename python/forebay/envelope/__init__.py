"""One result type for all sources: the data of an operation and metadata of its source.

from forebay.envelope import local_envelope, unwrap

envelope = local_envelope({"id": 7}, "crm.get")
assert unwrap(envelope) == {"id": 7}
assert envelope.meta.source == "local"
"""

from forebay.envelope.body import Body
from forebay.envelope.envelope import (
    HTTP_RESPONSE_META_SCHEMA,
    LOCAL_RESPONSE_META_SCHEMA,
    MCP_CONTENT_BLOCK_SCHEMA,
    MCP_RESPONSE_META_SCHEMA,
    RESPONSE_ENVELOPE_SCHEMA,
    RESPONSE_META_SCHEMA,
    RESPONSE_SOURCES,
    HTTPResponseMeta,
    LocalResponseMeta,
    MCPAnnotations,
    MCPAudioBlock,
    MCPContentBlock,
    MCPImageBlock,
    MCPResourceBlock,
    MCPResourceContent,
    MCPResourceLink,
    MCPResponseMeta,
    MCPTextBlock,
    ResponseEnvelope,
    ResponseMeta,
    ResponseSource,
    content_block,
    content_blocks,
    http_envelope,
    is_response_envelope,
    local_envelope,
    mcp_envelope,
    unwrap,
)

__all__ = [
    "HTTP_RESPONSE_META_SCHEMA",
    "LOCAL_RESPONSE_META_SCHEMA",
    "MCP_CONTENT_BLOCK_SCHEMA",
    "MCP_RESPONSE_META_SCHEMA",
    "RESPONSE_ENVELOPE_SCHEMA",
    "RESPONSE_META_SCHEMA",
    "RESPONSE_SOURCES",
    "Body",
    "HTTPResponseMeta",
    "LocalResponseMeta",
    "MCPAnnotations",
    "MCPAudioBlock",
    "MCPContentBlock",
    "MCPImageBlock",
    "MCPResourceBlock",
    "MCPResourceContent",
    "MCPResourceLink",
    "MCPResponseMeta",
    "MCPTextBlock",
    "ResponseEnvelope",
    "ResponseMeta",
    "ResponseSource",
    "content_block",
    "content_blocks",
    "http_envelope",
    "is_response_envelope",
    "local_envelope",
    "mcp_envelope",
    "unwrap",
]
