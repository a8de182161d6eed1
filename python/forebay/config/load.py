"""What is in force: a flag, else the environment, else a forebay.toml, else the default."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from forebay.arguments import did_you_mean, short_repr
from forebay.config.config_file import ConfigFile, expand_variables
from forebay.config.options import OPTIONS, Option, Settings
from forebay.config.upstreams import UpstreamConfig, check_prefixes, parse_upstreams
from forebay.errors import InvalidArgument, InvalidPattern

__all__ = ["OptionValue", "check_file_references", "load_settings", "read_options"]

_VARIABLE_PREFIX = "FOREBAY_"
_OTHER_VARIABLES = ("FOREBAY_HOME",)
"""What the store reads itself."""

_HEADER_VARIABLE_PREFIX = OPTIONS["headers"].variable
_EXPLAIN_HINT = "`forebay config --explain` lists them all"


@dataclasses.dataclass(frozen=True, slots=True)
class OptionValue:
    """A value that is not the default."""

    value: Any
    source: str
    raw: Any
    """As it stands in its source, before any `${VAR}` was read: what may be shown."""


def load_settings(command: str, flags: Mapping[str, Any], environ: Mapping[str, str]) -> Settings:
    """The settings of `wrap` or `serve`; `flags` has a text, texts or a truth by the options' names.

    Raises `InvalidArgument` for whatever cannot be right.
    """
    document, found = read_options(command, flags, environ)
    upstreams = _load_upstreams(command, document, found, environ)
    settings = Settings(
        **{name: one.value for name, one in found.items()},
        upstreams=upstreams,
        sources={name: one.source for name, one in found.items()},
    )
    if command == "serve":
        _check_serve(settings)
    check_file_references(settings)
    return settings


def read_options(
    command: str, flags: Mapping[str, Any], environ: Mapping[str, str]
) -> tuple[ConfigFile, dict[str, OptionValue]]:
    """The file that was named, and what is given for each option that is not left at its default.

    The command `config` has the options of all.
    """
    _check_variables(environ)
    path = flags.get("config") or environ.get(OPTIONS["config"].variable)
    document = ConfigFile(path or None)
    _check_keys(command, document)
    found = {}
    for option in OPTIONS.values():
        if command in (*option.commands, "config"):
            one = _read_option(option, flags, environ, document)
            if one is not None:
                found[option.name] = one
    return document, found


def _read_option(
    option: Option, flags: Mapping[str, Any], environ: Mapping[str, str], document: ConfigFile
) -> OptionValue | None:
    if flags.get(option.name) is not None:
        return _parse_value(option, flags[option.name], option.flag, environ if option.is_secret else None)
    written = _read_variable(option, environ)
    if written is not None:
        return _parse_value(option, written, option.variable, environ if option.is_secret else None)
    if option.key is not None and option.key in document.values:
        return _parse_value(option, document.values[option.key], document.location(option.key), environ, document)
    return None


def _read_variable(option: Option, environ: Mapping[str, str]) -> Any:
    """What the environment says; a variable that is empty says nothing."""
    if option.name == "headers":
        headers = {
            name.removeprefix(_HEADER_VARIABLE_PREFIX): environ[name]
            for name in environ
            if name.startswith(_HEADER_VARIABLE_PREFIX)
        }
        return headers or None
    text = environ.get(option.variable) or None
    if text is None or option.type.separator is None:
        return text
    return [part for part in text.split(option.type.separator) if part.strip()]


def _parse_value(
    option: Option, written: Any, source: str, environ: Mapping[str, str] | None, document: ConfigFile | None = None
) -> OptionValue:
    try:
        value = written if environ is None else expand_variables(written, environ)
    except ValueError as error:
        raise InvalidArgument(f"{source}: {error}") from None
    try:
        value = option.type.parse(value)
    except ValueError as error:
        instead = "" if option.is_secret else f", not {short_repr(written)}"
        name = "" if source == option.flag else f"{option.name} "
        example = f", such as {option.type.example}" if option.type.example else ""
        about = f"{name}is {error}{example}{instead}"
        raise InvalidArgument(f"{source} {about}" if source == option.flag else f"{source}: {about}") from None
    if option.name == "redact":
        _check_expressions(value, source)
    if document is not None and option.type.is_path:
        is_one = isinstance(value, str)
        value = document.resolve_path(value) if is_one else tuple(document.resolve_path(path) for path in value)
    return OptionValue(value, source, written)


def _check_expressions(expressions: tuple[str, ...], source: str) -> None:
    from forebay.config.masking import make_redaction

    for expression in expressions:
        try:
            make_redaction(expression)
        except InvalidPattern as error:
            # Its advice is for whoever searches.
            why = str(error).replace("search for it as a literal", r"put a backslash before what is no operator: \(")
            raise InvalidArgument(f"{source}: {short_repr(expression)} cannot be redacted: {why}") from None


def _check_variables(environ: Mapping[str, str]) -> None:
    known = [*_OTHER_VARIABLES, *(option.variable for option in OPTIONS.values())]
    for name in environ:
        if name.startswith(_VARIABLE_PREFIX) and name not in known and not name.startswith(_HEADER_VARIABLE_PREFIX):
            raise InvalidArgument(
                f"forebay reads no variable {name}; {did_you_mean(name, known, _EXPLAIN_HINT, _VARIABLE_PREFIX)}"
            )


def _check_keys(command: str, document: ConfigFile) -> None:
    known = {option.key: option.commands for option in OPTIONS.values() if option.key is not None}
    known["upstreams"] = ("serve",)
    for key in document.values:
        if key not in known:
            flags = {option.flag.removeprefix("--"): option.key for option in OPTIONS.values() if option.key}
            hint = f"did you mean {flags[key]}?" if key in flags else did_you_mean(key, known, _EXPLAIN_HINT)
            raise InvalidArgument(f"{document.location(key)}: there is no key {key}; {hint}")
        if command not in (*known[key], "config"):
            (owner,) = known[key]
            raise InvalidArgument(f"{document.location(key)}: {key} is for `forebay {owner}`; take it out of this file")


def _load_upstreams(
    command: str, document: ConfigFile, found: Mapping[str, OptionValue], environ: Mapping[str, str]
) -> dict[str, UpstreamConfig]:
    targets = parse_upstreams(document, environ)
    if command == "serve" and "mcp_servers" in found:
        from forebay.config.clients import load_client_upstreams

        path = found["mcp_servers"].value
        for name, target in load_client_upstreams(path, environ).items():
            if name in targets:
                raise InvalidArgument(f"{document.path} and {path} both have an upstream {name}; rename one of them")
            targets[name] = target
        check_prefixes(targets, document)
    return targets


def _check_serve(settings: Settings) -> None:
    if not settings.upstreams:
        raise InvalidArgument(
            "there is nothing to serve; name a --config with [upstreams.NAME], or a client's file with --mcp-servers"
        )
    from forebay.config.listening import check_listening

    check_listening(settings)


def check_file_references(settings: Settings) -> None:
    """Refuses folders for references that nobody asked for, nor switched off."""
    if settings.file_roots and "file_refs" not in settings.sources:
        roots, refs = OPTIONS["file_roots"], OPTIONS["file_refs"]
        source = settings.sources["file_roots"]
        switch = {roots.flag: refs.flag, roots.variable: f"{refs.variable}=true"}.get(source)
        said = source if switch else f"{source}: {roots.key}"
        raise InvalidArgument(
            f"{said} is where references may lead; give {switch or f'{refs.key} = true'} to have them"
        )
