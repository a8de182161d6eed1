"""Commands on a store, on tokens and on lists of tools. Each function's docstring is its `--help`."""

import contextlib
import os
import sys
from argparse import ArgumentTypeError, Namespace
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from stat import S_ISREG
from typing import TYPE_CHECKING, Any, BinaryIO

from forebay.cli import output
from forebay.cli.errors import InputFailed, OutputFailed, get_exit_code, report_error
from forebay.errors import ForebayError, InvalidArgument, StoreUnavailable

__all__ = [
    "cat",
    "fetch",
    "get",
    "journal",
    "lint_tools",
    "ls",
    "open_input",
    "open_store_at",
    "open_store_of",
    "outline",
    "put",
    "reject_mime_type",
    "resolve_principal",
    "rm",
    "search",
    "stat",
    "stats",
    "sweep",
    "token",
]

# The store is imported inside functions, so that `--help` and `--version` start quickly.


if TYPE_CHECKING:
    from forebay.store import Store, StoredOutput
    from forebay.store.handles import Principal


_CHUNK_BYTES = 1 << 20
_MAX_NAMES_IN_ERROR = 50


class ToolsWithoutCapability(ForebayError):
    """Some tools have no capability."""

    code = "tool_without_capability"


def put(args: Namespace) -> None:
    """Store a file and print its descriptor."""
    from forebay.store.payload import guess_row_mime_type

    with (
        open_store_of(args) as store,
        open_input(args.file) as source,
        output.show_progress_bar(source.size) as progress,
    ):
        descriptor = store.put(
            source,
            mime_type=args.mime_type or guess_row_mime_type(args.file),
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
    """List stored payloads, newest first.

    --tool, --larger and --since select some; what is listed fulfils all of them.
    """
    with open_store_of(args) as store:
        selected = filter(_make_filter(args), _list_stored(store, args))
        stored = sorted(selected, key=lambda entry: entry.created_at, reverse=True)
    output.print_stored(stored, is_json=args.json)


def stat(args: Namespace) -> None:
    """Print the metadata of a stored payload."""
    with open_store_of(args) as store:
        entry = store.stat(args.handle, principal=resolve_principal(store, args, args.handle))
    output.print_metadata(entry)


def fetch(args: Namespace) -> None:
    """Print a page of a stored payload.

    --offset and --limit count in units of the format:
      items  items of the main array or map, of that at --path, of NDJSON; CSV rows
      lines  lines of text
      text   bytes of text, never cut inside a character
      bytes  bytes, shown as base64
      auto   items if they are most of the payload, else text, else bytes
    The default limit is 200 items or lines, or as many bytes as --max-bytes holds.

    --where selects items: '{"status": "failed", "total": {">": 200}}', with the
    operators = != < <= > >= in contains matches exists. --offset and --limit then
    count matches.
    """
    from forebay.store.pages import PageRequest

    with open_store_of(args) as store:
        request = PageRequest(
            offset=args.offset,
            limit=args.limit,
            format=args.format,
            path=args.path,
            fields=args.fields,
            where=args.where,
            max_bytes=args.max_bytes,
        )
        page = store.fetch_page(args.handle, request, principal=resolve_principal(store, args, args.handle))
    if args.raw:
        output.print_content(page)
    else:
        output.print_page(page, args.fields, is_json=args.json)


def cat(args: Namespace) -> None:
    """Write a stored payload to standard output, byte for byte.

    On a terminal, control characters are replaced by visible ones.
    """
    with (
        open_store_of(args) as store,
        store.open(args.handle, principal=resolve_principal(store, args, args.handle)) as file,
    ):
        output.print_bytes(iter(lambda: file.read(_CHUNK_BYTES), b""))


def get(args: Namespace) -> None:
    """Print the whole value at a JSON Pointer of a stored payload."""
    with open_store_of(args) as store:
        value = store.get(args.handle, args.pointer, principal=resolve_principal(store, args, args.handle))
    output.print_json_text(value)


def search(args: Namespace) -> None:
    """Find a pattern in a stored payload."""
    from forebay.store.search import SearchRequest

    with open_store_of(args) as store:
        request = SearchRequest(
            pattern=args.pattern,
            regex=args.regex,
            ignore_case=args.ignore_case,
            mode=args.mode,
            offset=args.offset,
            limit=args.limit,
            context=args.context,
            fields=args.fields,
            count_only=args.count_only,
            max_bytes=args.max_bytes,
        )
        page = store.search_page(args.handle, request, principal=resolve_principal(store, args, args.handle))
    output.print_matches(page, is_json=args.json)


def outline(args: Namespace) -> None:
    """Print the structure of a stored JSON payload in one line."""
    with open_store_of(args) as store:
        text = store.outline(args.handle, args.max_bytes, principal=resolve_principal(store, args, args.handle))
    output.print_outline(args.handle, text, is_json=args.json)


def rm(args: Namespace) -> None:
    """Remove stored payloads before they expire, and report each."""
    removed: list[str] = []
    errors: list[ForebayError] = []
    with open_store_of(args) as store:
        for handle in args.handles:
            try:
                store.delete(handle, principal=resolve_principal(store, args, handle))
                removed.append(handle)
            except ForebayError as error:
                errors.append(error)
    if removed:
        output.print_json({"removed": removed})
    for failure in errors:
        report_error(failure)
    if errors:
        sys.exit(get_exit_code(errors[0]))


def sweep(args: Namespace) -> None:
    """Remove expired payloads and leftovers of crashed writers."""
    with open_store_of(args) as store:
        report = store.sweep()
    output.print_json({name: getattr(report, name) for name in report.__slots__})


def journal(args: Namespace) -> None:
    """Print the journal of the store: recent events, or a summary of all."""
    reader: dict[str, Any] = {"principal": _list_principal_names(args), "is_operator": args.principal is None}
    with open_store_of(args) as store:
        if args.action == "summary":
            output.print_summary(store.journal.summary(**reader), is_json=args.json)
        else:
            output.print_events(store.journal.recent(args.count, **reader), is_json=args.json)


def stats(args: Namespace) -> None:
    """Print how often tools were called, how much was saved, and what is stored.

    Every call through forebay is counted, by tool and by day (UTC). What is saved
    is the size of stored results, less the size of the handles and pages that were
    sent instead; a token is estimated as 4 bytes. Servers with --journal or
    --contract also record the size of each response.
    """
    from forebay.outputs.monitor import summarize_responses
    from forebay.store.call_counts import summarize_calls

    with open_store_of(args) as store:
        events = store.journal.events(principal=_list_principal_names(args), is_operator=args.principal is None)
        tools = summarize_responses(events)
        usage = summarize_calls(store.call_counts.read(_list_principal_names(args) or None))
        stored = [*_list_stored(store, args)]
    storage = {
        "payloads": len(stored),
        "size_bytes": sum(entry.size_bytes for entry in stored),
        "stored_bytes": sum(entry.stored_bytes for entry in stored),
    }
    output.print_stats(usage, tools, storage, is_json=args.json)


def token(args: Namespace) -> None:
    """Print a new bearer token as a line for --token-file.

    NAME is the principal of callers who send the token:
      forebay token alice >> tokens && chmod 600 tokens
    With --hashed the line holds only a hash of the token, and the token itself is
    printed once to standard error.
    """
    from forebay.http.tokens import make_token

    secret, line = make_token(args.name, is_hashed=args.hashed)
    output.print_bytes([f"{line}\n".encode()])
    if args.hashed and sys.stderr is not None:
        sys.stderr.write(f"{secret}\n")


def lint_tools(args: Namespace) -> None:
    """Fail if a tool of a server has no capability.

    The capability is set by --capability, or by forebay/capability in the tool's
    _meta. The server is a command after --, or a saved tools/list response.
    """
    from forebay.outputs.capabilities import CapabilityFilter
    from forebay.proxy.probe import list_tools

    if bool(args.command) == bool(args.saved):
        raise InvalidArgument("name one server: -- COMMAND, or --saved FILE with its tools/list response")
    tools = _read_saved_tools(args.saved) if args.saved else list_tools(args.command, timeout=args.timeout)
    capabilities = CapabilityFilter(capabilities=dict(args.capability))
    capabilities.learn_tools(tools, is_complete=True)
    by_tool = {name: capabilities.find_capability(name) for name in (str(tool.get("name")) for tool in tools)}
    if unassigned := [name for name, capability in by_tool.items() if capability is None]:
        names = ", ".join(name[:64] for name in unassigned[:_MAX_NAMES_IN_ERROR])
        names += ", …" if len(unassigned) > _MAX_NAMES_IN_ERROR else ""
        raise ToolsWithoutCapability(
            f"{len(unassigned)} of {len(by_tool)} tools have no capability of their own, and count as core: {names}; "
            "put forebay/capability in their _meta, or give --capability PATTERN=NAME"
        )
    counts = Counter(map(str, by_tool.values()))
    output.print_json({"tools": len(by_tool), "capabilities": dict(sorted(counts.items()))})


def open_store_of(args: Namespace) -> "Store":
    return open_store_at(args.store, creates=args.store is None or args.run is put)


def open_store_at(url: str | None, *, creates: bool, **options: Any) -> "Store":
    """Open a store for one command. Without `creates`, it is an error if there is none."""
    from forebay.store import open_store, resolve_address

    address = resolve_address(url)
    if not creates and isinstance(address, Path) and not address.exists():
        raise StoreUnavailable(f"there is no store at {url}; put something there, or name another one")
    # It neither sweeps by itself nor warns about large payloads.
    return open_store(url, sweep_interval=0, warn_bytes=sys.maxsize, **options)


def _list_principal_names(args: Namespace) -> tuple[str, ...]:
    from forebay.store.handles import list_possible_principals

    return () if args.principal is None else list_possible_principals(args.principal)


def resolve_principal(store: "Store", args: Namespace, handle: str) -> "Principal":
    """Return the principal that a command acts as for a handle.

    Without `--principal` this is the operator. Otherwise it is the owner of the handle if `--principal` may name the
    owner, else the value of `--principal`.
    """
    from forebay.store import OPERATOR

    if args.principal is None:
        return OPERATOR
    owner = store.stat(handle, principal=OPERATOR).principal
    return owner if owner in _list_principal_names(args) else str(args.principal)


def reject_mime_type(args: Namespace, handle: str) -> None:
    """Raise `InvalidArgument` if a command on a handle has `--mime-type`, which is for files."""
    if args.mime_type is None:
        return
    import shlex

    raise InvalidArgument(
        f"--mime-type is for files, and {handle} keeps the type with which it was stored; read its content as a file: "
        f"`forebay cat {handle} | forebay {args.run.__name__} - … --mime-type {shlex.quote(args.mime_type)}`"
    )


def _list_stored(store: "Store", args: Namespace) -> Iterator["StoredOutput"]:
    from forebay.store import OPERATOR

    for principal in _list_principal_names(args) or (OPERATOR,):
        yield from store.list(principal=principal)


def _make_filter(args: Namespace) -> "Callable[[StoredOutput], bool]":
    """Return the function that tells which payloads `forebay ls` lists."""
    import datetime
    import fnmatch

    from forebay.cli.output.units import UNKNOWN_TOOL, parse_timestamp

    def is_selected(entry: "StoredOutput") -> bool:
        # By the names that the table has.
        if args.tool is not None and not fnmatch.fnmatchcase(entry.source_tool or UNKNOWN_TOOL, args.tool):
            return False
        if args.larger is not None and entry.size_bytes <= args.larger:
            return False
        if oldest is None:
            return True
        created_at = parse_timestamp(entry.created_at)
        return created_at is not None and created_at >= oldest

    oldest = None
    if args.since is not None:
        oldest = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=args.since)
        # Timestamps are whole seconds.
        oldest = oldest.replace(microsecond=0)
    return is_selected


