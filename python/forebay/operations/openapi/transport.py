"""Sending requests: redirects, cookies, decompression, and keeping credentials out of logs and other hosts."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.cookiejar import DefaultCookiePolicy

import httpx2

from forebay.operations.errors import CallError
from forebay.operations.openapi.security import AppliedSecurity, redact
from forebay.operations.openapi.styles import NON_SECRET_HEADERS, merge_cookies
from forebay.wire.http_bodies import ACCEPT_ENCODING, Inflater, is_compression

__all__ = ["carries_identity", "iter_decoded", "new_client", "new_request", "send"]

_MAX_REDIRECTS = 10

_CALL_COOKIES = "forebay.own_cookies"
"""Request extension with the cookies of this call, which its redirects send too. Others are in the client's jar."""

_REDIRECT_STATUSES = (301, 302, 303, 307, 308)


class _MaskedURL(httpx2.URL):
    """A URL that is sent whole but hides its query in logs and errors."""

    def __str__(self) -> str:
        return str(httpx2.URL(self).copy_with(query=b"..."))

    __repr__ = __str__

    def join(self, url: httpx2.URL | str) -> httpx2.URL:
        """Resolve a redirect against the unmasked URL, because an empty or `#fragment` location keeps its query."""
        return httpx2.URL(self).join(url)


def new_client() -> httpx2.AsyncClient:
    """Create a client without a timeout that stores no cookies, so callers do not share a session."""
    client = httpx2.AsyncClient(timeout=None)
    client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    return client


def carries_identity(client: httpx2.AsyncClient) -> bool:
    """Whether the client adds anything to its requests that may be a credential."""
    has_headers = any(name.lower() not in NON_SECRET_HEADERS for name in client.headers)
    return client.auth is not None or has_headers or bool(client.params) or any(True for _ in client.cookies.jar)


def new_request(
    client: httpx2.AsyncClient, method: str, url: str, headers: httpx2.Headers, content: bytes | None = None
) -> httpx2.Request:
    """Build a request with the headers, cookies and parameters that the client adds."""
    request = client.build_request(method, url, headers=headers, content=content)
    # The client would also accept encodings that `iter_decoded` cannot decode.
    request.headers["Accept-Encoding"] = headers.get("Accept-Encoding", ACCEPT_ENCODING)
    request.extensions[_CALL_COOKIES] = merge_cookies(headers.get("Cookie", ""), client.headers.get("Cookie", ""))
    _add_call_cookies(request, httpx2.Request(method, url, cookies=client.cookies))
    # If the client has parameters, `build_request` has replaced the query of `url` with them.
    own_url = httpx2.URL(url)
    more = httpx2.QueryParams([pair for pair in client.params.multi_items() if pair[0] not in own_url.params])
    query = b"&".join(filter(None, [own_url.query, str(more).encode()]))
    request.url = own_url.copy_with(query=query) if more else own_url
    return request


@asynccontextmanager
async def send(
    client: httpx2.AsyncClient, request: httpx2.Request, applied_security: AppliedSecurity, label: str
) -> AsyncIterator[httpx2.Response]:
    """Send a request and yield the response with its body unread.

    Raises `CallError` for connection failures, also for those while the body is read. `label` names the call in errors.
    """
    response: httpx2.Response | None = None
    try:
        response = await _send_following_redirects(client, request, applied_security, label)
        yield response
    except httpx2.TimeoutException:
        # Only a client passed in by the user has a timeout; ours relies on the deadline.
        raise CallError("TIMEOUT", f"{label} was not answered in time; it may have been carried out") from None
    except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
        reason = redact(str(error) or "the connection broke", applied_security.secrets)
        location = f" at {_address(error.request.url)}" if isinstance(error, httpx2.ConnectError) else ""
        raise CallError(
            "EXECUTION_ERROR", f"{label} failed{location}: {type(error).__name__}: {reason[:300]}"
        ) from None
    finally:
        if response is not None:
            await response.aclose()


def _address(url: httpx2.URL) -> str:
    return f"{url.host}:{url.port or {'http': 80, 'https': 443}.get(url.scheme, '')}"


async def _send_following_redirects(
    client: httpx2.AsyncClient, request: httpx2.Request, applied_security: AppliedSecurity, label: str
) -> httpx2.Response:
    # httpx would send all headers except Authorization to the host of a redirect.
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
        # The method decides, not the status: a 301 keeps the body of a PUT.
        has_body = has_body and redirect.method == request.method
        if redirect.url.origin != request.url.origin:
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
            # Also for later redirects within the other host: the client adds its cookies every time.
            _strip_private_parts(redirect, applied_security)
        request = redirect
    raise httpx2.TooManyRedirects(f"more than {_MAX_REDIRECTS} redirects", request=request)


def _add_call_cookies(request: httpx2.Request, jar_request: httpx2.Request) -> None:
    """Set the cookies of the call and, after them, those of `jar_request`. The client alone would send only one set."""
    cookies = merge_cookies(request.extensions[_CALL_COOKIES], jar_request.headers.get("Cookie", ""))
    if cookies:
        request.headers["Cookie"] = cookies


def _strip_private_parts(request: httpx2.Request, applied_security: AppliedSecurity) -> None:
    for name in [*request.headers]:
        if name.lower() not in NON_SECRET_HEADERS:
            del request.headers[name]
    for name in applied_security.query_names:
        if name in request.url.params:
            request.url = request.url.copy_remove_param(name)


async def iter_decoded(response: httpx2.Response, label: str) -> AsyncIterator[bytes]:
    """Yield the decompressed body. Raises `CallError` if it is corrupt or incomplete."""
    if response.is_stream_consumed:
        # An event hook or the transport has already read and decoded it.
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
