"""Every option, what is in force, and where that came from. Secrets are not shown."""

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
    """`options`, and the `upstreams` of the file."""
    document, found = read_options("config", flags, environ)
    _check_settings(found)
    tables = document.values.get("upstreams", {})
    return {
        "options": [_option_row(option, found.get(option.name)) for option in OPTIONS.values()],
        "upstreams": [{"name": name, **_mask_upstream(tables[name])} for name in parse_upstreams(document, environ)],
    }


def _check_settings(found: Mapping[str, OptionValue]) -> None:
    """What `serve` or `wrap` would refuse to begin with."""
    settings = Settings(
        **{name: one.value for name, one in found.items()}, sources={name: one.source for name, one in found.items()}
    )
    check_listening(settings)
    check_file_references(settings)


def _option_row(option: Option, one: OptionValue | None) -> dict[str, Any]:
    return {
        "name": option.name,
        "flag": option.flag,
        "key": option.key,
        "variable": f"{option.variable}NAME" if option.name == "headers" else option.variable,
        "default": option.default,
        "value": option.default if one is None else _mask_option(option, one),
        "source": "default" if one is None else one.source,
        "commands": list(option.commands),
        "help": option.help,
    }


def _mask_option(option: Option, one: OptionValue) -> Any:
    if option.is_secret:
        return dict.fromkeys(one.value, MASK)
    if _has_variable(one.raw):
        return one.raw
    return mask_url(one.value) if option.name == "url" else one.value


def _has_variable(written: Any) -> bool:
    """Whether it was read from a variable, which may be a secret."""
    if isinstance(written, Mapping):
        return any(map(_has_variable, written.values()))
    if isinstance(written, list | tuple):
        return any(map(_has_variable, written))
    return isinstance(written, str) and "${" in written


def _mask_upstream(table: Mapping[str, Any]) -> dict[str, Any]:
    """An upstream as it is written: what it is given to be let in is masked."""
    return {key: _mask_upstream_value(key, written) for key, written in table.items()}


def _mask_upstream_value(key: str, written: Any) -> Any:
    if key in _SECRET_KEYS:
        return dict.fromkeys(written, MASK)
    if key == "args":
        return mask_args(written)
    return mask_url(written) if key in _URL_KEYS else written