class _InputFile:
    """A file to store. Read errors are raised as `InputFailed`, not as errors of the store."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name
        status = os.fstat(file.fileno())
        self.size = status.st_size if S_ISREG(status.st_mode) else None

    def read(self, size: int) -> bytes:
        with _translate_input_errors(self._name):
            return self._file.read(size)


@contextlib.contextmanager
def open_input(name: str) -> Iterator[_InputFile]:
    if name == "-":
        if sys.stdin is None:
            raise InputFailed("standard input is closed; pipe the payload into it, or name a file")
        yield _InputFile(sys.stdin.buffer, "standard input")
        return
    with _translate_input_errors(name):
        file = open(name, "rb")  # noqa: PTH123, SIM115 - closed below, outside of _translate_input_errors
    with file:
        yield _InputFile(file, name)


@contextlib.contextmanager
def _translate_input_errors(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputFailed(f"{name} cannot be read: {error.strerror}; nothing was stored") from None


def parse_capability_rule(text: str) -> tuple[str, str]:
    """Parse the value of `--capability`."""
    pattern, _, name = text.partition("=")
    if not pattern.strip() or not name.strip():
        raise ArgumentTypeError(f"it is PATTERN=NAME, such as 'crawl*=crawl', not {text!r:.64}")
    return pattern.strip(), name.strip()


def _read_saved_tools(name: str) -> list[dict[str, Any]]:
    """Read a list of tools from a file: a whole response, its result, or the list alone."""
    import orjson

    try:
        value = orjson.loads(Path(name).read_bytes())
    except OSError as error:
        raise InputFailed(f"{name} cannot be read: {error.strerror}") from None
    except orjson.JSONDecodeError as error:
        raise InputFailed(f"{name} is not JSON: {error}; save the response to tools/list") from None
    for key in ("result", "tools"):
        value = value.get(key, value) if isinstance(value, dict) else value
    if not isinstance(value, list) or not all(isinstance(tool, dict) for tool in value):
        raise InputFailed(f'{name} is no list of tools; save the response to tools/list: {{"tools": [...]}}')
    return value
