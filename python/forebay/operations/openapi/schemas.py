"""Schemas of a document, as JSON Schema 2020-12 that needs nothing but itself."""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Set
from typing import Any, Literal, TypeAlias

from forebay.operations.dialect import modernize_keywords
from forebay.operations.openapi.document import Document
from forebay.operations.validation import Schema

__all__ = ["BASE64", "Direction", "SchemaBundle", "UniqueNames", "holds_file"]

Direction: TypeAlias = Literal["sent", "received"]

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

# `$id` would send our own references elsewhere; the others say nothing that a value could fail.
_DROPPED_KEYS = frozenset({"$id", "$schema", "example", "examples", "externalDocs", "xml"})

BASE64: Schema = {"type": "string", "contentEncoding": "base64", "description": "Bytes, in base64"}

_FILE: dict[str, Any] = {
    "anyOf": [
        BASE64,
        {
            "type": "object",
            "properties": {"filename": {"type": "string"}, "content": BASE64, "contentType": {"type": "string"}},
            "required": ["content"],
            "additionalProperties": False,
        },
    ]
}

_Target: TypeAlias = tuple[str, frozenset[str]]
"""What a reference leads to, and what need not be there of that, for all that it says itself."""

_OMIT_KEYWORDS = {"sent": "readOnly", "received": "writeOnly"}


class SchemaBundle:
    """Schemas that are used together, and under `definitions` all that they refer to, each once."""

    def __init__(self, document: Document, direction: Direction, *, takes_files: bool = False) -> None:
        key = (SchemaBundle, direction, takes_files)
        if key not in document.cache:
            document.cache[key] = _DefinitionCache(document, direction, takes_files)
        self._cache: _DefinitionCache = document.cache[key]
        self._targets: dict[_Target, None] = {}

    def convert(self, schema: Any) -> Schema:
        """A schema with its references into `definitions`."""
        return self._cache.convert(schema, self._targets)

    @property
    def definitions(self) -> dict[str, Schema]:
        """All that what was converted leads to."""
        found: dict[str, Schema] = {}
        # No recursion: schemas that refer to each other are as deep as there are many.
        left = [*self._targets][::-1]
        been: set[_Target] = set()
        while left:
            target = left.pop()
            if target not in been:
                been.add(target)
                definition = self._cache.get(target)
                found[definition.name] = definition.schema
                left += [*definition.targets][::-1]
        return found

    def convert_standalone(self, schema: Any) -> Schema:
        """One schema with all that it refers to."""
        found, definitions = self.convert(schema), self.definitions
        if isinstance(found, bool) or not definitions:
            return found
        # Its own `$defs` were reached by references of the document, which lead to copies now.
        return {**found, "$defs": definitions}


@dataclasses.dataclass(frozen=True, slots=True)
class _Definition:
    name: str
    schema: Schema
    targets: Mapping[_Target, None]
    """What it refers to itself, in order."""


