"""Casts of values to JSON Schemas: matching data is kept, surplus properties are stripped, defaults are filled in.

A cast follows the keywords that describe the structure of a value: `type`, `properties`, `required`, `items`, `enum`,
unions and the like. A value of the right structure that breaks another rule, such as `minimum`, `pattern`, or a `oneOf`
of which two members match, is kept for validation to report. So is data more than 128 levels deep.
"""

import contextlib
import dataclasses
import functools
import logging
import operator
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

from forebay.operations.json_values import MISSING, canonicalize, convert, count_values, get_json_type
from forebay.operations.schema_shapes import SchemaShapes, Shape
from forebay.operations.schema_values import SchemaValues
from forebay.operations.validation import Schema, has_rules, to_pointer

__all__ = ["Caster", "OnReplaced", "cast"]

_log = logging.getLogger("forebay")

OnReplaced: TypeAlias = Callable[[str, Any], None]
"""Called with the JSON Pointer and the old value of everything that a cast replaces with a placeholder."""

MAX_DEPTH = 128
"""Maximum nesting depth that is cast; Python's stack has no room for many more levels."""

MAX_FILLED_VALUES = 1_000_000
"""Maximum number of values that one cast fills in. After that, missing values stay missing."""

MAX_TRIALS = 64
"""Maximum number of alternatives of a union to try for one value."""

UNFIT, INVENTED, STRIPPED, CHANGED = range(4)
"""Kinds of changes that a cast counts, worst first.

- `UNFIT`: values that stay although they do not fit.
- `INVENTED`: values replaced by placeholders, required values that were missing, and objects left without properties.
- `STRIPPED`: surplus values that were removed.
- `CHANGED`: conversions, and defaults that were filled in.
"""


def cast(schema: Schema, value: Any, *, on_replaced: OnReplaced | None = None) -> Any:
    """Return a value that fits a schema and keeps as much as possible of the original value.

    Parts that need no change are returned as the same objects. The original value is never modified.
    """
    return Caster(schema).cast(value, on_replaced=on_replaced)


class Caster:
    """A schema prepared for many casts, in any thread. An unusable schema is logged once, and changes nothing."""

    def __init__(self, schema: Schema | None) -> None:
        self._schema = schema
        self._values = SchemaValues(self._fit_default)
        # Guards shapes, defaults and placeholders, which are found as values need them.
        self._lock = threading.Lock()

    @property
    def is_busy(self) -> bool:
        """Whether another thread is casting, so that a cast would have to wait."""
        return self._lock.locked()

    def cast(self, value: Any, *, on_replaced: OnReplaced | None = None) -> Any:
        """Return a value that fits the schema; see the function `cast`."""
        fitted, attempt = self._fit(value, has_placeholders=True)
        if on_replaced is not None:
            for path, old in attempt.replaced:
                on_replaced(to_pointer(path[::-1]), old)
        return fitted

    def normalize(self, value: Any) -> Any:
        """Return a value that fits if nothing has to be discarded or invented for that, else the value itself.

        An object that reports an error must not become one that reports success with a price of 0.
        """
        fitted, attempt = self._fit(value, has_placeholders=False)
        return value if any(attempt.costs[:STRIPPED]) else fitted

    def _fit(self, value: Any, *, has_placeholders: bool) -> "tuple[Any, _Attempt]":
        run = _CastRun(self._values, has_placeholders)
        # The caller may be deep in other calls, and bounds in the schema too large for floats: then the value stays.
        with contextlib.suppress(RecursionError, OverflowError):
            with self._lock:
                shapes = self._shapes
            if shapes is not None and not shapes.needs_no_change(value):
                attempt = _Attempt(run)
                with self._lock:
                    fitted = attempt.fit(shapes.root, value, 0)
                if fitted is value or shapes.accepts(fitted) or not shapes.accepts(value):
                    return fitted, attempt
        return value, _Attempt(run)

    @functools.cached_property
    def _shapes(self) -> SchemaShapes | None:
        try:
            return SchemaShapes(self._schema) if self._schema is not None and has_rules(self._schema) else None
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            _log.warning("forebay: nothing is made to fit a schema that cannot be understood: %.200s", error)
            return None

    def _fit_default(self, shape: Shape, default: Any) -> Any:
        attempt = _Attempt(_CastRun(self._values, has_placeholders=False))
        fitted = attempt.fit(shape, default, 0)
        return MISSING if any(attempt.costs[:STRIPPED]) else fitted


@dataclasses.dataclass
class _CastRun:
    """State that all attempts of one cast share."""

    values: SchemaValues
    has_placeholders: bool
    room: int = MAX_FILLED_VALUES
    chosen: "dict[tuple[int, int], tuple[Any, _Attempt]]" = dataclasses.field(default_factory=dict)
    """Best attempt for each union value, by `id(shape), id(value)`. The cast keeps both alive, so ids stay unique."""

    def fill(self, shape: Shape, *, with_default: bool) -> Any:
        """Return the default or a placeholder, or `MISSING`."""
        if self.room <= 0 or not (with_default or self.has_placeholders):
            return MISSING
        value = self.values.copy_default(shape) if with_default else self.values.create_placeholder(shape)
        self.room -= count_values(value)
        return value


