"""Lists in pages: the id and label of each item, and a signed cursor to the next page."""

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
    replace_invalid_characters,
    shorten,
    shorten_to_bytes,
    to_single_line,
)
from forebay.store.payload import escaped_size

if TYPE_CHECKING:
    from forebay.store import Store

__all__ = ["paginated_list"]

_CURSOR_SIGNING_KEY = os.urandom(32)
"""Key that signs cursors. Each process has a new key, so cursors do not survive a restart."""

_SIGNATURE_BYTES = 12
_ARTIFACT_ID = "list"
_MAX_ID_LENGTH = 500
_TEXT_DIVISOR = 6
"""An id or a label takes at most a sixth of a page, so that one item always fits."""


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
    """Return a page of a list: for each item its `id`, a `label` of at most 50 characters and its `severity`, if any.

    Strings and numbers are their own id and label; an item without `label_field` is labelled by its id. `count` is the
    number of items in the whole list. To get the next page, pass `nextCursor` back with the same list, in the same
    process. A page has at most `limit` items and fits into 2,048 bytes, or into `limits` if set. With a `store`, or in
    a server with forebay, the full items are stored once and all pages share one `artifactRef`.
    """
    if not isinstance(items, Sequence) or isinstance(items, str | bytes):
        raise InvalidArgument(f"items are a list, such as list(rows), not {short_repr(items)}")
    check_integer("limit", limit, 1)
    check_text("label_field", label_field)
    format_artifact_name(domain, _ARTIFACT_ID)
    context = find_context(store)
    limits = context.tighten_limits(resolve_limits(None, limits) if limits else resolve_limits("list"))
    offset, handle = (0, None) if cursor is None else _parse_cursor(cursor, items, domain, context)
    head: dict[str, Any] = {
        "summary": to_single_line(f"{len(items)} {domain}(s)", MAX_SUMMARY_LENGTH),
        "success": True,
        "count": len(items),
    }
    if context.store is not None:
        try:
            if handle is None or not _is_stored(context, handle):
                handle = put_artifact(context, domain, _ARTIFACT_ID, list(items)).output_handle
            head["artifactRef"] = make_reference(domain, _ARTIFACT_ID, handle)
            if context.fetch_with is not None:
                head["fetchWith"] = context.fetch_with
        except ForebayError as error:
            head["error"] = format_error(error)
    max_page_bytes = limits.max_bytes - ENVELOPE_BYTES
    # An escaped non-ASCII character takes up to three times as many bytes as in UTF-8.
    max_text_bytes = max_page_bytes // _TEXT_DIVISOR // (3 if context.is_ascii else 1)
    try:
        page = [
            _summarize_item(item, label_field, max_text_bytes, context)
            for item in items[offset : offset + min(limit, limits.max_array_items)]
        ]
    except RedactionFailed as error:
        page, head["error"] = [], format_error(error)
    while True:
        text = _dump_page(head, page, offset, lambda end: _make_cursor(items, end, handle, domain, context))
        # Keep one item: the cursor of an empty page would not advance.
        if len(page) <= 1 or escaped_size(text, 1, is_ascii=context.is_ascii) <= max_page_bytes:
            break
        page.pop()
    response = Response(text.decode())
    record_response(response)
    return response


def _dump_page(
    head: dict[str, Any], page: list[dict[str, str]], offset: int, make_cursor: Callable[[int], str]
) -> bytes:
    end = offset + len(page)
    response = {**head, "items": page, "hasMore": end < head["count"]}
    if page and end < head["count"]:
        response["nextCursor"] = make_cursor(end)
    return orjson.dumps(response)


def _summarize_item(item: Any, label_field: str, max_bytes: int, context: ResponseContext) -> dict[str, str]:
    """Return the id, label and severity of an item, with secrets redacted and long texts cut."""
    item_id = _get_id(item)
    label = _to_text(_get_field(item, label_field)) or item_id
    summary = {
        "id": shorten_to_bytes(shorten(redact_text(item_id, context), _MAX_ID_LENGTH), max_bytes),
        "label": shorten_to_bytes(to_single_line(redact_text(label, context), MAX_LABEL_LENGTH), max_bytes),
    }
    severity = _get_field(item, "severity")
    return {**summary, "severity": severity} if severity in SEVERITIES else summary


def _get_id(item: Any) -> str:
    return _to_text(item if isinstance(item, str | int | float) else _get_field(item, "id"))


def _get_field(item: Any, name: str) -> Any:
    return item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)


def _to_text(value: Any) -> str:
    return "" if value is None else replace_invalid_characters(str(value))


def _is_stored(context: ResponseContext, handle: str) -> bool:
    """Return whether the caller can still read the list stored for an earlier page."""
    with contextlib.suppress(ForebayError):
        context.open_store().stat(handle, principal=context.principal)
        return True
    return False


def _make_cursor(items: Sequence[Any], end: int, handle: str | None, domain: str, context: ResponseContext) -> str:
    """Return a signed cursor: the next offset, a hash of the last item shown, and the handle of the stored list.

    The hash reveals that the list changed between two pages.
    """
    last_id_hash = hashlib.sha256(_get_id(items[end - 1]).encode()).hexdigest()[:8]
    return _sign_cursor(orjson.dumps([end, last_id_hash, handle]), domain, context.principal)


def _parse_cursor(
    cursor: object, items: Sequence[Any], domain: str, context: ResponseContext
) -> tuple[int, str | None]:
    """Return the offset and handle of a cursor; raise `InvalidArgument` unless it was signed for this list."""
    if isinstance(cursor, str) and cursor.isascii():
        with contextlib.suppress(binascii.Error):
            signed = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
            state = signed[_SIGNATURE_BYTES:]
            # Compare the encoded cursors, not the decoded bytes: several base64 texts decode to the same bytes.
            if hmac.compare_digest(cursor, _sign_cursor(state, domain, context.principal)):
                offset, _, handle = orjson.loads(state)
                if offset <= len(items) and cursor == _make_cursor(items, offset, handle, domain, context):
                    return offset, handle
                raise InvalidArgument(
                    "this list has changed since nextCursor was given; leave cursor out to start again"
                )
    raise InvalidArgument(
        f"{short_repr(cursor)} is no nextCursor of this list, or one of before a restart; "
        "leave cursor out to start again"
    )


def _sign_cursor(state: bytes, domain: str, principal: str | None) -> str:
    signature = hmac.digest(_CURSOR_SIGNING_KEY, orjson.dumps([domain, principal]) + state, hashlib.sha256)[
        :_SIGNATURE_BYTES
    ]
    return base64.urlsafe_b64encode(signature + state).decode().rstrip("=")
