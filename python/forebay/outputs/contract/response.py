"""Responses that keep to the contract: a summary, whether it went well, what fits of the payload, where the rest is."""

import functools
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import orjson
from typing_extensions import Buffer

from forebay.arguments import check_flag, shown
from forebay.errors import ForebayError, InvalidArgument, RedactionFailed
from forebay.outputs.contract.artifacts import artifact_name, put_artifact, reference
from forebay.outputs.contract.context import Place, note, place_for, telling
from forebay.outputs.contract.limits import Category, ResponseLimits, limits_for
from forebay.outputs.contract.text import SUMMARY, line, within
from forebay.outputs.contract.view import View, largest
from forebay.store.pages import weigh
from forebay.store.payload import Payload, in_one_piece, is_object
from forebay.store.put import redacted

if TYPE_CHECKING:
    from forebay.store import Store

__all__ = ["ENVELOPE", "Response", "redacted_text", "respond", "told_error", "wrap_response"]

ENVELOPE = 256
"""What is kept of a budget for the message around a response, where that is not known."""

_ERROR = 256
"""What the message of an error may weigh."""

_SHORTER = (SUMMARY, 40, 10)
"""A summary gives way where a budget has no room for it."""

_LEAST_ROOM = 32
"""The smallest overview weighs no more, even if it is all quotes."""

Head: TypeAlias = dict[str, Any]
"""A response without its payload."""


class Response(str):
    """What a tool answers with: JSON, as text. An SDK sends it as it is, once."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """The response as it will be read."""
        said = json.loads(self)
        assert isinstance(said, dict)  # noqa: S101 - it was made so
        return said


@telling
def wrap_response(
    data: Payload,
    *,
    summary: str,
    success: bool = True,
    category: Category | None = None,
    limits: ResponseLimits | None = None,
    store: "Store | None" = None,
    domain: str | None = None,
) -> Response:
    """A response to a call of a tool: never larger than its limits, and nothing is lost.

    What fits of the payload stands under `data`. If anything is left out, `hasMore` is true and `artifactRef` is where
    all of it is: in the store that is given, else in that of the server whose tool it is, else in the user's own. If it
    cannot be stored, `error` says why, and there is no reference.
    """
    if not isinstance(summary, str):
        raise InvalidArgument(f"summary is a line of text that says what came of it, not {shown(summary)}")
    check_flag("success", success)
    chosen = limits_for(category, limits)
    place = place_for(store)
    return respond(data, lambda _: summary, success, place.limits(chosen), place, domain or category or "result")


def respond(
    data: Payload,
    summarize: Callable[[View], str],
    success: bool,
    limits: ResponseLimits,
    place: Place,
    domain: str,
    *,
    id: str = "result",  # noqa: A002
    mime_type: str | None = None,
    around: Callable[[Head], int] = lambda _: ENVELOPE,
    is_twice: bool = False,
) -> Response:
    """The response, where what is `around` it in its message is known.

    `is_twice`: whether a payload that is shown whole is in the message once more, unescaped.
    """
    artifact_name(domain, id)
    mime_type = mime_type or ("application/json" if is_object(data) else None)
    payload = in_one_piece(data)
    try:
        shown_as = redacted(payload, place.redactions) if place.redactions else payload
        view = View(shown_as, limits, mime_type)
        summary = redacted_text(summarize(view), place)
    except RedactionFailed as error:
        # Not even its size is shown.
        view = View(b"null", limits, "application/json")
        failed = {"summary": "", "success": success, "hasMore": True, "error": told_error(error)}
        return _made(*_fitted(failed, view, limits, around, place.is_ascii))
    head: Head = {"summary": summary, "success": success}
    if view.count is not None:
        head["count"] = view.count
    told, shown_of_it = _fitted({**head, "hasMore": False}, view, limits, around, place.is_ascii, is_twice=is_twice)
    if not view.is_all(shown_of_it):
        where = _stored(place, domain, id, payload, mime_type)
        told, shown_of_it = _fitted({**head, "hasMore": True, **where}, view, limits, around, place.is_ascii)
    return _made(told, shown_of_it)


def _stored(place: Place, domain: str, id: str, payload: Buffer, mime_type: str | None) -> Head:  # noqa: A002
    """Where all of it is, or why it is nowhere."""
    try:
        descriptor = put_artifact(place, domain, id, payload, mime_type)
    except ForebayError as error:
        return {"error": told_error(error)}
    found = {"artifactRef": reference(domain, id, descriptor.output_handle)}
    return found if place.fetch_with is None else {**found, "fetchWith": place.fetch_with}


def redacted_text(text: str, place: Place) -> str:
    """A text without what must not be shown of it."""
    if not place.redactions:
        return text
    return redacted(text.encode("utf-8", "replace"), place.redactions).decode("utf-8", "replace")


def told_error(error: ForebayError) -> dict[str, str]:
    """What went wrong, in a few words."""
    return {"code": error.code, "message": within(line(str(error), _ERROR), _ERROR)}


def _fitted(
    head: Head,
    view: View,
    limits: ResponseLimits,
    around: Callable[[Head], int],
    is_ascii: bool,
    *,
    is_twice: bool = False,
) -> tuple[Head, bytes]:
    """A head, and as much of the payload as there is room for beside it."""
    weight = functools.partial(weigh, escape_levels=1, is_ascii=is_ascii)

    def payload_weight(payload: bytes) -> int:
        return weight(payload) + (weigh(payload, 0, is_ascii=is_ascii) if is_twice else 0)

    for length in _SHORTER:
        told = {**head, "summary": line(head["summary"], length) or ("Done" if head["success"] else "Failed")}
        room = limits.max_bytes - around(told) - weight(_text(told, b""))
        if room >= _LEAST_ROOM:
            break
    return told, largest(view.within, payload_weight, max(_LEAST_ROOM, room))


def _text(head: Head, payload: bytes) -> bytes:
    """A response as it is sent; the payload cannot take the place of anything that it says."""
    return orjson.dumps(head)[:-1] + b',"data":' + payload + b"}"


def _made(head: Head, payload: bytes) -> Response:
    response = Response(_text(head, payload).decode())
    note(response)
    return response
