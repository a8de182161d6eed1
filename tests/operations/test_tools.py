"""Operations as tools with wire keys, without an SDK."""

import asyncio
import subprocess
import sys
from typing import Any

import orjson
import pytest
from forebay.operations import AccessControl, CallContext, Identity, Operation, OperationRegistry, OperationSpec
from forebay.operations.tools import call_operation, define_tool

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
NUMBERS = {"type": "array", "items": {"type": "integer"}}


def call(spec: OperationSpec, handler: Any, arguments: dict[str, Any], **options: Any) -> Any:
    return asyncio.run(call_operation(OperationRegistry([Operation(spec, handler)]), spec, arguments, **options))


def spec(**more: Any) -> OperationSpec:
    return OperationSpec(namespace="ns", name="op", **more)


def test_a_definition_has_wire_keys() -> None:
    assert define_tool("n_op", spec()) == {
        "name": "n_op",
        "inputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True},
    }
    tool = define_tool("op", spec(type="mutation", description="Puts.", input_schema=NUMBERS, output_schema=NUMBER))
    assert [*tool] == ["name", "description", "inputSchema", "outputSchema", "annotations"]
    assert tool["annotations"] == {"readOnlyHint": False}
    assert tool["inputSchema"]["required"] == ["input"]


@pytest.mark.parametrize("is_legacy", [True, False])
def test_what_is_no_object_is_wrapped_for_earlier_versions(is_legacy: bool) -> None:
    described = spec(input_schema=NUMBERS, output_schema=NUMBERS)
    schema = define_tool("op", described, is_legacy=is_legacy)["outputSchema"]
    assert ("result" in schema["anyOf"][0].get("properties", {})) is is_legacy
    result = call(described, lambda value, _: value, {"input": [1]}, is_legacy=is_legacy)
    assert result == {
        "content": [{"type": "text", "text": "[1]"}],
        "isError": False,
        "structuredContent": {"result": [1]} if is_legacy else [1],
    }


def test_errors_name_the_tool_that_was_called() -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("no")

    described = spec(input_schema=NUMBER)
    messages = [
        orjson.loads(call(described, fail, arguments, tool="ns_op")["content"][0]["text"])["error"]["message"]
        for arguments in ({}, {"n": 1})
    ]
    assert messages == ['ns_op cannot be called with this: the input: "n" is a required property', "ns_op failed: no"]


def test_a_handler_learns_who_calls_it_and_until_when() -> None:
    contexts: list[CallContext] = []
    identity = Identity("ada", ["root"])
    described = spec(access_control=AccessControl(["root"]))

    def handle(_: Any, context: CallContext) -> str:
        contexts.append(context)
        return "done"

    result = call(described, handle, {}, identity=identity, request_id=7, timeout=60)
    assert result == {"content": [{"type": "text", "text": "done"}], "isError": False}
    assert (contexts[0].request_id, contexts[0].identity) == ("7", identity)
    assert contexts[0].deadline is not None


def test_a_caller_without_access_does_not_reach_the_handler() -> None:
    result = call(spec(access_control=AccessControl(["root"])), pytest.fail, {}, identity=Identity("eve"))
    assert result["isError"]
    assert orjson.loads(result["content"][0]["text"])["error"]["code"] == "OPERATION_NOT_FOUND"


def test_a_call_that_takes_too_long_is_an_error_result() -> None:
    async def wait(*_: Any) -> None:
        await asyncio.Event().wait()

    result = call(spec(), wait, {}, timeout=0.01)
    assert result["isError"]
    assert orjson.loads(result["content"][0]["text"])["error"]["code"] == "TIMEOUT"


@pytest.mark.slow
def test_tools_need_no_sdk() -> None:
    modules = ["tools", "tool_names", "registry", "spec", "responses", "sources"]
    heavy = ["mcp", "mcp_types", "pydantic", "httpx2", "anyio", "yaml"]
    script = "\n".join(f"import forebay.operations.{module}" for module in modules)
    script += f"\nimport sys; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
