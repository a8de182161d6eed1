"""Connections to one server over HTTP: each has one exchange at a time, and can be cut by whoever does not wait."""

import base64
import contextlib
import http.cookiejar
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import httpx2

import forebay
from forebay.errors import InvalidArgument, UpstreamFailed
from forebay.wire.framing import Message, Spool
from forebay.wire.inflate import ACCEPT_ENCODING, Inflater, is_compression
from forebay.wire.messages import id_key, protocol_version

__all__ = ["Endpoint", "OutgoingMessage", "OutgoingRequests", "UpstreamConnection", "is_same_server", "iter_body"]

if TYPE_CHECKING:
    import ssl


_CONNECT_SECONDS = 10.0
_MAX_REDIRECTS = 5
_MIN_SECRET_CHARS = 8
"""Characters of a value in a URL's query: shorter ones are hardly secrets, but words that errors have."""
_KEEPALIVE_SECONDS = 2.0
"""Seconds: less than servers wait, or one would be gone just as it is used again."""

_KEEPALIVE_OPTIONS = [
    (getattr(socket, level), getattr(socket, name), value)
    for level, name, value in (
        ("SOL_SOCKET", "SO_KEEPALIVE", 1),
        ("IPPROTO_TCP", "TCP_KEEPIDLE", 60),
        ("IPPROTO_TCP", "TCP_KEEPINTVL", 15),
        ("IPPROTO_TCP", "TCP_KEEPCNT", 4),
    )
    if hasattr(socket, name)
]
"""A stream may be silent for hours; a server that is gone without a word should still be missed."""


class UpstreamConnection:
    """To a server, from the first exchange on."""

    def __init__(self, client: httpx2.Client) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self.is_aborted = False

    def open(
        self, method: str, url: httpx2.URL, headers: Mapping[str, str], line: Message | None, read_timeout: float | None
    ) -> httpx2.Response:
        """The answer, of which the body is yet to come."""
        request = self._client.build_request(
            method,
            url,
            headers=_with_content_length(headers, line),
            content=_request_body(line),
            timeout=httpx2.Timeout(read_timeout, connect=_CONNECT_SECONDS),
            extensions={"trace": self._trace},
        )
        return self._client.send(request, stream=True, follow_redirects=False)

    def _trace(self, name: str, info: Mapping[str, Any]) -> None:
        if name.endswith(("connect_tcp.complete", "start_tls.complete")):
            with self._lock:
                self._socket = info["return_value"].get_extra_info("socket")
            for option in _KEEPALIVE_OPTIONS:
                self._socket.setsockopt(*option)
            if self.is_aborted:
                self.abort()

    def abort(self) -> None:
        """Ends what is under way, whatever it waits for. That it is over is all that some servers are told."""
        with self._lock:
            self.is_aborted = True
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    # Closing it would not wake up who reads; nor must TLS wait for a farewell.
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        self._client.close()


