"""Clients of two SDKs with a server behind the gateway: every feature works as without the gateway."""

import json
import warnings
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import fastmcp
import mcp_types as types
import pytest
from fastmcp.client.transports import StdioTransport
from gateway_harness import connect, script, wrap
from mcp import Client, StdioServerParameters
from mcp.client.subscriptions import ToolsListChanged
from mcp_harness import get_text, parse_text, read_all_items
from pydantic import FileUrl
from waiting import wait_until_async
from wires import LEGACY, MODERN

pytestmark = pytest.mark.slow

SERVER = script("conformance_stdio_server.py")
PATIENCE = 60
ROOT = "file:///data"


class Callbacks:
    """Client callbacks that answer requests and record notifications."""

    def __init__(self) -> None:
        self.logged: list[Any] = []
        self.notified: list[str] = []
        self.progress: list[tuple[float, float | None, str | None]] = []

    async def sample(self, context: Any, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:  # noqa: ARG002
        asked = params.messages[0].content
        assert isinstance(asked, types.TextContent)
        answer = types.TextContent(type="text", text=f"a model on {asked.text!r}")
        return types.CreateMessageResult(role="assistant", content=answer, model="made up")

    async def elicit(self, context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:  # noqa: ARG002
        assert isinstance(params, types.ElicitRequestFormParams)
        name = next(iter(params.requested_schema["properties"]))
        return types.ElicitResult(action="accept", content={name: "Jo"})

    async def list_roots(self, context: Any) -> types.ListRootsResult:  # noqa: ARG002
        return types.ListRootsResult(roots=[types.Root(uri=FileUrl(ROOT))])

    async def log(self, params: types.LoggingMessageNotificationParams) -> None:
        self.logged.append(params.data)

    async def notify(self, message: Any) -> None:
        self.notified.append(getattr(message, "method", repr(message)))

    async def report(self, progress: float, total: float | None, message: str | None) -> None:
        self.progress.append((progress, total, message))


Test = Callable[[Client, Callbacks], Awaitable[None]]


def talk(test: Test, store: Path, era: str, *options: str) -> None:
    command, *arguments = wrap(store, *options, server=SERVER)
    callbacks = Callbacks()

    async def run() -> None:
        with anyio.fail_after(PATIENCE):
            async with Client(
                StdioServerParameters(command=command, args=arguments),
                mode=era,
                sampling_callback=callbacks.sample,
                elicitation_callback=callbacks.elicit,
                list_roots_callback=callbacks.list_roots,
                logging_callback=callbacks.log,
                log_level="debug",
                message_handler=callbacks.notify,
            ) as client:
                await test(client, callbacks)

    anyio.run(run)


@pytest.fixture(autouse=True)
def _allow_deprecated() -> Iterator[None]:
    """Ignore warnings about deprecated features that clients still use."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning, module="mcp")
        yield


def test_results_match_the_listed_schema(tmp_path: Path, era: str) -> None:
    async def test(client: Client, _: Callbacks) -> None:
        await client.list_tools()
        small = await client.call_tool("rows", {"count": 2})
        assert small.structured_content == {"result": [{"id": 0, "name": "naïve 0"}, {"id": 1, "name": "naïve 1"}]}
        large = await client.call_tool("rows", {"count": 5000})
        handle = parse_text(large)["output_handle"]
        assert large.structured_content == parse_text(large)
        items = [item for page in await read_all_items(client, handle) for item in page["content"]]
        assert [item["id"] for item in items] == list(range(5000))
        found = parse_text(await client.call_tool("output_search", {"output_handle": handle, "pattern": '"id":4321,'}))
        assert [match["item"] for match in found["matches"]] == [4321]

    talk(test, tmp_path, era)


def test_server_requests_reach_the_client(tmp_path: Path, era: str) -> None:
    async def legacy(client: Client, _: Callbacks) -> None:
        sampled = await client.call_tool("test_sampling", {"prompt": "tea"})
        assert get_text(sampled) == "LLM response: a model on 'tea'"
        elicited = await client.call_tool("test_elicitation", {"message": "who?"})
        assert get_text(elicited) == 'User response: action=accept, content={"response":"Jo"}'
        assert (await client.call_tool("roots")).structured_content == {"result": [ROOT]}

    async def modern(client: Client, _: Callbacks) -> None:
        said = [
            get_text(await client.call_tool(f"test_input_required_result_{what}"))
            for what in ("elicitation", "sampling", "list_roots", "multiple_inputs", "multi_round")
        ]
        assert said == ["Hello, Jo!", "a model on 'What is the capital of France?'", ROOT, "done", "done"]
        prompt = await client.get_prompt("test_input_required_result_prompt")
        assert "Use this context: Jo" in str(prompt.messages)

    talk(legacy if era == LEGACY else modern, tmp_path, era)


def test_progress_and_logs_reach_the_client(tmp_path: Path, era: str) -> None:
    async def test(client: Client, callbacks: Callbacks) -> None:
        await client.call_tool("test_tool_with_progress", progress_callback=callbacks.report)
        await client.call_tool("test_tool_with_logging")
        # Notifications and responses are handled concurrently.
        await wait_until_async(lambda: len(callbacks.logged) >= 3 and len(callbacks.progress) >= 3)
        assert callbacks.progress == [(n, 100, f"Completed step {n} of 100") for n in (0, 50, 100)]
        assert callbacks.logged == ["Tool execution started", "Tool processing data", "Tool execution completed"]

    talk(test, tmp_path, era)


def test_a_cancelled_call_ends_at_the_server(tmp_path: Path, era: str) -> None:
    async def test(client: Client, _: Callbacks) -> None:
        with anyio.CancelScope() as scope:

            async def cancel(progress: float, total: float | None, message: str | None) -> None:  # noqa: ARG001
                scope.cancel()

            await client.call_tool("waits", progress_callback=cancel)
        assert scope.cancelled_caught

        async def is_cancelled() -> bool:
            return bool((await client.call_tool("finished")).structured_content == {"result": ["cancelled"]})

        await wait_until_async(is_cancelled)

    talk(test, tmp_path, era)


def test_changes_of_the_tool_list_reach_the_client(tmp_path: Path, era: str) -> None:
    async def names(client: Client) -> set[str]:
        return {tool.name for tool in (await client.list_tools(cache_mode="bypass")).tools}

    async def legacy(client: Client, callbacks: Callbacks) -> None:
        assert "grown" not in await names(client)
        await client.call_tool("grows")
        await wait_until_async(lambda: "notifications/tools/list_changed" in callbacks.notified)
        assert {"grown", "output_fetch"} <= await names(client)

    async def modern(client: Client, _: Callbacks) -> None:
        assert "grown" not in await names(client)
        async with client.listen(tools_list_changed=True) as changes:
            await client.call_tool("grows")
            assert await anext(aiter(changes)) == ToolsListChanged()
            assert {"grown", "output_fetch"} <= await names(client)
        assert get_text(await client.call_tool("grown")) == "grown"

    talk(legacy if era == LEGACY else modern, tmp_path, era)


def test_resources_and_prompts_are_forwarded(tmp_path: Path, era: str) -> None:
    async def test(client: Client, _: Callbacks) -> None:
        uris = {str(resource.uri) for resource in (await client.list_resources()).resources}
        assert {"test://static-text", "test://static-binary"} <= uris
        (content,) = (await client.read_resource("test://static-text")).contents
        assert isinstance(content, types.TextResourceContents)
        assert content.text == "This is the content of the static text resource."
        templates = [template.uri_template for template in (await client.list_resource_templates()).resource_templates]
        assert templates == ["test://template/{id}/data", "forebay://output/{output_handle}{?offset,limit}"]
        handle = parse_text(await client.call_tool("rows", {"count": 5000}))["output_handle"]
        (page,) = (await client.read_resource(f"forebay://output/{handle}?offset=4999")).contents
        assert isinstance(page, types.TextResourceContents)
        assert json.loads(page.text)["content"] == [{"id": 4999, "name": "naïve 4999"}]
        assert "test_simple_prompt" in {prompt.name for prompt in (await client.list_prompts()).prompts}
        prompt = await client.get_prompt("test_prompt_with_arguments", {"arg1": "é", "arg2": "\\"})
        assert "arg1='é', arg2='\\'" in str(getattr(prompt.messages[0].content, "text", None))
        ref = types.PromptReference(type="ref/prompt", name="test_prompt_with_arguments")
        completed = await client.complete(ref, {"name": "arg1", "value": "par"})
        assert completed.completion.values == ["paris", "park", "party"]

    talk(test, tmp_path, era)


def test_the_client_of_fastmcp(tmp_path: Path) -> None:
    command, *arguments = wrap(tmp_path, server=SERVER)
    progress: list[float] = []
    logged: list[Any] = []

    async def sample(messages: list[types.SamplingMessage], *_: Any) -> str:
        return f"a model on {getattr(messages[0].content, 'text', None)!r}"

    async def elicit(_message: str, response_type: Any, *_: Any) -> Any:
        return response_type(response="Jo")

    async def log(message: Any) -> None:
        logged.append(message.data)

    async def report(done: float, _total: float | None, _message: str | None) -> None:
        progress.append(done)

    async def run() -> None:
        async with fastmcp.Client(
            StdioTransport(command, arguments),
            sampling_handler=sample,
            elicitation_handler=elicit,
            log_handler=log,
            progress_handler=report,
            roots=[ROOT],
            mode="legacy",
        ) as client:
            with anyio.fail_after(PATIENCE):
                assert {"rows", "output_fetch"} <= {tool.name for tool in await client.list_tools()}
                sampled = await client.call_tool("test_sampling", {"prompt": "tea"})
                assert get_text(sampled) == "LLM response: a model on 'tea'"
                assert "Jo" in get_text(await client.call_tool("test_elicitation", {"message": "who?"}))
                assert (await client.call_tool("roots")).structured_content == {"result": [ROOT]}
                await client.call_tool("test_tool_with_progress")
                await client.call_tool("test_tool_with_logging")
                handle = parse_text(await client.call_tool("rows", {"count": 5000}))["output_handle"]
                items = [item for page in await read_all_items(client, handle) for item in page["content"]]
                assert len(items) == 5000
                await wait_until_async(lambda: len(progress) >= 3 and len(logged) >= 3)
                assert progress == [0, 50, 100]

    anyio.run(run)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_the_client_of_fastmcp_parses_results_of_a_fastmcp_server(
    mode: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    command, *arguments = wrap(tmp_path, server=[*script("fastmcp_server.py"), "stdio", "null"])

    async def run() -> None:
        async with fastmcp.Client(StdioTransport(command, arguments), mode=mode) as client:
            assert (await client.call_tool("text")).data == "xxx"
            assert [row["id"] for row in (await client.call_tool("rows")).data] == [0, 1, 2]
            assert (await client.call_tool("report")).data.title == "t"
            large = await client.call_tool("rows", {"count": 5000})
            assert large.data.output_handle == parse_text(large)["output_handle"]

    anyio.run(run)
    # The client only logs this and continues without structured data.
    assert "Error parsing structured content" not in caplog.text


def test_a_subscription_has_no_timeout(tmp_path: Path) -> None:
    """A subscription outlives the call timeout."""

    async def test(client: Client, _: Callbacks) -> None:
        async with client.listen(tools_list_changed=True) as changes:
            assert parse_text(await client.call_tool("waits"))["error"]["code"] == "upstream_timeout"
            await client.call_tool("grows")
            assert await anext(aiter(changes)) == ToolsListChanged()

    talk(test, tmp_path, MODERN, "--call-timeout-seconds", "1")


def test_a_subscription_does_not_block_shutdown(tmp_path: Path) -> None:
    """Shutdown waits for calls in flight, but not for subscriptions."""
    with connect(*wrap(tmp_path, "--shutdown-grace-seconds", "600", server=SERVER), handshake=False) as client:
        meta = {"protocolVersion": MODERN, "clientInfo": {"name": "wire", "version": "1"}, "clientCapabilities": {}}
        named = {f"io.modelcontextprotocol/{key}": value for key, value in meta.items()}
        client.send_request("subscriptions/listen", {"notifications": {"toolsListChanged": True}, "_meta": named})
        assert json.loads(client.read_line())["method"] == "notifications/subscriptions/acknowledged"
        assert client.close() == 0
