"""Puts forebay before the servers of a client's file, and takes it away again, leaving all else as it is.

A server that is a command keeps its text: `npx -y x` becomes `forebay wrap -- npx -y x`. One that is a URL
becomes `forebay wrap --url URL`, and its headers become variables, so that no secret is among the arguments.
"""

import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from forebay.arguments import is_text, meant
from forebay.config.clients import HEADER, servers_in
from forebay.config.jsonc import Edit, Member, Node, edited
from forebay.config.rules import HEADER_NAME
from forebay.errors import InvalidArgument

__all__ = ["Change", "adopted", "is_forebay", "undone"]

_FOREBAY = re.compile(r"(?:.*[/\\])?forebay(?:\.exe|[=@<>~!\[].*)?")
_NOTE = "--adopted="
"""What the command line says for the way back: that there were no args, or what type the server had."""
_NO_ARGS = f"{_NOTE}no-args"
_TYPE = f"{_NOTE}type="


@dataclasses.dataclass(frozen=True, slots=True)
class Change:
    """What a file is to become, which servers change, and why others do not."""

    text: str
    changed: tuple[str, ...]
    left: dict[str, str]
    without_headers: tuple[str, ...]
    """Those of them that are at a URL, and have nothing to be let in with."""


class _Left(Exception):
    """Why a server stays as it is."""


_Editor: TypeAlias = Callable[[str, Node], list[Edit]]


def adopted(text: str, path: str, forebay: Sequence[str], flags: Sequence[str], names: Iterable[str] = ()) -> Change:
    """The file with `forebay wrap` and its flags before each server, or each of those named."""
    for word in (*forebay, *flags):
        if not is_text(word):
            raise InvalidArgument(f"{word!r} is not UTF-8 and cannot be written into {path}; put it in a --config")
    return _changed(text, path, names, lambda text, server: _adopt(text, server, forebay, flags))


def undone(text: str, path: str, names: Iterable[str] = ()) -> Change:
    """The file with each adopted server, or each of those named, as its command says that it was."""
    return _changed(text, path, names, _undo)


def is_forebay(word: str) -> bool:
    """Whether a word of a command is forebay: `/usr/bin/forebay`, `forebay==1.0`."""
    return _FOREBAY.fullmatch(word) is not None


def _changed(text: str, path: str, names: Iterable[str], edit: _Editor) -> Change:
    servers, wanted = servers_in(text, path), [*names]
    for name in wanted:
        if not any(name in (one.name, str(one)) for one in servers):
            hint = meant(name, map(str, servers), f"it has {', '.join(map(str, servers)) or 'none'}")
            raise InvalidArgument(f"{path} has no server {name}; {hint}")
    edits: list[Edit] = []
    changed, left = [], {}
    for one in servers:
        if wanted and one.name not in wanted and str(one) not in wanted:
            continue
        try:
            edits += edit(text, one.node)
            changed.append(one)
        except _Left as why:
            left[str(one)] = str(why)
    without = [str(one) for one in changed if one.node.member("url") and not _members(one.node.member("headers"))]
    return Change(edited(text, edits), tuple(map(str, changed)), left, tuple(without))


def _adopt(text: str, server: Node, forebay: Sequence[str], flags: Sequence[str]) -> list[Edit]:
    command, url = server.member("command"), server.member("url")
    if command is not None and url is not None:
        raise _Left("has both a command and a url; leave one of them")
    if command is not None:
        if _wrapped(server) is not None:
            raise _Left("is behind forebay already")
        return _adopt_command(text, server, command, forebay, flags)
    if url is not None:
        return _adopt_url(text, server, url, forebay, flags)
    raise _Left("has neither a command nor a url")


def _adopt_command(
    text: str, server: Node, command: Member, forebay: Sequence[str], flags: Sequence[str]
) -> list[Edit]:
    args = server.member("args")
    _check_word("a command", command)
    _check_texts("one of its args", *_nodes(args))
    note = [_NO_ARGS] if args is None else []
    own = text[command.node.start : command.node.end]
    words = [*map(_json, [*forebay[1:], "wrap", *flags, *note, "--"]), own]
    first = (command.node.start, command.node.end, _json(forebay[0]))
    if args is None:
        member = f',{_gap(text, command.start)}"args"{_colon(text, command)}[{", ".join(words)}]'
        return [first, (command.end, command.end, member)]
    nodes = _nodes(args)
    if not nodes:
        return [first, (args.node.start + 1, args.node.start + 1, ", ".join(words))]
    between = "," + _gap(text, nodes[0].start)
    return [first, (nodes[0].start, nodes[0].start, "".join(word + between for word in words))]


def _adopt_url(text: str, server: Node, url: Member, forebay: Sequence[str], flags: Sequence[str]) -> list[Edit]:
    if server.member("args") is not None:
        raise _Left("has a url and args; take the args out")
    _check_word("a url", url)
    edits = _headers_to_variables(server)
    note = []
    if (kind := server.member("type")) is not None:
        _check_texts("a type", kind.node)
        note = [f"{_TYPE}{kind.node.value}"]
        edits.append((kind.node.start, kind.node.end, '"stdio"'))
    own = text[url.node.start : url.node.end]
    words = [*map(_json, [*forebay[1:], "wrap", *flags, *note, "--url"]), own]
    command = f'"command"{text[url.key_end : url.node.start]}{_json(forebay[0])}'
    args = f'"args"{_colon(text, url)}[{", ".join(words)}]'
    return [*edits, (url.start, url.end, f"{command},{_gap(text, url.start)}{args}")]


