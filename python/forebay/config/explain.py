"""Every option with its value and where that was set. Secrets are masked."""

from collections.abc import Mapping
from typing import Any

from forebay.config.listening import check_listening
from forebay.config.load import OptionValue, check_file_references, read_options
from forebay.config.masking import MASK, mask_args, mask_url
from forebay.config.options import OPTIONS, Option, Settings
from forebay.config.upstreams import parse_upstreams

__all__ = ["explain"]

_SECRET_KEYS = ("env", "headers", "auth")
_URL_KEYS = ("url", "openapi", "base_url")


def explain(flags: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the `options` of all commands and the `upstreams` of the file. Raises `InvalidArgument`."""
    file, values = read_options("config", flags, environ)
    _check_settings(values)
    tables = file.values.get("upstreams", {})
    return {
        "options": [_make_option_row(option, values.get(option.name)) for option in OPTIONS.values()],
        "upstreams": [{"name": name, **_mask_upstream(tables[name])} for name in parse_upstreams(file, environ)],
    }


def _check_settings(values: Mapping[str, OptionValue]) -> None:
    """Raise `InvalidArgument` for settings that `serve` or `wrap` would refuse."""
    settings = Settings(
        **{name: value.value for name, value in values.items()},
        sources={name: value.source for name, value in values.items()},
    )
    check_listening(settings)
    check_file_references(settings)


def _make_option_row(option: Option, value: OptionValue | None) -> dict[str, Any]:
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
    }


def _mask_option(option: Option, value: OptionValue) -> Any:
    if option.is_secret:
        return dict.fromkeys(value.value, MASK)
    if _has_variable(value.raw):
        return value.raw
    return mask_url(value.value) if option.name == "url" else value.value


def _has_variable(raw: Any) -> bool:
    """Return whether a value contains `${VAR}`, which may stand for a secret."""
    if isinstance(raw, Mapping):
        return any(map(_has_variable, raw.values()))
    if isinstance(raw, list | tuple):
        return any(map(_has_variable, raw))
    return isinstance(raw, str) and "${" in raw


def _mask_upstream(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _mask_upstream_value(key, value) for key, value in table.items()}


def _mask_upstream_value(key: str, value: Any) -> Any:
    if key in _SECRET_KEYS:
        return dict.fromkeys(value, MASK)
    if key == "args":
        return mask_args(value)
    return mask_url(value) if key in _URL_KEYS else value
