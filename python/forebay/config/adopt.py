"""Put `forebay wrap` before the commands of a client's servers, and remove it again. Nothing else in the file changes.

The command `npx -y x` becomes `forebay wrap -- npx -y x`. A URL becomes `forebay wrap --url URL`, and its headers
become environment variables, so that no secret is on the command line. forebay's tools are added to the allow-lists
of the server.
"""

import contextlib
import dataclasses
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TypeAlias

from forebay.arguments import did_you_mean, is_text
from forebay.config.allow_lists import (
    ALLOW_KEYS,
    find_denied_tools,
    find_missing_tools,
    list_tool_names,
)
from forebay.config.client_servers import HEADER_VARIABLE_PREFIX, ServerEntry, find_servers
from forebay.config.documents import CannotEdit, Document, parse_document
from forebay.config.nodes import Edit, Member, Node, apply_edits
from forebay.config.option_types import HEADER_NAME_PATTERN
from forebay.errors import InvalidArgument

__all__ = [
    "ALREADY_ADOPTED",
    "NOT_ADOPTED",
    "FileChange",
    "WrapCommand",
    "adopt_servers",
    "find_tool_problems",
    "find_wrap_command",
    "is_forebay",
    "list_rule_servers",
    "restore_servers",
]

ALREADY_ADOPTED = "is behind forebay already"
NOT_ADOPTED = "is not behind forebay"
_WRAPPED_BEFORE = "was behind forebay before `forebay adopt` (--server NAME removes it there, too)"

_FOREBAY_WORD_PATTERN = re.compile(r"(?:.*[/\\])?forebay(?:\.exe|[=@<>~!\[].*)?")
_NOTE_PREFIX = "--adopted="
"""A hidden flag of `wrap` that tells `--undo` what the file held before: such as `no-args` or `type=http`."""
_NO_ARGS_NOTE = f"{_NOTE_PREFIX}no-args"
_NO_HEADERS_NOTE = f"{_NOTE_PREFIX}no-headers"
_URL_KEY_NOTE = "url"
_SERVER_NAME_FLAG = "--server-name"
_PLAIN_NAME_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,32}")
"""Names of servers that every client puts unchanged into the names of tools. Clients cut long names."""
_TYPE_KEYS = ("type", "transportType")
_PASSED_VARIABLES = "env_vars"
"""Key of the variables that Codex passes on to a server."""

_CLIENT_ONLY_KEYS = (
    "auth",
    "authProviderType",
    "env_http_headers",
    "headersHelper",
    "http_headers_helper",
    "oauth",
    "oauthClient",
    "oauth_resource",
    "tcp",
)
"""Keys of a server at a URL that `forebay wrap` has no equivalent for."""


@dataclasses.dataclass(frozen=True, slots=True)
class FileChange:
    """The new text of a client's file, and the servers that changed."""

    text: str
    changed_servers: tuple[str, ...]
    skip_reasons: dict[str, str]
    """Why other servers did not change, by name of the server."""
    servers_without_headers: tuple[str, ...]
    """Changed servers at a URL that have no headers, and so no credentials."""


_Editor: TypeAlias = Callable[[Document, ServerEntry], list[Edit]]


def adopt_servers(
    text: str,
    path: str,
    forebay_command: Sequence[str],
    flags: Sequence[str],
    names: Iterable[str] = (),
    *,
    add_server_names: bool = False,
) -> FileChange:
    """Put `forebay wrap` and its flags before each server, or before the servers in `names`.

    With `add_server_names`, the flags include the name of the server, so that descriptors can name tools exactly.
    A server is skipped if the change could not be undone to the byte. Raises `InvalidArgument` for an unknown name, or
    if a word of `forebay_command` or `flags` is not UTF-8.
    """
    for word in (*forebay_command, *flags):
        if not is_text(word):
            raise InvalidArgument(f"{word!r} is not UTF-8 and cannot be written into {path}; put it in a --config")
    document = parse_document(text, path)

    def adopt(document: Document, server: ServerEntry) -> list[Edit]:
        has_name = any(flag.startswith(f"{_SERVER_NAME_FLAG}=") for flag in flags)
        if not add_server_names or has_name or not _PLAIN_NAME_PATTERN.fullmatch(server.name):
            return _adopt_server(document, server, forebay_command, flags)
        return _adopt_server(document, server, forebay_command, [*flags, f"{_SERVER_NAME_FLAG}={server.name}"])

    change = _edit_servers(document, path, names, adopt)
    if _can_be_undone(document, change.text, path, change.changed_servers):
        return change

    def adopt_carefully(document: Document, server: ServerEntry) -> list[Edit]:
        edits = adopt(document, server)
        if not _can_be_undone(document, apply_edits(document.text, edits), path, [str(server)]):
            raise CannotEdit("is written in a way that --undo could not restore; write it more plainly")
        return edits

    return _edit_servers(document, path, names, adopt_carefully)


