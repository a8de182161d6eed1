"""Schemas of a document, as JSON Schema 2020-12 that needs nothing but itself."""

import re
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from headgate.operations.dialect import in_modern_words
from headgate.operations.openapi.document import Document
from headgate.operations.validation import Schema

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

_ABSENT_WHEN = {"sent": "readOnly", "received": "writeOnly"}


class Bundle:
    """Schemas that are used together, and under `definitions` all that they refer to, each once."""

    def __init__(self, document: Document, direction: Direction, *, takes_files: bool = False) -> None:
        self._document = document
        self._direction = direction
        self._takes_files = takes_files
        self._names: dict[str, str] = {}
        self.definitions: dict[str, Schema] = {}

    def converted(self, schema: Any) -> Schema:
        """A schema with its references into `definitions`."""
        if isinstance(schema, bool):
            return schema
        if not isinstance(schema, Mapping):
            return {}
        if self._takes_files and _is_file(schema):
            return {**_FILE, **{key: schema[key] for key in ("title", "description") if key in schema}}
        found = {key: self._inner(key, value) for key, value in schema.items() if key not in _DROPPED}
        if isinstance(schema.get("$ref"), str):
            found["$ref"] = self._referred(schema["$ref"])
            if self._document.is_3_0:
                return {"$ref": found["$ref"]}
        self._forgive_what_is_not_sent(found, schema)
        return in_modern_words(found) if self._document.is_3_0 else found

    def whole(self, schema: Any) -> Schema:
        """One schema with all that it refers to."""
        found = self.converted(schema)
        if isinstance(found, bool) or not self.definitions:
            return found
        # Its own `$defs` were reached by references of the document, which lead to copies now.
        return {**found, "$defs": self.definitions}

    def _inner(self, key: str, value: Any) -> Any:
        if key in _OF_NAMES and isinstance(value, Mapping):
            return {name: self.converted(each) for name, each in value.items()}
        if key in _OF_SCHEMAS and isinstance(value, list):
            return [self.converted(each) for each in value]
        if key in _OF_ONE and isinstance(value, Mapping | bool):
            return self.converted(value)
        return value

    def _referred(self, ref: str) -> str:
        if ref not in self._names:
            target = self._document.at(ref)
            name = self._free_name(ref)
            # Known before it is converted: it may refer to itself.
            self._names[ref] = name
            self.definitions[name] = True
            self.definitions[name] = self.converted(target)
        return f"#/$defs/{self._names[ref]}"

    def _free_name(self, ref: str) -> str:
        wanted = re.sub(r"[^A-Za-z0-9._-]", "_", ref.rsplit("/", 1)[-1]) or "schema"
        name, number = wanted, 1
        while name in self.definitions:
            name, number = f"{wanted}_{number}", number + 1
        return name

    def _forgive_what_is_not_sent(self, found: dict[str, Any], schema: Mapping[str, Any]) -> None:
        """What is only ever read need not be sent, though it is required of what is received, and the other way."""
        properties, required = schema.get("properties"), schema.get("required")
        if not isinstance(required, list):
            found.pop("required", None)  # `required: true` on a property is a common slip, and no JSON Schema
            return
        mark = _ABSENT_WHEN[self._direction]
        if isinstance(properties, Mapping):
            found["required"] = [name for name in required if not _is_marked(properties.get(name), mark)]


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


def _is_marked(schema: Any, mark: str) -> bool:
    return isinstance(schema, Mapping) and schema.get(mark) is True
