"""JSON Schemas prepared for casts: references resolved, `allOf` merged, unions split into alternatives."""

import functools
import math
from collections.abc import Callable, Iterable
from types import NoneType
from typing import Any, TypeAlias
from urllib.parse import quote, unquote

import jsonschema_rs
from jsonschema_rs.canonical.json import to_string

from forebay.arguments import decode_token
from forebay.operations.patterns import remove_foreign_patterns
from forebay.operations.validation import Schema, map_schemas, modernize

__all__ = ["MISSING", "SchemaShapes", "Shape", "canonicalize", "get_json_type"]

MISSING: Any = object()
"""Marks a missing value, since `None` is JSON's null."""

MAX_COMBINATIONS = 64
"""Maximum combinations of union members to try for one value. With more, the value is validated but not cast."""

_Keywords: TypeAlias = dict[str, Any]
_Unions: TypeAlias = frozenset[tuple[int, str]]
"""Unions, each as the `id()` of its schema and its keyword: `anyOf` or `oneOf`."""

_KEYWORDS_WITHOUT_RULES = {"$anchor", "$comment", "$defs", "$ref", "allOf", "components", "definitions"}
_KEYWORDS_WITHOUT_RULES |= {"description", "title"}
"""Keywords that do not restrict a value themselves. The schemas in `$ref` and `allOf` are merged into the shape."""

_CONDITIONAL_KEYWORDS = {"$dynamicRef", "dependencies", "dependentSchemas", "else", "if", "then"}
"""Keywords whose schemas apply only to some values, and may name further properties for these."""

