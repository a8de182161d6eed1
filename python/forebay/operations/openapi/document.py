"""The document: read from wherever it is, and asked for what its references lead to."""

import asyncio
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

import httpx2
import orjson

from forebay.arguments import short_repr
from forebay.errors import InvalidArgument
from forebay.operations.openapi.yaml_text import parse_yaml

__all__ = [
    "MAX_DOCUMENT_BYTES",
    "Document",
    "check_base_url",
    "check_no_userinfo",
    "check_same_origin",
    "find_server_url",
    "is_url",
    "read_document",
]

MAX_DOCUMENT_BYTES = 20 * 1024 * 1024


class Document:
    """An OpenAPI document, and where it was fetched from."""

    def __init__(self, root: Mapping[str, Any], url: str | None = None) -> None:
        _check_version(root)
        self.root = root
        self.url = url
        self.is_3_0 = str(root["openapi"]).startswith("3.0")
        self.cache: dict[Any, Any] = {}
        """What was made of it once, for all of its operations."""

    def resolve(self, node: Any, what: str) -> Mapping[str, Any]:
        """An object of the document, behind whatever references stand in front of it."""
        been: set[str] = set()
        while True:
            if not isinstance(node, Mapping):
                raise InvalidArgument(f"{what} must be an object in this document, not {short_repr(node)}")
            ref = node.get("$ref")
            if not isinstance(ref, str):
                return node
            if ref in been:
                raise InvalidArgument(f"{what} is a $ref that leads back to itself")
            been.add(ref)
            node = self.lookup(ref)

    def lookup(self, ref: str) -> Any:
        """What a reference leads to. Raises `InvalidArgument` where that is nowhere, or elsewhere."""
        if not ref.startswith("#"):
            raise InvalidArgument(f"$ref {ref[:200]!r} leads out of this document and is not fetched; bundle it first")
        node: Any = self.root
        for part in unquote(ref[1:]).split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(node, Mapping) and key in node:
                node = node[key]
            elif isinstance(node, list) and key.isdecimal() and len(key) < 10 and int(key) < len(node):
                node = node[int(key)]
            else:
                raise InvalidArgument(f"$ref {ref[:200]!r} leads nowhere in this document")
        return node


def is_url(source: object) -> bool:
    """Whether the document has to be fetched."""
    return isinstance(source, str) and source[:8].lower().startswith(("http://", "https://")) and "\n" not in source


async def read_document(source: object) -> Mapping[str, Any]:
    """What a dict, a text, bytes or the file at a `Path` say."""
    if isinstance(source, Mapping):
        return source
    # A large YAML text takes seconds.
    return await asyncio.to_thread(_read_source, source)


def _read_source(source: object) -> Mapping[str, Any]:
    if isinstance(source, os.PathLike):
        try:
            source = Path(source).read_bytes()
        except OSError as error:
            raise InvalidArgument(f"the document cannot be read: {error}") from None
    if isinstance(source, bytes | bytearray | memoryview):
        try:
            source = bytes(source).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise InvalidArgument(f"the document is not UTF-8 at byte {error.start}") from None
    if not isinstance(source, str):
        raise InvalidArgument(f"a document is a dict, a text, bytes, a Path or a URL, not {short_repr(source)}")
    if len(source) > MAX_DOCUMENT_BYTES:
        raise InvalidArgument(f"a document has at most {MAX_DOCUMENT_BYTES} bytes; take out what is not called")
    found = _parse_text(source)
    if not isinstance(found, Mapping):
        raise InvalidArgument(
            f"this is no OpenAPI document but {short_repr(found)}; give a Path for a file, or an http or https URL"
        )
    return found


def _parse_text(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if text.lstrip().startswith("{") and "\n" not in text.strip():
            # JSON on one line is seldom meant as YAML, and YAML has less to say about what is wrong.
            raise InvalidArgument(f"this is not JSON: {error}") from None
        return parse_yaml(text)


def _check_version(root: Mapping[str, Any]) -> None:
    if "swagger" in root:
        told = short_repr(root["swagger"])
        raise InvalidArgument(f"this is a Swagger {told} document; convert it first, for example with swagger2openapi")
    version = root.get("openapi")
    if version is None:
        raise InvalidArgument('this is no OpenAPI document: it has no "openapi" with a version')
    if not str(version).startswith(("3.0", "3.1")):
        raise InvalidArgument(f"OpenAPI 3.0 and 3.1 are understood, not {short_repr(version)}")
    if not isinstance(root.get("paths", {}), Mapping):
        raise InvalidArgument(f'"paths" must be an object, not {short_repr(root["paths"])}')


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
        raise InvalidArgument(
            f"an API is at an http or https URL without a query, not at {short_repr(url)}; give base_url"
        )
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


def find_server_url(document: Document, *levels: Any) -> str:
    """The first server of the nearest level that has any: of the operation, its path, or the document."""
    servers = next((each for each in levels if isinstance(each, list) and each), [{"url": "/"}])
    server = document.resolve(servers[0], "a server")
    return check_base_url(urljoin(document.url or "", _expand_variables(server)))


def _expand_variables(server: Mapping[str, Any]) -> str:
    variables = server.get("variables") or {}

    def value(place: re.Match[str]) -> str:
        said = variables.get(place[1]) if isinstance(variables, Mapping) else None
        if not isinstance(said, Mapping) or "default" not in said:
            raise InvalidArgument(f"the server variable {place[1]!r:.64} has no default; give base_url")
        return str(said["default"])

    return _VARIABLE.sub(value, str(server.get("url") or "/"))
