"""Values that a schema supplies: defaults, and placeholders such as `0`, `""` or an object with what is required."""

import math
from collections.abc import Callable, Iterator
from typing import Any

from forebay.operations.json_values import MISSING, copy_json, count_values
from forebay.operations.schema_shapes import Shape

__all__ = ["SchemaValues"]

MAX_VALUES = 10_000
"""Maximum number of values in a placeholder, of characters in its strings, and of values added to a default."""

_LENGTHS = ("minLength", "minItems")
_BOUNDS = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")


class SchemaValues:
    """The defaults and placeholders of shapes, each found once.

    `fit` casts a default to its own schema, and returns `MISSING` if that is not possible without a loss.
    """

    def __init__(self, fit_value: Callable[[Shape, Any], Any]) -> None:
        self._fit = fit_value
        self._defaults: dict[Shape, Any] = {}
        self._in_progress: set[Shape] = set()
        self._recursive: set[Shape] = set()
        self._placeholders: dict[Shape, Any] = {}

    def copy_default(self, shape: Shape) -> Any:
        """Return a new copy of the default, or `MISSING` without one that fits and is not too large."""
        if shape in self._in_progress:
            self._recursive.add(shape)
            return MISSING
        if shape.default is not MISSING and shape not in self._defaults:
            self._in_progress.add(shape)
            try:
                fitted = self._fit(shape, copy_json(shape.default))
            finally:
                self._in_progress.remove(shape)
            is_heavy = count_values(fitted) > MAX_VALUES + count_values(shape.default)
            self._defaults[shape] = MISSING if is_heavy or shape in self._recursive else fitted
        return copy_json(self._defaults.get(shape, MISSING))

    def create_placeholder(self, shape: Shape) -> Any:
        """Return a new valid value, or `MISSING` if none is found."""
        while shape not in self._placeholders:
            count = len(self._placeholders)
            # A recursive schema may need placeholders that an earlier search found.
            self._find(shape, set())
            if len(self._placeholders) == count:
                self._placeholders[shape] = MISSING
        return copy_json(self._placeholders[shape])

    def _find(self, shape: Shape, visited_shapes: set[Shape]) -> Any:
        """Return a placeholder, or `MISSING` if none is found without looking at a shape twice."""
        if shape not in self._placeholders and shape not in visited_shapes:
            visited_shapes.add(shape)
            for value in self._iter_candidates(shape, visited_shapes):
                if value is not MISSING and count_values(value) <= MAX_VALUES and shape.accepts(value):
                    self._placeholders[shape] = value
                    break
        return self._placeholders.get(shape, MISSING)

    def _iter_candidates(self, shape: Shape, visited_shapes: set[Shape]) -> Iterator[Any]:
        """Yield values that may be valid, the simplest first."""
        yield self.copy_default(shape)
        yield from (shape.enum or {}).values()
        yield None
        yield from (self._find(alternative, visited_shapes) for alternative in shape.alternatives)
        length, count = (min(int(max(shape.collect(keyword), default=0)), MAX_VALUES) for keyword in _LENGTHS)
        yield from ("-" * length, 0, False)
        bounds = [bound for keyword in _BOUNDS for bound in shape.collect(keyword)]
        yield from sorted((math.floor(bound) + step for bound in bounds for step in (-1, 0, 1)), key=abs)
        yield sum(bounds) / max(len(bounds), 1)
        first, other = shape.items
        yield [self._find(item, visited_shapes) for item in [*first, *[other] * count][:count]]
        members = {
            name: self._find(member, visited_shapes) if name in shape.required else self.copy_default(member)
            for name, member in shape.expected.items()
        }
        yield {name: value for name, value in members.items() if value is not MISSING}
