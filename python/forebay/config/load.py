"""Loading of settings: a flag wins over a variable, a variable over forebay.toml, and that over the default."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from forebay.arguments import did_you_mean, short_repr
from forebay.config.config_file import ConfigFile, expand_variables
from forebay.config.options import OPTIONS, REMOVED, SPELLINGS, Option, Settings
from forebay.config.upstreams import UpstreamConfig, check_prefixes, parse_upstreams
from forebay.errors import InvalidArgument, InvalidPattern

__all__ = ["OptionValue", "check_file_references", "load_settings", "read_options"]

_VARIABLE_PREFIX = "FOREBAY_"
_HEADER_VARIABLE_PREFIX = OPTIONS["headers"].variable
_OTHER_VARIABLES = ("FOREBAY_HOME",)
"""Variables that the store reads."""

_EXPLAIN_HINT = "`forebay config --explain` lists them all"


@dataclasses.dataclass(frozen=True, slots=True)
class OptionValue:
    """A value that is not the default."""

    value: Any
    source: str
    raw: Any
    """The value before `${VAR}` was expanded, so that it can be shown without secrets."""


def load_settings(command: str, flags: Mapping[str, Any], environ: Mapping[str, str]) -> Settings:
    """Return the settings of `wrap` or `serve`. `flags` holds a string, strings or a bool by option name.

    Raises `InvalidArgument` for invalid settings.
    """
    file, values = read_options(command, flags, environ)
    upstreams = _load_upstreams(command, file, values, environ)
    settings = Settings(
        **{name: value.value for name, value in values.items()},
        upstreams=upstreams,
        sources={name: value.source for name, value in values.items()},
    )
    factor = settings.max_connections / OPTIONS["max_connections"].default
    if factor > 1:
        settings = dataclasses.replace(
            settings,
            max_sessions=int(settings.max_sessions * factor),
            max_principals=int(settings.max_principals * factor),
        )
    if command == "serve":
        _check_serve(settings)
    check_file_references(settings)
    return settings


def read_options(
    command: str, flags: Mapping[str, Any], environ: Mapping[str, str]
) -> tuple[ConfigFile, dict[str, OptionValue]]:
    """Return the configuration file and the values of all options that are not at their default.

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
) -> OptionValue | None:
    spellings = (option, *option.aliases)
    expanded_from = environ if option.is_secret else None
    for spelling in spellings:
        if flags.get(spelling.name) is not None:
            return _parse_value(spelling, flags[spelling.name], spelling.flag, expanded_from)
    for spelling in spellings:
        if (raw := _read_variable(spelling, environ)) is not None:
            return _parse_value(spelling, raw, spelling.variable, expanded_from)
    for spelling in spellings:
        if spelling.key is not None and spelling.key in file.values:
            return _parse_value(spelling, file.values[spelling.key], file.location(spelling.key), environ, file)
    return None


def _read_variable(option: Option, environ: Mapping[str, str]) -> Any:
    """Return the value of an option's variable, or `None`. An empty variable counts as unset."""
    if option.name == "headers":
        prefix = _HEADER_VARIABLE_PREFIX
        return {name.removeprefix(prefix): environ[name] for name in environ if name.startswith(prefix)} or None
    text = environ.get(option.variable) or None
    if text is None or option.type.separator is None:
        return text
    return [part for part in text.split(option.type.separator) if part.strip()]


def _parse_value(
    option: Option, raw: Any, source: str, environ: Mapping[str, str] | None, file: ConfigFile | None = None
) -> OptionValue:
    try:
        value = raw if environ is None else expand_variables(raw, environ)
    except ValueError as error:
        raise InvalidArgument(f"{source}: {error}") from None
    try:
        value = option.type.parse(value)
    except ValueError as error:
        instead = "" if option.is_secret else f", not {short_repr(raw)}"
        name = "" if source == option.flag else f"{option.name} "
        example = f", such as {option.type.example}" if option.type.example else ""
        about = f"{name}is {error}{example}{instead}"
        raise InvalidArgument(f"{source} {about}" if source == option.flag else f"{source}: {about}") from None
    if option.name == "redact":
        _check_expressions(value, source)
    if file is not None and option.type.is_path:
        is_single = isinstance(value, str)
        value = file.resolve_path(value) if is_single else tuple(file.resolve_path(path) for path in value)
    return OptionValue(value, source, raw)


