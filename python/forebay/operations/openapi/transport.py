"""HTTP requests and responses: redirects, cookies, decompression, limits and stored bodies.

Credentials stay out of logs, and are never sent to other hosts.
"""

import codecs
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from http.cookiejar import DefaultCookiePolicy
from typing import Any

import httpx2

from forebay.envelope import Body, ResponseEnvelope, http_envelope
from forebay.envelope.body import decode_text, get_media_type, is_json_type, names_other_charset
from forebay.operations.errors import CallError
from forebay.operations.openapi.security import NON_SECRET_HEADERS, AppliedSecurity, Requirement, redact
from forebay.store import Store
from forebay.store.payload import CHUNK_BYTES
from forebay.store.threads import run_in_pool
from forebay.wire.framing import Spool
from forebay.wire.http_bodies import ACCEPT_ENCODING, Inflater, is_compression

__all__ = [
    "BodySpools",
    "LargeBodyStore",
    "ResponseLimits",
    "carries_identity",
    "iter_decoded",
    "merge_cookies",
    "new_client",
    "new_request",
    "read_envelope",
    "read_error",
    "send",
]

_MAX_REDIRECTS = 10

_CALL_COOKIES = "forebay.own_cookies"
"""Request extension that holds the cookies of a call, so that redirected requests can send them too."""

_REDIRECT_STATUSES = (301, 302, 303, 307, 308)

_REPORTED_HEADERS = ("retry-after", "www-authenticate", "allow", "content-type", "x-request-id", "request-id")
_REPORTED_HEADER_PREFIXES = ("ratelimit", "x-ratelimit")


class _MaskedURL(httpx2.URL):
    """A URL that is sent whole but hides its query in logs and errors."""

    def __str__(self) -> str:
        return str(httpx2.URL(self).copy_with(query=b"..."))

    __repr__ = __str__

    def join(self, url: httpx2.URL | str) -> httpx2.URL:
        """Resolve the location of a redirect against the unmasked URL. An empty location keeps that URL's query."""
        return httpx2.URL(self).join(url)


def new_client() -> httpx2.AsyncClient:
    """Return a client without a timeout. It stores no cookies, so that callers do not share a session."""
    client = httpx2.AsyncClient(timeout=None)
    client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    return client


def carries_identity(client: httpx2.AsyncClient) -> bool:
    """Return whether the client adds anything to its requests that may be a credential."""
    has_headers = any(name.lower() not in NON_SECRET_HEADERS for name in client.headers)
    return client.auth is not None or has_headers or bool(client.params) or any(True for _ in client.cookies.jar)


def new_request(
    client: httpx2.AsyncClient, method: str, url: str, headers: httpx2.Headers, content: bytes | None = None
) -> httpx2.Request:
    """Return a request with the headers, cookies and parameters that the client adds."""
    request = client.build_request(method, url, headers=headers, content=content)
    # Without this header, the client would also accept encodings that `iter_decoded` cannot decode.
    request.headers["Accept-Encoding"] = headers.get("Accept-Encoding", ACCEPT_ENCODING)
    request.extensions[_CALL_COOKIES] = merge_cookies(headers.get("Cookie", ""), client.headers.get("Cookie", ""))
    _add_call_cookies(request, httpx2.Request(method, url, cookies=client.cookies))
    # If the client has parameters, `build_request` has replaced the query of `url` with them: join the two.
    own_url = httpx2.URL(url)
    client_params = httpx2.QueryParams([pair for pair in client.params.multi_items() if pair[0] not in own_url.params])
    query = b"&".join(filter(None, [own_url.query, str(client_params).encode()]))
    request.url = own_url.copy_with(query=query) if client_params else own_url
    return request