def restore_servers(
    text: str, path: str, names: Collection[str] = (), *, earlier: Iterable[Document] = ()
) -> FileChange:
    """Undo `adopt_servers` for each server, or for the servers in `names`.

    `earlier` are versions of the file from before. A server that was behind forebay in all of them was put there by
    somebody else: unless it is in `names`, only what was added to its entry is removed. Raises `InvalidArgument` for an
    unknown name.
    """
    wrapped_before = set() if names else _find_always_wrapped(earlier, path)

    def restore(document: Document, server: ServerEntry) -> list[Edit]:
        wrap = find_wrap_command(server) if str(server) in wrapped_before else None
        if wrap is None:
            return _restore_server(document, server)
        edits = [*_disallow_tools(document, server, wrap), *_remove_notes(document, wrap)]
        if not edits:
            raise CannotEdit(_WRAPPED_BEFORE)
        return edits

    return _edit_servers(parse_document(text, path), path, names, restore)


def _find_always_wrapped(documents: Iterable[Document], path: str) -> set[str]:
    """Return the names of the servers that are behind forebay in each document that has them."""
    wrapped: set[str] = set()
    plain: set[str] = set()
    for document in documents:
        with contextlib.suppress(InvalidArgument):
            for server in find_servers(document, path):
                with contextlib.suppress(CannotEdit):
                    (plain if find_wrap_command(server) is None else wrapped).add(str(server))
    return wrapped - plain


def list_rule_servers(document: Document, path: str, *, is_wrapped: bool = True) -> dict[str, tuple[str, ...]]:
    """Return the names of forebay's tools, by name of each server that is behind forebay, or of each that is not."""
    servers = {}
    for server in find_servers(document, path):
        with contextlib.suppress(CannotEdit):
            wrap = find_wrap_command(server)
            if (wrap is not None) is is_wrapped:
                servers[server.name] = list_tool_names([] if wrap is None else wrap.options)
    return servers


def find_tool_problems(document: Document, path: str) -> list[tuple[str, str]]:
    """Return the lists in servers' entries that hide forebay's tools: the name of the server, and advice."""
    wrapped = list_rule_servers(document, path)
    problems = []
    for server in find_servers(document, path):
        tools = wrapped.get(server.name, ())
        for key, names in find_missing_tools(server, tools).items():
            problems.append((str(server), f"{key} lacks {', '.join(names)}; add them, which `forebay adopt` does"))
        problems += [(str(server), advice) for advice in find_denied_tools(server, tools)]
    return problems


def is_forebay(word: str) -> bool:
    """Return whether a word of a command is forebay, such as `/usr/bin/forebay` or `forebay==1.0`."""
    return _FOREBAY_WORD_PATTERN.fullmatch(word) is not None


def _edit_servers(document: Document, path: str, names: Iterable[str], edit: _Editor) -> FileChange:
    servers, requested = find_servers(document, path), [*names]
    for name in requested:
        if not any(name in (server.name, str(server)) for server in servers):
            hint = did_you_mean(name, map(str, servers), f"it has {', '.join(map(str, servers)) or 'none'}")
            raise InvalidArgument(f"{path} has no server {name}; {hint}")
    edits: list[Edit] = []
    changed: list[ServerEntry] = []
    skip_reasons = {}
    for server in servers:
        if requested and server.name not in requested and str(server) not in requested:
            continue
        try:
            edits += edit(document, server)
            changed.append(server)
        except CannotEdit as reason:
            skip_reasons[str(server)] = str(reason)
    without_headers = [str(server) for server in changed if server.urls and not _has_credentials(server)]
    return FileChange(apply_edits(document.text, edits), tuple(map(str, changed)), skip_reasons, tuple(without_headers))


def _has_credentials(server: ServerEntry) -> bool:
    variable = server.dialect.bearer_variable
    return bool(_list_members(server.headers)) or (variable is not None and variable in server.node.value)


def _can_be_undone(document: Document, new_text: str, path: str, names: Iterable[str]) -> bool:
    """Return whether a changed text starts the same servers behind forebay, and can be restored to the byte."""
    try:
        new_document = parse_document(new_text, path)
        new_servers = {str(server): server for server in find_servers(new_document, path)}
        old_servers = {str(server): server for server in find_servers(document, path)}
        for name in names:
            wrap = find_wrap_command(new_servers[name])
            if wrap is None or wrap.list_targets() != _list_targets(old_servers[name]):
                return False
        old_text = _edit_servers(document, path, (), _restore_server).text
        return _edit_servers(new_document, path, (), _restore_server).text == old_text
    except (InvalidArgument, CannotEdit, KeyError):
        return False


