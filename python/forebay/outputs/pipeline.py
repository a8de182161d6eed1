"""Inline, handle or auto: the one place where it is decided what a client gets of a result."""

import bisect
import dataclasses
import logging
from collections.abc import Container, Iterator, Sequence
from typing import Any, overload

from forebay import _core
from forebay.errors import ForebayError, RedactionFailed, StoreUnavailable
from forebay.outputs.contract.context import Place
from forebay.outputs.contract.limits import ResponseLimits
from forebay.outputs.contract.rules import by_contract
from forebay.outputs.modes import Mode
from forebay.outputs.resources import link
from forebay.outputs.result import Found, Result, beside, exceeds, own_meta, payload_of, seen
from forebay.outputs.tools import error_result, text_result
from forebay.store import Store
from forebay.store.handles import Descriptor
from forebay.store.pages import weigh
from forebay.store.payload import encoded
from forebay.wire.lazy_json import Pieces, LazyJSON
from forebay.wire.messages import SERVER_INFO

__all__ = ["HAS_RUN", "MESSAGE", "Call", "Pipeline", "kind_of"]

_log = logging.getLogger("forebay")

MESSAGE = 4096
"""What a message with a descriptor may weigh, whole."""

_PREVIEW = 2048

HAS_RUN = "the tool has run, and what it answered is not kept; call it again only if that may be done twice"
"""Else who is told what to make room for would take it that nothing was done."""

_VIEW = 2048
"""How much is shown of what could not be stored, as it goes over the wire."""

_MOST_META = 512
"""How much of a message may be what a tool says beside its result; more of it is stored with the rest."""

_MOST_STAMP = 128
"""A server may say this much of itself wherever it likes to."""

_MOST_VIEWED = 64 << 20
"""What of a message in a spool is read whole, to be shown by the contract."""

_PROTOCOL_S = (SERVER_INFO, "io.modelcontextprotocol/related-task")
"""The keys of `_meta` that are not the tool's to use: whoever waits for a task looks for its name."""

