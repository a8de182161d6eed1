"""Tools of MCP servers as operations: listing, and the envelopes of their results."""

import asyncio
import json
import logging
import subprocess
import sys
from typing import Any

import changing_server
import pytest
from forebay import InvalidArgument
from forebay.envelope import MCPResponseMeta, unwrap
from forebay.operations import CallContext, CallError, Operation, OperationRegistry, OperationSpec, to_envelope
from forebay.operations.mcp import operations as mcp_operations
from forebay.operations.mcp.operations import MCPOperations, from_mcp, result_to_envelope
from forebay.operations.registry import run_handler
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.server import Server
from mcp_server import make_server
from mcp_types import ElicitResult
from raw_server import NUMBER
from upstreams import TRANSPORTS, open_target, run_with_tools
from waiting import wait_until_async
from wires import LEGACY, MODERN

TEXT = {"type": "text", "text": "t"}
HOLOGRAM = {"type": "hologram", "shape": [1, 2]}
BIG = '{"n": 1180591620717411303424}'
STAMP = {"io.modelcontextprotocol/serverInfo": {"name": "raw server (tests)", "version": "1"}, "own": 1}


@pytest.fixture(params=TRANSPORTS)
def raw(request: pytest.FixtureRequest) -> Any:
    with open_target("raw_server.py", request.param) as target:
        yield target


@pytest.fixture(params=["memory", *TRANSPORTS])
def changing(request: pytest.FixtureRequest) -> Any:
    if request.param == "memory":
        yield changing_server.make_server()
        return
    with open_target("changing_server.py", request.param) as target:
        yield target


def meta_of(envelope: Any) -> MCPResponseMeta:
    assert isinstance(envelope.meta, MCPResponseMeta)
    return envelope.meta


@pytest.mark.slow
def test_all_pages_of_tools_become_operations(raw: Any, era: str, caplog: pytest.LogCaptureFixture) -> None:
    async def test(registry: OperationRegistry, server: MCPOperations) -> None:
        assert server.namespace == "raw_server_tests_"
        names = ["says", "says_a_number", "refuses", "waits", "told", "dies", "writes"]
        assert [spec.name for spec in registry] == names
        assert [operation.spec for operation in server.operations] == registry.list()
        says, number = registry.list()[:2]
        assert (says.type, number.type) == ("query", "mutation")
        assert says.description == "What it is told to say."
        assert (says.input_schema, says.output_schema) == ({"type": "object"}, None)
        assert number.output_schema == NUMBER

    with caplog.at_level(logging.WARNING, "forebay"):
        run_with_tools(raw, test, mode=era)
    assert "is left out" in caplog.text


@pytest.mark.slow
def test_results_become_envelopes(raw: Any, era: str) -> None:
    async def test(registry: OperationRegistry, _: MCPOperations) -> None:
        async def says(tool: str = "says", **result: Any) -> Any:
            return await registry.execute(f"up.{tool}", {"result": {"resultType": "complete", **result}})

        structured = await says(content=[TEXT], structuredContent={"a": 1}, _meta=STAMP)
        assert unwrap(structured) == {"a": 1}
        assert meta_of(structured) == MCPResponseMeta(False, [TEXT], {"a": 1}, STAMP)  # type: ignore[list-item]

        blocks = await says(content=[TEXT, HOLOGRAM, {**TEXT, "new": 1}])
        assert unwrap(blocks) is meta_of(blocks).content
        assert [block["type"] for block in unwrap(blocks)] == ["text", "text", "text"]
        assert json.loads(unwrap(blocks)[1]["text"]) == HOLOGRAM
        assert unwrap(blocks)[2] == {**TEXT, "new": 1}
        assert meta_of(blocks).structured_content is None

        for tool in ("says", "says_a_number"):
            # Error results are never parsed, JSON or not.
            why = {"type": "text", "text": '{"n": 1}'}
            failed = await says(tool, content=[why], isError=True)
            assert failed.is_error
            assert unwrap(failed) == [why]
            failed = await says(tool, content=[], structuredContent={"why": "x"}, isError=True)
            assert failed.is_error
            assert unwrap(failed) == {"why": "x"}

    run_with_tools(raw, test, mode=era, namespace="up")


def test_what_is_not_an_object_is_data_too() -> None:
    async def test(registry: OperationRegistry, _: MCPOperations) -> None:
        envelope = await registry.execute("up.says", {"result": {"content": [], "structuredContent": [1, 2]}})
        assert unwrap(envelope) == [1, 2]

    with open_target("raw_server.py", "stdio") as target:
        run_with_tools(target, test, mode=MODERN, namespace="up")


