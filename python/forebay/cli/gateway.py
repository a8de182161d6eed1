"""Commands of the gateway: `wrap`, `serve`, `config` and `adopt`. Each function's docstring is its `--help`."""

# The gateway is imported inside functions, so that other commands start quickly.

import argparse
import contextlib
import os
import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from forebay.cli import output
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
        _check_executable(
            args.wrapped_command[0], "forebay wrap needs", "leave out the quotes around it and its arguments"
        )
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
    for upstream in settings.upstreams.values():
        if upstream.command is not None:
            program, _, rest = upstream.command.partition(" ")
            hint = f"{program} alone is the command; {rest} goes into args"
            _check_executable(upstream.command, f"the upstream {upstream.name} needs", hint)
    _configure_logging(settings.log_level)
    if settings.http is None and settings.has_authentication:
        import logging

        logging.getLogger("forebay").warning("tokens have no effect without --http")
    try:
        from forebay.hub.run import run
    except ImportError as error:
        from forebay.errors import make_missing_extra

        raise make_missing_extra("forebay serve", "serve", error) from None

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


def adopt(args: Namespace) -> None:
    """Run the servers of an MCP client behind forebay, by editing the client's file.

    Prints the change as a diff with secrets masked. --write makes the change and
    keeps a backup beside the file; --undo removes forebay again. Works with the
    files of Claude Desktop, Claude Code, Cursor and VS Code. Accepts all options of
    `forebay wrap` except --url and --header.
    """
    from forebay.config.adopt import adopt_servers, restore_servers
    from forebay.config.clients import mask_client_file, read_client_file

    flags = _collect_option_flags(args)
    text = read_client_file(args.path)
    if args.undo and (flags or args.forebay):
        raise InvalidArgument("--undo needs neither --forebay nor options of `forebay wrap`; leave them out")
    names = args.server or []
    if args.undo:
        change = restore_servers(text, args.path, names)
    else:
        change = adopt_servers(text, args.path, _find_forebay_command(args.forebay), flags, names)
    output.print_bytes(_diff(mask_client_file(text, args.path), mask_client_file(change.text, args.path), args.path))
    for name, reason in change.skip_reasons.items():
        _print_note(f"{name} {reason}, and stays as it is")
    for name in change.servers_without_headers:
        _print_note(
            f"{name}: if the client signs in to this server with OAuth, forebay cannot do that; add headers to the "
            "server first, or --header 'Authorization: Bearer ${TOKEN}' to its args afterwards"
        )
    if not change.changed_servers:
        _print_note("there is nothing to change")
    elif not args.write:
        _print_note(f"nothing is written yet; --write changes {', '.join(change.changed_servers)}")
    else:
        from forebay.config.adopt import replace_file

        backup = replace_file(args.path, text.encode(), change.text.encode())
        _print_note(f"{args.path} is written; the backup is {backup}")


USAGES = {
    wrap: "[options] -- COMMAND...",
    serve: "--config forebay.toml [options]",
    config: "[--explain] [options]",
    adopt: "PATH [--server NAME] [--write] [--undo] [options]",
}


def add_options(parser: ArgumentParser) -> None:
    """Add the options of a gateway command to its parser."""
    from forebay.config.options import OPTIONS_AND_ALIASES

    run = parser.get_default("run")
    command = "wrap" if run is adopt else run.__name__
    if run is adopt:
        parser.add_argument("path", metavar="PATH", help="the file of the MCP client")
        parser.add_argument("--server", metavar="NAME", action="append", help="change only this server; repeatable")
        parser.add_argument("--write", action="store_true", help="change the file")
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


def _collect_option_flags(args: Namespace) -> list[str]:
    """Return the options that `adopt` passes on to `wrap`, as flags. Raises `InvalidArgument` for invalid ones."""
    from forebay.config.load import load_settings
    from forebay.config.options import OPTIONS_AND_ALIASES

    options = {name: value for name, value in vars(args).items() if name in OPTIONS_AND_ALIASES}
    load_settings("wrap", options, {})
    flags = []
    for name, value in options.items():
        option = OPTIONS_AND_ALIASES[name]
        if isinstance(value, bool):
            flags.append(option.flag if value else option.flag.replace("--", "--no-", 1))
        elif value is not None:
            texts = value if isinstance(value, list) else [value]
            # Make paths absolute: the client may start forebay in another folder.
            texts = [os.path.abspath(text) for text in texts] if option.type.is_path else texts  # noqa: PTH100
            flags += [f"{option.flag}={text}" for text in texts]
    return flags


def _find_forebay_command(requested_command: str | None) -> list[str]:
    """Return the command that starts forebay from any folder: the requested one, or that of this process."""
    import shlex

    from forebay.config.adopt import is_forebay

    if requested_command is None:
        # Symbolic links are not resolved: the next upgrade of forebay may change their target.
        program = os.path.abspath(sys.argv[0])  # noqa: PTH100
        return [program] if is_forebay(program) else [sys.executable, "-m", "forebay"]
    try:
        words = shlex.split(requested_command)
    except ValueError as error:
        raise InvalidArgument(f"--forebay cannot be read: {error}; quote it as a shell would") from None
    if not words or not is_forebay(words[-1]):
        raise InvalidArgument('--forebay ends with forebay, such as "python3 -m forebay", so that --undo knows it')
    return words


def _diff(old_text: str, new_text: str, path: str) -> list[bytes]:
    import difflib

    lines = difflib.unified_diff(old_text.splitlines(True), new_text.splitlines(True), path, path)
    return [(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n").encode() for line in lines]


def _print_note(text: str) -> None:
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            sys.stderr.write((output.replace_controls(text) if sys.stderr.isatty() else text) + "\n")


def _check_executable(command: str, subject: str, split_hint: str) -> None:
    """Raise `InvalidArgument` if a command cannot be run.

    `split_hint` is the advice if the command and its arguments were written as one word.
    """
    import shutil

    if shutil.which(command) is not None:
        return
    problem = "is no command here; install it, or give its full path"
    if os.path.isdir(command):  # noqa: PTH112 - imports less
        problem = "is a folder; name a command in it"
    elif os.sep in command and os.path.exists(command):  # noqa: PTH110
        problem = f"is not executable; run chmod +x {command}, or put its interpreter before it, such as python3"
    elif " " in command and shutil.which(command.partition(" ")[0]) is not None:
        problem = f"is no command here; {split_hint}"
    raise InvalidArgument(f"{subject} {command}, which {problem}")


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
