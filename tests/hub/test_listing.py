"""Listing many tools scans the operations once, not once per tool."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forebay.config.upstreams import UpstreamConfig
from forebay.hub.hub import Hub
from forebay.hub.routes import Routes
from forebay.operations.spec import OperationSpec
from forebay.wire.messages import parse
from hub_client import make_settings
from wires import MODERN_META

pytestmark = pytest.mark.slow


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Gets an entry for every scan of all operations."""
    calls: list[int] = []
    visible_operations = Routes._visible_operations

    def count_calls(self: Routes) -> Iterator[OperationSpec]:
        calls.append(1)
        return visible_operations(self)

    monkeypatch.setattr(Routes, "_visible_operations", count_calls)
    return calls


class NoReply:
    def send(self, raw: bytes, method: str) -> None:
        raise AssertionError((raw, method))


def _list_tools(folder: Path, target: UpstreamConfig) -> list[str]:
    async def list_names() -> list[str]:
        hub = Hub(make_settings(folder, {target.name: target}))
        await hub.start()
        try:
            message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": MODERN_META}}
            raw = json.dumps(message).encode()
            parsed: Any = parse(raw)
            response = await hub.handle_stateless(None, parsed, raw, NoReply())
            assert isinstance(response, bytes | bytearray)
            return [tool["name"] for tool in json.loads(response)["result"]["tools"]]
        finally:
            await hub.close()

    return asyncio.run(list_names())


def test_listing_scans_the_operations_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scans: list[int]) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    scan_counts = []
    for count in (1, 40):
        (tmp_path / f"module_of_{count}.py").write_text("\n".join(f"def f{n}() -> None: ..." for n in range(count)))
        names = _list_tools(tmp_path, UpstreamConfig(name="many", python=f"module_of_{count}"))
        assert set(names) >= {f"f{n}" for n in range(count)}
        scan_counts.append(len(scans))
        scans.clear()
    assert scan_counts[0] == scan_counts[1]
