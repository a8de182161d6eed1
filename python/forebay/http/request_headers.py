"""Checks of request headers: ambiguous or malformed ones, allowed hosts and origins, and accepted media types.

Two programs may read an ambiguous request differently: one of them checks the token or the host, and the other obeys.
"""

import functools
import ipaddress
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

__all__ = [
    "AllowedNames",
    "find_fault",
    "is_json",
    "join_headers",
    "make_allowed_hosts",
    "make_allowed_origins",
    "parse_accept",
]

if TYPE_CHECKING:
    from forebay.config.options import Settings

_SINGLE_HEADERS = (
    "Host",
    "Authorization",
    "Origin",
    "Content-Type",
    "Content-Length",
    "Mcp-Session-Id",
    "Mcp-Protocol-Version",
    "Mcp-Method",
    "Mcp-Name",
)
_AUTHORITY_PATTERN = re.compile(
    r"(?:\[([0-9A-Fa-f:.]+)\]|[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*)(?::([0-9]{1,5}))?", re.ASCII
)
"""A name without a final dot or an address, and a port. No userinfo."""

_ORIGIN_PATTERN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*)")
_MAX_PORT = 65535
_MAX_CACHED_VALUES = 256
"""Number of header values whose check is remembered; most requests repeat those of earlier ones."""

_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")


def find_fault(headers: Sequence[tuple[bytes, bytes]]) -> str | None:
    """Return an error message if headers, with names in lower case, are ambiguous or malformed."""
    values = dict(headers)
    if len(values) < len(headers):
        names = [name for name, _ in headers]
        for name in _SINGLE_HEADERS:
            if names.count(name.lower().encode()) > 1:
                return f"there is more than one {name} header; send one"
    if b"content-length" in values and b"transfer-encoding" in values:
        return "Content-Length and Transfer-Encoding exclude each other; send one of them"
    # An empty Host names no host and is refused later, as one that is not allowed.
    host = values.get(b"host", b"")
    if host and not _is_authority(host):
        return "the Host header is malformed; send a name and, if needed, a port, such as localhost:8000"
    origin = values.get(b"origin", b"null")
    if origin != b"null" and not _is_origin(origin):
        return "the Origin header is malformed; send a scheme, a host and, if needed, a port"
    return None


def join_headers(headers: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Return the values of headers by name; several of one name are a list (RFC 9110, 5.3)."""
    values = dict(headers)
    if len(values) == len(headers):
        return values
    lists: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        lists.setdefault(name, []).append(value)
    return {name: b", ".join(parts) for name, parts in lists.items()}


@functools.lru_cache(_MAX_CACHED_VALUES)
def _is_authority(value: bytes) -> bool:
    match = _AUTHORITY_PATTERN.fullmatch(value.decode("latin-1"))
    if match is None or int(match[2] or 0) > _MAX_PORT:
        return False
    return match[1] is None or _is_ipv6_address(match[1])


def _is_ipv6_address(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def _is_origin(value: bytes) -> bool:
    match = _ORIGIN_PATTERN.fullmatch(value.decode("latin-1"))
    # Some schemes have no host, such as file://.
    return match is not None and (not match[1] or _is_authority(match[1].encode("latin-1")))


class AllowedNames:
    """Allowed values of the Host or Origin header. One that ends with `:*` stands for all ports."""

    def __init__(self, names: Iterable[str]) -> None:
        encoded = [name.encode("latin-1", "replace") for name in names]
        self._names = frozenset(encoded)
        self._prefixes = tuple(name[:-1] for name in encoded if name.endswith(b":*"))

    def __contains__(self, value: bytes) -> bool:
        return value in self._names or value.startswith(self._prefixes)


def make_allowed_hosts(settings: "Settings") -> AllowedNames:
    """Return the allowed Host headers, which prevent DNS rebinding."""
    host = settings.http[0] if settings.http else _LOOPBACK_NAMES[0]
    hosts = {*_LOOPBACK_NAMES, f"[{host}]" if ":" in host else host, *settings.allowed_hosts}
    return AllowedNames(hosts | {f"{name}:*" for name in hosts if not _has_port(name)})


def make_allowed_origins(settings: "Settings") -> AllowedNames:
    """Return the allowed Origin headers: those of this machine only if no other machine can reach the server."""
    origins = set(settings.allowed_origins)
    if not settings.is_beyond_loopback:
        origins |= {f"http://{name}" for name in _LOOPBACK_NAMES}
        origins |= {f"http://{name}:*" for name in _LOOPBACK_NAMES}
    return AllowedNames(origins)


def _has_port(host: str) -> bool:
    return ":" in host.rpartition("]")[2]


@functools.lru_cache(_MAX_CACHED_VALUES)
def parse_accept(value: bytes) -> tuple[bool, bool]:
    """Return whether an Accept header accepts JSON, and whether it accepts a stream of server-sent events."""
    types = {media_type.partition(b";")[0].strip().lower() for media_type in value.split(b",")}
    accepts_json = not types.isdisjoint((b"*/*", b"application/*", b"application/json"))
    return accepts_json, not types.isdisjoint((b"*/*", b"text/*", b"text/event-stream"))


def is_json(content_type: bytes) -> bool:
    """Return whether a Content-Type is JSON. Others would let web pages post without asking this server (CORS)."""
    return content_type.partition(b";")[0].strip().lower() == b"application/json"
