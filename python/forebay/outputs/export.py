"""Write stored outputs to files below the allowed folders, for agents that can read files."""

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any, BinaryIO

from forebay.arguments import check_text, short_repr
from forebay.errors import FileRefDenied, FileRefNotFound, InvalidArgument, StoreUnavailable
from forebay.outputs.references.files import FileRoots
from forebay.store import Store
from forebay.store.export import FORMATS, Export
from forebay.store.handles import Principal
from forebay.store.pages import PageRequest
from forebay.system import files
from forebay.system.paths import NativePath

__all__ = [
    "EXTENSIONS",
    "ExportRoots",
    "check_extension",
    "export_output",
    "find_hint",
    "guess_format",
    "write_chunks",
]

EXTENSIONS = {"json": "json", "ndjson": "ndjson", "csv": "csv", "parquet": "parquet", "text": "txt", "binary": "bin"}

_FORMATS = {".json": "json", ".ndjson": "ndjson", ".jsonl": "ndjson", ".csv": "csv", ".parquet": "parquet"}
"""Formats by the extension of a file."""

_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | files.SAFE_OPEN_FLAGS
_MAX_NUMBER = 1000
"""Upper bound (exclusive) of the number that makes a default file name unique: `oh_….json`, `oh_…-2.json`."""


class ExportRoots(FileRoots):
    """The folders below which files may be created; the store's folder is always refused."""

    _option = "export_roots"
    _use = "written"

    @contextlib.contextmanager
    def create(self, path: str, *, is_numbered: bool = False) -> Iterator["NewFile"]:
        """Create a file for a path like those of `open`. It gets this name when it is published.

        With `is_numbered` a number is added to the name if a file has it already.
        """
        anchor, *folders, name = self._split_path(path)
        if path.endswith(("/", os.sep)):
            raise FileRefDenied(f"{short_repr(path)} is a folder; name a file {self._describe_roots()}")
        self._check_not_hidden(NativePath(anchor, *folders, name), path)
        with contextlib.ExitStack() as stack:
            try:
                folder = self._open_folder(anchor, folders, path, stack)
                temporary_name = f".forebay-{os.urandom(8).hex()}.part"
                fd = files.open_file(temporary_name, _CREATE_FLAGS, folder)
            except FileRefDenied:
                raise
            except (FileNotFoundError, NotADirectoryError):
                raise FileRefNotFound(f"there is no folder for {short_repr(path)}; make it, or name another") from None
            except OSError as error:
                raise FileRefDenied(f"{short_repr(path)} cannot be created: {error.strerror}") from None
            stack.callback(_remove_quietly, temporary_name, folder)
            names = _number(name) if is_numbered else iter((name,))
            new_file = NewFile(
                stack.enter_context(os.fdopen(fd, "wb")), temporary_name, names, folder, NativePath(anchor, *folders)
            )
            new_file.check_free()
            yield new_file

    def _check_not_hidden(self, resolved_path: PurePath, path: str) -> None:
        """Refuse hidden files and folders: other programs read settings from them, and run what these say."""
        for _, root in self._roots:
            if resolved_path.is_relative_to(root) and not any(
                part.startswith(".") for part in resolved_path.relative_to(root).parts
            ):
                return
        raise FileRefDenied(f"{short_repr(path)} is hidden or in a hidden folder; name a path without a leading dot")


class NewFile:
    """A file under a temporary name, so that nobody reads it before it is complete. It never replaces a file."""

    def __init__(
        self, file: BinaryIO, temporary_name: str, names: Iterator[str], folder: int, folder_path: PurePath
    ) -> None:
        self.file = file
        self._temporary_name = temporary_name
        self._names = names
        self._name = next(names)
        self._folder = folder
        self._folder_path = folder_path

    def check_free(self) -> None:
        """Choose a name that no file has. Raises `FileRefDenied` if there is none."""
        try:
            while True:
                files.stat_file(self._name, self._folder)
                self._choose_next()
        except FileRefDenied:
            raise
        except FileNotFoundError:
            return
        except OSError as error:
            raise FileRefDenied(f"{short_repr(self._name)} cannot be created: {error.strerror}") from None

    def publish(self) -> str:
        """Give the file its name, and return its path."""
        self.file.close()
        while True:
            try:
                files.rename_new(self._temporary_name, self._name, self._folder)
            except FileExistsError:
                self._choose_next()
            except OSError as error:
                raise FileRefDenied(f"{short_repr(self._name)} cannot be created: {error.strerror}") from None
            else:
                return str(self._folder_path / self._name)

    def _choose_next(self) -> None:
        taken = self._name
        self._name = next(self._names, "")
        if not self._name:
            raise FileRefDenied(f"there is a file {short_repr(taken)} already; name another path")


