"""Refusal of requests whose headers are ambiguous or malformed.

Two programs may read such a request differently: one of them checks the token or the host, and the other obeys.
"""

import ipaddress
import re
from collections.abc import Sequence

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["HeaderCheck", "find_fault"]

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


class HeaderCheck:
    """Middleware that answers 400 to a request with a fault in its headers, and closes the connection."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        fault = find_fault(scope["headers"]) if scope["type"] == "http" else None
        if fault is None:
            await self._app(scope, receive, send)
        else:
            await PlainTextResponse(fault, 400, headers={"connection": "close"})(scope, receive, send)


def find_fault(headers: Sequence[tuple[bytes, bytes]]) -> str | None:
    """Return an error message if headers, with names in lower case, are ambiguous or malformed."""
    values: dict[str, list[str]] = {}
    for raw_name, raw_value in headers:
        values.setdefault(raw_name.decode("latin-1"), []).append(raw_value.decode("latin-1"))
    for name in _SINGLE_HEADERS:
        if len(values.get(name.lower(), ())) > 1:
            return f"there is more than one {name} header; send one"
    if "content-length" in values and "transfer-encoding" in values:
        return "Content-Length and Transfer-Encoding exclude each other; send one of them"
    # An empty Host names no host and is refused later, as one that is not allowed.
    host = values.get("host", [""])[0]
    if host and not _is_authority(host):
        return "the Host header is malformed; send a name and, if needed, a port, such as localhost:8000"
    origin = values.get("origin", ["null"])[0]
    if origin != "null" and not _is_origin(origin):
        return "the Origin header is malformed; send a scheme, a host and, if needed, a port"
    return None


def _is_authority(text: str) -> bool:
    match = _AUTHORITY_PATTERN.fullmatch(text)
    if match is None or int(match[2] or 0) > _MAX_PORT:
        return False
    return match[1] is None or _is_ipv6_address(match[1])


def _is_ipv6_address(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def _is_origin(text: str) -> bool:
    match = _ORIGIN_PATTERN.fullmatch(text)
    # Some schemes have no host, such as file://.
    return match is not None and (not match[1] or _is_authority(match[1]))
