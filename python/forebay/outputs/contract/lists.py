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

from forebay.arguments import check_integer, check_text, short_repr
from forebay.errors import ForebayError, InvalidArgument, RedactionFailed
from forebay.outputs.contract.artifacts import format_artifact_name, make_reference, put_artifact
from forebay.outputs.contract.context import ResponseContext, find_context, record_failure, record_response
from forebay.outputs.contract.limits import ResponseLimits, resolve_limits
from forebay.outputs.contract.response import ENVELOPE_BYTES, Response, format_error, redact_text
from forebay.outputs.contract.text import (
    MAX_LABEL_LENGTH,
    MAX_SUMMARY_LENGTH,
    SEVERITIES,
    replace_unwritable,
    shorten,
    shorten_to_bytes,
    to_single_line,
)
from forebay.store.pages import escaped_size

if TYPE_CHECKING:
    from forebay.store import Store

__all__ = ["paginated_list"]

_SECRET = os.urandom(32)
_SIGNATURE_BYTES = 12
_LIST_ID = "list"
_MAX_ID_LENGTH = 500
_ITEM_FRACTION = 6
"""An id may weigh this part of a page, and a label, too: what is heavier is cut, so that one item always fits."""


@record_failure
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
        raise InvalidArgument(f"items are a list, such as list(rows), not {short_repr(items)}")
    check_integer("limit", limit, 1)
    check_text("label_field", label_field)
    format_artifact_name(domain, _LIST_ID)
    place = find_context(store)
    chosen = place.tighten_limits(resolve_limits(None, limits) if limits else resolve_limits("list"))
    offset, handle = (0, None) if cursor is None else _parse_cursor(cursor, items, domain, place)
    head: dict[str, Any] = {
        "summary": to_single_line(f"{len(items)} {domain}(s)", MAX_SUMMARY_LENGTH),
        "success": True,
        "count": len(items),
    }
    if place.store is not None:
        try:
            if handle is None or not _is_stored(place, handle):
                handle = put_artifact(place, domain, _LIST_ID, list(items)).output_handle
            head["artifactRef"] = make_reference(domain, _LIST_ID, handle)
            if place.fetch_with is not None:
                head["fetchWith"] = place.fetch_with
        except ForebayError as error:
            head["error"] = format_error(error)
    most = chosen.max_bytes - ENVELOPE_BYTES
    asked = items[offset : offset + min(limit, chosen.max_array_items)]
    # What is not ASCII takes up to three times its bytes where it is escaped.
    weight = most // _ITEM_FRACTION // (3 if place.is_ascii else 1)
    try:
        page = [_summarize_item(item, label_field, weight, place) for item in asked]
    except RedactionFailed as error:
        page, head["error"] = [], format_error(error)
    while True:
        text = _dump_page(head, page, offset, lambda end: _make_cursor(items, end, handle, domain, place))
        # A page of none would lead nowhere.
        if len(page) <= 1 or escaped_size(text, 1, is_ascii=place.is_ascii) <= most:
            break
        page.pop()
    response = Response(text.decode())
    record_response(response)
    return response


def _dump_page(head: dict[str, Any], page: list[dict[str, str]], offset: int, cursor: Callable[[int], str]) -> bytes:
    end = offset + len(page)
    response = {**head, "items": page, "hasMore": end < head["count"]}
    if page and end < head["count"]:
        response["nextCursor"] = cursor(end)
    return orjson.dumps(response)


def _summarize_item(item: Any, label_field: str, max_bytes: int, context: ResponseContext) -> dict[str, str]:
    """What is shown of an item."""
    id = _get_id(item)  # noqa: A001
    label = _to_text(_get_field(item, label_field)) or id
    told = {
        "id": shorten_to_bytes(shorten(redact_text(id, context), _MAX_ID_LENGTH), max_bytes),
        "label": shorten_to_bytes(to_single_line(redact_text(label, context), MAX_LABEL_LENGTH), max_bytes),
    }
    severity = _get_field(item, "severity")
    return {**told, "severity": severity} if severity in SEVERITIES else told


def _get_id(item: Any) -> str:
    return _to_text(item if isinstance(item, str | int | float) else _get_field(item, "id"))


def _get_field(item: Any, name: str) -> Any:
    return item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)


def _to_text(value: Any) -> str:
    """A value as text that can be written."""
    return "" if value is None else replace_unwritable(str(value))


def _is_stored(context: ResponseContext, handle: str) -> bool:
    """Whether the list that a cursor knows of can still be read, by whoever has the cursor."""
    with contextlib.suppress(ForebayError):
        context.open_store().stat(handle, principal=context.principal)
        return True
    return False


def _make_cursor(items: Sequence[Any], end: int, handle: str | None, domain: str, context: ResponseContext) -> str:
    """Where to go on, and after what: a list that is another one by then is noticed."""
    last = hashlib.sha256(_get_id(items[end - 1]).encode()).hexdigest()[:8]
    return _sign_cursor(orjson.dumps([end, last, handle]), domain, context.principal)


def _parse_cursor(
    cursor: object, items: Sequence[Any], domain: str, context: ResponseContext
) -> tuple[int, str | None]:
    """What a cursor says, if it is one of ours and of this list."""
    if isinstance(cursor, str) and cursor.isascii():
        with contextlib.suppress(binascii.Error):
            said = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)[_SIGNATURE_BYTES:]
            # As a whole: base64 has several ways to write the same.
            if hmac.compare_digest(cursor, _sign_cursor(said, domain, context.principal)):
                offset, _, handle = orjson.loads(said)
                if offset <= len(items) and cursor == _make_cursor(items, offset, handle, domain, context):
                    return offset, handle
                raise InvalidArgument(
                    "this list has changed since nextCursor was given; leave cursor out to start again"
                )
    raise InvalidArgument(
        f"{short_repr(cursor)} is no nextCursor of this list, or one of before a restart; leave cursor out to start again"
    )


def _sign_cursor(state: bytes, domain: str, principal: str | None) -> str:
    signature = hmac.digest(_SECRET, orjson.dumps([domain, principal]) + state, hashlib.sha256)[:_SIGNATURE_BYTES]
    return base64.urlsafe_b64encode(signature + state).decode().rstrip("=")
