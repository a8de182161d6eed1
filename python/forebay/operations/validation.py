"""JSON Schemas: validation of values, and translation of older dialects to JSON Schema 2020-12."""

import base64
import itertools
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import jsonschema_rs

from forebay.operations.patterns import remove_foreign_patterns

__all__ = [
    "Problem",
    "Schema",
    "SchemaChange",
    "Validator",
    "count_values",
    "has_rules",
    "is_openapi_3_0",
    "map_schemas",
    "modernize",
    "modernize_keywords",
    "to_pointer",
]

_log = logging.getLogger("forebay")

Schema: TypeAlias = Mapping[str, Any] | bool
"""A JSON Schema."""

SchemaChange: TypeAlias = Callable[[dict[str, Any], str], Any]
"""Function of a schema, which it may modify, and of its JSON Pointer. It returns the new schema."""

Problem: TypeAlias = dict[str, str]
"""A rule that a value breaks: `path`, a JSON Pointer, and `message`."""

MAX_PROBLEMS = 8
"""Maximum number of problems to report for one value."""

MAX_VALUES_FOR_ALL_PROBLEMS = 10_000
"""Maximum number of nested values for which all problems are reported; above it, only the first problem is.

A validator collects all problems before it returns the first, each with a copy of the wrong value. For a megabyte of
wrong values this takes seconds and gigabytes.
"""

MAX_MESSAGE_CHARACTERS = 200

MAX_NAMED_PATTERNS = 5
"""Maximum number of patterns that a warning names."""

MAX_COUNTED_VALUES = 1_000_000
"""Number of values at which `count_values` stops."""

_SCHEMA_KEYWORDS = {"additionalItems", "additionalProperties", "contains", "else", "if", "items", "not"}
_SCHEMA_KEYWORDS |= {"propertyNames", "then", "unevaluatedItems", "unevaluatedProperties"}
_LIST_KEYWORDS = {"allOf", "anyOf", "items", "oneOf", "prefixItems"}
_MAP_KEYWORDS = {"$defs", "definitions", "dependentSchemas", "patternProperties", "properties", "schemas"}

_KEYWORDS_BESIDE_REF = {"$ref", "$defs", "components", "definitions", "openapi"}
"""Keywords to keep beside a `$ref`. Older dialects ignore all other keywords beside it, so these are removed."""

_LOCATION_KEYWORDS = {"$anchor", "$defs", "$id", "$schema", "components", "definitions", "openapi"}
"""Keywords that must not move into a nested schema, because references depend on their location."""

_OLD_DRAFTS = ("draft-03", "draft-04", "draft-06", "draft-07")


def has_rules(schema: Schema | None) -> bool:
    """Return whether a schema has rules: `None`, `true` and `{}` accept everything."""
    return schema is not None and schema is not True and schema != {}


class Validator:
    """A compiled schema. An invalid schema is logged once and accepts everything.

    If only some patterns are invalid, these are logged once and ignored.
    """

    def __init__(self, schema: Schema | None, label: str = "a value") -> None:
        self._validator: Any = None
        if schema is None or not has_rules(schema):
            return
        try:
            modern = modernize(schema) if is_openapi_3_0(schema) else schema
            self._validator = _compile(modern, label)
        except (ValueError, RecursionError) as error:
            _log.warning("forebay: %s is not checked: its schema cannot be understood: %.200s", label, error)

    @property
    def has_rules(self) -> bool:
        """Whether the schema is valid and has rules."""
        return self._validator is not None

    def problems(self, value: Any) -> list[Problem]:
        """Return the rules that a value breaks; an empty list for a valid value."""
        if self._validator is None:
            return []
        try:
            return self._find_problems(value)
        except ValueError:
            pass
        try:
            # A file in an input is bytes in Python and base64 in JSON. A schema describes the JSON: encode the bytes.
            return self._find_problems(_encode_bytes(value))
        except (ValueError, RecursionError) as error:
            message = f"this is not JSON: {error}; give plain values, and bytes for files"
            return [{"path": "", "message": message[:MAX_MESSAGE_CHARACTERS]}]

    def _find_problems(self, value: Any) -> list[Problem]:
        # Most values are valid, and `is_valid` is much faster than collecting errors.
        if self._validator.is_valid(value):
            return []
        return [
            {"path": to_pointer(error.instance_path), "message": str(error.message)[:MAX_MESSAGE_CHARACTERS]}
            for error in itertools.islice(self._iter_errors(value), MAX_PROBLEMS)
        ]

    def _iter_errors(self, value: Any) -> Iterator[Any]:
        if count_values(value) <= MAX_VALUES_FOR_ALL_PROBLEMS:
            yield from self._validator.iter_errors(value)
            return
        try:
            self._validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            yield error


def _compile(schema: Schema, label: str) -> Any:
    """Return a validator; without the patterns that it cannot compile, which a warning names."""
    try:
        return _compile_exactly(schema)
    except ValueError:
        readable, removed = remove_foreign_patterns(schema)
        if not removed:
            raise
        validator = _compile_exactly(readable)
    others = f" and {len(removed) - MAX_NAMED_PATTERNS} more" if len(removed) > MAX_NAMED_PATTERNS else ""
    _log.warning(
        "forebay: %s is not checked for patterns that cannot be understood; write them as ECMAScript does: %s%s",
        label,
        ", ".join(text[:MAX_MESSAGE_CHARACTERS] for text in removed[:MAX_NAMED_PATTERNS]),
        others,
    )
    return validator


