"""Wrong uses of the contract, and unusual tools."""

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import forebay
import pytest
from forebay import InvalidArgument, Store
from forebay.adapters.mcp import Forebay
from forebay.outputs.contract import (
    ResponseLimits,
    contracted,
    create_summary,
    paginated_list,
    retrieve_artifact,
    store_artifact,
    wrap_response,
)
from forebay.outputs.contract.context import ResponseContext
from forebay.outputs.pipeline import Pipeline
from forebay.outputs.tool_call import ToolCall
from mcp import Client
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_harness import get_text, parse_text, serve
from mcp_types import CallToolResult, TextContent
from stores import store_at
from wires import ERAS

ROWS = [{"id": number} for number in range(30)]


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with store_at(tmp_path / "store") as open_store:
        yield open_store


def test_redacted_text_is_shown_nowhere(tmp_path: Path) -> None:
    def hide(data: bytes) -> bytes:
        return data.replace(b"hunter2", b"***")

    with store_at(tmp_path / "store", redact=hide) as store:
        secret = "x" * 40 + "hunter2"
        response = paginated_list([{"id": "hunter2", "name": secret}], domain="x", label_field="name", store=store)
        wrapped = wrap_response(["hunter2"], summary=f"found {secret * 3}", store=store)
        decorated = contracted(summary=lambda rows: f"read {rows[0]}", store=store)(lambda: ["hunter2"])()
        for response_text in (response, wrapped, decorated):
            assert "hunter2" not in response_text
            # Redaction happens before cutting, so no half of the secret is left.
            assert "hunt" not in response_text
            assert "***" in response_text


def test_a_list_whose_redaction_fails_shows_nothing(tmp_path: Path) -> None:
    def fail(_: bytes) -> bytes:
        raise ValueError

    with store_at(tmp_path / "store", redact=fail) as store:
        fields = paginated_list([{"id": "secret"}], domain="x", store=store).to_dict()
        assert fields["items"] == []
        assert fields["hasMore"] is True
        assert fields["error"]["code"] == "redaction_failed"
        assert "secret" not in json.dumps(fields)


def test_a_cursor_works_for_its_principal_only(store: Store) -> None:
    cursors = {}
    for principal in ("ann", "bob"):
        with ResponseContext(store, principal):
            cursors[principal] = paginated_list(ROWS, domain="x").to_dict()["nextCursor"]
    with ResponseContext(store, "bob"), pytest.raises(InvalidArgument, match="leave cursor out"):
        paginated_list(ROWS, domain="x", cursor=cursors["ann"])
    with ResponseContext(store, "ann"):
        page = paginated_list(ROWS, domain="x", cursor=cursors["ann"]).to_dict()
        assert page["items"][0]["id"] == "10"
        assert retrieve_artifact(page["artifactRef"]) == ROWS


def test_a_tool_can_store_in_a_store_of_its_own(store: Store, tmp_path: Path) -> None:
    with store_at(tmp_path / "own") as own, ResponseContext(store, "ann", max_bytes=1100):
        ref = wrap_response(ROWS, summary="rows", store=own).to_dict()["artifactRef"]
        assert len(wrap_response(["x" * 99] * 30, summary="rows", store=own).encode()) <= 1100
        assert retrieve_artifact(ref, store=own) == ROWS
        assert {stored.principal for stored in own.list(principal="ann")} == {"ann"}
    assert list(store.list(principal="ann")) == []


def test_the_response_to_an_error_has_success_false(store: Store) -> None:
    pipeline, call = Pipeline(store, "output_fetch"), ToolCall("scan", contract=ResponseLimits())
    image = {"type": "image", "data": "/wAB", "mimeType": "image/png"}
    fields = read_fields(pipeline.store_result({"content": [image], "isError": True}, call))
    assert (fields["success"], fields["summary"]) == (False, "scan failed")
    # The tool said so of itself, and then failed.
    own = str(wrap_response([1], summary="scanned", store=store))
    result = {"content": [{"type": "text", "text": own}], "isError": True}
    fields = read_fields(pipeline.store_result(result, replace(call, contract_responses=[own])))
    assert fields["success"] is False
    assert fields["summary"].startswith("scan failed: ")


def read_fields(result: Any) -> dict[str, Any]:
    return dict(json.loads(result["content"][0]["text"]))


def test_a_deleted_list_is_stored_again(store: Store) -> None:
    page = paginated_list(ROWS, domain="x", store=store).to_dict()
    for stored in list(store.list()):
        store.delete(stored.output_handle)
    page = paginated_list(ROWS, domain="x", store=store, cursor=page["nextCursor"]).to_dict()
    assert retrieve_artifact(page["artifactRef"], store=store) == ROWS


def test_strings_and_numbers_are_their_own_ids() -> None:
    for items in ([1, 2], ["a", "b"], [{"id": "a", "name": "b"}]):
        page = paginated_list(items, domain="x", label_field="nothing").to_dict()["items"]
        ids = [item["id"] if isinstance(item, dict) else item for item in items]
        assert [item["id"] for item in page] == [str(item_id) for item_id in ids]
        assert all(item["label"] == item["id"] for item in page)
    # Ids that differ only in whitespace stay different.
    spaced = ["a  b", "a b", "a\nb", " a b"]
    assert [item["id"] for item in paginated_list(spaced, domain="x").to_dict()["items"]] == spaced


