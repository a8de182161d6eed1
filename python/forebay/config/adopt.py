"""Put `forebay wrap` before the commands of a client's servers, and remove it again. Nothing else in the file changes.

The command `npx -y x` becomes `forebay wrap -- npx -y x`. A URL becomes `forebay wrap --url URL`, and its headers
become environment variables, so that no secret is on the command line.
"""

import dataclasses
import itertools
import json
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from forebay.arguments import did_you_mean, is_text
from forebay.config.clients import HEADER_VARIABLE_PREFIX, find_servers
from forebay.config.jsonc import Edit, Member, Node, apply_edits
from forebay.config.option_types import HEADER_NAME_PATTERN
from forebay.errors import ForebayError, InvalidArgument

__all__ = ["FileChange", "FileNotChanged", "adopt_servers", "is_forebay", "replace_file", "restore_servers"]

_FOREBAY_WORD_PATTERN = re.compile(r"(?:.*[/\\])?forebay(?:\.exe|[=@<>~!\[].*)?")
_NOTE_PREFIX = "--adopted="
"""A hidden flag of `wrap` that tells `--undo` what the file held before: that the server had no args, or its type."""
_NO_ARGS_NOTE = f"{_NOTE_PREFIX}no-args"
_TYPE_NOTE_PREFIX = f"{_NOTE_PREFIX}type="
_BACKUP_SUFFIX = ".forebay-backup"


@dataclasses.dataclass(frozen=True, slots=True)
class FileChange:
    """The new text of a client's file, and the servers that changed."""

    text: str
    changed_servers: tuple[str, ...]
    skip_reasons: dict[str, str]
    """Why other servers did not change, by name of the server."""
    servers_without_headers: tuple[str, ...]
    """Changed servers at a URL that have no headers, and so no credentials."""


class _SkipServer(Exception):
    """The reason why a server is not changed."""


_Editor: TypeAlias = Callable[[str, Node], list[Edit]]


def adopt_servers(
    text: str, path: str, forebay_command: Sequence[str], flags: Sequence[str], names: Iterable[str] = ()
) -> FileChange:
    """Put `forebay wrap` and its flags before each server, or before the servers in `names`.

    Raises `InvalidArgument` for an unknown name, or if a word of `forebay_command` or `flags` is not UTF-8.
    """
    for word in (*forebay_command, *flags):
        if not is_text(word):
            raise InvalidArgument(f"{word!r} is not UTF-8 and cannot be written into {path}; put it in a --config")
    return _edit_servers(text, path, names, lambda text, server: _adopt_server(text, server, forebay_command, flags))


def restore_servers(text: str, path: str, names: Iterable[str] = ()) -> FileChange:
    """Undo `adopt_servers` for each server, or for the servers in `names`.

    Raises `InvalidArgument` for an unknown name.
    """
    return _edit_servers(text, path, names, _restore_server)


def is_forebay(word: str) -> bool:
    """Return whether a word of a command is forebay, such as `/usr/bin/forebay` or `forebay==1.0`."""
    return _FOREBAY_WORD_PATTERN.fullmatch(word) is not None


def _edit_servers(text: str, path: str, names: Iterable[str], edit: _Editor) -> FileChange:
    servers, requested = find_servers(text, path), [*names]
    for name in requested:
        if not any(name in (server.name, str(server)) for server in servers):
            hint = did_you_mean(name, map(str, servers), f"it has {', '.join(map(str, servers)) or 'none'}")
            raise InvalidArgument(f"{path} has no server {name}; {hint}")
    edits: list[Edit] = []
    changed, skip_reasons = [], {}
    for server in servers:
        if requested and server.name not in requested and str(server) not in requested:
            continue
        try:
            edits += edit(text, server.node)
            changed.append(server)
        except _SkipServer as reason:
            skip_reasons[str(server)] = str(reason)
    without_headers = [
        str(server)
        for server in changed
        if server.node.get_member("url") and not _list_object_members(server.node.get_member("headers"))
    ]
    return FileChange(apply_edits(text, edits), tuple(map(str, changed)), skip_reasons, tuple(without_headers))