class _DefinitionCache:
    """What the references of a document lead to, converted once for all operations."""

    def __init__(self, document: Document, direction: Direction, takes_files: bool) -> None:
        self._document = document
        self._omit_keyword = _OMIT_KEYWORDS[direction]
        self._takes_files = takes_files
        self._names: dict[_Target, str] = {}
        self._unique_names = UniqueNames()
        self._definitions: dict[_Target, _Definition] = {}

    def get(self, target: _Target) -> _Definition:
        if target not in self._definitions:
            ref, not_sent = target
            targets: dict[_Target, None] = {}
            schema = self.convert(self._document.lookup(ref), targets, not_sent)
            self._definitions[target] = _Definition(self._definition_name(target), schema, targets)
        return self._definitions[target]

    def convert(self, schema: Any, targets: dict[_Target, None], not_sent: Set[str] = frozenset()) -> Schema:
        """A schema in modern words; the references in it are noted, and not followed."""
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, Mapping):
            return {}
        if self._takes_files and _is_file(schema):
            return {**_FILE, **{key: schema[key] for key in ("title", "description") if key in schema}}
        ref = schema.get("$ref")
        if isinstance(ref, str) and self._document.is_3_0:
            return {"$ref": self._add_reference(ref, targets, not_sent)}
        not_sent = not_sent | self._omitted_names(schema)
        found = {
            key: self._convert_keyword(key, value, targets, not_sent)
            for key, value in schema.items()
            if _is_valid_keyword(key, value)
        }
        if isinstance(ref, str):
            found["$ref"] = self._add_reference(ref, targets, not_sent)
        return modernize_keywords(found) if self._document.is_3_0 else found

    def _convert_keyword(self, key: str, value: Any, targets: dict[_Target, None], not_sent: Set[str]) -> Any:
        if key in _SCHEMA_MAP_KEYS and isinstance(value, Mapping):
            return {str(name): self.convert(each, targets) for name, each in value.items()}
        if key in _SCHEMA_LIST_KEYS and isinstance(value, list):
            return [self.convert(each, targets, not_sent if key == "allOf" else frozenset()) for each in value]
        if key in _SCHEMA_KEYS and isinstance(value, Mapping | bool):
            return self.convert(value, targets)
        if key == "required":
            return [name for name in value if isinstance(name, str) and name not in not_sent]
        return value

    def _add_reference(self, ref: str, targets: dict[_Target, None], not_sent: Set[str]) -> str:
        target = (ref, self._omitted_behind(ref, not_sent))
        targets[target] = None
        return f"#/$defs/{self._definition_name(target)}"

    def _definition_name(self, target: _Target) -> str:
        if target not in self._names:
            wanted = re.sub(r"[^A-Za-z0-9._-]", "_", target[0].rsplit("/", 1)[-1]) or "schema"
            self._names[target] = self._unique_names.claim(wanted)
        return self._names[target]

    def _omitted_behind(self, ref: str, not_sent: Set[str]) -> frozenset[str]:
        """What need not be sent, though it is required behind a reference, where nothing is known of that."""
        if not not_sent:
            return frozenset()
        schema = self._document.lookup(ref)
        wanted = [part["required"] for part in self._iter_parts(schema) if isinstance(part.get("required"), list)]
        names = {name for each in wanted for name in each if isinstance(name, str)}
        return frozenset(names & not_sent - self._omitted_names(schema)) if names else frozenset()

    def _omitted_names(self, schema: Mapping[str, Any]) -> set[str]:
        """What is only ever read need not be sent, though it is required of what is received, and the other way."""
        if not {"required", "allOf"} & schema.keys() and not {"$ref", "properties"} <= schema.keys():
            return set()
        return {
            name
            for each in self._iter_parts(schema)
            if isinstance(properties := each.get("properties"), Mapping)
            for name, node in properties.items()
            if any(part.get(self._omit_keyword) is True for part in self._iter_parts(node))
        }

    def _iter_parts(self, schema: Any) -> Iterator[Mapping[str, Any]]:
        """A schema, and all that it is made of by `allOf` and references."""
        left, been = [schema], set[int]()
        while left:
            node = left.pop()
            if not isinstance(node, Mapping) or id(node) in been:
                continue
            been.add(id(node))
            yield node
            several = node.get("allOf")
            left += several if isinstance(several, list) else []
            if isinstance(node.get("$ref"), str):
                left.append(self._document.lookup(node["$ref"]))


def _is_valid_keyword(key: str, value: Any) -> bool:
    """Whether a word of a schema says anything. `required: true` on a property is a common slip, for one."""
    if key in ("required", "enum"):
        return isinstance(value, list)
    if key == "type":
        return all(isinstance(each, str) for each in (value if isinstance(value, list) else [value]))
    if key in _SCHEMA_LIST_KEYS:
        return bool(value != [])
    return key not in _DROPPED_KEYS


def holds_file(schema: Any) -> bool:
    """Whether a field of a form holds a file."""
    if not isinstance(schema, Mapping):
        return False
    several = [schema.get(key) for key in ("anyOf", "oneOf")]
    return _is_file(schema) or any(holds_file(each) for some in several if isinstance(some, list) for each in some)


def _is_file(schema: Mapping[str, Any]) -> bool:
    """3.0 says it with a format, 3.1 with a media type that is not encoded."""
    if schema.get("type") not in ("string", ["string"], ["string", "null"], None):
        return False
    return schema.get("format") == "binary" or ("contentMediaType" in schema and "contentEncoding" not in schema)


class UniqueNames:
    """Names that are taken. One that is wanted again gets a number."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next_number: dict[str, int] = {}

    def claim(self, wanted: str) -> str:
        """The name, or the first with a number that nobody has."""
        name, number = wanted, self._next_number.get(wanted, 2)
        while name in self._taken:
            name, number = f"{wanted}_{number}", number + 1
        # Where the last search ended: thousands may want the same.
        self._next_number[wanted] = number
        self._taken.add(name)
        return name
