"""Load and check settings: a flag wins over a variable, a variable over forebay.toml, forebay.toml over the default."""

import dataclasses
import ipaddress
import re
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forebay._core import Redactor
from forebay.arguments import did_you_mean, short_repr
from forebay.config.option_types import expand_variables
from forebay.config.options import (
    HOST_PATTERN,
    OPTIONS,
    OPTIONS_AND_ALIASES,
    REMOVED_OPTIONS,
    Option,
    Settings,
    is_loopback,
)
from forebay.errors import InvalidArgument, InvalidPattern

if TYPE_CHECKING:
    from forebay.config.upstreams import UpstreamConfig

__all__ = ["ConfigFile", "explain", "load_settings"]

_VARIABLE_PREFIX = "FOREBAY_"
_HEADER_VARIABLE_PREFIX = OPTIONS["headers"].variable
_STORE_VARIABLES = ("FOREBAY_HOME",)
"""Variables that the store reads."""

_EXPLAIN_HINT = "`forebay config --explain` lists them all"

_SECRET_KEYS = ("env", "headers", "auth")
"""Keys of an upstream whose values are masked."""
_URL_KEYS = ("url", "openapi", "base_url")

_KEY = r"""(?:"[^"\n]*"|'[^'\n]*'|[A-Za-z0-9_-]+)"""
_DOTTED_KEY = rf"{_KEY}(?:\s*\.\s*{_KEY})*"
_TABLE_LINE_PATTERN = re.compile(rf"\s*\[\[?\s*({_DOTTED_KEY})\s*\]")
_PAIR_LINE_PATTERN = re.compile(rf"\s*({_DOTTED_KEY})\s*=")

_ORIGIN_PATTERN = re.compile(r"[a-z][a-z0-9+.-]*://" + HOST_PATTERN.pattern)
_OAUTH_OPTIONS = [OPTIONS[name] for name in ("oauth_issuer", "oauth_audience", "oauth_jwks_url")]


