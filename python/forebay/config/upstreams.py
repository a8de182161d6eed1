"""What `forebay serve` puts behind one server: MCP by command or URL, an OpenAPI document, a Python module."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from forebay.arguments import did_you_mean
from forebay.config.config_file import ConfigFile, expand_variables
from forebay.config.option_types import HEADERS, PREFIX, TEXT, URL
from forebay.errors import InvalidArgument

__all__ = ["UPSTREAM_KEYS", "UpstreamConfig", "check_prefixes", "parse_upstream", "parse_upstreams"]

UPSTREAM_KEYS = {
    "command": ("args", "env", "cwd"),
    "url": ("headers",),
    "openapi": ("base_url", "headers", "auth"),
    "python": (),
}
"""What an upstream may be, and what else each may say; any may have a prefix."""

_UPSTREAM_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamConfig:
    """One upstream. Which of `command`, `url`, `openapi` and `python` it has says what it is."""

    name: str
    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    cwd: str | None = None
    url: str | None = None
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    openapi: str | None = None
    """A path, or an address."""
    base_url: str | None = None
    auth: Mapping[str, str | tuple[str, str]] = dataclasses.field(default_factory=dict, repr=False)
    """A key or token, or user and password, by the names of the document's security schemes."""
    python: str | None = None
    folder: str | None = None
    """Where the module may be, too: the folder of the file that names it."""
    prefix: str | None = None
    """Goes before the names of its tools; without one, only on a clash."""

    @property
    def kind(self) -> str:
        return next(kind for kind in UPSTREAM_KEYS if getattr(self, kind) is not None)


def _parse_command(value: Any) -> str:
    if isinstance(value, list):
        raise ValueError('a text, such as "npx"; what follows it is in args, a list of texts')
    return str(TEXT.parse(value))


def _parse_strings(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise ValueError('a list of texts, such as ["-y", "some-server"]')
    return tuple(value)


def _parse_variables(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise ValueError('a table of texts, such as { LANG = "C.UTF-8" }')
    return dict(value)


def _parse_auth(value: Any) -> dict[str, str | tuple[str, str]]:
    what = 'a token, or ["user", "password"], by the name of a security scheme'
    if not isinstance(value, dict):
        raise ValueError(what)
    for given in value.values():
        is_basic = isinstance(given, list) and len(given) == 2 and all(isinstance(text, str) for text in given)
        if not is_basic and not isinstance(given, str):
            raise ValueError(what)
    return {name: given if isinstance(given, str) else (given[0], given[1]) for name, given in value.items()}


_PARSERS: dict[str, Callable[[Any], Any]] = {
    "command": _parse_command,
    "args": _parse_strings,
    "env": _parse_variables,
    "cwd": TEXT.parse,
    "url": URL.parse,
    "headers": HEADERS.parse,
    "openapi": TEXT.parse,
    "base_url": URL.parse,
    "auth": _parse_auth,
    "python": TEXT.parse,
    "prefix": PREFIX.parse,
}


def parse_upstreams(document: ConfigFile, environ: Mapping[str, str]) -> dict[str, UpstreamConfig]:
    """The upstreams of a forebay.toml."""
    tables = document.values.get("upstreams", {})
    if not isinstance(tables, dict):
        raise InvalidArgument(f"{document.location('upstreams')}: upstreams are tables, such as [upstreams.files]")
    found = {}
    for name, table in tables.items():
        if not isinstance(table, dict):
            place = document.location("upstreams", name)
            raise InvalidArgument(f"{place}: an upstream is a table, such as [upstreams.{name}]")

        def place_of(*keys: str, name: str = name) -> str:
            return document.location("upstreams", name, *keys)

        target = parse_upstream(name, table, place_of, lambda written: expand_variables(written, environ))
        found[name] = _resolve_paths(target, document)
    check_prefixes(found, document)
    return found


def check_prefixes(targets: Mapping[str, UpstreamConfig], document: ConfigFile) -> None:
    """Refuses prefixes by which nobody could tell whose a tool is: of two upstreams, or the name of another.

    A name goes before a tool as a prefix does, where two tools are called the same.
    """
    owners: dict[str, str] = {}
    for name, target in targets.items():
        if not target.prefix:
            continue
        place = document.location("upstreams", name, "prefix")
        owner = owners.setdefault(target.prefix, name)
        if owner != name:
            raise InvalidArgument(
                f"{place}: the upstreams {owner} and {name} have the same prefix {target.prefix}; give one another"
            )
        named = target.prefix.rstrip("_.-")
        if named != name and named in targets:
            raise InvalidArgument(
                f"{place}: the prefix {target.prefix} of the upstream {name} is what tools of the upstream {named} "
                f"have before them when they clash; give {name} another prefix, or rename {named}"
            )


def parse_upstream(
    name: str,
    table: Mapping[str, Any],
    location_of: Callable[..., str],
    expand: Callable[[Any], Any] = lambda value: value,
) -> UpstreamConfig:
    """What a table says of an upstream; `place_of` names where a key is written, `expand` reads its variables."""
    if not _UPSTREAM_NAME.fullmatch(name):
        raise InvalidArgument(f"{location_of()}: upstreams have names of letters, digits, dots, dashes and underscores")
    _check_keys(name, table, location_of)
    read = {}
    for key, written in table.items():
        try:
            read[key] = _PARSERS[key](expand(written))
        except ValueError as error:
            raise InvalidArgument(f"{location_of(key)}: {key} of the upstream {name}: {error}") from None
    return UpstreamConfig(name=name, **read)


def _check_keys(name: str, table: Mapping[str, Any], location_of: Callable[..., str]) -> None:
    for key in table:
        if key not in _PARSERS:
            hint = did_you_mean(key, _PARSERS, f"an upstream has {', '.join(_PARSERS)}")
            raise InvalidArgument(f"{location_of(key)}: an upstream has no {key}; {hint}")
    kinds = [kind for kind in UPSTREAM_KEYS if kind in table]
    if len(kinds) != 1:
        what = (
            f"{' and '.join(kinds)}: leave one of them" if kinds else f"none of {', '.join(UPSTREAM_KEYS)}: give it one"
        )
        raise InvalidArgument(f"{location_of()}: the upstream {name} has {what}")
    for key in table:
        if key not in (*kinds, *UPSTREAM_KEYS[kinds[0]], "prefix"):
            raise InvalidArgument(f"{location_of(key)}: an upstream by {kinds[0]} has no {key}; take it out")


def _resolve_paths(target: UpstreamConfig, document: ConfigFile) -> UpstreamConfig:
    cwd, openapi = target.cwd, target.openapi
    return dataclasses.replace(
        target,
        cwd=cwd and document.resolve_path(cwd),
        openapi=openapi if openapi is None or "://" in openapi else document.resolve_path(openapi),
        folder=target.python and str(Path(document.resolve_path(".")).resolve()),
    )
