"""Operations of configured APIs and modules are loaded in the background, and again if they fail."""

import asyncio
import json
from pathlib import Path

import pytest
from forebay.config.upstreams import UpstreamConfig
from forebay.operations import Operation
from forebay.operations import sources as sources_module
from forebay.operations.sources import OperationSources
from waiting import wait_until_async

DOCUMENT = {
    "openapi": "3.1.0",
    "servers": [{"url": "http://127.0.0.1:9"}],
    "paths": {"/a": {"get": {"operationId": "get_a", "responses": {}}}},
}


def test_sources_are_loaded_and_those_that_fail_are_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources_module, "_MIN_DELAY_SECONDS", 0.01)
    (tmp_path / "api.json").write_text(json.dumps(DOCUMENT))
    configs = [
        UpstreamConfig(name="api", openapi=str(tmp_path / "api.json")),
        UpstreamConfig(name="module", python="module_that_comes_late", folder=str(tmp_path)),
        UpstreamConfig(name="server", command="no-such-command"),
    ]
    added: list[list[str]] = []

    def on_added(operations: list[Operation]) -> None:
        added.append([operation.spec.id for operation in operations])

    async def run() -> None:
        sources = OperationSources(configs, on_added)
        await sources.start(60)
        assert (added, [*sources.unloaded]) == ([["api.get_a"]], ["module"])
        (tmp_path / "module_that_comes_late.py").write_text("def f() -> int:\n    return 7\n")
        await wait_until_async(lambda: len(added) == 2)
        assert added[1] == ["module.f"]
        assert not sources.unloaded
        assert (await sources.registry.execute("module.f", {})).data == 7
        await sources.close()

    asyncio.run(run())


def test_a_document_that_cannot_be_read_is_named_with_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)

    async def run() -> None:
        sources = OperationSources([UpstreamConfig(name="shop", openapi="nope.yaml")], lambda _: None)
        await sources.start(60)
        await sources.close()

    asyncio.run(run())
    assert f"openapi: the document {tmp_path / 'nope.yaml'} cannot be read: No such file or directory" in caplog.text
