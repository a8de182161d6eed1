"""Objects that handlers return, and their JSON form."""

import asyncio
import collections
import dataclasses
import datetime
import enum
import logging
import pathlib
import uuid
from decimal import Decimal
from typing import Any, NamedTuple, TypedDict

import orjson
import pydantic
import pytest
from forebay.envelope import Body
from forebay.envelope.body import has_only_json_types
from forebay.operations import CallError, OperationRegistry, OperationSpec
from forebay.operations.responses import to_call_tool_result

ID = uuid.UUID(int=7)


class Colour(enum.Enum):
    RED = "red"


class Size(enum.StrEnum):
    LARGE = "large"


class Level(enum.IntEnum):
    HIGH = 3


class Model(pydantic.BaseModel):
    id: uuid.UUID
    colour: Colour


@dataclasses.dataclass
class Record:
    id: uuid.UUID
    colour: Colour


class TypedRecord(TypedDict):
    id: uuid.UUID


class Pair(NamedTuple):
    id: uuid.UUID
    colour: Colour


OBJECTS = [
    (ID, str(ID)),
    (Colour.RED, "red"),
    (Size.LARGE, "large"),
    (Level.HIGH, 3),
    (datetime.datetime(2024, 5, 6, 7, 8, 9, tzinfo=datetime.UTC), "2024-05-06T07:08:09+00:00"),
    (datetime.date(2024, 5, 6), "2024-05-06"),
    (datetime.time(7, 8), "07:08:00"),
    (Decimal("1.10"), "1.10"),
    (pathlib.Path("a"), "a"),
    ({ID}, [str(ID)]),
    (frozenset([1]), [1]),
    (collections.OrderedDict(a=ID), {"a": str(ID)}),
    ({ID: 1, "n": Level.HIGH}, {str(ID): 1, "n": 3}),
    (Model(id=ID, colour=Colour.RED), {"id": str(ID), "colour": "red"}),
    (Record(ID, Colour.RED), {"id": str(ID), "colour": "red"}),
    (TypedRecord(id=ID), {"id": str(ID)}),
    (Pair(ID, Colour.RED), [str(ID), "red"]),
    ([ID, 2**70], [str(ID), 2**70]),
    (Body(b"[1]", "application/json"), [1]),
]


def schema_of(expected: Any) -> dict[str, Any]:
    kinds = {str: "string", int: "integer", list: "array", dict: "object"}
    return {"type": "object", "properties": {"it": {"type": kinds[type(expected)]}}, "required": ["it"]}


@pytest.mark.parametrize(("value", "expected"), OBJECTS)
def test_whatever_can_be_written_is_what_json_has_of_it(
    value: Any, expected: Any, caplog: pytest.LogCaptureFixture
) -> None:
    spec = OperationSpec(namespace="ns", name="op", output_schema=schema_of(expected))
    registry = OperationRegistry()
    registry.register(spec, lambda _, __: {"it": value})
    with caplog.at_level(logging.WARNING, "forebay"):
        envelope = asyncio.run(registry.execute("ns.op", {}))
    assert caplog.text == ""
    result = to_call_tool_result(envelope, spec=spec)
    assert result["structuredContent"] == {"it": expected}
    assert type(result["structuredContent"]["it"]) is type(expected)


def test_a_model_that_cannot_be_dumped_fails_with_its_own_error() -> None:
    class Broken(pydantic.BaseModel):
        @pydantic.model_serializer
        def dump(self) -> dict[str, Any]:
            raise ValueError("the connection of this row was closed")

    spec = OperationSpec(namespace="ns", name="op", output_schema={"type": "object"})
    registry = OperationRegistry()
    registry.register(spec, lambda _, __: {"rows": [Broken()]})
    with pytest.raises(CallError, match=r"ns\.op failed: .*the connection of this row was closed"):
        asyncio.run(registry.execute("ns.op", {}))


@pytest.mark.parametrize("value", [value for value, _ in OBJECTS] + [b"", bytearray(), 1j, orjson.Fragment(b"1")])
def test_it_is_seen_wherever_it_is(value: Any) -> None:
    assert has_only_json_types({"a": [1, 1.5, "x", None, True, (2, {})]})
    assert not has_only_json_types({"a": [1, ({"b": value},)]})


def test_what_holds_itself_is_none() -> None:
    endless: list[Any] = []
    endless += [endless, endless]
    assert not has_only_json_types(endless)
