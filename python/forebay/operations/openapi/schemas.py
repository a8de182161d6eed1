"""Schemas of a document, as JSON Schema 2020-12 that needs nothing but itself."""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Set
from typing import Any, Literal, TypeAlias

from forebay.operations.dialect import modernize_keywords
from forebay.operations.openapi.document import Document
from forebay.operations.openapi.names import Names
from forebay.operations.validation import Schema

__all__ = ["BASE64", "Bundle", "Direction", "is_binary"]

Direction: TypeAlias = Literal["sent", "received"]

_OF_NAMES = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_OF_SCHEMAS = ("allOf", "anyOf", "oneOf", "prefixItems")
_OF_ONE = (
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
_DROPPED = frozenset({"$id", "$schema", "example", "examples", "externalDocs", "xml"})

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

_ABSENT_WHEN = {"sent": "readOnly", "received": "writeOnly"}


class Bundle:
    """Schemas that are used together, and under `definitions` all that they refer to, each once."""

    def __init__(self, document: Document, direction: Direction, *, takes_files: bool = False) -> None:
        key = (Bundle, direction, takes_files)
        if key not in document.kept:
            document.kept[key] = _Definitions(document, direction, takes_files)
        self._all: _Definitions = document.kept[key]
        self._targets: dict[_Target, None] = {}

    def converted(self, schema: Any) -> Schema:
        """A schema with its references into `definitions`."""
        return self._all.converted(schema, self._targets)

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
                definition = self._all.definition(target)
                found[definition.name] = definition.schema
                left += [*definition.targets][::-1]
        return found

    def whole(self, schema: Any) -> Schema:
        """One schema with all that it refers to."""
        found, definitions = self.converted(schema), self.definitions
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


class _Definitions:
    """What the references of a document lead to, converted once for all operations."""

    def __init__(self, document: Document, direction: Direction, takes_files: bool) -> None:
        self._document = document
        self._mark = _ABSENT_WHEN[direction]
        self._takes_files = takes_files
        self._names: dict[_Target, str] = {}
        self._names_taken = Names()
        self._known: dict[_Target, _Definition] = {}

    def definition(self, target: _Target) -> _Definition:
        if target not in self._known:
            ref, not_sent = target
            targets: dict[_Target, None] = {}
            schema = self.converted(self._document.at(ref), targets, not_sent)
            self._known[target] = _Definition(self._name(target), schema, targets)
        return self._known[target]

    def converted(self, schema: Any, targets: dict[_Target, None], not_sent: Set[str] = frozenset()) -> Schema:
        """A schema in modern words; the references in it are noted, and not followed."""
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, Mapping):
            return {}
        if self._takes_files and _is_file(schema):
            return {**_FILE, **{key: schema[key] for key in ("title", "description") if key in schema}}
        ref = schema.get("$ref")
        if isinstance(ref, str) and self._document.is_3_0:
            return {"$ref": self._reference(ref, targets, not_sent)}
        not_sent = not_sent | self._not_sent(schema)
        found = {key: self._inner(key, value, targets, not_sent) for key, value in schema.items() if _says(key, value)}
        if isinstance(ref, str):
            found["$ref"] = self._reference(ref, targets, not_sent)
        return modernize_keywords(found) if self._document.is_3_0 else found

    def _inner(self, key: str, value: Any, targets: dict[_Target, None], not_sent: Set[str]) -> Any:
        if key in _OF_NAMES and isinstance(value, Mapping):
            return {str(name): self.converted(each, targets) for name, each in value.items()}
        if key in _OF_SCHEMAS and isinstance(value, list):
            return [self.converted(each, targets, not_sent if key == "allOf" else frozenset()) for each in value]
        if key in _OF_ONE and isinstance(value, Mapping | bool):
            return self.converted(value, targets)
        if key == "required":
            return [name for name in value if isinstance(name, str) and name not in not_sent]
        return value

    def _reference(self, ref: str, targets: dict[_Target, None], not_sent: Set[str]) -> str:
        target = (ref, self._not_sent_behind(ref, not_sent))
        targets[target] = None
        return f"#/$defs/{self._name(target)}"

    def _name(self, target: _Target) -> str:
        if target not in self._names:
            wanted = re.sub(r"[^A-Za-z0-9._-]", "_", target[0].rsplit("/", 1)[-1]) or "schema"
            self._names[target] = self._names_taken.free(wanted)
        return self._names[target]

    def _not_sent_behind(self, ref: str, not_sent: Set[str]) -> frozenset[str]:
        """What need not be sent, though it is required behind a reference, where nothing is known of that."""
        if not not_sent:
            return frozenset()
        schema = self._document.at(ref)
        wanted = [part["required"] for part in self._parts(schema) if isinstance(part.get("required"), list)]
        names = {name for each in wanted for name in each if isinstance(name, str)}
        return frozenset(names & not_sent - self._not_sent(schema)) if names else frozenset()

    def _not_sent(self, schema: Mapping[str, Any]) -> set[str]:
        """What is only ever read need not be sent, though it is required of what is received, and the other way."""
        if not {"required", "allOf"} & schema.keys() and not {"$ref", "properties"} <= schema.keys():
            return set()
        return {
            name
            for each in self._parts(schema)
            if isinstance(properties := each.get("properties"), Mapping)
            for name, node in properties.items()
            if any(part.get(self._mark) is True for part in self._parts(node))
        }

    def _parts(self, schema: Any) -> Iterator[Mapping[str, Any]]:
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
                left.append(self._document.at(node["$ref"]))


def _says(key: str, value: Any) -> bool:
    """Whether a word of a schema says anything. `required: true` on a property is a common slip, for one."""
    if key in ("required", "enum"):
        return isinstance(value, list)
    if key == "type":
        return all(isinstance(each, str) for each in (value if isinstance(value, list) else [value]))
    if key in _OF_SCHEMAS:
        return bool(value != [])
    return key not in _DROPPED


def is_binary(schema: Any) -> bool:
    """Whether a field of a form holds a file."""
    if not isinstance(schema, Mapping):
        return False
    several = [schema.get(key) for key in ("anyOf", "oneOf")]
    return _is_file(schema) or any(is_binary(each) for some in several if isinstance(some, list) for each in some)


def _is_file(schema: Mapping[str, Any]) -> bool:
    """3.0 says it with a format, 3.1 with a media type that is not encoded."""
    if schema.get("type") not in ("string", ["string"], ["string", "null"], None):
        return False
    return schema.get("format") == "binary" or ("contentMediaType" in schema and "contentEncoding" not in schema)
