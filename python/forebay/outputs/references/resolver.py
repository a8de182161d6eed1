"""Replace references in a call's arguments by the content they refer to."""

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

from forebay._core import Survey, index_items, outline, patch
from forebay.arguments import check_integer, short_repr
from forebay.errors import (
    FileRefTooLarge,
    ForebayError,
    InvalidArgument,
    InvalidFormat,
    InvalidJSON,
    PatchFailed,
    PathNotFound,
)
from forebay.outputs.references.files import FileRoots
from forebay.outputs.references.reference import (
    FILE_KEY,
    ByteRange,
    LineRange,
    Reference,
    ReferenceRange,
    contains_references,
    parse_reference,
    unescape_key,
)
from forebay.outputs.schemas import accepts_text
from forebay.store import Store
from forebay.store.export import rows_to_objects
from forebay.store.handles import extract_handle, is_handle
from forebay.store.payload import UTF8_BOM
from forebay.store.reader import View
from forebay.wire.lazy_json import LazyJSON

__all__ = [
    "MAX_REFERENCE_BYTES",
    "RangeSource",
    "ReferenceResolver",
    "ResolvedValue",
    "escape_text",
    "read_range",
    "to_lazy",
    "to_objects",
]

MAX_REFERENCE_BYTES = 64 << 20
"""Maximum bytes that all references of one call read together."""

_MAX_ARGUMENT_DEPTH = 200
_MAX_JOURNAL_PATH_LENGTH = 256
"""Maximum characters of a path in the journal; clients may send paths of any length."""
_MAX_LEADING_SPACE = 64
"""Maximum bytes of whitespace to skip to find out whether a JSON value is a string."""
_READ_CHUNK_BYTES = 1 << 20
_MIN_QUERY_BYTES = 4096
"""A query refuses a smaller budget; the rows are measured again when they are read."""

_Path: TypeAlias = tuple[str | int, ...]


class RangeSource(Protocol):
    """An open file or stored value that is read by byte ranges."""

    @property
    def size(self) -> int:
        """Size in bytes at the time of opening; bytes appended later are not read."""

    def read(self, start: int, end: int) -> Buffer:
        """Return the bytes from `start` to `end`, or fewer if the file has become shorter."""


def read_range(
    source: RangeSource, selected_range: ReferenceRange, max_bytes: int, chunk_bytes: int = _READ_CHUNK_BYTES
) -> bytes:
    """Read a range of bytes or lines.

    Raises `FileRefTooLarge` if a byte range is larger than `max_bytes`, or a line range ends beyond the first
    `max_bytes` of the source.
    """
    if isinstance(selected_range, LineRange):
        return _read_lines(source, selected_range, max_bytes, chunk_bytes)
    return _read_bytes(source, selected_range, max_bytes)


def _read_bytes(source: RangeSource, byte_range: ByteRange, max_bytes: int) -> bytes:
    start = min(byte_range.offset, source.size)
    end = source.size if byte_range.length is None else min(start + byte_range.length, source.size)
    if end - start > max_bytes:
        raise _make_too_large_error(max_bytes)
    return bytes(source.read(start, end))


def _read_lines(source: RangeSource, line_range: LineRange, max_bytes: int, chunk_bytes: int) -> bytes:
    pieces: list[bytes] = []
    offset = line = 0
    while line < line_range.end and offset < source.size:
        if offset >= max_bytes:
            raise _make_too_large_error(max_bytes)
        chunk = bytes(source.read(offset, min(offset + chunk_bytes, max_bytes, source.size)))
        if not chunk:
            break
        offset += len(chunk)
        start, end = _skip_lines(chunk, line_range.first - line), _skip_lines(chunk, line_range.end - line)
        pieces.append(chunk[start:end])
        line += chunk.count(b"\n")
    return b"".join(pieces)


def _skip_lines(chunk: bytes, newline_count: int) -> int:
    """Return the offset after that many newlines, or the end if the chunk has fewer."""
    if newline_count > chunk.count(b"\n"):
        return len(chunk)
    offset = 0
    for _ in range(newline_count):
        offset = chunk.index(b"\n", offset) + 1
    return offset


