"""Putting what references name in their place."""

import base64
import codecs
import contextlib
import dataclasses
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import orjson
from typing_extensions import Buffer

from forebay._core import Survey, index_items
from forebay.arguments import check_integer, short_repr
from forebay.errors import FileRefTooLarge, ForebayError, InvalidArgument, InvalidFormat, InvalidJSON, PathNotFound
from forebay.outputs.references.files import FileRoots
from forebay.outputs.references.reference import (
    FILE,
    ByteRange,
    LineRange,
    Reference,
    ReferenceRange,
    contains_references,
    parse_reference,
    unescape_key,
)
from forebay.outputs.references.schemas import accepts_text
from forebay.store import Store
from forebay.store.handles import extract_handle, is_handle
from forebay.store.reader import View

__all__ = [
    "MAX_REFERENCE_BYTES",
    "RangeSource",
    "ReferenceResolver",
    "ResolvedValue",
    "escape_text",
    "map_resolved",
    "read_range",
    "to_fragments",
    "to_objects",
]

MAX_REFERENCE_BYTES = 64 << 20
"""What all references of a call may bring in together."""

_MAX_DEPTH = 200
_MAX_JOURNAL_PATH_LENGTH = 256
"""How much of a path is journalled: it may be anything, of any size."""
_MAX_LEADING_SPACE = 64
"""White space that may be before a document."""
_UTF8_BOM = b"\xef\xbb\xbf"

_Path: TypeAlias = tuple[str | int, ...]


_READ_CHUNK_BYTES = 1 << 20


class RangeSource(Protocol):
    """What a part is read of."""

    @property
    def size(self) -> int:
        """Of what is there to be read: what a file grows by later is not."""

    def read(self, start: int, end: int) -> Buffer:
        """These bytes; fewer if a file shrank."""


def read_range(
    source: RangeSource, part: ReferenceRange, max_bytes: int, chunk_bytes: int = _READ_CHUNK_BYTES
) -> bytes:
    """A part of it, of at most `most` bytes. Lines are looked for within the first `most` bytes only."""
    return (
        _read_lines(source, part, max_bytes, chunk_bytes)
        if isinstance(part, LineRange)
        else _read_bytes(source, part, max_bytes)
    )


def _read_bytes(source: RangeSource, part: ByteRange, max_bytes: int) -> bytes:
    start = min(part.offset, source.size)
    end = source.size if part.length is None else min(start + part.length, source.size)
    if end - start > max_bytes:
        raise _too_large_error(max_bytes)
    return bytes(source.read(start, end))


def _read_lines(source: RangeSource, part: LineRange, max_bytes: int, chunk_bytes: int) -> bytes:
    kept: list[bytes] = []
    at = line = 0
    while line < part.end and at < source.size:
        if at >= max_bytes:
            raise _too_large_error(max_bytes)
        data = bytes(source.read(at, min(at + chunk_bytes, max_bytes, source.size)))
        if not data:
            break
        at += len(data)
        start, end = _skip_lines(data, part.first - line), _skip_lines(data, part.end - line)
        kept.append(data[start:end])
        line += data.count(b"\n")
    return b"".join(kept)


def _skip_lines(data: bytes, newlines: int) -> int:
    """Where that many newlines have passed; the end, if they are not all there."""
    if newlines > data.count(b"\n"):
        return len(data)
    at = 0
    for _ in range(newlines):
        at = data.index(b"\n", at) + 1
    return at


def _too_large_error(max_bytes: int) -> FileRefTooLarge:
    return FileRefTooLarge(
        f"this is more than the {max_bytes} bytes that a call may still take in by reference; "
        "name a part of it with offset and length, or refer to less in one call"
    )


_ESCAPE_CHUNK_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class ResolvedValue:
    """A text in UTF-8, or one JSON document."""

    data: bytes
    is_json: bool = False


def to_objects(arguments: Any) -> Any:
    """Arguments for a tool in this process: texts, and what JSON is to Python."""
    return map_resolved(arguments, _to_object)


def to_fragments(arguments: Any) -> Any:
    """Arguments for `orjson.dumps`: what was read goes into the message as it stands, on one line."""
    return map_resolved(arguments, _to_fragment)


