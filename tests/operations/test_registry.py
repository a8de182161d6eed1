"""The registry, and the pipeline from a handler's result to an envelope."""

import asyncio
import dataclasses
import logging
from collections.abc import AsyncIterator
from typing import Any

import pydantic
import pytest
from forebay import InvalidArgument
from forebay.envelope import (
    Body,
    LocalResponseMeta,
    ResponseEnvelope,
    http_envelope,
    local_envelope,
    mcp_envelope,
    unwrap,
)
from forebay.operations import (
    CODES,
    AccessControl,
    CallContext,
    CallError,
    Identity,
    Operation,
    OperationRegistry,
    OperationSpec,
)
from forebay.operations import spec as operation_specs

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def spec(name: str = "op", **more: Any) -> OperationSpec:
    return OperationSpec(namespace="ns", name=name, **more)


def execute(handler: Any, value: Any = None, **more: Any) -> Any:
    registry = OperationRegistry([Operation(spec(**more), handler)])
    return asyncio.run(registry.execute("ns.op", value))


async def echo(value: Any, context: CallContext) -> Any:
    del context
    return value


def test_a_function_without_a_signature_is_a_handler() -> None:
    # As some functions written in C have none.
    assert unwrap(execute({}.pop, "missing", input_schema={"type": "string"})).identity is None


def test_what_is_returned_is_wrapped() -> None:
    for handler in (echo, lambda value, _: value):
        envelope = execute(handler, {"a": 1})
        assert unwrap(envelope) == {"a": 1}
        assert isinstance(envelope.meta, LocalResponseMeta)
        assert envelope.meta.operation_id == "ns.op"


@pytest.mark.parametrize(
    "envelope",
    [
        local_envelope(1, "someone.else"),
        http_envelope(b"x", status_code=201, headers={}, content_type="x/y"),
        mcp_envelope([], is_error=True),
    ],
)
def test_an_envelope_passes_as_it_is(envelope: Any) -> None:
    assert execute(lambda *_: envelope) is envelope
    assert execute(lambda *_: envelope.to_dict()) == envelope


def test_an_envelope_that_is_none_is_told() -> None:
    with pytest.raises(CallError, match=r"an envelope that is none.*operationId") as caught:
        execute(lambda *_: {"data": 1, "meta": {"source": "local"}})
    assert caught.value.code == "EXECUTION_ERROR"


def test_the_input_is_checked_before_the_handler_sees_it() -> None:
    seen: list[Any] = []
    with pytest.raises(CallError) as caught:
        execute(lambda value, _: seen.append(value), {"n": "x"}, input_schema=NUMBER)
    assert (seen, caught.value.code) == ([], "VALIDATION_ERROR")
    assert caught.value.details["problems"][0]["path"] == "/n"
    assert "/n" in str(caught.value)
    execute(lambda value, _: seen.append(value), {"n": 1}, input_schema=NUMBER)
    assert seen == [{"n": 1}]


@pytest.mark.parametrize(("wrong", "reported"), [(3, 3), (1000, 8), (100_000, 1)])
def test_of_what_is_wrong_no_more_is_looked_for_than_is_told(wrong: int, reported: int) -> None:
    with pytest.raises(CallError) as caught:
        execute(lambda *_: None, [7] * wrong, input_schema={"type": "array", "items": {"type": "string"}})
    problems = caught.value.details["problems"]
    assert [problem["path"] for problem in problems] == [f"/{number}" for number in range(reported)]


def test_schemas_are_read_once_for_all_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Any] = []

    def counting(make: Any) -> Any:
        def build(schema: Any, *more: Any) -> Any:
            read.append(schema)
            return make(schema, *more)

        return build

    for name in ("Validator", "Caster"):
        monkeypatch.setattr(operation_specs, name, counting(getattr(operation_specs, name)))
    registry = OperationRegistry([Operation(spec(input_schema=NUMBER, output_schema={"type": "object"}), echo)])
    for number in range(3):
        assert unwrap(asyncio.run(registry.execute("ns.op", {"n": number}))) == {"n": number}
    assert read == [NUMBER, {"type": "object"}, {"type": "object"}]


