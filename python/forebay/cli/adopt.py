"""The command `adopt`. Its docstring is its `--help`."""

# The configuration is imported inside functions, so that other commands start quickly.

import contextlib
import os
import sys
from argparse import Namespace
from typing import TYPE_CHECKING, NamedTuple

from forebay.cli import output
from forebay.cli.errors import report_error
from forebay.errors import ForebayError, InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Callable

    from forebay.config.adopt import FileChange
    from forebay.config.clients import ClientFile
    from forebay.config.documents import Document

__all__ = ["adopt"]


class _Plan(NamedTuple):
    """The change of a file, and what to tell the user about it."""

    file: "ClientFile"
    old_text: str
    new_text: str
    changes: tuple[str, ...]
    """The servers and rules that change."""
    notes: tuple[str, ...] = ()
    servers: "dict[str, tuple[str, ...]] | None" = None
    """The servers for which rules on tools change as well: the names of forebay's tools, by name of the server."""


def adopt(args: Namespace) -> None:
    """Run the servers of an MCP client behind forebay, by editing the client's file.

    Prints the change as a diff with secrets masked. --write makes the change and
    keeps a backup beside the file; --undo removes forebay again. --all does this
    for all files of known clients, and asks before it changes them. Known are
    Claude Desktop, Claude Code, Cursor, VS Code, Codex, opencode, Gemini CLI, Qwen
    Code, Copilot CLI, Cline, Windsurf, Zed, Crush and goose. Accepts all options of
    `forebay wrap` except --url and --header.
    """
    from pathlib import Path

    from forebay.config.clients import ClientFile, find_client_files, identify_client

    if args.all == (args.path is not None):
        raise InvalidArgument("name the PATH of a client's file, or give --all")
    if args.all and args.server:
        raise InvalidArgument("--server needs the PATH of a client's file instead of --all")
    edit = _make_editor(args)
    known_files = find_client_files(os.environ, Path.cwd())
    files = known_files if args.all else [ClientFile(Path(args.path), identify_client(args.path))]
    plans, errors = _plan_all([file for file in files if file.has_servers], edit, args)
    rule_plans, rule_errors = _plan_rules([file for file in known_files if not file.has_servers], plans, args)
    if args.all:
        plans, errors = [*plans, *rule_plans], [*errors, *rule_errors]
    _show(plans)
    if not args.all:
        command = f"forebay adopt --all{' --undo' if args.undo else ''}"
        for plan in rule_plans:
            if plan.changes:
                rules = ", ".join(plan.changes)
                _print_note(f"{plan.file.path} has rules on tools of its own; `{command}` changes {rules}")
    changed = [plan for plan in plans if plan.changes]
    if not changed:
        _print_note("there is nothing to change")
    elif args.write or (args.all and _ask(f"change {_count(changed)}?")):
        errors += _write(changed)
    elif args.all:
        _print_note(f"nothing is written yet; --yes changes {_count(changed)}")
    else:
        _print_note(f"nothing is written yet; --write changes {', '.join(changed[0].changes)}")
    for error in errors:
        report_error(error)
    if errors:
        sys.exit(1)


def _make_editor(args: Namespace) -> "Callable[[str, ClientFile], FileChange]":
    """Return the function that changes the text of a file."""
    from forebay.config.adopt import adopt_servers, restore_servers

    flags = _collect_option_flags(args)
    names = args.server or []
    if args.undo:
        if flags or args.forebay:
            raise InvalidArgument("--undo needs neither --forebay nor options of `forebay wrap`; leave them out")
        return lambda text, file: restore_servers(text, str(file.path), names, earlier=_parse_backups(str(file.path)))
    command = _find_forebay_command(args.forebay)

    def edit(text: str, file: "ClientFile") -> "FileChange":
        add_server_names = file.client is not None and file.client.knows_tool_names
        return adopt_servers(text, str(file.path), command, flags, names, add_server_names=add_server_names)

    return edit


def _plan_all(
    files: "list[ClientFile]", edit: "Callable[[str, ClientFile], FileChange]", args: Namespace
) -> tuple[list[_Plan], list[ForebayError]]:
    """Plan the changes of files with servers. With --all, a file that cannot be changed does not stop the others."""
    from forebay.config.client_servers import NoServers

    plans: list[_Plan] = []
    errors: list[ForebayError] = []
    for file in files:
        try:
            plans.append(_plan_file(file, edit, args))
        except InvalidArgument as error:
            if not args.all:
                raise
            if not isinstance(error, NoServers):
                errors.append(error)
    return plans, errors


