"""JSON Schemas to generate, values that fit them, and what a validator says."""

from collections.abc import Callable
from typing import Any

import jsonschema_rs
from documents import scalars, values
from hypothesis import strategies as st

Schema = dict[str, Any]

NAMES = ["a", "b", "c"]
KEYS = [*NAMES, "unnamed"]

SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "string": st.sampled_from(["", "7", "true", "x"]),
    "integer": st.sampled_from([0, 1, 7, -3, 2**70, 1.0]),
    "number": st.sampled_from([0, 1, 0.5, -0.0, 1e300]),
    "boolean": st.booleans(),
    "null": st.none(),
}

# Values close to what schemas describe, and any others.
anything = st.recursive(
    st.one_of(*SCALARS.values()) | scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=15,
)


def fits(schema: Any, value: Any) -> bool:
    return bool(jsonschema_rs.validator_for(schema, offline=True).is_valid(value))


def plain(names: list[str]) -> st.SearchStrategy[Schema]:
    return st.builds(lambda name: {"type": name}, st.sampled_from(names))


leaves = st.one_of(
    plain([*SCALARS]),
    plain(["object", "array"]),
    st.just({}),
    st.builds(
        lambda names: {"type": names}, st.lists(st.sampled_from([*SCALARS]), min_size=1, max_size=3, unique=True)
    ),
    st.builds(lambda choices: {"enum": choices}, st.lists(values, min_size=1, max_size=3)),
    st.builds(lambda choice: {"const": choice}, values),
)
references = st.builds(lambda name: {"$ref": f"#/$defs/{name}"}, st.sampled_from(NAMES)) | st.just({"$ref": "#"})