def test_what_is_too_deep_to_be_written_is_returned_or_refused() -> None:
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    value = {"x": deep, "y": 1}
    for schema in ({"required": ["x"]}, {"properties": {"x": {"const": 1}}}):
        assert unwrap(execute(lambda *_: value, output_schema=schema)) is value
    with pytest.raises(CallError) as caught:
        execute(echo, deep, input_schema={"const": 1})
    assert caught.value.code == "VALIDATION_ERROR"


def test_what_does_not_fit_the_output_is_told_and_returned(caplog: pytest.LogCaptureFixture) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 5}}, "required": ["n"]}
    with caplog.at_level(logging.WARNING, "forebay"):
        assert unwrap(execute(lambda *_: {"n": 1}, output_schema=schema)) == {"n": 1}
    assert "'/n'" in caplog.text
    assert "ns.op" in caplog.text


def test_errors_of_tools_and_their_blocks_are_not_made_to_fit(caplog: pytest.LogCaptureFixture) -> None:
    answers: list[Any] = [mcp_envelope("no", is_error=True), mcp_envelope([])]
    for envelope in answers:
        envelope = dataclasses.replace(envelope, data=envelope.meta.content)
        with caplog.at_level(logging.WARNING, "forebay"):
            assert execute(lambda *_, answer=envelope: answer, output_schema=NUMBER) is envelope
    assert caplog.text == ""


def test_blocks_that_were_json_are_not_made_to_fit(caplog: pytest.LogCaptureFixture) -> None:
    blocks: Any = mcp_envelope(None, content=[{"type": "text", "text": "t"}])
    blocks = dataclasses.replace(blocks, data=blocks.meta.content)
    again = ResponseEnvelope.from_json(blocks.to_json())
    with caplog.at_level(logging.WARNING, "forebay"):
        assert execute(lambda *_: again, output_schema=NUMBER) is again
        assert caplog.text == ""
        execute(lambda *_: mcp_envelope([], structured_content=[]), output_schema=NUMBER)
    assert "ns.op" in caplog.text


@pytest.mark.parametrize("schema", [None, True, {}])
def test_a_schema_that_says_nothing_costs_nothing(schema: Any) -> None:
    body = Body(b"not json", "application/json")
    assert unwrap(execute(lambda *_: body, output_schema=schema)) is body


def test_a_body_is_parsed_where_a_schema_asks_for_it() -> None:
    body = Body(b'{"n": 1}', "application/json")
    assert unwrap(execute(lambda *_: body, output_schema=NUMBER)) == {"n": 1}


@pytest.mark.parametrize("body", [Body(b'{"n": 1e999}', "application/json"), Body(b"\x89PNG", "image/png")])
def test_a_body_that_cannot_be_read_comes_back_as_it_came(body: Body, caplog: pytest.LogCaptureFixture) -> None:
    for result in (body, mcp_envelope(body)):
        caplog.clear()
        assert unwrap(execute(lambda *_, value=result: value, output_schema=NUMBER)) is body
        assert "cannot be read as JSON" in caplog.text


@dataclasses.dataclass
class Row:
    n: int


def test_objects_are_taken_for_what_they_say() -> None:
    assert unwrap(execute(lambda *_: Row(7), output_schema=NUMBER)) == {"n": 7}
    assert unwrap(execute(lambda *_: Row(7))) == Row(7)


def test_a_schema_that_cannot_be_understood_checks_nothing(caplog: pytest.LogCaptureFixture) -> None:
    for wrong in ({"type": "nope"}, {"$ref": "https://example.invalid/schema.json"}):
        with caplog.at_level(logging.WARNING, "forebay"):
            assert unwrap(execute(echo, 1, input_schema=wrong)) == 1
        assert "cannot be understood" in caplog.text


