"""One function a command. Its docstring is its help."""

import contextlib
import os
import stat as status
import sys
from argparse import ArgumentTypeError, Namespace
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from forebay.cli import output
from forebay.cli.errors import InputFailed, OutputFailed, exit_code, report_error
from forebay.errors import ForebayError, InvalidArgument, StoreUnavailable

__all__ = [
    "ToolsWithoutCapability",
    "cat",
    "fetch",
    "get",
    "journal",
    "lint_tools",
    "ls",
    "outline",
    "parse_capability_rule",
    "put",
    "rm",
    "search",
    "stat",
    "stats",
    "sweep",
    "token",
]

# The store is imported where it is used: `--help`, `--version` and wrong usage have no need of it.


if TYPE_CHECKING:
    from forebay.store import Store, StoredOutput
    from forebay.store.principals import Principal


_CHUNK_BYTES = 1 << 20


def put(args: Namespace) -> None:
    """Store a file and print its descriptor."""
    with _open_store(args) as store, _open_input(args.file) as source, output.progress_bar(source.size) as progress:
        descriptor = store.put(
            source,
            mime_type=args.mime_type,
            ttl=args.ttl,
            principal=args.principal,
            source_tool="forebay put",
            progress=progress,
        )
    try:
        output.print_json(descriptor.to_dict())
    except OutputFailed as error:
        raise OutputFailed(f"{error}; the payload is stored under {descriptor.output_handle}") from None


def ls(args: Namespace) -> None:
    """List what is stored, the newest first."""
    with _open_store(args) as store:
        stored = sorted(_list_stored(store, args), key=lambda entry: entry.created_at, reverse=True)
    output.print_stored(stored)


def stat(args: Namespace) -> None:
    """Print what is known of a stored payload."""
    with _open_store(args) as store:
        known = store.stat(args.handle, principal=_resolve_principal(store, args, args.handle))
    output.print_json(known.to_dict())


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
    with _open_store(args) as store:
        page = store.fetch(
            args.handle,
            offset=args.offset,
            limit=args.limit,
            format=args.format,
            path=args.path,
            fields=args.fields,
            max_bytes=args.max_bytes,
            principal=_resolve_principal(store, args, args.handle),
        )
    if args.raw:
        output.print_content(page)
    else:
        output.print_page(page)


def cat(args: Namespace) -> None:
    """Write a stored payload to standard output, whole and byte for byte.

    On a terminal its control characters are shown, not obeyed.
    """
    with (
        _open_store(args) as store,
        store.open(args.handle, principal=_resolve_principal(store, args, args.handle)) as file,
    ):
        output.print_bytes(iter(lambda: file.read(_CHUNK_BYTES), b""))


def get(args: Namespace) -> None:
    """Print the value at a JSON Pointer of a stored payload, whole."""
    with _open_store(args) as store:
        value = store.get(args.handle, args.pointer, principal=_resolve_principal(store, args, args.handle))
    output.print_json_text(value)


def search(args: Namespace) -> None:
    """Find a pattern in a stored payload."""
    with _open_store(args) as store:
        found = store.search(
            args.handle,
            args.pattern,
            regex=args.regex,
            ignore_case=args.ignore_case,
            start=args.start,
            limit=args.limit,
            context=args.context,
            max_bytes=args.max_bytes,
            principal=_resolve_principal(store, args, args.handle),
        )
    output.print_matches(found)


def outline(args: Namespace) -> None:
    """Print the shape of a stored JSON payload in one line."""
    with _open_store(args) as store:
        shape = store.outline(args.handle, args.max_bytes, principal=_resolve_principal(store, args, args.handle))
    output.print_outline(args.handle, shape)


def rm(args: Namespace) -> None:
    """Remove stored payloads before they expire, and say of each whether it was."""
    removed: list[str] = []
    failed: list[ForebayError] = []
    with _open_store(args) as store:
        for handle in args.handles:
            try:
                store.delete(handle, principal=_resolve_principal(store, args, handle))
                removed.append(handle)
            except ForebayError as error:
                failed.append(error)
    if removed:
        output.print_json({"removed": removed})
    for failure in failed:
        report_error(failure)
    if failed:
        sys.exit(exit_code(failed[0]))


def sweep(args: Namespace) -> None:
    """Remove what has expired, and what crashed writers left."""
    with _open_store(args) as store:
        report = store.sweep()
    output.print_json({name: getattr(report, name) for name in report.__slots__})


def journal(args: Namespace) -> None:
    """Print what happened in the store: recent events, or a summary of all."""
    whose: dict[str, Any] = {"principal": _principal_names(args), "is_operator": args.principal is None}
    with _open_store(args) as store:
        if args.action == "summary":
            output.print_json(store.journal.summary(**whose))
        else:
            output.print_events(store.journal.recent(args.count, **whose))


def stats(args: Namespace) -> None:
    """Print how large the responses of tools were, and how much is stored.

    Sizes are noted by servers with a journal or a contract; they are known as far
    back as the journal goes.
    """
    from forebay.outputs.monitor import summarize_responses

    with _open_store(args) as store:
        events = store.journal.events(principal=_principal_names(args), is_operator=args.principal is None)
        tools = summarize_responses(events)
        stored = [*_list_stored(store, args)]
    storage = {
        "payloads": len(stored),
        "size_bytes": sum(entry.size_bytes for entry in stored),
        "stored_bytes": sum(entry.stored_bytes for entry in stored),
    }
    output.print_stats(tools, storage)


