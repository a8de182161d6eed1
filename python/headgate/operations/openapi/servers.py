"""Where an API is: what is given, else what the document says, as far as that leads to http or https."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urljoin, urlsplit

from headgate.arguments import shown
from headgate.errors import InvalidArgument
from headgate.operations.openapi.document import Document

__all__ = ["check_base_url", "server_url"]

_VARIABLE = re.compile(r"\{([^{}]+)\}")


def check_base_url(url: object) -> str:
    """Refuses what no request can be sent to."""
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
