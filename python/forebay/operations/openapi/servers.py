"""Where an API is: what is given, else what the document says, as far as that leads to http or https."""

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx2

from forebay.arguments import shown
from forebay.errors import InvalidArgument
from forebay.operations.openapi.document import Document

__all__ = ["check_base_url", "check_no_userinfo", "check_same_origin", "server_url"]

_VARIABLE = re.compile(r"\{([^{}]+)\}")


def check_base_url(url: object) -> str:
    """Refuses what no request can be sent to."""
    check_no_userinfo(url)
    try:
        parts = urlsplit(url) if isinstance(url, str) else None
    except ValueError:
        parts = None
    if (
        parts is None
        or parts.scheme not in ("http", "https")
        or not parts.netloc
        or parts.query
        or parts.fragment
        or "{" in parts.netloc
    ):
        raise InvalidArgument(f"an API is at an http or https URL without a query, not at {shown(url)}; give base_url")
    return str(url).rstrip("/")


def check_no_userinfo(url: object) -> None:
    """Refuses a user and a password in a URL, without showing them. URLs are logged, and are in errors."""
    authority = re.match(r"[^/?#]*//([^/?#\\]*)", url) if isinstance(url, str) else None
    if authority is not None and "@" in authority[1]:
        raise InvalidArgument(
            "a URL with a user or a password is not used, for it would be logged; give them in security=, in headers=,"
            " or as the auth of a client"
        )


def check_same_origin(given: str, servers: Iterable[str]) -> None:
    """Refuses servers at other origins than the one that was given: only the document names them."""
    expected = httpx2.URL(given).origin
    other = next((each for each in servers if httpx2.URL(each).origin != expected), None)
    if other is not None:
        raise InvalidArgument(
            f"this document says that its API is at {other:.200}, which is not where it was fetched from; "
            "to send headers or security there, give it as base_url"
        )


def server_url(document: Document, *levels: Any) -> str:
    """The first server of the nearest level that has any: of the operation, its path, or the document."""
    servers = next((each for each in levels if isinstance(each, list) and each), [{"url": "/"}])
    server = document.resolved(servers[0], "a server")
    return check_base_url(urljoin(document.url or "", _filled(server)))


def _filled(server: Mapping[str, Any]) -> str:
    variables = server.get("variables") or {}

    def value(place: re.Match[str]) -> str:
        said = variables.get(place[1]) if isinstance(variables, Mapping) else None
        if not isinstance(said, Mapping) or "default" not in said:
            raise InvalidArgument(f"the server variable {place[1]!r:.64} has no default; give base_url")
        return str(said["default"])

    return _VARIABLE.sub(value, str(server.get("url") or "/"))
