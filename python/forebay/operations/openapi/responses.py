"""Responses: an envelope around the unparsed body, or a `CallError` that shows the server's error."""

import codecs
import contextlib
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import httpx2

from forebay.envelope import Body, ResponseEnvelope, http_envelope
from forebay.envelope.body import decode_text, is_json_type
from forebay.operations.errors import CallError
from forebay.operations.openapi.security import AppliedSecurity, Requirement, redact
from forebay.operations.openapi.transport import iter_decoded
from forebay.store import Store

__all__ = ["LargeBodyStore", "ResponseLimits", "read_envelope", "read_error"]

_REPORTED_HEADERS = ("retry-after", "www-authenticate", "allow", "content-type", "x-request-id", "request-id")
_REPORTED_PREFIXES = ("ratelimit", "x-ratelimit")


@dataclasses.dataclass(frozen=True, slots=True)
class ResponseLimits:
    """Limits for how much of a response is read."""

    max_error_bytes: int
    max_body_bytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class LargeBodyStore:
    """The store that receives bodies of more than `min_bytes` bytes."""

    store: Store
    min_bytes: int


async def read_envelope(
    response: httpx2.Response,
    limits: ResponseLimits,
    large_bodies: LargeBodyStore | None,
    *,
    tool: str,
    principal: str | None,
) -> ResponseEnvelope[Any]:
    """Read a successful response into an envelope."""
    content_type = response.headers.get("Content-Type", "")
    chunks = iter_decoded(response, tool)
    max_bytes = limits.max_body_bytes if large_bodies is None else large_bodies.min_bytes
    head = [chunk async for chunk in _take_chunks(chunks, max_bytes)]
    is_complete = sum(map(len, head)) <= max_bytes
    data: Any
    if is_complete:
        data = _to_data(b"".join(head), content_type)
    elif large_bodies is not None:
        descriptor = await large_bodies.store.put_async(
            _chain_chunks(head, chunks), mime_type=_mime_type(content_type), source_tool=tool, principal=principal
        )
        data = descriptor.to_dict()
    else:
        raise CallError(
            "EXECUTION_ERROR", f"{tool} answered more than {max_bytes} bytes; ask for less, or raise max_body_bytes"
        )
    headers = _join_headers(response.headers)
    if data is None and response.request.method != "HEAD":
        # Tells an empty body from a parsed JSON null, which is None as well. Not every server sends a length.
        headers["content-length"] = "0"
    return http_envelope(data, status_code=response.status_code, headers=headers, content_type=content_type)


async def read_error(
    response: httpx2.Response,
    applied_security: AppliedSecurity,
    limits: ResponseLimits,
    requirement: Requirement,
    accepted_requirements: list[Requirement],
    *,
    tool: str,
) -> CallError:
    """Build the error for a status of 400 or more, with our credentials redacted.

    `requirement` is the security requirement the request met, one of the operation's `accepted_requirements`.
    """
    longest_secret = max(map(len, applied_security.secrets), default=0)
    # Read on so that a secret at the cut is whole and can be redacted; a character has up to 4 bytes.
    max_bytes = limits.max_error_bytes + 4 * longest_secret
    head = await _read_error_body(response, max_bytes, tool)
    is_complete = len(head) <= max_bytes
    content_type = response.headers.get("Content-Type", "")
    text = redact(_decode_error_text(head, content_type, is_complete=is_complete), applied_security.secrets)
    if not is_complete and longest_secret:
        text = text[:-longest_secret]  # the text may end with the start of a secret
    body = text.encode("utf-8", "replace")[: limits.max_error_bytes].decode("utf-8", "ignore")
    size = len(head) if is_complete else _get_declared_size(response)
    details: dict[str, Any] = {
        "status": response.status_code,
        "headers": {
            name: redact(value, applied_security.secrets)
            for name, value in _join_headers(response.headers).items()
            if name in _REPORTED_HEADERS or name.startswith(_REPORTED_PREFIXES)
        },
        "body": body,
    }
    if body != text or not is_complete:
        details["body_cut"] = f"the first {len(body.encode())} of {size or f'more than {len(head)}'} bytes"
    reason = redact(response.reason_phrase, applied_security.secrets)
    message = f"{tool} was answered {response.status_code} {reason}".rstrip()
    if response.status_code == 401 and requirement:
        message += f"; what was given for the security scheme {' and '.join(requirement)} was refused"
    elif response.status_code == 401 and accepted_requirements:
        schemes = " or ".join(" and ".join(names) for names in accepted_requirements)
        message += f"; it wants the security scheme {schemes}: give it in security="
    return CallError("EXECUTION_ERROR", message, details)


async def _read_error_body(response: httpx2.Response, max_bytes: int, tool: str) -> bytes:
    """Read the start of an error body. A broken body is cut short, because the status matters more."""
    head = bytearray()
    with contextlib.suppress(CallError):
        async for chunk in _take_chunks(iter_decoded(response, tool), max_bytes):
            head += chunk
    return bytes(head)


async def _take_chunks(chunks: AsyncIterator[bytes], max_bytes: int) -> AsyncIterator[bytes]:
    """Yield chunks up to and including the one that exceeds `max_bytes`."""
    size = 0
    async for chunk in chunks:
        size += len(chunk)
        yield chunk
        if size > max_bytes:
            return


async def _chain_chunks(head: list[bytes], remaining_chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    for chunk in head:
        yield chunk
    async for chunk in remaining_chunks:
        yield chunk


def _get_declared_size(response: httpx2.Response) -> int | None:
    """Return the size of an uncompressed body from its Content-Length, or None."""
    length = response.headers.get("Content-Length", "")
    return int(length) if length.isdecimal() and "Content-Encoding" not in response.headers else None


def _to_data(content: bytes, content_type: str) -> Any:
    if not content:
        return None
    if is_json_type(content_type):
        return Body(content, content_type)
    if content_type.strip().lower().startswith("text/"):
        # Try the declared charset, then UTF-8; text in neither stays bytes.
        texts = (decode_text(content, candidate) for candidate in (content_type, ""))
        return next((text for text in texts if text is not None), content)
    return content


def _decode_error_text(content: bytes, content_type: str, *, is_complete: bool) -> str:
    """Decode an error body that may be cut, replacing invalid bytes."""
    charset = httpx2.Response(200, headers={"Content-Type": content_type}).charset_encoding
    # Python has codecs that are not charsets (`hex`, `zlib`), and they raise various exceptions.
    with contextlib.suppress(Exception):
        text: object = codecs.getincrementaldecoder(charset or "utf-8")("replace").decode(content, is_complete)
        if isinstance(text, str):
            return text
    return codecs.getincrementaldecoder("utf-8")("replace").decode(content, is_complete)


def _join_headers(headers: httpx2.Headers) -> dict[str, str]:
    """Return headers by lower-case name, with repeated ones joined by commas."""
    values: dict[str, list[str]] = {}
    for name, value in headers.multi_items():
        values.setdefault(name.lower(), []).append(value)
    return {name: ", ".join(repeated) for name, repeated in values.items()}


def _mime_type(content_type: str) -> str | None:
    name = content_type.partition(";")[0].strip().lower()
    return ("application/json" if is_json_type(name) else name) or None
