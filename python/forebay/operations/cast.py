"""Casts of values to JSON Schemas: matching data is kept, surplus properties are stripped, defaults are filled in.

A cast follows the keywords that describe the structure of a value: `type`, `properties`, `required`, `items`, `enum`,
unions and the like. A value of the right structure that breaks another rule, such as `minimum`, `pattern`, or a `oneOf`
of which two members match, is kept; validation reports it. Data more than 128 levels deep is kept too.
"""

import contextlib
import dataclasses
import functools
import json
import logging
import math
import operator
import re
import threading
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any, TypeAlias

from forebay.operations.schema_shapes import MISSING, SchemaShapes, Shape, canonicalize, get_json_type
from forebay.operations.validation import Schema, count_values, has_rules, to_pointer

__all__ = ["Caster", "ReplacementCallback", "cast"]

_log = logging.getLogger("forebay")

ReplacementCallback: TypeAlias = Callable[[str, Any], None]
"""Function called with the JSON Pointer and the old value of each value that a cast replaces with a placeholder."""

MAX_DEPTH = 128
"""Maximum nesting depth to cast, because Python's stack is limited."""

MAX_FILLED_VALUES = 1_000_000
"""Maximum number of values that one cast fills in. After that, missing values stay missing."""

MAX_TRIALS = 64
"""Maximum number of alternatives of a union to try for one value."""

MAX_PLACEHOLDER_VALUES = 10_000
"""Maximum number of values in a placeholder, and of characters in each of its strings.

A default may grow by as many values when it is cast to its own schema.
"""

MAX_NUMBER_CHARACTERS = 400
"""Maximum characters of a number to convert: Python and other parsers refuse very long numbers."""

UNFIT, INVENTED, STRIPPED, CHANGED = range(4)
"""Kinds of changes that a cast counts, worst first.

- `UNFIT`: values that stay although they do not fit.
- `INVENTED`: values replaced by placeholders, required values that were missing, and objects left without properties.
- `STRIPPED`: surplus values that were removed.
- `CHANGED`: conversions, and defaults that were filled in.
"""

_BOUND_KEYWORDS = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")

_NUMBER_PATTERN = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")


def cast(schema: Schema, value: Any, *, on_replaced: ReplacementCallback | None = None) -> Any:
    """Return a value that fits a schema and keeps as much as possible of the original value.

    Parts that need no change are returned as the same objects. The original value is never modified.
    """
    return Caster(schema).cast(value, on_replaced=on_replaced)


class Caster:
    """A schema prepared for many casts, in any thread.

    If the schema is unusable, this is logged once, and casts return all values unchanged.
    """

    def __init__(self, schema: Schema | None) -> None:
        self._schema = schema
        self._fill_values = _FillValues(self._fit_default)
        # Guards shapes, defaults and placeholders, which are created when a value needs them.
        self._lock = threading.Lock()

    @property
    def is_busy(self) -> bool:
        """Whether another thread is casting, so that a cast would have to wait."""
        return self._lock.locked()

    def cast(self, value: Any, *, on_replaced: ReplacementCallback | None = None) -> Any:
        """Return a value that fits the schema; see the function `cast`."""
        fitted, attempt = self._fit(value, has_placeholders=True)
        if on_replaced is not None:
            for path, old_value in attempt.replaced:
                on_replaced(to_pointer(path[::-1]), old_value)
        return fitted

    def normalize(self, value: Any) -> Any:
        """Return a value that fits the schema, or the value itself if a part of it does not fit or has to be invented.

        Surplus properties are stripped, unless an object would lose all of its properties. For example,
        `{"error": "the database is down"}` must not become `{"price": 0}`.
        """
        fitted, attempt = self._fit(value, has_placeholders=False)
        return value if any(attempt.costs[:STRIPPED]) else fitted

    def _fit(self, value: Any, *, has_placeholders: bool) -> "tuple[Any, _Attempt]":
        run = _CastRun(self._fill_values, has_placeholders)
        # The value is kept if the stack is nearly full, or if a bound in the schema is too large for a float.
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
        """Cast a default to its own schema. Return `MISSING` if a part of it does not fit or has to be invented."""
        attempt = _Attempt(_CastRun(self._fill_values, has_placeholders=False))
        fitted = attempt.fit(shape, default, 0)
        return MISSING if any(attempt.costs[:STRIPPED]) else fitted


