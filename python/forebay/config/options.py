"""The table of options. It defines the flags, the keys of forebay.toml, the variables and `Settings`."""

import dataclasses
import ipaddress
import os
import re
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from forebay.config.option_types import (
    ADDRESS,
    CONTRACT,
    COUNT,
    FLAG,
    HEADERS,
    HOURS,
    MODE,
    PATH,
    PREFIX,
    SECONDS,
    SHARE,
    SIZE,
    STORE,
    TEXT,
    TOOLS,
    URL,
    OptionType,
    accept_none,
    choice,
    format_toml,
    line_list,
    name_list,
    name_map,
    path_list,
    reject_zero,
)

if TYPE_CHECKING:
    from forebay.config.upstreams import UpstreamConfig

__all__ = ["HOST_PATTERN", "OPTIONS", "OPTIONS_AND_ALIASES", "REMOVED_OPTIONS", "Option", "Settings", "is_loopback"]

_T = TypeVar("_T")
_EMPTY_MAPPING: Mapping[str, Any] = {}
HOST_PATTERN = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(:[0-9]{1,5})?")
"""A host name or address, with or without a port."""

_UNITS = {
    "BYTES": (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)),
    "DURATION": (("h", 3600), ("min", 60), ("s", 1)),
}
"""Units to print values in, by metavar of the option type, largest first."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option: its type, its default, and its names as a flag, a variable and a key."""

    name: str
    type: OptionType
    default: Any
    help: str
    flag: str
    variable: str
    commands: tuple[str, ...]
    is_policy: bool
    """Whether `OutputPolicy` has a parameter of the same name."""
    is_secret: bool
    is_in_file: bool
    """Whether forebay.toml may set the option."""
    aliases: "tuple[Option, ...]" = ()
    """Other names of the option. Their parsed values have the same unit as values of the option."""
    is_alias: bool = False

    @property
    def key(self) -> str | None:
        """The key in forebay.toml, or `None` if the file cannot set the option."""
        return self.name if self.is_in_file else None

    @property
    def default_text(self) -> str:
        """The default as a user would write it, such as `24h`; empty if there is none."""
        text = self.format_value(self.default)
        return "" if text == "-" else text.strip('"')

    def format_value(self, value: Any) -> str:
        """Return a value as forebay.toml would hold it, such as `"24h"`, or `-` if it is empty."""
        if value in (None, "", (), {}):
            return "-"
        if self.type is ADDRESS and isinstance(value, tuple):
            host, port = value
            value = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        if isinstance(value, int | float) and value > 0:
            for unit, factor in _UNITS.get(self.type.metavar, ()):
                if value % factor == 0:
                    return f'"{int(value // factor)}{unit}"'
        return format_toml(value)


def _option(
    default: _T,
    value_type: OptionType,
    help_text: str,
    *,
    commands: tuple[str, ...] = ("wrap", "serve"),
    flag: str | None = None,
    variable: str | None = None,
    aliases: Mapping[str, OptionType] = _EMPTY_MAPPING,
    is_policy: bool = False,
    is_secret: bool = False,
    is_in_file: bool = True,
) -> _T:
    """Define a field of `Settings` that is an option. By default its flag and variable are named after the field."""
    metadata = {
        "default": default,
        "type": value_type,
        "help": help_text,
        "commands": commands,
        "flag": flag,
        "variable": variable,
        "aliases": aliases,
        "is_policy": is_policy,
        "is_secret": is_secret,
        "is_in_file": is_in_file,
    }
    # Dataclasses refuse a mutable default, and some defaults are mappings.
    return dataclasses.field(default_factory=lambda: default, repr=not is_secret, metadata=metadata)


