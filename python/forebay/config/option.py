"""What an option is: a field of `Settings`, with its flag, its key in TOML and its variable."""

import dataclasses
from typing import Any, TypeVar

from forebay.config.kinds import Kind

__all__ = ["Option", "described", "option"]

_T = TypeVar("_T")
_BOTH = ("wrap", "serve")


@dataclasses.dataclass(frozen=True, slots=True)
class Option:
    """`name` is its key in TOML and its field of `Settings`; where forebay's own API calls it otherwise, `gate`."""

    name: str
    kind: Kind
    default: Any
    help: str
    flag: str
    variable: str
    commands: tuple[str, ...]
    gate: str | None
    is_secret: bool
    in_file: bool

    @property
    def key(self) -> str | None:
        """What TOML calls it; a file does not name itself."""
        return self.name if self.in_file else None


def option(
    default: _T,
    kind: Kind,
    about: str,
    *,
    flag: str | None = None,
    variable: str | None = None,
    commands: tuple[str, ...] = _BOTH,
    gate: str | None = None,
    is_secret: bool = False,
    in_file: bool = True,
) -> _T:
    """A field of `Settings` that is an option; its flag and its variable are named as it is, if not otherwise."""
    metadata = {
        "default": default,
        "kind": kind,
        "help": about,
        "flag": flag,
        "variable": variable,
        "commands": commands,
        "gate": gate,
        "is_secret": is_secret,
        "in_file": in_file,
    }
    # Dataclasses want every mapping to be one of its own.
    return dataclasses.field(default_factory=lambda: default, repr=not is_secret, metadata=metadata)


def described(field: "dataclasses.Field[Any]") -> Option:
    """The option that a field is."""
    about = dict(field.metadata)
    flag = about.pop("flag") or "--" + field.name.replace("_", "-")
    variable = about.pop("variable") or f"FOREBAY_{field.name.upper()}"
    return Option(name=field.name, flag=flag, variable=variable, **about)
