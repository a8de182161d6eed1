"""Extend tool schemas: input schemas accept references, output schemas accept handles and contract responses."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from forebay.arguments import decode_token

__all__ = [
    "CONTRACT_SCHEMA",
    "HANDLE_SCHEMA",
    "accepts_text",
    "allow_alternative",
    "allow_handle",
    "allow_handle_for_fastmcp",
    "allow_handle_for_older_fastmcp",
    "allow_references",
    "is_fastmcp_tool",
]

Schema: TypeAlias = Mapping[str, Any]
TypeNames: TypeAlias = frozenset[str] | None
"""The JSON Schema types that a schema accepts; `None` if it does not restrict them."""

_MAX_STEPS = 1000
"""Maximum number of subschemas to visit for one tool."""

_MAX_DEPTH = 32
"""Maximum nesting depth to which `$ref`, `allOf`, `anyOf` and `oneOf` are followed."""

_ANY_SCHEMA: dict[str, Any] = {}
_TYPE_NAMES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
_ANY_OBJECT_KEYS = {"type", "title", "description", "default", "examples", "additionalProperties"}
"""A schema with only these keys restricts an object at most by `additionalProperties`."""

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

    In place of a string, the schema accepts any object, because that is the shortest schema. The description of
    `output_fetch` explains references.
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
    if may_be_object and schema.keys() <= _ANY_OBJECT_KEYS and _allows_any_property(schema):
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
    """Return whether a schema lists all its values or accepts only null. Such arguments need no references."""
    if not isinstance(schema, dict):
        return False
    if "enum" in schema or "const" in schema or schema.get("type") == "null":
        return True
    branches = schema.get("anyOf") or schema.get("oneOf")
    return isinstance(branches, list) and all(map(_is_enumeration, branches))


class _SchemaWalker:
    """Lookups in a schema that may refer to itself. After `_MAX_STEPS` steps, every value counts as allowed."""

    def __init__(self, root: object) -> None:
        self._root = root
        self._remaining_steps = _MAX_STEPS

    def _take_step(self, depth: int) -> bool:
        """Count a step, and return whether the limits allow it."""
        self._remaining_steps -= 1
        return self._remaining_steps > 0 and depth < _MAX_DEPTH

    def get_member(self, schema: object, key: str | int, depth: int = 0) -> dict[str, Any]:
        """Return the schema of an object's property or of an array's item."""
        if not isinstance(schema, dict) or not self._take_step(depth):
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
        # Do not nest a single schema in `allOf`, because each step of a long path would add a level.
        return known[0] if len(known) == 1 else {"allOf": known}

    def _may_accept(self, schema: object, type_name: str) -> bool:
        types = self.get_types(schema)
        return types is None or type_name in types

    def get_types(self, schema: object, depth: int = 0) -> TypeNames:
        """Return the types that a schema accepts, or `None` if it does not restrict them."""
        if not isinstance(schema, dict) or not self._take_step(depth):
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
        """Return the part of the root schema that a `$ref` points to; external references are not followed."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            return _ANY_SCHEMA
        target = self._root
        for name in reference[1:].split("/")[1:]:
            key = decode_token(name)
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
        # Patterns are not matched against names: any pattern might apply, so every value counts as allowed.
        other_properties = _ANY_SCHEMA if "patternProperties" in schema else schema.get("additionalProperties")
        properties = schema.get("properties")
        member = properties.get(key, other_properties) if isinstance(properties, dict) else other_properties
    else:
        items = schema.get("items")
        first_items = schema.get("prefixItems") or (items if isinstance(items, list) else [])
        other_items = schema.get("additionalItems") if isinstance(items, list) else items
        is_first = isinstance(first_items, list) and key < len(first_items)
        member = first_items[key] if is_first else other_items
    return member if isinstance(member, dict) else _ANY_SCHEMA


_DESCRIPTOR_PROPERTIES: dict[str, Any] = {
    "output_handle": {"type": "string"},
    "mime_type": {"type": "string"},
    "size_bytes": {"type": "integer"},
    "item_count": {"type": ["integer", "null"]},
    "preview_items": {"type": "integer"},
    "preview": {"type": ["string", "null"]},
    "expires_at": {"type": "string"},
    "fetch_with": {"type": "string", "description": "the tool of this server that reads the output"},
    "items_path": {"type": ["string", "null"]},
    "outline": {"type": ["string", "null"]},
    "line_count": {"type": "integer"},
    "decoded_from": {"type": "string"},
    "note": {"type": "string"},
    "next_calls": {"type": "array"},
}

HANDLE_SCHEMA: dict[str, Any] = {
    "description": "In place of an output that is too large to show",
    "properties": _DESCRIPTOR_PROPERTIES,
    "required": ["output_handle", "size_bytes", "item_count", "fetch_with"],
}
"""Matches a descriptor, which is the structured content in place of a stored result."""