_policy_option = partial(_option, is_policy=True)
_wrap_option = partial(_option, commands=("wrap",))
_serve_option = partial(_option, commands=("serve",))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """The values of all options. Sizes are bytes, times are seconds."""

    config: str | None = _option(
        None, PATH, "read options from this file; no file is read by default", is_in_file=False
    )

    # What to store, and for how long.
    store: str | None = _policy_option(
        None, STORE, "where to store results, such as file:///path; by default in the user's home"
    )
    output_mode: str = _policy_option(
        "auto", MODE, "auto stores results above the inline limit, handle stores all, inline stores none"
    )
    output_inline_limit_bytes: int = _policy_option(32768, SIZE, "send results up to this size inline")
    image_mode: str = _policy_option(
        "inline", MODE, "in mode auto, send images inline and scale large ones down, store all, or go by size (auto)"
    )
    audio_mode: str = _policy_option(
        "inline", MODE, "in mode auto, send audio inline up to 1 MB, store all, or go by size (auto)"
    )
    ttl: float = _policy_option(
        86400.0, SECONDS, "keep a stored result for this long", aliases={"output_handle_ttl_hours": HOURS}
    )
    sweep_interval: float = _policy_option(
        300.0,
        SECONDS,
        "remove expired results this often; 0 for never",
        aliases={"output_handle_sweep_interval_seconds": SECONDS},
    )
    quota_bytes: int | None = _policy_option(
        4 << 30, accept_none(SIZE), "store at most this much in total; none for no limit"
    )
    principal_quota_bytes: int | None = _policy_option(
        1 << 30, accept_none(SIZE), "store at most this much for each principal; none for no limit"
    )
    on_full: str = _policy_option(
        "refuse", choice("refuse", "evict"), "refuse new results when the store is full, or evict old ones"
    )
    read_cache_bytes: int = _policy_option(
        0, SIZE, "keep up to this much of what was read from a store on other machines on the local disk; 0 for nothing"
    )
    redact: tuple[str, ...] = _policy_option(
        (),
        line_list("EXPRESSION", "sk-[A-Za-z0-9]+"),
        "store matches of this regular expression as [redacted]; repeatable",
    )

    # Which tools clients see, and how tools answer.
    tools: Mapping[str, Any] = _policy_option(
        _EMPTY_MAPPING,
        TOOLS,
        "set the output mode of tools by name or pattern; the first match counts; repeatable",
        flag="--tool",
    )
    per_call: bool = _policy_option(False, FLAG, "let each call choose its output mode")
    page_limit_bytes: int | None = _policy_option(
        None,
        accept_none(reject_zero(SIZE)),
        "return pages of at most this size; none for what the client shows whole",
    )
    resource_links: bool = _policy_option(False, FLAG, "add a resource link to each handle")
    server_name: str | None = _policy_option(
        None, TEXT, "the name of this server in the client's configuration, to name tools as the model knows them"
    )
    prefix: str = _policy_option("", PREFIX, "put this before the names of the tools that forebay adds")
    journal: bool = _policy_option(False, FLAG, "add a tool that reads the journal")
    contract: bool | Mapping[str, Any] = _policy_option(
        False, CONTRACT, "use the response contract for all tools, or for tools that match; repeatable"
    )
    tools_only: tuple[str, ...] | None = _policy_option(
        None, name_list("NAMES", "core,search"), "allow only these capabilities"
    )
    disable_tools: tuple[str, ...] = _policy_option(
        (), name_list("NAMES", "admin,write_file"), "disable these capabilities and tools"
    )
    capabilities: Mapping[str, str] = _policy_option(
        _EMPTY_MAPPING,
        name_map("PATTERN=NAME", "browser_*=core"),
        "set the capability of tools by name or pattern; repeatable",
        flag="--capability",
    )
    hidden_tools: tuple[str, ...] = _policy_option(
        (), name_list("PATTERNS", "workflow_*"), "list these tools only after a client asks for them"
    )

    # References in the arguments of calls.
    file_refs: bool = _policy_option(
        False, FLAG, "allow arguments that refer to files and stored results: $file, $handle, $query"
    )
    file_roots: tuple[str, ...] = _policy_option(
        (),
        path_list("FOLDER", "./data", os.pathsep),
        "allow $file to read from this folder; repeatable",
        flag="--file-root",
    )
    export_roots: tuple[str, ...] = _policy_option(
        (),
        path_list("FOLDER", "./data", os.pathsep),
        "add output_export, which writes results to new files in this folder; repeatable",
        flag="--export-root",
    )

    # Calls and logs.
    call_timeout_seconds: float | None = _option(
        None, accept_none(reject_zero(SECONDS)), "cancel a call that takes longer than this; none for no limit"
    )
    shutdown_grace_seconds: float | None = _option(
        None, SECONDS, "give calls in flight and servers this long to end at shutdown (1s; calls over HTTP 5s)"
    )
    shutdown_delay_seconds: float = _serve_option(
        0.0, SECONDS, "after SIGTERM accept calls for this long, while /ready fails, so that load balancers notice"
    )
    log_level: str = _option(
        "warning", choice("debug", "info", "warning", "error"), "write logs of this level and above to standard error"
    )

    # The server behind `wrap`.
    url: str | None = _wrap_option(None, URL, "wrap the MCP server at this URL instead of a command")
    headers: Mapping[str, str] = _wrap_option(
        _EMPTY_MAPPING,
        HEADERS,
        "send this header with every request to the URL; ${VAR} is read from the environment; repeatable",
        flag="--header",
        variable="FOREBAY_HEADER_",
        is_secret=True,
    )

    # How `serve` listens, and who may call.
    http: tuple[str, int] | None = _serve_option(None, ADDRESS, "listen on this address instead of stdio")
    token_file: str | None = _serve_option(None, PATH, "read bearer tokens from this file, one `name: token` a line")
    insecure: bool = _serve_option(
        False, FLAG, "allow callers from other machines without a token, and a token file that other users can read"
    )
    allowed_hosts: tuple[str, ...] = _serve_option(
        (), name_list("HOSTS", "mcp.example.com"), "accept these host names in the Host header"
    )
    allowed_origins: tuple[str, ...] = _serve_option(
        (), name_list("ORIGINS", "https://app.example.com"), "accept these origins in the Origin header"
    )
    oauth_issuer: str | None = _serve_option(
        None, URL, "accept JWTs of this issuer; issuer and subject are the principal"
    )
    oauth_audience: str | None = _serve_option(
        None, URL, "accept only JWTs for this audience: the URL that clients call"
    )
    oauth_jwks_url: str | None = _serve_option(None, URL, "read the keys that sign the JWTs from this URL")
    oauth_scopes: tuple[str, ...] = _serve_option((), name_list("SCOPES", "mcp:use"), "require these scopes of a JWT")
    body_limit_bytes: int = _serve_option(4 << 20, reject_zero(SIZE), "reject larger request bodies")
    rate_limit_per_minute: int | None = _serve_option(
        None,
        accept_none(reject_zero(COUNT)),
        "allow each principal this many requests a minute; callers without a token are counted by address",
    )
    max_connections: int = _serve_option(
        512,
        reject_zero(COUNT),
        "keep at most this many connections open; more also allows more sessions and principals",
    )
    dashboard: bool = _serve_option(
        True, FLAG, "show a web page at /dashboard with what belongs to the token: savings, stored results, refusals"
    )
    session_idle_seconds: float = _serve_option(
        1800.0,
        reject_zero(SECONDS),
        "close a session, or a principal's connections to upstreams, after this long unused",
    )
    stateless: bool = _serve_option(
        False, FLAG, "open no sessions: any replica answers any request, and servers cannot ask or notify clients"
    )
    share: str = _serve_option(
        "principal",
        SHARE,
        "share a connection to an MCP server among the sessions of a principal, not at all (session), or among all",
    )
    file_refs_beyond_loopback: bool = _serve_option(False, FLAG, "allow $file to callers from other machines, too")
    mcp_servers: str | None = _serve_option(
        None, PATH, "also serve the MCP servers in this configuration file of a client"
    )

    # Limits that are not options. Tests lower them.
    spool_above_bytes: int = 8 << 20
    """Messages above this size are spooled to disk."""
    restart_limit: int = 5
    """Maximum number of restarts of a server within `restart_window_seconds`."""
    restart_window_seconds: float = 60.0
    restart_delay_seconds: float = 0.5
    """Delay before the second restart. It doubles with each further restart."""
    answer_timeout_seconds: float = 600.0
    """How long a call waits until the client answers a request that the server sent during the call."""
    read_timeout_seconds: float = 30.0
    """Maximum time for a request to arrive, for a connection to be idle, and for a client to read nothing."""
    max_sessions: int = 1000
    max_principals: int = 64
    """Maximum number of groups of clients without sessions, by principal and capabilities, that have open upstreams."""

    upstreams: "Mapping[str, UpstreamConfig]" = dataclasses.field(default_factory=dict)
    """The `[upstreams.NAME]` of the file and the servers of `mcp_servers`."""
    sources: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Where each value that is not a default was set: a flag, a variable, or a line of a file."""

    def policy_options(self) -> dict[str, Any]:
        """Return the keyword arguments of `OutputPolicy`: the options that were set, and the gateway's own defaults."""
        arguments = {
            option.name: getattr(self, option.name)
            for option in OPTIONS.values()
            if option.is_policy and (option.name in self.sources or option.name == "output_mode")
        }
        if self.file_refs:
            if self._is_file_access_off():
                arguments["file_roots"] = ()
            # $file must not read tokens or credentials of upstreams.
            files = (self.config, self.token_file, self.mcp_servers)
            arguments["secret_files"] = [file for file in files if file is not None]
        return arguments

    def _is_file_access_off(self) -> bool:
        """Return whether `$file` is off because callers may be on other machines. `$handle` still works."""
        return self.is_beyond_loopback and not self.file_refs_beyond_loopback

    @property
    def has_authentication(self) -> bool:
        """Whether callers of `serve` need a token."""
        return self.token_file is not None or self.oauth_issuer is not None

    @property
    def is_beyond_loopback(self) -> bool:
        """Whether other machines can reach the server, directly or through a proxy with an allowed host name."""
        if self.http is None:
            return False
        return not all(map(is_loopback, (self.http[0], *map(_strip_port, self.allowed_hosts))))


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine: `localhost` or a loopback address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _strip_port(host: str) -> str:
    found = HOST_PATTERN.fullmatch(host)
    return found[1].strip("[]") if found else host