def export_output(
    store: Store,
    roots: ExportRoots,
    handle: str,
    *,
    path: str | None = None,
    format: str | None = None,  # noqa: A002
    where: object = None,
    fields: Sequence[str] | None = None,
    sql: str | None = None,
    principal: Principal = None,
) -> dict[str, Any]:
    """Write a stored output to a new file, and return its path, size, number of rows and format.

    Without a path, the file is named after the handle, in the first folder.
    """
    if path is not None:
        check_text("path", path)
        if not path:
            raise InvalidArgument("path is empty; name a file, or leave it out")
    is_selection = where is not None or fields is not None or sql is not None
    options: dict[str, Any] = {"where": where, "fields": fields, "sql": sql}
    file_format = format or guess_format(path, is_selection=is_selection)
    with store.open_export(handle, format=file_format, **options, principal=principal) as export:
        check_extension(path, export, format)
        name = f"{handle}.{EXTENSIONS[export.format]}" if path is None else path
        with roots.create(name, is_numbered=path is None) as new_file:
            size_bytes = write_chunks(export, new_file.file)
            written_path = new_file.publish()
        report = {"path": written_path, "size_bytes": size_bytes, "rows": export.rows, "format": export.format}
    store.journal.record("output_exported", principal=export.principal, handle=handle, **report)
    hint = find_hint(store, handle, where, export.rows, principal, fields)
    return {**report, **({} if hint is None else {"hint": hint})}


def guess_format(path: str | None, *, is_selection: bool) -> str | None:
    """Return the format that the extension of a path names; `None` for the default format of the output or selection.

    For a whole output `.json` gives `None`, too, so that the output is copied as it is stored.
    """
    file_format = _FORMATS.get(PurePath(path or "").suffix.lower())
    return None if file_format == "json" and not is_selection else file_format


def check_extension(path: str | None, export: Export, format: str | None) -> None:  # noqa: A002
    """Raise `InvalidArgument` if a file name has the extension of another format, or of none, such as `rows.xlsx`.

    With a `format` any name is valid. A payload that has none of the formats, such as an image, is copied, and its file
    may have any name, too.
    """
    if format is not None or export.format not in FORMATS:
        return
    extension = PurePath(path or "").suffix
    named_format = _FORMATS.get(extension.lower())
    if named_format not in (None, export.format):
        raise InvalidArgument(
            f"this output is {export.format}; end the name in .{EXTENSIONS[export.format]}, or give the format "
            f"{named_format}"
        )
    # A name such as `run 1.5` has no extension.
    has_extension = re.search("[a-z]", extension, re.IGNORECASE) is not None
    if has_extension and named_format is None:
        raise InvalidArgument(
            f"no format has the extension {short_repr(extension)}; end the name in {', '.join(_FORMATS)}, or give the "
            f"format: {', '.join(FORMATS)}"
        )


def find_hint(
    store: Store,
    handle: str,
    where: Any,
    rows: int | None,
    principal: Principal,
    fields: Sequence[str] | None = None,
) -> str | None:
    """Return what may be wrong with the conditions of an export without rows, or with its fields."""
    if rows and fields is not None:
        return store.fetch_page(handle, PageRequest(fields=fields, limit=1, format="items"), principal=principal).hint
    if where is None or rows != 0:
        return None
    return store.fetch_page(handle, PageRequest(where=where, limit=1), principal=principal).hint


def write_chunks(export: Export, file: BinaryIO) -> int:
    """Write an export to a file, and return its size."""
    try:
        size = sum(file.write(chunk) for chunk in export.chunks)
        file.flush()
        return size
    except OSError as error:
        raise StoreUnavailable(f"the file cannot be written: {error.strerror}; free some space") from None


def _number(name: str) -> Iterator[str]:
    stem, dot, extension = name.rpartition(".")
    yield name
    for number in range(2, _MAX_NUMBER):
        yield f"{stem}-{number}{dot}{extension}"


def _remove_quietly(name: str, folder: int) -> None:
    with contextlib.suppress(OSError):
        files.remove_file(name, folder)