@asynccontextmanager
async def send(
    client: httpx2.AsyncClient,
    request: httpx2.Request,
    applied_security: AppliedSecurity,
    label: str,
    *,
    address_name: str = "base_url",
    cross_host_redirects: bool = False,
) -> AsyncIterator[httpx2.Response]:
    """Send a request and yield the response with its body unread.

    Redirects to another host are followed only with `cross_host_redirects`, and without credentials and bodies.
    Raises `CallError` if the connection fails, also while the body is read. `label` names the call in errors, and
    `address_name` what to check if nobody answers there.
    """
    response: httpx2.Response | None = None
    try:
        response = await _send_following_redirects(
            client, request, applied_security, label, cross_host_redirects=cross_host_redirects
        )
        yield response
    except httpx2.TimeoutException:
        # Only a client passed in by the user has a timeout; the client of `new_client` relies on the deadline.
        raise CallError("TIMEOUT", f"{label} was not answered in time; it may have been carried out") from None
    except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
        reason = redact(str(error) or "the connection broke", applied_security.secrets)
        location = hint = ""
        if isinstance(error, httpx2.ConnectError):
            location = f" at {_format_address(error.request.url)}"
            hint = f"; check {address_name}, or try again when it is back"
        raise CallError(
            "EXECUTION_ERROR", f"{label} failed{location}: {type(error).__name__}: {reason[:300]}{hint}"
        ) from None
    finally:
        if response is not None:
            await response.aclose()


def _format_address(url: httpx2.URL) -> str:
    return f"{url.host}:{url.port or {'http': 80, 'https': 443}.get(url.scheme, '')}"


async def _send_following_redirects(
    client: httpx2.AsyncClient,
    request: httpx2.Request,
    applied_security: AppliedSecurity,
    label: str,
    *,
    cross_host_redirects: bool,
) -> httpx2.Response:
    # If httpx followed redirects, it would send all headers except Authorization to the other host.
    is_trusted, has_body = True, bool(request.content)
    for _ in range(_MAX_REDIRECTS + 1):
        if applied_security.query or any(secret in str(request.url) for secret in applied_security.secrets):
            request.url = _MaskedURL(request.url)
        response = await client.send(
            request, stream=True, follow_redirects=False, auth=httpx2.USE_CLIENT_DEFAULT if is_trusted else None
        )
        redirect = response.next_request
        if redirect is None:
            if response.status_code in _REDIRECT_STATUSES:
                await response.aclose()
                message = f"{label} was answered {response.status_code} without a Location, so it cannot be followed"
                raise CallError("EXECUTION_ERROR", message, {"status": response.status_code})
            return response
        await response.aclose()
        # The body is kept if the method is, whatever the status: a 301 keeps the body of a PUT.
        has_body = has_body and redirect.method == request.method
        if redirect.url.origin != request.url.origin:
            if not cross_host_redirects and not _is_upgrade(request.url, redirect.url):
                raise CallError(
                    "EXECUTION_ERROR",
                    f"{label} was redirected to another host, {_format_address(redirect.url)}, which is not followed; "
                    "if that is where the API is, give it as base_url; if any host may answer, set "
                    "cross_host_redirects",
                    {"status": response.status_code},
                )
            if has_body:
                raise CallError(
                    "EXECUTION_ERROR",
                    f"{label} was sent on to {redirect.url.host}, which is not told what was in the body; "
                    "if that is where the API is, give it as base_url",
                    {"status": response.status_code},
                )
            is_trusted = False
        if is_trusted:
            _add_call_cookies(redirect, redirect)
        else:
            # Repeated for later redirects within the other host, because the client adds its cookies to each.
            _remove_credentials(redirect, applied_security)
        request = redirect
    raise httpx2.TooManyRedirects(f"more than {_MAX_REDIRECTS} redirects", request=request)


def _is_upgrade(url: httpx2.URL, target: httpx2.URL) -> bool:
    """Return whether a redirect leads from http to https on the same host, both on their default ports."""
    is_https = (url.scheme, target.scheme) == ("http", "https")
    return is_https and url.host == target.host and url.port is None and target.port is None


def _add_call_cookies(request: httpx2.Request, jar_request: httpx2.Request) -> None:
    """Set both the cookies of the call and the cookies of `jar_request`. The client would send only one of the two."""
    cookies = merge_cookies(request.extensions[_CALL_COOKIES], jar_request.headers.get("Cookie", ""))
    if cookies:
        request.headers["Cookie"] = cookies


