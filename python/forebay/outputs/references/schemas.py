"""What the schema of a tool wants where a reference stands, and how it says that one may stand there."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

__all__ = ["accepts_text", "allow_references"]

Schema: TypeAlias = Mapping[str, Any]
TypeNames: TypeAlias = frozenset[str] | None
"""What a schema takes, by the names that schemas have for it; `None` where it does not say."""

_MAX_STEPS = 1000
_MAX_DEPTH = 32
_ANY_SCHEMA: dict[str, Any] = {}
_TYPE_NAMES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
_ANNOTATION_KEYS = {"type", "title", "description", "default", "examples", "additionalProperties"}
_COMBINING_KEYS = {"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "not", "if"}

_REFERENCE_SCHEMA: dict[str, Any] = {"type": "object", "anyOf": [{"required": ["$file"]}, {"required": ["$handle"]}]}


def accepts_text(schema: object, path: Iterable[str | int]) -> bool:
    """Whether a text may stand at a path of the arguments; also where the schema does not say."""
    walk = _SchemaWalker(schema)
    found = schema
    for key in path:
        found = walk.get_member(found, key)
    types = walk.get_types(found)
    return types is None or "string" in types


def allow_references(schema: Schema) -> Schema:
    """An input schema that takes a reference for each of its texts, arrays and objects that is an argument itself.

    A text takes any object besides, which says least: that it is a reference, the tool that redeems handles says.
    """
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return schema
    walk = _SchemaWalker(schema)
    admitted = {name: _allow_reference(inner, walk) for name, inner in properties.items()}
    return schema if admitted == properties else {**schema, "properties": admitted}


def _allow_reference(schema: object, walk: "_SchemaWalker") -> object:
    if not isinstance(schema, dict) or _is_enumeration(schema):
        return schema
    types = walk.get_types(schema)
    may_be_object = types is None or "object" in types
    if types is not None and not types & {"string", "array", "object"}:
        return schema
    if may_be_object and schema.keys() <= _ANNOTATION_KEYS and _allows_any_property(schema):
        return schema
    if not may_be_object and "type" in schema and not schema.keys() & _COMBINING_KEYS:
        given = schema["type"]
        return {**schema, "type": [*([given] if isinstance(given, str) else given), "object"]}
    other = _REFERENCE_SCHEMA if may_be_object else {"type": "object"}
    if isinstance(schema.get("anyOf"), list) and schema.keys() <= {"anyOf", "title", "description", "default"}:
        return {**schema, "anyOf": [*schema["anyOf"], other]}
    return {"anyOf": [schema, other]}


def _allows_any_property(schema: Schema) -> bool:
    return schema.get("additionalProperties", True) in (True, _ANY_SCHEMA)


def _is_enumeration(schema: object) -> bool:
    """Whether it names all that it takes, or takes nothing else but null: none of that is worth a reference."""
    if not isinstance(schema, dict):
        return False
    if "enum" in schema or "const" in schema or schema.get("type") == "null":
        return True
    branches = schema.get("anyOf") or schema.get("oneOf")
    return isinstance(branches, list) and all(map(_is_enumeration, branches))


class _SchemaWalker:
    """A schema that may refer to itself, looked through in a bounded number of steps; what is beyond is not known."""

    def __init__(self, root: object) -> None:
        self._root = root
        self._remaining_steps = _MAX_STEPS

    def _may_continue(self, depth: int) -> bool:
        self._remaining_steps -= 1
        return self._remaining_steps > 0 and depth < _MAX_DEPTH

    def get_member(self, schema: object, key: str | int, depth: int = 0) -> dict[str, Any]:
        """What a schema says of a member of what it takes."""
        if not isinstance(schema, dict) or not self._may_continue(depth):
            return _ANY_SCHEMA
        said = [_get_own_member(schema, key)]
        said += [self.get_member(self._follow_reference(schema["$ref"]), key, depth + 1)] if "$ref" in schema else []
        said += [self.get_member(inner, key, depth + 1) for inner in _get_list(schema, "allOf")]
        for name in ("anyOf", "oneOf"):
            container = "array" if isinstance(key, int) else "object"
            branches = [inner for inner in _get_list(schema, name) if self._may_accept(inner, container)]
            if branches:
                said.append({"anyOf": [self.get_member(inner, key, depth + 1) for inner in branches]})
        known = [inner for inner in said if inner != _ANY_SCHEMA]
        # Not one around the other: a path may be long.
        return known[0] if len(known) == 1 else {"allOf": known}

    def _may_accept(self, schema: object, kind: str) -> bool:
        types = self.get_types(schema)
        return types is None or kind in types

    def get_types(self, schema: object, depth: int = 0) -> TypeNames:
        """What a schema takes."""
        if not isinstance(schema, dict) or not self._may_continue(depth):
            return None
        said = [_get_declared_types(schema)]
        said += [self.get_types(self._follow_reference(schema["$ref"]), depth + 1)] if "$ref" in schema else []
        said += [self.get_types(inner, depth + 1) for inner in _get_list(schema, "allOf")]
        for name in ("anyOf", "oneOf"):
            if branches := _get_list(schema, name):
                said.append(_union_types([self.get_types(inner, depth + 1) for inner in branches]))
        known = [types for types in said if types is not None]
        return frozenset.intersection(*known) if known else None

    def _follow_reference(self, reference: object) -> object:
        """What a reference into the schema itself leads to."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            return _ANY_SCHEMA
        found = self._root
        for name in reference[1:].split("/")[1:]:
            key = name.replace("~1", "/").replace("~0", "~")
            found = found.get(key, _ANY_SCHEMA) if isinstance(found, dict) else _ANY_SCHEMA
        return found


def _get_list(schema: Schema, name: str) -> list[object]:
    branches = schema.get(name)
    return branches if isinstance(branches, list) else []


def _get_declared_types(schema: Schema) -> TypeNames:
    types = schema.get("type")
    if isinstance(types, str):
        return frozenset([types])
    if isinstance(types, list) and types:
        return frozenset(filter(lambda name: isinstance(name, str), types))
    values = schema.get("enum") if "enum" in schema else [schema["const"]] if "const" in schema else []
    return (
        frozenset(_TYPE_NAMES.get(type(value), "") for value in values) if isinstance(values, list) and values else None
    )


def _union_types(branches: list[TypeNames]) -> TypeNames:
    known = [types for types in branches if types is not None]
    return frozenset().union(*known) if len(known) == len(branches) else None


def _get_own_member(schema: Schema, key: str | int) -> dict[str, Any]:
    """What a schema itself says of a member."""
    if isinstance(key, str):
        # Which patterns a name matches is not looked at: then nothing is known of it.
        others = _ANY_SCHEMA if "patternProperties" in schema else schema.get("additionalProperties")
        found = _get_mapping(schema, "properties").get(key, others)
    else:
        items = schema.get("items")
        first = schema.get("prefixItems") or (items if isinstance(items, list) else [])
        rest = schema.get("additionalItems") if isinstance(items, list) else items
        found = first[key] if isinstance(first, list) and key < len(first) else rest
    return found if isinstance(found, dict) else _ANY_SCHEMA


def _get_mapping(schema: Schema, name: str) -> Schema:
    found = schema.get(name)
    return found if isinstance(found, dict) else _ANY_SCHEMA
