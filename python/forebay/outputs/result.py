"""What counts as the payload of a tool's result: one result, one payload."""

import base64
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from forebay.errors import InvalidJSON
from forebay.outputs.repeats import Text, is_repeated, is_text, sole_text, texts_of
from forebay.store.pages import weigh
from forebay.store.payload import encoded, plausible
from forebay.wire.lazy_json import Pieces, LazyJSON, spliced
from forebay.wire.messages import SERVER_INFO

__all__ = [
    "RESOURCE",
    "UNSTRUCTURED",
    "Found",
    "Result",
    "beside",
    "exceeds",
    "own_meta",
    "payload_of",
    "seen",
    "without_stamp",
]

_MANY = 1000

_KNOWN = ("content", "structuredContent", "isError", "_meta", "resultType")
"""The members of a result of which each is in the answer, or in the payload."""

_BESIDE = frozenset({"type", "annotations", "_meta"})
"""The members of a sole block that are in the answer; its content is the payload."""

Result: TypeAlias = dict[str, Any]
"""The `result` of a `tools/call` as it is on the wire."""

UNSTRUCTURED = {"unstructured": True}
"""What an operation that has an output schema says beside content that cannot be structured by it."""

RESOURCE = "forebay/resource"
"""The key of `_meta` under which stands what a resource was called that is stored now."""

"""The key of `_meta` that is the server's, not the tool's."""


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """The payload of a result, and what it is called where that is known."""

    payload: str | bytes | Pieces
    mime_type: str | None = None

    def to_store(self) -> str | bytes | Iterator[bytes | memoryview]:
        """The payload as a store takes it."""
        return iter(self.payload) if isinstance(self.payload, Pieces) else self.payload


def exceeds(result: Mapping[str, Any], limit: int, *, is_ascii: bool = False) -> bool:
    """Whether a result is larger than `limit` bytes on the wire.

    What is surely larger is not written out to find that out: a character takes a byte at least.
    """
    texts = 0
    for block in result.get("content") or ():
        for value in block.values() if isinstance(block, dict) else ():
            if isinstance(value, str):
                texts += len(value)
        if texts > limit:
            return True
    structured = result.get("structuredContent")
    if structured is not None and _has_many(structured) and _is_surely_larger(structured, limit):
        return True
    return weigh(encoded(result), 0, is_ascii=is_ascii) > limit


def _has_many(structured: Any) -> bool:
    """Whether it is worth a look before it is written out: most lists are the whole of it, or one of its keys."""
    inner = structured.values() if isinstance(structured, dict) else ()
    return any(isinstance(value, dict | list) and len(value) > _MANY for value in (structured, *inner))


def _is_surely_larger(value: Any, limit: int) -> bool:
    """Whether the least that a value takes is more: a character takes a byte, and all have a comma behind them."""
    least, waiting = 0, [value]
    while waiting and least <= limit:
        inner = waiting.pop()
        if isinstance(inner, str):
            least += len(inner) + 3
        elif isinstance(inner, Mapping):
            least += sum(len(key) for key in inner if isinstance(key, str))
            waiting.extend(inner.values())
        elif isinstance(inner, list):
            waiting.extend(inner)
        else:
            least += 2
    # The last one has none.
    return least - 1 > limit


def seen(result: "Result | LazyJSON") -> Result:
    """What can be said of a result: of one that has names that nobody can read, what has other names."""
    if not isinstance(result, LazyJSON):
        return result
    try:
        return {name: member.taken_apart() for name, member in result.members(_KNOWN).items()}
    except InvalidJSON:
        # Whatever it is, it is kept whole.
        return {"content": [result]}


def own_meta(result: Mapping[str, Any]) -> dict[str, Any]:
    """What the tool itself says of its result, beside it."""
    meta = result.get("_meta")
    return {key: value for key, value in meta.items() if key != SERVER_INFO} if isinstance(meta, dict) else {}


def without_stamp(result: Mapping[str, Any]) -> Result:
    """A result without what its own server and version of the protocol put around it: another one passes it on."""
    bare = {key: value for key, value in result.items() if key not in ("_meta", "resultType")}
    meta = own_meta(result)
    return {**bare, "_meta": meta} if meta else bare


def beside(result: Mapping[str, Any]) -> dict[str, Any]:
    """What a sole block says beside its content; of a resource that is embedded, also what is beside its text."""
    blocks = _blocks(result)
    if blocks is None or len(blocks) != 1 or not _has_usual_meta(blocks[0]):
        return {}
    said = {key: blocks[0][key] for key in ("annotations", "_meta") if key in blocks[0]}
    match blocks[0]:
        case {"type": "resource", "resource": Mapping() as resource}:
            about = {key: value for key, value in resource.items() if key not in ("text", "blob")}
            said["_meta"] = {**(said.get("_meta") or {}), RESOURCE: about}
    return said


def payload_of(result: Mapping[str, Any] | LazyJSON, *, with_meta: bool = False) -> Found:
    """What is stored of a result; values of it may be `Raw`, and so may all of it.

    A sole block is its content. Blocks that only repeat what is structured are that, once. Anything else is all of it,
    and so is everything `with_meta`: what the tool says beside its result. What has members that nobody knows is kept
    whole too, since they have no other place.
    """
    found = None
    if isinstance(result, LazyJSON):
        return Found(spliced(result), "application/json")
    if not with_meta and _is_known(result):
        structured = result.get("structuredContent")
        found = _sole(result) if structured is None or structured == UNSTRUCTURED else _repeated(result, structured)
    return found or Found(spliced(_whole(result)), "application/json")


