"""An agent of Pydantic AI whose tool returns more than a context holds. There is no MCP server.

    pip install 'forebay[sql]' 'pydantic-ai-slim[anthropic]'
    python pydantic_ai_agent.py anthropic:claude-sonnet-4-5 'Which country has the most failed orders of 2026?'

The tool returns 20,000 orders. The agent gets a descriptor of at most 4 KB in their place, and counts in SQL.
"""

import sys
from typing import Any

from forebay.adapters.agent import AgentOutputs
from pydantic_ai import Agent, Tool

COUNTRIES = ("DE", "FR", "IT", "PL")


def list_orders(year: int) -> list[dict[str, Any]]:
    """List all orders of a year."""
    # Your own API or database goes here.
    return [
        {"id": f"{year}-{number}", "country": COUNTRIES[number % 5 % 4], "status": "paid" if number % 9 else "failed"}
        for number in range(20_000)
    ]


def make_agent(outputs: AgentOutputs) -> Agent:
    readers = [Tool.from_schema(tool.call, tool.name, tool.description, tool.input_schema) for tool in outputs.tools]
    return Agent(tools=[outputs.wrap(list_orders), *readers], instructions=outputs.instructions)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python pydantic_ai_agent.py MODEL QUESTION, with a model such as anthropic:claude-sonnet-4-5")
    model, question = sys.argv[1:]
    with AgentOutputs() as outputs:
        print(make_agent(outputs).run_sync(question, model=model).output)
