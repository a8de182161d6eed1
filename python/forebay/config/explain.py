"""Every option, what is in force, and where that came from. Secrets are not shown."""

from collections.abc import Mapping
from typing import Any

from forebay.config.listening import check_listening
from forebay.config.load import Given, check_references, given
from forebay.config.masked import MASK, masked_args, masked_url
from forebay.config.options import OPTIONS, Option, Settings
from forebay.config.targets import targets_in

__all__ = ["explained"]

_SECRETS = ("env", "headers", "auth")
_ADDRESSES = ("url", "openapi", "base_url")


def explained(flags: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """`options`, and the `upstreams` of the file."""
    document, found = given("config", flags, environ)
    _check(found)
    tables = document.values.get("upstreams", {})
    return {
        "options": [_row(option, found.get(option.name)) for option in OPTIONS.values()],
        "upstreams": [{"name": name, **_upstream(tables[name])} for name in targets_in(document, environ)],
    }


def _check(found: Mapping[str, Given]) -> None:
    """What `serve` or `wrap` would refuse to begin with."""
    settings = Settings(
        **{name: one.value for name, one in found.items()}, sources={name: one.source for name, one in found.items()}
    )
    check_listening(settings)
    check_references(settings)


def _row(option: Option, one: Given | None) -> dict[str, Any]:
    return {
        "name": option.name,
        "flag": option.flag,
        "key": option.key,
        "variable": f"{option.variable}NAME" if option.name == "headers" else option.variable,
        "default": option.default,
        "value": option.default if one is None else _shown(option, one),
        "source": "default" if one is None else one.source,
        "commands": list(option.commands),
        "help": option.help,
    }


def _shown(option: Option, one: Given) -> Any:
    if option.is_secret:
        return dict.fromkeys(one.value, MASK)
    if _has_variable(one.written):
        return one.written
    return masked_url(one.value) if option.name == "url" else one.value


def _has_variable(written: Any) -> bool:
    """Whether it was read from a variable, which may be a secret."""
    if isinstance(written, Mapping):
        return any(map(_has_variable, written.values()))
    if isinstance(written, list | tuple):
        return any(map(_has_variable, written))
    return isinstance(written, str) and "${" in written


def _upstream(table: Mapping[str, Any]) -> dict[str, Any]:
    """An upstream as it is written: what it is given to be let in is masked."""
    return {key: _said(key, written) for key, written in table.items()}


def _said(key: str, written: Any) -> Any:
    if key in _SECRETS:
        return dict.fromkeys(written, MASK)
    if key == "args":
        return masked_args(written)
    return masked_url(written) if key in _ADDRESSES else written