def _list_targets(server: ServerEntry) -> list[str]:
    """Return the words of a server's own command, or its URL."""
    wrap = find_wrap_command(server)
    if wrap is not None:
        return wrap.list_targets()
    nodes = [member.node for member in server.urls.values()] or _list_word_nodes(server)
    return [str(node.value) for node in nodes]


def _adopt_server(
    document: Document, server: ServerEntry, forebay_command: Sequence[str], flags: Sequence[str]
) -> list[Edit]:
    command, urls = server.command, server.urls
    if command is not None and urls:
        raise CannotEdit("has both a command and a url; leave one of them")
    if len(urls) > 1:
        raise CannotEdit(f"has {' and '.join(urls)}; leave one of them")
    wrap = find_wrap_command(server)
    options = flags if wrap is None else wrap.options
    edits, notes = _allow_tools(document, server, list_tool_names(options))
    if wrap is not None:
        if not edits:
            raise CannotEdit(ALREADY_ADOPTED)
        return [*edits, document.insert_items(wrap.words, wrap.start, [document.quote(note) for note in notes])]
    if command is not None:
        return [*edits, *_adopt_command(document, server, command, forebay_command, [*flags, *notes])]
    for key, url in urls.items():
        return [*edits, *_adopt_url(document, server, key, url, forebay_command, [*flags, *notes])]
    raise CannotEdit("has neither a command nor a url")


def _allow_tools(document: Document, server: ServerEntry, names: Sequence[str]) -> tuple[list[Edit], list[str]]:
    """Add tools to the allow-lists of a server. Return the edits, and the notes that undo them."""
    edits, notes = [], []
    for key, missing in find_missing_tools(server, names).items():
        items = server.entry.value[key].node.value
        edits.append(document.append_items(items, [document.quote(name) for name in missing]))
        notes.append(f"{_NOTE_PREFIX}{key}={','.join(missing)}")
    return edits, notes


def _adopt_command(
    document: Document, server: ServerEntry, command: Member, forebay_command: Sequence[str], flags: Sequence[str]
) -> list[Edit]:
    nodes = _list_word_nodes(server)
    _require_strings("a command", *nodes[:1])
    _require_strings("one of its args", *nodes[1:])
    if not nodes or not nodes[0].value:
        raise CannotEdit("has a command that is empty")
    if server.dialect.args is None:
        words = [*forebay_command, "wrap", *flags, "--"]
        return [document.insert_items(nodes, 0, [*map(document.quote, words)])]
    args = server.args
    notes = [_NO_ARGS_NOTE] if args is None else []
    words = [*forebay_command[1:], "wrap", *flags, *notes, "--"]
    raw_words = [*map(document.quote, words), document.get_raw(command.node)]
    new_command = document.replace_value(command.node, document.quote(forebay_command[0]))
    if args is None:
        return [new_command, document.insert_list(server.node, command, server.dialect.args, raw_words)]
    if not args.node.value:
        return [new_command, document.fill_list(args.node, raw_words)]
    return [new_command, document.insert_items(args.node.value, 0, raw_words)]


def _adopt_url(
    document: Document,
    server: ServerEntry,
    key: str,
    url: Member,
    forebay_command: Sequence[str],
    flags: Sequence[str],
) -> list[Edit]:
    dialect = server.dialect
    if server.args is not None:
        raise CannotEdit("has a url and args; take the args out")
    for name in _CLIENT_ONLY_KEYS:
        if name in server.node.value or name in server.entry.value:
            raise CannotEdit(f"has {name}, which only its client understands; replace it by {dialect.headers}")
    _require_strings("a url", url.node)
    if not url.node.value:
        raise CannotEdit("has a url that is empty")
    edits, notes = _rename_headers_to_variables(document, server)
    if key != dialect.urls[0]:
        notes.append(f"{_NOTE_PREFIX}{_URL_KEY_NOTE}={key}")
    for type_key in _TYPE_KEYS:
        if (server_type := server.node.get_member(type_key)) is not None:
            _require_strings("a type", server_type.node)
            notes.append(f"{_NOTE_PREFIX}{type_key}={server_type.node.value}")
            edits.append(document.replace_string(server_type.node, dialect.local_type))
    bearer_edits, bearer_words = _pass_bearer_variable(document, server)
    words = [*forebay_command[1:], "wrap", *flags, *notes, *bearer_words, "--url"]
    edits += [*bearer_edits, document.rename_key(url, dialect.command)]
    raw_words, raw_url = [*map(document.quote, words)], document.get_raw(url.node)
    program = document.quote(forebay_command[0])
    if dialect.args is None:
        return [*edits, document.replace_value(url.node, f"[{', '.join([program, *raw_words, raw_url])}]")]
    return [
        *edits,
        document.replace_value(url.node, program),
        document.insert_list(server.node, url, dialect.args, [*raw_words, raw_url]),
    ]


