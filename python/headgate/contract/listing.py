"""Lists a page at a time: what each item is called, and a cursor that leads to the next ones."""

import base64
import binascii
import contextlib
import hashlib
import hmac
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson

from headgate.arguments import check_integer, check_text, shown
from headgate.contract.artifacts import artifact_name, put_artifact, reference
from headgate.contract.limits import ResponseLimits, limits_for
from headgate.contract.place import note, place_for
from headgate.contract.response import ENVELOPE, Response, told_error
from headgate.contract.words import LABEL, SEVERITIES, SUMMARY, line, within
from headgate.errors import HeadgateError, InvalidArgument
from headgate.fetch import weigh

if TYPE_CHECKING:
    from headgate.store import Store

__all__ = ["paginated_list"]

_SECRET = os.urandom(32)
_SIGNATURE = 12
_LIST = "list"
_LONGEST = 500
_OF_ITEMS = 6
"""An id may weigh this part of a page, and a label, too: what is heavier is cut, so that one item always fits."""


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

    `count` is how many there are in all. `nextCursor` goes on where this page ends, in the same process: pass it back
    with the same list. No page has more than `limit` items, nor more than fit into 2,048 bytes, or what `limits` say.
    With a `store`, whole items are read under `artifactRef`, which all pages of a list share.
    """
    check_integer("limit", limit, 1)
    check_text("label_field", label_field)
    artifact_name(domain, _LIST)
    chosen = limits or limits_for("list")
    offset, handle = (0, None) if cursor is None else _read(cursor, domain)
    head: dict[str, Any] = {
        "summary": line(f"{len(items)} {domain}(s)", SUMMARY),
        "success": True,
        "count": len(items),
    }
    place = place_for(store)
    if store is not None:
        try:
            handle = handle or put_artifact(place, domain, _LIST, list(items)).output_handle
            head["artifactRef"] = reference(domain, _LIST, handle)
            if place.fetch_with is not None:
                head["fetchWith"] = place.fetch_with
        except HeadgateError as error:
            head["error"] = told_error(error)
    most = chosen.max_bytes - ENVELOPE
    asked = items[offset : offset + min(limit, chosen.max_array_items)]
    page = [_item(item, label_field, most // _OF_ITEMS) for item in asked]
    while True:
        text = _text(head, page, offset, domain, handle)
        # A page of none would lead nowhere.
        if len(page) <= 1 or weigh(text, 1, is_ascii=place.is_ascii) <= most:
            break
        page.pop()
    response = Response(text.decode())
    note(response)
    return response


def _text(head: dict[str, Any], page: list[dict[str, str]], offset: int, domain: str, handle: str | None) -> bytes:
    end = offset + len(page)
    response = {**head, "items": page, "hasMore": end < head["count"]}
    if end < head["count"]:
        response["nextCursor"] = _signed(orjson.dumps([end, handle]), domain)
    return orjson.dumps(response)


def _item(item: Any, label_field: str, weight: int) -> dict[str, str]:
    """What is shown of an item."""
    label = line(_words(_field(item, label_field)), LABEL)
    told = {"id": within(line(_words(_field(item, "id")), _LONGEST), weight), "label": within(label, weight)}
    severity = _field(item, "severity")
    return {**told, "severity": severity} if severity in SEVERITIES else told


def _field(item: Any, name: str) -> Any:
    return item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)


def _words(value: Any) -> str:
    return "" if value is None else str(value)


def _read(cursor: object, domain: str) -> tuple[int, str | None]:
    """What a cursor says, if it is one of ours and of this list."""
    if isinstance(cursor, str) and cursor.isascii():
        with contextlib.suppress(binascii.Error):
            said = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)[_SIGNATURE:]
            # As a whole: base64 has several ways to write the same.
            if hmac.compare_digest(cursor, _signed(said, domain)):
                offset, handle = orjson.loads(said)
                return offset, handle
    raise InvalidArgument(
        f"{shown(cursor)} is no nextCursor of this list, or one of before a restart; leave cursor out to start again"
    )


def _signed(said: bytes, domain: str) -> str:
    signature = hmac.digest(_SECRET, domain.encode() + b"\0" + said, hashlib.sha256)[:_SIGNATURE]
    return base64.urlsafe_b64encode(signature + said).decode().rstrip("=")
