"""The commands of the gateway: one function each, whose docstring is its help."""

# What they run is imported where it runs: `--help` of everything else has no need of it.

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
    """Put forebay before an MCP server.

    The server is a command, and everything behind -- is its own:
      forebay wrap --output-mode auto -- npx -y some-server /data
    or it is reached over HTTP:
      forebay wrap --url https://example.com/mcp --header 'X-Key: ${KEY}'

    Sizes may be written as 64MiB and times as 24h. Every option is also a key of a
    --config and a variable; `forebay config --explain` lists them.
    """
    from forebay.config.load import load_settings

    settings = load_settings("wrap", vars(args), os.environ)
    if args.wrapped and settings.url is not None:
        raise InvalidArgument(f"there are a command and a url (from {settings.sources['url']}); leave one of them")
    if not args.wrapped and settings.url is None:
        raise InvalidArgument("there is nothing to wrap; name a server: forebay wrap -- COMMAND, or --url URL")
    if args.wrapped:
        _check_executable(args.wrapped[0], "forebay wrap needs", "leave out the quotes around it and its arguments")
    _configure_logging(settings.log_level)
    from forebay.proxy.wrap import run, run_url

    if settings.url is not None:
        sys.exit(run_url(settings, settings.url, [f"{name}: {value}" for name, value in settings.headers.items()]))
    sys.exit(run(settings, args.wrapped))


def serve(args: Namespace) -> None:
    """Put several servers and APIs behind one server.

    They are named in a forebay.toml, each by a command, url, openapi or python:
      [upstreams.files]
      command = "npx"
      args = ["-y", "@modelcontextprotocol/server-filesystem", "/data"]
    """
    from forebay.config.listening import has_authentication
    from forebay.config.load import load_settings

    settings = load_settings("serve", vars(args), os.environ)
    for target in settings.upstreams.values():
        if target.command is not None:
            program, _, rest = target.command.partition(" ")
            hint = f"{program} alone is the command; {rest} goes into args"
            _check_executable(target.command, f"the upstream {target.name} needs", hint)
    _configure_logging(settings.log_level)
    if settings.http is None and has_authentication(settings):
        import logging

        logging.getLogger("forebay").warning("without --http nobody shows a token; those given have no effect")
    try:
        from forebay.hub.run import run
    except ModuleNotFoundError as error:
        from forebay.errors import install_hint

        raise InvalidArgument(f"forebay serve needs {error.name}; {install_hint('operations')}") from None

    sys.exit(run(settings))


def config(args: Namespace) -> None:
    """Check the configuration, and print what it sets.

    With --explain: every option, its flag, key, variable and default, what is in
    force, and where that came from. Secrets are masked.
    """
    from forebay.config.explain import explain

    said = explain(vars(args), os.environ)
    if not args.explain:
        said["options"] = [row for row in said["options"] if row["source"] != "default"]
    output.print_settings(said)


def adopt(args: Namespace) -> None:
    """Put forebay before the servers of an MCP client's file.

    Shows the change as a diff, in which secrets are masked; --write makes it, with
    a backup beside the file, and --undo takes forebay away again. Files of Claude
    Desktop, Claude Code, Cursor and VS Code are known. All options of `forebay
    wrap` may be given but --url and --header.
    """
    from forebay.config.adopt import adopt_servers, restore_servers
    from forebay.config.clients import mask_client_file, read_client_file

    flags = _option_flags(args)
    text = read_client_file(args.path)
    if args.undo and (flags or args.forebay):
        raise InvalidArgument("--undo takes forebay away, whatever its options; leave them out")
    names = args.server or []
    if args.undo:
        change = restore_servers(text, args.path, names)
    else:
        change = adopt_servers(text, args.path, _forebay_command(args.forebay), flags, names)
    output.print_bytes(_diff(mask_client_file(text, args.path), mask_client_file(change.text, args.path), args.path))
    for name, why in change.skipped.items():
        _print_note(f"{name} {why}, and stays as it is")
    for name in change.without_headers:
        _print_note(
            f"{name}: if the client signed in there itself (OAuth), that no longer happens; "
            "give it headers before, or --header 'Authorization: Bearer ${TOKEN}' among its args afterwards"
        )
    if not change.changed:
        _print_note("there is nothing to change")
    elif not args.write:
        _print_note(f"nothing is written yet; --write changes {', '.join(change.changed)}")
    else:
        from forebay.config.adopt import replace_file

        backup = replace_file(args.path, text.encode(), change.text.encode())
        _print_note(f"{args.path} is written; what it was is in {backup}")


USAGES = {
    wrap: "[options] -- COMMAND...",
    serve: "--config forebay.toml [options]",
    config: "[--explain] [options]",
    adopt: "PATH [--server NAME] [--write] [--undo] [options]",
}


