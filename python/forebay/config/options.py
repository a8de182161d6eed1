"""Every option once: flags, TOML keys, variables, what is explained and what is in force all come from here."""

import dataclasses
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from forebay.config.kinds import (
    ADDRESS,
    COUNT,
    FLAG,
    HOURS,
    PATH,
    PREFIX,
    SECONDS,
    SIZE,
    TEXT,
    URL,
    choice,
    length,
    or_none,
    positive,
)
from forebay.config.option import Option, described
from forebay.config.option import option as _option
from forebay.config.rules import CONTRACT, HEADERS, MODE, TOOLS, lines_of, names, pairs, paths

if TYPE_CHECKING:
    from forebay.config.targets import Target

__all__ = ["OPTIONS", "Option", "Settings"]

_NONE: Mapping[str, Any] = {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """What is in force. Sizes are bytes; times are in the unit that the name says."""

    config: str | None = _option(None, PATH, "a forebay.toml to read; none is searched for", in_file=False)

    store: str | None = _option(None, TEXT, "where results are stored: file:///path; else the user's own", gate="store")
    output_mode: str = _option(
        "auto",
        MODE,
        "auto stores what is too large to go inline, handle stores all, inline nothing",
        gate="output_mode",
    )
    output_inline_limit_bytes: int = _option(
        32768, SIZE, "how large a result may be to go inline", gate="output_inline_limit_bytes"
    )
    output_handle_ttl_hours: float = _option(24.0, HOURS, "how long a stored result is kept", gate="ttl")
    output_handle_sweep_interval_seconds: float = _option(
        300.0, SECONDS, "how often what has expired is removed; 0 for never", gate="sweep_interval"
    )
    handle_chars: int | None = _option(
        None,
        length(12, 26),
        "characters of a handle; 12 over stdio and 26 over HTTP if not given",
        gate="handle_length",
    )
    quota_bytes: int | None = _option(4 << 30, or_none(SIZE), "how much may be stored in all", gate="quota")
    principal_quota_bytes: int | None = _option(
        1 << 30, or_none(SIZE), "how much each principal may store", gate="principal_quota"
    )
    on_full: str = _option(
        "refuse", choice("refuse", "evict"), "what a full store does with a new result", gate="on_full"
    )
    compression: str = _option("zstd", choice("zstd", "none"), "how results are stored", gate="compression")
    durability: str = _option(
        "process",
        choice("process", "power"),
        "what a stored result survives: the end of the process, or of the power",
        gate="durability",
    )
    warn_bytes: int = _option(
        100_000_000, SIZE, "a principal that stores more than this is warned of in the log", gate="warn_bytes"
    )
    redact: tuple[str, ...] = _option(
        (),
        lines_of("EXPRESSION", "sk-[A-Za-z0-9]+"),
        "a regular expression: what matches is stored as [redacted]; repeatable",
        gate="redact",
    )

    tools: Mapping[str, Any] = _option(
        _NONE,
        TOOLS,
        "modes of tools by name or pattern, the first that matches; repeatable",
        flag="--tool",
        gate="tools",
    )
    per_call: bool = _option(False, FLAG, "let each call choose its mode", gate="per_call")
    tool_prefix: str = _option("", PREFIX, "goes before the names of the tools that forebay adds", gate="prefix")
    journal: bool = _option(False, FLAG, "add a tool that reads the journal", gate="journal")
    contract: bool | Mapping[str, Any] = _option(
        False,
        CONTRACT,
        "answer by the response contract: all tools, or those of a pattern; repeatable",
        gate="contract",
    )
    connection_limit_bytes: int = _option(
        25 * 1024, SIZE, "a connection that was answered more is noted in the journal", gate="connection_limit_bytes"
    )

    tools_only: tuple[str, ...] | None = _option(
        None,
        names("NAMES", "core,search"),
        "the capabilities that clients can see at most",
        gate="tools_only",
    )
    disable_tools: tuple[str, ...] = _option(
        (), names("NAMES", "admin"), "capabilities to take away", gate="disable_tools"
    )
    capabilities: Mapping[str, str] = _option(
        _NONE,
        pairs("PATTERN=NAME", "browser_*=core"),
        "capabilities of tools by name or pattern; repeatable",
        flag="--capability",
        gate="capabilities",
    )
    hidden_tools: tuple[str, ...] = _option(
        (),
        names("PATTERNS", "workflow_*"),
        "tools that are listed only when a client asks for them",
        gate="hidden_tools",
    )

    file_refs: bool = _option(
        False, FLAG, "let arguments refer to files and stored results: $file, $handle", gate="file_refs"
    )
    file_roots: tuple[str, ...] = _option(
        (),
        paths("FOLDER", "./data", os.pathsep),
        "a folder that $file may read from; repeatable",
        flag="--file-root",
        gate="file_roots",
    )
    file_ref_max_bytes: int = _option(64 << 20, SIZE, "how large such a file may be", gate="file_ref_max_bytes")

    stream_above_bytes: int = _option(8 << 20, SIZE, "messages larger than this go through a file, not memory")
    call_timeout_seconds: float | None = _option(
        None, or_none(positive(SECONDS)), "how long a call may take; none for as long as it likes"
    )
    answer_timeout_seconds: float = _option(
        600.0,
        positive(SECONDS),
        "how long a call waits for its client to answer what the server asks in it",
        commands=("serve",),
    )
    shutdown_grace_seconds: float = _option(5.0, SECONDS, "how long calls in flight may take to finish at the end")
    restart_limit: int = _option(
        5, COUNT, "how often at most a server that ends is restarted within the window; 0 never"
    )
    restart_window_seconds: float = _option(60.0, SECONDS, "the window that restarts are counted in")
    restart_delay_seconds: float = _option(
        0.5, SECONDS, "the wait before the second restart of a window; then it doubles"
    )
    log_level: str = _option(
        "warning", choice("debug", "info", "warning", "error"), "what is written to standard error"
    )

    url: str | None = _option(None, URL, "an MCP server over HTTP, in place of a command", commands=("wrap",))
    headers: Mapping[str, str] = _option(
        _NONE,
        HEADERS,
        "goes with every request to the url; ${VAR} is read from the environment; repeatable",
        flag="--header",
        variable="FOREBAY_HEADER_",
        commands=("wrap",),
        is_secret=True,
    )

    http: tuple[str, int] | None = _option(None, ADDRESS, "listen here, not on stdio", commands=("serve",))
    token_file: str | None = _option(
        None, PATH, "bearer tokens, each with its principal, one a line", commands=("serve",)
    )
    insecure: bool = _option(
        False, FLAG, "listen beyond loopback for anyone, and take tokens that others can read", commands=("serve",)
    )
    allowed_hosts: tuple[str, ...] = _option(
        (),
        names("HOSTS", "mcp.example.com"),
        "names that requests may have in Host",
        commands=("serve",),
    )
    allowed_origins: tuple[str, ...] = _option(
        (),
        names("ORIGINS", "https://app.example.com"),
        "what requests may have in Origin",
        commands=("serve",),
    )
    oauth_issuer: str | None = _option(
        None, URL, "who gives out the JWTs that callers show; issuer and subject are the principal", commands=("serve",)
    )
    oauth_audience: str | None = _option(
        None, URL, "what they must be given out for: the URL that clients call", commands=("serve",)
    )
    oauth_jwks_url: str | None = _option(None, URL, "where the keys are that they are signed with", commands=("serve",))
    oauth_scopes: tuple[str, ...] = _option(
        (), names("SCOPES", "mcp:use"), "scopes that they must have", commands=("serve",)
    )
    body_limit_bytes: int = _option(
        4 << 20, positive(SIZE), "how large the body of a request may be", commands=("serve",)
    )
    read_timeout_seconds: float = _option(
        30.0,
        positive(SECONDS),
        "how long a request may take to arrive, and a connection may be idle",
        commands=("serve",),
    )
    rate_limit_per_minute: int | None = _option(
        None,
        or_none(positive(COUNT)),
        "how many requests a principal may make, or an address without one",
        commands=("serve",),
    )
    max_connections: int = _option(
        512, positive(COUNT), "how many connections may be open at once", commands=("serve",)
    )
    max_sessions: int = _option(1000, positive(COUNT), "how many sessions may be open at once", commands=("serve",))
    session_idle_seconds: float = _option(
        1800.0, positive(SECONDS), "how long a session lasts that nobody uses", commands=("serve",)
    )
    max_principals: int = _option(
        64,
        positive(COUNT),
        "for how many principals without a session there may be connections to upstreams at once",
        commands=("serve",),
    )
    principal_idle_seconds: float = _option(
        1800.0,
        positive(SECONDS),
        "how long these last when nothing of the principal's is under way, and it does not listen",
        commands=("serve",),
    )
    file_refs_beyond_loopback: bool = _option(
        False, FLAG, "let $file read files for callers from elsewhere, too", commands=("serve",)
    )
    mcp_servers: str | None = _option(
        None, PATH, "a client's file with mcpServers, which are served too", commands=("serve",)
    )

    upstreams: "Mapping[str, Target]" = dataclasses.field(default_factory=dict)
    """What `serve` puts behind one server: TOML's `[upstreams.NAME]`, and the servers of `mcp_servers`."""
    sources: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Where the values came from that are not defaults."""

    def gate_options(self) -> dict[str, Any]:
        """What `Gate(...)` is to be made with: what was set, and what the gateway has another default for."""
        given = {
            option.gate: self._for_gate(option) for option in OPTIONS.values() if option.gate and self._says(option)
        }
        if self.file_refs and self._keeps_files():
            given["file_roots"] = ()
        if self.file_refs:
            # What lets people in, or us into servers, is nobody's to read.
            files = (self.config, self.token_file, self.mcp_servers)
            given["secret_files"] = [file for file in files if file is not None]
        return {str(name): value for name, value in given.items()}

    def _keeps_files(self) -> bool:
        """Whether `$file` leads nowhere, since whoever calls may be anywhere; `$handle` does no harm."""
        from forebay.config.listening import is_beyond_loopback

        return is_beyond_loopback(self) and not self.file_refs_beyond_loopback

    def _says(self, option: Option) -> bool:
        return option.name in self.sources or option.name == "output_mode"

    def _for_gate(self, option: Option) -> Any:
        value = getattr(self, option.name)
        if option.kind is HOURS:
            return value * 3600
        if option.name == "redact":
            from forebay.config.redact import redaction

            return [redaction(expression) for expression in value]
        return value


OPTIONS = {field.name: described(field) for field in dataclasses.fields(Settings) if field.metadata}
