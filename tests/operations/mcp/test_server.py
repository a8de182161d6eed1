"""Operations of a registry as tools of an MCP server."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import orjson
import pytest
from forebay import InvalidArgument
from forebay.adapters.mcp import Forebay
from forebay.envelope import Body, http_envelope, mcp_envelope, unwrap
from forebay.operations import (
    AccessControl,
    CallContext,
    CallError,
    Identity,
    Operation,
    OperationRegistry,
    OperationSpec,
)
from forebay.operations.mcp.operations import from_mcp
from forebay.operations.mcp.server import serve_operations
from jsonschema import Draft202012Validator
from mcp import Client
from mcp.server import MCPServer, Server
from mcp.shared.exceptions import MCPError
from mcp_harness import get_text, parse_text
from mcp_types import Tool
from wires import LEGACY, MODERN

NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
LIST = {"type": "array", "items": {"$ref": "#/$defs/row"}, "$defs": {"row": NUMBER}}
TEXT = {"type": "text", "text": "t"}
STAMP = {"io.modelcontextprotocol/serverInfo": {"name": "other", "version": "1"}}

Test = Callable[[Client], Coroutine[Any, Any, None]]


def serve(registry: OperationRegistry, test: Test, era: str, **options: Any) -> None:
    async def run() -> None:
        async with asyncio.timeout(60), Client(serve_operations(registry, **options), mode=era) as client:
            await test(client)

    asyncio.run(run())


def spec(name: str, namespace: str = "ns", **more: Any) -> OperationSpec:
    return OperationSpec(namespace=namespace, name=name, **more)


def over_http(body: Body) -> Any:
    return http_envelope(body, status_code=200, headers={}, content_type=body.content_type)


def registry_of(**handlers: Any) -> OperationRegistry:
    return OperationRegistry(Operation(spec(name), handler) for name, handler in handlers.items())


def test_operations_are_tools(era: str) -> None:
    registry = OperationRegistry()
    registry.register(spec("get", type="query", description="Gets.", input_schema=NUMBER, output_schema=NUMBER), echo)
    registry.register(spec("put", type="mutation", output_schema=LIST), lambda *_: [{"n": 1}])
    registry.register(spec("watch", type="subscription"), echo)
    # A subscription is not a tool, so it does not clash with the name of one.
    registry.register(spec("put", "other", type="subscription"), echo)

    async def test(client: Client) -> None:
        get, put = (await client.list_tools()).tools
        assert (get.name, get.description, get.input_schema) == ("get", "Gets.", NUMBER)
        assert get.output_schema
        assert (get.output_schema["type"], get.output_schema["anyOf"][0]) == ("object", NUMBER)
        assert [is_query(get), is_query(put)] == [True, False]
        assert put.input_schema == {"type": "object"}
        # The listed schema still describes the results.
        assert put.output_schema
        for invalid in ([{"n": "x"}], {"result": [{"n": "x"}]}, {}, {"n": 1}, 7):
            assert not Draft202012Validator(put.output_schema).is_valid(invalid)
        # The client validates results by the listed schema, references included.
        got = await client.call_tool("get", {"n": 7})
        assert (got.structured_content, parse_text(got)) == ({"n": 7}, {"n": 7})
        done = await client.call_tool("put", {})
        assert done.structured_content == ([{"n": 1}] if era == MODERN else {"result": [{"n": 1}]})
        wrong = await client.call_tool("get", {"n": "x"})
        assert wrong.is_error
        assert parse_text(wrong)["error"]["code"] == "VALIDATION_ERROR"
        with pytest.raises(MCPError, match="Unknown tool: watch; tools/list has all"):
            await client.call_tool("watch", {})
        with pytest.raises(MCPError, match=r"Unknown tool: gett; did you mean get\? tools/list has all"):
            await client.call_tool("gett", {})

    serve(registry, test, era)


def is_query(tool: Tool) -> bool | None:
    return tool.annotations.read_only_hint if tool.annotations else None


async def echo(value: Any, context: CallContext) -> Any:
    del context
    return value


def test_what_is_no_object_is_an_argument_of_its_own(era: str) -> None:
    numbers = {"type": "array", "items": {"$ref": "#/$defs/n"}, "$defs": {"n": {"type": "number"}}}
    schemas: dict[str, Any] = {
        "total": numbers,
        "maybe": {"type": ["array", "null"]},
        "any": {"type": ["array", "object"]},
    }
    registry = OperationRegistry(Operation(spec(name, input_schema=schema), echo) for name, schema in schemas.items())

    async def test(client: Client) -> None:
        listed = {tool.name: Draft202012Validator(tool.input_schema) for tool in (await client.list_tools()).tools}
        for name, value, taken in (
            ("total", {"input": [1, 2.5]}, "[1,2.5]"),
            ("maybe", {"input": None}, "null"),
            ("any", {"input": 1}, '{"input":1}'),
        ):
            assert listed[name].is_valid(value)
            assert get_text(await client.call_tool(name, value)) == taken
        for wrong in ({}, {"input": ["x"]}):
            assert not listed["total"].is_valid(wrong)
            assert parse_text(await client.call_tool("total", wrong))["error"]["code"] == "VALIDATION_ERROR"

    serve(registry, test, era)


def test_what_goes_wrong_is_a_result_without_a_trace(era: str) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("the disk is on fire")

    def late(*_: Any) -> None:
        raise CallError("TIMEOUT", "too late", {"after": 3})

    async def test(client: Client) -> None:
        for name, code in (("fail", "EXECUTION_ERROR"), ("late", "TIMEOUT"), ("odd", "EXECUTION_ERROR")):
            result = await client.call_tool(name, {})
            assert result.is_error
            assert parse_text(result)["error"]["code"] == code
            assert "Traceback" not in get_text(result)
        assert "the disk is on fire" in get_text(await client.call_tool("fail", {}))
        assert parse_text(await client.call_tool("late", {}))["error"]["details"] == {"after": 3}

    serve(registry_of(fail=fail, late=late, odd=lambda *_: {"a": object()}), test, era)


def test_what_someone_may_not_call_they_are_not_shown(era: str) -> None:
    registry = registry_of(open=echo)
    scopes: list[str] = []

    def secret(_: Any, context: CallContext) -> str:
        assert context.identity
        return context.identity.id

    registry.register(spec("secret", access_control=AccessControl(["root"])), secret)

    async def test(client: Client) -> None:
        async def names() -> list[str]:
            return [tool.name for tool in (await client.list_tools(cache_mode="bypass")).tools]

        assert await names() == ["open"]
        # The same error as for an unknown tool, under any of its names.
        for name, unknown in (("secret", "public"), ("ns.secret", "ns.public")):
            errors = [await refusal(client, tool) for tool in (name, unknown)]
            assert errors[0].replace(name, unknown) == errors[1]
        scopes.append("root")
        assert await names() == ["open", "secret"]
        assert get_text(await client.call_tool("secret", {})) == "ada"

    serve(registry, test, era, identity=lambda _: Identity("ada", scopes))


async def refusal(client: Client, name: str) -> str:
    with pytest.raises(MCPError, match=f"Unknown tool: {name}") as caught:
        await client.call_tool(name, {})
    return caught.value.message.partition(";")[0]


def test_a_name_is_never_given_to_another(era: str) -> None:
    registry = OperationRegistry([Operation(spec("find", "crm"), lambda *_: "crm")])

    async def test(client: Client) -> None:
        async def names() -> list[str]:
            return [tool.name for tool in (await client.list_tools(cache_mode="bypass")).tools]

        assert await names() == ["find"]
        registry.register(spec("find", "shop"), lambda *_: "shop")
        assert await names() == ["crm_find", "shop_find"]
        # Names of an earlier listing still call the same operations.
        assert get_text(await client.call_tool("find", {})) == "crm"
        registry.unregister("crm.find")
        assert await names() == ["shop_find"]
        await refusal(client, "find")
        await refusal(client, "crm_find")
        registry.register(spec("find", "crm"), lambda *_: "crm again")
        registry.unregister("shop.find")
        assert await names() == ["find"]

    serve(registry, test, era)


def test_a_tool_is_called_by_the_name_that_is_listed_and_not_by_an_id(era: str) -> None:
    registry = OperationRegistry([Operation(spec("find", "crm"), lambda *_: "crm")])

    async def test(client: Client) -> None:
        await refusal(client, "crm.find")
        # A tool named like the id of another does not take over its calls.
        registry.register(spec("crm.find", "shop"), lambda *_: "shop")
        assert [tool.name for tool in (await client.list_tools(cache_mode="bypass")).tools] == ["find", "crm.find"]
        assert [get_text(await client.call_tool(name, {})) for name in ("find", "crm.find")] == ["crm", "shop"]
        await refusal(client, "shop.crm.find")

    serve(registry, test, era)


DEEP = json.loads("[" * 300 + "]" * 300)

NOTHING_FITS: dict[str, tuple[Any, Any]] = {
    "null": ({"anyOf": [NUMBER, {"type": "null"}]}, None),
    "no_null": (NUMBER, None),
    "bytes": (NUMBER, b"\x00"),
    "wrong": (NUMBER, {"n": "seven"}),
    "wrong_list": (LIST, [{"n": "seven"}]),
    "empty": (NUMBER, http_envelope(None, status_code=204, headers={}, content_type="")),
    "html": (NUMBER, http_envelope("<p>", status_code=200, headers={}, content_type="text/html")),
    "page": (LIST, over_http(Body(b"<p>", "text/html"))),
    "blocks": (NUMBER, mcp_envelope(None, content=[TEXT])),
    "never": (False, 5),
    "nonsense": ({"type": "strnig"}, "t"),
    "elsewhere": ({"$ref": "https://example.com/schema"}, "t"),
    "nullable": ({"type": "string", "nullable": True}, None),
    "deep": ({"type": "array"}, Body(b"[" * 300 + b"]" * 300, "application/json")),
    "deep_without_a_schema": (None, mcp_envelope(None, content=[TEXT], structured_content={"a": DEEP})),
    "half_a_text": (None, "\ud83d"),
    "half_a_character": ({"type": "object"}, {"a": "\ud83d", "\ud83d": 1}),
    "half_a_character_over_http": ({"type": "array"}, over_http(Body(rb'["\ud83d"]', "application/json"))),
    "itself": ({"type": "object", "properties": {"next": {"$ref": "#"}}}, {"next": {"next": 7}}),
}


@pytest.mark.parametrize("case", NOTHING_FITS)
def test_no_answer_makes_a_client_raise(case: str, era: str) -> None:
    schema, data = NOTHING_FITS[case]
    registry = OperationRegistry([Operation(spec("op", output_schema=schema), lambda *_: data)])

    async def test(client: Client) -> None:
        await client.list_tools()
        result = await client.call_tool("op", {})
        assert not result.is_error
        assert result.content
        # In memory nothing is serialized; over a wire, unserializable data would end the server.
        assert result.model_dump_json()

    serve(registry, test, era)


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        (None, mcp_envelope(None, content=[{"type": "text", "text": "\ud83d"}])),
        (None, mcp_envelope(None, content=[TEXT], meta={"a": "\ud83d"})),
        (None, mcp_envelope({}, content=[TEXT], structured_content={"a": b"\xff"})),
        (None, mcp_envelope({}, content=[TEXT], structured_content={"a": object()})),
        ({"type": "array"}, Body(b"[" * 1000 + b"]" * 1000, "application/json")),
    ],
)
def test_a_result_that_cannot_be_written_is_an_error_and_ends_nothing(schema: Any, data: Any, era: str) -> None:
    registry = OperationRegistry([Operation(spec("op", output_schema=schema), lambda *_: data)])

    async def test(client: Client) -> None:
        assert parse_text(await client.call_tool("op", {}))["error"]["code"] == "EXECUTION_ERROR"

    serve(registry, test, era)


class _Exhausted:
    def model_dump(self, **_: Any) -> Any:
        return next(iter(()))


@pytest.mark.parametrize("count", [0, 30_000])
def test_an_object_that_cannot_be_told_leaves_nobody_waiting(count: int, era: str) -> None:
    registry = registry_of(op=lambda *_: [_Exhausted(), *[1] * count])

    async def test(client: Client) -> None:
        with pytest.raises(MCPError):
            await asyncio.wait_for(client.call_tool("op", {}), 10)

    serve(registry, test, era)


def test_half_a_character_in_what_is_listed_ends_nothing(era: str) -> None:
    half = {"type": "object", "properties": {"a": {"const": 2**70, "description": "cut \ud83d"}}}
    described = spec("op", description="cut \ud83d", input_schema=half, output_schema=half)
    registry = OperationRegistry([Operation(described, lambda *_: {})])

    async def test(client: Client) -> None:
        (tool,) = (await client.list_tools()).tools
        assert tool.description == "cut \ufffd"
        assert tool.input_schema["properties"]["a"] == {"const": 2**70, "description": "cut \ufffd"}
        # In memory nothing is serialized; over a wire, unserializable data would end the server.
        assert tool.model_dump_json()

    serve(registry, test, era)


def test_a_tool_that_only_says_a_text_can_be_served_again(era: str) -> None:
    inner = OperationRegistry([Operation(spec("op", output_schema=NUMBER), lambda *_: "none today")])

    async def run() -> None:
        outer = OperationRegistry()
        async with asyncio.timeout(60), from_mcp(serve_operations(inner), mode=era, namespace="inner") as imported:
            imported.register_into(outer)
            async with Client(serve_operations(outer), mode=era) as client:
                await client.list_tools()
                assert get_text(await client.call_tool("op", {})) == "none today"

    asyncio.run(run())


def test_large_bodies_become_handles_without_being_parsed(
    era: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"id": number, "name": "é" * 40} for number in range(50_000)]
    body = Body(json.dumps(rows, ensure_ascii=False, indent=1).encode(), "application/json")
    assert len(body) > 5_000_000
    loads = json.loads

    def refuse(data: Any, *args: Any, **kwargs: Any) -> Any:
        assert len(data) < 100_000, "someone parses the body"
        return loads(data, *args, **kwargs)

    gate = Forebay(tmp_path.as_uri(), output_mode="auto", sweep_interval=0)

    async def test(client: Client) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(orjson, "loads", refuse)
            patch.setattr(json, "loads", refuse)
            result = await client.call_tool("get", {})
        handle = parse_text(result)["output_handle"]
        assert gate.store.open(handle).read() == body.content
        small = await client.call_tool("small", {})
        assert get_text(small) == "[1]"

    registry = registry_of(get=lambda *_: over_http(body), small=lambda *_: over_http(Body(b"[1]", "application/json")))
    serve(registry, test, era, forebay=gate)
    gate.close()


def test_servers_behind_servers_lose_nothing(era: str) -> None:
    inner = registry_of(
        number=lambda *_: mcp_envelope(None, content=[TEXT], meta={**STAMP, "own": 1}), fail=fail_as_tool
    )

    async def run() -> None:
        outer = OperationRegistry()
        async with asyncio.timeout(60), from_mcp(serve_operations(inner), mode=era, namespace="inner") as imported:
            imported.register_into(outer)
            assert [spec_.type for spec_ in outer] == ["query", "query"]
            async with Client(serve_operations(outer, Server("outer")), mode=era) as client:
                result = await client.call_tool("number", {})
                assert get_text(result) == "t"
                meta = dict(result.meta or {})
                stamp = meta.pop("io.modelcontextprotocol/serverInfo", None)
                assert meta == {"own": 1}
                assert stamp is None if era == LEGACY else stamp["name"] == "outer"
                assert (await client.call_tool("fail", {})).is_error
            envelope = await outer.execute("inner.number", {})
            assert unwrap(envelope) == [TEXT]

    asyncio.run(run())


def fail_as_tool(*_: Any) -> Any:
    return mcp_envelope(None, content=[TEXT], is_error=True)


def test_a_server_that_has_tools_is_refused() -> None:
    for wrong in (MCPServer("x"), MCPServer("x")._lowlevel_server, 7):
        with pytest.raises(InvalidArgument, match="low-level"):
            serve_operations(OperationRegistry(), wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="takes an OperationRegistry"):
        serve_operations({})  # type: ignore[arg-type]
    server = Server[Any]("mine")
    assert serve_operations(OperationRegistry(), server) is server


def test_what_cannot_be_structured_is_stored_as_it_came(era: str, tmp_path: Path) -> None:
    content = b"name,caf\xc3\xa9\r\n" * 20_000
    gate = Forebay(tmp_path.as_uri(), output_mode="auto", sweep_interval=0)

    async def test(client: Client) -> None:
        await client.list_tools()
        handle = parse_text(await client.call_tool("table", {}))["output_handle"]
        assert gate.store.open(handle).read() == content

    registry = OperationRegistry()
    registry.register(
        OperationSpec(namespace="ns", name="table", output_schema={"type": "object", "required": ["rows"]}),
        lambda *_: over_http(Body(content, "text/csv")),
    )
    serve(registry, test, era, forebay=gate)
    gate.close()