class _FillValues:
    """A cache of the defaults and placeholders of shapes. The function `fit_default` casts a default to its shape."""

    def __init__(self, fit_default: Callable[[Shape, Any], Any]) -> None:
        self._fit_default = fit_default
        self._defaults: dict[Shape, Any] = {}
        self._in_progress: set[Shape] = set()
        self._recursive: set[Shape] = set()
        self._placeholders: dict[Shape, Any] = {}

    def copy_default(self, shape: Shape) -> Any:
        """Return a new copy of the default, or `MISSING` if there is none, or it does not fit or is too large."""
        if shape in self._in_progress:
            self._recursive.add(shape)
            return MISSING
        if shape.default is not MISSING and shape not in self._defaults:
            self._in_progress.add(shape)
            try:
                fitted = self._fit_default(shape, _copy_json(shape.default))
            finally:
                self._in_progress.remove(shape)
            is_heavy = count_values(fitted) > MAX_PLACEHOLDER_VALUES + count_values(shape.default)
            self._defaults[shape] = MISSING if is_heavy or shape in self._recursive else fitted
        return _copy_json(self._defaults.get(shape, MISSING))

    def create_placeholder(self, shape: Shape) -> Any:
        """Return a new valid value, such as `0`, `""` or `{}`, or `MISSING` if none is found."""
        while shape not in self._placeholders:
            count = len(self._placeholders)
            # In a recursive schema, one search may not be enough: repeat it while it adds placeholders.
            self._find_placeholder(shape, set())
            if len(self._placeholders) == count:
                self._placeholders[shape] = MISSING
        return _copy_json(self._placeholders[shape])

    def _find_placeholder(self, shape: Shape, visited_shapes: set[Shape]) -> Any:
        """Return a placeholder, or `MISSING` if none is found without visiting a shape twice."""
        if shape not in self._placeholders and shape not in visited_shapes:
            visited_shapes.add(shape)
            for value in self._iter_candidates(shape, visited_shapes):
                if value is not MISSING and count_values(value) <= MAX_PLACEHOLDER_VALUES and shape.accepts(value):
                    self._placeholders[shape] = value
                    break
        return self._placeholders.get(shape, MISSING)

    def _iter_candidates(self, shape: Shape, visited_shapes: set[Shape]) -> Iterator[Any]:
        """Yield values that may be valid for a shape, the simplest first."""

        def find(inner: Shape) -> Any:
            return self._find_placeholder(inner, visited_shapes)

        def get_minimum(keyword: str) -> int:
            return min(int(max(shape.collect(keyword), default=0)), MAX_PLACEHOLDER_VALUES)

        yield self.copy_default(shape)
        yield from (shape.enum or {}).values()
        yield None
        yield from map(find, shape.alternatives)
        yield from ("-" * get_minimum("minLength"), 0, False)
        bounds = [bound for keyword in _BOUND_KEYWORDS for bound in shape.collect(keyword)]
        yield from sorted((math.floor(bound) + step for bound in bounds for step in (-1, 0, 1)), key=abs)
        yield sum(bounds) / max(len(bounds), 1)
        prefix, other = shape.items
        count = get_minimum("minItems")
        yield [*map(find, [*prefix, *[other] * count][:count])]
        filled = shape.filled_properties
        required = {name: find(inner) for name, inner in filled.items() if name in shape.required}
        defaults = {name: self.copy_default(inner) for name, inner in filled.items() if name not in required}
        for values in ({**filled, **required, **defaults}, required):
            yield {name: value for name, value in values.items() if value is not MISSING}