def _pass_bearer_variable(document: Document, server: ServerEntry) -> tuple[list[Edit], list[str]]:
    """Let Codex pass the variable with the bearer token on to forebay. Return the edits and the words for `wrap`."""
    key = server.dialect.bearer_variable
    member = None if key is None else server.node.get_member(key)
    if member is None:
        return [], []
    _require_strings("a variable", member.node)
    if _PASSED_VARIABLES in server.node.value:
        raise CannotEdit(f"has {_PASSED_VARIABLES} and a url; take the {_PASSED_VARIABLES} out")
    edits = [
        document.rename_key(member, _PASSED_VARIABLES),
        document.replace_value(member.node, f"[{document.get_raw(member.node)}]"),
    ]
    return edits, [f"{_NOTE_PREFIX}{key}", "--header", f"Authorization: Bearer ${{{member.node.value}}}"]


def _rename_headers_to_variables(document: Document, server: ServerEntry) -> tuple[list[Edit], list[str]]:
    """Return the edits that make variables of headers, and the notes that undo them."""
    headers, env = server.headers, server.env
    values, variables = _list_members(headers), _list_members(env)
    if any(name.startswith(HEADER_VARIABLE_PREFIX) for name in variables):
        raise CannotEdit("has a url and variables of forebay; take them out")
    if headers is None or (env is not None and not values):
        return [], []
    if variables:
        raise CannotEdit("has headers and variables; take the variables out")
    edits = [document.rename_key(headers, server.dialect.env)]
    if env is not None:
        # Each takes the other's name, so that the file keeps both.
        edits.append(document.rename_key(env, server.dialect.headers))
    for name, member in values.items():
        if not HEADER_NAME_PATTERN.fullmatch(name):
            raise CannotEdit(f"has a header that cannot be sent: {name!r}")
        _require_strings("a header", member.node)
        edits.append(document.prefix_key(member, HEADER_VARIABLE_PREFIX))
    return edits, [] if values else [_NO_HEADERS_NOTE]


@dataclasses.dataclass(frozen=True, slots=True)
class WrapCommand:
    """A server whose command is `forebay wrap`."""

    command: Member
    args: Member | None
    """`None` if the command and its arguments are one list."""
    words: list[Node]
    """The command and its arguments."""
    start: int
    """Index of the first word after `wrap`."""
    options: list[str]
    """The options of `wrap`, with the URL if there is one."""
    server_words: list[Node]
    """The server's own command; nothing if it has a URL."""
    url: Node | None

    def list_targets(self) -> list[str]:
        """Return the words of the server's own command, or its URL."""
        return [str(node.value) for node in ([self.url] if self.url is not None else self.server_words)]

    def get_notes(self) -> dict[str, str]:
        """Return the notes that say what the file held before, by key."""
        notes = [word.removeprefix(_NOTE_PREFIX) for word in self.options if word.startswith(_NOTE_PREFIX)]
        return {key: value for key, _, value in (note.partition("=") for note in notes)}


def find_wrap_command(server: ServerEntry) -> WrapCommand | None:
    """Return the parts of a server's command if it is `forebay wrap`."""
    command, args = server.command, server.args
    if command is None:
        return None
    nodes = _list_word_nodes(server)
    words = [node.value if isinstance(node.value, str) else "" for node in nodes]
    positions = [index for index, word in enumerate(words) if index and word == "wrap" and is_forebay(words[index - 1])]
    if not positions:
        return None
    start = positions[0] + 1
    if "--" in words[start:]:
        end = words.index("--", start)
        return WrapCommand(command, args, nodes, start, words[start:end], nodes[end + 1 :], None)
    if "--url" in words[start:-1]:
        return WrapCommand(command, args, nodes, start, words[start:], [], nodes[words.index("--url", start) + 1])
    return None