def test_what_a_handler_raises_is_a_call_error() -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("the disk is on fire")

    def late(*_: Any) -> None:
        raise TimeoutError

    def denied(*_: Any) -> None:
        raise CallError("ACCESS_DENIED", "not you", {"scope": "x"})

    for handler, code in ((fail, "EXECUTION_ERROR"), (late, "TIMEOUT"), (denied, "ACCESS_DENIED")):
        with pytest.raises(CallError) as caught:
            execute(handler)
        assert caught.value.code == code
    with pytest.raises(CallError, match="took too long: no answer in time"):
        execute(late)
    assert caught.value.to_dict() == {
        "error": {"code": "ACCESS_DENIED", "message": "not you", "details": {"scope": "x"}}
    }
    with pytest.raises(CallError, match="the disk is on fire"):
        execute(fail)


class Unreadable:
    def model_dump(self, **_: Any) -> Any:
        raise RuntimeError("the disk is on fire")


def test_what_cannot_be_made_to_fit_is_a_call_error() -> None:
    with pytest.raises(CallError, match=r"ns\.op failed: the disk is on fire") as caught:
        execute(lambda *_: Unreadable(), output_schema=NUMBER)
    assert caught.value.code == "EXECUTION_ERROR"


def test_a_call_that_is_cancelled_stays_so() -> None:
    async def run() -> None:
        registry = OperationRegistry([Operation(spec(), lambda *_: asyncio.sleep(60))])
        task = asyncio.create_task(registry.execute("ns.op"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())


def test_what_is_not_there_is_told_with_what_is() -> None:
    registry = OperationRegistry([Operation(spec("one"), echo)])
    registry.register(spec("bare"))
    with pytest.raises(CallError, match=r"no operation 'ns\.two'; there are ns\.bare, ns\.one") as caught:
        asyncio.run(registry.execute("ns.two"))
    assert caught.value.code == "OPERATION_NOT_FOUND"
    with pytest.raises(CallError, match=r"No handler registered for operation: ns\.bare") as caught:
        asyncio.run(registry.execute("ns.bare"))
    assert caught.value.code == "OPERATION_NOT_FOUND"


def test_of_many_the_nearest_are_named() -> None:
    registry = OperationRegistry([Operation(spec(f"thing{number}"), echo) for number in range(50)])
    registry.register(spec("zebra_find"), echo)
    with pytest.raises(CallError, match=r"there are .*ns\.zebra_find") as caught:
        registry.find("ns.zebra_fnid")
    assert str(caught.value).count("ns.") == 9


def test_specs_and_handlers_are_found_listed_and_forgotten() -> None:
    registry = OperationRegistry()
    one = registry.register(spec("one"), echo)
    bare = registry.register(spec("bare"))
    assert registry.list() == [one, bare]
    assert (registry.get_spec("ns.one"), registry.get_handler("ns.one")) == (one, echo)
    assert (registry.get_spec("ns.bare"), registry.get_handler("ns.bare")) == (bare, None)
    assert (registry.get_spec("x.y"), registry.get_handler("x.y")) == (None, None)
    with pytest.raises(InvalidArgument, match="registered already"):
        registry.register(spec("one"), echo)
    registry.register(bare, echo)
    assert registry.get_handler("ns.bare") is echo
    assert (registry.unregister("ns.one"), registry.unregister("ns.one")) == (True, False)
    assert ("ns.one" in registry, "ns.bare" in registry, len(registry)) == (False, True, 1)


def test_a_subscription_is_not_executed() -> None:
    with pytest.raises(CallError, match="subscribe"):
        execute(echo, type="subscription")


@pytest.mark.parametrize(
    "wrong",
    [{"name": ""}, {"name": "x", "type": "action"}, {"name": "x", "namespace": ""}, {"name": "x", "namespace": "a b"}],
)
def test_a_spec_that_cannot_be_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidArgument):
        OperationSpec(**{"namespace": "ns", **wrong})