@dataclasses.dataclass
class _CastRun:
    """State that all attempts of one cast share."""

    fill_values: _FillValues
    has_placeholders: bool
    remaining_values: int = MAX_FILLED_VALUES
    best_attempts: "dict[tuple[int, int], tuple[Any, _Attempt]]" = dataclasses.field(default_factory=dict)
    """Best attempt for each union and value, by their `id()`. The cast keeps both alive, so that ids stay unique."""

    def create_default(self, shape: Shape) -> Any:
        """Return a new copy of the default, or `MISSING`."""
        return self._create(self.fill_values.copy_default, shape)

    def create_placeholder(self, shape: Shape) -> Any:
        """Return a new placeholder, or `MISSING`."""
        return self._create(self.fill_values.create_placeholder, shape) if self.has_placeholders else MISSING

    def _create(self, create: Callable[[Shape], Any], shape: Shape) -> Any:
        value = create(shape) if self.remaining_values > 0 else MISSING
        self.remaining_values -= count_values(value)
        return value


class _Attempt:
    """One way to change a value so that it fits, with the number of changes."""

    def __init__(self, run: _CastRun) -> None:
        self._run = run
        self.costs = [0, 0, 0, 0]
        """Number of values with each kind of change."""
        self.replaced: list[tuple[list[str | int], Any]] = []
        """The path, innermost name first, and the old value of each value that was replaced by a placeholder."""

    @property
    def loss(self) -> tuple[int, int]:
        """The sort key of an attempt: the number of values that do not fit, then of values lost or invented."""
        return self.costs[UNFIT], self.costs[INVENTED] + self.costs[STRIPPED]

    def fit(self, shape: Shape, value: Any, depth: int) -> Any:
        """Return the value itself if it fits the shape, else a similar value that fits."""
        if type(value) in shape.accepted_types or depth > MAX_DEPTH or shape.is_impossible:
            return value
        if shape.enum is not None:
            return self._fit_enum(shape, shape.enum, value)
        if shape.alternatives:
            return self._fit_union(shape, value, depth)
        type_name = get_json_type(value)
        if type_name is not None and not shape.allows_type(type_name):
            for converted in (_convert(value, name) for name in shape.types or ()):
                if converted is not MISSING:
                    self.costs[CHANGED] += converted is not value
                    return converted
            return self._replace(shape, value)
        if type_name == "object":
            return self._fit_object(shape, value, depth + 1)
        return self._fit_array(shape, value, depth + 1) if type_name == "array" else value

    def _replace(self, shape: Shape, value: Any) -> Any:
        """Return a placeholder, or the value itself if there is no placeholder."""
        placeholder = self._run.create_placeholder(shape)
        self.costs[UNFIT if placeholder is MISSING else INVENTED] += count_values(value)
        if placeholder is MISSING:
            return value
        self.replaced.append(([], value))
        return placeholder

    def _fit_enum(self, shape: Shape, enum: dict[str, Any], value: Any) -> Any:
        if canonicalize(value) in enum:
            return value
        for converted in (_convert(value, get_json_type(choice)) for choice in enum.values()):
            if converted is not MISSING and canonicalize(converted) in enum:
                self.costs[CHANGED] += 1
                return converted
        return self._replace(shape, value)

    def _fit_object(self, shape: Shape, value: dict[Any, Any], depth: int) -> Any:
        properties = shape.properties
        changes: dict[Any, Any] = {}
        surplus = []
        for name, item in value.items():
            inner = properties[name] if name in properties else shape.find_unnamed_property(name)
            if inner is None:
                surplus.append(name)
            elif type(item) not in inner.accepted_types:
                fitted = self._fit_child(inner, item, name, depth)
                if fitted is not item:
                    changes[name] = fitted
        if not shape.filled_properties.keys() <= value.keys():
            changes |= self._fill_properties(shape, value)
        if not changes and not surplus:
            return value
        self.costs[INVENTED] += len(surplus) if len(surplus) == len(value) else 0
        result = {**value, **changes}
        for name in surplus:
            self.costs[STRIPPED] += count_values(result.pop(name))
        return result

    def _fill_properties(self, shape: Shape, value: dict[Any, Any]) -> dict[Any, Any]:
        """Return defaults and placeholders for the missing properties of a value."""
        added = {}
        for name, inner in shape.filled_properties.items():
            if name not in value:
                item = self._run.create_default(inner)
                if item is MISSING and name in shape.required:
                    self.costs[INVENTED] += 1
                    item = self._run.create_placeholder(inner)
                if item is not MISSING:
                    self.costs[CHANGED] += 1
                    added[name] = item
        return added

    def _fit_array(self, shape: Shape, value: Any, depth: int) -> Any:
        prefix, other = shape.items
        if not prefix and other.accepted_types.issuperset(map(type, value)):
            return value
        length = next((index for index, inner in enumerate([*prefix, other]) if inner.is_impossible), len(value))
        result = []
        for index, item in enumerate(value[:length]):
            inner = prefix[index] if index < len(prefix) else other
            is_accepted = type(item) in inner.accepted_types
            result.append(item if is_accepted else self._fit_child(inner, item, index, depth))
        self.costs[STRIPPED] += sum(map(count_values, value[length:]))
        return value if len(result) == len(value) and all(map(operator.is_, result, value)) else result

    def _fit_child(self, shape: Shape, item: Any, name: str | int, depth: int) -> Any:
        count = len(self.replaced)
        fitted = self.fit(shape, item, depth)
        for path, _ in self.replaced[count:]:
            path.append(name)
        return fitted

    def _fit_union(self, shape: Shape, value: Any, depth: int) -> Any:
        key = (id(shape), id(value))
        if key not in self._run.best_attempts:
            self._run.best_attempts[key] = self._choose(shape, value, depth)
        fitted, attempt = self._run.best_attempts[key]
        self.replaced += [([*path], old_value) for path, old_value in attempt.replaced]
        self.costs = [*map(operator.add, self.costs, attempt.costs)]
        return fitted

    def _choose(self, shape: Shape, value: Any, depth: int) -> "tuple[Any, _Attempt]":
        """Return the result and the attempt with the least loss. Of equal attempts, a valid result is preferred."""
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


