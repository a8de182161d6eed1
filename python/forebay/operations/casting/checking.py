"""Whether a value is as a schema says, looked at one schema at a time.

A compiled validator holds all that its schema can reach, so one for each shape would fill the memory where many refer
to each other. Here nothing is compiled but the words about a text, a number or unlike items.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from forebay.operations.casting.scalars import is_same, json_type

if TYPE_CHECKING:
    from forebay.operations.casting.shapes import Shapes

__all__ = ["NOT_OF_BUILD", "UNLIKE_A_VALIDATOR", "BuildCheck", "Check"]

_Told: TypeAlias = Mapping[str, Any]
_Rule: TypeAlias = "Callable[[Check, _Told, Any], bool]"

_OF_SCALARS = {"exclusiveMaximum", "exclusiveMinimum", "maxLength", "maximum", "minLength", "minimum", "multipleOf"}
_OF_SCALARS |= {"pattern"}
_OF_ITEMS = {"uniqueItems"}

_IN_PLACE = {"$ref", "allOf", "anyOf", "dependentSchemas", "if", "not", "oneOf"}
"""What leads to another schema for the same value, and so perhaps back to the first."""

_DEEPEST = 75
"""Schemas in each other. Python has no room for many more calls; what is further down is not known."""


_OF_BUILD = {"$ref", "additionalProperties", "allOf", "anyOf", "const", "enum", "items", "oneOf", "patternProperties"}
_OF_BUILD |= {"prefixItems", "properties", "required", "type"}


class Check:
    """Of one value, and of what is in it; each is looked at once for a schema that may come back."""

    _has_bounds = True
    _is_deep_fine = False

    def __init__(self, shapes: "Shapes") -> None:
        self.shapes = shapes
        self.is_out_of_depth = False
        """Whether there was something too far down to be looked at: another that begins there knows better."""
        self._known: dict[tuple[int, int], bool] = {}
        self._depth = 0

    def fits(self, schema: Any, value: Any) -> bool:
        """Whether it is as the schema says; `unevaluated...` and what a validator only notes do not count."""
        if isinstance(schema, bool):
            return schema
        if schema.keys().isdisjoint(_IN_PLACE):
            return self._obeys(schema, value)
        key = (id(schema), id(value))
        if key not in self._known:
            # Whoever asks for what is being asked already learns nothing from it.
            self._known[key] = True
            self._known[key] = self._obeys(schema, value)
        return self._known[key]

    def _obeys(self, told: _Told, value: Any) -> bool:
        if self._depth > _DEEPEST:
            self.is_out_of_depth = True
            return self._is_deep_fine
        self._depth += 1
        try:
            for word in told:
                rule = self._rule(word)
                if rule is not None and not rule(self, told, value):
                    return False
        finally:
            self._depth -= 1
        if self._has_bounds and isinstance(value, str | int | float) and not isinstance(value, bool):
            return told.keys().isdisjoint(_OF_SCALARS) or self.shapes.holds(told, _OF_SCALARS, value)
        return True

    def _rule(self, word: str) -> "_Rule | None":
        return _RULES.get(word)


class BuildCheck(Check):
    """Of how a value is built only: bounds, conditions and what is not JSON are for whoever validates to tell."""

    _has_bounds = False
    _is_deep_fine = True

    def __init__(self, shapes: "Shapes") -> None:
        super().__init__(shapes)
        self.whole = Check(shapes)

    def _rule(self, word: str) -> "_Rule | None":
        return _RULES_OF_BUILD.get(word)


def _type(_: Check, told: _Told, value: Any) -> bool:
    names = told["type"] if isinstance(told["type"], list) else [told["type"]]
    kind = json_type(value)
    if kind in names:
        return True
    return "number" in names if kind == "integer" else kind == "number" and "integer" in names and value.is_integer()


def _required(_: Check, told: _Told, value: Any) -> bool:
    return not isinstance(value, dict) or value.keys() >= set(told["required"])


def _properties(check: Check, told: _Told, value: Any) -> bool:
    if isinstance(value, dict):
        for name, member in told["properties"].items():
            if name in value and not check.fits(member, value[name]):
                return False
    return True


def _pattern_properties(check: Check, told: _Told, value: Any) -> bool:
    if isinstance(value, dict):
        for pattern, member in told["patternProperties"].items():
            for name, item in value.items():
                if check.shapes.matches(pattern, name) and not check.fits(member, item):
                    return False
    return True


def _additional_properties(check: Check, told: _Told, value: Any) -> bool:
    if isinstance(value, dict):
        named, patterns = told.get("properties", ()), told.get("patternProperties", ())
        for name, item in value.items():
            if name in named or any(check.shapes.matches(pattern, name) for pattern in patterns):
                continue
            if not check.fits(told["additionalProperties"], item):
                return False
    return True


def _property_names(check: Check, told: _Told, value: Any) -> bool:
    return not isinstance(value, dict) or all(check.fits(told["propertyNames"], name) for name in value)


def _prefix_items(check: Check, told: _Told, value: Any) -> bool:
    if isinstance(value, list | tuple):
        for schema, item in zip(told["prefixItems"], value, strict=False):
            if not check.fits(schema, item):
                return False
    return True


def _items(check: Check, told: _Told, value: Any) -> bool:
    if isinstance(value, list | tuple):
        first = len(told.get("prefixItems", ()))
        for item in value[first:] if first else value:
            if not check.fits(told["items"], item):
                return False
    return True


def _contains(check: Check, told: _Told, value: Any) -> bool:
    if not isinstance(value, list | tuple):
        return True
    count = sum(check.fits(told["contains"], item) for item in value)
    return bool(told.get("minContains", 1) <= count <= told.get("maxContains", count))


def _all_of(check: Check, told: _Told, value: Any) -> bool:
    return all(check.fits(schema, value) for schema in told["allOf"])


def _any_of(check: Check, told: _Told, value: Any) -> bool:
    return any(check.fits(schema, value) for schema in told["anyOf"])


def _one_of(check: Check, told: _Told, value: Any) -> bool:
    return sum(check.fits(schema, value) for schema in told["oneOf"]) == 1


def _if(check: Check, told: _Told, value: Any) -> bool:
    return check.fits(told.get("then" if check.fits(told["if"], value) else "else", True), value)


def _dependent_schemas(check: Check, told: _Told, value: Any) -> bool:
    if isinstance(value, dict):
        for name, schema in told["dependentSchemas"].items():
            if name in value and not check.fits(schema, value):
                return False
    return True


def _dependent_required(_: Check, told: _Told, value: Any) -> bool:
    if not isinstance(value, dict):
        return True
    return all(value.keys() >= set(names) for name, names in told["dependentRequired"].items() if name in value)


def _counted(word: str, kinds: Any, *, is_least: bool) -> _Rule:
    def rule(_: Check, told: _Told, value: Any) -> bool:
        if not isinstance(value, kinds):
            return True
        return bool(len(value) >= told[word] if is_least else len(value) <= told[word])

    return rule


_RULES: dict[str, _Rule] = {
    "$ref": lambda check, told, value: check.fits(check.shapes.target(told), value),
    "additionalProperties": _additional_properties,
    "allOf": _all_of,
    "anyOf": _any_of,
    "const": lambda _, told, value: is_same(value, told["const"]),
    "contains": _contains,
    "dependentRequired": _dependent_required,
    "dependentSchemas": _dependent_schemas,
    "enum": lambda _, told, value: any(is_same(value, choice) for choice in told["enum"]),
    "if": _if,
    "items": _items,
    "maxItems": _counted("maxItems", list | tuple, is_least=False),
    "maxProperties": _counted("maxProperties", dict, is_least=False),
    "minItems": _counted("minItems", list | tuple, is_least=True),
    "minProperties": _counted("minProperties", dict, is_least=True),
    "not": lambda check, told, value: not check.fits(told["not"], value),
    "oneOf": _one_of,
    "patternProperties": _pattern_properties,
    "prefixItems": _prefix_items,
    "properties": _properties,
    "propertyNames": _property_names,
    "required": _required,
    "type": _type,
    "uniqueItems": lambda check, told, value: (
        not isinstance(value, list | tuple) or check.shapes.holds(told, _OF_ITEMS, value)
    ),
}


def _one_of_build(check: Any, told: _Told, value: Any) -> bool:
    """Two that fit are too many, even if bounds set them apart for another value; none may be for want of a bound."""
    count = sum(check.whole.fits(schema, value) for schema in told["oneOf"])
    return count == 1 or (count == 0 and _any_of(check, {"anyOf": told["oneOf"]}, value))


_RULES_OF_BUILD: dict[str, _Rule] = {
    **{word: _RULES[word] for word in _OF_BUILD},
    "oneOf": _one_of_build,
    "type": lambda check, told, value: json_type(value) is None or _type(check, told, value),
}

UNLIKE_A_VALIDATOR = frozenset(("$dynamicRef", "dependencies", "unevaluatedItems", "unevaluatedProperties"))
"""Words that do not count in a `Check`."""

NOT_OF_BUILD = UNLIKE_A_VALIDATOR | (_RULES.keys() | _OF_SCALARS) - _OF_BUILD
"""Words that do not count in a `BuildCheck`."""
