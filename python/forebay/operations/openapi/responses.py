"""What comes back: an envelope around bytes that nobody has parsed, or an error that says what the server said."""

import codecs
import contextlib
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import httpx2

from forebay.operations.envelope import Body, ResponseEnvelope, http_envelope
from forebay.operations.envelope.body import decode_text, is_json_type
from forebay.operations.errors import CallError
from forebay.operations.openapi.security import AppliedSecurity, Requirement, redact
from forebay.operations.openapi.transport import iter_decoded
from forebay.store import Store

__all__ = ["LargeBodyStore", "ResponseLimits", "read_envelope", "read_error"]

_REPORTED_HEADERS = ("retry-after", "www-authenticate", "allow", "content-type", "x-request-id", "request-id")
_REPORTED_PREFIXES = ("ratelimit", "x-ratelimit")


@dataclasses.dataclass(frozen=True, slots=True)
class ResponseLimits:
    """How much is read of a response."""

    max_error_bytes: int
    max_body_bytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class LargeBodyStore:
    """Where bodies of more than so many bytes go as they come in."""

    store: Store
    min_bytes: int


async def read_envelope(
    response: httpx2.Response,
    limits: ResponseLimits,
    stored: LargeBodyStore | None,
    *,
    tool: str,
    principal: str | None,
) -> ResponseEnvelope[Any]:
    """The envelope of a response that is no error."""
    content_type = response.headers.get("Content-Type", "")
    chunks = iter_decoded(response, tool)
    most = limits.max_body_bytes if stored is None else stored.min_bytes
    first = [chunk async for chunk in _take_chunks(chunks, most)]
    is_all = sum(map(len, first)) <= most
    data: Any
    if is_all:
        data = _to_data(b"".join(first), content_type)
    elif stored is not None:
        descriptor = await stored.store.put_async(
            _chain_chunks(first, chunks), mime_type=_mime_type(content_type), source_tool=tool, principal=principal
        )
        data = descriptor.to_dict()
    else:
        raise CallError(
            "EXECUTION_ERROR", f"{tool} answered more than {most} bytes; ask for less, or raise max_body_bytes"
        )
    headers = _join_headers(response.headers)
    if data is None and response.request.method != "HEAD":
        # Not every server says that there is no body, and `None` may be the null of one that was parsed.
        headers["content-length"] = "0"
    return http_envelope(data, status_code=response.status_code, headers=headers, content_type=content_type)


async def read_error(
    response: httpx2.Response,
    applied: AppliedSecurity,
    limits: ResponseLimits,
    met: Requirement,
    wanted: list[Requirement],
    *,
    tool: str,
) -> CallError:
    """The error of a status of 400 or more. What we sent to be let in does not come back in it."""
    longest = max(map(len, applied.secrets), default=0)
    most = limits.max_error_bytes + 4 * longest
    head = await _read_error_body(response, most, tool)
    is_all = len(head) <= most
    told = redact(_decode_error_text(head, response.headers.get("Content-Type", ""), is_all=is_all), applied.secrets)
    if not is_all and longest:
        told = told[:-longest]  # may begin a secret that was not read to its end
    body = told.encode("utf-8", "replace")[: limits.max_error_bytes].decode("utf-8", "ignore")
    size = len(head) if is_all else _declared_size(response)
    details: dict[str, Any] = {
        "status": response.status_code,
        "headers": {
            name: redact(value, applied.secrets)
            for name, value in _join_headers(response.headers).items()
            if name in _REPORTED_HEADERS or name.startswith(_REPORTED_PREFIXES)
        },
        "body": body,
    }
    if body != told or not is_all:
        details["body_cut"] = f"the first {len(body.encode())} of {size or f'more than {len(head)}'} bytes"
    reason = redact(response.reason_phrase, applied.secrets)
    message = f"{tool} was answered {response.status_code} {reason}".rstrip()
    if response.status_code == 401 and met:
        message += f"; what was given for the security scheme {' and '.join(met)} was refused"
    elif response.status_code == 401 and wanted:
        ways = " or ".join(" and ".join(each) for each in wanted)
        message += f"; it wants the security scheme {ways}: give it in security="
    return CallError("EXECUTION_ERROR", message, details)


async def _read_error_body(response: httpx2.Response, most: int, tool: str) -> bytes:
    """What can be read of the body of an error. If that is not all, the status is still more than what is wrong."""
    head = bytearray()
    with contextlib.suppress(CallError):
        async for chunk in _take_chunks(iter_decoded(response, tool), most):
            head += chunk
    return bytes(head)


async def _take_chunks(chunks: AsyncIterator[bytes], most: int) -> AsyncIterator[bytes]:
    """Chunks until there are more bytes than `most`, and no more than they are by then."""
    size = 0
    async for chunk in chunks:
        size += len(chunk)
        yield chunk
        if size > most:
            return


async def _chain_chunks(first: list[bytes], rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    for chunk in first:
        yield chunk
    async for chunk in rest:
        yield chunk


def _declared_size(response: httpx2.Response) -> int | None:
    """How long a body is that was not read to its end, if the server says so."""
    told = response.headers.get("Content-Length", "")
    return int(told) if told.isdecimal() and "Content-Encoding" not in response.headers else None


def _to_data(content: bytes, content_type: str) -> Any:
    if not content:
        return None
    if is_json_type(content_type):
        return Body(content, content_type)
    if content_type.strip().lower().startswith("text/"):
        # Where it is not what it says, it may be UTF-8 for all that; else the bytes are all that is known of it.
        texts = (decode_text(content, said) for said in (content_type, ""))
        return next((text for text in texts if text is not None), content)
    return content


def _decode_error_text(content: bytes, content_type: str, *, is_all: bool) -> str:
    """What can be read of an error, which may be cut."""
    charset = httpx2.Response(200, headers={"Content-Type": content_type}).charset_encoding
    # There are codecs that are no charsets (`hex`, `zlib`), and each fails in a way of its own.
    with contextlib.suppress(Exception):
        found: object = codecs.getincrementaldecoder(charset or "utf-8")("replace").decode(content, is_all)
        if isinstance(found, str):
            return found
    return codecs.getincrementaldecoder("utf-8")("replace").decode(content, is_all)


def _join_headers(headers: httpx2.Headers) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for name, value in headers.multi_items():
        found.setdefault(name.lower(), []).append(value)
    return {name: ", ".join(values) for name, values in found.items()}


def _mime_type(content_type: str) -> str | None:
    kind = content_type.partition(";")[0].strip().lower()
    return ("application/json" if is_json_type(kind) else kind) or None
