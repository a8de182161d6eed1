"""Casts of much and of deep values, deep in calls, and in many threads."""

import inspect
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from casts import INTEGER, NODE, NULL, NUMBER, lossless, named, replaced
from forebay.operations import cast
from forebay.operations.cast import Caster
from forebay.operations.casting.checking import Check
from forebay.operations.casting.scalars import weight
from peak import measured


def doubled(depth: int, **more: Any) -> Any:
    """A schema whose every level needs the next one twice."""
    inner = [{"$ref": f"#/$defs/d{level - 1}"} for level in range(1, depth)]
    defs = {f"d{level}": {**named(a=below, b=below), **more} for level, below in enumerate(inner, 1)}
    return {"$ref": f"#/$defs/d{depth - 1}", "$defs": {"d0": INTEGER, **defs}}


def thousands(depth: int) -> Any:
    schema: Any = INTEGER
    for _ in range(depth):
        schema = {"type": "array", "items": schema, "minItems": 1000}
    return schema


@pytest.mark.slow
@pytest.mark.parametrize(
    "schema",
    [thousands(5), doubled(40, required=["a", "b"]), doubled(100, required=["a", "b"]), doubled(40, default={})],
)
def test_what_is_made_up_is_bounded(schema: Any) -> None:
    result, told = replaced(schema, None)
    assert (type(result), told) == (list if "items" in schema else dict, [("", None)])
    assert weight(result) <= 10_000


@pytest.mark.slow
def test_what_is_put_in_is_bounded_in_all() -> None:
    schema = {"type": "array", "items": {**named(a=thousands(1)), "required": ["a"]}}
    assert 1_000_000 <= weight(lossless(schema, [{} for _ in range(3000)])) <= 1_010_000


@pytest.mark.slow
def test_an_object_that_names_its_kind_is_of_that_kind_among_thousands() -> None:
    kinds = [{**named(kind={"const": f"k{n}"}, v=INTEGER), "required": ["kind", "v"]} for n in range(2000)]
    caster = Caster({"oneOf": [*kinds, NULL]})
    for value, expected in (("k1999", "k1999"), ("none", "k0")):
        assert caster.cast({"kind": value, "v": "1"}) == {"kind": expected, "v": 1}


def test_unions_that_all_hold_at_once_are_tried_only_if_they_are_few() -> None:
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
    ],
)
def test_deep_values_end(schema: Any) -> None:
    deep = nested(900, "x")
    assert cast(schema, deep) == deep
    result, told = replaced(schema, nested(20, "x"))
    assert [path for path, _ in told] == ["/0" * 20]
    assert result == nested(20, [])


@pytest.mark.slow
def test_deep_values_of_two_members_end() -> None:
    lists = {"type": "array", "items": {"$ref": "#"}}
    schema = {"oneOf": [lists, {**lists, "minItems": 1}]}
    deep = nested(900, "x")
    assert cast(schema, deep) == deep
    assert replaced(schema, nested(20, "x")) == ([], [("/0", nested(19, "x"))])


def test_many_values_of_two_members_are_each_told_of() -> None:
    schema = {"type": "array", "items": {"oneOf": [named(a=NUMBER), named(a=INTEGER)]}}
    result, told = replaced(schema, [{"a": 1} for _ in range(2000)])
    assert result == [{"a": 0.5}] * 2000
    assert told == [(f"/{number}/a", 1) for number in range(2000)]


def test_a_union_that_comes_back_is_followed_down() -> None:
    schema = {"anyOf": [INTEGER, {"type": "array", "items": {"$ref": "#"}}]}
    assert lossless(schema, nested(60, "7")) == nested(60, 7)


def test_what_is_in_a_value_is_not_looked_at_again_at_each_step_down(monkeypatch: pytest.MonkeyPatch) -> None:
    looked, obeys = 0, Check._obeys

    def counting(self: Check, told: Any, value: Any) -> bool:
        nonlocal looked
        looked += 1
        return obeys(self, told, value)

    def looked_at(levels: int) -> int:
        nonlocal looked
        looked = 0
        value: Any = 7
        for _ in range(levels):
            value = [value]
        assert lossless(schema, {"n": "5", "data": value}) == {"n": 5, "data": value}
        return looked

    monkeypatch.setattr(Check, "_obeys", counting)
    whatever = {"$ref": "#/$defs/whatever"}
    schema = {
        **named(n=INTEGER, data=whatever),
        "$defs": {"whatever": {"anyOf": [INTEGER, {"type": "array", "items": whatever}]}},
    }
    assert looked_at(20) < 3 * looked_at(10)


def test_a_caller_that_is_deep_in_calls_gets_its_value_back() -> None:
    deep = nested(900, "x")

    def call(depth: int) -> Any:
        return call(depth - 1) if depth else cast({"type": "array", "items": {"$ref": "#"}}, deep)

    assert call(700) is deep


GRAPH = """
import random
chance = random.Random(1)
many = 400
def some():
    return {"anyOf": [{"type": "string"}, *({"$ref": f"#/$defs/d{chance.randrange(many)}"} for _ in range(2))]}
def one(name):
    return {"type": "object", "properties": {"kind": {"const": name}, **{f"p{n}": some() for n in range(8)}}}
defs = {name: one(name) for name in (f"d{number}" for number in range(many))}
"""


@pytest.mark.slow
def test_many_schemas_that_refer_to_each_other_take_little_memory() -> None:
    before, after = measured(
        f"{GRAPH}\nfrom forebay.operations import cast\nprint(peak())\n"
        "cast({'$ref': '#/$defs/d0', '$defs': defs}, {'kind': 'd0', 'p0': {'p1': {'p2': {'p3': 1}}}})\nprint(peak())"
    )
    assert after - before < 100 << 20


def test_threads_share_one_without_a_loss() -> None:
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


def test_one_that_was_read_too_deep_in_calls_is_read_again(caplog: pytest.LogCaptureFixture) -> None:
    schema: Any = INTEGER
    for _ in range(20):
        schema = named(a=schema)
    used = len(inspect.stack())
    caster = called_deep(sys.getrecursionlimit() - used - 40, lambda: Caster(schema))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert caster.cast({"a": {}, "b": 1}) == {"a": {}}


def test_a_value_is_what_it_was_wherever_in_a_deep_stack_it_is_cast() -> None:
    node = {"$ref": NODE["$ref"], "default": {}}
    caster = Caster({**named(a=node, u={"oneOf": [INTEGER, NULL]}), "$defs": NODE["$defs"]})
    value = {"a": {"next": {"name": 1}}, "u": "7", "x": 1}
    expected = {"a": {"name": "", "next": {"name": "1"}}, "u": 7}
    room = sys.getrecursionlimit() - len(inspect.stack())
    for left in range(120, 0, -1):
        try:
            called_deep(room - left, lambda: (lambda: None)())
        except RecursionError:
            break
        assert called_deep(room - left, lambda: caster.cast(value)) in (value, expected)
        assert called_deep(room - left, lambda: caster.normalized(value)) is value
    assert caster.cast(value) == expected