def _check_expressions(expressions: tuple[str, ...], source: str) -> None:
    from forebay.config.masking import make_redaction

    for expression in expressions:
        try:
            make_redaction(expression)
        except InvalidPattern as error:
            # The message gives advice for `output_search`; replace it by advice for redaction.
            why = str(error).replace("search for it as a literal", r"put a backslash before what is no operator: \(")
            raise InvalidArgument(f"{source}: {short_repr(expression)} cannot be redacted: {why}") from None


def _check_variables(environ: Mapping[str, str]) -> None:
    known = [*_OTHER_VARIABLES, *(option.variable for option in SPELLINGS.values())]
    for name in environ:
        if name.startswith(_VARIABLE_PREFIX) and name not in known and not name.startswith(_HEADER_VARIABLE_PREFIX):
            removed = name.removeprefix(_VARIABLE_PREFIX).lower()
            hint = REMOVED.get(removed) or did_you_mean(name, known, _EXPLAIN_HINT, _VARIABLE_PREFIX)
            raise InvalidArgument(f"forebay reads no variable {name}; {hint}")


def _check_keys(command: str, file: ConfigFile) -> None:
    known = {option.key: option.commands for option in SPELLINGS.values() if option.key is not None}
    known["upstreams"] = ("serve",)
    for key in file.values:
        if key not in known:
            raise InvalidArgument(f"{file.location(key)}: there is no key {key}; {_make_key_hint(key, known)}")
        if command not in (*known[key], "config"):
            (owner,) = known[key]
            raise InvalidArgument(f"{file.location(key)}: {key} is for `forebay {owner}`; take it out of this file")


def _make_key_hint(key: str, known_keys: Mapping[str, object]) -> str:
    if key in REMOVED:
        return REMOVED[key]
    keys_by_flag = {option.flag.removeprefix("--"): option.key for option in OPTIONS.values() if option.key}
    return f"did you mean {keys_by_flag[key]}?" if key in keys_by_flag else did_you_mean(key, known_keys, _EXPLAIN_HINT)


def _load_upstreams(
    command: str, file: ConfigFile, values: Mapping[str, OptionValue], environ: Mapping[str, str]
) -> dict[str, UpstreamConfig]:
    upstreams = parse_upstreams(file, environ)
    if command == "serve" and "mcp_servers" in values:
        from forebay.config.clients import load_client_upstreams

        path = values["mcp_servers"].value
        for name, upstream in load_client_upstreams(path, environ).items():
            if name in upstreams:
                raise InvalidArgument(f"{file.path} and {path} both have an upstream {name}; rename one of them")
            upstreams[name] = upstream
        check_prefixes(upstreams, file)
    return upstreams


def _check_serve(settings: Settings) -> None:
    if not settings.upstreams:
        raise InvalidArgument(
            "there is nothing to serve; name a --config with [upstreams.NAME], or a client's file with --mcp-servers"
        )
    from forebay.config.listening import check_listening

    check_listening(settings)


def check_file_references(settings: Settings) -> None:
    """Raise `InvalidArgument` if `file_roots` is set but `file_refs` is not set at all."""
    if settings.file_roots and "file_refs" not in settings.sources:
        roots, references = OPTIONS["file_roots"], OPTIONS["file_refs"]
        source = settings.sources["file_roots"]
        switch = {roots.flag: references.flag, roots.variable: f"{references.variable}=true"}.get(source)
        subject = source if switch else f"{source}: {roots.key}"
        raise InvalidArgument(
            f"{subject} is where references may lead; give {switch or f'{references.key} = true'} to have them"
        )
