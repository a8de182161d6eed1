"""Putting what references name in their place."""

import base64
import contextlib
import dataclasses
import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import orjson

from forebay._core import Survey, index_items
from forebay.arguments import check_integer, shown
from forebay.errors import ForebayError, InvalidArgument, InvalidFormat, InvalidJSON, PathNotFound
from forebay.outputs.references.files import Roots
from forebay.outputs.references.parts import Source, bytes_of
from forebay.outputs.references.reference import FILE, Bytes, Reference, reference_in, refers, unescaped
from forebay.outputs.references.resolved import Resolved
from forebay.outputs.references.schemas import takes_text
from forebay.store import Store
from forebay.store.handles import handle_in, is_handle
from forebay.store.reader import View

__all__ = ["MOST_BYTES", "References"]

MOST_BYTES = 64 << 20
"""What all references of a call may bring in together."""

_DEEPEST = 200
_LONGEST = 256
"""How much of a path is journalled: it may be anything, of any size."""
_MARGIN = 64
"""White space that may be before a document."""
_MARK = b"\xef\xbb\xbf"

_Path: TypeAlias = tuple[str | int, ...]


class References:
    """Resolves references to files below `roots` and to what is stored."""

    def __init__(
        self,
        store: Store,
        roots: Iterable[str | os.PathLike[str]] | None = None,
        most_bytes: int = MOST_BYTES,
        secret: Iterable[str | os.PathLike[str]] = (),
    ) -> None:
        check_integer("file_ref_max_bytes", most_bytes, 1)
        self._store = store
        self._most_bytes = most_bytes
        self._roots = Roots(_usual_roots() if roots is None else roots, store.folder, secret)

    def resolve(
        self, arguments: Any, schema: object = None, principal: str | None = None, *, tool: str | None = None
    ) -> Any:
        """The arguments with `Resolved` in place of each reference, and with nothing escaped any more.

        What refers to nothing is returned itself. Whatever is no object, list or scalar of JSON stays as it is.

        Raises a `ForebayError` that says what to do: then the tool must not be called.
        """
        if not refers(arguments):
            return arguments
        return _Resolution(self, schema, principal, tool, self._most_bytes).of(arguments, ())

    @contextlib.contextmanager
    def source(self, reference: Reference, principal: str | None, most: int) -> Iterator[Source]:
        """What a reference names, to be read; a JSON string that a path leads to is its text."""
        with contextlib.ExitStack() as opened:
            if reference.kind == FILE:
                yield opened.enter_context(self._roots.open(reference.name))
                return
            part = self._part(reference, principal, opened)
            is_string = part.nature == "json" and bytes(part.read(0, min(_MARGIN, part.size))).lstrip()[:1] == b'"'
            if not is_string or reference.path is None:
                yield part
                return
            # A character of one byte may be written in six, and in quotes.
            fits = part.size <= 6 * most + 2
            yield _Text(bytes_of(part, Bytes(), part.size if fits else most))

    def _part(self, reference: Reference, principal: str | None, opened: contextlib.ExitStack) -> View:
        # What is no handle at all is no more there than one that is unknown.
        handle = str(handle_in(reference.name))
        try:
            return opened.enter_context(self._store.part(handle, reference.path, principal=principal))
        except PathNotFound:
            # Who refers to it cannot ask for an outline.
            shape = self._store.outline(handle, principal=principal)
            raise PathNotFound(f"nothing at path {shown(reference.path)}; there is {shape}") from None

    def record(self, event: str, reference: Reference, **details: object) -> None:
        """Tells the journal of a reference, and nothing of what it brought in."""
        if reference.kind == FILE:
            named: dict[str, object] = {"path": _bounded(reference.name)}
        else:
            handle = handle_in(reference.name)
            named = {"handle": handle if is_handle(handle) else None, "path": _bounded(reference.path)}
        self._store.journal.record(event, **named, **details)  # type: ignore[arg-type]


def _usual_roots() -> list[str]:
    """The working and the temporary directory. Clients start servers at the very top, which is no place of work."""
    here = Path.cwd()
    return [*([] if here == here.parent else [str(here)]), tempfile.gettempdir()]


@dataclasses.dataclass(slots=True)
class _Resolution:
    """Of the arguments of one call."""

    references: References
    schema: object
    principal: str | None
    tool: str | None
    left: int

    def of(self, value: Any, path: _Path) -> Any:
        if len(path) > _DEEPEST:
            raise InvalidArgument(f"references are looked for in {_DEEPEST} levels, and these arguments have more")
        if isinstance(value, list):
            return [self.of(inner, (*path, number)) for number, inner in enumerate(value)]
        if not isinstance(value, dict):
            return value
        reference = reference_in(value)
        if reference is not None:
            return self._recorded(reference, path)
        plain = {unescaped(key): inner for key, inner in value.items()}
        return {key: self.of(inner, (*path, key)) for key, inner in plain.items()}

    def _recorded(self, reference: Reference, path: _Path) -> Resolved:
        about = {"principal": self.principal, "tool": self.tool}
        try:
            resolved = self._resolved(reference, path)
        except ForebayError as error:
            self.references.record("file_ref_denied", reference, code=error.code, **about)
            raise
        self.references.record("file_ref_resolved", reference, size_bytes=len(resolved.data), **about)
        return resolved

    def _resolved(self, reference: Reference, path: _Path) -> Resolved:
        with self.references.source(reference, self.principal, self.left) as source:
            data = bytes_of(source, reference.part, self.left)
        self.left -= len(data)
        if reference.is_base64:
            return Resolved(base64.b64encode(data))
        # All of the arguments are an object, whatever the tool says of them.
        if path and takes_text(self.schema, path):
            return Resolved(_checked_text(data, reference))
        data = _checked_json(data.removeprefix(_MARK), reference)
        if not path and not data.lstrip().startswith(b"{"):
            raise InvalidArgument(f"the arguments of a tool are an object, and what is in {_shown(reference)} is none")
        return Resolved(data, is_json=True)


class _Text:
    """A JSON string as the text that it is."""

    def __init__(self, written: bytes) -> None:
        try:
            self._data = str(orjson.loads(written)).encode()
        except orjson.JSONDecodeError:
            raise InvalidJSON("the text at this path has half of a surrogate pair; refer to what it is in") from None
        self.size = len(self._data)

    def read(self, start: int, end: int) -> bytes:
        return self._data[start:end]


def _checked_text(data: bytes, reference: Reference) -> bytes:
    survey = Survey(is_json=False)
    survey.feed(data)
    if survey.finish().nature == "binary":
        raise InvalidFormat(f'{_shown(reference)} is not text; add "encoding": "base64" to have its bytes')
    return data


def _checked_json(data: bytes, reference: Reference) -> bytes:
    try:
        kind = index_items(data).kind
    except InvalidJSON as error:
        what = str(error).partition(";")[0]
        raise InvalidJSON(
            f"this argument takes JSON, and what {_shown(reference)} gives is {what}; refer to a JSON document",
            error.index,
        ) from None
    if kind == "ndjson":
        raise InvalidJSON(
            f"this argument takes one JSON document, and {_shown(reference)} has one on each line; refer to one line"
        )
    return data


def _shown(reference: Reference) -> str:
    return shown(reference.name)


def _bounded(text: str | None) -> str | None:
    return None if text is None else text[:_LONGEST]