def _adopt_server(text: str, server: Node, forebay_command: Sequence[str], flags: Sequence[str]) -> list[Edit]:
    command, url = server.get_member("command"), server.get_member("url")
    if command is not None and url is not None:
        raise _SkipServer("has both a command and a url; leave one of them")
    if command is not None:
        if _find_wrap_command(server) is not None:
            raise _SkipServer("is behind forebay already")
        return _adopt_command(text, server, command, forebay_command, flags)
    if url is not None:
        return _adopt_url(text, server, url, forebay_command, flags)
    raise _SkipServer("has neither a command nor a url")


def _adopt_command(
    text: str, server: Node, command: Member, forebay_command: Sequence[str], flags: Sequence[str]
) -> list[Edit]:
    args = server.get_member("args")
    _require_nonempty_string("a command", command)
    _require_strings("one of its args", *_list_array_nodes(args))
    notes = [_NO_ARGS_NOTE] if args is None else []
    server_command = text[command.node.start : command.node.end]
    words = [*map(_quote, [*forebay_command[1:], "wrap", *flags, *notes, "--"]), server_command]
    new_command = (command.node.start, command.node.end, _quote(forebay_command[0]))
    if args is None:
        whitespace, separator = _get_leading_whitespace(text, command.start), _find_key_separator(text, command)
        member = f',{whitespace}"args"{separator}[{", ".join(words)}]'
        return [new_command, (command.end, command.end, member)]
    nodes = _list_array_nodes(args)
    if not nodes:
        return [new_command, (args.node.start + 1, args.node.start + 1, ", ".join(words))]
    separator = "," + _get_leading_whitespace(text, nodes[0].start)
    return [new_command, (nodes[0].start, nodes[0].start, "".join(word + separator for word in words))]


def _adopt_url(
    text: str, server: Node, url: Member, forebay_command: Sequence[str], flags: Sequence[str]
) -> list[Edit]:
    if server.get_member("args") is not None:
        raise _SkipServer("has a url and args; take the args out")
    _require_nonempty_string("a url", url)
    edits = _rename_headers_to_variables(server)
    notes = []
    if (server_type := server.get_member("type")) is not None:
        _require_strings("a type", server_type.node)
        notes = [f"{_TYPE_NOTE_PREFIX}{server_type.node.value}"]
        edits.append((server_type.node.start, server_type.node.end, '"stdio"'))
    server_url = text[url.node.start : url.node.end]
    words = [*map(_quote, [*forebay_command[1:], "wrap", *flags, *notes, "--url"]), server_url]
    command = f'"command"{text[url.key_end : url.node.start]}{_quote(forebay_command[0])}'
    args = f'"args"{_find_key_separator(text, url)}[{", ".join(words)}]'
    return [*edits, (url.start, url.end, f"{command},{_get_leading_whitespace(text, url.start)}{args}")]


def _rename_headers_to_variables(server: Node) -> list[Edit]:
    headers, env = server.get_member("headers"), server.get_member("env")
    variables = _list_object_members(env)
    if env is not None and (
        headers is not None or not variables or any(name.startswith(HEADER_VARIABLE_PREFIX) for name in variables)
    ):
        raise _SkipServer("has a url and env; take the env out")
    if headers is None:
        return []
    edits = [(headers.start, headers.key_end, '"env"')]
    for name, member in _list_object_members(headers).items():
        if not HEADER_NAME_PATTERN.fullmatch(name):
            raise _SkipServer(f"has a header that cannot be sent: {name!r}")
        _require_strings("a header", member.node)
        edits.append((member.start + 1, member.start + 1, HEADER_VARIABLE_PREFIX))
    return edits


