"""Casts of large and deep values, with large schemas, deep in other calls, and in many threads."""

import inspect
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import thread_time
from typing import Any

import pytest
from casts import INTEGER, NODE, NULL, NUMBER, STRING, lossless, named, replaced
from forebay.operations import Caster, cast
from forebay.operations.validation import count_values
from peak import measured


def doubled(depth: int, **more: Any) -> Any:
    """Return a schema whose every level needs the next one twice."""
    inner = [{"$ref": f"#/$defs/d{level - 1}"} for level in range(1, depth)]
    defs = {f"d{level}": {**named(a=below, b=below), **more} for level, below in enumerate(inner, 1)}
    return {"$ref": f"#/$defs/d{depth - 1}", "$defs": {"d0": INTEGER, **defs}}


def thousands(depth: int) -> Any:
    schema: Any = INTEGER
    for _ in range(depth):
        schema = {"type": "array", "items": schema, "minItems": 1000}
    return schema


@pytest.mark.parametrize("schema", [thousands(5), doubled(40, required=["a", "b"]), doubled(100, required=["a", "b"])])
def test_no_huge_placeholder_is_created(schema: Any) -> None:
    assert replaced(schema, None) == (None, [])


def test_placeholders_and_defaults_are_bounded() -> None:
    result, old_values = replaced(doubled(10, required=["a", "b"]), None)
    assert (count_values(result), old_values) == (1023, [("", None)])
    result, old_values = replaced(doubled(40, default={}), None)
    assert (type(result), old_values) == (dict, [("", None)])
    assert count_values(result) <= 10_000


def test_filled_values_are_bounded_in_total() -> None:
    schema = {"type": "array", "items": {**named(a=thousands(1)), "required": ["a"]}}
    assert 1_000_000 <= count_values(lossless(schema, [{} for _ in range(3000)])) <= 1_010_000


def test_a_discriminator_is_found_among_thousands() -> None:
    kinds = [{**named(kind={"const": f"k{n}"}, v=INTEGER), "required": ["kind", "v"]} for n in range(2000)]
    caster = Caster({"oneOf": [*kinds, NULL]})
    for value, expected in (("k1999", "k1999"), ("none", "k0")):
        assert caster.cast({"kind": value, "v": "1"}) == {"kind": expected, "v": 1}


def test_several_unions_are_combined_only_if_they_are_few() -> None:
    def either(number: int) -> Any:
        return {"anyOf": [{**named(**{f"p{number}{x}": INTEGER}), "required": [f"p{number}{x}"]} for x in "ab"]}

    few = {"allOf": [named(id=INTEGER), *map(either, range(2))]}
    assert lossless(few, {"id": "1", "p0b": "2", "p1a": "3", "x": 4}) == {"id": 1, "p0b": 2, "p1a": 3}
    many = {"allOf": [named(id=INTEGER), *map(either, range(40))]}
    assert lossless(many, {"id": "1", "p0b": "2", "x": 4}) == {"id": 1, "p0b": "2", "x": 4}


def nested(depth: int, innermost: Any) -> Any:
    for _ in range(depth):
        innermost = [innermost]
    return innermost


@pytest.mark.slow
@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": {"$ref": "#"}},
        {"anyOf": [{"type": "array", "items": {"$ref": "#"}}, {"type": "array", "items": {"$ref": "#"}}]},
        {
            "oneOf": [
                {"type": "array", "items": {"$ref": "#"}},
                {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
            ]
        },
    ],
)
def test_casts_of_deep_values_end(schema: Any) -> None:
    deep = nested(900, "x")
    assert cast(schema, deep) == deep
    result, old_values = replaced(schema, nested(20, "x"))
    assert [path for path, _ in old_values] == ["/0" * 20]
    assert result == nested(20, [])


def test_many_values_that_two_members_of_a_one_of_accept() -> None:
    schema = {"type": "array", "items": {"oneOf": [named(a=NUMBER), named(a=INTEGER)]}}
    value = [{"a": 1} for _ in range(2000)]
    assert replaced(schema, value) == (value, [])


def test_a_recursive_union_is_cast_at_all_levels() -> None:
    schema = {"anyOf": [INTEGER, {"type": "array", "items": {"$ref": "#"}}]}
    assert lossless(schema, nested(60, "7")) == nested(60, 7)


def test_casts_to_nested_unions_are_linear_in_the_depth() -> None:
    kinds = [named(**{f"k{number}": INTEGER}, next={"$ref": "#"}, n=INTEGER) for number in range(6)]
    value: Any = {"n": "0"}
    for _ in range(50):
        value = {"next": value, "n": "1", "k3": "2"}
    start = thread_time()
    result = lossless({"anyOf": kinds}, value)
    assert thread_time() - start < 5
    assert result["next"]["next"]["k3"] == 2


