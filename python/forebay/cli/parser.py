"""The argument parser of the `forebay` command."""

import argparse
import os
import sys
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import forebay
from forebay.cli import gateway
from forebay.errors import HandleNotFound, InvalidArgument

__all__ = ["parse_arguments", "parse_wrap_options"]

# Not Typer: it would import pydantic for every command, which takes longer than everything else at start-up.


def parse_arguments(description: str) -> argparse.Namespace:
    """Parse `sys.argv`, or print help or version. The result's `run` is the function that implements the command."""
    words, wrapped_command = _split_at_dashes(sys.argv[1:])
    if words[:1] == [gateway.wrap.__name__]:
        # Clients wait for it, so it starts without a look at the other commands.
        args = _make_wrap_parser().parse_args(words[1:])
    else:
        args = _parse_command(description, words)
    args.wrapped_command = wrapped_command
    return args


def _parse_command(description: str, words: list[str]) -> argparse.Namespace:
    parser = _Parser("forebay", description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"forebay {forebay.__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_commands(subparsers)
    if words and not words[0].startswith("-") and words[0] not in subparsers.choices:
        parser.error(f"there is no command {words[0]}{_name_nearest(words[0], subparsers.choices)}")
    return parser.parse_args(words)


def parse_wrap_options(words: list[str]) -> dict[str, Any]:
    """Parse the options of a `forebay wrap` that a client's file contains. Raises `InvalidArgument`."""
    return vars(_make_wrap_parser().parse_args(words))


def _make_wrap_parser() -> "_Parser":
    options = _describe_gateway_command(gateway.wrap)
    parser = _Parser(add_options=gateway.add_options, **options)
    parser.set_defaults(run=gateway.wrap)
    return parser


def _describe_gateway_command(run: Callable[[argparse.Namespace], None]) -> dict[str, Any]:
    return {
        "prog": f"forebay {run.__name__}",
        "usage": f"forebay {run.__name__} {gateway.USAGES[run]}",
        "description": (run.__doc__ or "").replace("\n    ", "\n"),
        "formatter_class": argparse.RawDescriptionHelpFormatter,
    }


def _split_at_dashes(words: list[str]) -> tuple[list[str], list[str]]:
    """Split the arguments of `wrap` at `--` into its own arguments and the command to wrap."""
    if words[:1] != ["wrap"] or "--" not in words:
        return words, []
    at = words.index("--")
    return words[:at], words[at + 1 :]


class _Parser(argparse.ArgumentParser):
    """An argument parser that raises `InvalidArgument` instead of exiting."""

    def __init__(self, prog: str, *, add_options: "Callable[[_Parser], None] | None" = None, **options: object) -> None:
        super().__init__(prog, allow_abbrev=False, **options)  # type: ignore[arg-type]
        self._add_options = add_options
        """Function that adds options when the command is used, because importing these options is slow."""

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        if self._add_options is not None:
            self._add_options(self)
        known, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self._reject(unknown[0].partition("=")[0])
        return known, unknown

    def _reject(self, word: str) -> NoReturn:
        run = self.get_default("run")
        hint = _name_nearest(word, self._option_string_actions)
        if self._add_options is not None and (owner := gateway.find_option_owner(run, word)) is not None:
            hint = f": {owner}"
        if not word.startswith("-"):
            is_wrap = run is gateway.wrap
            advice = "if it is a command, put -- before it" if is_wrap else "if it is a file, put its option before it"
            self.error(f"{word} is not understood here; {advice}")
        self.error(f"there is no {word} here{hint}")

    def error(self, message: str) -> NoReturn:
        raise InvalidArgument(f"{message}; `{self.prog} --help` shows how")


def _name_nearest(word: str, known: Iterable[str]) -> str:
    """Return the end of an error that names the known word nearest to an unknown one, or an empty text."""
    # Imported here, because only errors need it.
    import difflib

    near = difflib.get_close_matches(word, [*known], 1)
    return f"; the nearest is {near[0]}" if near else ""


def _add_commands(subparsers: "argparse._SubParsersAction[_Parser]") -> None:
    from forebay.cli import commands
    from forebay.cli.bench import bench, parse_groups
    from forebay.cli.dashboard import dashboard
    from forebay.cli.doctor import doctor
    from forebay.cli.export import export
    from forebay.cli.mirror import mirror
    from forebay.cli.query import query
    from forebay.cli.store import store
    from forebay.cli.view import view

    def add(
        run: Callable[[argparse.Namespace], None], *arguments: Callable[[_Parser], object], has_store: bool = True
    ) -> _Parser:
        about, name = run.__doc__ or "", run.__name__.replace("_", "-")
        parser = subparsers.add_parser(
            name,
            prog=f"forebay {name}",
            help=about.partition("\n")[0],
            description=about.replace("\n    ", "\n"),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.set_defaults(run=run)
        for argument in (*arguments, *([_add_store] if has_store else [])):
            argument(parser)
        return parser

    put = add(commands.put)
    put.add_argument("file", metavar="FILE", help="the file to store; - is standard input")
    put.add_argument("--mime-type", metavar="TYPE", help="the MIME type; detected by default")
    put.add_argument(
        "--ttl",
        metavar="DURATION",
        type=_parse_duration,
        help="keep the payload for this long, such as 2h (default: 1d)",
    )
    put.add_argument("--principal", metavar="NAME", help="the principal that owns the payload (default: none)")

    ls = add(commands.ls, _add_principal, _add_json)
    ls.add_argument("--tool", metavar="PATTERN", help="only results of tools with this name, such as 'crawl*'")
    ls.add_argument("--larger", metavar="SIZE", type=_parse_size, help="only payloads above this size, such as 1MB")
    ls.add_argument(
        "--since", metavar="DURATION", type=_parse_duration, help="only what was stored within this time, such as 2h"
    )

    add(commands.stat, _add_handle, _add_principal)

    fetch = add(commands.fetch, _add_handle, _add_principal, _add_max_bytes, _add_json)
    fetch.add_argument("--format", metavar="FORMAT", default="auto", help="auto, items, lines, text or bytes")
    fetch.add_argument("--offset", metavar="N", type=int, default=0, help="the first item, line or byte to print")
    fetch.add_argument("--limit", metavar="N", type=int, help="the number of items, lines or bytes to print")
    fetch.add_argument("--path", metavar="POINTER", help="a JSON Pointer to a value inside, such as /orders/17")
    fetch.add_argument(
        "--fields", metavar="NAMES", type=_split_fields, help="fields of each item to print, such as id,user.name"
    )
    fetch.add_argument("--where", metavar="JSON", help='conditions on items, such as \'{"status": "failed"}\'')
    fetch.add_argument("--raw", action="store_true", help="print only the content: JSON, text or bytes")

    add(commands.cat, _add_handle, _add_principal)

    export_parser = add(export, _add_handle, _add_principal)
    export_parser.add_argument("file", metavar="FILE", nargs="?", help="the file to write, or - (default: the handle)")
    export_parser.add_argument(
        "--format", metavar="FORMAT", help="json, ndjson, csv or parquet; by default that of FILE's name"
    )
    export_parser.add_argument("--where", metavar="JSON", help='conditions on items, such as \'{"status": "failed"}\'')
    export_parser.add_argument(
        "--fields", metavar="NAMES", type=_split_fields, help="fields of each item to write, such as id,user.name"
    )
    export_parser.add_argument("--sql", metavar="SQL", help="write the result of this query instead")
    export_parser.add_argument("--force", action="store_true", help="replace the file if there is one")

    get = add(commands.get, _add_handle, _add_principal)
    get.add_argument("pointer", metavar="POINTER", help="a JSON Pointer, such as /orders/17")

    search = add(commands.search, _add_handle, _add_principal, _add_max_bytes, _add_json)
    search.add_argument("pattern", metavar="PATTERN", help="the text to find, or a regular expression with --regex")
    search.add_argument("--regex", action="store_true", help="use the pattern as a regular expression")
    search.add_argument("-i", "--ignore-case", action="store_true", help="ignore upper and lower case")
    search.add_argument(
        "--mode",
        choices=("text", "values"),
        default="text",
        help="search the text as written, or the keys and values of JSON with their escapes decoded (default: text)",
    )
    search.add_argument("--count-only", action="store_true", help="print only the number of matches")
    search.add_argument("--offset", metavar="N", type=int, default=0, help="the byte to start from")
    search.add_argument(
        "--limit", metavar="N", type=int, default=50, help="the number of matches to print (default: 50)"
    )
    search.add_argument(
        "--context", metavar="N", type=int, default=80, help="bytes to print around each match (default: 80)"
    )
    search.add_argument(
        "--fields",
        metavar="NAMES",
        type=_split_fields,
        help="fields of the item to print instead, such as id,user.name",
    )

    query_parser = add(query, _add_principal, _add_json)
    query_parser.add_argument("source", metavar="HANDLE|FILE", help="a handle, or a file to query; - is standard input")
    query_parser.add_argument("sql", metavar="SQL", help="one SELECT, DESCRIBE or SUMMARIZE")
    query_parser.add_argument("--csv", action="store_true", help="print CSV; a null is an empty field")
    query_parser.add_argument("--mime-type", metavar="TYPE", help="the MIME type of FILE, such as text/csv")
    query_parser.add_argument(
        "--max-bytes", metavar="N", type=int, default=16 << 20, help="the maximum size of the result (default: 16 MiB)"
    )
    _add_timeout(query_parser, "how long the query may take")

    view_parser = add(view, _add_principal)
    view_parser.add_argument("source", metavar="HANDLE|FILE", help="a handle, or a file; - is standard input")
    view_parser.add_argument("--path", metavar="POINTER", help="open the value at this JSON Pointer")
    view_parser.add_argument("--where", metavar="JSON", help='show only items such as \'{"status": "failed"}\'')
    view_parser.add_argument("--mime-type", metavar="TYPE", help="the MIME type of FILE, such as text/csv")

    outline = add(commands.outline, _add_handle, _add_principal, _add_json)
    outline.add_argument(
        "--max-bytes", metavar="N", type=int, default=512, help="the maximum size of the outline (default: 512)"
    )

    rm = add(commands.rm, _add_principal)
    rm.add_argument("handles", metavar="HANDLE", nargs="+", type=_parse_handle, help="the handles to remove")

    add(commands.sweep)

    mirror_parser = add(mirror, has_store=False)
    mirror_parser.add_argument("source", metavar="FROM", help="the store to copy, such as file:///path")
    mirror_parser.add_argument("target", metavar="TO", help="the store to copy to, such as s3://bucket/prefix")
    for flag, owner, default in (
        ("--quota-bytes", "in total", "4 GiB"),
        ("--principal-quota-bytes", "for each principal", "1 GiB"),
    ):
        mirror_parser.add_argument(
            flag,
            metavar="SIZE",
            type=_parse_quota,
            default=argparse.SUPPRESS,
            help=f"store at most this much in TO {owner}; none for no limit (default: {default})",
        )

    store_parser = add(store, has_store=False)
    store_parser.add_argument("action", choices=["lifecycle"], help="what to print")
    store_parser.add_argument("address", metavar="ADDRESS", help="the store, such as s3://bucket/prefix")

    add(commands.stats, _add_principal, _add_json)

    dashboard_parser = add(dashboard)
    dashboard_parser.add_argument(
        "--http",
        metavar="HOST:PORT",
        type=_parse_address,
        default=("127.0.0.1", 0),
        help="listen on this address (default: 127.0.0.1 and a free port)",
    )
    dashboard_parser.add_argument(
        "--token-file", metavar="FILE", help="let people sign in with the tokens of this file, one `name: token` a line"
    )
    dashboard_parser.add_argument(
        "--allowed-hosts",
        metavar="HOSTS",
        type=_split_fields,
        default=[],
        help="accept these host names in the Host header, such as forebay.example.com",
    )

    journal = add(commands.journal, _add_principal, _add_json)
    journal.add_argument(
        "action", nargs="?", choices=["recent", "summary"], default="recent", help="what to print (default: recent)"
    )
    journal.add_argument("--count", metavar="N", type=int, default=50, help="the number of events (default: 50)")
    # Other commands have --limit; argparse would take its value for the action.
    journal.add_argument("--limit", dest="count", type=int, default=argparse.SUPPRESS, help=argparse.SUPPRESS)

    bench_parser = add(bench, _add_json, has_store=False)
    bench_parser.add_argument(
        "file", metavar="FILE", nargs="?", help="the payload; - is standard input (default: a generated one)"
    )
    bench_parser.add_argument(
        "--shape",
        choices=("orders", "crawl", "events", "log", "csv"),
        default="orders",
        help="what to generate: JSON with an array, JSON of long texts, NDJSON, a log, rows (default: orders)",
    )
    bench_parser.add_argument(
        "--size", metavar="SIZE", type=_parse_size, default=20_000_000, help="how much to generate (default: 20MB)"
    )
    bench_parser.add_argument("--seed", metavar="N", type=int, default=1, help="what differs between payloads")
    bench_parser.add_argument(
        "--only",
        metavar="NAMES",
        type=parse_groups,
        default=["truncate", "index", "page", "search", "where", "query", "limit"],
        help="run these only, such as truncate,index,page,search,where,query,limit (default: all)",
    )
    bench_parser.add_argument(
        "--time",
        metavar="DURATION",
        type=_parse_duration,
        default=20.0,
        help="how long to measure in all, besides one call of each side that is checked (default: 20s)",
    )
    bench_parser.add_argument("--svg", metavar="FILE", help="also write a chart")
    bench_parser.add_argument("--compare", metavar="FILE", help="an earlier report in JSON to compare the times with")
    bench_parser.add_argument(
        "--fail-below",
        metavar="RATIO",
        type=float,
        help="exit with code 1 if any speed, relative to --compare, is below this, such as 0.8",
    )

    for run in gateway.USAGES:
        subparsers.add_parser(
            run.__name__,
            help=(run.__doc__ or "").partition("\n")[0],
            add_options=gateway.add_options,
            **_describe_gateway_command(run),
        ).set_defaults(run=run)

    doctor_parser = add(doctor, has_store=False)
    doctor_parser.add_argument(
        "paths",
        metavar="PATH",
        nargs="*",
        help="files of MCP clients, or addresses of stores (default: all known files)",
    )
    _add_timeout(doctor_parser, "how long to wait for each server")
    doctor_parser.add_argument(
        "--trust-project", action="store_true", help="also start the servers of the project in this folder"
    )

    new_token = add(commands.token, has_store=False)
    new_token.add_argument("name", metavar="NAME", help="the principal of the token")
    new_token.add_argument("--hashed", action="store_true", help="print a hash of the token instead of the token")

    lint_tools = add(commands.lint_tools, has_store=False)
    lint_tools.add_argument("command", metavar="COMMAND", nargs="*", help="the command of the server, after --")
    lint_tools.add_argument("--saved", metavar="FILE", help="a saved tools/list response, instead of a server")
    lint_tools.add_argument(
        "--capability",
        metavar="PATTERN=NAME",
        type=commands.parse_capability_rule,
        action="append",
        default=[],
        help="the capability of tools by name or pattern; the first match counts; repeatable",
    )
    _add_timeout(lint_tools, "how long to wait for the server")


def _add_store(parser: _Parser) -> None:
    default = os.environ.get("FOREBAY_STORE") or None
    parser.add_argument(
        "--store",
        metavar="URL",
        default=default,
        help="the store, such as file:///path (default: FOREBAY_STORE, or the user's home)",
    )


def _add_handle(parser: _Parser) -> None:
    parser.add_argument(
        "handle",
        metavar="HANDLE",
        type=_parse_handle_to_read,
        help="a handle, oh_…, or a reference to one, ax://…~oh_…",
    )


def _parse_handle(text: str) -> str:
    # Imported here, so that `--help` starts quickly.
    from forebay.store.handles import extract_handle

    return str(extract_handle(text))


def _parse_handle_to_read(text: str) -> str:
    # Imported here, so that `--help` starts quickly.
    import shlex

    from forebay.store.handles import is_handle

    handle = _parse_handle(text)
    # Unlike that of pathlib, it also accepts names that are too long.
    if not is_handle(handle) and os.path.isfile(text):  # noqa: PTH113
        # Not `InvalidArgument`: argparse would replace the message of a ValueError.
        raise HandleNotFound(
            f"{text} is a file, not a handle; `forebay put {shlex.quote(text)}` stores it and prints its handle"
        )
    return handle


def _add_timeout(parser: _Parser, help_text: str) -> None:
    parser.add_argument(
        "--timeout", metavar="DURATION", type=_parse_duration, default=30.0, help=f"{help_text} (default: 30s)"
    )


def _parse_duration(text: str) -> float:
    # Imported here, so that `--help` starts quickly.
    from forebay.config.option_types import SECONDS

    try:
        return float(SECONDS.parse(text))
    except ValueError as error:
        message = f"it is {error}, such as {SECONDS.example}, not {text!r:.64}"
        raise argparse.ArgumentTypeError(message) from None


def _parse_size(text: str) -> int:
    # Imported here, so that `--help` starts quickly.
    from forebay.config.option_types import SIZE

    try:
        return int(SIZE.parse(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"it is {error}, such as 100MB, not {text!r:.64}") from None


def _parse_address(text: str) -> tuple[str, int]:
    # Imported here, so that `--help` starts quickly.
    from forebay.config.option_types import ADDRESS

    try:
        host, port = ADDRESS.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"it is {error}, such as {ADDRESS.example}, not {text!r:.64}") from None
    return host, port


def _parse_quota(text: str) -> int | None:
    # Imported here, so that `--help` starts quickly.
    from forebay.config.option_types import SIZE, accept_none

    size = accept_none(SIZE)
    try:
        quota: int | None = size.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"it is {error}, such as {size.example}, not {text!r:.64}") from None
    return quota


def _add_principal(parser: _Parser) -> None:
    parser.add_argument(
        "--principal",
        metavar="NAME",
        help="show or change only data of this principal, named as in the token file or as `forebay ls` shows it "
        "(default: data of all principals)",
    )


def _add_json(parser: _Parser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON on a terminal, too")


def _add_max_bytes(parser: _Parser) -> None:
    parser.add_argument(
        "--max-bytes", metavar="N", type=int, default=65536, help="the maximum size of the output (default: 65536)"
    )


def _split_fields(text: str) -> list[str]:
    return [field.strip() for field in text.split(",")]
