"""What values look like that fit a schema."""

import functools
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from forebay.operations.casting.checking import NOT_OF_BUILD, UNLIKE_A_VALIDATOR, BuildCheck, Check
from forebay.operations.casting.compiled import Compiled
from forebay.operations.casting.scalars import is_finite, is_same, json_type
from forebay.operations.dialect import Schema

if TYPE_CHECKING:
    from forebay.operations.casting.shapes import Shapes

__all__ = ["Part", "Shape"]

_PYTHON_TYPES: dict[str, set[type]] = {
    "string": {str},
    "integer": {int},
    "number": {int, float},
    "boolean": {bool},
    "null": {type(None)},
}
_SCALARS = frozenset().union(*_PYTHON_TYPES.values())

_CONDITIONS = {"$dynamicRef", "dependencies", "dependentSchemas", "else", "if", "then"}

_MOST_CHOICES = 64

Part: TypeAlias = Mapping[str, Any]
"""A schema that refers to nothing outside of its members and items."""


class Shape:
    """What values look like that fit all of some schemas."""

    def __init__(self, shapes: "Shapes", parts: list[Part] | None) -> None:
        self._shapes = shapes
        self._parts = parts or []
        self._is_none = parts is None
        self.has_values: bool | None = None
        """Found out by `endings`, which sees all shapes that this one needs at once."""

    def _all(self, word: str) -> list[Any]:
        return [part[word] for part in self._parts if word in part]

    def fits(self, value: Any, check: Check | None = None) -> bool:
        """Whether a value is as the schema says; `check` may know of what is in it already."""
        found = self._compiled.fits(value)
        return self._obeys(check or self.check(), value) if found is None else found

    def check(self) -> Check:
        """For values that all stay where they are for as long as it is used."""
        return Check(self._shapes)

    def is_built_like(self, value: Any) -> bool:
        """Whether a value breaks no rule but those that a cast leaves to whoever validates, such as a minimum."""
        found = self._compiled_build.fits(value)
        # To a validator, what is not a number is null.
        is_known = found or (found is False and is_finite(value))
        return bool(found) if is_known else self._obeys(BuildCheck(self._shapes), value)

    def _obeys(self, check: Check, value: Any) -> bool:
        return not self._is_none and all(check.fits(part, value) for part in self._parts)

    @functools.cached_property
    def _compiled(self) -> Compiled:
        return Compiled(self._shapes, [False] if self._is_none else self._parts, UNLIKE_A_VALIDATOR)

    @functools.cached_property
    def _compiled_build(self) -> Compiled:
        return Compiled(self._shapes, [False] if self._is_none else self._parts, NOT_OF_BUILD)

    @functools.cached_property
    def is_never(self) -> bool:
        """Whether nothing can fit."""
        # A union may come back to itself, and is not known to be impossible then.
        self.__dict__["is_never"] = False
        if self._is_none or self.enum == [] or self.types == ():
            return True
        return bool(self._choices) and all(shape.is_never for shape in self._choices)

    @functools.cached_property
    def types(self) -> tuple[str, ...] | None:
        """The types that are wanted, in the order in which they are named; `None` for all."""
        wanted: tuple[str, ...] | None = None
        for told in self._all("type"):
            names = tuple(told) if isinstance(told, list) else (told,)
            wanted = names if wanted is None else _both(wanted, names)
        return wanted

    def takes(self, name: str) -> bool:
        """Whether values of a type may fit."""
        return self.types is None or name in self.types or (name == "integer" and "number" in self.types)

    @functools.cached_property
    def enum(self) -> list[Any] | None:
        """The only values that fit, if they are named."""
        lists = [*self._all("enum"), *([value] for value in self._all("const"))]
        if not lists:
            return None
        return [value for value in lists[0] if self.fits(value)]

    @functools.cached_property
    def alternatives(self) -> "list[Shape]":
        """The shapes that a union leaves to choose from; what is said beside it holds for each."""
        return [shape for shape in self._choices if not shape.is_never and shape is not self]

    @functools.cached_property
    def _unions(self) -> list[tuple[int, str]]:
        words = ("anyOf", "oneOf")
        return [(number, word) for number, part in enumerate(self._parts) for word in words if word in part]

    @functools.cached_property
    def _has_too_many_choices(self) -> bool:
        """Whether unions that all hold at once leave so many that nobody is served by trying them."""
        counts = [len(self._parts[number][word]) for number, word in self._unions]
        return len(counts) > 1 and math.prod(counts) > _MOST_CHOICES

    @functools.cached_property
    def _choices(self) -> "list[Shape]":
        if not self._unions or self._has_too_many_choices:
            return []
        number, word = self._unions[0]
        part = self._parts[number]
        others = [*self._parts[:number], self._shapes.without(part, word), *self._parts[number + 1 :]]
        return [self._shapes.of([*others, member]) for member in part[word]]

    @functools.cached_property
    def exact(self) -> frozenset[type]:
        """The types of Python whose values need no second look."""
        # A union may come back to itself, and adds nothing then.
        self.__dict__["exact"] = frozenset()
        if self.is_never or self.enum is not None:
            return frozenset()
        if self.alternatives:
            counts = [kind for shape in self.alternatives for kind in shape.exact]
            is_exclusive = any("oneOf" in part for part in self._parts)
            return frozenset(kind for kind in counts if not is_exclusive or counts.count(kind) == 1)
        if self.types is None:
            return _SCALARS
        return frozenset(kind for name in self.types for kind in _PYTHON_TYPES.get(name, ()))

    @functools.cached_property
    def default(self) -> tuple[Any, ...]:
        """The first default, alone in a tuple; an empty one if there is none."""
        return tuple(self._all("default")[:1])

    @functools.cached_property
    def required(self) -> list[str]:
        """The names of members that must be there."""
        return list(dict.fromkeys(name for names in self._all("required") for name in names))

    @functools.cached_property
    def members(self) -> "dict[str, Shape]":
        """The members that are named; without those that cannot be."""
        names = dict.fromkeys(name for named in self._all("properties") for name in named)
        names.update(dict.fromkeys(self.required))
        found = {name: self._shapes.of(self._rules_of(name)) for name in names}
        return {name: shape for name, shape in found.items() if not shape.is_never}

    def member(self, name: Any) -> "Shape | None":
        """What a member that is not among the named ones looks like; `None` if the schema has no room for it."""
        if name in self.named:
            return self.members.get(name)
        if self._is_shut or not isinstance(name, str):
            return None
        if self._is_closed and not any(self._admits(part, name) for part in self._parts):
            return None
        shape = self._shapes.of(self._rules_of(name))
        return None if shape.is_never else shape

    @functools.cached_property
    def named(self) -> set[str]:
        """The names of all members that are told of, and of those that cannot be."""
        return {*self.required, *(name for named in self._all("properties") for name in named)}

    @functools.cached_property
    def _is_closed(self) -> bool:
        """Whether members are named at all; an object of which nothing is said may have any."""
        return bool(self._all("properties") or self._all("patternProperties"))

    @functools.cached_property
    def _may_be_named_elsewhere(self) -> bool:
        """Whether there are schemas that are not looked into, such as those that hold for some values only."""
        return self._has_too_many_choices or any(not part.keys().isdisjoint(_CONDITIONS) for part in self._parts)

    @functools.cached_property
    def _is_shut(self) -> bool:
        """Whether there is no room for any member that is not named."""
        has_patterns = bool(self._all("patternProperties"))
        return self._is_closed and not has_patterns and not any(self._admits(part, "") for part in self._parts)

    def _admits(self, part: Part, name: str) -> bool:
        if any(self._shapes.matches(pattern, name) for pattern in part.get("patternProperties", ())):
            return True
        others = self._may_be_named_elsewhere or part.get("unevaluatedProperties", False)
        return part.get("additionalProperties", others) is not False

    def _rules_of(self, name: str) -> Iterator[Schema]:
        for part in self._parts:
            named = part.get("properties", {})
            patterns = part.get("patternProperties", {})
            matching = [schema for pattern, schema in patterns.items() if self._shapes.matches(pattern, name)]
            yield from matching
            if name in named:
                yield named[name]
            elif not matching:
                yield part.get("additionalProperties", True)

    @functools.cached_property
    def expected(self) -> frozenset[str]:
        """The members that are put in where they are missing."""
        return frozenset(name for name, shape in self.members.items() if name in self.required or shape.default)

    @functools.cached_property
    def first_items(self) -> "list[Shape]":
        """The items that each have a shape of their own."""
        most = max(map(len, self._all("prefixItems")), default=0)
        return [self._shapes.of(self._rules_of_item(number)) for number in range(most)]

    @functools.cached_property
    def item(self) -> "Shape":
        """All other items."""
        return self._shapes.of(part.get("items", True) for part in self._parts)

    def _rules_of_item(self, number: int) -> Iterator[Schema]:
        for part in self._parts:
            firsts = part.get("prefixItems", ())
            yield firsts[number] if number < len(firsts) else part.get("items", True)

    def least(self, word: str) -> Any:
        """The largest of the lower bounds, if there is one."""
        return max(self._all(word), default=None)

    def most(self, word: str) -> Any:
        """The smallest of the upper bounds, if there is one."""
        return min(self._all(word), default=None)

    @functools.cached_property
    def discriminators(self) -> "dict[str, list[Any]]":
        """The members whose value tells which shape it is."""
        return {name: shape.enum for name, shape in self.members.items() if shape.enum is not None}

    @functools.cached_property
    def kinds(self) -> "tuple[str, dict[str, list[Shape]]] | None":
        """The member whose text alone tells which object of a union it is, and the shapes by that text."""
        objects = [shape for shape in self.alternatives if shape.takes("object")]
        for name in objects[0].discriminators if len(objects) > 1 else ():
            if not all(name in one.discriminators for one in objects):
                continue
            if all(isinstance(text, str) for one in objects for text in one.discriminators[name]):
                found: dict[str, list[Shape]] = {}
                for one in objects:
                    for text in one.discriminators[name]:
                        found.setdefault(text, []).append(one)
                return name, found
        return None

    def has_among(self, value: Any) -> bool:
        """Whether a value is one of the enum."""
        return any(is_same(value, choice) for choice in self.enum or ())

    def inferred_types(self) -> tuple[str, ...]:
        """The types that a made-up value may have."""
        if self.types is not None:
            return self.types
        if self.named:
            return ("object",)
        if self._all("items") or self._all("prefixItems"):
            return ("array",)
        return tuple(kind for kind in map(json_type, (None, "", 0, False, [], {})) if kind)


def _both(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    """The types in both; what is an integer is a number."""
    narrow = {"integer"} if "number" in one and "integer" in other and "integer" not in one else set()
    return tuple(name for name in (*one, *narrow) if name in other or (name == "integer" and "number" in other))
