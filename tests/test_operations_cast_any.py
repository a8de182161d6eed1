"""What holds of the cast of any value to any schema."""

import copy
import json
from typing import Any

import pytest
from headgate.operations import cast
from hypothesis import given
from hypothesis import strategies as st
from schemas import Schema, anything, fits, fitting, schemas, wild


def as_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


@given(schemas, anything)
def test_the_result_fits(schema: Schema, value: Any) -> None:
    assert fits(schema, cast(schema, value))


@given(schemas, anything)
def test_a_second_cast_changes_nothing(schema: Schema, value: Any) -> None:
    once = cast(schema, value)
    assert cast(schema, once) is once


@given(schemas | wild, anything)
def test_neither_value_nor_schema_is_changed(schema: Schema, value: Any) -> None:
    before = copy.deepcopy((schema, value))
    told: list[tuple[str, Any]] = []
    result = cast(schema, value, on_replaced=lambda path, old: told.append((path, old)))
    assert as_json([schema, value]) == as_json([*before])
    for path, old in told:
        assert as_json(found(value, path)) == as_json(old)
    json.dumps(result)


def found(value: Any, path: str) -> Any:
    for name in path.split("/")[1:]:
        value = value[int(name)] if isinstance(value, list) else value[name.replace("~1", "/").replace("~0", "~")]
    return value


@given(st.data(), schemas)
def test_what_fits_stays_equal(data: st.DataObject, schema: Schema) -> None:
    value = data.draw(fitting(schema, schema))
    assert fits(schema, value)
    result = cast(schema, value, on_replaced=lambda path, _: pytest.fail(path))
    assert fits(schema, result)
    if not has_defaults(schema):
        assert result == value


def has_defaults(schema: Schema) -> bool:
    return '"default"' in as_json(schema)