@pytest.mark.parametrize(
    ("tool", "blocks", "parse_json", "data"),
    [
        ("says_a_number", [{"type": "text", "text": BIG}], True, {"n": 2**70}),
        ("says_a_number", [{"type": "text", "text": BIG}], False, None),
        ("says_a_number", [{"type": "text", "text": BIG}, TEXT], True, None),
        ("says_a_number", [{"type": "text", "text": "{"}], True, None),
        ("says_a_number", [], True, None),
        ("says", [{"type": "text", "text": BIG}], True, None),
    ],
)
def test_a_text_is_parsed_where_a_schema_asks_for_it(tool: str, blocks: Any, parse_json: bool, data: Any) -> None:
    async def test(registry: OperationRegistry, _: MCPOperations) -> None:
        envelope = await registry.execute(f"up.{tool}", {"result": {"content": blocks}})
        assert unwrap(envelope) == (blocks if data is None else data)
        assert meta_of(envelope).content == blocks

    with open_target("raw_server.py", "stdio") as target:
        run_with_tools(target, test, mode=LEGACY, namespace="up", parse_json=parse_json)


def test_a_text_is_not_parsed_where_nothing_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(_: bytes) -> None:
        raise AssertionError("this must not be parsed")

    monkeypatch.setattr(mcp_operations, "parse", never)
    block = {"type": "text", "text": "[1]"}
    for result, schema in (
        ({"content": [block]}, None),
        ({"content": [block]}, {}),
        ({"content": [block], "structuredContent": {"n": 1}}, NUMBER),
        ({"content": [block], "isError": True}, NUMBER),
    ):
        spec = OperationSpec(namespace="up", name="says", output_schema=schema)
        envelope = to_envelope(result_to_envelope(result, spec, parse_json=True), spec)
        assert unwrap(envelope) == result.get("structuredContent", [block])


@pytest.mark.slow
def test_what_does_not_fit_the_schema_is_told_and_returned(
    raw: Any, era: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(registry: OperationRegistry, _: MCPOperations) -> None:
        wrong = {"content": [], "structuredContent": {"n": "x"}}
        with caplog.at_level(logging.WARNING, "forebay"):
            envelope = await registry.execute("up.says_a_number", {"result": wrong})
        assert meta_of(envelope).structured_content == {"n": "x"}
        assert "up.says_a_number" in caplog.text

    run_with_tools(raw, test, mode=era, namespace="up")


@pytest.mark.slow
def test_changes_of_the_list_are_followed(changing: Any, era: str) -> None:
    async def test(registry: OperationRegistry, server: MCPOperations) -> None:
        registry.register(OperationSpec(namespace="mine", name="op"), lambda *_: None)
        text = registry.get_handler("changing.text")
        await registry.execute("changing.add", {"name": "new"})
        await wait_until_async(lambda: "changing.new" in registry)
        assert unwrap(await registry.execute("changing.new", {})) == [{"type": "text", "text": "new"}]
        await registry.execute("changing.remove", {"name": "new"})
        await wait_until_async(lambda: "changing.new" not in registry)
        # Unchanged tools keep their operation objects.
        assert registry.get_handler("changing.text") is text
        assert "mine.op" in registry
        await server.close()
        assert [spec.id for spec in registry] == ["mine.op"]

    run_with_tools(changing, test, mode=era)


def test_an_id_that_is_taken_later_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async def test(registry: OperationRegistry, server: MCPOperations) -> None:
        mine = registry.register(OperationSpec(namespace="changing", name="new"), lambda *_: None)
        await registry.execute("changing.add", {"name": "new"})
        await wait_until_async(lambda: "registered already" in caplog.text)
        assert registry.get_spec("changing.new") is mine
        await server.close()
        assert registry.list() == [mine]

    with caplog.at_level(logging.WARNING, "forebay"):
        run_with_tools(changing_server.make_server(), test)


@pytest.mark.slow
def test_megabytes_come_in_one_event(era: str) -> None:
    async def test(registry: OperationRegistry, _: MCPOperations) -> None:
        envelope = await registry.execute("changing.text", {"size": 5_000_000})
        assert unwrap(envelope) == [{"type": "text", "text": "é" * 5_000_000}]

    with open_target("changing_server.py", "http") as target:
        run_with_tools(target, test, mode=era)
        run_with_tools(Client(target, mode=era), test)


def test_a_client_that_is_connected_stays_its_owners(era: str) -> None:
    async def check() -> None:
        registry = OperationRegistry()
        messages: list[Any] = []

        async def on_message(message: Any) -> None:
            messages.append(message)

        async with Client(changing_server.make_server(), mode=era, message_handler=on_message) as client:
            async with from_mcp(client, namespace="up") as server:
                server.register_into(registry)
                await registry.execute("up.add", {"name": "new"})
                await wait_until_async(lambda: "up.new" in registry)
                # The handler of the client still gets notifications; since 2026-07-28 only subscribers get them.
                await wait_until_async(lambda: bool(messages) or era == MODERN)
            assert len(registry) == 0
            assert (await client.list_tools()).tools
            late = await from_mcp(client, namespace="up").connect()
            late.register_into(registry)
        with pytest.raises(CallError, match="connect another client"):
            await registry.execute("up.text", {"size": 1})
        await late.close()

    asyncio.run(asyncio.wait_for(check(), 60))


@pytest.mark.slow
def test_a_tool_may_ask_back_whoever_can_be_asked() -> None:
    async def answer(context: Any, params: Any) -> ElicitResult:
        del context
        assert params.message == "Who?"
        return ElicitResult(action="accept", content={"name": "Ada"})

    async def can_be_asked(registry: OperationRegistry, _: MCPOperations) -> None:
        envelope = await registry.execute("changing.ask", {})
        assert unwrap(envelope)[0]["text"] == "asked: {'name': 'Ada'}"

    async def cannot(registry: OperationRegistry, _: MCPOperations) -> None:
        with pytest.raises(CallError) as caught:
            await registry.execute("changing.ask", {})
        assert caught.value.code == "EXECUTION_ERROR"

    with open_target("changing_server.py", "stdio") as target:
        parameters = StdioServerParameters(command=target[0], args=target[1:])
        run_with_tools(Client(parameters, mode=MODERN, elicitation_callback=answer), can_be_asked)
        run_with_tools(parameters, cannot, mode=MODERN)


@pytest.mark.slow
def test_targets_of_every_kind_are_servers() -> None:
    command = [sys.executable, changing_server.__file__, "stdio"]
    parameters = StdioServerParameters(command=command[0], args=command[1:])
    targets: list[Any] = [
        changing_server.make_server(),
        changing_server.make_server()._lowlevel_server,
        tuple(command),
        parameters,
        stdio_client(parameters),
        lambda: stdio_client(parameters),
        Client(parameters),
    ]

    async def test(registry: OperationRegistry, _: MCPOperations) -> None:
        assert "changing.text" in registry

    for target in targets:
        run_with_tools(target, test)


@pytest.mark.parametrize("wrong", [7, None, [], [1], {"a": 1}])
def test_what_is_no_server_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match="takes a URL, a command"):
        from_mcp(wrong)


