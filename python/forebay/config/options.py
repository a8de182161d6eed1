"""Every option once: flags, TOML keys, variables, what is explained and what is in force all come from here."""

import dataclasses
import os
from collections.abc import Mapping
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
    SIZE,
    TEXT,
    TOOLS,
    URL,
    OptionType,
    choice,
    line_list,
    name_list,
    name_map,
    number_choice,
    optional,
    path_list,
    positive,
)

__all__ = ["OPTIONS", "Option", "Settings", "option", "option_from_field"]

if TYPE_CHECKING:
    from forebay.config.upstreams import UpstreamConfig


_EMPTY: Mapping[str, Any] = {}
_T = TypeVar("_T")
_BOTH = ("wrap", "serve")


@dataclasses.dataclass(frozen=True, slots=True)
class Option:
    """`name` is its key in TOML and its field of `Settings`; where forebay's own API calls it otherwise, `gate`."""

    name: str
    type: OptionType
    default: Any
    help: str
    flag: str
    variable: str
    commands: tuple[str, ...]
    policy_name: str | None
    is_secret: bool
    in_file: bool

    @property
    def key(self) -> str | None:
        """What TOML calls it; a file does not name itself."""
        return self.name if self.in_file else None


def option(
    default: _T,
    value_type: OptionType,
    about: str,
    *,
    flag: str | None = None,
    variable: str | None = None,
    commands: tuple[str, ...] = _BOTH,
    policy_name: str | None = None,
    is_secret: bool = False,
    in_file: bool = True,
) -> _T:
    """A field of `Settings` that is an option; its flag and its variable are named as it is, if not otherwise."""
    metadata = {
        "default": default,
        "type": value_type,
        "help": about,
        "flag": flag,
        "variable": variable,
        "commands": commands,
        "policy_name": policy_name,
        "is_secret": is_secret,
        "in_file": in_file,
    }
    # Dataclasses want every mapping to be one of its own.
    return dataclasses.field(default_factory=lambda: default, repr=not is_secret, metadata=metadata)


