"""forebay in a fastmcp server: the tools, resources and journal that it adds."""

import base64
import json
from pathlib import Path

import pytest
from fastmcp import FastMCP
from fastmcp_harness import Client, call, serve
from fastmcp_server import PIXELS, make_server
from forebay.adapters.fastmcp import ForebayMiddleware
from mcp_harness import get_text, parse_text, read_all_items


def test_ours_give_way_to_a_tool_of_the_same_name(era: str, tmp_path: Path) -> None:
    server = FastMCP("clash")

    @server.tool(output_schema=None)
    def output_fetch(size: int = 5) -> str:
        return "theirs" * size

    async def test(client: Client, middleware: ForebayMiddleware) -> None:  # noqa: ARG001
        # Called before the tools were listed.
        assert get_text(await call(client, "output_fetch", size=1)) == "theirs"
        names = [tool.name for tool in await client.list_tools()]
        assert names == ["output_fetch", "forebay_output_fetch", "forebay_output_search", "forebay_output_query"]
        descriptor = parse_text(await call(client, "output_fetch", size=10_000))
        assert descriptor["fetch_with"] == "forebay_output_fetch"
        page = await call(client, "forebay_output_fetch", output_handle=descriptor["output_handle"])
        assert parse_text(page)["content"].startswith("theirs")

    serve(test, tmp_path / "store", era, server, output_mode="auto")


def test_what_ours_are_called_does_not_depend_on_who_asks(era: str, tmp_path: Path) -> None:
    """A tool that this caller cannot see still keeps its name."""
    server = FastMCP("clash")
    server.tool(lambda: "theirs", name="output_search", tags={"admin"})
    server.tool(lambda: "l" * 50_000, name="large")
    server.disable(tags={"admin"})

    async def test(client: Client, middleware: ForebayMiddleware) -> None:  # noqa: ARG001
        before = parse_text(await call(client, "large"))["fetch_with"]
        names = [tool.name for tool in await client.list_tools()]
        assert names == ["large", "forebay_output_fetch", "forebay_output_search", "forebay_output_query"]
        assert before == parse_text(await call(client, "large"))["fetch_with"] == "forebay_output_fetch"
        assert "Unknown tool" in get_text(await call(client, "output_search"))

    serve(test, tmp_path / "store", era, server, output_mode="auto")


def test_ours_are_there_whatever_is_visible(era: str, tmp_path: Path) -> None:
    server = make_server()
    server.tool(lambda: "p" * 50_000, name="public", tags={"public"})
    server.enable(tags={"public"}, only=True)

    async def test(client: Client, middleware: ForebayMiddleware) -> None:  # noqa: ARG001
        assert [tool.name for tool in await client.list_tools()] == [
            "public",
            "output_fetch",
            "output_search",
            "output_query",
        ]
        pages = await read_all_items(client, parse_text(await call(client, "public"))["output_handle"])
        assert "".join(page["content"] for page in pages) == "p" * 50_000

    serve(test, tmp_path / "store", era, server, output_mode="auto")


def test_a_list_in_pages_has_ours_once(era: str, tmp_path: Path) -> None:
    async def test(client: Client, middleware: ForebayMiddleware) -> None:  # noqa: ARG001
        names = [tool.name for tool in await client.list_tools()]
        assert len(set(names)) == len(names)
        assert names[-3:] == ["output_fetch", "output_search", "output_query"]

    serve(test, tmp_path / "store", era, make_server(list_page_size=4))


def test_the_prefix_is_settable_and_the_journal_tells(era: str, tmp_path: Path) -> None:
    async def test(client: Client, middleware: ForebayMiddleware) -> None:  # noqa: ARG001
        names = [tool.name for tool in await client.list_tools()]
        assert names[-4:] == ["oc_output_fetch", "oc_output_search", "oc_output_query", "oc_journal"]
        descriptor = parse_text(await call(client, "rows"))
        assert descriptor["fetch_with"] == "oc_output_fetch"
        events = parse_text(await call(client, "oc_journal", action="recent"))
        assert (events[-1]["handle"], events[-1]["source_tool"]) == (descriptor["output_handle"], "rows")

    serve(test, tmp_path / "store", era, output_mode="handle", prefix="oc_", journal=True)


def test_resources(era: str, tmp_path: Path) -> None:
    async def test(client: Client, middleware: ForebayMiddleware) -> None:
        uri = (await call(client, "rows", count=5000)).content[1].uri
        (content,) = await client.read_resource(f"{uri}?offset=4998&limit=1")
        page = json.loads(content.text)  # type: ignore[union-attr]
        assert (page["content"], page["next_offset"]) == ([{"id": 4998, "name": "naïve 4998"}], 4999)
        assert content.mime_type == "application/json"
        handle = middleware.store.put(PIXELS[:3000], mime_type="image/png").output_handle
        (image,) = await client.read_resource(f"forebay://output/{handle}")
        assert (image.mime_type, base64.b64decode(image.blob)) == ("image/png", PIXELS[:3000])  # type: ignore[union-attr]
        (theirs,) = await client.read_resource("test://one")
        assert theirs.text == "theirs"  # type: ignore[union-attr]
        for wrong in ("forebay://output/oh_AAAAAAAAAAAA", f"{uri}?offset=-1", f"{uri}?page=1", "forebay://output/"):
            with pytest.raises(Exception, match=r"nothing is stored under|a resource URI takes"):
                await client.read_resource(wrong)

    serve(test, tmp_path / "store", era, output_mode="auto", resource_links=True)


def test_an_argument_that_is_none_is_an_error_that_names_the_nearest(era: str, tmp_path: Path) -> None:
    async def test(client: Client, middleware: ForebayMiddleware) -> None:  # noqa: ARG001
        handle = parse_text(await call(client, "text", size=50_000))["output_handle"]
        for tool, more in (("output_fetch", {"limits": 3}), ("output_search", {"pattern": "x", "limits": 3})):
            result = await call(client, tool, output_handle=handle, **more)
            assert result.is_error
            assert "no argument 'limits'; did you mean limit?" in parse_text(result)["error"]["message"]
        result = await call(client, "expand_tools", nam="rows")
        assert "no argument 'nam'; did you mean name?" in parse_text(result)["error"]["message"]

    serve(test, tmp_path / "store", era, make_server(), output_mode="auto", hidden_tools=["rows"])
