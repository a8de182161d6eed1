"""A list of many tools is looked through once, not once for each of them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from forebay.config.options import Settings
from forebay.config.upstreams import UpstreamConfig
from forebay.hub.run import HubServer
from forebay.operations.mcp.server import OperationTools
from mcp import Client
from serve_harness import command_of
from wires import LEGACY, MODERN

pytestmark = pytest.mark.slow


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows whenever all operations are gone through."""
    counts: list[int] = []
    shown_to = OperationTools._visible_tools

    def counting(self: OperationTools, identity: Any) -> Any:
        counts.append(1)
        return shown_to(self, identity)

    monkeypatch.setattr(OperationTools, "_visible_tools", counting)
    return counts


def _listed(folder: Path, era: str, target: UpstreamConfig) -> list[str]:
    async def listed() -> list[str]:
        settings = Settings(store=(folder / "store").as_uri(), upstreams={target.name: target})
        async with Client(HubServer(settings).server, mode=era) as client:
            return [tool.name for tool in (await client.list_tools()).tools]

    return asyncio.run(listed())


@pytest.mark.parametrize("era", [LEGACY, MODERN])
def test_a_list_takes_no_more_turns_for_more_tools(
    era: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: list[int]
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    turns = []
    for count in (1, 40):
        (tmp_path / f"module_of_{count}.py").write_text("\n".join(f"def f{n}() -> None: ..." for n in range(count)))
        names = _listed(tmp_path, era, UpstreamConfig(name="many", python=f"module_of_{count}"))
        assert set(names) >= {f"f{n}" for n in range(count)}
        turns.append(len(counted))
        counted.clear()
    assert turns[0] == turns[1]


def test_all_are_found_as_each_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    differences: list[object] = []
    find_all = OperationTools.find_all

    def compared(self: OperationTools, ctx: Any, names: Any) -> Any:
        names = [*names]
        # Whatever is no tool, and a name that one had before another came.
        self._assigned_ids["as_it_was"] = self._assigned_ids["rows"]
        asked = [*names, "as_it_was", "none"]
        one_by_one = {name: spec for name in asked if (spec := self.find(ctx, name)) is not None}
        differences.append(one_by_one == find_all(self, ctx, asked) and "as_it_was" in one_by_one)
        return find_all(self, ctx, names)

    monkeypatch.setattr(OperationTools, "find_all", compared)
    command = command_of("mcp_server.py", "stdio", "null")
    target = UpstreamConfig(name="one", command=command["command"], args=tuple(command["args"]))
    assert "rows" in _listed(tmp_path, LEGACY, target)
    assert set(differences) == {True}