def _restore_server(document: Document, server: ServerEntry) -> list[Edit]:
    wrap = find_wrap_command(server)
    if wrap is None:
        raise CannotEdit(NOT_ADOPTED)
    edits = [*_disallow_tools(document, server, wrap)]
    if wrap.url is not None:
        return [*edits, *_restore_url(document, server, wrap, wrap.url)]
    if not wrap.server_words:
        raise CannotEdit("has forebay before nothing")
    return [*edits, *_restore_command(document, server, wrap)]


def _disallow_tools(document: Document, server: ServerEntry, wrap: WrapCommand) -> Iterator[Edit]:
    """Remove the tools that were added to the allow-lists of a server."""
    for key, value in wrap.get_notes().items():
        member = server.entry.get_member(key) if key in ALLOW_KEYS else None
        if member is not None and isinstance(member.node.value, list):
            added = value.split(",")
            indexes = [index for index, item in enumerate(member.node.value) if item.value in added]
            yield from document.remove_items(member, indexes)


def _remove_notes(document: Document, wrap: WrapCommand) -> list[Edit]:
    """Remove the notes among the options of `wrap`."""
    # Without args, the command itself is the list.
    words, skipped = (wrap.command, 0) if wrap.args is None else (wrap.args, 1)
    indexes = [index for index, option in enumerate(wrap.options, wrap.start) if option.startswith(_NOTE_PREFIX)]
    return document.remove_items(words, [index - skipped for index in indexes])


def _restore_command(document: Document, server: ServerEntry, wrap: WrapCommand) -> list[Edit]:
    first, *server_args = wrap.server_words
    if wrap.args is None:
        return [(wrap.words[0].start, first.start, "")]
    new_command = document.replace_value(wrap.command.node, document.get_raw(first))
    if server_args:
        return [new_command, (wrap.words[1].start, server_args[0].start, "")]
    if _NO_ARGS_NOTE in wrap.options:
        return [new_command, document.remove_member(server.node, wrap.args)]
    return [new_command, document.empty_list(wrap.args)]


def _restore_url(document: Document, server: ServerEntry, wrap: WrapCommand, url: Node) -> list[Edit]:
    dialect, notes = server.dialect, wrap.get_notes()
    edits = _rename_variables_to_headers(document, server, wrap.options)
    for key in _TYPE_KEYS:
        if key in notes and (server_type := server.node.get_member(key)) is not None:
            edits.append(document.replace_string(server_type.node, notes[key]))
    if dialect.bearer_variable in notes and (variables := server.node.get_member(_PASSED_VARIABLES)) is not None:
        first, *others = variables.node.value
        if others:
            raise CannotEdit(f"has {_PASSED_VARIABLES} beside that of its token; take them out")
        edits += [
            document.rename_key(variables, str(dialect.bearer_variable)),
            document.replace_value(variables.node, document.get_raw(first)),
        ]
    edits += [
        document.rename_key(wrap.command, notes.get(_URL_KEY_NOTE, dialect.urls[0])),
        document.replace_value(wrap.command.node, document.get_raw(url)),
    ]
    return edits if wrap.args is None else [*edits, document.remove_member(server.node, wrap.args)]


def _rename_variables_to_headers(document: Document, server: ServerEntry, options: Sequence[str]) -> list[Edit]:
    env, headers = server.env, server.headers
    variables = _list_members(env)
    are_headers = [name.startswith(HEADER_VARIABLE_PREFIX) for name in variables]
    if env is None or not (any(are_headers) if variables else _NO_HEADERS_NOTE in options):
        return []
    if not all(are_headers):
        raise CannotEdit("has variables beside its headers; take them out")
    edits = [document.rename_key(env, server.dialect.headers)]
    if headers is not None:
        edits.append(document.rename_key(headers, server.dialect.env))
    for member in variables.values():
        start, _, _ = document.prefix_key(member, "")
        edits.append((start, start + len(HEADER_VARIABLE_PREFIX), ""))
    return edits


def _list_word_nodes(server: ServerEntry) -> list[Node]:
    """Return the command of a server and its arguments."""
    command, args = server.command, server.args
    if command is None:
        return []
    if server.dialect.args is None:
        return _list_items(command, "a command that is no list")
    return [command.node, *(_list_items(args, "args that are no list") if args is not None else [])]


def _list_items(member: Member, problem: str) -> list[Node]:
    if not isinstance(member.node.value, list):
        raise CannotEdit(f"has {problem}")
    return member.node.value


def _list_members(member: Member | None) -> dict[str, Member]:
    if member is None:
        return {}
    if not isinstance(member.node.value, dict):
        raise CannotEdit("has headers or env that are no object")
    return member.node.value


def _require_strings(label: str, *nodes: Node) -> None:
    if not all(isinstance(node.value, str) for node in nodes):
        raise CannotEdit(f"has {label} that is no text")
