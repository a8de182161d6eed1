"""The overhead of an operation over a bare call, and validation and casting beside other libraries."""

import asyncio
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import jsonschema
import pytest
from conftest import Measured
from forebay.operations import CallContext, Caster, Operation, OperationRegistry, OperationSpec
from forebay.operations.validation import Validator
from pydantic import TypeAdapter
from typing_extensions import TypedDict

Seconds = dict[str, list[float]]

RECORD = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "name": {"type": "string"},
        "active": {"type": "boolean"},
        "score": {"type": "number"},
        "email": {"type": ["string", "null"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "address": {
            "type": "object",
            "properties": {"street": {"type": "string"}, "zip": {"type": "string"}, "country": {"type": "string"}},
            "required": ["street", "zip", "country"],
        },
    },
    "required": ["id", "name", "active", "score", "email", "tags", "address"],
}
RECORDS = {"type": "array", "items": RECORD}


class Address(TypedDict):
    street: str
    zip: str
    country: str


class Record(TypedDict):
    id: int
    name: str
    active: bool
    score: float
    email: str | None
    tags: list[str]
    address: Address


def make_record(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "name": f"name {number}",
        "active": number % 2 == 0,
        "score": number / 7,
        "email": None if number % 3 else f"{number}@example.com",
        "tags": ["a", "b", f"t{number % 9}"],
        "address": {"street": f"{number} Main St", "zip": f"{number:05}", "country": "NZ"},
    }


def make_rough_record(number: int) -> dict[str, Any]:
    """Return the same record with numbers as strings and with extra keys."""
    exact = make_record(number)
    address = {**exact["address"], "planet": "earth"}
    return {**exact, "id": str(number), "active": int(exact["active"]), "address": address, "etag": f"x{number}"}


def time_in_turn(rounds: int, sides: dict[str, Callable[[], Any]]) -> Seconds:
    """Time both sides; the first one changes from round to round, because the second finds warmer caches."""
    seconds: Seconds = {who: [] for who in sides}
    order = list(sides.items())
    for _ in range(rounds):
        for who, work in order:
            start = time.perf_counter()
            work()
            seconds[who].append(time.perf_counter() - start)
        order.reverse()
    return seconds


@cache
def time_execute() -> Seconds:
    async def handler(value: Any, context: CallContext) -> Any:
        del context
        return value

    async def run() -> Seconds:
        registry = OperationRegistry([Operation(OperationSpec(namespace="bench", name="echo"), handler)])
        context = CallContext()
        assert (await registry.execute("bench.echo", 7)).data == await handler(7, context) == 7
        seconds: Seconds = {"forebay": [], "bare call": []}
        for _ in range(20_000):
            start = time.perf_counter()
            await handler(7, context)
            between = time.perf_counter()
            await registry.execute("bench.echo", 7, context)
            seconds["forebay"].append(time.perf_counter() - between)
            seconds["bare call"].append(between - start)
        return seconds

    return asyncio.run(run())


@pytest.mark.parametrize("who", ["forebay", "bare call"])
def bench_execute(measured: Measured, who: str) -> None:
    measured("execute an operation", "no schemas", who, 1, time_execute()[who])


VALIDATIONS: dict[str, tuple[Any, Any]] = {
    "300 records": (RECORDS, [make_record(number) for number in range(300)]),
    "one record": (RECORD, make_record(1)),
}


@cache
def time_validate(which: str) -> Seconds:
    schema, document = VALIDATIONS[which]
    ours, theirs = Validator(schema), jsonschema.Draft202012Validator(schema)
    wrong: Any = {**make_record(0), "score": "high"}
    wrong = [*document, wrong] if isinstance(document, list) else wrong
    assert ours.problems(document) == [*theirs.iter_errors(document)] == []
    assert [problem["path"].split("/")[-1] for problem in ours.problems(wrong)] == ["score"]
    assert [[*error.path][-1] for error in theirs.iter_errors(wrong)] == ["score"]
    return time_in_turn(
        15 if isinstance(document, list) else 500,
        {"forebay": lambda: ours.problems(document), "jsonschema": lambda: [*theirs.iter_errors(document)]},
    )


@pytest.mark.parametrize("which", VALIDATIONS)
@pytest.mark.parametrize("who", ["forebay", "jsonschema"])
def bench_validate(measured: Measured, which: str, who: str) -> None:
    measured("validate", which, who, 1, time_validate(which)[who])


RECORD_MAKERS: dict[str, Callable[[int], dict[str, Any]]] = {
    "10,000 records that fit": make_record,
    "10,000 records that do not": make_rough_record,
}


@cache
def time_cast(which: str) -> Seconds:
    caster, adapter = Caster(RECORDS), TypeAdapter(list[Record])
    value = [RECORD_MAKERS[which](number) for number in range(10_000)]
    expected = [make_record(number) for number in range(10_000)]
    assert caster.cast(value, on_replaced=lambda *_: pytest.fail("something was lost")) == expected
    assert adapter.validate_python(value) == expected
    assert (caster.cast(value) is value) == (RECORD_MAKERS[which] is make_record)
    return time_in_turn(9, {"forebay": lambda: caster.cast(value), "pydantic": lambda: adapter.validate_python(value)})


@pytest.mark.parametrize("which", RECORD_MAKERS)
@pytest.mark.parametrize("who", ["forebay", "pydantic"])
def bench_cast(measured: Measured, which: str, who: str) -> None:
    measured("cast", which, who, 1, time_cast(which)[who])
