"""Conversion of a document's schemas to self-contained JSON Schema 2020-12."""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Set
from typing import Any, Literal, TypeAlias

from forebay.operations.openapi.document import Document
from forebay.operations.validation import Schema, modernize_keywords

__all__ = ["BASE64_SCHEMA", "Direction", "SchemaBundle", "UniqueNames", "holds_file"]

Direction: TypeAlias = Literal["request", "response"]

_SCHEMA_MAP_KEYS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_SCHEMA_LIST_KEYS = ("allOf", "anyOf", "oneOf", "prefixItems")
_SCHEMA_KEYS = (
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
)

# `$id` would change what references point to; the other keys do not constrain values.
_DROPPED_KEYS = frozenset({"$id", "$schema", "example", "examples", "externalDocs", "xml"})

BASE64_SCHEMA: Schema = {"type": "string", "contentEncoding": "base64", "description": "Bytes, in base64"}

_FILE_SCHEMA: dict[str, Any] = {
    "anyOf": [
        BASE64_SCHEMA,
        {
            "type": "object",
            "properties": {"filename": {"type": "string"}, "content": BASE64_SCHEMA, "contentType": {"type": "string"}},
            "required": ["content"],
            "additionalProperties": False,
        },
    ]
}

_Target: TypeAlias = tuple[str, frozenset[str]]
"""A `$ref`, and names of properties that its target requires but that may be omitted where the `$ref` is used."""

_OMITTABLE_KEYWORDS: dict[Direction, str] = {"request": "readOnly", "response": "writeOnly"}
"""Keyword of properties that may be omitted in each direction, even if they are in `required`."""


class SchemaBundle:
    """Converts the schemas of one operation, and collects the `definitions` that they refer to."""

    def __init__(self, document: Document, direction: Direction, *, takes_files: bool = False) -> None:
        key = (SchemaBundle, direction, takes_files)
        if key not in document.cache:
            document.cache[key] = _DefinitionCache(document, direction, takes_files)
        self._cache: _DefinitionCache = document.cache[key]
        self._targets: dict[_Target, None] = {}

    def convert(self, schema: Any) -> Schema:
        """Return a schema whose references point into `definitions`."""
        return self._cache.convert(schema, self._targets)

    @property
    def definitions(self) -> dict[str, Schema]:
        """Definitions that the converted schemas refer to, directly or through each other, by name."""
        definitions: dict[str, Schema] = {}
        # A loop instead of recursion, because chains of references can be thousands long.
        stack = [*self._targets][::-1]
        visited: set[_Target] = set()
        while stack:
            target = stack.pop()
            if target not in visited:
                visited.add(target)
                definition = self._cache.get(target)
                definitions[definition.name] = definition.schema
                stack += [*definition.targets][::-1]
        return definitions

    def convert_standalone(self, schema: Any) -> Schema:
        """Return a schema with its definitions under `$defs`."""
        converted, definitions = self.convert(schema), self.definitions
        if isinstance(converted, bool) or not definitions:
            return converted
        # The schema's own `$defs` are replaced: references to them now point to copies in `definitions`.
        return {**converted, "$defs": definitions}


@dataclasses.dataclass(frozen=True, slots=True)
class _Definition:
    name: str
    schema: Schema
    targets: Mapping[_Target, None]
    """Targets of the references in `schema`, in order; a dict serves as an ordered set."""