def _remove_credentials(request: httpx2.Request, applied_security: AppliedSecurity) -> None:
    for name in [*request.headers]:
        if name.lower() not in NON_SECRET_HEADERS:
            del request.headers[name]
    for name in applied_security.query_names:
        if name in request.url.params:
            request.url = request.url.copy_remove_param(name)


async def iter_decoded(response: httpx2.Response, label: str) -> AsyncIterator[bytes]:
    """Yield the decompressed body. Raises `CallError` if the body is corrupt or incomplete."""
    if response.is_stream_consumed:
        # An event hook or the transport has already read and decoded the body.
        yield response.content
        return
    chunks: AsyncIterator[bytes] = response.aiter_raw()
    for coding in reversed(response.headers.get_list("Content-Encoding", split_commas=True)):
        name = coding.strip().lower()
        if is_compression(name):
            chunks = _inflate(chunks, Inflater(name), label)
    async for chunk in chunks:
        yield chunk


async def _inflate(chunks: AsyncIterator[bytes], inflater: Inflater, label: str) -> AsyncIterator[bytes]:
    try:
        async for chunk in chunks:
            for piece in inflater.feed(chunk):
                yield piece
        if last := inflater.finish():
            yield last
    except ValueError as error:
        raise CallError("EXECUTION_ERROR", f"{label} {error}") from None


def merge_cookies(cookies: str, additional_cookies: str) -> str:
    """Append the cookies of `additional_cookies` whose names are not in `cookies` yet."""
    first = [cookie.strip() for cookie in cookies.split(";")]
    names = {cookie.partition("=")[0] for cookie in first}
    others = (cookie.strip() for cookie in additional_cookies.split(";"))
    return "; ".join(filter(None, [*first, *(cookie for cookie in others if cookie.partition("=")[0] not in names)]))


@dataclasses.dataclass(frozen=True, slots=True)
class ResponseLimits:
    """Maximum sizes of the bodies to read: one for error responses, one for other responses."""

    max_error_bytes: int
    max_body_bytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class BodySpools:
    """Temporary files for bodies of more than `min_bytes` bytes."""

    make_spool: Callable[[], Spool]
    min_bytes: int

    @staticmethod
    def accepts(content_type: str) -> bool:
        """Return whether a body of this type can stay as it is: no image or audio, and no other charset than UTF-8."""
        return not content_type.strip().lower().startswith(("image/", "audio/")) and not names_other_charset(
            content_type
        )

    async def write(self, chunks: AsyncIterator[bytes], max_bytes: int) -> Spool | None:
        """Write chunks to a new spool; return `None` if they have more than `max_bytes` bytes."""
        spool = await run_in_pool(self.make_spool)
        batch, size = list[bytes](), 0
        # In a thread, because a slow disk must not block the event loop. In batches, because that takes time, too. A
        # spool that is dropped deletes itself: if it was closed here, the thread might still write to it.
        async for chunk in chunks:
            batch.append(chunk)
            size += len(chunk)
            if size > max_bytes:
                return None
            if size - len(spool) >= CHUNK_BYTES:
                await run_in_pool(partial(spool.write, b"".join(batch)))
                batch.clear()
        await run_in_pool(partial(spool.write, b"".join(batch)))
        return spool


@dataclasses.dataclass(frozen=True, slots=True)
class LargeBodyStore:
    """The store that receives bodies of more than `min_bytes` bytes."""

    store: Store
    min_bytes: int


