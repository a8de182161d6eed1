"""`forebay export`: a stored payload as a file."""

import os
import tempfile
from argparse import Namespace
from pathlib import Path

from forebay.cli import output
from forebay.cli.commands import open_store_of, resolve_principal
from forebay.cli.errors import OutputFailed
from forebay.errors import StoreUnavailable

__all__ = ["export"]


def export(args: Namespace) -> None:
    """Write a stored payload to a file, and print its path and size.

    With the format as stored and without --where, --fields and --sql, the file has
    the bytes that were stored. Its default name is the handle, in this folder:
      forebay export HANDLE failed.csv --where '{"status": "failed"}'
      forebay export HANDLE users.csv --fields id,user.name
    """
    from forebay.outputs.export import EXTENSIONS, find_hint, guess_format, write_chunks

    if args.file is not None and Path(args.file).is_dir():
        raise OutputFailed(f"{args.file} is a folder; name a file in it")
    with open_store_of(args) as store:
        principal = resolve_principal(store, args, args.handle)
        is_selection = args.where is not None or args.sql is not None or args.fields is not None
        file_format = args.format or guess_format(args.file, is_selection=is_selection)
        options = {"format": file_format, "where": args.where, "fields": args.fields, "sql": args.sql}
        with store.open_export(args.handle, **options, principal=principal) as opened:
            path = Path(args.file or f"{args.handle}.{EXTENSIONS[opened.format]}")
            if not args.force and os.path.lexists(path):
                raise OutputFailed(f"there is a file {path} already; name another one, or give --force")
            try:
                with tempfile.TemporaryDirectory(dir=path.parent, prefix=".forebay-") as folder:
                    part = Path(folder) / "part"
                    with open(part, "xb", opener=_open_private) as file:
                        size_bytes = write_chunks(opened, file)
                    # Unlike a rename, a link fails if another process has made the file meanwhile.
                    (os.replace if args.force else os.link)(part, path)
            except StoreUnavailable:
                raise
            except OSError as error:
                raise OutputFailed(f"{path} cannot be written: {error.strerror}") from None
        report = {"path": str(path.absolute()), "size_bytes": size_bytes, "rows": opened.rows, "format": opened.format}
        store.journal.record("output_exported", principal=opened.principal, handle=args.handle, **report)
        hint = find_hint(store, args.handle, args.where, opened.rows, principal, args.fields)
    output.print_json({**report, **({} if hint is None else {"hint": hint})})


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