@pytest.mark.parametrize("schema", [pydantic.BaseModel, '{"type": "object"}', [], 5])
@pytest.mark.parametrize("name", ["input_schema", "output_schema"])
def test_what_is_no_schema_is_refused_before_anything_runs(name: str, schema: Any) -> None:
    with pytest.raises(InvalidArgument, match=rf"{name} is a JSON Schema as a dict.*model_json_schema"):
        spec(**{name: schema})


def test_scopes_alone_control_no_access() -> None:
    with pytest.raises(InvalidArgument, match=r"AccessControl\(scopes\)"):
        spec(access_control=["admin"])


@pytest.mark.parametrize(
    ("control", "scopes", "is_allowed"),
    [
        (AccessControl(), None, True),
        (AccessControl(["a"]), None, False),
        (AccessControl(["a", "b"]), ["a"], False),
        (AccessControl(["a", "b"]), ["b", "a"], True),
        (AccessControl((), ["a", "b"]), ["b"], True),
        (AccessControl((), ["a", "b"]), ["c"], False),
        (AccessControl(["a"], ["b"]), ["b"], False),
    ],
)
def test_access_is_by_scopes(control: AccessControl, scopes: Any, is_allowed: bool) -> None:
    assert control.allows(None if scopes is None else Identity("ada", scopes)) == is_allowed


def test_a_code_that_is_none_is_refused() -> None:
    assert len(CODES) == 6
    with pytest.raises(InvalidArgument, match="EXECUTION_ERROR"):
        CallError("OOPS", "x")  # type: ignore[arg-type]


def test_an_answer_is_made_to_fit_only_if_nothing_is_lost_by_it(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "forebay"):
        assert unwrap(execute(lambda *_: {"n": "7", "x": 1}, output_schema=NUMBER)) == {"n": 7}
        assert caplog.text == ""
        # Nothing is removed and nothing is invented.
        for unfit, path in (({"n": [5], "x": 1}, "'/n'"), ({"error": "the database is down"}, "''")):
            assert unwrap(execute(lambda *_, unfit=unfit: unfit, output_schema=NUMBER)) == unfit
            assert f"at {path}" in caplog.text
            caplog.clear()


