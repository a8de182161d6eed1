"""Shapes that many values are held against are compiled, and say what looking at each schema says."""

import math
from typing import Any

import pytest
from casts import INTEGER, NODE, NUMBER, STRING, named
from forebay.operations import cast
from forebay.operations.casting.checking import BuildCheck, Check
from forebay.operations.casting.compiled import Compiled
from forebay.operations.casting.shape import Shape
from forebay.operations.casting.shapes import Shapes
from forebay.operations.dialect import Schema
from hypothesis import given
from schemas import ambiguous, anything, conditional, schemas, wild

MUCH = [None] * 100

OVERLAPPING = [named(id=INTEGER, name=STRING), named(id=NUMBER, age=INTEGER), named(id={}, size=NUMBER)]


def compiled(schema: Schema) -> tuple[Shape, Compiled, Compiled]:
    shape = Shapes(schema).root
    for each in (shape._compiled, shape._compiled_build):
        each.fits(MUCH)
    return shape, shape._compiled, shape._compiled_build


@pytest.mark.slow
@given(schemas | wild | ambiguous | conditional, anything)
def test_it_says_what_each_schema_does(schema: Schema, value: Any) -> None:
    shape, whole, build = compiled(schema)
    for found, check in ((whole.fits(value), Check), (build.fits(value), BuildCheck)):
        if found is not None:
            assert found == shape._obeys(check(shape._shapes), value)


@pytest.mark.parametrize(
    ("schema", "is_whole", "is_build"),
    [
        ({}, True, True),
        (False, False, False),
        (named(a=INTEGER), False, False),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/b"}}, "b": {}}}, True, True),
        ({"maxItems": 100}, True, None),
        ({"unevaluatedItems": False}, None, None),
        (NODE, None, None),
        ({"anyOf": [named(**{f"a{number}": INTEGER}) for number in range(200)]}, None, None),
    ],
)
def test_what_is_too_much_or_understood_in_another_way_is_not_compiled(
    schema: Schema, is_whole: bool | None, is_build: bool | None
) -> None:
    _, whole, build = compiled(schema)
    assert (whole.fits(MUCH), build.fits(MUCH)) == (is_whole, is_build)


def test_few_values_are_not_worth_it() -> None:
    shape = Shapes(named(a=INTEGER)).root
    assert shape.fits({"a": 1})
    assert "_validator" not in vars(shape._compiled)


def test_what_is_not_json_is_left_to_each_schema() -> None:
    shape, whole, _ = compiled({"type": "array", "items": INTEGER})
    assert whole.fits([b""]) is None
    assert shape.is_built_like([math.nan])
    assert not shape.is_built_like([None])


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "array", "items": {"oneOf": OVERLAPPING}}, [{"id": number} for number in range(1000)]),
        (
            {"oneOf": [named(rows={"type": "array", "items": each}) for each in OVERLAPPING]},
            {"rows": [{"id": number} for number in range(1000)]},
        ),
    ],
)
def test_many_values_of_several_members_are_not_looked_at_schema_by_schema(
    schema: Schema, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = 0
    fits = Check.fits

    def counted(self: Check, schema: Any, value: Any) -> bool:
        nonlocal looked
        looked += 1
        return fits(self, schema, value)

    monkeypatch.setattr(Check, "fits", counted)
    cast(schema, value)
    assert 0 < looked < 2000
