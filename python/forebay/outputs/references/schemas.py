"""Input schemas of tools: whether an argument takes text, and how to allow references in it."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

__all__ = ["accepts_text", "allow_references"]

Schema: TypeAlias = Mapping[str, Any]
TypeNames: TypeAlias = frozenset[str] | None
"""The JSON Schema types that a schema accepts; `None` if it does not restrict them."""

_MAX_STEPS = 1000
"""Maximum number of subschemas to visit for one tool."""

_MAX_DEPTH = 32
"""Maximum nesting depth to which `$ref`, `allOf`, `anyOf` and `oneOf` are followed."""

_ANY_SCHEMA: dict[str, Any] = {}
_TYPE_NAMES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
_ANNOTATION_KEYS = {"type", "title", "description", "default", "examples", "additionalProperties"}
_COMBINING_KEYS = {"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "not", "if"}

_REFERENCE_SCHEMA: dict[str, Any] = {"type": "object", "anyOf": [{"required": ["$file"]}, {"required": ["$handle"]}]}


def accepts_text(schema: object, path: Iterable[str | int]) -> bool:
    """Return whether the schema accepts a string at a path in the arguments, or does not restrict the type."""
    walker = _SchemaWalker(schema)
    member = schema
    for key in path:
        member = walker.get_member(member, key)
    types = walker.get_types(member)
    return types is None or "string" in types


def allow_references(schema: Schema) -> Schema:
    """Return an input schema that also accepts a reference for each top-level string, array or object.

    A string then accepts any object. That costs the fewest bytes; `output_fetch`'s description explains references.
    """
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return schema
    walker = _SchemaWalker(schema)
    extended = {name: _allow_reference(inner, walker) for name, inner in properties.items()}
    return schema if extended == properties else {**schema, "properties": extended}


def _allow_reference(schema: object, walker: "_SchemaWalker") -> object:
    if not isinstance(schema, dict) or _is_enumeration(schema):
        return schema
    types = walker.get_types(schema)
    may_be_object = types is None or "object" in types
    if types is not None and not types & {"string", "array", "object"}:
        return schema
    if may_be_object and schema.keys() <= _ANNOTATION_KEYS and _allows_any_property(schema):
        return schema
    if not may_be_object and "type" in schema and not schema.keys() & _COMBINING_KEYS:
        declared = schema["type"]
        return {**schema, "type": [*([declared] if isinstance(declared, str) else declared), "object"]}
    reference_schema = _REFERENCE_SCHEMA if may_be_object else {"type": "object"}
    if isinstance(schema.get("anyOf"), list) and schema.keys() <= {"anyOf", "title", "description", "default"}:
        return {**schema, "anyOf": [*schema["anyOf"], reference_schema]}
    return {"anyOf": [schema, reference_schema]}


def _allows_any_property(schema: Schema) -> bool:
    return schema.get("additionalProperties", True) in (True, _ANY_SCHEMA)


def _is_enumeration(schema: object) -> bool:
    """Return whether a schema lists all its values or accepts only null; a reference is of no use there."""
    if not isinstance(schema, dict):
        return False
    if "enum" in schema or "const" in schema or schema.get("type") == "null":
        return True
    branches = schema.get("anyOf") or schema.get("oneOf")
    return isinstance(branches, list) and all(map(_is_enumeration, branches))


class _SchemaWalker:
    """Lookups in a schema that may refer to itself. The number of steps is bounded; beyond it, anything is allowed."""

    def __init__(self, root: object) -> None:
        self._root = root
        self._remaining_steps = _MAX_STEPS

    def _may_continue(self, depth: int) -> bool:
        self._remaining_steps -= 1
        return self._remaining_steps > 0 and depth < _MAX_DEPTH

    def get_member(self, schema: object, key: str | int, depth: int = 0) -> dict[str, Any]:
        """Return the schema of an object's property or of an array's item."""
        if not isinstance(schema, dict) or not self._may_continue(depth):
            return _ANY_SCHEMA
        members = [_get_own_member(schema, key)]
        members += [self.get_member(self._follow_reference(schema["$ref"]), key, depth + 1)] if "$ref" in schema else []
        members += [self.get_member(inner, key, depth + 1) for inner in _get_list(schema, "allOf")]
        for name in ("anyOf", "oneOf"):
            container = "array" if isinstance(key, int) else "object"
            branches = [inner for inner in _get_list(schema, name) if self._may_accept(inner, container)]
            if branches:
                members.append({"anyOf": [self.get_member(inner, key, depth + 1) for inner in branches]})
        known = [member for member in members if member != _ANY_SCHEMA]
        # Without the single-member case, each step of a long path would add a level of nesting.
        return known[0] if len(known) == 1 else {"allOf": known}

    def _may_accept(self, schema: object, type_name: str) -> bool:
        types = self.get_types(schema)
        return types is None or type_name in types

    def get_types(self, schema: object, depth: int = 0) -> TypeNames:
        """Return the types that a schema accepts, or `None` if it does not restrict them."""
        if not isinstance(schema, dict) or not self._may_continue(depth):
            return None
        constraints = [_get_declared_types(schema)]
        constraints += [self.get_types(self._follow_reference(schema["$ref"]), depth + 1)] if "$ref" in schema else []
        constraints += [self.get_types(inner, depth + 1) for inner in _get_list(schema, "allOf")]
        for name in ("anyOf", "oneOf"):
            if branches := _get_list(schema, name):
                constraints.append(_get_union_types([self.get_types(inner, depth + 1) for inner in branches]))
        known = [types for types in constraints if types is not None]
        return frozenset.intersection(*known) if known else None

    def _follow_reference(self, reference: object) -> object:
        """Return the part of the root schema that a `$ref` points to; external ones are not followed."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            return _ANY_SCHEMA
        target = self._root
        for name in reference[1:].split("/")[1:]:
            key = name.replace("~1", "/").replace("~0", "~")
            target = target.get(key, _ANY_SCHEMA) if isinstance(target, dict) else _ANY_SCHEMA
        return target


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


def _get_union_types(branches: list[TypeNames]) -> TypeNames:
    known = [types for types in branches if types is not None]
    return frozenset().union(*known) if len(known) == len(branches) else None


def _get_own_member(schema: Schema, key: str | int) -> dict[str, Any]:
    """Return the schema of a member, ignoring `$ref`, `allOf`, `anyOf` and `oneOf`."""
    if isinstance(key, str):
        # Patterns are not matched against names: any of them might apply, so anything is allowed.
        others = _ANY_SCHEMA if "patternProperties" in schema else schema.get("additionalProperties")
        properties = schema.get("properties")
        member = properties.get(key, others) if isinstance(properties, dict) else others
    else:
        items = schema.get("items")
        first = schema.get("prefixItems") or (items if isinstance(items, list) else [])
        rest = schema.get("additionalItems") if isinstance(items, list) else items
        member = first[key] if isinstance(first, list) and key < len(first) else rest
    return member if isinstance(member, dict) else _ANY_SCHEMA
