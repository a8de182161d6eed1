"""forebay in a server of the mcp SDK: the tools, resources and journal that it adds."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from forebay.adapters.mcp import Forebay
from mcp import Client
from mcp_harness import get_text, parse_text, serve
from mcp_server import PIXELS

pytestmark = pytest.mark.slow


def test_the_prefix_is_settable(era: str, tmp_path: Path) -> None:
    async def test(client: Client, middleware: Forebay) -> None:  # noqa: ARG001
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert names[-4:] == ["oc_output_fetch", "oc_output_search", "oc_output_query", "oc_journal"]
        assert parse_text(await client.call_tool("rows", {}))["fetch_with"] == "oc_output_fetch"

    serve(test, tmp_path / "store", era, output_mode="handle", prefix="oc_", journal=True)


def test_errors_of_ours_can_be_acted_on(era: str, tmp_path: Path) -> None:
    async def test(client: Client, middleware: Forebay) -> None:  # noqa: ARG001
        handle = parse_text(await client.call_tool("text", {"size": 50_000}))["output_handle"]
        cases: list[tuple[dict[str, Any] | None, str, str]] = [
            ({"output_handle": "oh_AAAAAAAAAAAA"}, "output_handle_not_found", "call the tool again"),
            ({"output_handle": "../../etc/passwd"}, "output_handle_not_found", "call the tool again"),
            ({"output_handle": 7}, "output_handle_not_found", "call the tool again"),
            ({}, "invalid_argument", "output_fetch needs output_handle"),
            (None, "invalid_argument", "output_fetch needs output_handle"),
            ({"output_handle": handle, "page": 2}, "invalid_argument", "it has output_handle, offset"),
            ({"output_handle": handle, "ofset": 2}, "invalid_argument", "no argument 'ofset'; did you mean offset?"),
            ({"handle": handle}, "invalid_argument", "no argument 'handle'; did you mean output_handle?"),
            ({"output_handle": handle, "offset": "3"}, "invalid_argument", "offset must be a whole number"),
            ({"output_handle": handle, "format": "items"}, "invalid_format_for_payload", "use format="),
            ({"output_handle": None}, "invalid_argument", "output_fetch needs output_handle"),
            ({"output_handle": handle, "path": "/a"}, "invalid_format_for_payload", "leave the path out"),
        ]
        for arguments, code, hint in cases:
            result = await client.call_tool("output_fetch", arguments)
            assert result.is_error
            error = parse_text(result)["error"]
            assert (error["code"], hint in error["message"]) == (code, True), error

    serve(test, tmp_path / "store", era, output_mode="auto")


def test_search_finds_what_fetch_then_shows(era: str, tmp_path: Path) -> None:
    async def test(client: Client, middleware: Forebay) -> None:  # noqa: ARG001
        handle = parse_text(await client.call_tool("rows", {"count": 5000}))["output_handle"]
        arguments = {"output_handle": handle, "pattern": r'"id":4\d{3},', "regex": True, "limit": 2}
        found = parse_text(await client.call_tool("output_search", arguments))
        assert [match["item"] for match in found["matches"]] == [4000, 4001]
        page = parse_text(await client.call_tool("output_fetch", {"output_handle": handle, "offset": 4000, "limit": 1}))
        assert page["content"] == [{"id": 4000, "name": "naïve 4000"}]

    serve(test, tmp_path / "store", era, output_mode="auto")


def test_stored_payloads_are_resources(era: str, tmp_path: Path) -> None:
    async def test(client: Client, middleware: Forebay) -> None:
        result = await client.call_tool("rows", {"count": 5000})
        uri = result.content[1].uri  # type: ignore[union-attr]
        assert (result.content[1].type, result.content[1].size) == ("resource_link", parse_text(result)["size_bytes"])  # type: ignore[union-attr]
        (content,) = (await client.read_resource(uri)).contents
        page = json.loads(content.text)  # type: ignore[union-attr]
        assert (page["content"][0], page["total"]) == ({"id": 0, "name": "naïve 0"}, 5000)
        assert page["next_uri"] == f"{uri}?offset={page['returned']}"
        (content,) = (await client.read_resource(f"{uri}?offset=4998&limit=1")).contents
        page = json.loads(content.text)  # type: ignore[union-attr]
        assert page["content"] == [{"id": 4998, "name": "naïve 4998"}]
        assert (page["offset"], page["next_uri"]) == (4998, f"{uri}?offset=4999&limit=1")
        small = middleware.store.put(b'{"items": [1, 2, 3]}').output_handle
        (content,) = (await client.read_resource(f"forebay://output/{small}")).contents
        assert (content.mime_type, content.text) == ("application/json", '{"items": [1, 2, 3]}')  # type: ignore[union-attr]
        handle = middleware.store.put(PIXELS, mime_type="image/png").output_handle
        (image,) = (await client.read_resource(f"forebay://output/{handle}")).contents
        page = json.loads(image.text)  # type: ignore[union-attr]
        assert PIXELS.startswith(base64.b64decode(page["content"]))
        assert page["encoding"] == "base64"
        handle = middleware.store.put(PIXELS[:3000], mime_type="image/png").output_handle
        (image,) = (await client.read_resource(f"forebay://output/{handle}")).contents
        assert (image.mime_type, base64.b64decode(image.blob)) == ("image/png", PIXELS[:3000])  # type: ignore[union-attr]
        templates = (await client.list_resource_templates()).resource_templates
        assert templates[-1].uri_template == "forebay://output/{output_handle}{?offset,limit}"
        for wrong in ("forebay://output/oh_AAAAAAAAAAAA", f"{uri}?offset=-1", f"{uri}?page=1", "forebay://output/"):
            with pytest.raises(Exception, match=r"nothing is stored under|a resource URI takes"):
                await client.read_resource(wrong)

    serve(test, tmp_path / "store", era, output_mode="auto", resource_links=True)


def test_the_journal_tells_and_is_bounded(era: str, tmp_path: Path) -> None:
    async def test(client: Client, middleware: Forebay) -> None:
        handle = parse_text(await client.call_tool("rows", {"count": 5000}))["output_handle"]
        events = parse_text(await client.call_tool("journal", {"action": "recent", "count": 50}))
        assert {"event": "output_handle_created", "handle": handle, "source_tool": "rows"}.items() <= events[-1].items()
        summary = parse_text(await client.call_tool("journal", {"action": "summary"}))
        assert summary["by_tool"]["rows"]["handles"] == 1
        for number in range(800):
            middleware.store.journal.record("noise", text='"' * 200, number=number)
        result = await client.call_tool("journal", {"count": 1000})
        assert len(json.dumps(get_text(result)).encode()) <= 32768
        assert parse_text(result)[0]["number"] == 799
        assert parse_text(await client.call_tool("journal", {"action": "both"}))["error"]["code"] == "invalid_argument"
        assert parse_text(await client.call_tool("journal", {"count": 0}))["error"]["code"] == "invalid_argument"

    serve(test, tmp_path / "store", era, output_mode="auto", journal=True)
