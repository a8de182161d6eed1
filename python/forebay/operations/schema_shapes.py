"""JSON Schemas prepared for casts: references resolved, `allOf` merged, unions split into alternatives."""

import functools
import math
from collections.abc import Callable, Iterable
from types import NoneType
from typing import Any, TypeAlias
from urllib.parse import quote, unquote

import jsonschema_rs

from forebay.operations.dialect import Schema, map_schemas, modernize
from forebay.operations.json_values import MISSING, canonicalize, get_json_type

__all__ = ["SchemaShapes", "Shape"]

MAX_COMBINATIONS = 64
"""Maximum combinations of union branches to try where several unions apply to one value.

Above this, the unions are only validated.
"""

_Keywords: TypeAlias = dict[str, Any]
_Unions: TypeAlias = frozenset[tuple[int, str]]
"""Unions by the id of the schema and the keyword."""

_WITHOUT_RULES = {"$anchor", "$comment", "$defs", "$ref", "allOf", "components", "definitions", "description", "title"}
"""Keywords that say nothing about a value, or whose schemas become parts of the same shape."""

_CONDITIONAL = {"$dynamicRef", "dependencies", "dependentSchemas", "else", "if", "then"}
"""Keywords that may name further properties for some values."""

_PYTHON_TYPES = {"string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "null": (NoneType,)}


class SchemaShapes:
    """The shapes in one schema, each created when a value reaches it.

    Raises `ValueError` for a schema that is invalid, refers to other documents, or has references and an inner `$id`.
    """

    def __init__(self, schema: Schema) -> None:
        identity = "" if isinstance(schema, bool) else str(schema.get("$id", "")).rstrip("#")
        self._anchors: dict[str, _Keywords] = {}
        self._pointers: dict[int, str] = {}
        self._shapes: dict[tuple[tuple[int, ...] | None, _Unions], Shape] = {}
        references: list[str] = []
        identities: set[str] = set()

        def localize(keywords: _Keywords, pointer: str) -> _Keywords:
            if isinstance(keywords.get("$ref"), str):
                keywords["$ref"] = keywords["$ref"].removeprefix(identity)
                references.append(keywords["$ref"])
            for keyword in keywords.keys() & {"$anchor", "$dynamicAnchor"}:
                self._anchors[f"#{keywords[keyword]}"] = keywords
            identities.add(str(keywords.pop("$id", identity)).rstrip("#"))
            self._pointers[id(keywords)] = pointer
            return keywords

        self._root = map_schemas(modernize(schema), localize)
        if references and identities != {identity}:
            raise ValueError("a schema in it has an $id of its own")
        for reference in references:
            self._resolve(reference)
        # Compiling also rejects invalid schemas.
        self.needs_no_change = _compile(map_schemas(self._root, self._tighten))
        """Return whether a cast would certainly keep a value: a quick check for values that fit."""
        self.root = self.merge([self._root])

    def _tighten(self, keywords: _Keywords, _: str) -> _Keywords:
        """Reject properties that a cast would strip, and require those that it would fill in."""
        if keywords.keys().isdisjoint(("properties", "patternProperties")):
            return keywords
        properties, required = keywords.get("properties", {}), {*keywords.get("required", ())}
        for name, member in properties.items():
            required |= {name for part in self.flatten([member]) or () if "default" in part}
        named = {**dict.fromkeys(required, True), **properties}
        return {"additionalProperties": False, **keywords, "properties": named, "required": [*required]}

    def accepts(self, value: Any, parts: Iterable[_Keywords] | None = None) -> bool:
        """Return whether a value is valid: against the whole schema, or against all of some schemas in it."""
        pointers = [""] if parts is None else [self._pointers[id(part)] for part in parts if id(part) in self._pointers]
        return self._validate_by_pointer(dict.fromkeys(pointers, value))

    @functools.cached_property
    def _validate_by_pointer(self) -> Callable[[Any], bool]:
        """A validator of objects that map the JSON Pointer of a schema to the value to validate with it.

        A validator holds all that its schema can reach, so one validator for each schema would fill the memory.
        """
        root = "urn:forebay:root"
        schemas = {pointer: {"$ref": f"{root}#{quote(pointer)}"} for pointer in self._pointers.values()}
        return _compile({"$defs": {"root": {**self._root, "$id": root}}, "properties": schemas})

    def merge(self, schemas: Iterable[Schema], split_unions: _Unions = frozenset()) -> "Shape":
        """Return the shape of values that fit all schemas. Each of `split_unions` has a member among the schemas."""
        parts = self.flatten(schemas)
        key = (None if parts is None else tuple(map(id, parts)), split_unions)
        if key not in self._shapes:
            self._shapes[key] = Shape(self, parts, split_unions)
        return self._shapes[key]

    def flatten(self, schemas: Iterable[Schema]) -> list[_Keywords] | None:
        """Follow `$ref` and `allOf`; return all schemas with rules, or `None` if one of them is `false`."""
        found: list[_Keywords] = []
        seen: set[int] = set()
        waiting: list[Any] = [*schemas][::-1]
        while waiting:
            schema = waiting.pop()
            if schema is False:
                return None
            if schema is not True and id(schema) not in seen:
                seen.add(id(schema))
                found += [] if schema.keys() <= _WITHOUT_RULES else [schema]
                target = [self._resolve(schema["$ref"])] if "$ref" in schema else []
                waiting += [*target, *schema.get("allOf", ())][::-1]
        return found

    def _resolve(self, reference: str) -> Any:
        """Return the schema that a reference leads to. Raises `ValueError` if it is not in this document."""
        start, *path = unquote(reference).split("/")
        target: Any = self._root if start in ("", "#") else self._anchors.get(start)
        try:
            for step in path:
                key = step.replace("~1", "/").replace("~0", "~")
                target = target[int(key)] if isinstance(target, list) else target[key]
        except (LookupError, TypeError, ValueError):
            target = None
        if not isinstance(target, dict | bool):
            raise ValueError(f"there is no schema at {reference}")
        return target


def _compile(schema: Any) -> Callable[[Any], bool]:
    validator = jsonschema_rs.Draft202012Validator(schema, offline=True)

    def is_valid(value: Any) -> bool:
        try:
            return bool(validator.is_valid(value))
        except ValueError:
            # The value is not JSON.
            return False

    return is_valid


class Shape:
    """What values look like that fit all of some schemas, its parts."""

    def __init__(self, shapes: SchemaShapes, parts: list[_Keywords] | None, split_unions: _Unions) -> None:
        self._shapes = shapes
        self._parts = parts or []
        self._split = split_unions
        self.default = next(iter(self.collect("default")), MISSING)
        self.required = {name for names in self.collect("required") for name in names}
        lists = [names if isinstance(names, list) else [names] for names in self.collect("type")]
        lists = [[*names, "integer"] if "number" in names else names for names in lists]
        self.types = [name for name in lists[0] if all(name in names for names in lists)] if lists else None
        """The allowed JSON types in the order of the schema, with "integer" wherever "number" is; `None` for all."""
        self.is_impossible = parts is None or self.types == []
        enums = [*self.collect("enum"), *([value] for value in self.collect("const"))]
        texts = [{canonicalize(value): value for value in values} for values in enums]
        self.enum = {key: texts[0][key] for key in texts[0] if all(key in other for other in texts)} if texts else None
        """The values that `enum` and `const` allow, by their canonical JSON; `None` for all."""
        named = [pattern for patterns in self.collect("patternProperties") for pattern in patterns]
        self._patterns = {pattern: _compile({"type": "string", "pattern": pattern}) for pattern in named}
        unions = [(part, word) for part in self._parts for word in ("anyOf", "oneOf") if word in part]
        unions = [(part, word) for part, word in unions if (id(part), word) not in split_unions]
        is_small = len(unions) < 2 or math.prod(len(part[word]) for part, word in unions) <= MAX_COMBINATIONS
        self._unions = unions if is_small else []
        # Conditions, and unions that are only validated, may name more properties than the parts do.
        self._is_open = not is_small or any(not _CONDITIONAL.isdisjoint(part) for part in self._parts)

    def collect(self, keyword: str) -> list[Any]:
        """Return the values of a keyword in all parts."""
        return [part[keyword] for part in self._parts if keyword in part]

    def accepts(self, value: Any) -> bool:
        """Return whether a value is valid."""
        return not self.is_impossible and self._shapes.accepts(value, self._parts[::-1])

    def takes(self, type_name: str | None) -> bool:
        """Return whether values of a JSON type may fit."""
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
        """The shapes that a union allows, each merged with the rules beside the union."""
        for union, word in self._unions[:1]:
            split = self._split | {(id(union), word)}
            # A member that refers to a union already split allows nothing new.
            ids = {part_id for part_id, _ in split}
            members = (
                schema for schema in union[word] if ids.isdisjoint(map(id, self._shapes.flatten([schema]) or ()))
            )
            shapes = (self._shapes.merge([*self._parts, schema], split) for schema in members)
            return [shape for shape in shapes if not shape.is_impossible]
        return []

    def alternatives_for(self, value: Any) -> "list[Shape]":
        """Return the alternatives that may keep something of a value."""
        if isinstance(value, dict) and self._discriminator is not None:
            name, by_tag = self._discriminator
            if tagged := by_tag.get(canonicalize(value.get(name, MISSING))):
                return tagged
        is_container = isinstance(value, dict | list | tuple)
        taking = [shape for shape in self.alternatives if not is_container or shape.takes(get_json_type(value))]
        return taking or self.alternatives

    @functools.cached_property
    def _discriminator(self) -> "tuple[str, dict[str | None, list[Shape]]] | None":
        """A property that has an enum in all objects of a union, and the alternatives by the values of these enums."""
        objects = [shape for shape in self.alternatives if shape.takes("object")]
        for name in objects[0].members if len(objects) > 1 else ():
            by_tag: dict[str | None, list[Shape]] = {}
            for shape in objects:
                member = shape.members.get(name)
                for tag in (member and member.enum) or (None,):
                    by_tag.setdefault(tag, []).append(shape)
            if None not in by_tag:
                return name, by_tag
        return None

    @functools.cached_property
    def members(self) -> "dict[str, Shape | None]":
        """The shapes of all properties that the schema names; `None` for those that are impossible."""
        names = [name for named in [*self.collect("properties"), *self.collect("required")] for name in named]
        return {name: self._merge_property(name) for name in dict.fromkeys(names)}

    @functools.cached_property
    def expected(self) -> "dict[str, Shape]":
        """The shapes of properties that a cast fills in."""
        found = ((name, shape) for name, shape in self.members.items() if shape is not None)
        return {name: shape for name, shape in found if name in self.required or shape.default is not MISSING}

    def member(self, name: Any) -> "Shape | None":
        """Return the shape of a property that is not among `members`, or `None` if the schema does not allow it."""
        is_matched = self._patterns and any(matches(name) for matches in self._patterns.values())
        return self._merge_property(name) if is_matched else self._other_member

    @functools.cached_property
    def _other_member(self) -> "Shape | None":
        """Shape of the properties that the schema does not list, or `None` if it does not allow them.

        A schema that lists no property at all allows any.
        """
        unevaluated = [self._is_open or part.get("unevaluatedProperties", False) for part in self._parts]
        rooms = map(lambda part, room: part.get("additionalProperties", room), self._parts, unevaluated)
        is_closed = self.collect("properties") or self._patterns
        return None if is_closed and all(room is False for room in rooms) else self._merge_property(None)

    def _merge_property(self, name: str | None) -> "Shape | None":
        schemas: list[Schema] = []
        for part in self._parts:
            patterns = part.get("patternProperties", {})
            named = [schema for pattern, schema in patterns.items() if self._patterns[pattern](name)]
            named += [part["properties"][name]] if name in part.get("properties", ()) else []
            schemas += named or [part.get("additionalProperties", True)]
        shape = self._shapes.merge(schemas)
        return None if shape.is_impossible else shape

    @functools.cached_property
    def items(self) -> "tuple[list[Shape], Shape]":
        """The shapes of the first items, each with its own schema, and the shape of all later items."""
        lists = [(part.get("prefixItems", []), part.get("items", True)) for part in self._parts]
        count = max((len(first) for first, _ in lists), default=0) + 1
        padded = [[*first, *[other] * (count - len(first))] for first, other in lists]
        *firsts, others = map(self._shapes.merge, zip([True] * count, *padded, strict=True))
        return firsts, others