def _make_too_large_error(max_bytes: int) -> FileRefTooLarge:
    return FileRefTooLarge(
        f"this is more than the {max_bytes} bytes that a call may still take in by reference; "
        "name a part of it with offset and length, or refer to less in one call"
    )


@dataclasses.dataclass(frozen=True, slots=True)
class ResolvedValue:
    """The content of a reference: UTF-8 text, or one JSON document."""

    data: bytes
    is_json: bool = False


def to_objects(arguments: Any) -> Any:
    """Replace each resolved reference by its content as `str` or parsed JSON, for a tool in this process."""
    return _map_resolved(arguments, _to_object)


def to_lazy(arguments: Any, folder: str) -> Any:
    """Replace each resolved reference by its content as JSON without line breaks, for a message.

    The message is spooled to `folder` if it is large.
    """
    return _map_resolved(arguments, lambda resolved_value: _ResolvedJSON(resolved_value, folder))


def _map_resolved(arguments: Any, convert: Callable[[ResolvedValue], Any]) -> Any:
    """Return a copy of the arguments with every `ResolvedValue` converted."""
    if isinstance(arguments, ResolvedValue):
        return convert(arguments)
    if isinstance(arguments, dict):
        return {key: _map_resolved(value, convert) for key, value in arguments.items()}
    if isinstance(arguments, list):
        return [_map_resolved(value, convert) for value in arguments]
    return arguments


def _to_object(resolved_value: ResolvedValue) -> Any:
    if not resolved_value.is_json:
        return resolved_value.data.decode()
    try:
        # Not orjson: it turns integers of more than 64 bits into floats.
        return json.loads(resolved_value.data)
    except (RecursionError, ValueError):
        raise InvalidJSON("this JSON is too deep, or has a number of too many digits; refer to a part of it") from None


class _ResolvedJSON(LazyJSON):
    """The content of a reference as JSON, which is escaped when it is written."""

    __slots__ = ("_folder", "_is_json")

    def __init__(self, resolved_value: ResolvedValue, folder: str) -> None:
        super().__init__(memoryview(resolved_value.data), 0, len(resolved_value.data))
        self._is_json = resolved_value.is_json
        self._folder = folder

    @property
    def folder(self) -> str:
        return self._folder

    def json_chunks(self) -> Iterator[bytes]:
        chunks = super().json_chunks()
        # A message is one line; in valid JSON, line breaks occur only between values and can be dropped.
        return (bytes(chunk).translate(None, b"\r\n") for chunk in chunks) if self._is_json else escape_text(chunks)