_PYTHON_TYPES = {"string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "null": (NoneType,)}

_JSON_TYPES = {NoneType: "null", bool: "boolean", int: "integer", float: "number", str: "string"}
_JSON_TYPES |= {dict: "object", list: "array", tuple: "array"}


def get_json_type(value: Any) -> str | None:
    """Return the JSON type of a value, or `None` if the value is not JSON. For `1.0` it is "number"."""
    name = _JSON_TYPES.get(type(value)) or next(
        (name for python_type, name in _JSON_TYPES.items() if isinstance(value, python_type)), None
    )
    return None if name == "number" and not math.isfinite(value) else name


def canonicalize(value: Any) -> str:
    """Return the same text for all values that are equal in JSON: `1` equals `1.0`, but not `true`."""
    try:
        return to_string(value)
    except ValueError:
        return f"not JSON: {type(value)}"


def _compile(schema: Any) -> Callable[[Any], bool]:
    validator = jsonschema_rs.Draft202012Validator(schema, offline=True)

    def is_valid(value: Any) -> bool:
        try:
            return bool(validator.is_valid(value))
        except ValueError:
            # The value is not JSON.
            return False

    return is_valid


class SchemaShapes:
    """The shapes of one schema, each created when a value needs it.

    Raises `ValueError` for a schema that is invalid, refers to other documents, or has references and an inner `$id`.
    """

    def __init__(self, schema: Schema) -> None:
        root_id = "" if isinstance(schema, bool) else str(schema.get("$id", "")).rstrip("#")
        self._anchors: dict[str, _Keywords] = {}
        self._pointers: dict[int, str] = {}
        self._shapes: dict[tuple[tuple[int, ...] | None, _Unions], Shape] = {}
        references: list[str] = []
        schema_ids: set[str] = set()

        def register(keywords: _Keywords, pointer: str) -> _Keywords:
            if isinstance(keywords.get("$ref"), str):
                keywords["$ref"] = keywords["$ref"].removeprefix(root_id)
                references.append(keywords["$ref"])
            for keyword in keywords.keys() & {"$anchor", "$dynamicAnchor"}:
                self._anchors[f"#{keywords[keyword]}"] = keywords
            schema_ids.add(str(keywords.pop("$id", root_id)).rstrip("#"))
            self._pointers[id(keywords)] = pointer
            return keywords

        readable, _ = remove_foreign_patterns(schema)
        self._root = map_schemas(modernize(readable), register)
        if references and schema_ids != {root_id}:
            raise ValueError("a schema in it has an $id of its own")
        for reference in references:
            self._resolve(reference)
        # Compiling also rejects invalid schemas.
        self.needs_no_change = _compile(map_schemas(self._root, self._tighten))
        """Return whether a cast would certainly keep a value: a quick check for values that fit."""
        self.root = self.merge([self._root])

    def _tighten(self, keywords: _Keywords, _: str) -> _Keywords:
        """Return a schema that rejects the properties that a cast strips, and requires those that a cast fills in."""
        if keywords.keys().isdisjoint(("properties", "patternProperties")):
            return keywords
        properties, required = keywords.get("properties", {}), {*keywords.get("required", ())}
        for name, schema in properties.items():
            required |= {name for merged in self.flatten([schema]) or () if "default" in merged}
        named = {**dict.fromkeys(required, True), **properties}
        return {"additionalProperties": False, **keywords, "properties": named, "required": [*required]}

    def accepts(self, value: Any, schemas: Iterable[_Keywords] | None = None) -> bool:
        """Return whether a value is valid for the whole schema, or for each of `schemas`, which are nested in it."""
        ids = [id(self._root)] if schemas is None else map(id, schemas)
        pointers = [self._pointers[schema_id] for schema_id in ids if schema_id in self._pointers]
        return self._validate_by_pointer(dict.fromkeys(pointers, value))

    @functools.cached_property
    def _validate_by_pointer(self) -> Callable[[Any], bool]:
        """A validator of objects whose keys are JSON Pointers. Each value is validated by the schema at its pointer.

        A validator for each schema would use too much memory, because it holds everything that its schema refers to.
        """
        root = "urn:forebay:root"
        schemas = {pointer: {"$ref": f"{root}#{quote(pointer)}"} for pointer in self._pointers.values()}
        return _compile({"$defs": {"root": {**self._root, "$id": root}}, "properties": schemas})

    def merge(self, schemas: Iterable[Schema], resolved_unions: _Unions = frozenset()) -> "Shape":
        """Return the shape of values that fit all `schemas`.

        `resolved_unions` are unions in `schemas` that need no choice any more: the chosen member is in `schemas` too.
        """
        flat = self.flatten(schemas)
        key = (None if flat is None else tuple(map(id, flat)), resolved_unions)
        if key not in self._shapes:
            self._shapes[key] = Shape(self, flat, resolved_unions)
        return self._shapes[key]

    def flatten(self, schemas: Iterable[Schema]) -> list[_Keywords] | None:
        """Follow `$ref` and `allOf`; return every schema found but `true`, or `None` if one of them is `false`."""
        found: list[_Keywords] = []
        seen: set[int] = set()
        stack: list[Any] = [*schemas][::-1]
        while stack:
            schema = stack.pop()
            if schema is False:
                return None
            if schema is not True and id(schema) not in seen:
                seen.add(id(schema))
                found += [] if schema.keys() <= _KEYWORDS_WITHOUT_RULES else [schema]
                target = [self._resolve(schema["$ref"])] if "$ref" in schema else []
                stack += [*target, *schema.get("allOf", ())][::-1]
        return found

    def _resolve(self, reference: str) -> Any:
        """Return the target of a reference. Raises `ValueError` if the target is not a schema in this document."""
        start, *path = unquote(reference).split("/")
        target: Any = self._root if start in ("", "#") else self._anchors.get(start)
        try:
            for step in path:
                key = decode_token(step)
                target = target[int(key)] if isinstance(target, list) else target[key]
        except (LookupError, TypeError, ValueError):
            target = None
        if not isinstance(target, dict | bool):
            raise ValueError(f"there is no schema at {reference}")
        return target


class Shape:
    """Several schemas merged into one, as by `allOf`: the types, properties, items and alternatives that are left."""

    def __init__(self, shapes: SchemaShapes, schemas: list[_Keywords] | None, resolved_unions: _Unions) -> None:
        self._shapes = shapes
        self._schemas = schemas or []
        self._resolved_unions = resolved_unions
        self.default = next(iter(self.collect("default")), MISSING)
        self.required = {name for names in self.collect("required") for name in names}
        lists = [names if isinstance(names, list) else [names] for names in self.collect("type")]
        lists = [[*names, "integer"] if "number" in names else names for names in lists]
        self.types = [name for name in lists[0] if all(name in names for names in lists)] if lists else None
        """The allowed JSON types in the order of the schema, with "integer" wherever "number" is; `None` for all."""
        self.is_impossible = schemas is None or self.types == []
        enums = [*self.collect("enum"), *([value] for value in self.collect("const"))]
        texts = [{canonicalize(value): value for value in values} for values in enums]
        self.enum = {key: texts[0][key] for key in texts[0] if all(key in other for other in texts)} if texts else None
        """The values that `enum` and `const` allow, by their canonical JSON; `None` for all."""
        patterns = [pattern for by_pattern in self.collect("patternProperties") for pattern in by_pattern]
        self._patterns = {pattern: _compile({"type": "string", "pattern": pattern}) for pattern in patterns}
        unions = [(schema, word) for schema in self._schemas for word in ("anyOf", "oneOf") if word in schema]
        unions = [(schema, word) for schema, word in unions if (id(schema), word) not in resolved_unions]
        is_small = len(unions) < 2 or math.prod(len(schema[word]) for schema, word in unions) <= MAX_COMBINATIONS
        self._unions = unions if is_small else []
        # Conditions, and unions with too many combinations, may name properties that are unknown here: these are kept.
        self._has_unknown_properties = not is_small or any(
            not _CONDITIONAL_KEYWORDS.isdisjoint(schema) for schema in self._schemas
        )

    def collect(self, keyword: str) -> list[Any]:
        """Return the values of a keyword in all schemas of this shape."""
        return [schema[keyword] for schema in self._schemas if keyword in schema]

    def accepts(self, value: Any) -> bool:
        """Return whether a value is valid."""
        return not self.is_impossible and self._shapes.accepts(value, self._schemas[::-1])

    def allows_type(self, type_name: str | None) -> bool:
        """Return whether `type` allows a JSON type."""
        return self.types is None or type_name in self.types

    @functools.cached_property
    def accepted_types(self) -> frozenset[type]:
        """The Python types whose values a cast always keeps."""
        types = frozenset[type]()
        if self.alternatives:
            return types.union(*(shape.accepted_types for shape in self.alternatives))
        names = _PYTHON_TYPES if self.types is None else self.types
        return types.union(*(_PYTHON_TYPES.get(name, ()) for name in names if self.enum is None))

    @functools.cached_property
    def alternatives(self) -> "list[Shape]":
        """The shapes that a union allows, each merged with the other rules of this shape; empty without a union."""
        for union, word in self._unions[:1]:
            resolved = self._resolved_unions | {(id(union), word)}
            # Skip members that refer back to a resolved union: they allow nothing new.
            ids, flatten = {schema_id for schema_id, _ in resolved}, self._shapes.flatten
            members = (schema for schema in union[word] if ids.isdisjoint(map(id, flatten([schema]) or ())))
            shapes = (self._shapes.merge([*self._schemas, schema], resolved) for schema in members)
            return [shape for shape in shapes if not shape.is_impossible]
        return []

    def alternatives_for(self, value: Any) -> "list[Shape]":
        """Return the alternatives that may keep something of a value."""
        if isinstance(value, dict) and self._discriminator is not None:
            name, shapes_by_tag = self._discriminator
            if tagged := shapes_by_tag.get(canonicalize(value.get(name, MISSING))):
                return tagged
        if not isinstance(value, dict | list | tuple):
            return self.alternatives
        same_type = [shape for shape in self.alternatives if shape.allows_type(get_json_type(value))]
        if any(shape.enum is None for shape in same_type):
            return same_type
        # A cast to an enum keeps nothing of an object or list, and may give an invalid value: try other types next.
        return [*dict.fromkeys([*same_type, *self.alternatives])]

    @functools.cached_property
    def _discriminator(self) -> "tuple[str, dict[str | None, list[Shape]]] | None":
        """The name of a property that tells alternatives apart, and the alternatives by its canonical value; or `None`.

        The property has an enum in every alternative that is an object.
        """
        objects = [shape for shape in self.alternatives if shape.allows_type("object")]
        for name in objects[0].properties if len(objects) > 1 else ():
            shapes_by_tag: dict[str | None, list[Shape]] = {}
            for shape in objects:
                tag_shape = shape.properties.get(name)
                for tag in (tag_shape and tag_shape.enum) or (None,):
                    shapes_by_tag.setdefault(tag, []).append(shape)
            if None not in shapes_by_tag:
                return name, shapes_by_tag
        return None

    @functools.cached_property
    def properties(self) -> "dict[str, Shape | None]":
        """The shapes of all properties that the schema names; `None` for properties without a possible value."""
        names = [name for named in [*self.collect("properties"), *self.collect("required")] for name in named]
        return {name: self._merge_property(name) for name in dict.fromkeys(names)}

    @functools.cached_property
    def filled_properties(self) -> "dict[str, Shape]":
        """The shapes of properties that a cast adds if they are missing: required ones and those with a default."""
        possible = ((name, shape) for name, shape in self.properties.items() if shape is not None)
        return {name: shape for name, shape in possible if name in self.required or shape.default is not MISSING}

    def find_unnamed_property(self, name: Any) -> "Shape | None":
        """Return the shape of a property that is not in `properties`, or `None` if the schema does not allow it."""
        is_matched = self._patterns and any(matches(name) for matches in self._patterns.values())
        return self._merge_property(name) if is_matched else self._other_property

    @functools.cached_property
    def _other_property(self) -> "Shape | None":
        """The shape of properties in neither `properties` nor `patternProperties`, or `None` if they are not allowed.

        A schema that names no property at all allows any property.
        """
        names_some = self.collect("properties") or self._patterns
        return None if names_some and not any(map(self._allows_others, self._schemas)) else self._merge_property(None)

    def _allows_others(self, schema: _Keywords) -> bool:
        unevaluated = self._has_unknown_properties or schema.get("unevaluatedProperties", False)
        return schema.get("additionalProperties", unevaluated) is not False

    def _merge_property(self, name: str | None) -> "Shape | None":
        schemas: list[Schema] = []
        for schema in self._schemas:
            patterns = schema.get("patternProperties", {})
            named = [inner for pattern, inner in patterns.items() if self._patterns[pattern](name)]
            named += [schema["properties"][name]] if name in schema.get("properties", ()) else []
            schemas += named or [schema.get("additionalProperties", True)]
        shape = self._shapes.merge(schemas)
        return None if shape.is_impossible else shape

    @functools.cached_property
    def items(self) -> "tuple[list[Shape], Shape]":
        """The shapes of the first items, each with its own schema, and the shape of all later items."""
        lists = [(schema.get("prefixItems", []), schema.get("items", True)) for schema in self._schemas]
        count = max((len(prefix) for prefix, _ in lists), default=0) + 1
        padded = [[*prefix, *[other] * (count - len(prefix))] for prefix, other in lists]
        *prefix_shapes, other_shape = map(self._shapes.merge, zip([True] * count, *padded, strict=True))
        return prefix_shapes, other_shape
