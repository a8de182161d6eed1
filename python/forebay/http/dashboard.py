"""The dashboard over HTTP: its addresses, who is signed in, and the headers of its responses."""

import asyncio
import functools
import logging
import re
import secrets
import time
import urllib.parse
import weakref
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import orjson

from forebay.dashboard.api import READERS, call_reader
from forebay.dashboard.layout import ASSETS, PATH, Frame, make_message_page, make_sign_in_page, read_asset
from forebay.dashboard.overview import Upstream, make_overview
from forebay.dashboard.payload_page import make_payload_page
from forebay.dashboard.snapshot import Snapshot, Visitor, read_snapshot
from forebay.errors import ForebayError, HandleNotFound, MissingExtra, PathNotFound, StoreUnavailable
from forebay.http.http_exchange import JSON_TYPE, TEXT_TYPE, BodyTooLarge, HTTPExchange
from forebay.http.limits import TokenBuckets, get_client_network
from forebay.http.request_headers import AllowedNames, is_json
from forebay.http.tokens import AccessToken, hash_token
from forebay.store import OPERATOR, Store
from forebay.store.handles import Principal, extract_handle, format_principal, is_handle

__all__ = ["DASHBOARD_PATH", "Dashboard", "LinkToken", "get_cookie_token", "is_embedded", "is_same_site"]

_log = logging.getLogger("forebay")

DASHBOARD_PATH = PATH

_HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        b"form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    # Not `no-referrer`: browsers would then send forms with `Origin: null`.
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_NO_STORE = (b"cache-control", b"no-store")
# For assets, whose addresses change with their content.
_IMMUTABLE = (b"cache-control", b"public, max-age=31536000, immutable")
_HTML_TYPE = (b"content-type", b"text/html; charset=utf-8")

_MAX_FORM_BYTES = 16 << 10
_MAX_CALL_BYTES = 64 << 10
_MAX_COOKIE_CHARS = 3800
"""Maximum length of a token in a cookie. Browsers silently drop cookies of more than 4,096 bytes."""

_MAX_QUERY_FIELDS = 32
_SIGN_INS_PER_MINUTE = 30
_THREADS = 6
"""Number of threads that only the dashboard uses, so that calls of tools never wait for it."""

_THREADS_PER_PRINCIPAL = 3
"""So that slow queries of one principal, whether or not somebody still waits for them, do not stop all others."""

_SNAPSHOT_SECONDS = 1.0
"""How long a snapshot is reused, so that many open pages cost as much as one."""

_MAX_SNAPSHOTS = 64

_TOKEN_PATTERN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_PORT_PATTERN = re.compile(rb":(\d+)$")

_T = TypeVar("_T")
Verify = Callable[[str], Awaitable[AccessToken | None]]


class LinkToken:
    """Verifier that accepts one random token, which is part of the address that `forebay dashboard` prints."""

    def __init__(self, scopes: Sequence[str] = ()) -> None:
        self.token = secrets.token_urlsafe(32)
        self._digest = hash_token(self.token)
        self._access_token = AccessToken("operator", list(scopes))

    async def verify_token(self, token: str) -> AccessToken | None:
        return self._access_token if secrets.compare_digest(hash_token(token), self._digest) else None


