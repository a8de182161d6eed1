"""Lists a page at a time: what each item is called, and a cursor that leads to the next ones."""

import base64
import binascii
import contextlib
import hashlib
import hmac
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson

from forebay.arguments import check_integer, check_text, shown
from forebay.errors import ForebayError, InvalidArgument, RedactionFailed
from forebay.outputs.contract.artifacts import artifact_name, put_artifact, reference
from forebay.outputs.contract.context import Place, note, place_for, telling
from forebay.outputs.contract.limits import ResponseLimits, limits_for
from forebay.outputs.contract.response import ENVELOPE, Response, redacted_text, told_error
from forebay.outputs.contract.text import LABEL, SEVERITIES, SUMMARY, cut, line, plain, within
from forebay.store.pages import weigh

if TYPE_CHECKING:
    from forebay.store import Store

__all__ = ["paginated_list"]

_SECRET = os.urandom(32)
_SIGNATURE = 12
_LIST = "list"
_LONGEST = 500
_OF_ITEMS = 6
"""An id may weigh this part of a page, and a label, too: what is heavier is cut, so that one item always fits."""


@telling
def paginated_list(
    items: Sequence[Any],
    *,
    domain: str,
    limit: int = 10,
    label_field: str = "id",
    cursor: str | None = None,
    limits: ResponseLimits | None = None,
    store: "Store | None" = None,
) -> Response:
    """A page of a list: of each item its `id`, a `label` of at most 50 characters, and its `severity` if it has one.

    Items that are no objects are their own id and label; an item without the label's field is called by its id.
    `count` is how many there are in all. `nextCursor` goes on where this page ends, in the same process: pass it back
    with the same list. No page has more than `limit` items, nor more than fit into 2,048 bytes, or what `limits` say.
    With a `store`, and in a server with forebay, whole items are read under `artifactRef`, which all pages of a list
    share.
    """
    if not isinstance(items, Sequence) or isinstance(items, str | bytes):
        raise InvalidArgument(f"items are a list, such as list(rows), not {shown(items)}")
    check_integer("limit", limit, 1)
    check_text("label_field", label_field)
    artifact_name(domain, _LIST)
    place = place_for(store)
    chosen = place.limits(limits_for(None, limits) if limits else limits_for("list"))
    offset, handle = (0, None) if cursor is None else _read(cursor, items, domain, place)
    head: dict[str, Any] = {
        "summary": line(f"{len(items)} {domain}(s)", SUMMARY),
        "success": True,
        "count": len(items),
    }
    if place.store is not None:
        try:
            if handle is None or not _is_there(place, handle):
                handle = put_artifact(place, domain, _LIST, list(items)).output_handle
            head["artifactRef"] = reference(domain, _LIST, handle)
            if place.fetch_with is not None:
                head["fetchWith"] = place.fetch_with
        except ForebayError as error:
            head["error"] = told_error(error)
    most = chosen.max_bytes - ENVELOPE
    asked = items[offset : offset + min(limit, chosen.max_array_items)]
    # What is not ASCII takes up to three times its bytes where it is escaped.
    weight = most // _OF_ITEMS // (3 if place.is_ascii else 1)
    try:
        page = [_item(item, label_field, weight, place) for item in asked]
    except RedactionFailed as error:
        page, head["error"] = [], told_error(error)
    while True:
        text = _text(head, page, offset, lambda end: _cursor(items, end, handle, domain, place))
        # A page of none would lead nowhere.
        if len(page) <= 1 or weigh(text, 1, is_ascii=place.is_ascii) <= most:
            break
        page.pop()
    response = Response(text.decode())
    note(response)
    return response


def _text(head: dict[str, Any], page: list[dict[str, str]], offset: int, cursor: Callable[[int], str]) -> bytes:
    end = offset + len(page)
    response = {**head, "items": page, "hasMore": end < head["count"]}
    if page and end < head["count"]:
        response["nextCursor"] = cursor(end)
    return orjson.dumps(response)


def _item(item: Any, label_field: str, weight: int, place: Place) -> dict[str, str]:
    """What is shown of an item."""
    id = _id(item)  # noqa: A001
    label = _words(_field(item, label_field)) or id
    told = {
        "id": within(cut(redacted_text(id, place), _LONGEST), weight),
        "label": within(line(redacted_text(label, place), LABEL), weight),
    }
    severity = _field(item, "severity")
    return {**told, "severity": severity} if severity in SEVERITIES else told


def _id(item: Any) -> str:
    return _words(item if isinstance(item, str | int | float) else _field(item, "id"))


def _field(item: Any, name: str) -> Any:
    return item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)


def _words(value: Any) -> str:
    """A value as text that can be written."""
    return "" if value is None else plain(str(value))


def _is_there(place: Place, handle: str) -> bool:
    """Whether the list that a cursor knows of can still be read, by whoever has the cursor."""
    with contextlib.suppress(ForebayError):
        place.open().stat(handle, principal=place.principal)
        return True
    return False


def _cursor(items: Sequence[Any], end: int, handle: str | None, domain: str, place: Place) -> str:
    """Where to go on, and after what: a list that is another one by then is noticed."""
    last = hashlib.sha256(_id(items[end - 1]).encode()).hexdigest()[:8]
    return _signed(orjson.dumps([end, last, handle]), domain, place.principal)


def _read(cursor: object, items: Sequence[Any], domain: str, place: Place) -> tuple[int, str | None]:
    """What a cursor says, if it is one of ours and of this list."""
    if isinstance(cursor, str) and cursor.isascii():
        with contextlib.suppress(binascii.Error):
            said = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)[_SIGNATURE:]
            # As a whole: base64 has several ways to write the same.
            if hmac.compare_digest(cursor, _signed(said, domain, place.principal)):
                offset, _, handle = orjson.loads(said)
                if offset <= len(items) and cursor == _cursor(items, offset, handle, domain, place):
                    return offset, handle
                raise InvalidArgument(
                    "this list has changed since nextCursor was given; leave cursor out to start again"
                )
    raise InvalidArgument(
        f"{shown(cursor)} is no nextCursor of this list, or one of before a restart; leave cursor out to start again"
    )


def _signed(said: bytes, domain: str, principal: str | None) -> str:
    signature = hmac.digest(_SECRET, orjson.dumps([domain, principal]) + said, hashlib.sha256)[:_SIGNATURE]
    return base64.urlsafe_b64encode(signature + said).decode().rstrip("=")