def _headers_to_variables(server: Node) -> list[Edit]:
    headers, env = server.member("headers"), server.member("env")
    variables = _members(env)
    if env is not None and (headers is not None or not variables or any(name.startswith(HEADER) for name in variables)):
        raise _Left("has a url and env; take the env out")
    if headers is None:
        return []
    edits = [(headers.start, headers.key_end, '"env"')]
    for name, member in _members(headers).items():
        if not HEADER_NAME.fullmatch(name):
            raise _Left(f"has a header that cannot be sent: {name!r}")
        _check_texts("a header", member.node)
        edits.append((member.start + 1, member.start + 1, HEADER))
    return edits


@dataclasses.dataclass(frozen=True, slots=True)
class _Wrapped:
    """A command line of forebay's: the words between `wrap` and what it wraps, and that as it stands."""

    command: Member
    args: Member
    options: list[str]
    own: list[Node]
    url: Node | None


def _wrapped(server: Node) -> _Wrapped | None:
    command, args = server.member("command"), server.member("args")
    if command is None or args is None:
        return None
    nodes = [command.node, *_nodes(args)]
    words = [node.value if isinstance(node.value, str) else "" for node in nodes]
    wraps = [at for at, word in enumerate(words) if at and word == "wrap" and is_forebay(words[at - 1])]
    if not wraps:
        return None
    start = wraps[0] + 1
    if "--" in words[start:]:
        end = words.index("--", start)
        return _Wrapped(command, args, words[start:end], nodes[end + 1 :], None)
    if "--url" in words[start:-1]:
        at = words.index("--url", start)
        return _Wrapped(command, args, words[start:], [], nodes[at + 1])
    return None


def _undo(text: str, server: Node) -> list[Edit]:
    wrapped = _wrapped(server)
    if wrapped is None:
        raise _Left("is not behind forebay")
    if wrapped.url is not None:
        return _undo_url(text, server, wrapped, wrapped.url)
    if not wrapped.own:
        raise _Left("has forebay before nothing")
    return _undo_command(text, server, wrapped)


def _undo_command(text: str, server: Node, wrapped: _Wrapped) -> list[Edit]:
    (own, *rest), args = wrapped.own, wrapped.args
    first = (wrapped.command.node.start, wrapped.command.node.end, text[own.start : own.end])
    nodes = _nodes(args)
    if rest:
        return [first, (nodes[0].start, rest[0].start, "")]
    if _NO_ARGS in wrapped.options:
        return [first, _removal(server, args)]
    # A comma that someone put behind the last word has nothing to stand behind.
    comma = re.compile(r"\s*,").match(text, nodes[-1].end)
    return [first, (nodes[0].start, comma.end() if comma else nodes[-1].end, "")]


def _undo_url(text: str, server: Node, wrapped: _Wrapped, url: Node) -> list[Edit]:
    command, args = wrapped.command, wrapped.args
    edits = _variables_to_headers(text, server)
    kind = server.member("type")
    notes = [word.removeprefix(_TYPE) for word in wrapped.options if word.startswith(_TYPE)]
    if kind is not None and notes:
        edits.append((kind.node.start, kind.node.end, _json(notes[0])))
    member = f'"url"{text[command.key_end : command.node.start]}{text[url.start : url.end]}'
    return [*edits, (command.start, command.end, member), _removal(server, args)]


def _variables_to_headers(text: str, server: Node) -> list[Edit]:
    env = server.member("env")
    variables = _members(env)
    are_headers = [text.startswith(HEADER, member.start + 1) for member in variables.values()]
    if env is None or (variables and not any(are_headers)):
        return []
    if not all(are_headers):
        raise _Left("has variables beside its headers; take them out")
    prefixes = [(member.start + 1, member.start + 1 + len(HEADER), "") for member in variables.values()]
    return [(env.start, env.key_end, '"headers"'), *prefixes]


def _removal(server: Node, member: Member) -> Edit:
    """Takes a member out, and the comma that parted it from its neighbour."""
    members = sorted(server.value.values(), key=lambda one: one.start)
    at = members.index(member)
    return (members[at - 1].end, member.end, "") if at else (member.start, members[1].start, "")


def _nodes(member: Member | None) -> list[Node]:
    if member is None:
        return []
    if not isinstance(member.node.value, list):
        raise _Left("has args that are no list")
    return member.node.value


def _members(member: Member | None) -> dict[str, Member]:
    if member is None:
        return {}
    if not isinstance(member.node.value, dict):
        raise _Left("has headers or env that are no object")
    return member.node.value


def _check_texts(what: str, *nodes: Node) -> None:
    if not all(isinstance(node.value, str) for node in nodes):
        raise _Left(f"has {what} that is no text")


def _check_word(what: str, member: Member) -> None:
    _check_texts(what, member.node)
    if not member.node.value:
        raise _Left(f"has {what} that is empty")


def _gap(text: str, at: int) -> str:
    """What stands before a place, if it begins a line: its neighbours look like it then."""
    space = text[len(text[:at].rstrip(" \t\r\n")) : at]
    return space if "\n" in space else " "


def _colon(text: str, member: Member) -> str:
    """How this object parts keys and values, unless there is more than that between them."""
    between = text[member.key_end : member.node.start]
    return between if between.strip() == ":" else ": "


def _json(word: str) -> str:
    return json.dumps(word, ensure_ascii=False)