def escape_text(chunks: Iterable[bytes | memoryview]) -> Iterator[bytes]:
    """Yield a UTF-8 text as a JSON string.

    The text is escaped in chunks: a single wide character makes Python use four bytes for each character of a `str`.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    yield b'"'
    for chunk in chunks:
        yield orjson.dumps(decoder.decode(chunk))[1:-1]
    yield orjson.dumps(decoder.decode(b"", final=True))[1:-1] + b'"'


class ReferenceResolver:
    """Resolver of references to files below `roots` and to stored outputs."""

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
        self._roots = FileRoots(_list_default_roots() if roots is None else roots, store.folder, secret_files)

    def resolve(
        self, arguments: Any, schema: object = None, principal: str | None = None, *, tool: str | None = None
    ) -> Any:
        """Return the arguments with a `ResolvedValue` for each reference, and with escaped keys unescaped.

        Arguments without references are returned unchanged, and so are values that are not JSON.
        Raises a `ForebayError` whose message tells the caller what to do; the tool must not be called then.
        """
        if not contains_references(arguments):
            return arguments
        return _CallResolution(self, schema, principal, tool, self._max_bytes).resolve_value(arguments, ())

    @contextlib.contextmanager
    def open_source(self, reference: Reference, principal: str | None, max_bytes: int) -> Iterator[RangeSource]:
        """Open the file or stored output of a reference. A JSON string selected by `path` is read as decoded text."""
        with contextlib.ExitStack() as stack:
            if reference.key == FILE_KEY:
                yield stack.enter_context(self._roots.open(reference.target))
                return
            if reference.sql is not None:
                yield self._run_query(reference.target, reference.sql, principal, max_bytes)
                return
            view = self._open_stored(reference, principal, stack)
            if reference.is_base64 and view.decoded_from is not None:
                yield view.original
                return
            is_string = (
                view.nature == "json" and bytes(view.read(0, min(_MAX_LEADING_SPACE, view.size))).lstrip()[:1] == b'"'
            )
            if not is_string or reference.path is None:
                yield view
                return
            # Escaping turns one byte into up to six, plus two quotes around the string.
            may_fit = view.size <= 6 * max_bytes + 2
            yield _open_text(read_range(view, ByteRange(), view.size if may_fit else max_bytes))

    def _run_query(self, target: str, sql: str, principal: str | None, max_bytes: int) -> "_BytesSource":
        """Return all rows of a query as a JSON array of objects."""
        handle = str(extract_handle(target))
        page = self._store.query(handle, sql, max_bytes=max(max_bytes, _MIN_QUERY_BYTES), principal=principal)
        return _BytesSource(rows_to_objects(page, max_bytes))

    def _open_stored(self, reference: Reference, principal: str | None, stack: contextlib.ExitStack) -> View:
        # An invalid handle gives the same error as an unknown one.
        handle = str(extract_handle(reference.target))
        try:
            return stack.enter_context(self._store.open_view(handle, reference.path, principal=principal))
        except PathNotFound:
            # The error shows the payload's outline, because no tool returns it.
            outline = self._store.outline(handle, principal=principal)
            raise PathNotFound(f"nothing at path {short_repr(reference.path)}; there is {outline}") from None

    def record(self, event: str, reference: Reference, **details: object) -> None:
        """Add an event about a reference to the journal, without any of its content."""
        if reference.key == FILE_KEY:
            target: dict[str, object] = {"path": _shorten_path(reference.target)}
        else:
            handle = extract_handle(reference.target)
            target = {"handle": handle if is_handle(handle) else None, "path": _shorten_path(reference.path)}
        self._store.journal.record(event, **target, **details)  # type: ignore[arg-type]


def _list_default_roots() -> list[str]:
    """Return the working directory and the temporary directory.

    A working directory of `/` is left out: some clients start servers there.
    """
    cwd = Path.cwd()
    return [*([] if cwd == cwd.parent else [str(cwd)]), tempfile.gettempdir()]


@dataclasses.dataclass(slots=True)
class _CallResolution:
    """Resolution of the references in one call's arguments, within one byte budget."""

    resolver: ReferenceResolver
    schema: object
    principal: str | None
    tool: str | None
    remaining_bytes: int

    def resolve_value(self, value: Any, path: _Path) -> Any:
        """Return a value with its references resolved. `path` is the position of the value in the arguments."""
        if len(path) > _MAX_ARGUMENT_DEPTH:
            raise InvalidArgument(
                f"references are looked for in {_MAX_ARGUMENT_DEPTH} levels, and these arguments have more"
            )
        if isinstance(value, list):
            return [self.resolve_value(inner, (*path, index)) for index, inner in enumerate(value)]
        if isinstance(value, LazyJSON) and contains_references(value):
            raise InvalidArgument(
                f"a part of these arguments has {len(value)} bytes, too many to be searched for references, and there "
                "are some in it; send less at once, or put all of that part into a file and pass a reference to it"
            )
        if not isinstance(value, dict):
            return value
        reference = parse_reference(value)
        if reference is not None:
            return self._resolve_and_record(reference, path)
        unescaped = {unescape_key(key): inner for key, inner in value.items()}
        return {key: self.resolve_value(inner, (*path, key)) for key, inner in unescaped.items()}

    def _resolve_and_record(self, reference: Reference, path: _Path) -> ResolvedValue:
        caller = {"principal": self.principal, "tool": self.tool}
        try:
            resolved = self._read_reference(reference, path)
        except ForebayError as error:
            self.resolver.record("file_ref_denied", reference, code=error.code, **caller)
            raise
        self.resolver.record("file_ref_resolved", reference, size_bytes=len(resolved.data), **caller)
        return resolved

    def _read_reference(self, reference: Reference, path: _Path) -> ResolvedValue:
        with self.resolver.open_source(reference, self.principal, self.remaining_bytes) as source:
            data = read_range(source, reference.selected_range, self.remaining_bytes)
        if reference.patch is not None:
            apply_patch = _patch_text if isinstance(source, _TextSource) else _apply_patch
            data = apply_patch(data, reference, self.remaining_bytes)
        self.remaining_bytes -= len(data)
        if reference.is_base64:
            return ResolvedValue(base64.b64encode(data))
        # With an empty path the reference stands for all arguments, which are always an object, never text.
        if path and accepts_text(self.schema, path):
            return ResolvedValue(_check_is_text(data, reference))
        data = _check_is_json(data.removeprefix(UTF8_BOM), reference)
        if not path and not data.lstrip().startswith(b"{"):
            raise InvalidArgument(
                f"the arguments of a tool are an object, and what is in {_format_target(reference)} is none"
            )
        return ResolvedValue(data, is_json=True)


