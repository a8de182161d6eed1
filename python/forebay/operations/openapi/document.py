"""The document: read from wherever it is, and asked for what its references lead to."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import orjson

from forebay.arguments import shown
from forebay.errors import InvalidArgument
from forebay.operations.openapi.yaml_text import from_yaml

__all__ = ["MOST_DOCUMENT_BYTES", "Document", "is_url", "read_document"]

MOST_DOCUMENT_BYTES = 20 * 1024 * 1024


class Document:
    """An OpenAPI document, and where it was fetched from."""

    def __init__(self, root: Mapping[str, Any], url: str | None = None) -> None:
        _check_version(root)
        self.root = root
        self.url = url
        self.is_3_0 = str(root["openapi"]).startswith("3.0")
        self.kept: dict[Any, Any] = {}
        """What was made of it once, for all of its operations."""

    def resolved(self, node: Any, what: str) -> Mapping[str, Any]:
        """An object of the document, behind whatever references stand in front of it."""
        been: set[str] = set()
        while True:
            if not isinstance(node, Mapping):
                raise InvalidArgument(f"{what} must be an object in this document, not {shown(node)}")
            ref = node.get("$ref")
            if not isinstance(ref, str):
                return node
            if ref in been:
                raise InvalidArgument(f"{what} is a $ref that leads back to itself")
            been.add(ref)
            node = self.at(ref)

    def at(self, ref: str) -> Any:
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
    return await asyncio.to_thread(_read, source)


def _read(source: object) -> Mapping[str, Any]:
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
        raise InvalidArgument(f"a document is a dict, a text, bytes, a Path or a URL, not {shown(source)}")
    if len(source) > MOST_DOCUMENT_BYTES:
        raise InvalidArgument(f"a document has at most {MOST_DOCUMENT_BYTES} bytes; take out what is not called")
    found = _parsed(source)
    if not isinstance(found, Mapping):
        raise InvalidArgument(
            f"this is no OpenAPI document but {shown(found)}; give a Path for a file, or an http or https URL"
        )
    return found


def _parsed(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if text.lstrip().startswith("{") and "\n" not in text.strip():
            # JSON on one line is seldom meant as YAML, and YAML has less to say about what is wrong.
            raise InvalidArgument(f"this is not JSON: {error}") from None
        return from_yaml(text)


def _check_version(root: Mapping[str, Any]) -> None:
    if "swagger" in root:
        told = shown(root["swagger"])
        raise InvalidArgument(f"this is a Swagger {told} document; convert it first, for example with swagger2openapi")
    version = root.get("openapi")
    if version is None:
        raise InvalidArgument('this is no OpenAPI document: it has no "openapi" with a version')
    if not str(version).startswith(("3.0", "3.1")):
        raise InvalidArgument(f"OpenAPI 3.0 and 3.1 are understood, not {shown(version)}")
    if not isinstance(root.get("paths", {}), Mapping):
        raise InvalidArgument(f'"paths" must be an object, not {shown(root["paths"])}')
