"""What the command line may say, and what `--help` says of it."""

import argparse
import os
import sys
from collections.abc import Callable
from typing import NoReturn

import forebay
from forebay.cli import commands, gateway
from forebay.errors import InvalidArgument

__all__ = ["parse_arguments"]

# Not Typer: it imports pydantic for every command, which costs more than all the rest.


def parse_arguments(about: str) -> argparse.Namespace:
    """What was asked for; `run` is the command to call with it. Help and version are printed here."""
    parser = _Parser("forebay", description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"forebay {forebay.__version__}")
    _add_commands(parser.add_subparsers(title="commands", metavar="COMMAND", required=True))
    words, wrapped = _split_at_dashes(sys.argv[1:])
    args = parser.parse_args(words)
    args.wrapped = wrapped
    return args


def _split_at_dashes(words: list[str]) -> tuple[list[str], list[str]]:
    """Ours, and behind `--` the words of a command that is not ours, where ours runs one."""
    if words[:1] != ["wrap"] or "--" not in words:
        return words, []
    at = words.index("--")
    return words[:at], words[at + 1 :]


class _Parser(argparse.ArgumentParser):
    """Raises our own error in place of printing one."""

    def __init__(self, prog: str, *, add_options: "Callable[[_Parser], None] | None" = None, **options: object) -> None:
        super().__init__(prog, allow_abbrev=False, **options)  # type: ignore[arg-type]
        self._add_options = add_options
        """Adds what takes long to import, once this is the command that was asked for."""

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        if self._add_options is not None:
            self._add_options(self)
        known, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self._reject(unknown[0].partition("=")[0])
        return known, unknown

    def _reject(self, word: str) -> NoReturn:
        import difflib

        near = difflib.get_close_matches(word, self._option_string_actions, 1)
        hint = f", only {near[0]}" if near else ""
        if (
            self._add_options is not None
            and (owner := gateway.find_option_owner(self.get_default("run"), word)) is not None
        ):
            hint = f": {owner}"
        if not word.startswith("-"):
            is_wrap = self.get_default("run") is gateway.wrap
            hint = (
                "; if it is a command, put -- before it" if is_wrap else "; if it is a file, put its option before it"
            )
            self.error(f"{word} is not understood here{hint}")
        self.error(f"there is no {word} here{hint}")

    def error(self, message: str) -> NoReturn:
        raise InvalidArgument(f"{message}; `{self.prog} --help` shows how")


