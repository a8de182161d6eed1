"""`forebay view`: a pager for large JSON, NDJSON, CSV and text on the terminal."""

import contextlib
import os
import sys
import threading
from argparse import Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING

from forebay.cli import output
from forebay.cli.commands import open_input, open_store_of, reject_mime_type, resolve_principal
from forebay.errors import InvalidArgument, make_missing_extra

if TYPE_CHECKING:
    from forebay.cli.view.source import Source

__all__ = ["view"]

_TERMINAL = "/dev/tty"
_TERMINAL_FLAGS = os.O_RDWR | getattr(os, "O_NOCTTY", 0)

_ADVICE = "in pipes and scripts use `forebay fetch` or `forebay cat` on a handle, and `forebay query` on a file"


def view(args: Namespace) -> None:
    """Page through a stored payload or a file on the terminal.

    Items are a table, and text is lines. Enter opens an item, / searches,
    f selects items, : runs SQL, and ? lists all keys:
      forebay view orders.json
      curl -s https://example.com/orders | forebay view -
    """
    if sys.stdout is None or not sys.stdout.isatty():
        raise InvalidArgument(f"standard output is no terminal to draw on; {_ADVICE}")
    try:
        import textual as _  # noqa: F401 - whether it is there
    except ImportError as error:
        raise make_missing_extra("forebay view", "view", error) from None
    with _open_source(args) as source:
        _run(source, args)
    _end_threads()


def _run(source: "Source", args: Namespace) -> None:
    from forebay.cli.view.app import ViewApp

    app = ViewApp(source, path=args.path, where=args.where)
    with _take_terminal():
        app.run()
    if app.return_code:
        # Textual has printed the traceback.
        sys.exit(app.return_code)


@contextlib.contextmanager
def _open_source(args: Namespace) -> Iterator["Source"]:
    from forebay.cli.view.source import FileSource, Stored, StoredSource
    from forebay.store.handles import extract_handle, is_handle

    handle = str(extract_handle(args.source))
    options = [] if args.store is None or args.store == os.environ.get("FOREBAY_STORE") else ["--store", args.store]
    if is_handle(handle):
        reject_mime_type(args, handle)
        with open_store_of(args) as store:
            stored = Stored(store, handle, resolve_principal(store, args, handle))
            with contextlib.closing(StoredSource(stored, options=options)) as stored_source:
                yield stored_source
    elif args.source == "-":
        _check_keyboard()
        with open_input("-") as file, output.show_progress_bar(None) as progress:
            piped_source = StoredSource.put(file, args.mime_type, progress)
        with contextlib.closing(piped_source):
            yield piped_source
    else:
        with contextlib.closing(FileSource(args.source, args.mime_type)) as file_source:
            # Importing Textual takes as long as indexing some hundred megabytes.
            file_source.start_loading()
            yield file_source


def _check_keyboard() -> None:
    """Raise an error if there is no terminal to read keys from."""
    try:
        os.close(os.open(_TERMINAL, _TERMINAL_FLAGS))
    except OSError:
        raise InvalidArgument(f"there is no terminal to read keys from; {_ADVICE}") from None


@contextlib.contextmanager
def _take_terminal() -> Iterator[None]:
    """Make the terminal both standard input and standard error, which Textual reads and draws on."""
    with contextlib.ExitStack() as stack:
        if sys.stdin is None or not os.isatty(0):
            _check_keyboard()
            terminal = os.open(_TERMINAL, _TERMINAL_FLAGS)
            stack.callback(os.close, terminal)
            stack.enter_context(_replace(0, terminal))
        if not os.isatty(2):
            stack.enter_context(_replace(2, 1))
        stream = sys.__stderr__
        if stream is not None and "utf" not in stream.encoding.lower():
            from forebay.cli.view.ascii import replace_missing

            replace_missing(stream)
        yield


@contextlib.contextmanager
def _replace(fd: int, other: int) -> Iterator[None]:
    """Let a file descriptor be another one for a while."""
    before = os.dup(fd)
    os.dup2(other, fd)
    try:
        yield
    finally:
        os.dup2(before, fd)
        os.close(before)


def _end_threads() -> None:
    """End the process at once if a thread still works on something that nobody waits for."""
    if any(thread.name == "forebay-call" for thread in threading.enumerate()):
        # Such a thread is in `_core`, which cannot be interrupted, and the interpreter must not end below it.
        sys.stdout.flush()
        os._exit(0)
