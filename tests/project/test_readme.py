"""The examples in the README do what their comments say."""

import asyncio
import json
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

import forebay
import pytest
from mcp import Client
from mcp.server import MCPServer

pytestmark = pytest.mark.slow

README = Path(__file__).resolve().parents[2] / "README.md"


def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)


def name_results(example: str, **calls: str) -> str:
    """Return the example with the results of these calls assigned to names."""
    for name, call in calls.items():
        example = example.replace(call, f"{name} = {call}")
    return example


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, _, example, _ = blocks()
    orders = [{"id": n, "total": n / 2, "note": "refund of it failed" if n % 10 == 3 else "ok"} for n in range(200_100)]
    monkeypatch.chdir(tmp_path)
    Path("orders.json").write_text(json.dumps({"orders": orders, "page": 1}), encoding="utf-8")
    names: dict[str, object] = {"Path": Path, "forebay": forebay}
    exec(name_results(example, shape="forebay.outline", page="forebay.read_items", matches="forebay.search"), names)  # noqa: S102
    assert names["shape"] == "{orders: [{id: int, total: float, note: str}] ×200100, page: int}"
    assert json.loads(names["page"]) == orders[200_000:200_050]  # type: ignore[arg-type]
    assert [match.item for match in names["matches"]] == list(range(3, 503, 10))  # type: ignore[attr-defined]


def test_the_store_keeps_what_the_example_puts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    example, _, _, _, _ = blocks()
    monkeypatch.setenv("FOREBAY_HOME", str(tmp_path / "home"))
    lines = [{"sku": "a", "price": 1, "tax": 0}]
    orders = [{"id": n, "lines": lines, "note": "refund of it failed"} for n in range(200_100)]
    names: dict[str, object] = {"tool_result": {"orders": orders}}
    path = "store.fetch(descriptor.output_handle, path"
    exec(name_results(example, inner=path, found="store.search", data="store.open"), names)  # noqa: S102
    assert json.loads(names["page"].content) == orders[200_000:200_050]  # type: ignore[attr-defined]
    assert json.loads(names["inner"].content) == [{"sku": "a", "price": 1}]  # type: ignore[attr-defined]
    assert names["found"].matches[0]["item"] == 0  # type: ignore[attr-defined]
    assert json.loads(names["data"]) == {"orders": orders}  # type: ignore[arg-type]
    names["store"].close()  # type: ignore[attr-defined]


def test_the_recipe_unwraps_what_a_tool_returned() -> None:
    *_, recipe = blocks()
    payload = json.dumps({"name": 'é\n"', "items": [1, 2]})
    response = json.dumps({"content": [{"type": "text", "text": payload}]}).encode()
    names: dict[str, object] = {"forebay": forebay, "json": json, "response": response}
    exec(recipe, names)  # noqa: S102 - our own example
    assert names["text"] == payload


def test_install_limits_the_results_of_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, line, _, _, _ = blocks()
    monkeypatch.setenv("FOREBAY_HOME", str(tmp_path / "home"))
    server = MCPServer("shop")

    @server.tool(structured_output=False)
    def large() -> str:
        return "0123456789" * 5000

    exec(line, {"server": server})  # noqa: S102 - our own example

    async def call() -> str:
        async with Client(server) as client:
            return (await client.call_tool("large", {})).content[0].text  # type: ignore[union-attr]

    assert json.loads(asyncio.run(call()))["size_bytes"] == 50_000


SERVER = """
from mcp.server import MCPServer
server = MCPServer("crm")
@server.tool()
def find(name: str) -> dict[str, str]:
    return {"found": name}
server.run()
"""


def test_tools_and_apis_become_operations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, example, _, _ = blocks()
    monkeypatch.chdir(tmp_path)
    Path("server.py").write_text(SERVER, encoding="utf-8")
    Path("openapi.yaml").write_text("openapi: 3.1.0\ninfo: {title: t, version: '1'}\npaths: {}", encoding="utf-8")
    example = example.replace('["my-server"]', repr([sys.executable, "server.py"]))
    names: dict[str, Any] = {"Path": Path}
    exec("async def main():\n" + textwrap.indent(example + "\nreturn envelope", "    "), names)  # noqa: S102
    envelope = asyncio.run(names["main"]())
    assert (envelope.data, envelope.meta.source) == ({"found": "Ada"}, "mcp")