def _is_known(result: Mapping[str, Any]) -> bool:
    """Whether a result has nothing but what it should have: of that the answer says what the payload does not."""
    is_usual = isinstance(result.get("isError"), bool | None) and _has_usual_meta(result)
    return is_usual and result.keys() <= set(_KNOWN)


def _has_usual_meta(said: Mapping[str, Any]) -> bool:
    return isinstance(said.get("_meta"), Mapping | None)


def _sole(result: Mapping[str, Any]) -> Found | None:
    blocks = _blocks(result)
    return _content_of(blocks[0]) if blocks is not None and len(blocks) == 1 else None


def _whole(result: Mapping[str, Any]) -> dict[str, Any]:
    whole = {key: value for key, value in result.items() if key not in ("_meta", "resultType")}
    meta = result.get("_meta")
    if kept := own_meta(result) if isinstance(meta, Mapping) else meta:
        whole["_meta"] = kept
    return whole


def _blocks(result: Mapping[str, Any]) -> Sequence[Mapping[str, Any]] | None:
    """All blocks; `None` if one of them is none, or was not parsed: then nothing can be said of the others alone."""
    content = result.get("content") or []
    is_seen = isinstance(content, list) and all(isinstance(block, Mapping) for block in content)
    return content if is_seen else None


def _repeated(result: Mapping[str, Any], structured: Any) -> Found | None:
    """What is structured, if the blocks say the same.

    Where it is one text that was wrapped to be structured, the text is the payload: inside of JSON it has no lines.
    """
    content = result.get("content")
    blocks = _blocks(result)
    said = content if isinstance(content, LazyJSON) else None if blocks is None else texts_of(blocks)
    if said is None or (blocks is not None and not _is_bare(blocks)):
        return None
    if not isinstance(said, LazyJSON) and (text := sole_text(said, structured)) is not None:
        return Found(_text(text))
    return Found(spliced(structured), "application/json") if is_repeated(said, structured) else None


def _is_bare(texts: Sequence[Mapping[str, Any]]) -> bool:
    """Whether blocks say nothing but their texts, or there is a sole one that says it beside the answer."""
    if len(texts) == 1:
        return _has_only(texts[0], "text")
    return all(block.keys() == {"type", "text"} for block in texts)


def _has_only(block: Mapping[str, Any], *content: str) -> bool:
    """Whether a sole block has only this content, and beside it what the answer says of it."""
    return block.keys() <= _BESIDE.union(content) and _has_usual_meta(block)


def _content_of(block: Mapping[str, Any]) -> Found | None:
    """A block's own content, exactly; `None` for one that has none, or that says more than the answer has room for."""
    match block:
        case {"type": "text", "text": text} if is_text(text) and _has_only(block, "text"):
            return Found(_text(text))
        case {"type": "image" | "audio", "data": data} if is_text(data) and _has_only(block, "data", "mimeType"):
            # Its type has no place but that of the payload.
            return _decoded(data, block) if _has_plausible_type(block) else None
        case {"type": "resource", "resource": Mapping() as resource} if _has_only(block, "resource"):
            return None if RESOURCE in (block.get("_meta") or {}) else _resource(resource)
    return None


def _resource(resource: Mapping[str, Any]) -> Found | None:
    match resource:
        case {"text": _, "blob": _}:
            return None
        case {"text": text} if is_text(text):
            return Found(_text(text), _mime_type(resource))
        case {"blob": data} if is_text(data):
            return _decoded(data, resource)
    return None


def _has_plausible_type(block: Mapping[str, Any]) -> bool:
    return "mimeType" not in block or plausible(_mime_type(block)) is not None


def _mime_type(said: Mapping[str, Any]) -> str | None:
    """What is said of the type, if that is one: so long a string as is not parsed is none."""
    mime_type = said.get("mimeType")
    return mime_type if isinstance(mime_type, str) else None


def _text(text: Text) -> str | bytes | Pieces:
    if isinstance(text, str):
        return text
    return Pieces(text.text_pieces, len(text)) if text.is_spooled else text.text()


def _decoded(data: Text, said: Mapping[str, Any]) -> Found | None:
    encoded = _text(data)
    try:
        if not isinstance(encoded, Pieces):
            return Found(base64.b64decode(encoded, validate=True), _mime_type(said))
        # Once to see that it can be, before any of it is stored.
        for _ in base64_decoded(encoded):
            pass
        return Found(Pieces(lambda: base64_decoded(encoded), encoded.most), _mime_type(said))
    except ValueError:
        return None


def base64_decoded(pieces: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """What `base64.b64decode(…, validate=True)` makes of it, a piece at a time."""
    waiting = b""
    for piece in pieces:
        waiting += piece
        # Padding stands at the end only, and may be one more than there should be: the last ones wait for it.
        ready = max(0, len(waiting) - 5) // 4 * 4
        if b"=" in waiting[:ready]:
            raise ValueError("there is padding within it")
        yield base64.b64decode(waiting[:ready], validate=True)
        waiting = waiting[ready:]
    yield base64.b64decode(waiting, validate=True)