class ConfigFile:
    """A forebay.toml: its values, and the lines that set them. With the path `None` it is empty."""

    def __init__(self, path: str | None) -> None:
        self.path = path
        self._text = "" if path is None else _read_text(path)
        self.values: dict[str, Any] = {}
        if path is None:
            return
        # Imported here, because most gateways have no file.
        import tomllib

        try:
            self.values = tomllib.loads(self._text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise InvalidArgument(f"{path} is no TOML: {error}") from None

    def find_location(self, *keys: str) -> str:
        """Return the file and line of a key, or of the nearest enclosing table that has a line of its own."""
        while keys:
            for number, line_keys in enumerate(_find_keys_by_line(self._text), 1):
                if line_keys[: len(keys)] == keys:
                    return f"{self.path}:{number}"
            keys = keys[:-1]
        return str(self.path)

    def resolve_path(self, path: str) -> str:
        """Resolve a path that the file contains, relative to the file's folder."""
        return str(Path(self.path or ".").parent / Path(path).expanduser())


def _read_text(path: str) -> str:
    try:
        return Path(path).read_text("utf-8-sig")
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be read: {error.strerror}; name another file with --config") from None
    except UnicodeDecodeError:
        raise InvalidArgument(f"{path} is not UTF-8, as TOML is; save it as such") from None


def _find_keys_by_line(text: str) -> list[tuple[str, ...]]:
    """Return for each line the full key of the value or table that begins there, or an empty tuple."""
    table: tuple[str, ...] = ()
    keys = []
    for line in text.split("\n"):
        if table_line := _TABLE_LINE_PATTERN.match(line):
            table = _split_key(table_line[1])
            keys.append(table)
        elif pair_line := _PAIR_LINE_PATTERN.match(line):
            keys.append((*table, *_split_key(pair_line[1])))
        else:
            keys.append(())
    return keys


def _split_key(dotted_key: str) -> tuple[str, ...]:
    return tuple(key.strip("\"'") for key in re.findall(_KEY, dotted_key))


@dataclasses.dataclass(frozen=True, slots=True)
class _OptionValue:
    """The value of an option that is set, and the flag, variable or line that sets it."""

    value: Any
    source: str
    raw_value: Any
    """The value before `${VAR}` was expanded, so that it can be shown without secrets."""


def load_settings(command: str, flags: Mapping[str, Any], environ: Mapping[str, str]) -> Settings:
    """Return the settings of `wrap` or `serve`. `flags` holds a string, strings or a bool by option name.

    Raises `InvalidArgument` for invalid settings.
    """
    file, values = _read_options(command, flags, environ)
    settings = _make_settings(values, _load_upstreams(command, file, values, environ))
    factor = settings.max_connections / OPTIONS["max_connections"].default
    if factor > 1:
        settings = dataclasses.replace(
            settings,
            max_sessions=int(settings.max_sessions * factor),
            max_principals=int(settings.max_principals * factor),
        )
    if command == "serve":
        _check_serve_settings(settings)
    _check_file_references(settings)
    return settings


def _make_settings(values: Mapping[str, _OptionValue], upstreams: "Mapping[str, UpstreamConfig]") -> Settings:
    return Settings(
        **{name: value.value for name, value in values.items()},
        upstreams=upstreams,
        sources={name: value.source for name, value in values.items()},
    )


def _read_options(
    command: str, flags: Mapping[str, Any], environ: Mapping[str, str]
) -> tuple[ConfigFile, dict[str, _OptionValue]]:
    """Return the configuration file and the values of all options that are set.

    The command `config` has the options of all commands.
    """
    _check_variables(environ)
    path = flags.get("config") or environ.get(OPTIONS["config"].variable)
    file = ConfigFile(path or None)
    _check_keys(command, file)
    values = {}
    for option in OPTIONS.values():
        if command in (*option.commands, "config"):
            value = _read_option(option, flags, environ, file)
            if value is not None:
                values[option.name] = value
    return file, values


def _read_option(
    option: Option, flags: Mapping[str, Any], environ: Mapping[str, str], file: ConfigFile
) -> _OptionValue | None:
    names = (option, *option.aliases)
    # In flags and variables, `${VAR}` is expanded only for secret options, to keep the secret off the command line.
    expand_environ = environ if option.is_secret else None
    for named in names:
        if flags.get(named.name) is not None:
            return _parse_value(named, flags[named.name], named.flag, expand_environ)
    for named in names:
        if (raw_value := _read_variable(named, environ)) is not None:
            return _parse_value(named, raw_value, named.variable, expand_environ)
    for named in names:
        if named.key is not None and named.key in file.values:
            return _parse_value(named, file.values[named.key], file.find_location(named.key), environ, file)
    return None


def _read_variable(option: Option, environ: Mapping[str, str]) -> Any:
    """Return the value of an option's variable, or `None`. An empty variable counts as unset."""
    if option.name == "headers":
        prefix = _HEADER_VARIABLE_PREFIX
        return {name.removeprefix(prefix): environ[name] for name in environ if name.startswith(prefix)} or None
    text = environ.get(option.variable) or None
    if text is None or option.type.separator is None:
        return text
    return [item for item in text.split(option.type.separator) if item.strip()]


def _parse_value(
    option: Option, raw_value: Any, source: str, environ: Mapping[str, str] | None, file: ConfigFile | None = None
) -> _OptionValue:
    """Parse a value from a flag, a variable or a file. If `environ` is passed, `${VAR}` in it is expanded."""
    try:
        value = raw_value if environ is None else expand_variables(raw_value, environ)
    except ValueError as error:
        raise InvalidArgument(f"{source}: {error}") from None
    try:
        value = option.type.parse(value)
    except ValueError as error:
        example = f", such as {option.type.example}" if option.type.example else ""
        actual = "" if option.is_secret else f", not {short_repr(raw_value)}"
        subject = source if source == option.flag else f"{source}: {option.name}"
        raise InvalidArgument(f"{subject} is {error}{example}{actual}") from None
    if option.name == "redact":
        _check_expressions(value, source)
    if file is not None and option.type.is_path:
        is_single = isinstance(value, str)
        value = file.resolve_path(value) if is_single else tuple(file.resolve_path(path) for path in value)
    return _OptionValue(value, source, raw_value)


def _check_expressions(expressions: tuple[str, ...], source: str) -> None:
    for expression in expressions:
        try:
            Redactor([expression])
        except InvalidPattern as error:
            # The message gives advice for `output_search`; replace it by advice for redaction.
            advice = r"put a backslash before what is no operator: \("
            problem = str(error).replace("search for it as a literal", advice)
            raise InvalidArgument(f"{source}: {short_repr(expression)} cannot be redacted: {problem}") from None


def _check_variables(environ: Mapping[str, str]) -> None:
    known = [*_STORE_VARIABLES, *(option.variable for option in OPTIONS_AND_ALIASES.values())]
    for name in environ:
        if name.startswith(_VARIABLE_PREFIX) and name not in known and not name.startswith(_HEADER_VARIABLE_PREFIX):
            option_name = name.removeprefix(_VARIABLE_PREFIX).lower()
            hint = REMOVED_OPTIONS.get(option_name) or did_you_mean(name, known, _EXPLAIN_HINT, _VARIABLE_PREFIX)
            raise InvalidArgument(f"forebay reads no variable {name}; {hint}")


def _check_keys(command: str, file: ConfigFile) -> None:
    known = {option.key: option.commands for option in OPTIONS_AND_ALIASES.values() if option.key is not None}
    known["upstreams"] = ("serve",)
    for key in file.values:
        if key not in known:
            raise InvalidArgument(f"{file.find_location(key)}: there is no key {key}; {_make_key_hint(key, known)}")
        if command not in (*known[key], "config"):
            (owner,) = known[key]
            raise InvalidArgument(
                f"{file.find_location(key)}: {key} is for `forebay {owner}`; take it out of this file"
            )


def _make_key_hint(key: str, known_keys: Mapping[str, object]) -> str:
    if key in REMOVED_OPTIONS:
        return REMOVED_OPTIONS[key]
    keys_by_flag = {option.flag.removeprefix("--"): option.key for option in OPTIONS.values() if option.key}
    return f"did you mean {keys_by_flag[key]}?" if key in keys_by_flag else did_you_mean(key, known_keys, _EXPLAIN_HINT)


def _load_upstreams(
    command: str, file: ConfigFile, values: Mapping[str, _OptionValue], environ: Mapping[str, str]
) -> "dict[str, UpstreamConfig]":
    if command == "wrap":
        return {}
    # Imported here, because `wrap` starts without it.
    from forebay.config.upstreams import check_prefixes, parse_upstreams

    upstreams = parse_upstreams(file, environ)
    if command == "serve" and "mcp_servers" in values:
        from forebay.config.client_servers import load_client_upstreams

        path = values["mcp_servers"].value
        for name, upstream in load_client_upstreams(path, environ).items():
            if name in upstreams:
                raise InvalidArgument(f"{file.path} and {path} both have an upstream {name}; rename one of them")
            upstreams[name] = upstream
        check_prefixes(upstreams, file)
    return upstreams


def _check_serve_settings(settings: Settings) -> None:
    if not settings.upstreams:
        raise InvalidArgument(
            "there is nothing to serve; name a --config with [upstreams.NAME], or a client's file with --mcp-servers"
        )
    _check_listening(settings)


def _check_listening(settings: Settings) -> None:
    """Raise `InvalidArgument` for settings that admit unauthenticated callers or lock out all callers."""
    _check_oauth(settings)
    _check_host_names(settings)
    if settings.http is None:
        return
    host, _ = settings.http
    if settings.is_beyond_loopback and not settings.insecure and not settings.has_authentication:
        reachable = host if not is_loopback(host) else ", ".join(settings.allowed_hosts)
        raise InvalidArgument(
            f"other machines can reach {reachable}; "
            "give --token-file or --oauth-issuer, or --insecure if anyone may call"
        )
    if _is_unspecified(host) and not settings.allowed_hosts:
        raise InvalidArgument(
            f"{host} stands for every address of this machine; name the host that clients use: "
            "--allowed-hosts mcp.example.com"
        )
    if settings.file_roots and settings.is_beyond_loopback and not settings.file_refs_beyond_loopback:
        raise InvalidArgument(
            "--file-root is set, but other machines can call; leave it out, or give --file-refs-beyond-loopback if "
            "all callers may read the files below it"
        )
    if settings.export_roots and settings.is_beyond_loopback:
        raise InvalidArgument(
            "--export-root is set, but other machines can call, which cannot read its files; leave it out"
        )


def _check_oauth(settings: Settings) -> None:
    flags = [option.flag for option in _OAUTH_OPTIONS]
    missing = [option.flag for option in _OAUTH_OPTIONS if getattr(settings, option.name) is None]
    if 0 < len(missing) < len(flags):
        raise InvalidArgument(f"{', '.join(flags)} go together; give {' and '.join(missing)} too")
    if settings.oauth_scopes and missing:
        raise InvalidArgument(f"--oauth-scopes is for JWTs of an issuer; give {' and '.join(missing)} too")
    jwks_url = urllib.parse.urlsplit(settings.oauth_jwks_url or "")
    if jwks_url.scheme == "http" and not is_loopback(jwks_url.hostname or ""):
        raise InvalidArgument("--oauth-jwks-url must begin with https://; without TLS, others could replace the keys")


def _check_host_names(settings: Settings) -> None:
    for host in settings.allowed_hosts:
        if not HOST_PATTERN.fullmatch(host):
            raise InvalidArgument(f"--allowed-hosts takes host names, such as mcp.example.com, not {short_repr(host)}")
    for origin in settings.allowed_origins:
        if not _ORIGIN_PATTERN.fullmatch(origin):
            raise InvalidArgument(
                f"--allowed-origins takes origins, such as https://app.example.com, not {short_repr(origin)}"
            )


def _is_unspecified(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _check_file_references(settings: Settings) -> None:
    """Raise `InvalidArgument` if `file_roots` is set but `file_refs` is set to neither true nor false."""
    if settings.file_roots and "file_refs" not in settings.sources:
        roots, references = OPTIONS["file_roots"], OPTIONS["file_refs"]
        source = settings.sources["file_roots"]
        switch = {roots.flag: references.flag, roots.variable: f"{references.variable}=true"}.get(source)
        subject = source if switch else f"{source}: {roots.key}"
        raise InvalidArgument(
            f"{subject} has no effect without references to files; give {switch or f'{references.key} = true'} too"
        )


def explain(flags: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """Return every option with its value and its source, and the upstreams of the file. Secrets are masked.

    Raises `InvalidArgument` for settings that `serve` or `wrap` would refuse.
    """
    from forebay.config.upstreams import parse_upstreams

    file, values = _read_options("config", flags, environ)
    settings = _make_settings(values, {})
    _check_listening(settings)
    _check_file_references(settings)
    tables = file.values.get("upstreams", {})
    return {
        "options": [_make_option_row(option, values.get(option.name)) for option in OPTIONS.values()],
        "upstreams": [{"name": name, **_mask_upstream(tables[name])} for name in parse_upstreams(file, environ)],
    }


def _make_option_row(option: Option, value: _OptionValue | None) -> dict[str, Any]:
    return {
        "name": option.name,
        "flag": option.flag,
        "key": option.key,
        "variable": f"{option.variable}NAME" if option.name == "headers" else option.variable,
        "default": option.default,
        "value": option.default if value is None else _mask_option(option, value),
        "source": "default" if value is None else value.source,
        "commands": list(option.commands),
        "help": option.help,
        **({"path": _resolve_store(value)} if option.name == "store" else {}),
    }


def _resolve_store(value: _OptionValue | None) -> str | None:
    """Return where the store is, or `None` if that has variables, which may be secret."""
    # Here, so that `--help` does not import the store.
    from forebay.store import resolve_address

    address = resolve_address(None if value is None else value.value)
    if value is not None and _has_variable(value.raw_value):
        return None
    return str(address.resolve() if isinstance(address, Path) else address)


def _mask_option(option: Option, value: _OptionValue) -> Any:
    from forebay.config.masking import MASK, mask_url

    if option.is_secret:
        return dict.fromkeys(value.value, MASK)
    if _has_variable(value.raw_value):
        return value.raw_value
    if option.name == "store":
        from forebay.store import mask_address

        return mask_address(value.value)
    return mask_url(value.value) if option.name == "url" else value.value


def _has_variable(raw_value: Any) -> bool:
    """Return whether a value contains `${VAR}`, which may stand for a secret."""
    if isinstance(raw_value, Mapping):
        return any(map(_has_variable, raw_value.values()))
    if isinstance(raw_value, list | tuple):
        return any(map(_has_variable, raw_value))
    return isinstance(raw_value, str) and "${" in raw_value


def _mask_upstream(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _mask_upstream_value(key, value) for key, value in table.items()}


def _mask_upstream_value(key: str, value: Any) -> Any:
    from forebay.config.masking import MASK, mask_args, mask_url

    if key in _SECRET_KEYS:
        return dict.fromkeys(value, MASK)
    if key == "args":
        return mask_args(value)
    return mask_url(value) if key in _URL_KEYS else value