def test_a_caller_that_is_deep_in_calls_gets_its_value_back() -> None:
    deep = nested(900, "x")

    def call(depth: int) -> Any:
        return call(depth - 1) if depth else cast({"type": "array", "items": {"$ref": "#"}}, deep)

    assert call(700) is deep


GRAPH = """
import random
chance = random.Random(1)
def some(many):
    return {"anyOf": [{"type": "string"}, *({"$ref": f"#/$defs/d{chance.randrange(many)}"} for _ in range(2))]}
def one(name, many):
    return {"type": "object", "properties": {"kind": {"const": name}, **{f"p{n}": some(many) for n in range(8)}}}
def graph(many):
    defs = {name: one(name, many) for name in (f"d{number}" for number in range(many))}
    return {"$ref": "#/$defs/d0", "$defs": defs}
value = {"kind": "d0", "p0": {"p1": {"p2": {"p3": 1}}}}
"""


@pytest.mark.slow
def test_many_schemas_that_refer_to_each_other_take_little_memory() -> None:
    before, after = measured(
        f"{GRAPH}\nfrom forebay.operations import cast\nprint(peak())\ncast(graph(400), value)\nprint(peak())"
    )
    assert after - before < 100 << 20


@pytest.mark.slow
def test_eight_hundred_definitions_take_seconds_at_most() -> None:
    names: dict[str, Any] = {}
    exec(GRAPH, names)  # noqa: S102
    start = thread_time()
    caster = Caster(names["graph"](800))
    assert caster.cast(names["value"])["kind"] == "d0"
    assert caster.normalize({"kind": "d0", "p0": "x", "y": 1}) == {"kind": "d0", "p0": "x"}
    assert thread_time() - start < 10


def test_a_union_of_eight_hundred_definitions() -> None:
    defs = {f"d{n}": {**named(**{f"p{n}": INTEGER, "name": STRING}), "required": [f"p{n}"]} for n in range(800)}
    schema = {"type": "array", "items": {"anyOf": [{"$ref": f"#/$defs/{name}"} for name in defs]}, "$defs": defs}
    start = thread_time()
    result = lossless(schema, [{f"p{n}": n, "name": "x", "y": 1} for n in range(0, 800, 8)])
    assert result == [{f"p{n}": n, "name": "x"} for n in range(0, 800, 8)]
    assert thread_time() - start < 10


def test_threads_can_share_a_caster() -> None:
    members = {f"m{n}": {**named(a={"default": n}), "default": {}} for n in range(300)}
    expected = {name: {"a": number} for number, name in enumerate(members)}
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(5):
            caster = Caster(named(**members))
            with ThreadPoolExecutor(8) as pool:
                results = [*pool.map(caster.cast, [{} for _ in range(16)])]
            assert results == [expected] * 16
    finally:
        sys.setswitchinterval(interval)


def called_deep(depth: int, call: Callable[[], Any]) -> Any:
    return called_deep(depth - 1, call) if depth else call()


def test_a_schema_that_was_first_used_too_deep_in_calls_is_read_again() -> None:
    schema: Any = INTEGER
    for _ in range(20):
        schema = named(a=schema)
    caster = Caster(schema)
    value = {"a": {}, "b": 1}
    used = len(inspect.stack())
    assert called_deep(sys.getrecursionlimit() - used - 40, lambda: caster.cast(value)) is value
    assert caster.cast(value) == {"a": {}}


def test_a_cast_anywhere_in_a_deep_stack_is_complete_or_changes_nothing() -> None:
    node = {"$ref": NODE["$ref"], "default": {}}
    caster = Caster({**named(a=node, u={"oneOf": [INTEGER, NULL]}), "$defs": NODE["$defs"]})
    value = {"a": {"next": {"name": 1}}, "u": "7", "x": 1}
    expected = {"a": {"name": "", "next": {"name": "1"}}, "u": 7}
    room = sys.getrecursionlimit() - len(inspect.stack())
    for left in range(120, 0, -1):
        try:
            # A cast itself needs a few calls before it can catch the error.
            called_deep(room - left + 4, lambda: (lambda: None)())
        except RecursionError:
            break
        assert called_deep(room - left, lambda: caster.cast(value)) in (value, expected)
        assert called_deep(room - left, lambda: caster.normalize(value)) is value
    assert caster.cast(value) == expected
