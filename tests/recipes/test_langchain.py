"""The LangChain recipe: an agent gets a descriptor, queries it and answers. A script stands for the model."""

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from forebay.adapters.agent import AgentOutputs
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool
from recipes import langchain_agent

pytestmark = pytest.mark.slow

QUESTION = {"messages": [{"role": "user", "content": "Which country has the most failed orders of 2026?"}]}
SQL = "SELECT country, count(*) FROM items WHERE status = 'failed' GROUP BY 1 ORDER BY 2 DESC LIMIT 1"


class ScriptedModel(GenericFakeChatModel):
    """A chat model that plays a script, which sees what the tools answered."""

    seen: list[BaseMessage] = []  # noqa: RUF012 - pydantic copies it
    definitions: list[dict[str, Any]] = []  # noqa: RUF012

    def __init__(self, script: Callable[["ScriptedModel"], Iterator[AIMessage]]) -> None:
        super().__init__(messages=iter(()))
        self.messages = script(self)

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> "ScriptedModel":
        self.definitions = [convert_to_openai_tool(tool)["function"] for tool in tools]
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        self.seen = messages
        return super()._generate(messages, *args, **kwargs)

    def read_answer(self) -> Any:
        """Return what the last tool answered."""
        assert isinstance(self.seen[-1], ToolMessage)
        return json.loads(str(self.seen[-1].content))


@pytest.fixture
def outputs(tmp_path: Path) -> Iterator[AgentOutputs]:
    with AgentOutputs(tmp_path.as_uri(), sweep_interval=0) as outputs:
        yield outputs


def call(tool: str, **arguments: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": tool, "args": arguments, "id": "call"}])


def play(model: ScriptedModel) -> Iterator[AIMessage]:
    """Query the orders, after one query that fails."""
    yield call("list_orders", year=2026)
    handle = model.read_answer()["output_handle"]
    yield call("output_query", output_handle=handle, sql="SELECT state FROM items")
    assert model.read_answer()["error"]["code"] == "query_failed"
    yield call("output_query", output_handle=handle, sql=SQL)
    ((country, count),) = model.read_answer()["rows"]
    yield AIMessage(f"{country}, {count}")


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_the_agent_queries_a_large_result(outputs: AgentOutputs, is_async: bool) -> None:
    model = ScriptedModel(play)
    agent = langchain_agent.make_agent(model, outputs)
    messages = (asyncio.run(agent.ainvoke(QUESTION)) if is_async else agent.invoke(QUESTION))["messages"]

    orders = langchain_agent.list_orders(2026)
    (expected,) = Counter(order["country"] for order in orders if order["status"] == "failed").most_common(1)
    assert messages[-1].content == f"{expected[0]}, {expected[1]}"
    assert sum(len(str(message.content)) for message in messages) < 10_000
    tools = {definition["name"]: definition for definition in model.definitions}
    assert [*tools] == ["list_orders", "output_fetch", "output_search", "output_query"]
    assert tools["list_orders"]["description"] == "List all orders of a year."
    for tool in outputs.tools:
        assert tools[tool.name]["description"] == tool.description
        assert tools[tool.name]["parameters"]["properties"].keys() == tool.input_schema["properties"].keys()
    assert model.seen[0].content == outputs.instructions
    handle = next(json.loads(message.content) for message in messages if message.type == "tool")["output_handle"]
    with outputs.store.open(handle) as stored:
        assert stored.read() == orjson.dumps(orders)


def test_the_script_says_how_it_is_used() -> None:
    script = [sys.executable, str(Path(langchain_agent.__file__))]
    done = subprocess.run(script, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("usage: python langchain_agent.py MODEL QUESTION")
