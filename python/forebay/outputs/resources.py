"""Stored payloads as resources: a link beside each descriptor, and pages of them by address."""

from typing import Any
from urllib.parse import parse_qsl, urlencode

from forebay.errors import InvalidArgument
from forebay.store import Store
from forebay.store.catalog import Principal
from forebay.store.handles import Descriptor

__all__ = ["TEMPLATE", "is_address", "link", "read"]

_SCHEME = "forebay://output/"

TEMPLATE = {
    "uriTemplate": f"{_SCHEME}{{output_handle}}{{?offset,limit}}",
    "name": "stored_output",
    "description": "A page of a stored large output from offset on: of items, else bytes of text or binary",
}


def link(descriptor: Descriptor) -> dict[str, Any]:
    """A block that leads to a stored payload."""
    return {
        "type": "resource_link",
        "uri": _SCHEME + descriptor.output_handle,
        "name": descriptor.output_handle,
        "mimeType": descriptor.mime_type,
        "size": descriptor.size_bytes,
    }


def is_address(uri: object) -> bool:
    """Whether it is ours to read."""
    return isinstance(uri, str) and uri.startswith(_SCHEME)


def read(store: Store, uri: str, most_bytes: int, principal: Principal, *, is_ascii: bool = False) -> dict[str, Any]:
    """The result of `resources/read`: a page, and in its `_meta` what it is and where the next one starts."""
    address, _, query = uri.removeprefix(_SCHEME).partition("?")
    asked = _asked(query)
    page = store.fetch(address, **asked, max_bytes=most_bytes, escape_levels=1, is_ascii=is_ascii, principal=principal)
    mime_type = "application/json" if page.encoding == "json" else store.stat(address, principal=principal).mime_type
    about = {name: getattr(page, name) for name in ("offset", "returned", "total", "next_offset", "eof", "format")}
    if page.encoding == "base64" and not (page.eof and page.offset == 0):
        # Part of a picture is none.
        mime_type = "application/octet-stream"
    content = {"blob": page.content} if page.encoding == "base64" else {"text": _text(page.content)}
    # Not as it was asked for: that may be of any length.
    place = _SCHEME + address + ("?" + urlencode(asked) if asked else "")
    return {"contents": [{"uri": place, "mimeType": mime_type, **content, "_meta": {"forebay/page": about}}]}


def _text(content: bytes | str) -> str:
    return content if isinstance(content, str) else content.decode()


def _asked(query: str) -> dict[str, Any]:
    """Offset and limit; anything else is not asked for this way."""
    asked: dict[str, Any] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if (
            name not in ("offset", "limit")
            or name in asked
            or not (value.isascii() and value.isdigit())
            or len(value) > 18
        ):
            raise InvalidArgument("an address takes ?offset=N&limit=N, each a whole number")
        asked[name] = int(value)
    return asked