def _add_commands(subparsers: "argparse._SubParsersAction[_Parser]") -> None:
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
    put.add_argument("file", metavar="FILE", help="the payload; - is standard input")
    put.add_argument("--mime-type", metavar="TYPE", help="what it is, if not to be found out")
    put.add_argument("--ttl", metavar="SECONDS", type=float, help="how long to keep it; a day if not given")
    put.add_argument("--principal", metavar="NAME", help="whose it is; nobody's in particular if not given")

    add(commands.ls, _add_principal)
    add(commands.stat, _add_handle, _add_principal)

    fetch = add(commands.fetch, _add_handle, _add_principal, _add_max_bytes)
    fetch.add_argument("--format", metavar="FORMAT", default="auto", help="auto, items, lines, text or bytes")
    fetch.add_argument("--offset", metavar="N", type=int, default=0, help="the item, line or byte to begin with")
    fetch.add_argument("--limit", metavar="N", type=int, help="the most items, lines or bytes to show")
    fetch.add_argument("--path", metavar="POINTER", help="a JSON Pointer to a value inside: /orders/17")
    fetch.add_argument(
        "--fields", metavar="NAMES", type=_split_fields, help="fields to keep of every item: id,user.name"
    )
    fetch.add_argument("--raw", action="store_true", help="only the content: JSON, text, or the bytes themselves")

    add(commands.cat, _add_handle, _add_principal)

    get = add(commands.get, _add_handle, _add_principal)
    get.add_argument("pointer", metavar="POINTER", help="a JSON Pointer: /orders/17")

    search = add(commands.search, _add_handle, _add_principal, _add_max_bytes)
    search.add_argument("pattern", metavar="PATTERN", help="a text, or with --regex an expression")
    search.add_argument("--regex", action="store_true", help="the pattern is a regular expression")
    search.add_argument("-i", "--ignore-case", action="store_true", help="upper and lower case are the same")
    search.add_argument("--start", metavar="N", type=int, default=0, help="the byte to search from")
    search.add_argument("--limit", metavar="N", type=int, default=50, help="the most matches to show; 50 if not given")
    search.add_argument(
        "--context", metavar="N", type=int, default=80, help="bytes to show on either side; 80 if not given"
    )

    outline = add(commands.outline, _add_handle, _add_principal)
    outline.add_argument("--max-bytes", metavar="N", type=int, default=512, help="how long it may be; 512 if not given")

    rm = add(commands.rm, _add_principal)
    rm.add_argument("handles", metavar="HANDLE", nargs="+", type=_parse_handle, help="what to remove")

    add(commands.sweep)

    add(commands.stats, _add_principal)

    journal = add(commands.journal, _add_principal)
    journal.add_argument("action", nargs="?", choices=["recent", "summary"], default="recent", help="which of the two")
    journal.add_argument("--count", metavar="N", type=int, default=50, help="how many events; 50 if not given")

    for run, usage in gateway.USAGES.items():
        about = run.__doc__ or ""
        subparsers.add_parser(
            run.__name__,
            prog=f"forebay {run.__name__}",
            usage=f"forebay {run.__name__} {usage}",
            help=about.partition("\n")[0],
            description=about.replace("\n    ", "\n"),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            add_options=gateway.add_options,
        ).set_defaults(run=run)

    new_token = add(commands.token, has_store=False)
    new_token.add_argument("name", metavar="NAME", help="the principal")
    new_token.add_argument("--hashed", action="store_true", help="print a line that does not have the token itself")

    lint_tools = add(commands.lint_tools, has_store=False)
    lint_tools.add_argument("command", metavar="COMMAND", nargs="*", help="behind --: what starts the server")
    lint_tools.add_argument("--saved", metavar="FILE", help="what tools/list answered, in place of a server")
    lint_tools.add_argument(
        "--capability",
        metavar="PATTERN=NAME",
        type=commands.parse_capability_rule,
        action="append",
        default=[],
        help="what tools of these names are for; the first that matches",
    )
    lint_tools.add_argument(
        "--timeout", metavar="SECONDS", type=float, default=30.0, help="for all of it; 30 if not given"
    )


def _add_store(parser: _Parser) -> None:
    default = os.environ.get("FOREBAY_STORE") or None
    parser.add_argument(
        "--store", metavar="URL", default=default, help="file:///path; else FOREBAY_STORE, else the user's own"
    )


def _add_handle(parser: _Parser) -> None:
    told = "what `forebay put` or a tool answered: oh_…, or a reference such as ax://…~oh_…"
    parser.add_argument("handle", metavar="HANDLE", type=_parse_handle, help=told)


def _parse_handle(text: str) -> str:
    # Imported where it is needed: help is shown without.
    from forebay.store.handles import extract_handle

    return str(extract_handle(text))


def _add_principal(parser: _Parser) -> None:
    parser.add_argument(
        "--principal",
        metavar="NAME",
        help="see only what is this principal's: the name of a token, or as `forebay ls` shows whose it is; "
        "without it the command is the operator, and sees all",
    )


def _add_max_bytes(parser: _Parser) -> None:
    parser.add_argument(
        "--max-bytes", metavar="N", type=int, default=65536, help="the most the answer may weigh; 65536 if not given"
    )


def _split_fields(text: str) -> list[str]:
    return [field.strip() for field in text.split(",")]
