"""forebay in a server of the mcp SDK whose tools run as tasks: results come later, in both protocol eras."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from forebay.adapters import sdk_internals
from forebay.adapters.mcp import Forebay
from mcp import Client
from mcp.server import Server
from mcp.shared.exceptions import MCPError
from mcp_harness import serve
from mcp_types import ListToolsResult, RequestParams, Tool
from wires import LEGACY, MODERN

TASK = {"status": "completed", "createdAt": "2026-11-19T12:00:00Z", "lastUpdatedAt": "2026-11-19T12:00:00Z"}
REQUEST_IDS = itertools.count(1000)


class TaskParams(RequestParams):
    """Params of the requests about a task."""

    task_id: str


def make_server() -> Server[Any]:
    """Return a server whose tools run as tasks, with ids that end with the size of the result."""

    async def list_tools(ctx: Any, params: Any) -> ListToolsResult:  # noqa: ARG001
        return ListToolsResult(tools=[Tool(name=name, input_schema={"type": "object"}) for name in ("text", "log")])

    async def call_tool(ctx: Any, params: Any) -> Any:  # noqa: ARG001
        task_id = f"{params.name}-{params.arguments['size']}"
        return {"resultType": "task", "taskId": task_id, "ttl": 60_000, **TASK, "status": "working"}

    def make_result(params: TaskParams) -> dict[str, Any]:
        name, _, size = params.task_id.partition("-")
        if name == "failing":
            raise MCPError(code=-32001, message="no", data={"why": "w" * int(size)})
        return {"content": [{"type": "text", "text": "é" * int(size)}], "isError": False}

    async def get_result(ctx: Any, params: TaskParams) -> Any:  # noqa: ARG001
        return make_result(params)

    async def get_task(ctx: Any, params: TaskParams) -> Any:
        task = {"taskId": params.task_id, "ttl": 60_000, **TASK}
        if params.task_id.startswith("waiting"):
            return {**task, "status": "working"}
        return task if ctx.protocol_version == LEGACY else {**task, "result": make_result(params)}

    server: Server[Any] = Server("tasks", on_list_tools=list_tools, on_call_tool=call_tool)
    server.add_request_handler("tasks/result", TaskParams, get_result)
    server.add_request_handler("tasks/get", TaskParams, get_task)
    return server


async def request(client: Client, method: str, **params: Any) -> dict[str, Any]:
    return await sdk_internals.send_request(client.session, method, params, next(REQUEST_IDS), 30)


async def read_result(client: Client, era: str, task_id: str) -> dict[str, Any]:
    if era == LEGACY:
        return await request(client, "tasks/result", taskId=task_id)
    state = await request(client, "tasks/get", taskId=task_id)
    assert (state["taskId"], state["status"]) == (task_id, "completed")
    return dict(state["result"])


async def start(client: Client, tool: str, size: int) -> str:
    return str((await request(client, "tools/call", name=tool, arguments={"size": size}))["taskId"])


def parse_text(result: dict[str, Any]) -> Any:
    return json.loads(result["content"][0]["text"])


def test_a_large_result_of_a_task_becomes_a_handle(era: str, tmp_path: Path) -> None:
    async def test(client: Client, middleware: Forebay) -> None:
        descriptor = parse_text(await read_result(client, era, "text-50000"))
        with middleware.store.open(descriptor["output_handle"]) as stored:
            assert stored.read().decode() == "é" * 50_000
        assert (await read_result(client, era, "text-100"))["content"][0]["text"] == "é" * 100

    serve(test, tmp_path / "store", era, make_server(), output_mode="auto")


def test_the_mode_of_the_tool_holds_for_its_tasks(tmp_path: Path) -> None:
    # Servers of this SDK can create tasks only since protocol version 2026-07-28.
    async def test(client: Client, middleware: Forebay) -> None:
        descriptor = parse_text(await read_result(client, MODERN, await start(client, "text", 5000)))
        assert middleware.store.stat(descriptor["output_handle"]).source_tool == "text"
        log = await read_result(client, MODERN, await start(client, "log", 5000))
        assert log["content"][0]["text"] == "é" * 5000
        # The mode of the server holds for a task that no client created here.
        assert "output_handle" in parse_text(await read_result(client, MODERN, "log-5001"))

    serve(test, tmp_path / "store", MODERN, make_server(), output_mode="handle", tools={"log": "inline"})


def test_a_task_without_a_result_yet_passes_through(era: str, tmp_path: Path) -> None:
    async def test(client: Client, middleware: Forebay) -> None:
        assert (await request(client, "tasks/get", taskId="waiting"))["status"] == "working"
        assert list(middleware.store.list()) == []

    serve(test, tmp_path / "store", era, make_server(), output_mode="handle")


def test_a_large_error_of_a_task_is_stored(era: str, tmp_path: Path) -> None:
    async def test(client: Client, middleware: Forebay) -> None:
        with pytest.raises(MCPError) as caught:
            await read_result(client, era, "failing-90000")
        assert caught.value.code == -32001
        assert middleware.store.get(caught.value.data["output_handle"], "/message") == b'"no"'

    serve(test, tmp_path / "store", era, make_server(), output_mode="auto")