def add_options(parser: ArgumentParser) -> None:
    """Adds the options of a command, of which the table is kept with the gateway."""
    from forebay.config.options import OPTIONS

    run = parser.get_default("run")
    command = "wrap" if run is adopt else run.__name__
    if run is adopt:
        parser.add_argument("path", metavar="PATH", help="the client's file")
        parser.add_argument("--server", metavar="NAME", action="append", help="only this one; repeatable")
        parser.add_argument("--write", action="store_true", help="change the file")
        parser.add_argument("--undo", action="store_true", help="take forebay away")
        parser.add_argument(
            "--forebay", metavar="COMMAND", help='what to run it with, as in "python3 -m forebay"; else this very one'
        )
    if run is config:
        parser.add_argument("--explain", action="store_true", help="all options, not only those that are set")
    if run is wrap:
        parser.add_argument("--adopted", action="append", help=argparse.SUPPRESS)
    for option in OPTIONS.values():
        if command in (*option.commands, "config") and not (run is adopt and option.name in _SERVER_OPTIONS):
            _add_option(parser, option)


_SERVER_OPTIONS = ("url", "headers")
"""What an adopted server brings along."""


def find_option_owner(run: "Callable[[Namespace], None]", flag: str) -> str | None:
    """Whose an option is that a command does not have, if it is another's."""
    from forebay.config.options import OPTIONS

    option = next((option for option in OPTIONS.values() if option.flag == flag), None)
    if option is None:
        return None
    if run is adopt and option.name in _SERVER_OPTIONS:
        return "each server of the file has its own"
    also = f", and the key {option.name} of an upstream" if run is serve and option.name in _SERVER_OPTIONS else ""
    return f"it is an option of `forebay {option.commands[0]}`{also}"


def _add_option(parser: ArgumentParser, option: "Option") -> None:
    how: dict[str, Any] = {"dest": option.name, "help": _help_text(option)}
    if option.type.is_flag:
        how |= {"action": argparse.BooleanOptionalAction}
    else:
        how |= {"metavar": option.type.metavar, "action": "append" if option.type.separator else "store"}
    if option.type.is_value_optional:
        how |= {"nargs": "?", "const": "true"}
    parser.add_argument(option.flag, **how)


def _help_text(option: "Option") -> str:
    is_told = option.default not in (None, "", (), {}, False)
    default = f"{option.default:g}" if isinstance(option.default, float) else option.default
    return (option.help + (f"; {default} if not given" if is_told else "")).replace("%", "%%")


def _option_flags(args: Namespace) -> list[str]:
    """The options that were given, for the command line that is to be kept; checked as if it was run."""
    from forebay.config.load import load_settings
    from forebay.config.options import OPTIONS

    given = {name: value for name, value in vars(args).items() if name in OPTIONS}
    load_settings("wrap", given, {})
    flags = []
    for name, value in given.items():
        option = OPTIONS[name]
        if isinstance(value, bool):
            flags.append(option.flag if value else option.flag.replace("--", "--no-", 1))
        elif value is not None:
            texts = value if isinstance(value, list) else [value]
            # The client starts it from wherever it is.
            texts = [os.path.abspath(text) for text in texts] if option.type.is_path else texts  # noqa: PTH100
            flags += [f"{option.flag}={text}" for text in texts]
    return flags


def _forebay_command(asked: str | None) -> list[str]:
    """The words that start forebay from anywhere: those asked for, or this very one."""
    import shlex

    from forebay.config.adopt import is_forebay

    if asked is None:
        # Not what it links to, which the next upgrade may remove.
        running = os.path.abspath(sys.argv[0])  # noqa: PTH100
        return [running] if is_forebay(running) else [sys.executable, "-m", "forebay"]
    try:
        words = shlex.split(asked)
    except ValueError as error:
        raise InvalidArgument(f"--forebay cannot be read: {error}; quote it as a shell would") from None
    if not words or not is_forebay(words[-1]):
        raise InvalidArgument('--forebay ends with forebay, such as "python3 -m forebay", so that --undo knows it')
    return words


def _diff(old: str, new: str, path: str) -> list[bytes]:
    import difflib

    lines = difflib.unified_diff(old.splitlines(True), new.splitlines(True), path, path)
    return [(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n").encode() for line in lines]


def _print_note(text: str) -> None:
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            sys.stderr.write(text + "\n")


def _check_executable(command: str, who: str, one_word: str) -> None:
    """`one_word` is what to do if a command and its arguments were given as if they were one."""
    import shutil

    if shutil.which(command) is not None:
        return
    why = "is no command here; install it, or give its whole path"
    if os.path.isdir(command):  # noqa: PTH112 - imports less
        why = "is a folder; name a command in it"
    elif os.sep in command and os.path.exists(command):  # noqa: PTH110
        why = f"is not executable; run chmod +x {command}, or put before it what runs it, such as python3"
    elif " " in command and shutil.which(command.partition(" ")[0]) is not None:
        why = f"is no command here; {one_word}"
    raise InvalidArgument(f"{who} {command}, which {why}")


def _configure_logging(level: str) -> None:
    """What is logged goes to standard error: standard output is the protocol's."""
    import logging

    class Once(logging.Formatter):
        def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging calls it so
            # Our own begin with our name, for the logs of other programs; here every line does.
            record.message = record.message.removeprefix("forebay: ")
            return super().formatMessage(record)

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Once("forebay: %(levelname)s: %(message)s"))
    logging.basicConfig(handlers=[handler])
    logging.getLogger("forebay").setLevel(level.upper())
