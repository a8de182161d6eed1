"""The Pydantic AI recipe: an agent gets a descriptor, queries it and answers. A function stands for the model."""

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from forebay.adapters.agent import AgentOutputs
from pydantic_ai import Agent, AgentRunResult, RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionDef, FunctionModel
from recipes import pydantic_ai_agent

pytestmark = pytest.mark.slow

QUESTION = "Which country has the most failed orders of 2026?"
SQL = "SELECT country, count(*) FROM items WHERE status = 'failed' GROUP BY 1 ORDER BY 2 DESC LIMIT 1"


@pytest.fixture
def outputs(tmp_path: Path) -> Iterator[AgentOutputs]:
    with AgentOutputs(tmp_path.as_uri(), sweep_interval=0) as outputs:
        yield outputs


def read_answers(messages: list[ModelMessage]) -> list[Any]:
    """Return what the model sees of the tools' results."""
    parts = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    return [json.loads(part.model_response_str()) for part in parts]


def call(tool: str, **arguments: Any) -> ModelResponse:
    return ModelResponse(parts=[ToolCallPart(tool, arguments)])


def say(text: str) -> ModelResponse:
    return ModelResponse(parts=[TextPart(text)])


def run(agent: Agent[Any, str], respond: FunctionDef, **options: Any) -> AgentRunResult[str]:
    """Ask the question. `run_sync` would leave its event loop open."""
    return asyncio.run(agent.run(QUESTION, model=FunctionModel(respond), **options))


def test_the_agent_queries_a_large_result(outputs: AgentOutputs) -> None:
    infos: list[AgentInfo] = []

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        infos.append(info)
        match read_answers(messages):
            case []:
                return call("list_orders", year=2026)
            case [{"output_handle": handle}]:
                return call("output_query", output_handle=handle, sql=SQL)
            case [_, {"rows": [[country, count]]}]:
                return say(f"{country}, {count}")
            case other:
                return say(f"not understood: {other}")

    result = run(pydantic_ai_agent.make_agent(outputs), respond)

    orders = pydantic_ai_agent.list_orders(2026)
    (expected,) = Counter(order["country"] for order in orders if order["status"] == "failed").most_common(1)
    assert result.output == f"{expected[0]}, {expected[1]}"
    assert len(result.all_messages_json()) < 12_000
    assert len(infos) == 3
    tools = {tool.name: tool for tool in infos[0].function_tools}
    assert [*tools] == ["list_orders", "output_fetch", "output_search", "output_query"]
    assert tools["list_orders"].description == "List all orders of a year."
    assert tools["list_orders"].parameters_json_schema["required"] == ["year"]
    assert tools["output_query"].parameters_json_schema["required"] == ["output_handle", "sql"]
    assert outputs.instructions in (infos[0].instructions or "")
    handle = read_answers(result.all_messages())[0]["output_handle"]
    with outputs.store.open(handle) as stored:
        assert stored.read() == orjson.dumps(orders)


def test_the_agent_reads_errors_and_goes_on(outputs: AgentOutputs) -> None:
    def respond(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        match read_answers(messages):
            case []:
                return call("list_orders", year=2026)
            case [{"output_handle": handle}]:
                return call("output_query", output_handle=handle, sql="SELECT state FROM items")
            case [{"output_handle": handle}, {"error": {"code": "query_failed"}}]:
                return call("output_fetch", output_handle=handle, offset=19_999)
            case [_, _, {"content": [order]}]:
                return say(order["id"])
            case other:
                return say(f"not understood: {other}")

    result = run(pydantic_ai_agent.make_agent(outputs), respond)
    assert result.output == "2026-19999"


def test_tools_with_a_context_and_async_tools_are_wrapped(outputs: AgentOutputs) -> None:
    agent = Agent(deps_type=str, instructions=outputs.instructions)

    @agent.tool
    @outputs.wrap
    async def repeat(ctx: RunContext[str], times: int) -> list[str]:
        """Repeat the word of the user."""
        return [ctx.deps] * times

    def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        (tool,) = info.function_tools
        assert tool.parameters_json_schema["required"] == ["times"]
        match read_answers(messages):
            case []:
                return call("repeat", times=2)
            case [["word", "word"]]:
                return call("repeat", times=20_000)
            case [_, {"item_count": count}]:
                return say(str(count))
            case other:
                return say(f"not understood: {other}")

    assert run(agent, respond, deps="word").output == "20000"


def test_the_script_runs(tmp_path: Path) -> None:
    """The model `test` of Pydantic AI calls every tool once, with values of the right types."""
    script = [sys.executable, str(Path(pydantic_ai_agent.__file__)), "test", QUESTION]
    environment = {**os.environ, "FOREBAY_HOME": str(tmp_path)}
    done = subprocess.run(script, capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr
    answers = {tool: json.loads(answer) for tool, answer in json.loads(done.stdout).items()}
    assert answers["list_orders"]["item_count"] == 20_000
    readers = ("output_fetch", "output_search", "output_query")
    assert {answers[tool]["error"]["code"] for tool in readers} == {"output_handle_not_found"}


def test_the_script_says_how_it_is_used() -> None:
    script = [sys.executable, str(Path(pydantic_ai_agent.__file__))]
    done = subprocess.run(script, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("usage: python pydantic_ai_agent.py MODEL QUESTION")
