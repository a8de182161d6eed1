"""An agent of LangChain whose tool returns more than a context holds. There is no MCP server.

    pip install 'forebay[sql]' langchain langchain-anthropic
    python langchain_agent.py anthropic:claude-sonnet-4-5 'Which country has the most failed orders of 2026?'

The tool returns 20,000 orders. The agent gets a descriptor of at most 4 KB in their place, and counts in SQL.
"""

import sys
from typing import Any

from forebay.adapters.agent import AgentOutputs
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import StructuredTool

COUNTRIES = ("DE", "FR", "IT", "PL")


def list_orders(year: int) -> list[dict[str, Any]]:
    """List all orders of a year."""
    # Your own API or database goes here.
    return [
        {"id": f"{year}-{number}", "country": COUNTRIES[number % 5 % 4], "status": "paid" if number % 9 else "failed"}
        for number in range(20_000)
    ]


def make_agent(model: str | BaseChatModel, outputs: AgentOutputs) -> Any:
    readers = [
        StructuredTool.from_function(
            tool.call, name=tool.name, description=tool.description, args_schema=tool.input_schema
        )
        for tool in outputs.tools
    ]
    return create_agent(model, [outputs.wrap(list_orders), *readers], system_prompt=outputs.instructions)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python langchain_agent.py MODEL QUESTION, with a model such as anthropic:claude-sonnet-4-5")
    model, question = sys.argv[1:]
    with AgentOutputs() as outputs:
        answer = make_agent(model, outputs).invoke({"messages": [{"role": "user", "content": question}]})
        print(answer["messages"][-1].content)
