"""Regular expressions in schemas that the validator cannot compile, such as Python's `\\Z` or atomic groups."""

import functools
from collections.abc import Mapping
from typing import Any

import jsonschema_rs

__all__ = ["remove_foreign_patterns"]

_VALUE_KEYWORDS = {"const", "default", "enum", "example", "examples"}
"""Keywords that hold values, not schemas."""

_MAP_KEYWORDS = {"$defs", "definitions", "dependencies", "dependentSchemas", "properties", "schemas"}
"""Keywords that hold schemas by names. A name may be that of a keyword."""

_MATCH_ALL = ""
_MAX_CACHED_PATTERNS = 1024


def remove_foreign_patterns(schema: Any) -> tuple[Any, list[str]]:
    """Return a copy of a schema without the patterns that cannot be compiled, and where each was, with its text.

    In `patternProperties`, such a pattern is replaced by one that matches every name and allows every value: it is
    unknown which properties it matches, so `additionalProperties` must not reject any.
    """
    removed: list[str] = []

    def copy(value: Any, pointer: str) -> Any:
        if isinstance(value, list | tuple):
            return [copy(item, f"{pointer}/{index}") for index, item in enumerate(value)]
        if not isinstance(value, Mapping):
            return value
        keywords = {}
        for key, inner in value.items():
            place = f"{pointer}/{key}"
            if key == "pattern" and isinstance(inner, str) and not _can_compile(inner):
                removed.append(f"{place} {inner!r}")
            elif key == "patternProperties" and isinstance(inner, Mapping):
                keywords[key] = copy_pattern_properties(inner, place)
            elif key in _MAP_KEYWORDS and isinstance(inner, Mapping):
                keywords[key] = {name: copy(item, f"{place}/{name}") for name, item in inner.items()}
            else:
                keywords[key] = inner if key in _VALUE_KEYWORDS else copy(inner, place)
        return keywords

    def copy_pattern_properties(schemas: Mapping[str, Any], pointer: str) -> dict[str, Any]:
        kept = {}
        for pattern, schema in schemas.items():
            if not isinstance(pattern, str) or _can_compile(pattern):
                kept[pattern] = copy(schema, f"{pointer}/{pattern}")
            else:
                removed.append(f"{pointer} {pattern!r}")
        if len(kept) < len(schemas):
            kept.setdefault(_MATCH_ALL, True)
        return kept

    return copy(schema, ""), removed


@functools.lru_cache(_MAX_CACHED_PATTERNS)
def _can_compile(pattern: str) -> bool:
    try:
        jsonschema_rs.Draft202012Validator({"pattern": pattern}, offline=True)
    except ValueError:
        return False
    return True