def map_resolved(arguments: Any, finish: Callable[[ResolvedValue], Any]) -> Any:
    """The same with another value for each that was resolved."""
    if isinstance(arguments, ResolvedValue):
        return finish(arguments)
    if isinstance(arguments, dict):
        return {key: map_resolved(value, finish) for key, value in arguments.items()}
    if isinstance(arguments, list):
        return [map_resolved(value, finish) for value in arguments]
    return arguments


def _to_object(resolved: ResolvedValue) -> Any:
    if not resolved.is_json:
        return resolved.data.decode()
    try:
        # Not by orjson, which makes a float of an integer of more than 64 bits.
        return json.loads(resolved.data)
    except (RecursionError, ValueError):
        raise InvalidJSON("this JSON is too deep, or has a number of too many digits; refer to a part of it") from None


def _to_fragment(resolved: ResolvedValue) -> orjson.Fragment:
    # A message is one line, and between two values a newline means nothing.
    return orjson.Fragment(resolved.data.translate(None, b"\r\n") if resolved.is_json else escape_text(resolved.data))


def escape_text(text: bytes, chunk_bytes: int = _ESCAPE_CHUNK_BYTES) -> bytes:
    """A text as a JSON string. In pieces, since one character can make all of a `str` four times as large."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    pieces = [
        orjson.dumps(decoder.decode(text[at : at + chunk_bytes], at + chunk_bytes >= len(text)))[1:-1]
        for at in range(0, len(text), chunk_bytes)
    ]
    return b'"' + b"".join(pieces) + b'"'


class ReferenceResolver:
    """Resolves references to files below `roots` and to what is stored."""

    def __init__(
        self,
        store: Store,
        roots: Iterable[str | os.PathLike[str]] | None = None,
        max_bytes: int = MAX_REFERENCE_BYTES,
        secret_files: Iterable[str | os.PathLike[str]] = (),
    ) -> None:
        check_integer("file_ref_max_bytes", max_bytes, 1)
        self._store = store
        self._max_bytes = max_bytes
        self._roots = FileRoots(_default_roots() if roots is None else roots, store.folder, secret_files)

    def resolve(
        self, arguments: Any, schema: object = None, principal: str | None = None, *, tool: str | None = None
    ) -> Any:
        """The arguments with `Resolved` in place of each reference, and with nothing escaped any more.

        What refers to nothing is returned itself. Whatever is no object, list or scalar of JSON stays as it is.

        Raises a `ForebayError` that says what to do: then the tool must not be called.
        """
        if not contains_references(arguments):
            return arguments
        return _CallResolution(self, schema, principal, tool, self._max_bytes).resolve_value(arguments, ())

    @contextlib.contextmanager
    def open_source(self, reference: Reference, principal: str | None, max_bytes: int) -> Iterator[RangeSource]:
        """What a reference names, to be read; a JSON string that a path leads to is its text."""
        with contextlib.ExitStack() as opened:
            if reference.kind == FILE:
                yield opened.enter_context(self._roots.open(reference.name))
                return
            part = self._open_stored(reference, principal, opened)
            is_string = (
                part.nature == "json" and bytes(part.read(0, min(_MAX_LEADING_SPACE, part.size))).lstrip()[:1] == b'"'
            )
            if not is_string or reference.path is None:
                yield part
                return
            # A character of one byte may be written in six, and in quotes.
            fits = part.size <= 6 * max_bytes + 2
            yield _TextSource(read_range(part, ByteRange(), part.size if fits else max_bytes))

    def _open_stored(self, reference: Reference, principal: str | None, opened: contextlib.ExitStack) -> View:
        # What is no handle at all is no more there than one that is unknown.
        handle = str(extract_handle(reference.name))
        try:
            return opened.enter_context(self._store.open_view(handle, reference.path, principal=principal))
        except PathNotFound:
            # Who refers to it cannot ask for an outline.
            shape = self._store.outline(handle, principal=principal)
            raise PathNotFound(f"nothing at path {short_repr(reference.path)}; there is {shape}") from None

    def record(self, event: str, reference: Reference, **details: object) -> None:
        """Tells the journal of a reference, and nothing of what it brought in."""
        if reference.kind == FILE:
            named: dict[str, object] = {"path": _shorten_path(reference.name)}
        else:
            handle = extract_handle(reference.name)
            named = {"handle": handle if is_handle(handle) else None, "path": _shorten_path(reference.path)}
        self._store.journal.record(event, **named, **details)  # type: ignore[arg-type]


def _default_roots() -> list[str]:
    """The working and the temporary directory. Clients start servers at the very top, which is no place of work."""
    here = Path.cwd()
    return [*([] if here == here.parent else [str(here)]), tempfile.gettempdir()]


@dataclasses.dataclass(slots=True)
class _CallResolution:
    """Of the arguments of one call."""

    resolver: ReferenceResolver
    schema: object
    principal: str | None
    tool: str | None
    remaining_bytes: int

    def resolve_value(self, value: Any, path: _Path) -> Any:
        if len(path) > _MAX_DEPTH:
            raise InvalidArgument(f"references are looked for in {_MAX_DEPTH} levels, and these arguments have more")
        if isinstance(value, list):
            return [self.resolve_value(inner, (*path, number)) for number, inner in enumerate(value)]
        if not isinstance(value, dict):
            return value
        reference = parse_reference(value)
        if reference is not None:
            return self._resolve_and_record(reference, path)
        plain = {unescape_key(key): inner for key, inner in value.items()}
        return {key: self.resolve_value(inner, (*path, key)) for key, inner in plain.items()}

    def _resolve_and_record(self, reference: Reference, path: _Path) -> ResolvedValue:
        about = {"principal": self.principal, "tool": self.tool}
        try:
            resolved = self._read_reference(reference, path)
        except ForebayError as error:
            self.resolver.record("file_ref_denied", reference, code=error.code, **about)
            raise
        self.resolver.record("file_ref_resolved", reference, size_bytes=len(resolved.data), **about)
        return resolved

    def _read_reference(self, reference: Reference, path: _Path) -> ResolvedValue:
        with self.resolver.open_source(reference, self.principal, self.remaining_bytes) as source:
            data = read_range(source, reference.part, self.remaining_bytes)
        self.remaining_bytes -= len(data)
        if reference.is_base64:
            return ResolvedValue(base64.b64encode(data))
        # All of the arguments are an object, whatever the tool says of them.
        if path and accepts_text(self.schema, path):
            return ResolvedValue(_check_is_text(data, reference))
        data = _check_is_json(data.removeprefix(_UTF8_BOM), reference)
        if not path and not data.lstrip().startswith(b"{"):
            raise InvalidArgument(
                f"the arguments of a tool are an object, and what is in {_format_name(reference)} is none"
            )
        return ResolvedValue(data, is_json=True)


class _TextSource:
    """A JSON string as the text that it is."""

    def __init__(self, document: bytes) -> None:
        try:
            self._data = str(orjson.loads(document)).encode()
        except orjson.JSONDecodeError:
            raise InvalidJSON("the text at this path has half of a surrogate pair; refer to what it is in") from None
        self.size = len(self._data)

    def read(self, start: int, end: int) -> bytes:
        return self._data[start:end]


def _check_is_text(data: bytes, reference: Reference) -> bytes:
    survey = Survey(is_json=False)
    survey.feed(data)
    if survey.finish().nature == "binary":
        raise InvalidFormat(f'{_format_name(reference)} is not text; add "encoding": "base64" to have its bytes')
    return data


def _check_is_json(data: bytes, reference: Reference) -> bytes:
    try:
        kind = index_items(data).kind
    except InvalidJSON as error:
        what = str(error).partition(";")[0]
        raise InvalidJSON(
            f"this argument takes JSON, and what {_format_name(reference)} gives is {what}; refer to a JSON document",
            error.index,
        ) from None
    if kind == "ndjson":
        raise InvalidJSON(
            f"this argument takes one JSON document, and {_format_name(reference)} has one on each line; refer to one line"
        )
    return data


def _format_name(reference: Reference) -> str:
    return short_repr(reference.name)


def _shorten_path(text: str | None) -> str | None:
    return None if text is None else text[:_MAX_JOURNAL_PATH_LENGTH]