@dataclasses.dataclass(frozen=True, slots=True)
class _WrapCommand:
    """A server whose command is `forebay wrap`: the options of `wrap`, and the server's own command or URL."""

    command: Member
    args: Member
    options: list[str]
    server_words: list[Node]
    url: Node | None


def _find_wrap_command(server: Node) -> _WrapCommand | None:
    command, args = server.get_member("command"), server.get_member("args")
    if command is None or args is None:
        return None
    nodes = [command.node, *_list_array_nodes(args)]
    words = [node.value if isinstance(node.value, str) else "" for node in nodes]
    positions = [index for index, word in enumerate(words) if index and word == "wrap" and is_forebay(words[index - 1])]
    if not positions:
        return None
    start = positions[0] + 1
    if "--" in words[start:]:
        end = words.index("--", start)
        return _WrapCommand(command, args, words[start:end], nodes[end + 1 :], None)
    if "--url" in words[start:-1]:
        url_index = words.index("--url", start) + 1
        return _WrapCommand(command, args, words[start:], [], nodes[url_index])
    return None


def _restore_server(text: str, server: Node) -> list[Edit]:
    wrap = _find_wrap_command(server)
    if wrap is None:
        raise _SkipServer("is not behind forebay")
    if wrap.url is not None:
        return _restore_url(text, server, wrap, wrap.url)
    if not wrap.server_words:
        raise _SkipServer("has forebay before nothing")
    return _restore_command(text, server, wrap)


def _restore_command(text: str, server: Node, wrap_command: _WrapCommand) -> list[Edit]:
    (command, *server_args), args = wrap_command.server_words, wrap_command.args
    new_command = (wrap_command.command.node.start, wrap_command.command.node.end, text[command.start : command.end])
    nodes = _list_array_nodes(args)
    if server_args:
        return [new_command, (nodes[0].start, server_args[0].start, "")]
    if _NO_ARGS_NOTE in wrap_command.options:
        return [new_command, _remove_member(server, args)]
    # Also remove a trailing comma.
    comma = re.compile(r"\s*,").match(text, nodes[-1].end)
    return [new_command, (nodes[0].start, comma.end() if comma else nodes[-1].end, "")]


def _restore_url(text: str, server: Node, wrap_command: _WrapCommand, url: Node) -> list[Edit]:
    command, args = wrap_command.command, wrap_command.args
    edits = _rename_variables_to_headers(text, server)
    server_type = server.get_member("type")
    notes = [
        word.removeprefix(_TYPE_NOTE_PREFIX) for word in wrap_command.options if word.startswith(_TYPE_NOTE_PREFIX)
    ]
    if server_type is not None and notes:
        edits.append((server_type.node.start, server_type.node.end, _quote(notes[0])))
    member = f'"url"{text[command.key_end : command.node.start]}{text[url.start : url.end]}'
    return [*edits, (command.start, command.end, member), _remove_member(server, args)]


def _rename_variables_to_headers(text: str, server: Node) -> list[Edit]:
    env = server.get_member("env")
    variables = _list_object_members(env)
    are_headers = [text.startswith(HEADER_VARIABLE_PREFIX, member.start + 1) for member in variables.values()]
    if env is None or (variables and not any(are_headers)):
        return []
    if not all(are_headers):
        raise _SkipServer("has variables beside its headers; take them out")
    prefixes = [(member.start + 1, member.start + 1 + len(HEADER_VARIABLE_PREFIX), "") for member in variables.values()]
    return [(env.start, env.key_end, '"headers"'), *prefixes]


def _remove_member(server: Node, member: Member) -> Edit:
    """Remove a member and the comma between it and its neighbour."""
    members = sorted(server.value.values(), key=lambda other: other.start)
    index = members.index(member)
    return (members[index - 1].end, member.end, "") if index else (member.start, members[1].start, "")


def _list_array_nodes(member: Member | None) -> list[Node]:
    if member is None:
        return []
    if not isinstance(member.node.value, list):
        raise _SkipServer("has args that are no list")
    return member.node.value