@pytest.mark.parametrize(
    "mistake",
    [
        lambda: paginated_list((row for row in ROWS), domain="x"),  # type: ignore[arg-type]
        lambda: paginated_list("abc", domain="x"),
        lambda: paginated_list({}, domain="x"),  # type: ignore[arg-type]
        lambda: wrap_response(1, summary="s", limits={"max_bytes": 100}),  # type: ignore[arg-type]
        lambda: Forebay(tools=["a"]),  # type: ignore[arg-type]
        lambda: Forebay(tools={"a": None}),  # type: ignore[dict-item]
        lambda: Forebay(contract={"a": 4096}),
        lambda: Forebay(contract={"a": None}),
        lambda: Forebay(contract=[1]),  # type: ignore[list-item]
        lambda: Forebay(prefix="bad prefix/"),
        lambda: contracted(classmethod(lambda cls: cls)),  # type: ignore[call-overload]
        lambda: contracted(lambda: (yield)),
        lambda: create_summary(7, 1),  # type: ignore[arg-type]
        lambda: create_summary("Found", 1, ["high"]),  # type: ignore[arg-type]
    ],
)
def test_mistakes_raise_invalid_argument(mistake: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FOREBAY_HOME", str(tmp_path))
    with pytest.raises(InvalidArgument):
        mistake()


def test_an_unknown_option_is_refused_with_the_valid_ones() -> None:
    with pytest.raises(InvalidArgument, match=r"no such option: output_mod; there are output_mode, .*per_call.*ttl"):
        Forebay(output_mod="auto")


def make_server() -> MCPServer:
    server = MCPServer("mistakes")

    @server.tool(structured_output=False)
    def row_list(cursor: str | None = None) -> str:
        return paginated_list(ROWS, domain="row", cursor=cursor)

    @server.tool(structured_output=False)
    def load(ref: str) -> Any:
        return retrieve_artifact(ref)

    @server.tool(structured_output=False)
    def plain_status() -> str:
        return wrap_response(["x" * 400] * 10, summary="s")

    @server.tool(structured_output=False)
    def claim_success() -> str:
        raise ToolError(str(wrap_response({"a": 1}, summary="all good")))

    @server.tool(structured_output=False)
    @contracted
    def failed() -> Any:
        return CallToolResult(content=[TextContent(type="text", text="no")], is_error=True)

    @server.tool(structured_output=False)
    @contracted
    def odd() -> Any:
        return {"set": {1}, "decimal": Decimal("1.5"), "path": Path("/a")}

    @server.tool(structured_output=False)
    @contracted(summary=lambda data: data["nothing"])
    def summed() -> dict[str, int]:
        return {"a": 1}

    return server


@pytest.mark.parametrize("contract", [False, True])
@pytest.mark.parametrize("era", ERAS)
def test_an_error_in_a_tool_names_the_next_step(era: str, contract: bool, tmp_path: Path) -> None:
    async def test(client: Client, adapter: Forebay) -> None:  # noqa: ARG001
        for tool, arguments, hint in (
            ("row_list", {"cursor": "zzz"}, "leave cursor out"),
            ("load", {"ref": "ax://a/b~oh_AAAAAAAAAAAA"}, "call the tool again"),
            ("load", {"ref": "nothing"}, "as store_artifact returned it"),
        ):
            result = await client.call_tool(tool, arguments)
            assert result.is_error
            assert hint in get_text(result)
            assert not contract or parse_text(result)["success"] is False

    serve(test, tmp_path / "store", era, make_server(), contract=contract)


@pytest.mark.parametrize("era", ERAS)
def test_unusual_tools(era: str, tmp_path: Path) -> None:
    async def test(client: Client, adapter: Forebay) -> None:  # noqa: ARG001
        assert parse_text(await client.call_tool("row_list", {}))["artifactRef"]
        assert len(get_text(await client.call_tool("plain_status", {}))) < 1536
        claimed = await client.call_tool("claim_success", {})
        assert claimed.is_error
        assert parse_text(claimed)["success"] is False
        assert (await client.call_tool("failed", {})).is_error
        data = parse_text(await client.call_tool("odd", {}))["data"]
        assert data == {"set": [1], "decimal": "1.5", "path": str(Path("/a"))}
        assert parse_text(await client.call_tool("summed", {})) == {
            "summary": "summed: done",
            "success": True,
            "hasMore": False,
            "data": {"a": 1},
        }

    serve(test, tmp_path / "store", era, make_server(), contract=True)


def test_json_that_python_cannot_parse_is_refused(store: Store) -> None:
    ref = store_artifact("x", "y", b"[" + b"1" * 5000 + b"]", store=store)
    with pytest.raises(forebay.InvalidFormat, match=r"store\.open"):
        retrieve_artifact(ref, store=store)


def test_the_server_s_limits_apply_inside_its_tools(store: Store) -> None:
    with ResponseContext(store, max_bytes=1536):
        assert len(wrap_response(["x" * 400] * 10, summary="s")) < 1536
        assert len(paginated_list([{"id": "x" * 400}] * 10, domain="x")) < 1536
        small = wrap_response(["x" * 400] * 10, summary="s", limits=ResponseLimits(max_bytes=1024))
        assert len(small) < 1024
