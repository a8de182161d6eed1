"""`forebay export`: a stored payload as a file."""

import os
import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from forebay.cli import output
from forebay.cli.commands import open_store_of, resolve_principal
from forebay.cli.errors import OutputFailed
from forebay.errors import StoreUnavailable

if TYPE_CHECKING:
    from forebay.store.export import Export

__all__ = ["export"]


def export(args: Namespace) -> None:
    """Write a stored payload to a file, and print its path and size.

    With the format as stored and without --where, --fields and --sql, the file has
    the bytes that were stored. Its default name is the handle, in this folder; the
    name - is standard output, which then has nothing else:
      forebay export HANDLE failed.csv --where '{"status": "failed"}'
      forebay export HANDLE users.csv --fields id,user.name
      forebay export HANDLE - --format ndjson | wc -l
    """
    from forebay.outputs.export import EXTENSIONS, check_extension, find_hint, guess_format

    is_stdout = args.file == "-"
    if args.file is not None and not is_stdout and Path(args.file).is_dir():
        raise OutputFailed(f"{args.file} is a folder; name a file in it")
    with open_store_of(args) as store:
        principal = resolve_principal(store, args, args.handle)
        is_selection = args.where is not None or args.sql is not None or args.fields is not None
        file_format = args.format or guess_format(args.file, is_selection=is_selection)
        options = {"format": file_format, "where": args.where, "fields": args.fields, "sql": args.sql}
        with store.open_export(args.handle, **options, principal=principal) as opened:
            if is_stdout:
                path, size_bytes = "-", _print(opened)
            else:
                check_extension(args.file, opened, args.format)
                file_path = Path(args.file or f"{args.handle}.{EXTENSIONS[opened.format]}")
                size_bytes = _write(opened, file_path, force=args.force)
                path = str(file_path.absolute())
        report = {"path": path, "size_bytes": size_bytes, "rows": opened.rows, "format": opened.format}
        store.journal.record("output_exported", principal=opened.principal, handle=args.handle, **report)
        hint = find_hint(store, args.handle, args.where, opened.rows, principal, args.fields)
    if not is_stdout:
        output.print_json({**report, **({} if hint is None else {"hint": hint})})
    elif hint is not None and sys.stderr is not None:
        sys.stderr.write(f"{output.replace_controls(hint)}\n")


def _print(opened: "Export") -> int:
    """Write an export to standard output, and return its size."""
    size = 0

    def count_bytes() -> Iterator[bytes]:
        nonlocal size
        for chunk in map(bytes, opened.chunks):
            size += len(chunk)
            yield chunk

    output.print_bytes(count_bytes())
    return size


def _write(opened: "Export", path: Path, *, force: bool) -> int:
    """Write an export to a file, which gets its name when it is complete, and return its size."""
    from forebay.outputs.export import write_chunks

    if not force and os.path.lexists(path):
        raise OutputFailed(f"there is a file {path} already; name another one, or give --force")
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".forebay-") as folder:
            part = Path(folder) / "part"
            with open(part, "xb", opener=_open_private) as file:
                size_bytes = write_chunks(opened, file)
            # Unlike a rename, a link fails if another process has made the file meanwhile.
            (os.replace if force else os.link)(part, path)
    except StoreUnavailable:
        raise
    except FileNotFoundError:
        raise OutputFailed(f"there is no folder {path.parent}; make it, or name another") from None
    except OSError as error:
        raise OutputFailed(f"{path} cannot be written: {error.strerror}") from None
    return size_bytes


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
