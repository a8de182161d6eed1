"""Types of options: each parses a string from a flag or variable, or a value from TOML."""

import dataclasses
import json
import math
import re
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any

__all__ = [
    "ADDRESS",
    "CONTRACT",
    "COUNT",
    "FLAG",
    "HEADERS",
    "HEADER_NAME_PATTERN",
    "HOURS",
    "MODE",
    "PATH",
    "PREFIX",
    "SECONDS",
    "SHARE",
    "SIZE",
    "STORE",
    "TEXT",
    "TOOLS",
    "URL",
    "OptionType",
    "accept_none",
    "choice",
    "expand_variables",
    "format_toml",
    "line_list",
    "name_list",
    "name_map",
    "path_list",
    "reject_zero",
]


@dataclasses.dataclass(frozen=True, slots=True)
class OptionType:
    """How to parse and describe the value of an option."""

    parse: Callable[[Any], Any]
    """Takes a string or a TOML value. Raises `ValueError` with a description of valid values."""
    metavar: str
    example: str
    """Shown after the description of valid values. Empty if the description lists all values."""
    separator: str | None = None
    """Separates values in a variable. If it is set, the flag can be repeated."""
    is_flag: bool = False
    is_value_optional: bool = False
    """Whether the flag may be given without a value."""
    is_path: bool = False
    """Whether the value is a path. In a file, a relative path is relative to the file's folder."""


_SIZE_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_SIZE_UNITS |= {"k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_SECONDS_BY_UNIT = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}
_MAX_SECONDS = 100 * 366 * 24 * 3600
_AMOUNT_PATTERN = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)\s*([A-Za-z]*)", re.ASCII)
_PREFIX_PATTERN = re.compile(r"[A-Za-z0-9._-]{0,64}")
_MAX_PORT = 65535
_BOOLEANS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


def _parse_text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise ValueError("a text")
    return value