class Dashboard:
    """The pages of the dashboard of one store, and the calls that their scripts make."""

    def __init__(
        self,
        store: Store,
        *,
        name: str = "",
        list_upstreams: Callable[[str | None], Sequence[Upstream]] | None = None,
        link_token: LinkToken | None = None,
    ) -> None:
        self._store = store
        self._name = name
        self._list_upstreams = list_upstreams
        self.link_token = link_token
        """If it is set, a caller with this token is the operator."""
        self._sign_ins = TokenBuckets(_SIGN_INS_PER_MINUTE)
        self._threads = ThreadPoolExecutor(_THREADS, "forebay-dashboard")
        self._turns: weakref.WeakValueDictionary[Principal, asyncio.Semaphore] = weakref.WeakValueDictionary()
        self._snapshots: dict[Principal, tuple[float, asyncio.Task[Snapshot]]] = {}

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def handle(self, exchange: HTTPExchange, verify: Verify | None) -> None:
        """Answer a request. `verify` is `None` if nobody has to sign in."""
        path = exchange.path.removeprefix(PATH)
        if exchange.method == "POST":
            await self._handle_post(exchange, path, verify)
        elif exchange.method not in ("GET", "HEAD"):
            headers = [TEXT_TYPE, (b"allow", b"GET, HEAD, POST")]
            await _respond(exchange, 405, b"Method Not Allowed", headers)
        elif path.startswith("/assets/"):
            await self._answer_asset(exchange, path.removeprefix("/assets/"))
        elif (
            verify is not None
            and self.link_token is not None
            and path == ""
            and "token" in (query := _parse_query(exchange))
        ):
            await self._sign_in(exchange, verify, query["token"])
        elif verify is not None and exchange.token is None:
            await self._ask_to_sign_in(exchange)
        else:
            await self._answer_page(exchange, path, _parse_query(exchange))

    # Who is signed in.

    async def _handle_post(self, exchange: HTTPExchange, path: str, verify: Verify | None) -> None:
        if path == "/sign-out":
            await _redirect(exchange, PATH, _make_cookie(exchange, ""))
        elif path == "/sign-in" and verify is not None:
            try:
                form = urllib.parse.parse_qs((await exchange.read_body(_MAX_FORM_BYTES)).decode("latin-1"))
            except (BodyTooLarge, ValueError):
                form = {}
            await self._sign_in(exchange, verify, form.get("token", [""])[-1].strip())
        elif path.startswith("/api/"):
            await self._answer_call(exchange, path.removeprefix("/api/"), is_refused=verify is not None)
        elif verify is not None and exchange.token is None:
            await self._ask_to_sign_in(exchange)
        else:
            await self._answer_message(exchange, 404, "Not found", "There is nothing at this address.")

    async def _sign_in(self, exchange: HTTPExchange, verify: Verify, token: str) -> None:
        wait_nanoseconds = self._sign_ins.take(get_client_network(exchange.client_host))
        if wait_nanoseconds:
            seconds = -(-wait_nanoseconds // 10**9)
            text = f"Too many attempts; try again in {seconds} seconds."
            retry = (b"retry-after", b"%d" % seconds)
            await _respond(exchange, 429, make_sign_in_page(text), [_HTML_TYPE, retry])
        elif not _TOKEN_PATTERN.fullmatch(token) or await verify(token) is None:
            _log.info("forebay: a sign-in to the dashboard from %s is refused", exchange.client_host)
            await self._ask_to_sign_in(exchange, "This token is not valid here, or has expired.")
        elif len(token) > _MAX_COOKIE_CHARS:
            await self._ask_to_sign_in(exchange, "This token is too long for a cookie; use one from the token file.")
        else:
            await _redirect(exchange, PATH, _make_cookie(exchange, token))

    async def _ask_to_sign_in(self, exchange: HTTPExchange, fault: str | None = None) -> None:
        if self.link_token is not None and fault is None:
            fault = "Open the address that forebay dashboard printed, or paste the token from that address here."
        challenge = (b"www-authenticate", b'Bearer realm="forebay"')
        await _respond(exchange, 401, make_sign_in_page(fault), [_HTML_TYPE, challenge])

    def _get_visitor(self, exchange: HTTPExchange) -> Visitor:
        if self.link_token is not None and exchange.token is not None:
            return Visitor(OPERATOR)
        return Visitor(exchange.principal, hides_handles=exchange.token is None)

    def _make_frame(self, exchange: HTTPExchange) -> Frame:
        visitor = self._get_visitor(exchange)
        if visitor.is_operator:
            return Frame(self._name or "operator", is_signed_in=True)
        who = format_principal(exchange.principal)
        return Frame("callers without a token" if who is None else who, is_signed_in=who is not None)

    # Pages.

    async def _answer_page(self, exchange: HTTPExchange, path: str, query: dict[str, str]) -> None:
        frame, principal = self._make_frame(exchange), self._get_visitor(exchange).principal
        if path in ("", "/"):
            await self._answer_overview(exchange, frame, query)
            return
        if path in ("/sign-in", "/sign-out"):
            # The browser has loaded the address of a form again, with GET.
            await _redirect(exchange, PATH)
            return
        handle = str(extract_handle(query.get("handle", "").strip())) if path == "/open" else path.removeprefix("/")
        if path == "/open" and is_handle(handle):
            await _redirect(exchange, f"{PATH}/{handle}")
            return
        try:
            if not is_handle(handle):
                raise HandleNotFound("there is nothing at this address")
            make_page = functools.partial(make_payload_page, self._store, principal, frame, handle, query)
            status, page = await self._run(principal, make_page)
        except HandleNotFound:
            text = "Nothing is stored under this handle: it has expired, was deleted, or is not yours."
            await self._answer_message(exchange, 404, "Not found", text)
        except ForebayError as error:
            await self._answer_message(exchange, _get_status(error), "This output cannot be shown", str(error))
        else:
            await _respond(exchange, status, page, [_HTML_TYPE])

    async def _answer_overview(self, exchange: HTTPExchange, frame: Frame, query: dict[str, str]) -> None:
        visitor = self._get_visitor(exchange)
        upstreams = None if self._list_upstreams is None else self._list_upstreams(exchange.principal)
        try:
            snapshot = await self._get_snapshot(visitor)
            make_page = functools.partial(make_overview, snapshot, visitor, frame, query, upstreams)
            page = await self._run(visitor.principal, make_page)
        except ForebayError as error:
            await self._answer_message(exchange, _get_status(error), "The store cannot be read", str(error))
        else:
            await _respond(exchange, 200, page, [_HTML_TYPE])

    async def _get_snapshot(self, visitor: Visitor) -> Snapshot:
        now = time.monotonic()
        taken_at, task = self._snapshots.get(visitor.principal, (0.0, None))
        if task is None or (task.done() and now - taken_at > _SNAPSHOT_SECONDS):
            read = functools.partial(read_snapshot, self._store, visitor)
            task = asyncio.create_task(self._run(visitor.principal, read))
            self._snapshots.pop(visitor.principal, None)
            self._snapshots[visitor.principal] = now, task
            if len(self._snapshots) > _MAX_SNAPSHOTS:
                del self._snapshots[next(iter(self._snapshots))]
        # Other requests may wait for the same task: the end of this request must not cancel it.
        return await asyncio.shield(task)

    async def _answer_asset(self, exchange: HTTPExchange, name: str) -> None:
        if name not in ASSETS:
            await _respond(exchange, 404, b"Not Found", [TEXT_TYPE])
            return
        content_type = (b"content-type", ASSETS[name][1].encode())
        cache = _IMMUTABLE if exchange.query.startswith(b"v=") else _NO_STORE
        await exchange.respond(200, read_asset(name), [content_type, cache, *_HEADERS])

    async def _answer_message(self, exchange: HTTPExchange, status: int, title: str, text: str) -> None:
        page = make_message_page(title, text, self._make_frame(exchange))
        await _respond(exchange, status, page, [_HTML_TYPE])

    # Calls of the viewer.

    async def _answer_call(self, exchange: HTTPExchange, name: str, *, is_refused: bool) -> None:
        if is_refused and exchange.token is None:
            await _respond_error(exchange, 401, "unauthorized", "you are signed out; load the page again")
            return
        if name not in READERS:
            await _respond_error(exchange, 404, "not_found", f"no call has this name; call {', '.join(READERS)}")
            return
        # A page of another origin cannot send this type without a CORS preflight, and no preflight is allowed.
        if not is_json(exchange.headers.get(b"content-type", b"")):
            await _respond_error(exchange, 415, "invalid_argument", "send the arguments as application/json")
            return
        try:
            arguments = orjson.loads(await exchange.read_body(_MAX_CALL_BYTES))
        except BodyTooLarge:
            await _respond_error(exchange, 413, "invalid_argument", f"arguments take at most {_MAX_CALL_BYTES:,} bytes")
            return
        except orjson.JSONDecodeError as error:
            await _respond_error(exchange, 400, "invalid_argument", f"the arguments are not JSON: {error}")
            return
        principal = self._get_visitor(exchange).principal
        try:
            call = functools.partial(call_reader, self._store, principal, name, arguments)
            result = await self._run(principal, call)
        except ForebayError as error:
            await _respond(exchange, _get_status(error), orjson.dumps(error.to_dict()), [JSON_TYPE])
        else:
            await _respond(exchange, 200, result, [JSON_TYPE])

    async def _run(self, principal: Principal, function: Callable[[], _T]) -> _T:
        async with self._turns.setdefault(principal, asyncio.Semaphore(_THREADS_PER_PRINCIPAL)):
            return await asyncio.get_running_loop().run_in_executor(self._threads, function)


def get_cookie_token(exchange: HTTPExchange) -> str:
    """Return the token in the cookie of a request to the dashboard, or an empty text."""
    wanted = _get_cookie_name(exchange)
    for part in exchange.headers.get(b"cookie", b"").split(b";"):
        name, _, value = part.strip().partition(b"=")
        if name == wanted:
            return value.decode("latin-1")
    return ""


def is_same_site(exchange: HTTPExchange, hosts: AllowedNames) -> bool:
    """Return whether the Host is allowed, and the Origin, if there is one, is that of the dashboard itself."""
    host, origin = exchange.headers.get(b"host", b""), exchange.headers.get(b"origin")
    return host in hosts and (origin is None or origin.partition(b"://")[2] == host)


def is_embedded(exchange: HTTPExchange) -> bool:
    """Return whether a page of another site loads this address in the background or in a frame."""
    site = exchange.headers.get(b"sec-fetch-site", b"")
    is_navigation = exchange.headers.get(b"sec-fetch-mode") == b"navigate"
    # Frames navigate too. The policy of the page forbids them, but the browser learns that from the response.
    is_tab = exchange.headers.get(b"sec-fetch-dest", b"document") == b"document"
    return site in (b"cross-site", b"same-site") and not (is_navigation and is_tab)


def _get_cookie_name(exchange: HTTPExchange) -> bytes:
    # Cookies are shared by all ports of a host, and one machine may run several dashboards.
    match = _PORT_PATTERN.search(exchange.headers.get(b"host", b""))
    return b"forebay_token" if match is None else b"forebay_token_" + match[1]


def _make_cookie(exchange: HTTPExchange, token: str) -> tuple[bytes, bytes]:
    """Return the header that stores a token in the browser, or removes it if the token is empty."""
    # The Origin of a form shows whether the browser used HTTPS, even if a proxy ends TLS before this server.
    secure = b"; Secure" if exchange.headers.get(b"origin", b"").startswith(b"https://") else b""
    age = b"" if token else b"; Max-Age=0"
    value = b"%b=%b; Path=%b; HttpOnly; SameSite=Strict%b%b"
    return b"set-cookie", value % (_get_cookie_name(exchange), token.encode(), PATH.encode(), secure, age)


def _parse_query(exchange: HTTPExchange) -> dict[str, str]:
    """Return the query parameters. If a name occurs several times, the last value counts."""
    try:
        text = exchange.query.decode("latin-1")
        return dict(urllib.parse.parse_qsl(text, keep_blank_values=True, max_num_fields=_MAX_QUERY_FIELDS))
    except ValueError:
        return {}


def _get_status(error: ForebayError) -> int:
    match error:
        case HandleNotFound() | PathNotFound():
            return 404
        case StoreUnavailable():
            return 503
        case MissingExtra():
            return 501
    return 400


async def _respond(
    exchange: HTTPExchange, status: int, body: bytes, headers: Sequence[tuple[bytes, bytes]] = ()
) -> None:
    await exchange.respond(status, body, [*headers, _NO_STORE, *_HEADERS])


async def _respond_error(exchange: HTTPExchange, status: int, code: str, message: str) -> None:
    await _respond(exchange, status, orjson.dumps({"error": {"code": code, "message": message}}), [JSON_TYPE])


async def _redirect(exchange: HTTPExchange, target: str, *headers: tuple[bytes, bytes]) -> None:
    await _respond(exchange, 303, b"", [(b"location", target.encode()), *headers])
