"""OpenAPI documents: parsing them as JSON or YAML, resolving their references, and finding their servers."""

import asyncio
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

import httpx2
import orjson
import yaml

from forebay.arguments import decode_token, short_repr
from forebay.errors import InvalidArgument

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

_MAX_INDEX_DIGITS = 9
"""Maximum digits of an array index in a `$ref`. Python refuses to convert very long numbers."""

_SERVER_VARIABLE_PATTERN = re.compile(r"\{([^{}]+)\}")

_MAX_YAML_KEYS = 100_000
"""Maximum number of keys in one mapping. Nested merges (`<<`) can double the number of keys with each line."""

_MAX_YAML_NODES = 5_000_000
"""Maximum number of values in a document. An aliased value counts at each use, because each use is visited."""

_MAX_YAML_DEPTH = 250
"""Maximum nesting depth. The C loader recurses for each level, and a stack overflow crashes the process."""

# The scalars of YAML 1.2: PyYAML implements 1.1, where `no` is false and a date is not a string.
_YAML_INTEGER_PATTERN = r"[-+]?(?:0|[1-9][0-9]*)"
_YAML_SCALARS = [
    ("tag:yaml.org,2002:null", r"~|null|Null|NULL|", "~nN\0"),
    ("tag:yaml.org,2002:bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("tag:yaml.org,2002:int", _YAML_INTEGER_PATTERN, "-+0123456789"),
    ("tag:yaml.org,2002:float", rf"{_YAML_INTEGER_PATTERN}(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?", "-+0123456789"),
    ("tag:yaml.org,2002:merge", r"<<", "<"),
]
"""Tag, pattern and possible first characters of each scalar type; `\\0` stands for an empty scalar."""


class Document:
    """An OpenAPI document and the URL it was fetched from, if any."""

    def __init__(self, root: Mapping[str, Any], url: str | None = None) -> None:
        _check_version(root)
        self.root = root
        self.url = url
        self.is_3_0 = str(root["openapi"]).startswith("3.0")
        self.cache: dict[Any, Any] = {}
        """Values that are computed once and shared by all operations of the document."""

    def resolve(self, node: Any, label: str) -> Mapping[str, Any]:
        """Follow references until an object has no `$ref`, and return that object. `label` names it in errors."""
        visited: set[str] = set()
        while True:
            if not isinstance(node, Mapping):
                raise InvalidArgument(f"{label} must be an object in this document, not {short_repr(node)}")
            ref = node.get("$ref")
            if not isinstance(ref, str):
                return node
            if ref in visited:
                raise InvalidArgument(f"{label} is a $ref that leads back to itself")
            visited.add(ref)
            node = self.lookup(ref)

    def lookup(self, ref: str) -> Any:
        """Return the target of a `$ref`. Raises `InvalidArgument` if the target is missing or in another document."""
        if not ref.startswith("#"):
            raise InvalidArgument(f"$ref {ref[:200]!r} leads out of this document and is not fetched; bundle it first")
        node: Any = self.root
        for step in unquote(ref[1:]).split("/")[1:]:
            key = decode_token(step)
            if isinstance(node, Mapping) and key in node:
                node = node[key]
            elif isinstance(node, list) and key.isdecimal() and len(key) <= _MAX_INDEX_DIGITS and int(key) < len(node):
                node = node[int(key)]
            else:
                raise InvalidArgument(f"$ref {ref[:200]!r} leads nowhere in this document")
        return node


def is_url(source: object) -> bool:
    """Return whether `source` is an http or https URL, so that the document has to be fetched."""
    return isinstance(source, str) and source[:8].lower().startswith(("http://", "https://")) and "\n" not in source


async def read_document(source: object) -> Mapping[str, Any]:
    """Parse a document given as a dict, a string, bytes or a `Path`."""
    if isinstance(source, Mapping):
        return source
    # In a thread: parsing a large YAML document takes seconds.
    return await asyncio.to_thread(_read_source, source)


def _read_source(source: object) -> Mapping[str, Any]:
    if isinstance(source, os.PathLike):
        path = Path(source).absolute()
        try:
            source = path.read_bytes()
        except OSError as error:
            raise InvalidArgument(f"the document {path} cannot be read: {error.strerror or error}") from None
    if isinstance(source, bytes | bytearray | memoryview):
        try:
            source = bytes(source).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise InvalidArgument(f"the document is not UTF-8 at byte {error.start}") from None
    if not isinstance(source, str):
        raise InvalidArgument(f"a document is a dict, a text, bytes, a Path or a URL, not {short_repr(source)}")
    if len(source) > MAX_DOCUMENT_BYTES:
        raise InvalidArgument(f"a document has at most {MAX_DOCUMENT_BYTES} bytes; take out what is not called")
    root = _parse_text(source)
    if not isinstance(root, Mapping):
        raise InvalidArgument(
            f"this is no OpenAPI document but {short_repr(root)}; give a Path for a file, or an http or https URL"
        )
    return root


def _parse_text(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if text.lstrip().startswith("{") and "\n" not in text.strip():
            # A single line that starts with "{" is most likely broken JSON. The JSON parser's error is more precise.
            raise InvalidArgument(f"this is not JSON: {error}") from None
        return _parse_yaml(text)


def _check_version(root: Mapping[str, Any]) -> None:
    if "swagger" in root:
        swagger = short_repr(root["swagger"])
        raise InvalidArgument(
            f"this is a Swagger {swagger} document; convert it first, for example with swagger2openapi"
        )
    version = root.get("openapi")
    if version is None:
        raise InvalidArgument('this is no OpenAPI document: it has no "openapi" with a version')
    if not str(version).startswith(("3.0", "3.1")):
        raise InvalidArgument(f"OpenAPI 3.0 and 3.1 are understood, not {short_repr(version)}")
    if not isinstance(root.get("paths", {}), Mapping):
        raise InvalidArgument(f'"paths" must be an object, not {short_repr(root["paths"])}')


def check_base_url(url: object) -> str:
    """Return a base URL without its trailing slash. Raises `InvalidArgument` if requests cannot be sent to it."""
    check_no_userinfo(url)
    try:
        split_url = urlsplit(url) if isinstance(url, str) else None
    except ValueError:
        split_url = None
    if (
        split_url is None
        or split_url.scheme not in ("http", "https")
        or not split_url.netloc
        or split_url.query
        or split_url.fragment
        or "{" in split_url.netloc
    ):
        raise InvalidArgument(
            f"an API is at an http or https URL without a query, not at {short_repr(url)}; give base_url"
        )
    return str(url).rstrip("/")


def check_no_userinfo(url: object) -> None:
    """Raise `InvalidArgument` for a URL with a user or password, which would appear in logs and errors."""
    authority = re.match(r"[^/?#]*//([^/?#\\]*)", url) if isinstance(url, str) else None
    if authority is not None and "@" in authority[1]:
        raise InvalidArgument(
            "a URL with a user or a password is not used, for it would be logged; give them in security=, in headers=,"
            " or as the auth of a client"
        )


def check_same_origin(document_url: str, server_urls: Iterable[str]) -> None:
    """Raise `InvalidArgument` if a server has another origin than the document.

    A fetched document must not choose another host that receives the credentials.
    """
    expected = httpx2.URL(document_url).origin
    foreign = next((url for url in server_urls if httpx2.URL(url).origin != expected), None)
    if foreign is not None:
        raise InvalidArgument(
            f"this document says that its API is at {foreign:.200}, which is not where it was fetched from; "
            "to send headers or security there, give it as base_url"
        )


def find_server_url(document: Document, *server_lists: Any) -> str:
    """Return the URL of the first server in the first list that has one, by default `/`."""
    servers = next((servers for servers in server_lists if isinstance(servers, list) and servers), [{"url": "/"}])
    server = document.resolve(servers[0], "a server")
    return check_base_url(urljoin(document.url or "", _expand_variables(server)))


def _expand_variables(server: Mapping[str, Any]) -> str:
    """Return the URL of a server with its variables replaced by their defaults."""
    variables = server.get("variables") or {}

    def get_default(match: re.Match[str]) -> str:
        variable = variables.get(match[1]) if isinstance(variables, Mapping) else None
        if not isinstance(variable, Mapping) or "default" not in variable:
            raise InvalidArgument(f"the server variable {match[1]!r:.64} has no default; give base_url")
        return str(variable["default"])

    return _SERVER_VARIABLE_PATTERN.sub(get_default, str(server.get("url") or "/"))


class _YAMLLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """A safe YAML loader that returns only JSON values."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012

    def flatten_mapping(self, node: Any) -> None:
        super().flatten_mapping(node)
        if len(node.value) > _MAX_YAML_KEYS:
            raise InvalidArgument(
                f"an object of this document has more than {_MAX_YAML_KEYS} keys; write out its merges"
            )

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[str, Any]:
        return {_to_json_key(key): value for key, value in super().construct_mapping(node, deep).items()}

    def construct_yaml_float(self, node: Any) -> float:
        return float(node.value)


for _tag, _pattern, _first_characters in _YAML_SCALARS:
    for _character in _first_characters:
        _YAMLLoader.yaml_implicit_resolvers.setdefault("" if _character == "\0" else _character, []).append(
            (_tag, re.compile(rf"(?:{_pattern})\Z"))
        )
_YAMLLoader.add_constructor("tag:yaml.org,2002:float", _YAMLLoader.construct_yaml_float)


def _parse_yaml(text: str) -> Any:
    """Parse YAML text. Raises `InvalidArgument` if the text is invalid, too deep or too large."""
    try:
        _check_yaml_depth(text)
        document = yaml.load(text, _YAMLLoader)  # noqa: S506
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        if isinstance(error, InvalidArgument):
            raise
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InvalidArgument(f"this is neither JSON nor YAML: {reason[:300]}") from None
    if _count_nodes(document, {}, set()) > _MAX_YAML_NODES:
        raise InvalidArgument(
            f"the aliases of this document stand for more than {_MAX_YAML_NODES} values; write them out"
        )
    return document


def _check_yaml_depth(text: str) -> None:
    depth = 0
    for event in yaml.parse(text, _YAMLLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _MAX_YAML_DEPTH:
                raise InvalidArgument(f"this document is nested too deeply: more than {_MAX_YAML_DEPTH} levels")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _to_json_key(key: Any) -> str:
    """Return a YAML key as a string: the status `200` is a number in YAML."""
    match key:
        case str():
            return key
        case True | False | None:
            return {True: "true", False: "false", None: "null"}[key]
    return str(key)


def _count_nodes(value: Any, counts: dict[int, int], ancestors: set[int]) -> int:
    """Count the values of a document, aliased values at each use. `counts` caches the result by object id."""
    if not isinstance(value, dict | list):
        return 1
    if id(value) in counts:
        return counts[id(value)]
    if id(value) in ancestors:
        raise InvalidArgument("an alias of this document stands for what it is in; use a $ref for what is recursive")
    ancestors.add(id(value))
    children = value.values() if isinstance(value, dict) else value
    counts[id(value)] = 1 + sum(_count_nodes(child, counts, ancestors) for child in children)
    ancestors.discard(id(value))
    return counts[id(value)]