def with_default(schemas: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    """Add a default, which may be invalid, to some schemas."""
    return schemas | st.builds(lambda schema, default: {**schema, "default": default}, schemas, anything)


@st.composite
def objects(draw: Callable[..., Any], inner: st.SearchStrategy[Schema]) -> Schema:
    """Generate an object. Only optional members use references, because a required one could recurse forever."""
    required = draw(st.lists(st.sampled_from(NAMES), max_size=3, unique=True))
    others = inner | references
    properties = {
        name: draw(with_default(inner if name in required else others))
        for name in NAMES
        if name in required or draw(st.booleans())
    }
    schema = {"type": "object", "properties": properties}
    return {**schema, "required": required} if required else schema


@st.composite
def tagged(draw: Callable[..., Any], inner: st.SearchStrategy[Schema]) -> Schema:
    """Generate a union of distinguishable objects and other types: no value fits two of its members."""
    members = []
    for tag in ("x", "y", "z")[: draw(st.integers(1, 3))]:
        member = draw(objects(inner))
        properties = {**member["properties"], "kind": {"const": tag}}
        members.append({**member, "properties": properties, "required": [*member.get("required", ()), "kind"]})
    others = draw(st.lists(st.sampled_from(["string", "null", "boolean", "number"]), max_size=2, unique=True))
    return {"oneOf": draw(st.permutations([*members, *({"type": name} for name in others)]))}


def unions(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    """Generate a union with at least one member that is not recursive."""
    members = st.lists(inner | references, max_size=3)
    return st.builds(lambda one, more: {"anyOf": [*more, one]}, inner, members)


def extended(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    arrays = st.builds(lambda items: {"type": "array", "items": items}, inner | references)
    return with_default(st.one_of(arrays, objects(inner), unions(inner), tagged(inner)))


def rooted(root: Schema, defs: dict[str, Schema]) -> Schema:
    return {**root, "$defs": defs}


def whole(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    return st.builds(rooted, inner, st.fixed_dictionaries(dict.fromkeys(NAMES, inner)))


# Schemas that something fits, of the words that say how a value is built.
schemas = whole(st.recursive(leaves, extended, max_leaves=8))

# The same without a choice: what becomes of a value can be told by a few lines of plain Python.
plain_schemas = whole(
    st.recursive(
        leaves,
        lambda inner: st.builds(lambda items: {"type": "array", "items": items}, inner | references) | objects(inner),
        max_leaves=8,
    )
)


def overlapping(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    """Generate overlapping unions, none of which refers to itself directly: such a `oneOf` is undefined."""
    arrays = st.builds(lambda items: {"type": "array", "items": items}, inner | references)
    unions = st.builds(
        lambda word, members: {word: members},
        st.sampled_from(["oneOf", "oneOf", "anyOf"]),
        st.lists(inner, min_size=1, max_size=3),
    )
    untyped = objects(inner).map(lambda schema: {word: schema[word] for word in schema.keys() - {"type"}})
    return with_default(st.one_of(arrays, objects(inner), untyped, unions, unions))


# Schemas of the words that say how a value is built, which a value may fit twice, or never.
ambiguous = whole(st.recursive(leaves, overlapping, max_leaves=8))

# Schemas of anything, in any place, that nothing may fit.
wild = whole(
    st.recursive(
        leaves | references | st.booleans().map(lambda is_any: {} if is_any else {"not": {}}),
        lambda inner: st.fixed_dictionaries(
            {},
            optional={
                "type": st.sampled_from(["object", "array", "string", ["integer", "null"]]),
                "properties": st.dictionaries(st.sampled_from(NAMES), inner | st.booleans(), max_size=3),
                "required": st.lists(st.sampled_from(NAMES), max_size=2, unique=True),
                "additionalProperties": inner | st.booleans(),
                "patternProperties": st.dictionaries(st.sampled_from(["^a", "b$", "."]), inner, max_size=2),
                "prefixItems": st.lists(inner, min_size=1, max_size=2),
                "items": inner | st.booleans(),
                "minItems": st.integers(0, 3),
                "minimum": st.integers(-3, 3),
                "minLength": st.integers(0, 3),
                "anyOf": st.lists(inner, min_size=1, max_size=3),
                "oneOf": st.lists(inner, min_size=1, max_size=3),
                "allOf": st.lists(inner, min_size=1, max_size=2),
                "$ref": st.sampled_from(["#", "#/$defs/a", "#/$defs/b"]),
                "default": anything,
                "nullable": st.booleans(),
            },
        ),
        max_leaves=10,
    )
)


# Invalid schemas, and barely valid ones.
words = ["$anchor", "$defs", "$dynamicAnchor", "$dynamicRef", "$id", "$ref", "$schema", "additionalProperties", "allOf"]
words += ["anyOf", "components", "const", "contains", "default", "definitions", "dependentRequired", "dependentSchemas"]
words += ["else", "enum", "exclusiveMinimum", "if", "items", "maximum", "maxItems", "minItems", "minLength", "minimum"]
words += ["multipleOf", "not", "nullable", "oneOf", "openapi", "pattern", "patternProperties", "prefixItems"]
words += ["properties", "propertyNames", "required", "then", "type", "unevaluatedProperties", "uniqueItems"]
junk = st.recursive(
    scalars | st.sampled_from(["#", "#a", "#/$defs/a", "#/0", "a", "a#", "urn:x", "[", "object", "3.0.0"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from([*words, *NAMES]), inner, min_size=1, max_size=4)
    ),
    max_leaves=12,
).filter(lambda schema: isinstance(schema, dict | bool))

simple: st.SearchStrategy[Schema] = (
    plain([*SCALARS]) | st.just({}) | st.builds(lambda choice: {"const": choice}, SCALARS["string"])
)
some_names = st.lists(st.sampled_from(NAMES), max_size=2, unique=True)
some_members = st.dictionaries(st.sampled_from(NAMES), with_default(simple), max_size=2)
rules = st.fixed_dictionaries({}, optional={"properties": some_members, "required": some_names})


def conditions(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    return st.fixed_dictionaries(
        {"properties": some_members},
        optional={
            "if": inner,
            "then": inner,
            "else": inner,
            "dependentSchemas": st.dictionaries(st.sampled_from(NAMES), inner, max_size=2),
            "dependentRequired": st.dictionaries(st.sampled_from(NAMES), some_names, max_size=2),
            "not": inner,
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "anyOf": st.lists(inner, min_size=1, max_size=2),
            "minProperties": st.integers(0, 2),
            "maxProperties": st.integers(1, 3),
            "unevaluatedProperties": st.booleans(),
        },
    )


# Rules that hold for some values only, beside what is always so; and objects that may be as they say.
conditional = conditions(rules | conditions(rules))
small = st.dictionaries(st.sampled_from(KEYS), st.one_of(*SCALARS.values()), max_size=4)


@st.composite
def fitting(draw: Callable[..., Any], schema: Schema, defs: Schema, depth: int = 0) -> Any:
    """A value that fits, with nothing in it that is not named, and every default that may be."""
    if "$ref" in schema:
        schema = defs if schema["$ref"] == "#" else defs["$defs"][schema["$ref"].rpartition("/")[2]]
    if "enum" in schema or "const" in schema:
        return draw(st.sampled_from(schema.get("enum") or [schema["const"]]))
    for word in ("anyOf", "oneOf"):
        if word in schema:
            ends = schema[word] if depth < 4 else [one for one in schema[word] if "$ref" not in one]
            return draw(fitting(draw(st.sampled_from(ends)), defs, depth + 1))
    names = schema.get("type", "null")
    kind = draw(st.sampled_from(names)) if isinstance(names, list) else names
    if kind == "array":
        return [draw(fitting(schema.get("items", {}), defs, depth + 1)) for _ in range(0 if depth > 3 else 2)]
    if kind != "object":
        return draw(SCALARS[kind])
    return {
        name: draw(fitting(member, defs, depth + 1))
        for name, member in schema.get("properties", {}).items()
        if name in schema.get("required", ()) or (depth < 4 and ("default" in member or draw(st.booleans())))
    }
