"""One function a command. Its docstring is its help."""

# The store is imported where it is used: `--help`, `--version` and wrong usage have no need of it.

import contextlib
import os
import stat as status
import sys
from argparse import Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

from forebay.cli import show
from forebay.cli.failures import InputFailed, OutputFailed, complain, exit_code
from forebay.errors import ForebayError, StoreUnavailable

if TYPE_CHECKING:
    from forebay.store import Store, Stored
    from forebay.store.catalog import Principal

__all__ = ["cat", "fetch", "get", "journal", "ls", "outline", "put", "rm", "search", "stat", "stats", "sweep"]

_PIECE = 1 << 20


def put(args: Namespace) -> None:
    """Store a file and print its descriptor."""
    with _opened(args) as store, _source(args.file) as source, show.progress(source.size) as progress:
        descriptor = store.put(
            source,
            mime_type=args.mime_type,
            ttl=args.ttl,
            principal=args.principal,
            source_tool="forebay put",
            progress=progress,
        )
    try:
        show.answer(descriptor.to_dict())
    except OutputFailed as error:
        raise OutputFailed(f"{error}; the payload is stored under {descriptor.output_handle}") from None


def ls(args: Namespace) -> None:
    """List what is stored, the newest first."""
    with _opened(args) as store:
        stored = sorted(_listed(store, args), key=lambda entry: entry.created_at, reverse=True)
    show.stored(stored)


def stat(args: Namespace) -> None:
    """Print what is known of a stored payload."""
    with _opened(args) as store:
        known = store.stat(args.handle, principal=_reader(store, args, args.handle))
    show.answer(known.to_dict())


def fetch(args: Namespace) -> None:
    """Print a page of a stored payload.

    What --offset and --limit count depends on the format:
      items  items of the main array, of the one at --path, or of NDJSON
      lines  lines of a text
      text   bytes of a text, which is never cut inside a character
      bytes  bytes, shown as base64
      auto   items where they are most of it, else text, else bytes
    Without --limit: 200 items or lines, or as many bytes as --max-bytes holds.
    """
    with _opened(args) as store:
        page = store.fetch(
            args.handle,
            offset=args.offset,
            limit=args.limit,
            format=args.format,
            path=args.path,
            fields=args.fields,
            max_bytes=args.max_bytes,
            principal=_reader(store, args, args.handle),
        )
    if args.raw:
        show.content(page)
    else:
        show.page(page)


def cat(args: Namespace) -> None:
    """Write a stored payload to standard output, whole and byte for byte.

    On a terminal its control characters are shown, not obeyed.
    """
    with _opened(args) as store, store.open(args.handle, principal=_reader(store, args, args.handle)) as file:
        show.raw(iter(lambda: file.read(_PIECE), b""))


def get(args: Namespace) -> None:
    """Print the value at a JSON Pointer of a stored payload, whole."""
    with _opened(args) as store:
        value = store.get(args.handle, args.pointer, principal=_reader(store, args, args.handle))
    show.json_text(value)


def search(args: Namespace) -> None:
    """Find a pattern in a stored payload."""
    with _opened(args) as store:
        found = store.search(
            args.handle,
            args.pattern,
            regex=args.regex,
            ignore_case=args.ignore_case,
            start=args.start,
            limit=args.limit,
            context=args.context,
            max_bytes=args.max_bytes,
            principal=_reader(store, args, args.handle),
        )
    show.matches(found)


def outline(args: Namespace) -> None:
    """Print the shape of a stored JSON payload in one line."""
    with _opened(args) as store:
        shape = store.outline(args.handle, args.max_bytes, principal=_reader(store, args, args.handle))
    show.outline(args.handle, shape)


def rm(args: Namespace) -> None:
    """Remove stored payloads before they expire, and say of each whether it was."""
    removed: list[str] = []
    failed: list[ForebayError] = []
    with _opened(args) as store:
        for handle in args.handles:
            try:
                store.delete(handle, principal=_reader(store, args, handle))
                removed.append(handle)
            except ForebayError as error:
                failed.append(error)
    if removed:
        show.answer({"removed": removed})
    for failure in failed:
        complain(failure)
    if failed:
        sys.exit(exit_code(failed[0]))


def sweep(args: Namespace) -> None:
    """Remove what has expired, and what crashed writers left."""
    with _opened(args) as store:
        report = store.sweep()
    show.answer({name: getattr(report, name) for name in report.__slots__})


def journal(args: Namespace) -> None:
    """Print what happened in the store: recent events, or a summary of all."""
    whose: dict[str, Any] = {"principal": _names(args), "is_operator": args.principal is None}
    with _opened(args) as store:
        if args.action == "summary":
            show.answer(store.journal.summary(**whose))
        else:
            show.events(store.journal.recent(args.count, **whose))


def stats(args: Namespace) -> None:
    """Print how large the responses of tools were, and how much is stored.

    Sizes are noted by servers with a journal or a contract; they are known as far
    back as the journal goes.
    """
    from forebay.outputs.monitor import response_stats

    with _opened(args) as store:
        events = store.journal.events(principal=_names(args), is_operator=args.principal is None)
        tools = response_stats(events)
        stored = [*_listed(store, args)]
    storage = {
        "payloads": len(stored),
        "size_bytes": sum(entry.size_bytes for entry in stored),
        "stored_bytes": sum(entry.stored_bytes for entry in stored),
    }
    show.stats(tools, storage)


def _opened(args: Namespace) -> "Store":
    from forebay.store import open_store, root_of

    if args.store is not None and args.run is not put and not root_of(args.store).exists():
        raise StoreUnavailable(f"there is no store at {args.store}; put something there, or name another one")
    # A command does one thing. Sweeping is another, and one put is no connection that has stored too much.
    return open_store(args.store, sweep_interval=0, warn_bytes=sys.maxsize)


def _names(args: Namespace) -> tuple[str, ...]:
    from forebay.store.principals import called

    return () if args.principal is None else called(args.principal)


def _reader(store: "Store", args: Namespace, handle: str) -> "Principal":
    """Whoever is asked for, by the name that this handle is stored for."""
    from forebay.store import OPERATOR

    if args.principal is None:
        return OPERATOR
    owner = store.stat(handle, principal=OPERATOR).principal
    return owner if owner in _names(args) else str(args.principal)


def _listed(store: "Store", args: Namespace) -> Iterator["Stored"]:
    from forebay.store import OPERATOR

    for principal in _names(args) or (OPERATOR,):
        yield from store.list(principal=principal)


class _Source:
    """What is to be stored. That it cannot be read is no fault of the store's."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name
        about = os.fstat(file.fileno())
        self.size = about.st_size if status.S_ISREG(about.st_mode) else None

    def read(self, size: int) -> bytes:
        with _readable(self._name):
            return self._file.read(size)


@contextlib.contextmanager
def _source(name: str) -> Iterator[_Source]:
    if name == "-":
        if sys.stdin is None:
            raise InputFailed("standard input is closed; pipe the payload into it, or name a file")
        yield _Source(sys.stdin.buffer, "standard input")
        return
    with _readable(name):
        file = open(name, "rb")  # noqa: PTH123, SIM115 - closed below, where its own errors are not meant
    with file:
        yield _Source(file, name)


@contextlib.contextmanager
def _readable(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputFailed(f"{name} cannot be read: {error.strerror}; nothing was stored") from None