class _DefinitionCache:
    """Converted targets of a document's references, shared by all operations."""

    def __init__(self, document: Document, direction: Direction, takes_files: bool) -> None:
        self._document = document
        self._omittable_keyword = _OMITTABLE_KEYWORDS[direction]
        self._takes_files = takes_files
        self._names: dict[_Target, str] = {}
        self._unique_names = UniqueNames()
        self._definitions: dict[_Target, _Definition] = {}

    def get(self, target: _Target) -> _Definition:
        """Return the definition of a target, converting it on first use."""
        if target not in self._definitions:
            ref, omittable_names = target
            targets: dict[_Target, None] = {}
            schema = self.convert(self._document.lookup(ref), targets, omittable_names)
            self._definitions[target] = _Definition(self._make_definition_name(target), schema, targets)
        return self._definitions[target]

    def convert(self, schema: Any, targets: dict[_Target, None], omittable_names: Set[str] = frozenset()) -> Schema:
        """Convert a schema. Its references are added to `targets`, not followed.

        The names in `omittable_names` are removed from the `required` of the schema.
        """
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, Mapping):
            return {}
        if self._takes_files and _is_file(schema):
            return {**_FILE_SCHEMA, **{key: schema[key] for key in ("title", "description") if key in schema}}
        ref = schema.get("$ref")
        if isinstance(ref, str) and self._document.is_3_0:
            return {"$ref": self._add_reference(ref, targets, omittable_names)}
        omittable_names = omittable_names | self._find_omittable_names(schema)
        converted = {
            key: self._convert_keyword(key, value, targets, omittable_names)
            for key, value in schema.items()
            if _is_valid_keyword(key, value)
        }
        if isinstance(ref, str):
            converted["$ref"] = self._add_reference(ref, targets, omittable_names)
        return modernize_keywords(converted) if self._document.is_3_0 else converted

    def _convert_keyword(self, key: str, value: Any, targets: dict[_Target, None], omittable_names: Set[str]) -> Any:
        if key in _SCHEMA_MAP_KEYS and isinstance(value, Mapping):
            return {str(name): self.convert(schema, targets) for name, schema in value.items()}
        if key in _SCHEMA_LIST_KEYS and isinstance(value, list):
            return [
                self.convert(schema, targets, omittable_names if key == "allOf" else frozenset()) for schema in value
            ]
        if key in _SCHEMA_KEYS and isinstance(value, Mapping | bool):
            return self.convert(value, targets)
        if key == "required":
            return [name for name in value if isinstance(name, str) and name not in omittable_names]
        return value

    def _add_reference(self, ref: str, targets: dict[_Target, None], omittable_names: Set[str]) -> str:
        """Add the target of a reference to `targets` and return the new reference."""
        target = (ref, self._select_omittable_names(ref, omittable_names))
        targets[target] = None
        return f"#/$defs/{self._make_definition_name(target)}"

    def _make_definition_name(self, target: _Target) -> str:
        if target not in self._names:
            name = re.sub(r"[^A-Za-z0-9._-]", "_", target[0].rsplit("/", 1)[-1]) or "schema"
            self._names[target] = self._unique_names.claim(name)
        return self._names[target]

    def _select_omittable_names(self, ref: str, omittable_names: Set[str]) -> frozenset[str]:
        """Return the names in `omittable_names` that the target of a reference requires."""
        if not omittable_names:
            return frozenset()
        schema = self._document.lookup(ref)
        lists = [
            inner["required"]
            for inner in self._iter_included_schemas(schema)
            if isinstance(inner.get("required"), list)
        ]
        required = {name for names in lists for name in names if isinstance(name, str)}
        return frozenset(required & omittable_names - self._find_omittable_names(schema)) if required else frozenset()

    def _find_omittable_names(self, schema: Mapping[str, Any]) -> set[str]:
        """Return the names of properties that may be omitted: `readOnly` in requests, `writeOnly` in responses."""
        if not {"required", "allOf"} & schema.keys() and not {"$ref", "properties"} <= schema.keys():
            return set()
        return {
            name
            for included in self._iter_included_schemas(schema)
            if isinstance(properties := included.get("properties"), Mapping)
            for name, node in properties.items()
            if any(inner.get(self._omittable_keyword) is True for inner in self._iter_included_schemas(node))
        }

    def _iter_included_schemas(self, schema: Any) -> Iterator[Mapping[str, Any]]:
        """Yield a schema and all schemas that it includes by `allOf` and references."""
        stack, visited = [schema], set[int]()
        while stack:
            node = stack.pop()
            if not isinstance(node, Mapping) or id(node) in visited:
                continue
            visited.add(id(node))
            yield node
            included = node.get("allOf")
            stack += included if isinstance(included, list) else []
            if isinstance(node.get("$ref"), str):
                stack.append(self._document.lookup(node["$ref"]))


def _is_valid_keyword(key: str, value: Any) -> bool:
    """Return whether to keep a keyword: it is not in `_DROPPED_KEYS`, and its value is valid.

    Invalid values are common, such as `required: true` on a property.
    """
    if key in ("required", "enum"):
        return isinstance(value, list)
    if key == "type":
        return all(isinstance(name, str) for name in (value if isinstance(value, list) else [value]))
    if key in _SCHEMA_LIST_KEYS:
        return bool(value != [])
    return key not in _DROPPED_KEYS


def holds_file(schema: Any) -> bool:
    """Return whether a form field with this schema can hold a file."""
    if not isinstance(schema, Mapping):
        return False
    unions = [schema.get(key) for key in ("anyOf", "oneOf")]
    members = [member for union in unions if isinstance(union, list) for member in union]
    return _is_file(schema) or any(holds_file(member) for member in members)


def _is_file(schema: Mapping[str, Any]) -> bool:
    """Return whether a schema describes a file: by `format` in 3.0, by a media type without encoding in 3.1."""
    if schema.get("type") not in ("string", ["string"], ["string", "null"], None):
        return False
    return schema.get("format") == "binary" or ("contentMediaType" in schema and "contentEncoding" not in schema)


class UniqueNames:
    """A set of unique names: a repeated name gets a number."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._next_numbers: dict[str, int] = {}

    def claim(self, base: str) -> str:
        """Return `base`, or `base_2`, `base_3`, … if it is already in use."""
        name, number = base, self._next_numbers.get(base, 2)
        while name in self._names:
            name, number = f"{base}_{number}", number + 1
        # The next search for this base starts at this number: thousands of operations may have the same name.
        self._next_numbers[base] = number
        self._names.add(name)
        return name