class Endpoint:
    """Where a server is, and what to give it to be let in."""

    def __init__(self, url: str, headers: Sequence[tuple[str, str]] = ()) -> None:
        try:
            self.url = httpx2.URL(url)
        except httpx2.InvalidURL:
            raise InvalidArgument("what is given as a URL is none; give one such as https://example.com/mcp") from None
        if self.url.scheme not in ("http", "https") or not self.url.host:
            raise InvalidArgument("a URL begins with http:// or https:// and a host")
        agent = {"user-agent": f"forebay/{forebay.__version__}", "accept-encoding": ACCEPT_ENCODING}
        self._headers = httpx2.Headers([*agent.items()])
        self._headers.update(httpx2.Headers([*headers]))
        self._secrets = _find_secrets(self.url, headers)
        self._cookies = http.cookiejar.CookieJar()
        self._ssl_context: ssl.SSLContext | None = None
        self._lock = threading.Lock()
        self._idle: list[UpstreamConnection] = []
        self._busy: set[UpstreamConnection] = set()
        self._is_closed = False

    @property
    def name(self) -> str:
        """Where it is, without anything that may be a secret."""
        return str(self.url.copy_with(userinfo=b"", query=None, fragment=None))

    def redact(self, text: str) -> str:
        """Without what the server was given in confidence: some say it again."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    @contextlib.contextmanager
    def connection(self) -> Iterator[UpstreamConnection]:
        """For one exchange after the other. Raises `UpstreamFailed` for whatever goes wrong on the way."""
        connection = self._acquire()
        try:
            yield connection
        except httpx2.ConnectTimeout:
            raise UpstreamFailed(
                f"{self.name} cannot be reached within {_CONNECT_SECONDS:g} s; try again later"
            ) from None
        except (httpx2.ConnectError, httpx2.ProxyError) as error:
            raise UpstreamFailed(self.redact(f"{self.name} cannot be reached: {error}; check the URL")) from None
        except httpx2.HTTPError as error:
            ended = f"the server ended the connection before it answered ({error})"
            raise UpstreamFailed(self.redact(f"{ended}; it may have done what it was asked to")) from None
        finally:
            self._release(connection)

    def _acquire(self) -> UpstreamConnection:
        with self._lock:
            if self._is_closed:
                raise UpstreamFailed("the gateway is about to end")
            connection = self._idle.pop() if self._idle else self._new_connection()
            self._busy.add(connection)
            return connection

    def _new_connection(self) -> UpstreamConnection:
        if self._ssl_context is None:
            # Once for all: to read whom to trust takes long.
            self._ssl_context = httpx2.create_ssl_context()
        return UpstreamConnection(
            httpx2.Client(
                headers=self._headers,
                cookies=self._cookies,
                verify=self._ssl_context,
                limits=httpx2.Limits(max_keepalive_connections=1, keepalive_expiry=_KEEPALIVE_SECONDS),
            )
        )

    def _release(self, connection: UpstreamConnection) -> None:
        with self._lock:
            self._busy.discard(connection)
            if not connection.is_aborted and not self._is_closed:
                self._idle.append(connection)
                return
        connection.close()

    def open(
        self,
        connection: UpstreamConnection,
        method: str,
        url: httpx2.URL,
        headers: Mapping[str, str],
        line: Message | None = None,
        read_timeout: float | None = None,
    ) -> httpx2.Response:
        """The start of the answer, after redirects: what is sent is for this server, and goes nowhere else."""
        for _ in range(_MAX_REDIRECTS):
            response = connection.open(method, url, headers, line, read_timeout)
            target = response.headers.get("location")
            if not response.has_redirect_location or target is None:
                return response
            response.close()
            # After any other the message would not be sent again.
            if method != "GET" and response.status_code not in (307, 308):
                break
            there = url.join(target)
            if not is_same_server(url, there) or there.userinfo not in (b"", url.userinfo):
                break
            url = there
        raise UpstreamFailed(
            f"{self.name} sends its callers elsewhere, which is not followed; give the URL that it is at"
        )

    def abort_all(self) -> None:
        """Ends all that is under way."""
        with self._lock:
            for connection in self._busy:
                connection.abort()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        self.abort_all()
        for connection in idle:
            connection.close()


def iter_body(response: httpx2.Response) -> Iterator[bytes]:
    """The body as it was before it was compressed. Raises `UpstreamFailed` if it is broken, or ends too early."""
    chunks: Iterator[bytes] = response.iter_raw()
    for coding in reversed(response.headers.get_list("content-encoding", split_commas=True)):
        name = coding.strip().lower()
        if is_compression(name):
            chunks = _inflate(chunks, Inflater(name))
    return chunks


def _inflate(chunks: Iterator[bytes], inflating: Inflater) -> Iterator[bytes]:
    try:
        for chunk in chunks:
            yield from inflating.feed(chunk)
        yield inflating.finish()
    except ValueError as error:
        raise UpstreamFailed(f"the request {error}") from None


def is_same_server(here: httpx2.URL, there: httpx2.URL) -> bool:
    """Whether it is the same server, or the same one in secret."""
    if (here.scheme, here.host, here.port) == (there.scheme, there.host, there.port):
        return True
    is_more_secret = (here.scheme, there.scheme) == ("http", "https")
    return is_more_secret and here.host == there.host and here.port is None and there.port is None


def _find_secrets(url: httpx2.URL, headers: Sequence[tuple[str, str]]) -> list[str]:
    """What is given to the server in confidence, the longest first, so that nothing is left of it."""
    found = {part for _, value in headers for part in (value, value.rpartition(" ")[2])}
    if url.password:
        userinfo = f"{url.username}:{url.password}".encode()
        # As it stands in the URL, and as it is sent.
        found |= {url.password, url.userinfo.decode().partition(":")[2], base64.b64encode(userinfo).decode()}
    found |= {value for value in url.params.values() if len(value) >= _MIN_SECRET_CHARS}
    return sorted((secret for secret in found if len(secret) > 3), key=len, reverse=True)


def _request_body(line: Message | None) -> bytes | Iterator[bytes] | None:
    if isinstance(line, Spool):
        return iter(line.chunks())
    return None if line is None else bytes(line)


def _with_content_length(headers: Mapping[str, str], line: Message | None) -> dict[str, str]:
    return {**headers, "content-length": str(len(line))} if isinstance(line, Spool) else dict(headers)


class OutgoingMessage:
    """What it is, and the connection that it takes. One that is cut goes no further."""

    def __init__(self, message: object, raw: "bytes | bytearray | Spool", headers: Mapping[str, str]) -> None:
        fields: Mapping[str, Any] = message if isinstance(message, dict) else {}
        self.line = raw
        self.headers = headers
        """What of it is said in headers too."""
        method = fields.get("method")
        self.method: str = method if isinstance(method, str) else ""
        self.params = fields.get("params")
        self.is_request = bool(self.method) and "id" in fields
        self.id: object = fields.get("id") if self.is_request else None
        self.is_modern = protocol_version(self.params) is not None
        self._lock = threading.Lock()
        self._connection: UpstreamConnection | None = None
        self.is_aborted = False

    def use_connection(self, connection: UpstreamConnection | None) -> None:
        """From now on it is this connection that is to be cut; `None` for none."""
        with self._lock:
            self._connection = connection
            if self.is_aborted and connection is not None:
                raise UpstreamFailed("nobody waits for it any more")

    def abort(self) -> None:
        with self._lock:
            self.is_aborted = True
            if self._connection is not None:
                self._connection.abort()


class OutgoingRequests:
    """Those that are not answered yet, by id."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_id: dict[bytes, OutgoingMessage] = {}

    def add(self, request: OutgoingMessage) -> None:
        with self._lock:
            self._by_id[id_key(request.id)] = request

    def remove(self, request: OutgoingMessage) -> None:
        with self._lock:
            # A client may have used the id again.
            if self._by_id.get(id_key(request.id)) is request:
                del self._by_id[id_key(request.id)]

    def get(self, request_id: object) -> OutgoingMessage | None:
        with self._lock:
            return self._by_id.get(id_key(request_id))
