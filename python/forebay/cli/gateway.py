"""Commands of the gateway: `wrap`, `serve`, `config` and `adopt`. Each function's docstring is its `--help`."""

# The gateway is imported inside functions, so that other commands start quickly.

import argparse
import gc
import os
import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from forebay.cli import output
from forebay.cli.adopt import adopt
from forebay.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.config.options import Option

__all__ = ["adopt", "config", "serve", "wrap"]


def wrap(args: Namespace) -> None:
    """Run an MCP server behind forebay.

    The server is a command; everything after -- belongs to it:
      forebay wrap --output-mode auto -- npx -y some-server /data
    or a URL:
      forebay wrap --url https://example.com/mcp --header 'X-Key: ${KEY}'

    Sizes may be written as 64MiB and times as 24h. Every option can also be set in
    a --config file or by a variable; `forebay config --explain` lists them all.
    """
    from forebay.config.load import load_settings

    settings = load_settings("wrap", vars(args), os.environ)
    if args.wrapped_command and settings.url is not None:
        raise InvalidArgument(f"there are a command and a url (from {settings.sources['url']}); leave one of them")
    if not args.wrapped_command and settings.url is None:
        raise InvalidArgument("there is nothing to wrap; name a server: forebay wrap -- COMMAND, or --url URL")
    if args.wrapped_command:
        command = args.wrapped_command[0]
        problem = _find_command_problem(command, "leave out the quotes around it and its arguments")
        if problem is not None:
            raise InvalidArgument(f"forebay wrap needs {command}, which {problem}")
    _configure_logging(settings.log_level)
    from forebay.proxy.wrap import run, run_url

    if settings.url is not None:
        sys.exit(run_url(settings, settings.url, [f"{name}: {value}" for name, value in settings.headers.items()]))
    sys.exit(run(settings, args.wrapped_command))


def serve(args: Namespace) -> None:
    """Serve several MCP servers, HTTP APIs and Python modules as one server.

    A forebay.toml names them, each by a command, url, openapi or python:
      [upstreams.files]
      command = "npx"
      args = ["-y", "@modelcontextprotocol/server-filesystem", "/data"]
    """
    from forebay.config.load import load_settings

    settings = load_settings("serve", vars(args), os.environ)
    _configure_logging(settings.log_level)
    import logging

    log = logging.getLogger("forebay")
    for upstream in settings.upstreams.values():
        if upstream.command is not None:
            program, _, rest = upstream.command.partition(" ")
            problem = _find_command_problem(upstream.command, f"{program} alone is the command; {rest} goes into args")
            if problem is not None:
                # Not an error: the others must be served, and the command may be installed later.
                log.warning("the upstream %s needs %s, which %s", upstream.name, upstream.command, problem)
    if settings.http is None and sys.stdin is not None and sys.stdin.isatty() and sys.stderr is not None:
        # Otherwise it would seem to hang for somebody who wanted to try it.
        sys.stderr.write("forebay: speaking MCP on stdin and stdout; --http HOST:PORT serves HTTP\n")
    if settings.http is None and settings.has_authentication:
        log.warning("tokens have no effect without --http")
    # Imports allocate many objects and free few: without the collector they take a sixth less time.
    gc.disable()
    try:
        from forebay.hub.run import run
    except ImportError as error:
        from forebay.errors import make_missing_extra

        raise make_missing_extra("forebay serve", "serve", error) from None
    finally:
        # What is imported stays, so the collector need not look at it again and again.
        gc.freeze()
        gc.enable()

    sys.exit(run(settings))


def config(args: Namespace) -> None:
    """Check the configuration, and print the options that it sets.

    --explain prints every option: its value, the source of the value, its default,
    flag and variable. Secrets are masked.
    """
    from forebay.config.load import explain

    explanation = explain(vars(args), os.environ)
    if not args.explain:
        explanation["options"] = [row for row in explanation["options"] if row["source"] != "default"]
    output.print_settings(explanation)


USAGES: "dict[Callable[[Namespace], None], str]" = {
    wrap: "[options] -- COMMAND...",
    serve: "--config forebay.toml [options]",
    config: "[--explain] [options]",
    adopt: "PATH|--all [--server NAME] [--write] [--undo] [options]",
}


