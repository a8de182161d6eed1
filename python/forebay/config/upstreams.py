"""Upstreams of `forebay serve`: MCP servers by command or URL, HTTP APIs, and Python modules."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forebay.arguments import did_you_mean, short_repr
from forebay.config.masking import mask_url
from forebay.config.option_types import FLAG, HEADERS, PREFIX, SHARE, TEXT, URL, expand_variables
from forebay.errors import InvalidArgument

if TYPE_CHECKING:
    from forebay.config.load import ConfigFile

__all__ = ["UPSTREAM_KEYS", "UpstreamConfig", "check_prefixes", "parse_upstream", "parse_upstreams"]

UPSTREAM_KEYS = {
    "command": ("args", "env", "cwd", "share"),
    "url": ("headers", "share"),
    "openapi": ("base_url", "headers", "auth", "cross_host_redirects"),
    "python": (),
}
"""The types of upstreams, and the other keys that each type may have. Every type may have a `prefix`."""

_UPSTREAM_NAME_PATTERN = re.compile(r"[A-Za-z0-9_.-]{1,64}")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamConfig:
    """One upstream. Exactly one of `command`, `url`, `openapi` and `python` is set."""

    name: str
    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    cwd: str | None = None
    url: str | None = None
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    openapi: str | None = None
    """The path or URL of an OpenAPI document."""
    base_url: str | None = None
    auth: Mapping[str, str | tuple[str, str]] = dataclasses.field(default_factory=dict, repr=False)
    """A key or token, or user and password, by the name of the security scheme."""
    cross_host_redirects: bool = False
    """Whether the API may redirect calls to other hosts. These get no credentials and no bodies."""
    python: str | None = None
    """The name of a Python module."""
    folder: str | None = None
    """The folder of the configuration file. Python modules are looked up there as well as on `sys.path`."""
    share: str | None = None
    """Which clients share a connection to the MCP server: `principal`, `session` or `all`. `None`: as `share` says."""
    prefix: str | None = None
    """Prefix of all tool names. Without one, only tool names that clash get a prefix: the upstream's name."""

    @property
    def upstream_type(self) -> str:
        """The key that is set: `command`, `url`, `openapi` or `python`."""
        return next(key for key in UPSTREAM_KEYS if getattr(self, key) is not None)


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
    expected = 'a token, or ["user", "password"], by the name of a security scheme'
    if not isinstance(value, dict):
        raise ValueError(expected)
    for secret in value.values():
        is_basic = isinstance(secret, list) and len(secret) == 2 and all(isinstance(text, str) for text in secret)
        if not is_basic and not isinstance(secret, str):
            raise ValueError(expected)
    return {name: secret if isinstance(secret, str) else (secret[0], secret[1]) for name, secret in value.items()}


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
    "cross_host_redirects": FLAG.parse,
    "python": TEXT.parse,
    "share": SHARE.parse,
    "prefix": PREFIX.parse,
}


def parse_upstreams(file: "ConfigFile", environ: Mapping[str, str]) -> dict[str, UpstreamConfig]:
    """Return the `[upstreams.NAME]` of a forebay.toml. Raises `InvalidArgument`."""
    tables = file.values.get("upstreams", {})
    if not isinstance(tables, dict):
        raise InvalidArgument(f"{file.find_location('upstreams')}: upstreams are tables, such as [upstreams.files]")
    upstreams = {}
    for name, table in tables.items():
        location_of = partial(file.find_location, "upstreams", name)
        if not isinstance(table, dict):
            raise InvalidArgument(f"{location_of()}: an upstream is a table, such as [upstreams.{name}]")
        upstream = parse_upstream(name, table, location_of, lambda value: expand_variables(value, environ))
        upstreams[name] = _resolve_paths(upstream, file)
    check_prefixes(upstreams, file)
    return upstreams


def check_prefixes(upstreams: Mapping[str, UpstreamConfig], file: "ConfigFile") -> None:
    """Raise `InvalidArgument` if two upstreams have the same prefix, or one has the name of another as its prefix.

    Tool names could then clash: if two upstreams have a tool of the same name, the upstream's name becomes its prefix.
    """
    owners: dict[str, str] = {}
    for name, upstream in upstreams.items():
        prefix = upstream.prefix
        if not prefix:
            continue
        location = file.find_location("upstreams", name, "prefix")
        owner = owners.setdefault(prefix, name)
        if owner != name:
            raise InvalidArgument(
                f"{location}: the upstreams {owner} and {name} have the same prefix {prefix}; give one another"
            )
        other = prefix.rstrip("_.-")
        if other != name and other in upstreams:
            raise InvalidArgument(
                f"{location}: the prefix {prefix} of the upstream {name} is what tools of the upstream {other} "
                f"have before them when they clash; give {name} another prefix, or rename {other}"
            )


def parse_upstream(
    name: str,
    table: Mapping[str, Any],
    location_of: Callable[..., str],
    expand: Callable[[Any], Any] = lambda value: value,
) -> UpstreamConfig:
    """Parse the table of an upstream. Raises `InvalidArgument`.

    `location_of` returns the location of a key for messages; `expand` expands the variables in a value.
    """
    if not _UPSTREAM_NAME_PATTERN.fullmatch(name):
        raise InvalidArgument(f"{location_of()}: upstreams have names of letters, digits, dots, dashes and underscores")
    _check_keys(name, table, location_of)
    values = {}
    for key, raw in table.items():
        subject = f"{location_of(key)}: {key} of the upstream {name}"
        try:
            value = expand(raw)
        except ValueError as error:
            raise InvalidArgument(f"{subject}: {error}") from None
        try:
            values[key] = _PARSERS[key](value)
        except ValueError as error:
            # Other values, and what may be a password, are not shown: they may be secret.
            is_shown = key in ("url", "base_url") and "@" not in str(raw)
            actual = f", not {short_repr(mask_url(str(raw)))}" if is_shown else ""
            raise InvalidArgument(f"{subject} must be {error}{actual}") from None
    return UpstreamConfig(name=name, **values)


def _check_keys(name: str, table: Mapping[str, Any], location_of: Callable[..., str]) -> None:
    for key in table:
        if key not in _PARSERS:
            hint = did_you_mean(key, _PARSERS, f"an upstream has {', '.join(_PARSERS)}")
            raise InvalidArgument(f"{location_of(key)}: an upstream has no {key}; {hint}")
    types = [key for key in UPSTREAM_KEYS if key in table]
    if not types:
        allowed = ", ".join(UPSTREAM_KEYS)
        raise InvalidArgument(f"{location_of()}: the upstream {name} has none of {allowed}: give it one")
    if len(types) > 1:
        raise InvalidArgument(f"{location_of()}: the upstream {name} has {' and '.join(types)}: leave one of them")
    for key in table:
        if key not in (*types, *UPSTREAM_KEYS[types[0]], "prefix"):
            raise InvalidArgument(f"{location_of(key)}: an upstream by {types[0]} has no {key}; take it out")


def _resolve_paths(upstream: UpstreamConfig, file: "ConfigFile") -> UpstreamConfig:
    cwd, openapi = upstream.cwd, upstream.openapi
    return dataclasses.replace(
        upstream,
        cwd=cwd and file.resolve_path(cwd),
        openapi=openapi if openapi is None or "://" in openapi else file.resolve_path(openapi),
        folder=upstream.python and str(Path(file.resolve_path(".")).resolve()),
    )
