"""Translation of OpenAPI 3.0 schemas and older JSON Schema drafts to JSON Schema 2020-12."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

__all__ = ["Change", "Schema", "is_openapi_3_0", "map_schemas", "modernize", "modernize_keywords"]

Schema: TypeAlias = Mapping[str, Any] | bool
"""A JSON Schema."""

Change: TypeAlias = Callable[[dict[str, Any], str], Any]
"""Takes the keywords of a schema, which it may change, and the JSON Pointer of that schema."""

_SCHEMA_KEYWORDS = {"additionalItems", "additionalProperties", "contains", "else", "if", "items", "not"}
_SCHEMA_KEYWORDS |= {"propertyNames", "then", "unevaluatedItems", "unevaluatedProperties"}
_LIST_KEYWORDS = {"allOf", "anyOf", "items", "oneOf", "prefixItems"}
_MAP_KEYWORDS = {"$defs", "definitions", "dependentSchemas", "patternProperties", "properties", "schemas"}

_KEPT_BESIDE_REF = {"$ref", "$defs", "components", "definitions", "openapi"}
"""Keywords that stay beside a `$ref` in dialects that ignore rules there."""

_LOCATED = {"$anchor", "$defs", "$id", "$schema", "components", "definitions", "openapi"}
"""Keywords that must not move into a nested schema, because references depend on their location."""

_OLD_DRAFTS = ("draft-03", "draft-04", "draft-06", "draft-07")


def modernize(schema: Schema) -> Schema:
    """Return a copy of a schema with the same rules in the keywords of 2020-12."""
    if isinstance(schema, bool):
        return schema
    ignores_beside_ref = is_openapi_3_0(schema) or any(draft in str(schema.get("$schema")) for draft in _OLD_DRAFTS)

    def change(keywords: dict[str, Any], _: str) -> dict[str, Any]:
        if ignores_beside_ref and "$ref" in keywords:
            return {key: value for key, value in keywords.items() if key in _KEPT_BESIDE_REF}
        keywords.pop("$schema", None)
        return modernize_keywords(keywords)

    modern: Schema = map_schemas(schema, change)
    return modern


def modernize_keywords(keywords: dict[str, Any]) -> dict[str, Any]:
    """Return one schema in the keywords of 2020-12; schemas nested in it stay as they are."""
    return _translate_nullable(_translate_item_list(_translate_bounds(keywords)))


def is_openapi_3_0(schema: Schema) -> bool:
    """Return whether a schema declares OpenAPI 3.0 or uses a keyword that only OpenAPI 3.0 has."""
    if isinstance(schema, bool):
        return False
    found: list[dict[str, Any]] = []
    map_schemas(schema, lambda keywords, _: found.append(keywords))
    return str(schema.get("openapi", "")).startswith("3.0") or any(map(_has_openapi_keyword, found))


def _has_openapi_keyword(schema: Mapping[str, Any]) -> bool:
    bounds = (schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum"))
    return isinstance(schema.get("nullable"), bool) or any(isinstance(bound, bool) for bound in bounds)


def map_schemas(schema: Any, change: Change, pointer: str = "") -> Any:
    """Return a copy with `change` applied to each schema, innermost first, but not to the values of `enum`."""
    if not isinstance(schema, Mapping):
        return schema

    def map_keyword(key: str, value: Any, pointer: str) -> Any:
        pointer = f"{pointer}/{key}"
        if key in _LIST_KEYWORDS and isinstance(value, list):
            return [map_schemas(item, change, f"{pointer}/{number}") for number, item in enumerate(value)]
        if key in _SCHEMA_KEYWORDS:
            return map_schemas(value, change, pointer)
        if key in _MAP_KEYWORDS and isinstance(value, Mapping):
            return {name: map_schemas(item, change, f"{pointer}/{_escape(name)}") for name, item in value.items()}
        if key == "components" and isinstance(value, Mapping):
            return {name: map_keyword(name, item, pointer) for name, item in value.items()}
        return value

    return change({key: map_keyword(key, value, pointer) for key, value in schema.items()}, pointer)


def _escape(name: Any) -> str:
    return str(name).replace("~", "~0").replace("/", "~1")


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
    if keywords.get("nullable") is not True:
        return keywords
    keywords = {key: value for key, value in keywords.items() if key != "nullable"}
    if "type" not in keywords:
        # OpenAPI 3.0 ignores `nullable` without `type`, but authors who write it beside a union mean it.
        if not keywords.keys() & {"allOf", "anyOf", "oneOf", "enum"}:
            return keywords
        rules = {key: value for key, value in keywords.items() if key not in _LOCATED}
        located = {key: value for key, value in keywords.items() if key in _LOCATED}
        return {**located, "anyOf": [rules, {"type": "null"}]}
    types = keywords["type"] if isinstance(keywords["type"], list) else [keywords["type"]]
    keywords["type"] = types if "null" in types else [*types, "null"]
    if isinstance(keywords.get("enum"), list) and None not in keywords["enum"]:
        keywords["enum"] = [*keywords["enum"], None]
    return keywords