def test_a_namespace_that_is_taken_is_refused_whole() -> None:
    async def test(_: OperationRegistry, server: MCPOperations) -> None:
        other = OperationRegistry([Operation(OperationSpec(namespace="tests", name="text"), lambda *_: None)])
        with pytest.raises(InvalidArgument, match=r"tests\.text is registered already.*another namespace"):
            server.register_into(other)
        assert len(other) == 1

    run_with_tools(make_server(), test)


@pytest.mark.parametrize(
    ("name", "namespace"), [("../a b/ü", "a_b/_"), ("", "mcp"), ("ümlaut", "_mlaut"), ("n" * 200, "n" * 128)]
)
@pytest.mark.parametrize("mode", [LEGACY, "auto"])
def test_a_servers_name_is_made_fit(name: str, namespace: str, mode: str) -> None:
    async def test(registry: OperationRegistry, server: MCPOperations) -> None:
        assert (server.namespace, len(registry)) == (namespace, 0)

    # A server without tools answers that the method is unknown.
    run_with_tools(Server(name), test, mode=mode)


@pytest.mark.parametrize("wrong", [[1], "a", {"a": "\ud800"}, {"a": float("nan")}, {"a": object()}])
def test_arguments_that_cannot_be_sent_are_refused(wrong: Any) -> None:
    async def test(registry: OperationRegistry, server: MCPOperations) -> None:
        rows = server.operations[0]
        with pytest.raises(CallError, match=r"tests\.rows takes") as caught:
            await run_handler(rows, wrong, CallContext())
        assert caught.value.code == "VALIDATION_ERROR"
        assert unwrap(await registry.execute("tests.rows", {})) == unwrap(await run_handler(rows, None, CallContext()))

    run_with_tools(make_server(), test, mode=LEGACY)


def test_operations_do_not_need_the_mcp_package() -> None:
    script = (
        "import sys, forebay.operations, forebay.operations.responses; "
        "print([name for name in ('mcp', 'mcp_types', 'pydantic', 'httpx2') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
