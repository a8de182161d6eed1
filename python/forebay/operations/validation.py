"""Validation of values against JSON Schemas, with the path of each problem."""

import base64
import itertools
import logging
from collections.abc import Iterator
from typing import Any, TypeAlias

import jsonschema_rs

from forebay.operations.dialect import Schema, is_openapi_3_0, modernize
from forebay.operations.json_values import count_values

__all__ = ["Problem", "Schema", "Validator", "has_rules", "to_pointer"]

_log = logging.getLogger("forebay")

Problem: TypeAlias = dict[str, str]
"""A rule that a value breaks: `path`, a JSON Pointer, and `message`."""

MAX_PROBLEMS = 8
"""Maximum number of problems to report for one value."""

MAX_VALUES_FOR_ALL_PROBLEMS = 10_000
"""Maximum number of nested values for which all problems are reported; above it, only the first problem is.

A validator collects all problems before it returns the first, each with a copy of the wrong value. For a megabyte of
wrong values this takes seconds and gigabytes.
"""

MAX_MESSAGE_CHARACTERS = 200


def has_rules(schema: Schema | None) -> bool:
    """Return whether a schema has rules: `None`, `true` and `{}` accept everything."""
    return schema is not None and schema is not True and schema != {}


class Validator:
    """A compiled schema. An invalid schema is logged once and accepts everything."""

    def __init__(self, schema: Schema | None, label: str = "a value") -> None:
        self._validator: Any = None
        if schema is None or not has_rules(schema):
            return
        try:
            modern = modernize(schema) if is_openapi_3_0(schema) else schema
            # A schema must not make this process fetch anything.
            self._validator = jsonschema_rs.validator_for(
                modern if isinstance(modern, bool) else dict(modern), offline=True
            )
        except (ValueError, RecursionError) as error:
            _log.warning("forebay: %s is not checked: its schema cannot be understood: %.200s", label, error)

    def problems(self, value: Any) -> list[Problem]:
        """Return the rules that a value breaks; an empty list for a valid one."""
        if self._validator is None:
            return []
        try:
            return self._find_problems(value)
        except ValueError:
            pass
        try:
            # A file in an input is bytes here and base64 in JSON; a schema knows only JSON.
            return self._find_problems(_encode_bytes(value))
        except (ValueError, RecursionError) as error:
            message = f"this is not JSON: {error}; give plain values, and bytes for files"
            return [{"path": "", "message": message[:MAX_MESSAGE_CHARACTERS]}]

    def _find_problems(self, value: Any) -> list[Problem]:
        # Most values are valid, and `is_valid` is much faster than collecting errors.
        if self._validator.is_valid(value):
            return []
        return [
            {"path": to_pointer(error.instance_path), "message": str(error.message)[:MAX_MESSAGE_CHARACTERS]}
            for error in itertools.islice(self._iterate_errors(value), MAX_PROBLEMS)
        ]

    def _iterate_errors(self, value: Any) -> Iterator[Any]:
        if count_values(value) <= MAX_VALUES_FOR_ALL_PROBLEMS:
            yield from self._validator.iter_errors(value)
            return
        try:
            self._validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            yield error


def _encode_bytes(value: Any) -> Any:
    """Return a copy with bytes as base64."""
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case dict():
            return {key: _encode_bytes(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_encode_bytes(inner) for inner in value]
    return value


def to_pointer(path: list[str | int]) -> str:
    """Return a path as a JSON Pointer."""
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in path)
