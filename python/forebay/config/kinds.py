"""What the value of an option is, and how it is read: a text from a flag or variable, or what TOML has."""

import dataclasses
import math
import re
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any

__all__ = [
    "ADDRESS",
    "COUNT",
    "FLAG",
    "HOURS",
    "PATH",
    "PREFIX",
    "SECONDS",
    "SIZE",
    "TEXT",
    "URL",
    "Kind",
    "choice",
    "length",
    "or_none",
    "positive",
]


@dataclasses.dataclass(frozen=True, slots=True)
class Kind:
    """`read` takes a text or a TOML value, and raises `ValueError` with what it should have been."""

    read: Callable[[Any], Any]
    metavar: str
    example: str
    """Empty where what it should have been says it all."""
    separator: str | None = None
    """Between the values in a variable; only what has one may be given more than once."""
    is_flag: bool = False
    is_optional: bool = False
    """Whether the flag may stand without a value."""
    is_path: bool = False
    """Whether a file that gives it means it relative to itself."""


_SIZES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_SIZES |= {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_TIMES = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}
_AMOUNT = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)\s*([A-Za-z]*)", re.ASCII)
_CENTURY = 100 * 366 * 24 * 3600
_PREFIX = re.compile(r"[A-Za-z0-9._-]{0,64}")
_HIGHEST_PORT = 65535


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise ValueError("a text")
    return value


_SAID = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


def _flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in _SAID:
        return _SAID[value.lower()]
    raise ValueError("true or false")


def _amount(value: Any, units: Mapping[str, float], what: str) -> float:
    """A number, of the unit that stands behind it or of the one that has no name."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf:
        return value
    found = _AMOUNT.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None or found[2].lower() not in units:
        raise ValueError(what)
    number = float(found[1]) if "." in found[1] else int(found[1])
    return number * units[found[2].lower()]


def _whole(units: Mapping[str, float], what: str) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        amount = _amount(value, units, what)
        if amount != int(amount):
            raise ValueError(what)
        return int(amount)

    return read


def _times(unit: int, what: str) -> Callable[[Any], float]:
    units = {"": 1} | {name: seconds / unit for name, seconds in _TIMES.items()}

    def read(value: Any) -> float:
        amount = float(_amount(value, units, what))
        if amount * unit > _CENTURY:
            raise ValueError(f"{what}, a century at most")
        return amount

    return read


def _prefix(value: Any) -> str:
    if not isinstance(value, str) or not _PREFIX.fullmatch(value):
        raise ValueError("at most 64 letters, digits, dots, dashes or underscores")
    return value


def _url(value: Any) -> str:
    what = "an address that begins with http:// or https://"
    try:
        parts = urllib.parse.urlsplit(value if isinstance(value, str) else "")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(what)
        _ = parts.port
    except ValueError:
        raise ValueError(what) from None
    return str(value)


def _address(value: Any) -> tuple[str, int]:
    host, colon, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    if not host or not colon or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > _HIGHEST_PORT:
        raise ValueError("a host and a port")
    is_v6 = host.startswith("[") and host.endswith("]")
    if ":" in host and not is_v6:
        raise ValueError("a host and a port, with an IPv6 address in brackets")
    return host.strip("[]"), int(port)


TEXT = Kind(_text, "TEXT", "text")
PATH = Kind(_text, "PATH", "./file", is_path=True)
FLAG = Kind(_flag, "", "", is_flag=True)
SIZE = Kind(_whole(_SIZES, "a number of bytes"), "BYTES", "64MiB")
COUNT = Kind(_whole({"": 1}, "a whole number"), "N", "5")
SECONDS = Kind(_times(1, "a number of seconds"), "SECONDS", "30s")
HOURS = Kind(_times(3600, "a number of hours"), "HOURS", "24h")
PREFIX = Kind(_prefix, "PREFIX", "oc_")
URL = Kind(_url, "URL", "https://example.com/mcp")
ADDRESS = Kind(_address, "HOST:PORT", "127.0.0.1:8000")


def or_none(kind: Kind) -> Kind:
    """`none` where there is to be no limit."""

    def read(value: Any) -> Any:
        if isinstance(value, str) and value.lower() == "none":
            return None
        try:
            return kind.read(value)
        except ValueError as error:
            raise ValueError(f"{error}, or none") from None

    return dataclasses.replace(kind, read=read)


def positive(kind: Kind) -> Kind:
    """More than nothing."""

    def read(value: Any) -> Any:
        amount = kind.read(value)
        if not amount > 0:
            raise ValueError("more than 0")
        return amount

    return dataclasses.replace(kind, read=read)


def choice(*allowed: str) -> Kind:
    """One of a few words."""

    def read(value: Any) -> str:
        if value not in allowed:
            raise ValueError(f"one of {', '.join(allowed)}")
        return str(value)

    return Kind(read, "|".join(allowed), "")


def length(*allowed: int) -> Kind:
    """One of a few numbers."""

    def read(value: Any) -> int:
        if isinstance(value, bool) or str(value) not in map(str, allowed):
            raise ValueError(" or ".join(map(str, allowed)))
        return int(value)

    return Kind(read, "|".join(map(str, allowed)), "")