def _convert(value: Any, type_name: str | None) -> Any:
    """Return a scalar as another JSON type, or `MISSING` if the conversion would lose something."""
    match type_name, value:
        case "integer" | "number", bool():
            return int(value)
        case "integer", float() if value.is_integer():
            return value
        case "integer" | "number", str() if len(value) < MAX_NUMBER_CHARACTERS and _NUMBER_PATTERN.fullmatch(value):
            return _parse_number(value, is_integer=type_name == "integer")
        case "boolean", "true" | "false":
            return value == "true"
        case "boolean", int() | float() if value in (0, 1):
            return bool(value)
        case "string", bool() | float():
            return json.dumps(value)
        case "string", int() if value.bit_length() < MAX_NUMBER_CHARACTERS * 3:
            return str(value)
    return MISSING


def _parse_number(text: str, *, is_integer: bool) -> Any:
    """Return the number with exactly this value, or `MISSING`. A negative zero is not an integer."""
    exact = Decimal(text)
    if exact.adjusted() >= MAX_NUMBER_CHARACTERS:
        return MISSING
    number = int(exact) if is_integer or text.lstrip("-").isdigit() else float(text)
    parsed = Decimal(repr(number))
    return number if (parsed, parsed.is_signed()) == (exact, exact.is_signed()) else MISSING


def _copy_json(value: Any) -> Any:
    """Return a deep copy in which no container occurs twice."""
    if isinstance(value, dict):
        return {name: _copy_json(item) for name, item in value.items()}
    return [_copy_json(item) for item in value] if isinstance(value, list | tuple) else value
