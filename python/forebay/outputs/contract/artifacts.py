"""Stored payloads with a readable reference: `ax://bugfix/scan-7~oh_…`."""

import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from forebay.arguments import short_repr
from forebay.errors import InvalidArgument, InvalidFormat
from forebay.outputs.contract.context import ResponseContext, find_context, record_failure
from forebay.store.handles import extract_handle
from forebay.store.payload import UTF8_BOM, Payload

if TYPE_CHECKING:
    from forebay.store import Store
    from forebay.store.handles import Descriptor

__all__ = [
    "format_artifact_name",
    "make_reference",
    "put_artifact",
    "retrieve_artifact",
    "sanitize_domain",
    "store_artifact",
]

_DOMAIN_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_INVALID_DOMAIN_CHARS_PATTERN = re.compile(r"[^A-Za-z0-9._-]+")
_MAX_ID_LENGTH = 128
"""Maximum characters in an artifact id after percent-encoding."""

_REFERENCE_PATTERN = re.compile(r"ax://[A-Za-z0-9][A-Za-z0-9._-]{0,63}/[A-Za-z0-9._%-]{1,128}~(?P<handle>oh_[A-Z2-7]+)")


@record_failure
def store_artifact(domain: str, id: str, data: Payload, *, store: "Store | None" = None) -> str:  # noqa: A002
    """Store a payload whole and return a reference for `output_fetch` and `retrieve_artifact`.

    Storing the same domain and id twice gives two references, each with its own handle.
    Raises `StoreFull`, `StoreUnavailable` or `RedactionFailed`; nothing is stored then.
    """
    descriptor = put_artifact(find_context(store), domain, id, data)
    return make_reference(domain, id, descriptor.output_handle)


@record_failure
def retrieve_artifact(ref: str, *, store: "Store | None" = None) -> Any:
    """Return the whole stored payload: parsed JSON, else text, else bytes.

    The stored content decides: text that is JSON comes back parsed, and bytes that are text come back as `str`.
    Raises `HandleNotFound` if the reference is unknown or has expired.
    """
    if not isinstance(ref, str) or not _REFERENCE_PATTERN.fullmatch(ref):
        raise InvalidArgument(
            f"a reference is ax://domain/id~oh_…, as store_artifact returned it, not {short_repr(ref)}"
        )
    context, handle = find_context(store), str(extract_handle(ref))
    store = context.open_store()
    stored = store.stat(handle, principal=context.principal)
    nature = stored.nature
    with store.open(handle, principal=context.principal) as file:
        data = file.read()
    if stored.decoded_from is not None:
        with store.open_view(handle, principal=context.principal) as view:
            data = bytes(view.read(0, view.size))
    try:
        return _decode(nature, data)
    except (ValueError, RecursionError) as error:
        raise InvalidFormat(
            f"Python cannot hold what is stored there ({error}); read it as bytes with store.open({handle!r})"
        ) from None


def _decode(nature: str, data: bytes) -> Any:
    match nature:
        case "json":
            return json.loads(data)
        case "ndjson":
            return [json.loads(row) for row in data.removeprefix(UTF8_BOM).splitlines() if row.strip()]
        case "text":
            return data.decode()
    return data


def put_artifact(
    context: ResponseContext, domain: str, artifact_id: str, data: Payload, mime_type: str | None = None
) -> "Descriptor":
    """Store a payload under an artifact name; an invalid name is rejected before anything is stored."""
    name = format_artifact_name(domain, artifact_id)
    return context.open_store().put(
        data,
        mime_type=mime_type,
        source_tool=name,
        principal=context.principal,
        handle_length=context.handle_length,
    )


def make_reference(domain: str, artifact_id: str, handle: str) -> str:
    """Return the reference of a stored artifact: its name and its handle."""
    return f"{format_artifact_name(domain, artifact_id)}~{handle}"


def sanitize_domain(name: str) -> str:
    """Turn any name, such as a tool's, into a valid domain."""
    return _INVALID_DOMAIN_CHARS_PATTERN.sub("-", name).strip("._-")[:64] or "tool"


def format_artifact_name(domain: str, artifact_id: str) -> str:
    """Return `ax://domain/id`, a reference without its handle. Raise `InvalidArgument` if domain or id is invalid."""
    if not isinstance(domain, str) or not _DOMAIN_PATTERN.fullmatch(domain):
        raise InvalidArgument(
            f"a domain is 1 to 64 letters, digits, dots, dashes or underscores, not {short_repr(domain)}"
        )
    # `quote` leaves "~" alone. It is escaped too, because in a reference "~" separates the id from the handle.
    escaped = quote(artifact_id, safe="", errors="replace").replace("~", "%7E") if isinstance(artifact_id, str) else ""
    if not 0 < len(escaped) <= _MAX_ID_LENGTH:
        raise InvalidArgument(
            f"an id is 1 to {_MAX_ID_LENGTH} characters as an address has them, not {short_repr(artifact_id)}"
        )
    return f"ax://{domain}/{escaped}"
