"""Content blocks of tool results. They are our own types: nothing here needs the `mcp` package.

A block is a plain dict with the keys that it has on the wire, so what is not known of it yet is kept with it.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NotRequired, TypeAlias, TypedDict, cast

from forebay.operations.envelope.body import served

__all__ = [
    "MCPAnnotations",
    "MCPAudioBlock",
    "MCPContentBlock",
    "MCPImageBlock",
    "MCPResourceBlock",
    "MCPResourceContent",
    "MCPResourceLink",
    "MCPTextBlock",
    "content_block",
    "content_blocks",
]


class MCPAnnotations(TypedDict, total=False):
    """For whom a block is, and how much it matters."""

    audience: list[Literal["user", "assistant"]]
    priority: float
    lastModified: str


class MCPTextBlock(TypedDict):
    """Text."""

    type: Literal["text"]
    text: str
    annotations: NotRequired[MCPAnnotations]


class MCPImageBlock(TypedDict):
    """A picture, in base64."""

    type: Literal["image"]
    data: str
    mimeType: str
    annotations: NotRequired[MCPAnnotations]


class MCPAudioBlock(TypedDict):
    """A sound, in base64."""

    type: Literal["audio"]
    data: str
    mimeType: str
    annotations: NotRequired[MCPAnnotations]


class MCPResourceContent(TypedDict):
    """What a resource holds: text, or a blob in base64."""

    uri: str
    mimeType: NotRequired[str]
    text: NotRequired[str]
    blob: NotRequired[str]


class MCPResourceBlock(TypedDict):
    """A resource that is embedded."""

    type: Literal["resource"]
    resource: MCPResourceContent
    annotations: NotRequired[MCPAnnotations]


class MCPResourceLink(TypedDict):
    """A resource that can be read."""

    type: Literal["resource_link"]
    uri: str
    name: str
    description: NotRequired[str]
    mimeType: NotRequired[str]
    annotations: NotRequired[MCPAnnotations]


MCPContentBlock: TypeAlias = MCPTextBlock | MCPImageBlock | MCPAudioBlock | MCPResourceBlock | MCPResourceLink


def content_block(block: object) -> MCPContentBlock:
    """A block of a result, as a plain dict; one of a type that is not known here becomes text with its JSON."""
    plain = _plain(block)
    match plain:
        case (
            {"type": "text", "text": str()}
            | {"type": "image" | "audio", "data": str(), "mimeType": str()}
            | {"type": "resource", "resource": {"uri": str()}}
            | {"type": "resource_link", "uri": str(), "name": str()}
        ):
            return cast("MCPContentBlock", plain)
    return {"type": "text", "text": served(plain).decode()}


def content_blocks(blocks: Iterable[object] | None) -> list[MCPContentBlock]:
    """All of them; a result without any has none."""
    return [content_block(block) for block in blocks or ()]


def _plain(block: object) -> Any:
    """A block as the wire has it, also if an SDK made a model of it."""
    if isinstance(block, dict):
        return block
    if isinstance(block, Mapping):
        return dict(block)
    dump = getattr(block, "model_dump", None)
    return block if dump is None else dump(mode="json", by_alias=True, exclude_none=True)
