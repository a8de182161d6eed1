"""The adapters do the same in every supported version of the SDKs. Servers are driven over the wire, without an SDK."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from sdk_versions import Server
from versions_server import INSTRUCTIONS, TOOLS
from wires import LEGACY, StdioWire, connect_http, extract_message

pytestmark = pytest.mark.slow

AUTO = {"output_mode": "auto", "journal": True}
FETCH, SEARCH = "output_fetch", "output_search"


def send(wire: Any, method: str, **params: Any) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(extract_message(wire.request(method, params)))
    return message


def call(wire: Any, name: str, **arguments: Any) -> dict[str, Any]:
    """Call a tool and return its result."""
    response = send(wire, "tools/call", name=name, arguments=arguments)
    assert "result" in response, response
    result: dict[str, Any] = response["result"]
    return result


def parse_text(result: dict[str, Any]) -> Any:
    return json.loads(result["content"][0]["text"])


def list_tools(wire: StdioWire) -> dict[str, dict[str, Any]]:
    return {tool["name"]: tool for tool in send(wire, "tools/list")["result"]["tools"]}


def remove_id(line: bytes) -> bytes:
    """Return a response without its id, which counts the requests of a connection."""
    return re.sub(rb'"id": ?\d+', b"", line, count=1)


SMALL_CALLS: list[tuple[str, dict[str, Any]]] = [
    ("rows", {}),
    ("report", {"count": 2}),
    ("text", {"size": 10}),
    ("echo", {"value": "naïve"}),
    ("failing", {}),
    ("unknown", {}),
    ("rows", {"count": "no number"}),
]


def test_small_results_are_unchanged(server: Server) -> None:
    for name, arguments in SMALL_CALLS:
        params = {"name": name, "arguments": arguments}
        plain, gated = (wire.request("tools/call", params) for wire in (server.connect_plain(), server.connect(**AUTO)))
        assert remove_id(gated) == remove_id(plain)


def test_a_large_result_becomes_a_handle(server: Server) -> None:
    wire = server.connect(**AUTO)
    line = wire.request("tools/call", {"name": "rows", "arguments": {"count": 5000}})
    assert len(line.strip()) <= 4096
    result = json.loads(line)["result"]
    descriptor = parse_text(result)
    assert (descriptor["item_count"], descriptor["fetch_with"]) == (5000, FETCH)
    assert result["structuredContent"]["output_handle"] == descriptor["output_handle"]
    assert not result["isError"]


def test_a_handle_is_read_page_by_page(server: Server) -> None:
    wire = server.connect(**AUTO)
    handle = parse_text(call(wire, "rows", count=5000))["output_handle"]
    rows: list[Any] = []
    offset: int | None = 0
    while offset is not None:
        page = parse_text(call(wire, FETCH, output_handle=handle, offset=offset, limit=2000))
        rows += page["content"]
        offset = page["next_offset"]
    assert rows == TOOLS["rows"](5000)


def test_a_handle_is_searched(server: Server) -> None:
    wire = server.connect(**AUTO)
    handle = parse_text(call(wire, "rows", count=5000))["output_handle"]
    found = parse_text(call(wire, SEARCH, output_handle=handle, pattern='"naïve 4321"'))
    assert [match["item"] for match in found["matches"]] == [4321]


def test_results_match_the_listed_schemas(server: Server) -> None:
    wire = server.connect(**AUTO)
    for name in ("rows", "report"):
        schema = list_tools(wire)[name]["outputSchema"]
        for count in (3, 5000):
            structured = call(wire, name, count=count)["structuredContent"]
            jsonschema.validate(structured, schema)
            assert ("output_handle" in structured) == (count == 5000)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({"other": 1}, schema)


def test_a_large_error_is_stored_and_stays_an_error(server: Server) -> None:
    wire = server.connect(**AUTO)
    result = call(wire, "failing", size=50_000)
    assert result["isError"]
    page = parse_text(call(wire, FETCH, output_handle=parse_text(result)["output_handle"], offset=49_000))
    assert page["content"].endswith("e" * 1000)


def test_an_unknown_handle_is_an_error(server: Server) -> None:
    result = call(server.connect(**AUTO), FETCH, output_handle="oh_AAAAAAAAAAAA")
    assert result["isError"]
    assert parse_text(result)["error"]["code"] == "output_handle_not_found"


def test_own_tools_are_listed_after_those_of_the_server(server: Server) -> None:
    plain, gated = list_tools(server.connect_plain()), list_tools(server.connect(**AUTO))
    assert [tool for tool in gated if tool != "output_query"] == [*plain, FETCH, SEARCH, "journal"]
    for name, tool in plain.items():
        assert {**gated[name], "outputSchema": None} == {**tool, "outputSchema": None}


def test_tools_and_resources_are_announced(server: Server) -> None:
    capabilities = json.loads(server.connect(**AUTO).initialize_response)["result"]["capabilities"]
    assert {"tools", "resources"} <= capabilities.keys()


def check_instructions(initialize_response: bytes) -> None:
    instructions = json.loads(extract_message(initialize_response))["result"]["instructions"]
    own, note = instructions.split("\n\n")
    assert own == INSTRUCTIONS
    assert note.startswith("A result that is too large is stored")
    assert f"read it with {FETCH}, find text in it with {SEARCH}" in note


def test_instructions_say_what_a_handle_is(server: Server) -> None:
    check_instructions(server.connect(**AUTO).initialize_response)
    plain = json.loads(server.connect_plain().initialize_response)
    assert plain["result"]["instructions"] == INSTRUCTIONS


def test_a_large_image_stays_inline(server: Server) -> None:
    params = {"name": "picture", "arguments": {"size": 100_000}}
    plain, gated = (wire.request("tools/call", params) for wire in (server.connect_plain(), server.connect(**AUTO)))
    assert json.loads(plain)["result"]["content"][0]["type"] == "image"
    assert remove_id(gated) == remove_id(plain)


def test_the_name_of_the_client_selects_names_and_pages(server: Server) -> None:
    for client, fetch_with, max_page_bytes in (
        ("@cline/core", "orders__output_fetch", 8000),
        ("copilot-cli", "orders-output_fetch", 20_480),
        ("unknown", FETCH, 16_384),
    ):
        wire = server.connect_as(client, **AUTO, server_name="orders")
        descriptor = parse_text(call(wire, "rows", count=5000))
        assert descriptor["fetch_with"] == fetch_with
        result = call(wire, FETCH, output_handle=descriptor["output_handle"], limit=5000)
        assert max_page_bytes / 2 < len(result["content"][0]["text"]) <= max_page_bytes


def test_a_stored_output_is_a_resource(server: Server) -> None:
    wire = server.connect(**AUTO)
    (template,) = send(wire, "resources/templates/list")["result"]["resourceTemplates"]
    assert template["uriTemplate"] == "forebay://output/{output_handle}{?offset,limit}"
    assert "mimeType" not in template
    assert send(wire, "resources/list")["result"]["resources"] == []
    handle = parse_text(call(wire, "text", size=50_000))["output_handle"]
    (content,) = send(wire, "resources/read", uri=f"forebay://output/{handle}?offset=49997")["result"]["contents"]
    assert json.loads(content["text"])["content"] == "xxx"
    (content,) = send(wire, "resources/read", uri=f"forebay://output/{handle}")["result"]["contents"]
    assert json.loads(content["text"])["next_uri"].startswith(f"forebay://output/{handle}?offset=")
    error = send(wire, "resources/read", uri="forebay://output/oh_AAAAAAAAAAAA")["error"]
    assert "nothing is stored under" in error["message"]


def test_a_host_that_shows_apps_gets_the_viewer(server: Server) -> None:
    uri, mime_type = "ui://forebay/output_fetch", "text/html;profile=mcp-app"
    options = {**AUTO, "tools": {"rows": "handle"}}
    for mime_types in ([mime_type], []):
        capabilities = {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": mime_types}}}
        wire = StdioWire(server.start(options), LEGACY, capabilities=capabilities)
        shown = {name: tool["_meta"]["ui"] for name, tool in list_tools(wire).items() if "ui" in tool.get("_meta", {})}
        listed = send(wire, "resources/list")["result"]["resources"]
        resources = [(entry["uri"], entry["mimeType"]) for entry in listed]
        response = send(wire, "resources/read", uri=uri)
        if mime_types:
            assert shown == dict.fromkeys(["rows", FETCH], {"resourceUri": uri})  # noqa: RUF024 - only compared
            assert resources == [(uri, mime_type)]
            # Version 2 of fastmcp drops this from the content, where hosts look first.
            assert listed[0]["_meta"]["ui"]["csp"]["connectDomains"] == []
            (content,) = response["result"]["contents"]
            assert (content["uri"], content["mimeType"]) == (uri, mime_type)
            assert content["text"].startswith("<!doctype html>")
        else:
            assert (shown, resources) == ({}, [])
            assert "error" in response


def test_a_call_may_choose_its_mode(server: Server) -> None:
    wire = server.connect(output_mode="inline", per_call=True)
    assert "output_mode" in list_tools(wire)["rows"]["inputSchema"]["properties"]
    assert len(call(wire, "text", size=50_000)["content"][0]["text"]) == 50_000
    assert "output_handle" in parse_text(call(wire, "text", size=5, output_mode="handle"))


def test_denied_tools_are_neither_listed_nor_called(server: Server) -> None:
    wire = server.connect(capabilities={"echo": "danger"}, disable_tools=["danger"])
    assert "echo" not in list_tools(wire)
    assert "text" in list_tools(wire)
    result = call(wire, "echo", value="x")
    assert result["isError"]
    assert parse_text(result)["error"]["code"] == "CAPABILITY_DISABLED"


def test_hidden_tools_are_shown_on_request(server: Server) -> None:
    wire = server.connect(capabilities={"echo": "rare"}, hidden_tools=["echo"])
    assert json.loads(wire.initialize_response)["result"]["capabilities"]["tools"]["listChanged"]
    assert "echo" not in list_tools(wire)
    assert not call(wire, "expand_tools", names=["echo"]).get("isError")
    assert "echo" in list_tools(wire)
    assert any(b"notifications/tools/list_changed" in line for line in wire.notifications)


def test_references_are_resolved(server: Server, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("from a file", encoding="utf-8")
    wire = server.connect(**AUTO, file_refs=True, file_roots=[str(tmp_path)])
    result = call(wire, "echo", value={"$file": str(tmp_path / "note.txt")})
    assert result["content"][0]["text"] == "from a file"
    handle = parse_text(call(wire, "text", size=50_000))["output_handle"]
    result = call(wire, "echo", value={"$handle": handle})
    assert parse_text(result)["size_bytes"] == 50_000
    denied = call(wire, "echo", value={"$file": "/etc/hostname"})
    assert parse_text(denied)["error"]["code"] == "file_ref_denied"


def test_results_are_under_contract(server: Server) -> None:
    wire = server.connect(contract=True)
    response = parse_text(call(wire, "rows", count=5000))
    assert response["success"]
    assert response["hasMore"]
    page = parse_text(call(wire, FETCH, output_handle=response["artifactRef"], offset=4999))
    assert page["content"] == TOOLS["rows"](5000)[-1:]
    small = call(wire, "report", count=2)
    assert parse_text(small)["data"] == TOOLS["report"](2)
    jsonschema.validate(small["structuredContent"], list_tools(wire)["report"]["outputSchema"])


def test_the_journal_lists_what_happened(server: Server) -> None:
    wire = server.connect(**AUTO)
    handle = parse_text(call(wire, "rows", count=5000))["output_handle"]
    events = [event["event"] for event in parse_text(call(wire, "journal")) if event.get("handle", handle) == handle]
    assert {"tool_called", "output_handle_created"} <= {*events}


def test_a_handle_belongs_to_its_principal(guarded_server: Server) -> None:
    process = guarded_server.start(AUTO, "http")
    assert process.stdout
    port = int(process.stdout.readline())
    ann, bob = (connect_http(port, LEGACY, token) for token in ("ann", "bob"))
    check_instructions(ann.initialize_response)
    handle = parse_text(call(ann, "rows", count=5000))["output_handle"]
    assert len(handle) == len("oh_") + 26
    assert parse_text(call(ann, FETCH, output_handle=handle, limit=1))["total"] == 5000
    assert parse_text(call(bob, FETCH, output_handle=handle))["error"]["code"] == "output_handle_not_found"


def test_the_client_is_known(server: Server) -> None:
    call(server.connect(**AUTO), "rows")
    assert 'client ["wire", "1"]' in server.log


def test_a_large_inline_result_is_reported_once(server: Server) -> None:
    wire = server.connect(journal=True)
    for _ in range(3):
        assert len(call(wire, "text", size=50_000)["content"][0]["text"]) == 50_000
    assert server.log.count('output_mode="auto"') == 1


def test_a_mounted_server_links_to_no_app_that_cannot_be_read(mounted_server: Server) -> None:
    """The outer server changes the URIs of resources, but not the `_meta` of tools, which links to them."""
    options = {"output_mode": "auto", "tools": {"rows": "handle"}}
    apps = {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}}
    wire = StdioWire(mounted_server.start(options, "mounted"), LEGACY, capabilities=apps)
    tools = list_tools(wire)
    assert "inner_rows" in tools
    linked = {tool["_meta"]["ui"]["resourceUri"] for tool in tools.values() if "ui" in tool.get("_meta", {})}
    listed = {resource["uri"] for resource in send(wire, "resources/list")["result"]["resources"]}
    assert [uri for uri in linked | listed if "error" in send(wire, "resources/read", uri=uri)] == []


def test_nothing_is_lost_in_a_mounted_server(mounted_server: Server) -> None:
    """The client gets the whole result, or a handle that a listed tool reads."""
    options = {"output_mode": "auto", "capabilities": {"echo": "danger"}, "disable_tools": ["danger"]}
    wire = StdioWire(mounted_server.start(options, "mounted"), LEGACY)
    tools = list_tools(wire)
    assert "inner_rows" in tools
    assert "inner_echo" not in tools
    assert call(wire, "inner_echo", value="x")["isError"]
    result = call(wire, "inner_rows", count=5000)
    if "output_handle" in result["structuredContent"]:
        descriptor = parse_text(result)
        assert descriptor["fetch_with"] in tools
        page = parse_text(call(wire, descriptor["fetch_with"], output_handle=descriptor["output_handle"], offset=4999))
        assert page["content"] == TOOLS["rows"](5000)[-1:]
    else:
        assert result["structuredContent"] == {"result": TOOLS["rows"](5000)}