def option_from_field(field: "dataclasses.Field[Any]") -> Option:
    """The option that a field is."""
    about = dict(field.metadata)
    flag = about.pop("flag") or "--" + field.name.replace("_", "-")
    variable = about.pop("variable") or f"FOREBAY_{field.name.upper()}"
    return Option(name=field.name, flag=flag, variable=variable, **about)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """What is in force. Sizes are bytes; times are in the unit that the name says."""

    config: str | None = option(None, PATH, "a forebay.toml to read; none is searched for", in_file=False)

    store: str | None = option(
        None, TEXT, "where results are stored: file:///path; else the user's own", policy_name="store"
    )
    output_mode: str = option(
        "auto",
        MODE,
        "auto stores what is too large to go inline, handle stores all, inline nothing",
        policy_name="output_mode",
    )
    output_inline_limit_bytes: int = option(
        32768, SIZE, "how large a result may be to go inline", policy_name="output_inline_limit_bytes"
    )
    output_handle_ttl_hours: float = option(24.0, HOURS, "how long a stored result is kept", policy_name="ttl")
    output_handle_sweep_interval_seconds: float = option(
        300.0, SECONDS, "how often what has expired is removed; 0 for never", policy_name="sweep_interval"
    )
    handle_chars: int | None = option(
        None,
        number_choice(12, 26),
        "characters of a handle; 12 over stdio and 26 over HTTP if not given",
        policy_name="handle_length",
    )
    quota_bytes: int | None = option(
        4 << 30, optional(SIZE), "how much may be stored in all", policy_name="quota_bytes"
    )
    principal_quota_bytes: int | None = option(
        1 << 30, optional(SIZE), "how much each principal may store", policy_name="principal_quota_bytes"
    )
    on_full: str = option(
        "refuse", choice("refuse", "evict"), "what a full store does with a new result", policy_name="on_full"
    )
    compression: str = option("zstd", choice("zstd", "none"), "how results are stored", policy_name="compression")
    durability: str = option(
        "process",
        choice("process", "power"),
        "what a stored result survives: the end of the process, or of the power",
        policy_name="durability",
    )
    warn_bytes: int = option(
        100_000_000, SIZE, "a principal that stores more than this is warned of in the log", policy_name="warn_bytes"
    )
    redact: tuple[str, ...] = option(
        (),
        line_list("EXPRESSION", "sk-[A-Za-z0-9]+"),
        "a regular expression: what matches is stored as [redacted]; repeatable",
        policy_name="redact",
    )

    tools: Mapping[str, Any] = option(
        _EMPTY,
        TOOLS,
        "modes of tools by name or pattern, the first that matches; repeatable",
        flag="--tool",
        policy_name="tools",
    )
    per_call: bool = option(False, FLAG, "let each call choose its mode", policy_name="per_call")
    tool_prefix: str = option("", PREFIX, "goes before the names of the tools that forebay adds", policy_name="prefix")
    journal: bool = option(False, FLAG, "add a tool that reads the journal", policy_name="journal")
    contract: bool | Mapping[str, Any] = option(
        False,
        CONTRACT,
        "answer by the response contract: all tools, or those of a pattern; repeatable",
        policy_name="contract",
    )
    connection_limit_bytes: int = option(
        25 * 1024,
        SIZE,
        "a connection that was answered more is noted in the journal",
        policy_name="connection_limit_bytes",
    )

    tools_only: tuple[str, ...] | None = option(
        None,
        name_list("NAMES", "core,search"),
        "the capabilities that clients can see at most",
        policy_name="tools_only",
    )
    disable_tools: tuple[str, ...] = option(
        (), name_list("NAMES", "admin"), "capabilities to take away", policy_name="disable_tools"
    )
    capabilities: Mapping[str, str] = option(
        _EMPTY,
        name_map("PATTERN=NAME", "browser_*=core"),
        "capabilities of tools by name or pattern; repeatable",
        flag="--capability",
        policy_name="capabilities",
    )
    hidden_tools: tuple[str, ...] = option(
        (),
        name_list("PATTERNS", "workflow_*"),
        "tools that are listed only when a client asks for them",
        policy_name="hidden_tools",
    )

    file_refs: bool = option(
        False, FLAG, "let arguments refer to files and stored results: $file, $handle", policy_name="file_refs"
    )
    file_roots: tuple[str, ...] = option(
        (),
        path_list("FOLDER", "./data", os.pathsep),
        "a folder that $file may read from; repeatable",
        flag="--file-root",
        policy_name="file_roots",
    )
    file_ref_max_bytes: int = option(64 << 20, SIZE, "how large such a file may be", policy_name="file_ref_max_bytes")

    stream_above_bytes: int = option(8 << 20, SIZE, "messages larger than this go through a file, not memory")
    call_timeout_seconds: float | None = option(
        None, optional(positive(SECONDS)), "how long a call may take; none for as long as it likes"
    )
    answer_timeout_seconds: float = option(
        600.0,
        positive(SECONDS),
        "how long a call waits for its client to answer what the server asks in it",
        commands=("serve",),
    )
    shutdown_grace_seconds: float = option(5.0, SECONDS, "how long calls in flight may take to finish at the end")
    restart_limit: int = option(
        5, COUNT, "how often at most a server that ends is restarted within the window; 0 never"
    )
    restart_window_seconds: float = option(60.0, SECONDS, "the window that restarts are counted in")
    restart_delay_seconds: float = option(
        0.5, SECONDS, "the wait before the second restart of a window; then it doubles"
    )
    log_level: str = option("warning", choice("debug", "info", "warning", "error"), "what is written to standard error")

    url: str | None = option(None, URL, "an MCP server over HTTP, in place of a command", commands=("wrap",))
    headers: Mapping[str, str] = option(
        _EMPTY,
        HEADERS,
        "goes with every request to the url; ${VAR} is read from the environment; repeatable",
        flag="--header",
        variable="FOREBAY_HEADER_",
        commands=("wrap",),
        is_secret=True,
    )

    http: tuple[str, int] | None = option(None, ADDRESS, "listen here, not on stdio", commands=("serve",))
    token_file: str | None = option(
        None, PATH, "bearer tokens, each with its principal, one a line", commands=("serve",)
    )
    insecure: bool = option(
        False, FLAG, "listen beyond loopback for anyone, and take tokens that others can read", commands=("serve",)
    )
    allowed_hosts: tuple[str, ...] = option(
        (),
        name_list("HOSTS", "mcp.example.com"),
        "names that requests may have in Host",
        commands=("serve",),
    )
    allowed_origins: tuple[str, ...] = option(
        (),
        name_list("ORIGINS", "https://app.example.com"),
        "what requests may have in Origin",
        commands=("serve",),
    )
    oauth_issuer: str | None = option(
        None, URL, "who gives out the JWTs that callers show; issuer and subject are the principal", commands=("serve",)
    )
    oauth_audience: str | None = option(
        None, URL, "what they must be given out for: the URL that clients call", commands=("serve",)
    )
    oauth_jwks_url: str | None = option(None, URL, "where the keys are that they are signed with", commands=("serve",))
    oauth_scopes: tuple[str, ...] = option(
        (), name_list("SCOPES", "mcp:use"), "scopes that they must have", commands=("serve",)
    )
    body_limit_bytes: int = option(
        4 << 20, positive(SIZE), "how large the body of a request may be", commands=("serve",)
    )
    read_timeout_seconds: float = option(
        30.0,
        positive(SECONDS),
        "how long a request may take to arrive, and a connection may be idle",
        commands=("serve",),
    )
    rate_limit_per_minute: int | None = option(
        None,
        optional(positive(COUNT)),
        "how many requests a principal may make, or an address without one",
        commands=("serve",),
    )
    max_connections: int = option(512, positive(COUNT), "how many connections may be open at once", commands=("serve",))
    max_sessions: int = option(1000, positive(COUNT), "how many sessions may be open at once", commands=("serve",))
    session_idle_seconds: float = option(
        1800.0, positive(SECONDS), "how long a session lasts that nobody uses", commands=("serve",)
    )
    max_principals: int = option(
        64,
        positive(COUNT),
        "for how many principals without a session there may be connections to upstreams at once",
        commands=("serve",),
    )
    principal_idle_seconds: float = option(
        1800.0,
        positive(SECONDS),
        "how long these last when nothing of the principal's is under way, and it does not listen",
        commands=("serve",),
    )
    file_refs_beyond_loopback: bool = option(
        False, FLAG, "let $file read files for callers from elsewhere, too", commands=("serve",)
    )
    mcp_servers: str | None = option(
        None, PATH, "a client's file with mcpServers, which are served too", commands=("serve",)
    )

    upstreams: "Mapping[str, UpstreamConfig]" = dataclasses.field(default_factory=dict)
    """What `serve` puts behind one server: TOML's `[upstreams.NAME]`, and the servers of `mcp_servers`."""
    sources: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Where the values came from that are not defaults."""

    def policy_options(self) -> dict[str, Any]:
        """What `Gate(...)` is to be made with: what was set, and what the gateway has another default for."""
        given = {
            option.policy_name: self._policy_value(option)
            for option in OPTIONS.values()
            if option.policy_name and self._is_set(option)
        }
        if self.file_refs and self._is_file_access_off():
            given["file_roots"] = ()
        if self.file_refs:
            # What lets people in, or us into servers, is nobody's to read.
            files = (self.config, self.token_file, self.mcp_servers)
            given["secret_files"] = [file for file in files if file is not None]
        return {str(name): value for name, value in given.items()}

    def _is_file_access_off(self) -> bool:
        """Whether `$file` leads nowhere, since whoever calls may be anywhere; `$handle` does no harm."""
        from forebay.config.listening import is_beyond_loopback

        return is_beyond_loopback(self) and not self.file_refs_beyond_loopback

    def _is_set(self, option: Option) -> bool:
        return option.name in self.sources or option.name == "output_mode"

    def _policy_value(self, option: Option) -> Any:
        value = getattr(self, option.name)
        if option.type is HOURS:
            return value * 3600
        if option.name == "redact":
            from forebay.config.masking import make_redaction

            return [make_redaction(expression) for expression in value]
        return value


OPTIONS = {field.name: option_from_field(field) for field in dataclasses.fields(Settings) if field.metadata}
