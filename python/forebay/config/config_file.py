"""A forebay.toml: its values, the lines they are on, and the variables in them."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forebay.errors import InvalidArgument

__all__ = ["ConfigFile", "expand_variables"]

_VARIABLE_PATTERN = re.compile(r"\$(\$?)\{([A-Za-z_][A-Za-z0-9_]*)\}")
_KEY = r"""(?:"[^"\n]*"|'[^'\n]*'|[A-Za-z0-9_-]+)"""
_DOTTED_KEY = rf"{_KEY}(?:\s*\.\s*{_KEY})*"
_TABLE_LINE_PATTERN = re.compile(rf"\s*\[\[?\s*({_DOTTED_KEY})\s*\]")
_PAIR_LINE_PATTERN = re.compile(rf"\s*({_DOTTED_KEY})\s*=")


class ConfigFile:
    """A configuration file. With the path `None` it is empty."""

    def __init__(self, path: str | None) -> None:
        self.path = path
        self._text = "" if path is None else _read_text(path)
        try:
            self.values = tomllib.loads(self._text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise InvalidArgument(f"{path} is no TOML: {error}") from None

    def location(self, *keys: str) -> str:
        """Return the file and line of a key, or of the nearest table above it that has a line of its own."""
        while keys:
            for number, found in enumerate(_find_keys_by_line(self._text), 1):
                if found[: len(keys)] == keys:
                    return f"{self.path}:{number}"
            keys = keys[:-1]
        return str(self.path)

    def resolve_path(self, path: str) -> str:
        """Return a path from the file, relative to the file's folder."""
        return str(Path(self.path or ".").parent / Path(path).expanduser())


def _read_text(path: str) -> str:
    try:
        return Path(path).read_text("utf-8-sig")
    except OSError as error:
        raise InvalidArgument(f"{path} cannot be read: {error.strerror}; name another file with --config") from None
    except UnicodeDecodeError:
        raise InvalidArgument(f"{path} is not UTF-8, as TOML is; save it as such") from None


def _find_keys_by_line(text: str) -> list[tuple[str, ...]]:
    """Return the full key that each line sets or opens; an empty tuple for other lines."""
    table: tuple[str, ...] = ()
    keys = []
    for line in text.split("\n"):
        if opened := _TABLE_LINE_PATTERN.match(line):
            table = _split_key(opened[1])
            keys.append(table)
        elif pair := _PAIR_LINE_PATTERN.match(line):
            keys.append((*table, *_split_key(pair[1])))
        else:
            keys.append(())
    return keys


def _split_key(dotted_key: str) -> tuple[str, ...]:
    return tuple(key.strip("\"'") for key in re.findall(_KEY, dotted_key))


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