async def read_envelope(
    response: httpx2.Response,
    limits: ResponseLimits,
    large_bodies: LargeBodyStore | BodySpools | None,
    *,
    operation_id: str,
    principal: str | None,
) -> ResponseEnvelope[Any]:
    """Read a successful response into an envelope."""
    content_type = response.headers.get("Content-Type", "")
    chunks = iter_decoded(response, operation_id)
    if isinstance(large_bodies, BodySpools) and not large_bodies.accepts(content_type):
        large_bodies = None
    max_bytes = limits.max_body_bytes if large_bodies is None else large_bodies.min_bytes
    head = [chunk async for chunk in _take_chunks(chunks, max_bytes)]
    is_complete = sum(map(len, head)) <= max_bytes
    data: Any
    if is_complete:
        data = _to_data(b"".join(head), content_type)
    elif isinstance(large_bodies, LargeBodyStore):
        descriptor = await large_bodies.store.put_async(
            _chain_chunks(head, chunks),
            mime_type=_get_mime_type(content_type),
            source_tool=operation_id,
            principal=principal,
        )
        data = descriptor.to_dict()
    else:
        max_bytes = limits.max_body_bytes
        spool = await large_bodies.write(_chain_chunks(head, chunks), max_bytes) if large_bodies is not None else None
        if spool is None:
            raise CallError(
                "EXECUTION_ERROR",
                f"{operation_id} answered more than {max_bytes} bytes; ask for less, or raise max_body_bytes",
            )
        data = Body(spool, content_type)
    headers = _join_headers(response.headers)
    if data is None and response.request.method != "HEAD":
        # The length tells an empty body from a JSON null, which is also `None`. Not every server sends it.
        headers["content-length"] = "0"
    return http_envelope(data, status_code=response.status_code, headers=headers, content_type=content_type)


async def read_error(
    response: httpx2.Response,
    applied_security: AppliedSecurity,
    limits: ResponseLimits,
    requirement: Requirement,
    accepted_requirements: list[Requirement],
    *,
    operation_id: str,
) -> CallError:
    """Return the error for a status of 400 or more, with the credentials redacted.

    `requirement` is the security requirement that the request met, if any. `accepted_requirements` are all requirements
    of the operation.
    """
    longest_secret = max(map(len, applied_security.secrets), default=0)
    # Read more than is shown, so that a secret at the cut is whole and can be redacted. A character has up to 4 bytes.
    max_bytes = limits.max_error_bytes + 4 * longest_secret
    head = await _read_error_body(response, max_bytes, operation_id)
    is_complete = len(head) <= max_bytes
    content_type = response.headers.get("Content-Type", "")
    text = redact(_decode_error_text(head, content_type, is_complete=is_complete), applied_security.secrets)
    if not is_complete and longest_secret:
        text = text[:-longest_secret]  # the end may be an incomplete secret
    body = text.encode("utf-8", "replace")[: limits.max_error_bytes].decode("utf-8", "ignore")
    size = len(head) if is_complete else _get_declared_size(response)
    details: dict[str, Any] = {
        "status": response.status_code,
        "headers": {
            name: redact(value, applied_security.secrets)
            for name, value in _join_headers(response.headers).items()
            if name in _REPORTED_HEADERS or name.startswith(_REPORTED_HEADER_PREFIXES)
        },
        "body": body,
    }
    if body != text or not is_complete:
        details["body_cut"] = f"the first {len(body.encode())} of {size or f'more than {len(head)}'} bytes"
    reason = redact(response.reason_phrase, applied_security.secrets)
    message = f"{operation_id} was answered {response.status_code} {reason}".rstrip()
    if response.status_code == 401 and requirement:
        message += f"; what was given for the security scheme {' and '.join(requirement)} was refused"
    elif response.status_code == 401 and accepted_requirements:
        schemes = " or ".join(" and ".join(names) for names in accepted_requirements)
        message += f"; it wants the security scheme {schemes}: give it in security="
    return CallError("EXECUTION_ERROR", message, details)


async def _read_error_body(response: httpx2.Response, max_bytes: int, operation_id: str) -> bytes:
    """Read the start of an error body. If reading fails, return what was read: the status matters more."""
    head = bytearray()
    with contextlib.suppress(CallError):
        async for chunk in _take_chunks(iter_decoded(response, operation_id), max_bytes):
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


def _get_mime_type(content_type: str) -> str | None:
    return ("application/json" if is_json_type(content_type) else get_media_type(content_type)) or None