def _open_store(args: Namespace) -> "Store":
    from forebay.store import open_store, resolve_root

    if args.store is not None and args.run is not put and not resolve_root(args.store).exists():
        raise StoreUnavailable(f"there is no store at {args.store}; put something there, or name another one")
    # A command does one thing. Sweeping is another, and one put is no connection that has stored too much.
    return open_store(args.store, sweep_interval=0, warn_bytes=sys.maxsize)


def _principal_names(args: Namespace) -> tuple[str, ...]:
    from forebay.store.principals import possible_principals

    return () if args.principal is None else possible_principals(args.principal)


def _resolve_principal(store: "Store", args: Namespace, handle: str) -> "Principal":
    """Whoever is asked for, by the name that this handle is stored for."""
    from forebay.store import OPERATOR

    if args.principal is None:
        return OPERATOR
    owner = store.stat(handle, principal=OPERATOR).principal
    return owner if owner in _principal_names(args) else str(args.principal)


def _list_stored(store: "Store", args: Namespace) -> Iterator["StoredOutput"]:
    from forebay.store import OPERATOR

    for principal in _principal_names(args) or (OPERATOR,):
        yield from store.list(principal=principal)


class _InputFile:
    """What is to be stored. That it cannot be read is no fault of the store's."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name
        about = os.fstat(file.fileno())
        self.size = about.st_size if status.S_ISREG(about.st_mode) else None

    def read(self, size: int) -> bytes:
        with _input_errors(self._name):
            return self._file.read(size)


@contextlib.contextmanager
def _open_input(name: str) -> Iterator[_InputFile]:
    if name == "-":
        if sys.stdin is None:
            raise InputFailed("standard input is closed; pipe the payload into it, or name a file")
        yield _InputFile(sys.stdin.buffer, "standard input")
        return
    with _input_errors(name):
        file = open(name, "rb")  # noqa: PTH123, SIM115 - closed below, where its own errors are not meant
    with file:
        yield _InputFile(file, name)


@contextlib.contextmanager
def _input_errors(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputFailed(f"{name} cannot be read: {error.strerror}; nothing was stored") from None


def token(args: Namespace) -> None:
    """Print a new bearer token, as a line for --token-file.

    The name is the principal that whoever shows the token is:
      forebay token alice >> tokens && chmod 600 tokens
    With --hashed the file cannot tell what the token is; it is on standard error
    then, this once.
    """
    from forebay.http.token_lines import make_token

    secret, line = make_token(args.name, is_hashed=args.hashed)
    output.print_bytes([f"{line}\n".encode()])
    if args.hashed and sys.stderr is not None:
        sys.stderr.write(f"{secret}\n")


_MAX_TOOLS_NAMED = 50


class ToolsWithoutCapability(ForebayError):
    """Tools of which nobody has said what they are for."""

    code = "tool_without_capability"


def lint_tools(args: Namespace) -> None:
    """Fail if a tool of a server has no capability.

    Its own is in its _meta, as forebay/capability; others are given as
    --capability. The server is a command behind --, or a saved tools/list.
    """
    # Imported where it is needed: help is shown without.
    from forebay.outputs.capabilities import CapabilityFilter
    from forebay.proxy.probe import list_tools

    if bool(args.command) == bool(args.saved):
        raise InvalidArgument("name one server: -- COMMAND, or --saved FILE with what it lists")
    tools = _read_saved_tools(args.saved) if args.saved else list_tools(args.command, timeout=args.timeout)
    capabilities = CapabilityFilter(capabilities=dict(args.capability))
    capabilities.learn_tools(tools, is_complete=True)
    found = {name: capabilities.find_capability(name) for name in (str(tool.get("name")) for tool in tools)}
    if without := [name for name, capability in found.items() if capability is None]:
        named = ", ".join(name[:64] for name in without[:_MAX_TOOLS_NAMED]) + (
            ", …" if len(without) > _MAX_TOOLS_NAMED else ""
        )
        raise ToolsWithoutCapability(
            f"{len(without)} of {len(found)} tools have no capability: {named}; "
            "put forebay/capability in their _meta, or give --capability PATTERN=NAME"
        )
    output.print_json({"tools": len(found), "capabilities": dict(sorted(Counter(map(str, found.values())).items()))})


def parse_capability_rule(text: str) -> tuple[str, str]:
    """What `--capability` takes."""
    pattern, _, name = text.partition("=")
    if not pattern.strip() or not name.strip():
        raise ArgumentTypeError(f"it is PATTERN=NAME, such as 'crawl*=crawl', not {text!r:.64}")
    return pattern.strip(), name.strip()


def _read_saved_tools(name: str) -> list[dict[str, Any]]:
    """Of a message, its result, or the list alone."""
    import orjson

    try:
        said = orjson.loads(Path(name).read_bytes())
    except OSError as error:
        raise InputFailed(f"{name} cannot be read: {error.strerror}") from None
    except orjson.JSONDecodeError as error:
        raise InputFailed(f"{name} is not JSON: {error}; save what tools/list answers") from None
    for key in ("result", "tools"):
        said = said.get(key, said) if isinstance(said, dict) else said
    if not isinstance(said, list) or not all(isinstance(tool, dict) for tool in said):
        raise InputFailed(f'{name} is no list of tools; save what tools/list answers: {{"tools": [...]}}')
    return said
