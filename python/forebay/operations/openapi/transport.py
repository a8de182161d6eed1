"""A request on its way: redirects, and that nobody sees what must not be seen."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http.cookiejar import DefaultCookiePolicy

import httpx2

from forebay.operations.errors import CallError
from forebay.operations.openapi.security import AppliedSecurity, redact
from forebay.operations.openapi.styles import PUBLIC_HEADERS, merge_cookies
from forebay.wire.inflate import ACCEPT_ENCODING, Inflater, is_compression

__all__ = ["ACCEPT_ENCODING", "carries_identity", "iter_decoded", "new_client", "new_request", "send"]

_MAX_REDIRECTS = 10
_CALL_COOKIES = "forebay.own_cookies"
"""Of a request and of those that it is sent on with: the cookies that no client remembers."""

_REDIRECT_STATUSES = (301, 302, 303, 307, 308)


class _MaskedURL(httpx2.URL):
    """A URL that goes out whole, and into logs and errors without the values of its query."""

    def __str__(self) -> str:
        return str(httpx2.URL(self).copy_with(query=b"..."))

    __repr__ = __str__

    def join(self, url: httpx2.URL | str) -> httpx2.URL:
        """What a redirect leads to, from the URL as it went out: `#part` and nothing at all keep its query."""
        return httpx2.URL(self).join(url)


def new_client() -> httpx2.AsyncClient:
    """A client that remembers no cookies: one caller's session is not the next one's. Each call keeps its own time."""
    client = httpx2.AsyncClient(timeout=None)
    client.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    return client


def carries_identity(client: httpx2.AsyncClient) -> bool:
    """Whether a client adds anything to its requests that is not for everyone."""
    has_headers = any(name.lower() not in PUBLIC_HEADERS for name in client.headers)
    return client.auth is not None or has_headers or bool(client.params) or any(True for _ in client.cookies.jar)


def new_request(
    client: httpx2.AsyncClient, method: str, url: str, headers: httpx2.Headers, content: bytes | None = None
) -> httpx2.Request:
    """A request with what the client adds to all of its requests."""
    request = client.build_request(method, url, headers=headers, content=content)
    # The client would ask for more than `iter_decoded` can read.
    request.headers["Accept-Encoding"] = headers.get("Accept-Encoding", ACCEPT_ENCODING)
    request.extensions[_CALL_COOKIES] = merge_cookies(headers.get("Cookie", ""), client.headers.get("Cookie", ""))
    _add_call_cookies(request, httpx2.Request(method, url, cookies=client.cookies))
    # A client that has parameters has put them in the place of our own.
    own = httpx2.URL(url)
    more = httpx2.QueryParams([pair for pair in client.params.multi_items() if pair[0] not in own.params])
    request.url = own.copy_with(query=b"&".join(filter(None, [own.query, str(more).encode()]))) if more else own
    return request


@asynccontextmanager
async def send(
    client: httpx2.AsyncClient, request: httpx2.Request, applied: AppliedSecurity, what: str
) -> AsyncIterator[httpx2.Response]:
    """The response to a request, its body unread. Failures on the way, also in the body, are `CallError`."""
    response: httpx2.Response | None = None
    try:
        response = await _send_following_redirects(client, request, applied, what)
        yield response
    except httpx2.TimeoutException:
        # Of a client that someone gave us: ours has no time of its own.
        raise CallError("TIMEOUT", f"{what} was not answered in time; it may have been carried out") from None
    except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
        told = redact(str(error) or "the connection broke", applied.secrets)
        where = f" at {_address(error.request.url)}" if isinstance(error, httpx2.ConnectError) else ""
        raise CallError("EXECUTION_ERROR", f"{what} failed{where}: {type(error).__name__}: {told[:300]}") from None
    finally:
        if response is not None:
            await response.aclose()


def _address(url: httpx2.URL) -> str:
    return f"{url.host}:{url.port or {'http': 80, 'https': 443}.get(url.scheme, '')}"


async def _send_following_redirects(
    client: httpx2.AsyncClient, request: httpx2.Request, applied: AppliedSecurity, what: str
) -> httpx2.Response:
    # The client's own way with redirects takes every header but Authorization to any host.
    is_ours, has_body = True, bool(request.content)
    for _ in range(_MAX_REDIRECTS + 1):
        if applied.query or any(secret in str(request.url) for secret in applied.secrets):
            request.url = _MaskedURL(request.url)
        response = await client.send(
            request, stream=True, follow_redirects=False, auth=httpx2.USE_CLIENT_DEFAULT if is_ours else None
        )
        following = response.next_request
        if following is None:
            if response.status_code in _REDIRECT_STATUSES:
                await response.aclose()
                told = f"{what} was answered {response.status_code} without a Location, so it cannot be followed"
                raise CallError("EXECUTION_ERROR", told, {"status": response.status_code})
            return response
        await response.aclose()
        # Not by the status: of a PUT, a 301 keeps the body, too.
        has_body = has_body and following.method == request.method
        if following.url.origin != request.url.origin:
            if has_body:
                raise CallError(
                    "EXECUTION_ERROR",
                    f"{what} was sent on to {following.url.host}, which is not told what was in the body; "
                    "if that is where the API is, give it as base_url",
                    {"status": response.status_code},
                )
            is_ours = False
        if is_ours:
            _add_call_cookies(following, following)
        else:
            # At every hop, also on their own host: the client adds its cookies to each.
            _strip_private_parts(following, applied)
        request = following
    raise httpx2.TooManyRedirects(f"more than {_MAX_REDIRECTS} redirects", request=request)


def _add_call_cookies(request: httpx2.Request, remembering: httpx2.Request) -> None:
    """Puts the cookies of a call before those that its client remembers; the client would send one or the other."""
    cookies = merge_cookies(request.extensions[_CALL_COOKIES], remembering.headers.get("Cookie", ""))
    if cookies:
        request.headers["Cookie"] = cookies


def _strip_private_parts(request: httpx2.Request, applied: AppliedSecurity) -> None:
    for name in [*request.headers]:
        if name.lower() not in PUBLIC_HEADERS:
            del request.headers[name]
    for name in applied.query_names:
        if name in request.url.params:
            request.url = request.url.copy_remove_param(name)


async def iter_decoded(response: httpx2.Response, what: str) -> AsyncIterator[bytes]:
    """The body as it was before it was compressed. Raises `CallError` for one that is broken, or ends too early."""
    if response.is_stream_consumed:
        # A hook of the client has read it, or a transport had it whole: it is decoded already.
        yield response.content
        return
    chunks: AsyncIterator[bytes] = response.aiter_raw()
    for coding in reversed(response.headers.get_list("Content-Encoding", split_commas=True)):
        name = coding.strip().lower()
        if is_compression(name):
            chunks = _inflate(chunks, Inflater(name), what)
    async for chunk in chunks:
        yield chunk


async def _inflate(chunks: AsyncIterator[bytes], inflating: Inflater, what: str) -> AsyncIterator[bytes]:
    try:
        async for chunk in chunks:
            for piece in inflating.feed(chunk):
                yield piece
        if last := inflating.finish():
            yield last
    except ValueError as error:
        raise CallError("EXECUTION_ERROR", f"{what} {error}") from None