def _make_option(field: "dataclasses.Field[Any]") -> Option:
    attributes = dict(field.metadata)
    attributes["flag"] = attributes["flag"] or _get_flag_name(field.name)
    attributes["variable"] = attributes["variable"] or _get_variable_name(field.name)
    aliases = attributes.pop("aliases")
    option = Option(name=field.name, **attributes)
    return dataclasses.replace(
        option,
        aliases=tuple(
            dataclasses.replace(
                option,
                name=name,
                type=value_type,
                flag=_get_flag_name(name),
                variable=_get_variable_name(name),
                is_alias=True,
                help=f"same as {option.flag}"
                + ("" if value_type is option.type else f", in {value_type.metavar.lower()}"),
            )
            for name, value_type in aliases.items()
        ),
    )


def _get_flag_name(name: str) -> str:
    return "--" + name.replace("_", "-")


def _get_variable_name(name: str) -> str:
    return f"FOREBAY_{name.upper()}"


OPTIONS = {field.name: _make_option(field) for field in dataclasses.fields(Settings) if field.metadata}
OPTIONS_AND_ALIASES = {named.name: named for option in OPTIONS.values() for named in (option, *option.aliases)}
"""Every option under its name and under each of its aliases."""

REMOVED_OPTIONS = {
    "answer_timeout_seconds": "a client has 10 minutes to answer",
    "compression": "stored results are always compressed",
    "connection_limit_bytes": "the library's Forebay(...) still takes it",
    "durability": "the library's open_store(...) still takes it",
    "file_ref_max_bytes": "the library's Forebay(...) still takes it",
    "handle_chars": "handles have 12 characters on stdio and 26 over HTTP",
    "max_principals": "raise max_connections",
    "max_sessions": "raise max_connections",
    "principal_idle_seconds": "use session_idle_seconds",
    "read_timeout_seconds": "a request has 30 seconds to arrive",
    "restart_delay_seconds": "restarts are spaced by forebay",
    "restart_limit": "a server is restarted up to 5 times a minute",
    "restart_window_seconds": "a server is restarted up to 5 times a minute",
    "stream_above_bytes": "messages above 8 MiB are always spooled to disk",
    "tool_prefix": "use prefix",
    "warn_bytes": "the library's open_store(...) still takes it",
}
"""Options of earlier versions that no longer exist, each with advice for its users."""
