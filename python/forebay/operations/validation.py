"""JSON Schemas, compiled once each: what is wrong with a value, and where."""

import base64
import itertools
import logging
from collections.abc import Iterator
from typing import Any, TypeAlias

import jsonschema_rs

from forebay.operations.casting.scalars import weight
from forebay.operations.dialect import Schema, is_openapi_3_0, modern

__all__ = ["Problem", "Schema", "Validator", "is_meaningful", "pointer"]

_log = logging.getLogger("forebay")

Problem: TypeAlias = dict[str, str]
"""What is wrong with a value: `path`, a JSON Pointer, and `message`."""

_MOST_PROBLEMS = 8
"""Nobody reads more of them."""

_MOST_LOOKED_THROUGH = 10_000
"""Values in one. A validator that is asked for all problems finds all before it tells of one, and keeps each in memory
with what it is about: a megabyte that is wrong throughout takes seconds, and gigabytes. Of more, the first is told.
"""

_LONGEST = 200


def is_meaningful(schema: Schema | None) -> bool:
    """Whether a schema says anything: without one, or with one that takes everything, there is nothing to check."""
    return schema is not None and schema is not True and schema != {}


class Validator:
    """A schema that was read once. One that cannot be understood is told of, once, and takes everything."""

    def __init__(self, schema: Schema | None, what: str = "a value") -> None:
        self._validator: Any = None
        if schema is None or not is_meaningful(schema):
            return
        try:
            read = modern(schema) if is_openapi_3_0(schema) else schema
            # Whoever wrote the schema must not make this process fetch anything.
            self._validator = jsonschema_rs.validator_for(read if isinstance(read, bool) else dict(read), offline=True)
        except (ValueError, RecursionError) as error:
            _log.warning("forebay: %s is not checked: its schema cannot be understood: %.200s", what, error)

    def problems(self, value: Any) -> list[Problem]:
        """What is wrong with a value; nothing of what is right."""
        if self._validator is None:
            return []
        try:
            return self._found(value)
        except ValueError:
            pass
        try:
            # A file in an input is bytes here and base64 in JSON; a schema knows only JSON.
            return self._found(_as_json_has_it(value))
        except (ValueError, RecursionError) as error:
            return [
                {"path": "", "message": f"this is not JSON: {error}; give plain values, and bytes for files"[:_LONGEST]}
            ]

    def _found(self, value: Any) -> list[Problem]:
        # Most are right, and that is found out without a list of what is not.
        return [] if self._validator.is_valid(value) else list(self._told(value))

    def _told(self, value: Any) -> Iterator[Problem]:
        for error in itertools.islice(self._errors(value), _MOST_PROBLEMS):
            yield {"path": pointer(error.instance_path), "message": str(error.message)[:_LONGEST]}

    def _errors(self, value: Any) -> Iterator[Any]:
        if weight(value) <= _MOST_LOOKED_THROUGH:
            yield from self._validator.iter_errors(value)
            return
        try:
            self._validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            yield error


def _as_json_has_it(value: Any) -> Any:
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case dict():
            return {key: _as_json_has_it(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_as_json_has_it(inner) for inner in value]
    return value


def pointer(path: list[str | int]) -> str:
    """A path as a JSON Pointer."""
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in path)
