"""forebay in a fastmcp server: full stores and redactions."""

from pathlib import Path

from fastmcp_harness import Client, call, read_stored, serve
from forebay.adapters.fastmcp import ForebayMiddleware
from mcp_harness import get_text, parse_text


def test_what_cannot_be_stored_says_so_beside_its_start(era: str, tmp_path: Path) -> None:
    async def test(client: Client, middleware: ForebayMiddleware) -> None:  # noqa: ARG001
        result = await call(client, "text", size=50_000, of="é")
        assert (result.is_error, parse_text(result)["error"]["code"]) == (True, "store_full")
        assert parse_text(result)["preview"].startswith("ééé")

    serve(test, tmp_path / "store", era, output_mode="auto", quota_bytes=10)


def test_what_is_redacted_is_neither_stored_nor_shown(era: str, tmp_path: Path) -> None:
    async def test(client: Client, middleware: ForebayMiddleware) -> None:
        result = await call(client, "text", size=50_000, of="secret")
        assert "secret" not in get_text(result)
        assert b"secret" not in read_stored(middleware, result)

    serve(test, tmp_path / "store", era, output_mode="auto", redact=lambda data: data.replace(b"secret", b"------"))
