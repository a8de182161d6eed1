"""Validators of shapes that many values are held against: they see at once what takes long schema by schema."""

import functools
from typing import TYPE_CHECKING, Any

import jsonschema_rs

from forebay.operations.casting.scalars import weight
from forebay.operations.dialect import Schema, mapped

if TYPE_CHECKING:
    from forebay.operations.casting.shapes import Shapes

__all__ = ["Compiled"]

_WORTHWHILE = 64
"""Values, with those in them. For fewer, one is not compiled: that takes as long as they do."""

_MOST_SCHEMAS = 256
_DEEPEST = 8
"""References in each other. What holds more has none: it would be held again and again by all that refer to it."""


class Compiled:
    """What fits all of some schemas, unless they have words that a validator understands in another way."""

    def __init__(self, shapes: "Shapes", parts: list[Any], unlike: frozenset[str]) -> None:
        self._shapes = shapes
        self._parts = parts
        self._unlike = unlike
        self._seen = 0
        self._left = _MOST_SCHEMAS

    def fits(self, value: Any) -> bool | None:
        """Whether a value does; `None` if that has to be found out schema by schema."""
        if self._seen < _WORTHWHILE:
            self._seen += weight(value)
        if self._seen < _WORTHWHILE or self._validator is None:
            return None
        try:
            return bool(self._validator.is_valid(value))
        except ValueError:
            return None

    @functools.cached_property
    def _validator(self) -> Any:
        try:
            whole = {"allOf": [True, *(self._whole(part, 0) for part in self._parts)]}
            return jsonschema_rs.Draft202012Validator(whole, offline=True)
        except ValueError:
            return None

    def _whole(self, schema: Schema, depth: int) -> Any:
        """A schema that holds what it refers to. Raises `ValueError` if that is too much, or not understood alike."""

        def change(told: dict[str, Any]) -> dict[str, Any]:
            self._left -= 1
            if self._left < 0 or depth > _DEEPEST or not self._unlike.isdisjoint(told):
                raise ValueError("this is looked at schema by schema")
            if "$ref" not in told:
                return told
            target = self._whole(self._shapes.target(told), depth + 1)
            return {"allOf": [{word: said for word, said in told.items() if word != "$ref"}, target]}

        return mapped(schema, change)