def _compile_exactly(schema: Schema) -> Any:
    # A schema must not make this process fetch anything.
    return jsonschema_rs.validator_for(schema if isinstance(schema, bool) else dict(schema), offline=True)


def _encode_bytes(value: Any) -> Any:
    """Return a copy with bytes as base64."""
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case dict():
            return {key: _encode_bytes(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_encode_bytes(inner) for inner in value]
    return value


def to_pointer(path: list[str | int]) -> str:
    """Return a path as a JSON Pointer."""
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in path)


def count_values(value: Any) -> int:
    """Return how many nested values a value has, itself included. Stop counting at about `MAX_COUNTED_VALUES`."""
    count, stack = 0, [value]
    while stack and count < MAX_COUNTED_VALUES:
        item = stack.pop()
        count += 1
        if isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, list | tuple):
            stack.extend(item)
    return count


def modernize(schema: Schema) -> Schema:
    """Return a copy of a schema, translated to the keywords of 2020-12 at every level."""
    if isinstance(schema, bool):
        return schema
    ignores_beside_ref = is_openapi_3_0(schema) or any(draft in str(schema.get("$schema")) for draft in _OLD_DRAFTS)

    def change(keywords: dict[str, Any], _: str) -> dict[str, Any]:
        if ignores_beside_ref and "$ref" in keywords:
            return {key: value for key, value in keywords.items() if key in _KEYWORDS_BESIDE_REF}
        keywords.pop("$schema", None)
        return modernize_keywords(keywords)

    modern: Schema = map_schemas(schema, change)
    return modern


def modernize_keywords(keywords: dict[str, Any]) -> dict[str, Any]:
    """Translate one schema to the keywords of 2020-12. The schemas nested in it stay unchanged."""
    return _translate_nullable(_translate_item_list(_translate_bounds(keywords)))


def is_openapi_3_0(schema: Schema) -> bool:
    """Return whether a schema declares OpenAPI 3.0 or uses a keyword that only OpenAPI 3.0 has."""
    if isinstance(schema, bool):
        return False
    nested_schemas: list[dict[str, Any]] = []
    map_schemas(schema, lambda keywords, _: nested_schemas.append(keywords))
    return str(schema.get("openapi", "")).startswith("3.0") or any(map(_has_openapi_keyword, nested_schemas))


def _has_openapi_keyword(schema: Mapping[str, Any]) -> bool:
    bounds = (schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum"))
    return isinstance(schema.get("nullable"), bool) or any(isinstance(bound, bool) for bound in bounds)


def map_schemas(schema: Any, change: SchemaChange, pointer: str = "") -> Any:
    """Return a copy with `change` applied to each nested schema, innermost first, and to the schema itself.

    Values of `enum`, `const` and `default` are not schemas and stay unchanged.
    """
    if not isinstance(schema, Mapping):
        return schema

    def map_keyword(key: str, value: Any, pointer: str) -> Any:
        pointer = f"{pointer}/{key}"
        if key in _LIST_KEYWORDS and isinstance(value, list):
            return [map_schemas(item, change, f"{pointer}/{index}") for index, item in enumerate(value)]
        if key in _SCHEMA_KEYWORDS:
            return map_schemas(value, change, pointer)
        if key in _MAP_KEYWORDS and isinstance(value, Mapping):
            return {name: map_schemas(item, change, pointer + to_pointer([name])) for name, item in value.items()}
        if key == "components" and isinstance(value, Mapping):
            return {name: map_keyword(name, item, pointer) for name, item in value.items()}
        return value

    return change({key: map_keyword(key, value, pointer) for key, value in schema.items()}, pointer)


def _translate_bounds(keywords: dict[str, Any]) -> dict[str, Any]:
    """Turn a boolean `exclusiveMinimum` or `exclusiveMaximum` into a number."""
    for exclusive, inclusive in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        match keywords.get(exclusive):
            case True if inclusive in keywords:
                keywords = {**keywords, exclusive: keywords[inclusive]}
                del keywords[inclusive]
            case bool():
                keywords = {key: value for key, value in keywords.items() if key != exclusive}
    return keywords


def _translate_item_list(keywords: dict[str, Any]) -> dict[str, Any]:
    """Turn a list in `items` into `prefixItems`, and `additionalItems` into `items`."""
    if not isinstance(keywords.get("items"), list):
        return keywords
    others = {key: value for key, value in keywords.items() if key not in ("items", "additionalItems")}
    return {**others, "prefixItems": keywords["items"], "items": keywords.get("additionalItems", True)}


def _translate_nullable(keywords: dict[str, Any]) -> dict[str, Any]:
    """Replace `nullable: true` by the type `null`."""
    if keywords.get("nullable") is not True:
        return keywords
    keywords = {key: value for key, value in keywords.items() if key != "nullable"}
    if "type" not in keywords:
        # OpenAPI 3.0 ignores `nullable` without `type`, but authors who write it beside a union expect it to work.
        if not keywords.keys() & {"allOf", "anyOf", "oneOf", "enum"}:
            return keywords
        rules = {key: value for key, value in keywords.items() if key not in _LOCATION_KEYWORDS}
        others = {key: value for key, value in keywords.items() if key in _LOCATION_KEYWORDS}
        return {**others, "anyOf": [rules, {"type": "null"}]}
    types = keywords["type"] if isinstance(keywords["type"], list) else [keywords["type"]]
    keywords["type"] = types if "null" in types else [*types, "null"]
    if isinstance(keywords.get("enum"), list) and None not in keywords["enum"]:
        keywords["enum"] = [*keywords["enum"], None]
    return keywords
