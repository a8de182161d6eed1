"""Payloads under references that name what they are: `ax://bugfix/scan-7~oh_…`."""

import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from forebay.arguments import short_repr
from forebay.errors import InvalidArgument, InvalidFormat
from forebay.outputs.contract.context import ResponseContext, find_context, record_failure
from forebay.store.handles import extract_handle
from forebay.store.payload import Payload

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
_INVALID_DOMAIN_CHARS = re.compile(r"[^A-Za-z0-9._-]+")
_MAX_ID_LENGTH = 128
_REFERENCE_PATTERN = re.compile(r"ax://[A-Za-z0-9][A-Za-z0-9._-]{0,63}/[A-Za-z0-9._%-]{1,128}~(?P<handle>oh_[A-Z2-7]+)")


@record_failure
def store_artifact(domain: str, id: str, data: Payload, *, store: "Store | None" = None) -> str:  # noqa: A002
    """Stores anything whole, and returns a reference that `output_fetch` and `retrieve_artifact` redeem.

    Two of the same domain and id are two: each reference carries a handle of its own.
    Raises `StoreFull`, `StoreUnavailable` or `RedactionFailed`: then nothing was stored.
    """
    place = find_context(store)
    return make_reference(domain, id, put_artifact(place, domain, id, data).output_handle)


@record_failure
def retrieve_artifact(ref: str, *, store: "Store | None" = None) -> Any:
    """What is stored under a reference, whole: the value of JSON, else text, else bytes.

    It goes by what is there: text that is JSON comes back as its value, and bytes that are text come back as text.
    Raises `HandleNotFound` if it is not there, or not any more.
    """
    if not isinstance(ref, str) or not _REFERENCE_PATTERN.fullmatch(ref):
        raise InvalidArgument(
            f"a reference is ax://domain/id~oh_…, as store_artifact returned it, not {short_repr(ref)}"
        )
    place, handle = find_context(store), str(extract_handle(ref))
    store = place.open_store()
    nature = store.stat(handle, principal=place.principal).nature
    with store.open(handle, principal=place.principal) as file:
        data = file.read()
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
            return [json.loads(row) for row in data.splitlines() if row.strip()]
        case "text":
            return data.decode()
    return data


def put_artifact(
    context: ResponseContext,
    domain: str,
    id: str,  # noqa: A002
    data: Payload,
    mime_type: str | None = None,
) -> "Descriptor":
    """Stores what a reference will name; a name that cannot be one is refused before anything is stored."""
    name = format_artifact_name(domain, id)
    return context.open_store().put(
        data,
        mime_type=mime_type,
        source_tool=name,
        principal=context.principal,
        handle_length=context.handle_length,
    )


def make_reference(domain: str, id: str, handle: str) -> str:  # noqa: A002
    """The reference of what was stored."""
    return f"{format_artifact_name(domain, id)}~{handle}"


def sanitize_domain(name: str) -> str:
    """A domain that is called after something that may be called anything."""
    return _INVALID_DOMAIN_CHARS.sub("-", name).strip("._-")[:64] or "tool"


def format_artifact_name(domain: str, id: str) -> str:  # noqa: A002
    """A reference without its handle."""
    if not isinstance(domain, str) or not _DOMAIN_PATTERN.fullmatch(domain):
        raise InvalidArgument(
            f"a domain is 1 to 64 letters, digits, dots, dashes or underscores, not {short_repr(domain)}"
        )
    # One that says where a reference ends, or is no text, would make it another.
    escaped = quote(id, safe="", errors="replace").replace("~", "%7E") if isinstance(id, str) else ""
    if not 0 < len(escaped) <= _MAX_ID_LENGTH:
        raise InvalidArgument(f"an id is 1 to {_MAX_ID_LENGTH} characters as an address has them, not {short_repr(id)}")
    return f"ax://{domain}/{escaped}"
