"""forebay in a server of the mcp SDK: servers, stores, options and principals."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import forebay
import pytest
from forebay.adapters.mcp import Forebay, _get_current_principal
from mcp import Client
from mcp.server import Server
from mcp.server.auth.middleware.auth_context import auth_context_var
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp_harness import parse_text, serve
from mcp_server import make_server
from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool


def test_a_low_level_server_without_anything(era: str, tmp_path: Path) -> None:
    async def list_tools(ctx: Any, params: Any) -> ListToolsResult:  # noqa: ARG001
        return ListToolsResult(tools=[Tool(name="big", input_schema={"type": "object"})])

    async def call_tool(ctx: Any, params: Any) -> CallToolResult:  # noqa: ARG001
        return CallToolResult(content=[TextContent(type="text", text="b" * 50_000)])

    async def test(client: Client, middleware: Forebay) -> None:  # noqa: ARG001
        assert [tool.name for tool in (await client.list_tools()).tools] == [
            "big",
            "output_fetch",
            "output_search",
            "output_query",
        ]
        handle = parse_text(await client.call_tool("big", {}))["output_handle"]
        assert parse_text(await client.call_tool("output_fetch", {"output_handle": handle}))["total"] == 50_000
        assert len((await client.list_resource_templates()).resource_templates) == 1
        (content,) = (await client.read_resource(f"forebay://output/{handle}")).contents
        assert json.loads(content.text)["content"][:3] == "bbb"  # type: ignore[union-attr]

    server: Server[Any] = Server("low", on_list_tools=list_tools, on_call_tool=call_tool)
    serve(test, tmp_path / "store", era, server, output_mode="auto")


def test_a_store_that_is_open_is_used_and_left_open(tmp_path: Path) -> None:
    with forebay.open_store(tmp_path / "store", sweep_interval=0) as store:
        middleware = Forebay(store, output_mode="auto")
        middleware.close()
        assert middleware.store is store
        store.put(b"still open")
        with pytest.raises(forebay.InvalidArgument, match="give ttl to open_store"):
            Forebay(store, ttl=5)


@pytest.mark.parametrize(
    "wrong",
    [
        {"output_mode": "both"},
        {"output_inline_limit_bytes": -10},
        {"handle_length": 20},
        {"output_inline_limit_bytes": True},
        {"tools": {"a": "both"}},
        {"tools": {"a": {"mode": "auto"}}},
        {"no_such_option": 1},
    ],
)
def test_an_option_that_is_none_is_refused(wrong: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(forebay.InvalidArgument):
        Forebay((tmp_path / "store").as_uri(), **wrong)
    assert not (tmp_path / "store").exists()


def test_it_is_installed_once(tmp_path: Path) -> None:
    server, middleware = make_server(), Forebay((tmp_path / "store").as_uri(), sweep_interval=0)
    middleware.install(server)
    with pytest.raises(forebay.InvalidArgument, match="has a forebay already"):
        middleware.install(server)
    middleware.close()


@pytest.mark.slow
def test_without_the_extra_it_says_what_to_install() -> None:
    script = "import sys; sys.modules['mcp'] = None\ntry: import forebay.adapters.mcp\n"
    script += "except ModuleNotFoundError as error: print(error.name, error)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    # It is installed in this environment, where only its import fails.
    assert done.stdout.startswith("mcp.server forebay.adapters.mcp does not work with mcp ")
    assert "pip install 'forebay[mcp]'" in done.stdout


def test_principals_are_never_written_alike() -> None:
    tokens = [("https://iss|alice", None, None), ("c", "https://iss", "alice"), ("c", "a", "b|c"), ("c", "a|b", "c")]
    tokens += [("c", None, "x"), ("x", None, None), ("c", "None", "x"), ("c", "i", "s" * 5000), ("c", "i", "s" * 5001)]
    names = []
    for client, issuer, subject in tokens:
        claims = None if issuer is None else {"iss": issuer}
        token = AccessToken(token="t", client_id=client, scopes=[], subject=subject, claims=claims)  # noqa: S106
        auth_context_var.set(AuthenticatedUser(token))
        names.append(_get_current_principal())
    auth_context_var.set(None)
    assert len(set(names)) == len(names)
    assert all(name is not None and len(name) <= 1024 for name in names)
