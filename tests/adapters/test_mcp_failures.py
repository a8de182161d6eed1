"""forebay in a server of the mcp SDK: full stores, redactions and bugs of our own."""

from pathlib import Path
from typing import Any

import pytest
from forebay.adapters.mcp import Forebay
from forebay.adapters.sdk_internals import send_request
from mcp import Client
from mcp.server import MCPServer
from mcp.shared.exceptions import MCPError
from mcp_harness import get_text, parse_text, serve
from mcp_types import INVALID_PARAMS


def test_what_cannot_be_stored_says_so_beside_its_start(era: str, tmp_path: Path) -> None:
    async def test(client: Client, middleware: Forebay) -> None:  # noqa: ARG001
        result = await client.call_tool("text", {"size": 50_000, "of": "é"})
        assert result.is_error
        assert parse_text(result)["error"]["code"] == "store_full"
        assert parse_text(result)["preview"].startswith("ééé")
        assert parse_text(result)["note"].startswith("the tool has run")
        assert len(get_text(result)) < 4096

    serve(test, tmp_path / "store", era, output_mode="auto", quota_bytes=10)


def test_what_cannot_be_redacted_shows_nothing(era: str, tmp_path: Path) -> None:
    def fail_to_redact(data: bytes) -> bytes:
        raise ValueError(data)

    async def test(client: Client, middleware: Forebay) -> None:  # noqa: ARG001
        result = await client.call_tool("text", {"size": 50_000, "of": "secret"})
        assert parse_text(result)["error"]["code"] == "redaction_failed"
        assert "secret" not in get_text(result)

    serve(test, tmp_path / "store", era, output_mode="auto", redact=fail_to_redact)


def test_what_is_redacted_is_neither_stored_nor_shown(era: str, tmp_path: Path) -> None:
    async def test(client: Client, middleware: Forebay) -> None:
        result = await client.call_tool("text", {"size": 50_000, "of": "secret"})
        assert "secret" not in get_text(result)
        with middleware.store.open(parse_text(result)["output_handle"]) as file:
            assert b"secret" not in file.read()

    serve(test, tmp_path / "store", era, output_mode="auto", redact=lambda data: data.replace(b"secret", b"------"))


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"quota_bytes": 10}, {}])
def test_what_was_to_be_redacted_is_never_shown(
    options: dict[str, Any], era: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither when the store is full nor when our code raises."""

    def fail_with_bug(*_args: object, **_kwargs: object) -> None:
        raise ZeroDivisionError

    async def test(client: Client, middleware: Forebay) -> None:
        if not options:
            monkeypatch.setattr(middleware.store, "put", fail_with_bug)
        result = await client.call_tool("text", {"size": 9000, "of": "SECRET "})
        assert result.is_error
        assert "SECRET" not in get_text(result)
        assert parse_text(result)["error"]["code"] == ("store_full" if options else "redaction_failed")

    serve(
        test, tmp_path / "store", era, output_mode="auto", redact=lambda data: data.replace(b"SECRET", b"*"), **options
    )


def test_a_bug_in_the_pipeline_loses_no_result(
    era: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail_with_bug(*_args: object, **_kwargs: object) -> None:
        raise ZeroDivisionError

    async def test(client: Client, middleware: Forebay) -> None:
        monkeypatch.setattr(middleware.store, "put", fail_with_bug)
        assert get_text(await client.call_tool("text", {"size": 50_000})) == "x" * 50_000
        assert "could not be processed" in caplog.text

    serve(test, tmp_path / "store", era, output_mode="auto")


def test_a_large_protocol_error_is_stored_without_secrets_and_keeps_its_code(era: str, tmp_path: Path) -> None:
    server = MCPServer("tests")

    @server.tool()
    def refuses(size: int) -> str:
        raise MCPError(code=-32001, message="no", data={"why": "SECRET " * size})

    async def test(client: Client, middleware: Forebay) -> None:
        with pytest.raises(MCPError) as small:
            await client.call_tool("refuses", {"size": 2})
        assert (small.value.code, small.value.data) == (-32001, {"why": "SECRET SECRET "})
        with pytest.raises(MCPError) as large:
            await client.call_tool("refuses", {"size": 9000})
        assert large.value.code == -32001
        assert "SECRET" not in str(large.value.data)
        assert middleware.store.get(large.value.data["output_handle"], "/message") == b'"no"'

    serve(test, tmp_path / "store", era, server, output_mode="auto", redact="SECRET")


def test_a_call_without_a_name_is_the_server_s_to_refuse(era: str, tmp_path: Path) -> None:
    async def test(client: Client, middleware: Forebay) -> None:
        for params in ({}, {"name": 7, "arguments": {}}):
            with pytest.raises(MCPError) as caught:
                await send_request(client.session, "tools/call", params, 1000, 30)
            assert caught.value.code == INVALID_PARAMS
        assert list(middleware.store.list()) == []

    serve(test, tmp_path / "store", era, output_mode="handle")


def test_a_protocol_error_that_cannot_be_serialized_is_left_to_the_server(era: str, tmp_path: Path) -> None:
    server = MCPServer("tests")

    @server.tool()
    def refuses() -> str:
        raise MCPError(code=-32001, message="no", data={"why": object()})

    async def test(client: Client, middleware: Forebay) -> None:
        with pytest.raises(MCPError):
            await client.call_tool("refuses", {}, read_timeout_seconds=20)
        assert list(middleware.store.list()) == []

    serve(test, tmp_path / "store", era, server, output_mode="auto")