_HAS_LINKS = "2025-06-18"
"""The first version of the protocol with `resource_link`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """What of a `tools/call` its answer depends on, beside the result."""

    tool: str
    principal: str | None = None
    protocol_version: str = "2025-11-25"
    request_id: str | int | None = None
    handle_length: int | None = None
    is_ascii: bool = False
    """Whether the transport escapes whatever is not ASCII, so that a character may weigh twelve bytes."""
    contract: ResponseLimits | None = None
    """What the answer keeps to, where it is to be one by the contract."""
    made: Sequence[str] = ()
    """What the tool answered by the contract itself."""
    around: int = 0
    """How many bytes the message has beside the result, and what every answer has."""
    fetch_with: str | None = None
    """What the client calls the tool that redeems handles, if it has another name for it than the server."""


class Pipeline:
    """Puts what is too large into the store, and a descriptor in its place."""

    def __init__(self, store: Store, fetch_with: str) -> None:
        self._store = store
        self._fetch_with = fetch_with

    def is_inline(self, result: Result | LazyJSON, mode: Mode, *, is_ascii: bool = False, size: int | None = None) -> bool:
        """Whether a result goes to the client as it is: most do, and cost no more than this.

        `size` is what it is on the wire, where that is known.
        """
        if not _is_answer(result):
            return True
        if mode.output_mode == "inline" or mode.contract is not None:
            return mode.contract is None
        if isinstance(result, LazyJSON) or size is not None:
            known = len(result) if size is None else size
            return mode.output_mode == "auto" and known <= mode.output_inline_limit_bytes
        try:
            return mode.output_mode == "auto" and not exceeds(result, mode.output_inline_limit_bytes, is_ascii=is_ascii)
        except (TypeError, ValueError):
            # What cannot be written is the server's own to send.
            return True

    @overload
    def stored(self, result: Result, call: Call) -> Result: ...
    @overload
    def stored(self, result: Result | LazyJSON, call: Call) -> Result | LazyJSON: ...

    def stored(self, result: Result | LazyJSON, call: Call) -> Result | LazyJSON:
        """What a client gets in place of a result: what it is, and how to read it."""
        try:
            return self._stored(result, call)
        except StoreUnavailable as error:
            # What was put aside of it cannot be read any more, so there is nothing else to send.
            _log.warning("forebay: the result of %.64s was lost: %s", call.tool, error)
            return {**error_result(error), **_protocol_s(result, ())}
        except Exception:
            _log.exception("forebay: the result of %.64s could not be taken apart", call.tool)
            if self._store.options.redactions:
                return {**error_result(RedactionFailed("the result could not be redacted")), **_protocol_s(result, ())}
            # A mistake of ours must not cost what the tool has done.
            return result

    def _stored(self, whole: Result | LazyJSON, call: Call) -> Result:
        fetch_with = call.fetch_with or self._fetch_with
        # One that could not be taken apart is stored whole, whatever is known of it.
        result = seen(whole)
        own, said = own_meta(result), beside(result)
        is_little = weigh(encoded([own, said]), 0, is_ascii=call.is_ascii) <= _MOST_META
        found = payload_of(whole, with_meta=not is_little)
        kept = _protocol_s(result, own if is_little else ())
        if call.contract is not None and not _is_beyond_memory(found):
            place = Place(self._store, call.principal, call.handle_length, fetch_with, call.is_ascii)
            kept |= _short_stamp(kept)
            return by_contract(found, result, kept, said if is_little else {}, call, call.contract, place)
        try:
            descriptor = self._store.put(
                found.to_store(),
                mime_type=found.mime_type,
                source_tool=call.tool[:1024],
                principal=call.principal,
                handle_length=call.handle_length,
            )
        except ForebayError as error:
            _log.warning("forebay: the result of %.64s was not stored: %s", call.tool, error)
            return {**self._not_stored(error, found), **kept}
        descriptor = dataclasses.replace(descriptor, fetch_with=fetch_with)
        # Behind a name that is not ours, our addresses lead nowhere.
        has_link = call.fetch_with is None
        return _fitted(_Answer(descriptor, result, kept, said if is_little else {}, call, has_link))

    def _not_stored(self, error: ForebayError, found: Found) -> Result:
        """What can be said of a result that could not be stored: why, and its start, unless that was to be redacted."""
        if self._store.options.redactions:
            return error_result(error, note=HAS_RUN)
        start = found.payload.head() if isinstance(found.payload, Pieces) else found.payload
        view = _core.preview(start, _VIEW, max_escaped_bytes=_VIEW, escape_levels=2)
        return error_result(error, note=HAS_RUN, preview=view)


def _is_beyond_memory(found: Found) -> bool:
    """Whether a payload is too large to be looked at whole, as the contract does: it is only stored then."""
    return isinstance(found.payload, Pieces) and found.payload.most > _MOST_VIEWED


def _is_answer(result: Result | LazyJSON) -> bool:
    """Whether it is what a tool has to say: requests for input, and what extensions define, are theirs."""
    result = seen(result)
    content = result.get("content")
    is_listed = isinstance(content, list) or (isinstance(content, LazyJSON) and content.is_array)
    return is_listed and bool(result.get("resultType", "complete") == "complete")


def _protocol_s(result: Result | LazyJSON, own: Container[str]) -> dict[str, Any]:
    """What of a result is about the protocol and stays, with what the tool says of its own."""
    result = seen(result)
    kept: dict[str, Any] = {key: result[key] for key in ("resultType",) if key in result}
    if isinstance(result.get("_meta"), dict):
        kept["_meta"] = {key: value for key, value in result["_meta"].items() if key in _PROTOCOL_S or key in own}
    return kept


@dataclasses.dataclass(frozen=True, slots=True)
class _Answer:
    """The parts of what a client gets."""

    descriptor: Descriptor
    result: Result
    kept: dict[str, Any]
    """Keys of the result that stay."""
    said: dict[str, Any]
    """Keys of the sole block that stay."""
    call: Call
    has_link: bool = True

    def built(self) -> Result:
        descriptor = self.descriptor
        answer = text_result(descriptor.to_json(), is_error=bool(self.result.get("isError", False)))
        answer["content"][0] |= self.said
        if self.has_link and self.call.protocol_version >= _HAS_LINKS:
            answer["content"].append(link(descriptor))
        if "structuredContent" in self.result:
            # Whoever has an output schema has to answer by it, and lists one that takes this.
            answer["structuredContent"] = {
                "output_handle": descriptor.output_handle,
                "fetch_with": descriptor.fetch_with,
            }
        return {**answer, **self.kept}

    def room(self) -> int:
        message = {"jsonrpc": "2.0", "id": self.call.request_id, "result": self.built()}
        return MESSAGE - self.call.around - weigh(encoded(message), 0, is_ascii=self.call.is_ascii)

    def smaller(self) -> Iterator["_Answer"]:
        """The same with less and less in it: what can be done without goes first."""
        yield self
        answer = dataclasses.replace(self, descriptor=dataclasses.replace(self.descriptor, outline=None))
        yield answer
        answer = dataclasses.replace(answer, descriptor=dataclasses.replace(answer.descriptor, items_path=None))
        yield answer
        answer = dataclasses.replace(answer, has_link=False)
        yield answer
        yield dataclasses.replace(answer, kept={**answer.kept, **_short_stamp(answer.kept)})


def _short_stamp(kept: dict[str, Any]) -> dict[str, Any]:
    """Who the server is, in a word: it may have icons, and whole pages to say of itself."""
    stamp = (kept.get("_meta") or {}).get(SERVER_INFO)
    if not isinstance(stamp, dict) or len(encoded(stamp)) <= _MOST_STAMP:
        return {}
    short = {key: stamp[key] for key in ("name", "version") if key in stamp}
    return {"_meta": {**kept["_meta"], SERVER_INFO: short}}


def _fitted(answer: _Answer) -> Result:
    """The answer, with as much of the preview as the message has room for."""
    preview = answer.descriptor.preview
    bare = dataclasses.replace(answer, descriptor=dataclasses.replace(answer.descriptor, preview=""))
    for smaller in bare.smaller():
        room = smaller.room()
        if room >= 0:
            break
    if preview is not None:
        preview = _shortened(preview, max(0, room), is_ascii=answer.call.is_ascii)
    descriptor = dataclasses.replace(smaller.descriptor, preview=preview)
    return dataclasses.replace(smaller, descriptor=descriptor).built()


def _shortened(preview: str, room: int, *, is_ascii: bool) -> str | None:
    if not is_ascii:
        return _core.preview(preview, _PREVIEW, max_escaped_bytes=room, escape_levels=2)

    def weight(most: int) -> int:
        return weigh(encoded(_core.preview(preview, most))[1:-1], 1, is_ascii=True)

    return _core.preview(preview, bisect.bisect_right(range(1, _PREVIEW + 1), room, key=weight))


def kind_of(mode: Mode, is_inline: bool) -> tuple[str, int]:
    """What kind of an answer it is, and what it may weigh."""
    if mode.contract is not None:
        return "contract", mode.contract.max_bytes
    if not is_inline:
        return "handle", MESSAGE
    # Where nothing is ever stored, nobody chose a limit.
    return "inline", mode.output_inline_limit_bytes if mode.output_mode == "auto" else ResponseLimits().max_bytes