def add_options(parser: ArgumentParser) -> None:
    """Add the options of a gateway command to its parser."""
    from forebay.config.options import OPTIONS_AND_ALIASES

    run = parser.get_default("run")
    command = "wrap" if run is adopt else run.__name__
    if run is adopt:
        parser.add_argument("path", metavar="PATH", nargs="?", help="the file of the MCP client")
        parser.add_argument(
            "--all",
            action="store_true",
            help="change all files of known clients: the user's, and this folder's",
        )
        parser.add_argument("--server", metavar="NAME", action="append", help="change only this server; repeatable")
        parser.add_argument("--write", "--yes", action="store_true", help="change the files without asking")
        parser.add_argument("--undo", action="store_true", help="remove forebay again")
        parser.add_argument(
            "--forebay",
            metavar="COMMAND",
            help='how to start forebay, such as "python3 -m forebay"; by default this program',
        )
    if run is config:
        parser.add_argument("--explain", action="store_true", help="print all options, not only those that are set")
    if run is wrap:
        parser.add_argument("--adopted", action="append", help=argparse.SUPPRESS)
    for option in OPTIONS_AND_ALIASES.values():
        if command in (*option.commands, "config") and not (run is adopt and option.name in _SERVER_OPTIONS):
            _add_option(parser, option)


_SERVER_OPTIONS = ("url", "headers")
"""Options that `adopt` takes from the server in the client's file."""


def find_option_owner(run: "Callable[[Namespace], None]", flag: str) -> str | None:
    """Return a hint on a flag that a command does not have, or `None` if the flag is unknown.

    The hint is the command that has the flag, or advice for a flag of earlier versions.
    """
    from forebay.config.options import OPTIONS, REMOVED_OPTIONS

    advice = REMOVED_OPTIONS.get(flag.removeprefix("--").replace("-", "_"))
    if advice is not None:
        return advice
    option = next((option for option in OPTIONS.values() if option.flag == flag), None)
    if option is None:
        return None
    if run is adopt and option.name in _SERVER_OPTIONS:
        return "each server of the file has its own"
    also = f", and the key {option.name} of an upstream" if run is serve and option.name in _SERVER_OPTIONS else ""
    return f"it is an option of `forebay {option.commands[0]}`{also}"


def _add_option(parser: ArgumentParser, option: "Option") -> None:
    keywords: dict[str, Any] = {"dest": option.name, "help": _make_help_text(option)}
    if option.type.is_flag:
        keywords |= {"action": argparse.BooleanOptionalAction}
    else:
        keywords |= {"metavar": option.type.metavar, "action": "append" if option.type.separator else "store"}
    if option.type.is_value_optional:
        keywords |= {"nargs": "?", "const": "true"}
    parser.add_argument(option.flag, **keywords)


def _make_help_text(option: "Option") -> str:
    default = "" if option.default is False or option.is_alias else option.default_text
    return (option.help + (f" (default: {default})" if default else "")).replace("%", "%%")


def _find_command_problem(command: str, split_hint: str) -> str | None:
    """Return why a command cannot be run and what to do, or `None` if it can.

    `split_hint` is the advice if the command and its arguments were written as one word.
    """
    import shutil

    if shutil.which(command) is not None:
        return None
    if os.path.isdir(command):  # noqa: PTH112 - imports less
        return "is a folder; name a command in it"
    if os.sep in command and os.path.exists(command):  # noqa: PTH110
        return f"is not executable; run chmod +x {command}, or put its interpreter before it, such as python3"
    if " " in command and shutil.which(command.partition(" ")[0]) is not None:
        return f"is no command here; {split_hint}"
    return "is no command here; install it, or give its full path"


def _configure_logging(level: str) -> None:
    """Log to standard error: standard output belongs to the protocol."""
    import logging

    class Formatter(logging.Formatter):
        def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is given by logging
            # Messages begin with this prefix for programs that use forebay as a library. Here the format adds it.
            record.message = record.message.removeprefix("forebay: ")
            return super().formatMessage(record)

        def format(self, record: logging.LogRecord) -> str:
            text = super().format(record)
            # A message may repeat what a server wrote.
            return output.replace_controls(text) if is_terminal else text

    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Formatter("forebay: %(levelname)s: %(message)s"))
    logging.basicConfig(handlers=[handler])
    logging.getLogger("forebay").setLevel(level.upper())
