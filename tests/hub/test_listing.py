"""Listing many tools scans the operations once, not once per tool."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from forebay.config.options import Settings
from forebay.config.upstreams import UpstreamConfig
from forebay.hub.run import HubServer
from forebay.operations.mcp.server import OperationTools
from mcp import Client
from serve_harness import upstream_command
from wires import LEGACY, MODERN

pytestmark = pytest.mark.slow


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Gets an entry for every scan of all operations."""
    calls: list[int] = []
    visible_tools = OperationTools._list_visible_tools

    def count_calls(self: OperationTools, identity: Any) -> Any:
        calls.append(1)
        return visible_tools(self, identity)

    monkeypatch.setattr(OperationTools, "_list_visible_tools", count_calls)
    return calls


def _list_tools(folder: Path, era: str, target: UpstreamConfig) -> list[str]:
    async def list_names() -> list[str]:
        settings = Settings(store=(folder / "store").as_uri(), upstreams={target.name: target})
        async with Client(HubServer(settings).server, mode=era) as client:
            return [tool.name for tool in (await client.list_tools()).tools]

    return asyncio.run(list_names())


@pytest.mark.parametrize("era", [LEGACY, MODERN])
def test_listing_scans_the_operations_once(
    era: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scans: list[int]
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    scan_counts = []
    for count in (1, 40):
        (tmp_path / f"module_of_{count}.py").write_text("\n".join(f"def f{n}() -> None: ..." for n in range(count)))
        names = _list_tools(tmp_path, era, UpstreamConfig(name="many", python=f"module_of_{count}"))
        assert set(names) >= {f"f{n}" for n in range(count)}
        scan_counts.append(len(scans))
        scans.clear()
    assert scan_counts[0] == scan_counts[1]


def test_find_all_equals_find_for_each_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    comparisons: list[object] = []
    find_all = OperationTools.find_all

    def compare(self: OperationTools, ctx: Any, names: Any) -> Any:
        names = [*names]
        # Include an unknown name and a tool's previous name.
        self._names.origins["as_it_was"] = self._names.origins["rows"]
        requested = [*names, "as_it_was", "none"]
        one_by_one = {name: spec for name in requested if (spec := self.find(ctx, name)) is not None}
        comparisons.append(one_by_one == find_all(self, ctx, requested) and "as_it_was" in one_by_one)
        return find_all(self, ctx, names)

    monkeypatch.setattr(OperationTools, "find_all", compare)
    command = upstream_command("mcp_server.py", "stdio", "null")
    target = UpstreamConfig(name="one", command=command["command"], args=tuple(command["args"]))
    assert "rows" in _list_tools(tmp_path, LEGACY, target)
    assert set(comparisons) == {True}