def _plan_file(file: "ClientFile", edit: "Callable[[str, ClientFile], FileChange]", args: Namespace) -> _Plan:
    from forebay.config.adopt import ALREADY_ADOPTED, NOT_ADOPTED, find_tool_problems, list_rule_servers
    from forebay.config.client_servers import read_client_file
    from forebay.config.documents import parse_document

    path = str(file.path)
    text = read_client_file(path)
    change = edit(text, file)
    notes = [
        f"{name} {reason}, and stays as it is"
        for name, reason in change.skip_reasons.items()
        if not args.all or reason not in (ALREADY_ADOPTED, NOT_ADOPTED)
    ]
    document = parse_document(change.text, path)
    servers = list_rule_servers(document, path, is_wrapped=not args.undo)
    new_text, rules, rule_notes = _change_rules(path, change.text, servers, args)
    notes += rule_notes
    if not args.undo:
        notes += [f"{name}: {advice}, or handles cannot be read" for name, advice in find_tool_problems(document, path)]
        notes += [
            f"{name}: if the client signs in to this server with OAuth, forebay cannot do that; add headers to the "
            "server first, or --header 'Authorization: Bearer ${TOKEN}' to its args afterwards"
            for name in change.servers_without_headers
        ]
        if file.is_of_project and change.changed_servers and not args.forebay:
            notes.append(f"{path} is part of a project; if others use it as well, give --forebay forebay")
    return _Plan(file, text, new_text, (*change.changed_servers, *rules), tuple(notes), servers)


def _plan_rules(
    files: "list[ClientFile]", plans: list[_Plan], args: Namespace
) -> tuple[list[_Plan], list[ForebayError]]:
    """Plan the changes of files that have rules on tools, but no servers."""
    from forebay.config.client_servers import read_client_file

    rule_plans: list[_Plan] = []
    errors: list[ForebayError] = []
    for file in files:
        servers = {
            name: tools
            for plan in plans
            if plan.file.client == file.client
            for name, tools in (plan.servers or {}).items()
        }
        if not servers:
            continue
        try:
            text = read_client_file(str(file.path))
            new_text, rules, notes = _change_rules(str(file.path), text, servers, args)
            rule_plans.append(_Plan(file, text, new_text, tuple(rules), tuple(notes)))
        except InvalidArgument as error:
            errors.append(error)
    return rule_plans, errors


def _change_rules(
    path: str, text: str, servers: "dict[str, tuple[str, ...]]", args: Namespace
) -> tuple[str, list[str], list[str]]:
    """Add the rules that allow forebay's tools, or remove them. Return the text, the rules, and notes."""
    from forebay.config.allow_lists import add_rules, find_hidden_tools, remove_rules
    from forebay.config.documents import parse_document

    document = parse_document(text, path)
    if not args.undo:
        hidden = find_hidden_tools(document, servers)
        notes = [f"{path}: {name}: {advice}, or handles cannot be read" for name, advice in hidden]
        return *add_rules(document, servers), notes
    new_text, removed, unsure = remove_rules(document, servers, _parse_backups(path))
    notes = [f"{path} has the rule {rule}; there is no backup that shows who added it, so it stays" for rule in unsure]
    return new_text, removed, notes


def _parse_backups(path: str) -> "list[Document]":
    from forebay.config.documents import parse_document
    from forebay.config.files import read_backups

    backups = []
    for content in read_backups(path):
        # A backup may be of another time and another program.
        with contextlib.suppress(InvalidArgument, UnicodeDecodeError):
            backups.append(parse_document(content.decode(), path))
    return backups


def _show(plans: list[_Plan]) -> None:
    from forebay.config.client_servers import mask_client_file

    for plan in plans:
        path = str(plan.file.path)
        if plan.changes:
            old_text, new_text = (mask_client_file(text, path) for text in (plan.old_text, plan.new_text))
            output.print_bytes(_diff(old_text, new_text, path))
        for note in plan.notes:
            _print_note(note)


def _write(plans: list[_Plan]) -> list[ForebayError]:
    """Write the new texts. Return the errors of those that could not be written."""
    from forebay.config.files import replace_file

    errors: list[ForebayError] = []
    for plan in plans:
        path = str(plan.file.path)
        try:
            backup = replace_file(path, plan.old_text.encode(), plan.new_text.encode())
            _print_note(f"{path} is written; the backup is {backup}, which may hold secrets; delete it when all works")
        except ForebayError as error:
            errors.append(error)
    return errors


def _count(plans: list[_Plan]) -> str:
    return f"{len(plans)} files" if len(plans) > 1 else str(plans[0].file.path)


def _ask(question: str) -> bool:
    """Ask the user on the terminal; without a terminal the answer is no."""
    if sys.stdin is None or sys.stderr is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


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