def _parse_flag(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in _BOOLEANS:
        return _BOOLEANS[value.lower()]
    raise ValueError("true or false")


def _parse_amount(value: Any, units: Mapping[str, float], valid_values: str) -> float:
    """Return a number times its unit. `units[""]` is the unit of a bare number."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf:
        return value * units[""]
    found = _AMOUNT_PATTERN.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None or found[2].lower() not in units:
        raise ValueError(valid_values)
    number = float(found[1]) if "." in found[1] else int(found[1])
    return number * units[found[2].lower()]


def _make_integer_parser(units: Mapping[str, float], valid_values: str) -> Callable[[Any], int]:
    def parse(value: Any) -> int:
        amount = _parse_amount(value, units, valid_values)
        if amount != int(amount):
            raise ValueError(valid_values)
        return int(amount)

    return parse


def _make_duration_parser(default_unit: int, valid_values: str) -> Callable[[Any], float]:
    """Return a parser of times, which gives seconds. A bare number is in units of `default_unit` seconds."""
    units = {"": default_unit, **_SECONDS_BY_UNIT}

    def parse(value: Any) -> float:
        seconds = float(_parse_amount(value, units, valid_values))
        if seconds > _MAX_SECONDS:
            raise ValueError(f"{valid_values}, a century at most")
        return seconds

    return parse


def _parse_prefix(value: Any) -> str:
    if not isinstance(value, str) or not _PREFIX_PATTERN.fullmatch(value):
        raise ValueError("at most 64 letters, digits, dots, dashes or underscores")
    return value


def _parse_url(value: Any) -> str:
    expected = "an address that begins with http:// or https://"
    try:
        parts = urllib.parse.urlsplit(value if isinstance(value, str) else "")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(expected)
        # Reading `port` raises `ValueError` if the port is invalid.
        _ = parts.port
    except ValueError:
        raise ValueError(expected) from None
    return str(value)


def _parse_address(value: Any) -> tuple[str, int]:
    host, colon, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    if not host or not colon or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > _MAX_PORT:
        raise ValueError("a host and a port")
    is_v6 = host.startswith("[") and host.endswith("]")
    if ":" in host and not is_v6:
        raise ValueError("a host and a port, with an IPv6 address in brackets")
    return host.strip("[]"), int(port)


TEXT = OptionType(_parse_text, "TEXT", "text")
STORE = OptionType(_parse_text, "URL", "file:///path")
PATH = OptionType(_parse_text, "PATH", "./file", is_path=True)
FLAG = OptionType(_parse_flag, "", "", is_flag=True)
SIZE = OptionType(_make_integer_parser(_SIZE_UNITS, "a number of bytes"), "BYTES", "64MiB")
COUNT = OptionType(_make_integer_parser({"": 1}, "a whole number"), "N", "5")
SECONDS = OptionType(_make_duration_parser(1, "a number of seconds or a duration"), "DURATION", "90s, 15m, 2h or 7d")
HOURS = OptionType(_make_duration_parser(3600, "a number of hours"), "HOURS", "24h")
PREFIX = OptionType(_parse_prefix, "PREFIX", "oc_")
URL = OptionType(_parse_url, "URL", "https://example.com/mcp")
ADDRESS = OptionType(_parse_address, "HOST:PORT", "127.0.0.1:8000")


def accept_none(value_type: OptionType) -> OptionType:
    """Return an option type that also accepts `none`."""

    def parse(value: Any) -> Any:
        if isinstance(value, str) and value.lower() == "none":
            return None
        try:
            return value_type.parse(value)
        except ValueError as error:
            raise ValueError(f"{error}, or none") from None

    return dataclasses.replace(value_type, parse=parse)


def reject_zero(value_type: OptionType) -> OptionType:
    """Return an option type that rejects 0."""

    def parse(value: Any) -> Any:
        amount = value_type.parse(value)
        if not amount > 0:
            raise ValueError("more than 0")
        return amount

    return dataclasses.replace(value_type, parse=parse)


def choice(*allowed: str) -> OptionType:
    """Return an option type that accepts these words only."""

    def parse(value: Any) -> str:
        if value not in allowed:
            raise ValueError(f"one of {', '.join(allowed)}")
        return str(value)

    return OptionType(parse, "|".join(allowed), "")


MODE = choice("inline", "handle", "auto")
SHARE = choice("principal", "session", "all")
_CATEGORIES = ("execution", "list", "status", "scan", "config")
HEADER_NAME_PATTERN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def _parse_texts(value: Any, valid_values: str = "a list of texts") -> list[str]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) and text.strip() for text in texts):
        raise ValueError(valid_values)
    return list(texts)


_NAMES_FORMAT = "a list of names, separated by commas"


def name_list(metavar: str, example: str) -> OptionType:
    """Return an option type for names, separated by commas or in a list."""

    def parse(value: Any) -> tuple[str, ...]:
        names = [name.strip() for text in _parse_texts(value, _NAMES_FORMAT) for name in text.split(",")]
        if not all(names):
            raise ValueError(_NAMES_FORMAT)
        return tuple(names)

    return OptionType(parse, metavar, example, ",")


def line_list(metavar: str, example: str) -> OptionType:
    """Return an option type for a list of strings that may contain commas. A variable has one string per line."""
    return OptionType(lambda value: tuple(_parse_texts(value)), metavar, example, "\n")


def path_list(metavar: str, example: str, separator: str) -> OptionType:
    """Return an option type for a list of paths."""
    return OptionType(lambda value: tuple(_parse_texts(value)), metavar, example, separator, is_path=True)


def _parse_rules(value: Any, parse_rule: Callable[[Any], Any], valid_values: str) -> dict[str, Any]:
    """Return rules by pattern: `PATTERN=RULE` in a flag, a table in TOML."""
    if not isinstance(value, dict):
        split = [text.rpartition("=") for text in _parse_texts(value, valid_values)]
        value = {pattern.strip(): rule.strip() for pattern, _, rule in split}
    if not all(value):
        raise ValueError(valid_values)
    return {pattern: parse_rule(rule) for pattern, rule in value.items()}


def name_map(metavar: str, example: str) -> OptionType:
    """Return an option type for names by pattern, such as `browser_*=core`."""
    expected = f"{metavar} for each"

    def parse_name(value: Any) -> str:
        if not isinstance(value, str) or not value:
            raise ValueError(expected)
        return value

    return OptionType(lambda value: _parse_rules(value, parse_name, expected), metavar, example, ",")


_TOOL_RULE_PARSERS = {"output_mode": MODE.parse, "output_inline_limit_bytes": SIZE.parse}


def _parse_tool_rule(value: Any) -> Any:
    if not isinstance(value, dict):
        return MODE.parse(value)
    unknown = sorted(value.keys() - _TOOL_RULE_PARSERS.keys())
    if unknown:
        raise ValueError(f"a table of {' and '.join(_TOOL_RULE_PARSERS)}, and has no {', '.join(unknown)}")
    return {name: _TOOL_RULE_PARSERS[name](setting) for name, setting in value.items()}


_CONTRACT_FORMAT = f"true, false, or patterns of tool names, each with an optional =CATEGORY ({', '.join(_CATEGORIES)})"


def _parse_category(value: Any) -> bool | str:
    if isinstance(value, bool) or value in _CATEGORIES:
        return value  # type: ignore[no-any-return]
    raise ValueError(_CONTRACT_FORMAT)


def _parse_contract(value: Any) -> bool | dict[str, bool | str]:
    if isinstance(value, bool):
        return value
    if isinstance(value, dict):
        return _parse_rules(value, _parse_category, _CONTRACT_FORMAT)
    texts = _parse_texts(value, _CONTRACT_FORMAT)
    if len(texts) == 1 and texts[0].lower() in ("true", "false"):
        return texts[0].lower() == "true"
    split = [text.rpartition("=") if "=" in text else (text, "", True) for text in texts]
    return _parse_rules({pattern: category for pattern, _, category in split}, _parse_category, _CONTRACT_FORMAT)


_HEADERS_FORMAT = "Name: value for each header"


def _parse_headers(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        split = [text.partition(":") for text in _parse_texts(value, _HEADERS_FORMAT)]
        if not all(colon for _, colon, _ in split):
            raise ValueError(_HEADERS_FORMAT)
        value = {name.strip(): text.strip() for name, _, text in split}
    for name, text in value.items():
        if not HEADER_NAME_PATTERN.fullmatch(name) or not isinstance(text, str) or set(text) & set("\r\n\0"):
            raise ValueError(_HEADERS_FORMAT)
    return dict(value)


TOOLS = OptionType(
    lambda value: _parse_rules(value, _parse_tool_rule, "PATTERN=MODE for each"), "PATTERN=MODE", "*_list=auto", ","
)
CONTRACT = OptionType(_parse_contract, "PATTERN[=CATEGORY]", "*_list=list", ",", is_value_optional=True)
HEADERS = OptionType(_parse_headers, "NAME:VALUE", "Authorization: Bearer ${TOKEN}", "\n")


_VARIABLE_PATTERN = re.compile(r"\$(\$?)\{([A-Za-z_][A-Za-z0-9_]*)\}")


def expand_variables(value: Any, environ: Mapping[str, str]) -> Any:
    """Replace every `${VAR}` in a value's strings. `$${VAR}` becomes a literal `${VAR}`.

    Raises `ValueError` if a variable is not set.
    """
    if isinstance(value, str):
        return _VARIABLE_PATTERN.sub(lambda found: _get_variable_value(found, environ), value)
    if isinstance(value, dict):
        return {key: expand_variables(inner, environ) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [expand_variables(inner, environ) for inner in value]
    return value


def _get_variable_value(match: re.Match[str], environ: Mapping[str, str]) -> str:
    is_escaped, name = match.groups()
    if is_escaped:
        return match[0][1:]
    if name not in environ:
        raise ValueError(f"the variable {name} is not set; set it, or write $${{{name}}} for the text itself")
    return environ[name]


def format_toml(value: Any) -> str:
    """Return a value as forebay.toml would hold it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        pairs = [f"{_format_key(key)} = {format_toml(inner)}" for key, inner in value.items()]
        return f"{{ {', '.join(pairs)} }}" if pairs else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(format_toml, value))}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return str(int(value) if value == int(value) else value)


def _format_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else format_toml(key)
