"""Schemas in the words of JSON Schema 2020-12, whatever they were written in: OpenAPI 3.0, or an older draft."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

__all__ = ["Schema", "in_modern_words", "is_openapi_3_0", "mapped", "modern"]

Schema: TypeAlias = Mapping[str, Any] | bool
"""A JSON Schema."""

_ONE = {"additionalItems", "additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then"}
_ONE |= {"unevaluatedItems", "unevaluatedProperties"}
_MANY = {"allOf", "anyOf", "items", "oneOf", "prefixItems"}
_NAMED = {"$defs", "definitions", "dependentSchemas", "patternProperties", "properties", "schemas"}

_BESIDE_A_REFERENCE = {"$ref", "$defs", "components", "definitions", "openapi"}
"""What is no rule of its own, so it stays where rules beside a reference do not count."""

_NO_RULES = {"$anchor", "$defs", "$id", "$schema", "components", "definitions", "openapi"}
"""What others refer to by where it is, so it stays there when rules are put into a schema of their own."""

_OLD_DRAFTS = ("draft-03", "draft-04", "draft-06", "draft-07")

_Told: TypeAlias = dict[str, Any]


def modern(schema: Schema) -> Schema:
    """The same rules in the words of 2020-12."""
    if isinstance(schema, bool):
        return schema
    has_lonely_references = is_openapi_3_0(schema) or any(draft in str(schema.get("$schema")) for draft in _OLD_DRAFTS)

    def change(told: _Told) -> Any:
        if has_lonely_references and "$ref" in told:
            return {key: value for key, value in told.items() if key in _BESIDE_A_REFERENCE}
        # It is not in the words of that any more.
        told.pop("$schema", None)
        return in_modern_words(told)

    modernized: Schema = mapped(schema, change)
    return modernized


def in_modern_words(told: _Told) -> _Told:
    """One schema, without those in it, in the words of 2020-12."""
    return _with_null(_with_prefix(_with_bounds(told)))


def is_openapi_3_0(schema: Schema) -> bool:
    """Whether a schema says so, or uses a word that nobody else has."""
    if isinstance(schema, bool):
        return False
    return str(schema.get("openapi", "")).startswith("3.0") or any(map(_has_words_of_3_0, _all_in(schema)))


def _has_words_of_3_0(schema: Mapping[str, Any]) -> bool:
    bounds = (schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum"))
    return isinstance(schema.get("nullable"), bool) or any(isinstance(bound, bool) for bound in bounds)


def mapped(schema: Any, change: Callable[[_Told], Any]) -> Any:
    """A schema with each schema in it changed, from the inside out. What only looks like one, as in an enum, is not."""
    if not isinstance(schema, Mapping):
        return schema

    def below(key: str, value: Any) -> Any:
        if key in _MANY and isinstance(value, list):
            return [mapped(item, change) for item in value]
        if key in _ONE:
            return mapped(value, change)
        if key in _NAMED and isinstance(value, Mapping):
            return {name: mapped(item, change) for name, item in value.items()}
        if key == "components" and isinstance(value, Mapping):
            return {name: below(name, item) for name, item in value.items()}
        return value

    return change({key: below(key, value) for key, value in schema.items()})


def _all_in(schema: Schema) -> Iterator[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []

    def note(told: _Told) -> _Told:
        found.append(told)
        return told

    mapped(schema, note)
    return iter(found)


def _with_bounds(told: _Told) -> _Told:
    for exclusive, inclusive in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        match told.get(exclusive):
            case True if inclusive in told:
                told = {**told, exclusive: told[inclusive]}
                del told[inclusive]
            case bool():
                told = {key: value for key, value in told.items() if key != exclusive}
    return told


def _with_prefix(told: _Told) -> _Told:
    """A list of schemas for the first items was `items` once, and `additionalItems` spoke of the others."""
    if not isinstance(told.get("items"), list):
        return told
    others = {key: value for key, value in told.items() if key not in ("items", "additionalItems")}
    return {**others, "prefixItems": told["items"], "items": told.get("additionalItems", True)}


def _with_null(told: _Told) -> _Told:
    if told.get("nullable") is not True:
        return told
    told = {key: value for key, value in told.items() if key != "nullable"}
    if "type" not in told:
        # A reference or a union that may be null is written in this way by many, and nothing else can be meant.
        if not told.keys() & {"allOf", "anyOf", "oneOf", "enum"}:
            return told
        rules = {key: value for key, value in told.items() if key not in _NO_RULES}
        return {**{key: told[key] for key in told if key in _NO_RULES}, "anyOf": [rules, {"type": "null"}]}
    types = told["type"] if isinstance(told["type"], list) else [told["type"]]
    told["type"] = types if "null" in types else [*types, "null"]
    if isinstance(told.get("enum"), list) and None not in told["enum"]:
        told["enum"] = [*told["enum"], None]
    return told