class _Attempt:
    """One way to fit a value, and what it costs."""

    def __init__(self, run: _CastRun) -> None:
        self._run = run
        self.costs = [0, 0, 0, 0]
        self.replaced: list[tuple[list[str | int], Any]] = []
        """The path, innermost name first, and the old value of everything replaced by a placeholder."""

    @property
    def loss(self) -> tuple[int, int]:
        return self.costs[UNFIT], self.costs[INVENTED] + self.costs[STRIPPED]

    def fit(self, shape: Shape, value: Any, depth: int) -> Any:
        """Return the value itself if it fits, else the nearest that does."""
        if type(value) in shape.accepted_types or depth > MAX_DEPTH or shape.is_impossible:
            return value
        if shape.enum is not None:
            return self._fit_enum(shape, shape.enum, value)
        if shape.alternatives:
            return self._fit_union(shape, value, depth)
        type_name = get_json_type(value)
        if type_name is not None and not shape.takes(type_name):
            for converted in (convert(value, name) for name in shape.types or ()):
                if converted is not MISSING:
                    self.costs[CHANGED] += converted is not value
                    return converted
            return self._replace(shape, value)
        if type_name == "object":
            return self._fit_object(shape, value, depth + 1)
        return self._fit_array(shape, value, depth + 1) if type_name == "array" else value

    def _replace(self, shape: Shape, value: Any) -> Any:
        placeholder = self._run.fill(shape, with_default=False)
        self.costs[UNFIT if placeholder is MISSING else INVENTED] += count_values(value)
        if placeholder is MISSING:
            return value
        self.replaced.append(([], value))
        return placeholder

    def _fit_enum(self, shape: Shape, enum: dict[str, Any], value: Any) -> Any:
        if canonicalize(value) in enum:
            return value
        for converted in (convert(value, get_json_type(choice)) for choice in enum.values()):
            if converted is not MISSING and canonicalize(converted) in enum:
                self.costs[CHANGED] += 1
                return converted
        return self._replace(shape, value)

    def _fit_object(self, shape: Shape, value: dict[Any, Any], depth: int) -> Any:
        members = shape.members
        better: dict[Any, Any] = {}
        surplus = []
        for name, item in value.items():
            member = members[name] if name in members else shape.member(name)
            if member is None:
                surplus.append(name)
            elif type(item) not in member.accepted_types:
                fitted = self._fit_child(member, item, name, depth)
                if fitted is not item:
                    better[name] = fitted
        if not shape.expected.keys() <= value.keys():
            self._fill(shape, value, better)
        if not better and not surplus:
            return value
        self.costs[INVENTED] += len(surplus) if len(surplus) == len(value) else 0
        result = {**value, **better}
        for name in surplus:
            self.costs[STRIPPED] += count_values(result.pop(name))
        return result

    def _fill(self, shape: Shape, value: dict[Any, Any], result: dict[Any, Any]) -> None:
        for name, member in shape.expected.items():
            if name not in value:
                item = self._run.fill(member, with_default=True)
                if item is MISSING and name in shape.required:
                    self.costs[INVENTED] += 1
                    item = self._run.fill(member, with_default=False)
                if item is not MISSING:
                    self.costs[CHANGED] += 1
                    result[name] = item

    def _fit_array(self, shape: Shape, value: Any, depth: int) -> Any:
        first, other = shape.items
        if not first and other.accepted_types.issuperset(map(type, value)):
            return value
        room = next((number for number, item in enumerate([*first, other]) if item.is_impossible), len(value))
        result = []
        for number, item in enumerate(value[:room]):
            inner = first[number] if number < len(first) else other
            is_kept = type(item) in inner.accepted_types
            result.append(item if is_kept else self._fit_child(inner, item, number, depth))
        self.costs[STRIPPED] += sum(map(count_values, value[room:]))
        return value if len(result) == len(value) and all(map(operator.is_, result, value)) else result

    def _fit_child(self, shape: Shape, item: Any, name: str | int, depth: int) -> Any:
        count = len(self.replaced)
        fitted = self.fit(shape, item, depth)
        for path, _ in self.replaced[count:]:
            path.append(name)
        return fitted

    def _fit_union(self, shape: Shape, value: Any, depth: int) -> Any:
        key = (id(shape), id(value))
        if key not in self._run.chosen:
            self._run.chosen[key] = self._choose(shape, value, depth)
        fitted, attempt = self._run.chosen[key]
        self.replaced += [([*path], old) for path, old in attempt.replaced]
        self.costs = [*map(operator.add, self.costs, attempt.costs)]
        return fitted

    def _choose(self, shape: Shape, value: Any, depth: int) -> "tuple[Any, _Attempt]":
        """Return the cheapest attempt; of several that lose the same, the first that is valid."""
        alternatives = shape.alternatives_for(value)
        if len(alternatives) > 1:
            alternatives = [alternative for alternative in alternatives if alternative.accepts(value)] or alternatives
        attempts = []
        for alternative in alternatives[:MAX_TRIALS]:
            attempt = _Attempt(self._run)
            attempts.append((attempt.fit(alternative, value, depth + 1), attempt))
        attempts.sort(key=lambda pair: (pair[1].loss, pair[1].costs[CHANGED]))
        cheapest = [pair for pair in attempts if pair[1].loss == attempts[0][1].loss]
        return next((pair for pair in cheapest if len(cheapest) > 1 and shape.accepts(pair[0])), cheapest[0])