def _list_object_members(member: Member | None) -> dict[str, Member]:
    if member is None:
        return {}
    if not isinstance(member.node.value, dict):
        raise _SkipServer("has headers or env that are no object")
    return member.node.value


def _require_strings(label: str, *nodes: Node) -> None:
    if not all(isinstance(node.value, str) for node in nodes):
        raise _SkipServer(f"has {label} that is no text")


def _require_nonempty_string(label: str, member: Member) -> None:
    _require_strings(label, member.node)
    if not member.node.value:
        raise _SkipServer(f"has {label} that is empty")


def _get_leading_whitespace(text: str, position: int) -> str:
    """Return the line break and indentation before a position, or a space if there is no line break before it."""
    space = text[len(text[:position].rstrip(" \t\r\n")) : position]
    return space if "\n" in space else " "


def _find_key_separator(text: str, member: Member) -> str:
    """Return the text between a member's key and value, or `": "` if that text contains a comment."""
    between = text[member.key_end : member.node.start]
    return between if between.strip() == ":" else ": "


def _quote(word: str) -> str:
    return json.dumps(word, ensure_ascii=False)


class FileNotChanged(ForebayError, OSError):
    """A file could not be written and is unchanged."""

    code = "file_not_changed"


class _OwnerMismatch(OSError):
    """The new file cannot be given to the owner of the old file, who could then not read the new file."""


def replace_file(path: str, old_content: bytes, new_content: bytes) -> Path:
    """Replace the content of a file atomically, and return the path of the backup. Owner and permissions are kept.

    Raises `InvalidArgument` if the file no longer holds `old_content`, and `FileNotChanged` if it cannot be written.
    """
    # If the path is a symbolic link, replace the file that it points to, not the link.
    file = Path(os.path.realpath(path))
    try:
        backup = _write_backup(file, old_content)
        temporary = _write_temporary(file, new_content)
        try:
            if file.read_bytes() != old_content:
                raise InvalidArgument(f"{path} was changed meanwhile, and is as it was left; run this again")
            temporary.replace(file)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except _OwnerMismatch:
        raise FileNotChanged(f"{path} belongs to another user or group; run this as its owner") from None
    except OSError as error:
        raise FileNotChanged(f"{path} cannot be changed: {error.strerror}; it is as it was") from None
    return backup


def _write_backup(file: Path, content: bytes) -> Path:
    """Write a backup beside the file, unless there is one with the same bytes."""
    for backup in _iter_backup_names(file):
        try:
            descriptor = os.open(backup, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            if backup.read_bytes() == content:
                return backup
            continue
        _write_file(descriptor, backup, file, content)
        return backup
    raise AssertionError("_iter_backup_names() is infinite")


def _iter_backup_names(file: Path) -> Iterator[Path]:
    yield file.with_name(file.name + _BACKUP_SUFFIX)
    for number in itertools.count(2):
        yield file.with_name(f"{file.name}{_BACKUP_SUFFIX}-{number}")


def _write_temporary(file: Path, content: bytes) -> Path:
    descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    _write_file(descriptor, Path(name), file, content)
    return Path(name)


def _write_file(descriptor: int, new_path: Path, old_path: Path, data: bytes) -> None:
    """Write a new file with the owner and permissions of the old one. If this fails, remove the new file."""
    try:
        with open(descriptor, "wb") as out:
            _copy_ownership(descriptor, old_path.stat())
            out.write(data)
            out.flush()
            os.fsync(descriptor)
    except BaseException:
        new_path.unlink(missing_ok=True)
        raise


def _copy_ownership(descriptor: int, old_status: os.stat_result) -> None:
    try:
        os.fchown(descriptor, old_status.st_uid, old_status.st_gid)
    except PermissionError:
        raise _OwnerMismatch from None
    # Set the permissions last, because changing the owner may clear permission bits.
    os.fchmod(descriptor, stat.S_IMODE(old_status.st_mode))
