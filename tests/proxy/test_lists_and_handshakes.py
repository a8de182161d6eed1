"""Lists that servers answer with, and the first answers of a server, however they are made."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from forebay.errors import UpstreamFailed
from forebay.outputs.policy import OutputPolicy
from forebay.proxy.list_pages import ToolPages, index_tools, open_page, parse_tools
from forebay.wire.lazy_json import as_lazy, dump
from forebay.wire.messages import parse
from relay_peers import Gateway

TOOL = {"name": "one", "inputSchema": {"type": "object"}}


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    with closing(OutputPolicy((tmp_path / "store").as_uri(), sweep_interval=0)) as policy:
        yield Gateway(policy)


def _answer(gateway: Gateway, method: str, raw_result: str, **params: Any) -> dict[str, Any]:
    """Return the result that the client gets for a request that the server answers with these bytes."""
    gateway.receive_from_client(id=1, method=method, params=params)
    gateway.relay.receive_from_server(f'{{"jsonrpc":"2.0","id":1,"result":{raw_result}}}'.encode())
    assert gateway.relay.wait_idle(60)
    return dict(gateway.client.received[-1])


def _page(**result: Any) -> tuple[dict[str, Any], bytes]:
    raw = dump({"jsonrpc": "2.0", "id": 1, "result": result})
    return parse(raw), raw


def _read_endless_list(pages: ToolPages) -> None:
    for number, _ in enumerate(pages):
        pages.add(*_page(tools=[TOOL], nextCursor=str(number)))


def test_a_list_has_a_maximum_number_of_pages_and_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = ToolPages()
    with pytest.raises(UpstreamFailed, match="the server lists its tools in more than 1000 pages"):
        _read_endless_list(pages)
    assert len(pages.tools) == 1000
    monkeypatch.setattr("forebay.proxy.list_pages.MAX_LIST_ITEMS", 3)
    pages = ToolPages()
    pages.add(*_page(tools=[TOOL] * 3))
    with pytest.raises(UpstreamFailed, match="the server lists more than 3 tools"):
        pages.add(*_page(tools=[TOOL]))
    with pytest.raises(UpstreamFailed, match="a list of more than 3 items"):
        open_page(*_page(tools=[TOOL] * 4), "tools")


def test_tools_without_a_name_of_their_own_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    items = [as_lazy(dump(tool)) for tool in (TOOL, {**TOOL, "x": 1}, {"name": ""}, {"name": 5}, {}, "text")]
    assert [*index_tools(items, "one")] == ["one"]
    assert caplog.text.count("is left out: it has no name") == 4
    assert caplog.text.count("one lists two tools 'one'; the first is taken") == 1


def _parse_list(items: bytes) -> list[Any]:
    page = open_page({"id": 1, "result": {}}, b'{"id":1,"result":{"tools":%s}}' % items, "tools")
    return [] if page is None else [*parse_tools(page.items)]


@pytest.mark.parametrize("items", [b"[1 2]", b'[{"name":nothing}]'])
def test_a_list_that_cannot_be_read_is_an_error(items: bytes) -> None:
    with pytest.raises(UpstreamFailed, match="cannot be read; have it send plain JSON"):
        _parse_list(items)


@pytest.mark.parametrize("result", ["[]", "5", '{"resources":{}}', "{}"])
def test_a_list_that_is_none_is_forwarded(result: str, gateway: Gateway) -> None:
    for method in ("resources/templates/list", "resources/list"):
        assert _answer(gateway, method, result)["result"] == json.loads(result)


CLIENT = {"protocolVersion": "2025-11-25", "clientInfo": {"name": "x", "version": "1"}}
APPS = {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}}


@pytest.mark.parametrize("result", ["[]", "5", '"text"'])
def test_a_handshake_that_is_none_is_forwarded(result: str, gateway: Gateway) -> None:
    assert _answer(gateway, "initialize", result, **CLIENT, capabilities={})["result"] == json.loads(result)


@pytest.mark.parametrize("instructions", ["short", 'a long text \\"é' * 1000, None, [1] * 5000])
def test_instructions_of_any_length_get_the_note(instructions: Any, gateway: Gateway) -> None:
    fields = {"protocolVersion": "2025-11-25", "capabilities": {}, "instructions": instructions}
    result = _answer(gateway, "initialize", json.dumps(fields), **CLIENT, capabilities={})["result"]
    if isinstance(instructions, list):
        assert result["instructions"] == instructions
    else:
        own, note, _ = result["instructions"].partition("A result that is too large is stored")
        assert (own.rstrip("\n"), bool(note)) == (instructions or "", True)


def test_a_handshake_with_very_many_members_is_extended(gateway: Gateway) -> None:
    many = {f"member {number}": "x" * 100 for number in range(4000)}
    fields = {"protocolVersion": "2025-11-25", "capabilities": {}, **many}
    result = _answer(gateway, "initialize", json.dumps(fields), **CLIENT, capabilities={})["result"]
    assert "output_handle" in result.pop("instructions")
    assert result == {**fields, "capabilities": {"tools": {}, "resources": {}}}


def test_a_client_that_shows_apps_is_told_of_them(gateway: Gateway) -> None:
    fields = json.dumps({"protocolVersion": "2025-11-25", "capabilities": {"extensions": {"x": {}}}})
    result = _answer(gateway, "initialize", fields, **CLIENT, capabilities=APPS)["result"]
    assert {*result["capabilities"]["extensions"]} == {"x", "io.modelcontextprotocol/ui"}
    gateway.policy.learn_tools([TOOL])
    read = {"uri": gateway.policy.app.uri}
    gateway.receive_from_client(id=2, method="resources/read", params=read)
    (content,) = gateway.client.received[-1]["result"]["contents"]
    assert (content["uri"], "<html" in content["text"].lower()) == (gateway.policy.app.uri, True)