CONTRACT_SCHEMA: dict[str, Any] = {
    "properties": {
        "summary": {"type": "string"},
        "success": {"type": "boolean"},
        "hasMore": {"type": "boolean"},
        "count": {"type": "integer"},
        "data": {"description": "the output, or the part that fits"},
        "artifactRef": {"type": "string", "description": "output_handle of the whole output"},
        "fetchWith": {"type": "string", "description": "the tool of this server that reads it"},
        "error": {"type": "object"},
    },
    "required": ["summary", "success", "hasMore"],
}
"""Matches the structured content of a contract response."""

_DEFINITIONS = ("$defs", "definitions")
_ROOT_KEYS = ("$schema", *_DEFINITIONS)


def allow_handle(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return an output schema that also allows a handle."""
    return allow_alternative(schema, HANDLE_SCHEMA)


def allow_alternative(schema: Mapping[str, Any], alternative: Mapping[str, Any]) -> dict[str, Any]:
    """Return an output schema that also allows another object.

    The given schema is nested in the new one, and its definitions move to the root, where references such as
    `#/$defs/…` point. A schema with other references cannot be nested. In that case the new schema allows any object,
    or any value if the given schema is not for objects.
    """
    # Older protocol versions require `"type": "object"` at the root.
    root: dict[str, Any] = {"type": "object"} if schema.get("type") == "object" else {}
    prefixes = tuple(f"#/{name}/" for name in _DEFINITIONS)
    if not all(reference.startswith(prefixes) for reference in _collect_references(schema)):
        return root
    moved = {name: schema[name] for name in _ROOT_KEYS if name in schema}
    original = {name: value for name, value in schema.items() if name not in moved}
    return {**root, **moved, "anyOf": [original, alternative if root else {"type": "object", **alternative}]}


def _collect_references(schema: Any) -> list[str]:
    """Return all references in a schema, and `""` for each `$id` or `$anchor`, since they also prevent nesting."""
    references: list[str] = []
    remaining = [schema]
    while remaining:
        value = remaining.pop()
        if isinstance(value, Mapping):
            for key, inner in value.items():
                if key in ("$ref", "$dynamicRef") and isinstance(inner, str):
                    references.append(inner)
                elif key in ("$id", "$anchor"):
                    references.append("")
                else:
                    remaining.append(inner)
        elif isinstance(value, list):
            remaining.extend(value)
    return references


_WRAP_RESULT_KEY = "x-fastmcp-wrap-result"
"""Set by fastmcp in the output schema of a tool whose return value it wraps as `{"result": value}`."""

_SIMPLE_SCHEMA_KEYS = {
    "type",
    "properties",
    "required",
    "additionalProperties",
    "title",
    "description",
    "$defs",
    _WRAP_RESULT_KEY,
}


def is_fastmcp_tool(tool: Mapping[str, Any]) -> bool:
    """Return whether a tool was listed by a fastmcp server."""
    meta, schema = tool.get("_meta"), tool.get("outputSchema")
    return (isinstance(meta, dict) and "fastmcp" in meta) or (isinstance(schema, dict) and _WRAP_RESULT_KEY in schema)


def allow_handle_for_fastmcp(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return an output schema that also allows a handle, in a form that fastmcp's client can build `data` from.

    That client needs the properties at the root. `_WRAP_RESULT_KEY` is dropped because a handle is not wrapped. The
    client still recognizes wrapped results, because fastmcp marks each of them.
    """
    if not _is_simple_object(schema):
        return allow_handle(schema)
    flat = {key: value for key, value in schema.items() if key not in ("required", _WRAP_RESULT_KEY)}
    flat["properties"] = {**schema["properties"], **_DESCRIPTOR_PROPERTIES}
    branches = [{"required": schema.get("required", [])}, {"required": HANDLE_SCHEMA["required"]}]
    return {**flat, "type": "object", "anyOf": branches}


def allow_handle_for_older_fastmcp(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return an output schema that also allows a handle, for fastmcp before version 4.

    These versions do not mark wrapped results, so their clients need `_WRAP_RESULT_KEY` and always read `result`. A
    handle has no `result`, so the schema of `result` also allows null.
    """
    extended = allow_handle_for_fastmcp(schema)
    if not schema.get(_WRAP_RESULT_KEY) or "result" not in extended.get("properties", {}):
        return extended
    result_schema = {"anyOf": [extended["properties"]["result"], {"type": "null"}]}
    return {**extended, _WRAP_RESULT_KEY: True, "properties": {**extended["properties"], "result": result_schema}}


def _is_simple_object(schema: Mapping[str, Any]) -> bool:
    """Return whether a schema only lists properties, and none has the same name as a property of a descriptor."""
    properties = schema.get("properties") or {}
    is_simple = schema.keys() <= _SIMPLE_SCHEMA_KEYS and bool(properties)
    return is_simple and not properties.keys() & _DESCRIPTOR_PROPERTIES.keys()
