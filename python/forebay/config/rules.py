"""Kinds of options that have several values: lists, and rules by patterns of tools."""

import re
from collections.abc import Callable
from typing import Any

from forebay.config.kinds import SIZE, Kind, choice

__all__ = ["CONTRACT", "HEADERS", "HEADER_NAME", "MODE", "TOOLS", "lines_of", "names", "pairs", "paths"]

MODE = choice("inline", "handle", "auto")
_CATEGORIES = ("execution", "list", "status", "scan", "config")
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


def _texts(value: Any, what: str = "a list of texts") -> list[str]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) and text.strip() for text in texts):
        raise ValueError(what)
    return list(texts)


def names(metavar: str, example: str) -> Kind:
    """Names with commas between them, or one at a time."""

    def read(value: Any) -> tuple[str, ...]:
        parts = [part.strip() for text in _texts(value) for part in text.split(",")]
        if not all(parts):
            raise ValueError("names, with a comma between them")
        return tuple(parts)

    return Kind(read, metavar, example, ",")


def lines_of(metavar: str, example: str) -> Kind:
    """Texts that may have any character in them: one a line in a variable."""
    return Kind(lambda value: tuple(_texts(value)), metavar, example, "\n")


def paths(metavar: str, example: str, separator: str) -> Kind:
    """Paths, as a variable such as PATH has them."""
    return Kind(lambda value: tuple(_texts(value)), metavar, example, separator, is_path=True)


def _by_pattern(value: Any, rule: Callable[[Any], Any], what: str) -> dict[str, Any]:
    """Rules that a flag gives as PATTERN=RULE and TOML as a table."""
    if not isinstance(value, dict):
        split = [text.rpartition("=") for text in _texts(value, what)]
        value = {pattern.strip(): said.strip() for pattern, _, said in split}
    if not all(value):
        raise ValueError(what)
    return {pattern: rule(said) for pattern, said in value.items()}


def pairs(metavar: str, example: str) -> Kind:
    """Names by pattern."""
    what = f"{metavar} for each"

    def rule(value: Any) -> str:
        if not isinstance(value, str) or not value:
            raise ValueError(what)
        return value

    return Kind(lambda value: _by_pattern(value, rule, what), metavar, example, ",")


_OF_A_TOOL = {"output_mode": MODE.read, "output_inline_limit_bytes": SIZE.read}


def _tool(value: Any) -> Any:
    if not isinstance(value, dict):
        return MODE.read(value)
    unknown = sorted(value.keys() - _OF_A_TOOL.keys())
    if unknown:
        raise ValueError(f"a table of {' and '.join(_OF_A_TOOL)}, and has no {', '.join(unknown)}")
    return {name: _OF_A_TOOL[name](given) for name, given in value.items()}


def _tools(value: Any) -> dict[str, Any]:
    return _by_pattern(value, _tool, "PATTERN=MODE for each")


_CONTRACT = f"true, false, or patterns of tools, each with =CATEGORY if wanted ({', '.join(_CATEGORIES)})"


def _category(value: Any) -> bool | str:
    if isinstance(value, bool) or value in _CATEGORIES:
        return value  # type: ignore[no-any-return]
    raise ValueError(_CONTRACT)


def _contract(value: Any) -> bool | dict[str, bool | str]:
    if isinstance(value, bool):
        return value
    if isinstance(value, dict):
        return _by_pattern(value, _category, _CONTRACT)
    texts = _texts(value, _CONTRACT)
    if len(texts) == 1 and texts[0].lower() in ("true", "false"):
        return texts[0].lower() == "true"
    split = [text.rpartition("=") if "=" in text else (text, "", True) for text in texts]
    return _by_pattern({pattern: said for pattern, _, said in split}, _category, _CONTRACT)


_HEADERS = "Name: value for each"


def _headers(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        split = [text.partition(":") for text in _texts(value, _HEADERS)]
        if not all(colon for _, colon, _ in split):
            raise ValueError(_HEADERS)
        value = {name.strip(): said.strip() for name, _, said in split}
    for name, said in value.items():
        if not HEADER_NAME.fullmatch(name) or not isinstance(said, str) or set(said) & set("\r\n\0"):
            raise ValueError(_HEADERS)
    return dict(value)


TOOLS = Kind(_tools, "PATTERN=MODE", "*_list=auto", ",")
CONTRACT = Kind(_contract, "PATTERN[=CATEGORY]", "*_list=list", ",", is_optional=True)
HEADERS = Kind(_headers, "NAME:VALUE", "Authorization: Bearer ${TOKEN}", "\n")