def _apply_patch(data: bytes, reference: Reference, max_bytes: int) -> bytes:
    """Return a JSON document with the patch of its reference applied."""
    document = _check_is_json(data.removeprefix(UTF8_BOM), reference, "a patch")
    try:
        return patch(document, reference.patch or b"", max_bytes=max_bytes)
    except PatchFailed as error:
        # The outline of the library is part of the message, because no tool returns it.
        message, advice, _ = str(error).partition("; outline() shows")
        raise PatchFailed(f"{message}; there is {outline(document)}" if advice else message) from None


def _patch_text(data: bytes, reference: Reference, max_bytes: int) -> bytes:
    """Return the text of a JSON string with the patch of its reference applied.

    The patch changes the string, or the JSON document in it if it points into one.
    """
    if _points_inside(reference.patch or b"") and _is_container(data):
        return _apply_patch(data, reference, max_bytes)
    document = orjson.dumps(_check_is_text(data, reference).decode())
    # Escaping turns one byte into up to six, plus two quotes around the string.
    patched = _apply_patch(document, reference, 6 * max_bytes + 2)
    if patched.startswith(b'"'):
        patched = _open_text(patched).read(0, len(patched))
    if len(patched) > max_bytes:
        raise PatchFailed(f"the value would have {len(patched)} bytes, more than {max_bytes}; add less to it")
    return patched


def _points_inside(patch_json: bytes) -> bool:
    """Return whether an operation of a patch names something else than the whole value."""
    operations = orjson.loads(patch_json)
    # What is no list of objects is refused when the patch is applied.
    return isinstance(operations, list) and any(
        isinstance(operation, dict) and (operation.get("path") or operation.get("from")) for operation in operations
    )


def _is_container(data: bytes) -> bool:
    """Return whether a text is a JSON object or array."""
    try:
        return data.lstrip()[:1] in (b"{", b"[") and index_items(data).kind != "ndjson"
    except InvalidJSON:
        return False


class _BytesSource:
    """Bytes in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)

    def read(self, start: int, end: int) -> bytes:
        return self._data[start:end]


class _TextSource(_BytesSource):
    """The text of a JSON string."""


def _open_text(document: bytes) -> _TextSource:
    """Return the decoded text of a JSON string."""
    try:
        return _TextSource(str(orjson.loads(document)).encode())
    except orjson.JSONDecodeError:
        raise InvalidJSON("the text at this path has half of a surrogate pair; refer to what it is in") from None


def _check_is_text(data: bytes, reference: Reference) -> bytes:
    survey = Survey(is_json=False)
    survey.feed(data)
    if survey.finish().nature == "binary":
        raise InvalidFormat(f'{_format_target(reference)} is not text; add "encoding": "base64" to have its bytes')
    return data


def _check_is_json(data: bytes, reference: Reference, user: str = "this argument") -> bytes:
    try:
        items = index_items(data)
    except InvalidJSON as error:
        problem = str(error).partition(";")[0]
        raise InvalidJSON(
            f"{user} takes JSON, and what {_format_target(reference)} gives is {problem}; refer to a JSON document",
            error.index,
        ) from None
    if items.kind == "ndjson":
        raise InvalidJSON(
            f"{user} takes one JSON document, and {_format_target(reference)} has one on each line; refer to one line"
        )
    return data


def _format_target(reference: Reference) -> str:
    return short_repr(reference.target)


def _shorten_path(text: str | None) -> str | None:
    return None if text is None else text[:_MAX_JOURNAL_PATH_LENGTH]