def test_schemas_of_openapi_3_0_are_understood(caplog: pytest.LogCaptureFixture) -> None:
    schema = {"type": "integer", "nullable": True, "minimum": 5, "exclusiveMinimum": True}
    with caplog.at_level(logging.WARNING, "forebay"):
        assert [unwrap(execute(echo, value, input_schema=schema, output_schema=schema)) for value in (None, 6)] == [
            None,
            6,
        ]
    assert caplog.text == ""
    with pytest.raises(CallError, match="5"):
        execute(echo, 5, input_schema=schema)


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        ({"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 5, "exclusiveMinimum": True}, 6, 5),
        (
            {"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "string", "nullable": True}]},
            [None, 7],
            [7],
        ),
        ({"type": ["array", "null"], "items": [{"type": "string", "nullable": True}]}, None, "x"),
    ],
)
def test_words_of_openapi_3_0_in_an_older_draft_are_understood(schema: Any, right: Any, wrong: Any) -> None:
    assert unwrap(execute(echo, right, input_schema=schema)) == right
    with pytest.raises(CallError, match="cannot be called with this"):
        execute(echo, wrong, input_schema=schema)


def test_a_misspelt_argument_is_named_beside_the_missing_one() -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    with pytest.raises(CallError, match=r"required property; the schema has no 'nam', 'x'$") as caught:
        execute(echo, {"nam": "Ada", "x": 1}, input_schema=schema)
    assert [problem["path"] for problem in caught.value.details["problems"]] == [""]
    rules: list[dict[str, Any]] = [{"additionalProperties": True}, {"anyOf": [{"properties": {"nam": {}}}]}]
    for others in rules:
        with pytest.raises(CallError, match=r"is a required property$"):
            execute(echo, {"nam": "Ada"}, input_schema={**schema, **others})


def test_a_file_in_the_input_is_bytes_here_and_text_to_the_schema() -> None:
    schema = {"type": "object", "properties": {"file": {"type": "string"}, "n": {"type": "integer"}}}
    value = {"file": b"\xff\x00", "n": 1}
    assert unwrap(execute(echo, value, input_schema=schema)) is value
    with pytest.raises(CallError, match="/n"):
        execute(echo, {**value, "n": b"1"}, input_schema=schema)


@pytest.mark.parametrize(
    ("data", "content_type"),
    [
        (None, ""),
        ("<html>", "text/html"),
        (b"\x00", "image/png"),
        (Body(b'{"n": 1', "application/json"), "application/json"),
    ],
)
def test_an_http_body_that_is_not_json_is_not_made_to_fit(data: Any, content_type: str) -> None:
    envelope = http_envelope(data, status_code=200, headers={}, content_type=content_type)
    assert execute(lambda *_: envelope, output_schema=NUMBER) is envelope
    envelope = http_envelope({"n": "0"}, status_code=200, headers={}, content_type="application/json; charset=utf-8")
    assert unwrap(execute(lambda *_: envelope, output_schema=NUMBER)) == {"n": 0}


class Login(pydantic.BaseModel):
    x: int
    more: str = "of nobody else"


@dataclasses.dataclass
class Wrapper:
    logins: list[Login]


def test_objects_inside_of_others_are_made_to_fit_too() -> None:
    row = {"type": "object", "properties": {"x": {"type": "integer"}}}
    rows = {"type": "array", "items": row}
    for answer, schema, data in (
        ([Login(x=1)], rows, [{"x": 1}]),
        ({"r": Login(x=1)}, {"type": "object", "properties": {"r": row}}, {"r": {"x": 1}}),
        (Wrapper([Login(x=1)]), {"type": "object", "properties": {"logins": rows}}, {"logins": [{"x": 1}]}),
        ((Login(x=1),), rows, [{"x": 1}]),
    ):
        assert unwrap(execute(lambda *_, answer=answer: answer, output_schema=schema)) == data


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even that")


def test_an_error_that_says_nothing_is_still_one() -> None:
    def fail(*_: Any) -> None:
        raise UnprintableError

    with pytest.raises(CallError, match="UnprintableError"):
        execute(fail)


def test_who_calls_with_nothing_means_an_empty_object() -> None:
    assert unwrap(execute(echo, input_schema={"type": "object"})) == {}
    assert unwrap(execute(echo, input_schema={"type": ["object", "null"]})) is None


def test_what_was_not_waited_for_is_waited_for_and_what_yields_is_told() -> None:
    async def forget_await(value: Any, context: CallContext) -> Any:
        return echo(value, context)

    assert unwrap(execute(forget_await, 7)) == 7

    async def yields(*_: Any) -> AsyncIterator[int]:
        yield 1

    for handler in (yields, lambda *_: (number for number in range(3))):
        with pytest.raises(CallError, match="subscription"):
            execute(handler)


@pytest.mark.parametrize("handler", [5, lambda: 1, lambda value: value, lambda _, __, third: third])
def test_a_handler_that_cannot_be_called_is_refused(handler: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"handler\(input, context\)"):
        OperationRegistry().register(spec(), handler)
    with pytest.raises(InvalidArgument, match="OperationSpec"):
        OperationRegistry().register(echo, spec())  # type: ignore[arg-type]


def test_a_text_is_no_list_of_scopes() -> None:
    for wrong in (lambda: AccessControl("admin"), lambda: AccessControl((), "admin"), lambda: Identity("ada", "admin")):
        with pytest.raises(InvalidArgument, match="list of scopes"):
            wrong()


def test_an_object_of_which_nothing_is_named_is_not_one_of_defaults() -> None:
    price = {"type": "object", "properties": {"price": {"type": "number", "default": 0}}}
    for schema in (price, {**price, "required": ["price"]}):
        assert unwrap(execute(lambda *_: {"error": "down"}, output_schema=schema)) == {"error": "down"}
        assert unwrap(execute(lambda *_: {}, output_schema=schema)) == {"price": 0}
        assert unwrap(execute(lambda *_: {"price": 1, "x": 2}, output_schema=schema)) == {"price": 1}
