"""References in the arguments of real servers: one tool's output is passed to another."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from forebay import open_store
from forebay.errors import InvalidArgument
from forebay.outputs.policy import OutputPolicy
from refs_server import digest, make_rows
from stores import events
from wires import Servers, Wire, extract_message

pytestmark = pytest.mark.slow

SCRIPT = "refs_server.py"


@pytest.fixture(params=["mcp", "fastmcp"])
def sdk(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    root.mkdir()
    return root


def make_options(sdk: str, tmp_path: Path, **more: Any) -> dict[str, Any]:
    store = (tmp_path / "store").as_uri()
    roots = {"file_refs": True, "file_roots": [str(tmp_path / "root")]}
    return {"sdk": sdk, "store": store, "sweep_interval": 0, "output_mode": "auto", **roots, **more}


def call(wire: Wire, tool: str, **arguments: Any) -> tuple[dict[str, Any], bool]:
    answer = json.loads(extract_message(wire.request("tools/call", {"name": tool, "arguments": arguments})))
    result = answer["result"]
    return json.loads(result["content"][0]["text"]), bool(result.get("isError"))


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_a_tool_receives_another_tool_s_output_unchanged(
    sdk: str, era: str, transport: str, root: Path, servers: Servers, tmp_path: Path
) -> None:
    assert root.exists()
    with servers.connect(make_options(sdk, tmp_path), era, transport) as wire:
        for text in ('"\\\n', "\x01\x1f", "😀é", "</script>"):
            descriptor, _ = call(wire, "make", size=200_000, of=text)
            handle = descriptor["output_handle"]
            for name in (handle, f"ax://made/1~{handle}", f"forebay://output/{handle}"):
                received, is_error = call(wire, "take", content={"$handle": name}, note="n")
                assert not is_error, received
                assert received == {"digest": digest(text * 200_000), "size": len(text.encode()) * 200_000, "note": "n"}


def test_a_tool_receives_a_part_of_another_tool_s_output(
    sdk: str, era: str, root: Path, servers: Servers, tmp_path: Path
) -> None:
    assert root.exists()
    with servers.connect(make_options(sdk, tmp_path), era) as wire:
        descriptor, _ = call(wire, "make_rows", count=5000)
        handle = descriptor["output_handle"]
        rows = json.loads(make_rows(5000))["rows"]
        received, _ = call(wire, "take_rows", rows={"$handle": handle, "path": "/rows"})
        assert received == {"ids": sum(range(5000)), "count": 5000, "options": None}
        received, _ = call(wire, "take_rows", rows=[rows[0], {"$handle": handle, "path": "/rows/7"}])
        assert received == {"ids": 7, "count": 2, "options": None}
        received, _ = call(wire, "take", content={"$handle": handle, "path": "/rows/3/text"})
        assert received["digest"] == digest(rows[3]["text"])
        error, is_error = call(wire, "take", content={"$handle": handle, "path": "/none"})
        assert is_error
        assert error["error"]["code"] == "path_not_found"
        assert "rows: [" in error["error"]["message"]


def test_a_file_is_text_or_json_by_the_schema(sdk: str, era: str, root: Path, servers: Servers, tmp_path: Path) -> None:
    (root / "rows.json").write_bytes(b'[{"id": 1},\n {"id": 2}]')
    with servers.connect(make_options(sdk, tmp_path), era) as wire:
        received, _ = call(wire, "take_rows", rows={"$file": "rows.json"})
        assert (received["ids"], received["count"]) == (3, 2)
        received, _ = call(wire, "take", content={"$file": str(root / "rows.json")})
        assert received["digest"] == digest('[{"id": 1},\n {"id": 2}]')
        received, _ = call(wire, "take", content={"$file": "rows.json", "encoding": "base64", "length": 3})
        assert received["digest"] == digest("W3si")
        received, _ = call(wire, "take", content={"$file": "rows.json", "lines": [1, 2]})
        assert received["digest"] == digest(' {"id": 2}]')
        escaped = {"$$file": "x", "$$$handle": [{"$$handle": 1}]}
        received, _ = call(wire, "take_rows", rows=[], options=escaped)
        assert received["options"] == {"$file": "x", "$$handle": [{"$handle": 1}]}


@pytest.mark.posix
def test_a_refused_reference_does_not_call_the_tool(
    sdk: str, era: str, root: Path, servers: Servers, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("s")
    (root / "link").symlink_to(tmp_path / "secret")
    (root / "large").write_text("l" * 2000)
    (root / "binary").write_bytes(b"\xff\xfe")
    refusals = {
        "../secret": "file_ref_denied",
        str(tmp_path / "secret"): "file_ref_denied",
        "link": "file_ref_denied",
        "none": "file_ref_not_found",
        "large": "file_ref_too_large",
        "binary": "invalid_format_for_payload",
    }
    options = make_options(sdk, tmp_path, file_ref_max_bytes=1000)
    with servers.connect(options, era) as wire:
        for path, code in refusals.items():
            error, is_error = call(wire, "take", content={"$file": path})
            assert is_error
            assert error["error"]["code"] == code, path
        error, _ = call(wire, "take", content={"$file": "large", "other": 1})
        assert error["error"]["code"] == "invalid_argument"
        assert '"$$file"' in error["error"]["message"]
        error, _ = call(wire, "take", content={"$handle": "oh_AAAAAAAAAAAA"})
        assert error["error"]["code"] == "output_handle_not_found"
        assert call(wire, "called")[0] == {"called": []}
    with open_store(options["store"], sweep_interval=0) as store:
        denied = [(event["path"], event["code"]) for event in reversed(events(store, "file_ref_denied"))]
    assert denied[: len(refusals)] == list(refusals.items())


def test_without_the_option_references_pass_unchanged(sdk: str, era: str, servers: Servers, tmp_path: Path) -> None:
    off: dict[str, Any] = {"sdk": sdk, "store": (tmp_path / "store").as_uri(), "sweep_interval": 0}
    options = {"$file": "/etc/passwd", "$$file": 1, "more": [{"$handle": "x", "a": {"$$handle": 2}}]}
    params = {"name": "take_rows", "arguments": {"rows": [], "options": options}}
    with servers.connect({"sdk": sdk}, era) as plain, servers.connect(off, era) as with_forebay:
        answer = with_forebay.request("tools/call", params)
        assert answer == plain.request("tools/call", params)
        assert json.loads(json.loads(answer)["result"]["content"][0]["text"])["options"] == options
        before, after = (json.loads(wire.request("tools/list"))["result"]["tools"] for wire in (plain, with_forebay))
        assert after[: len(before)] == before
        assert "$file" not in json.dumps(after)


def test_listed_schemas_accept_references(sdk: str, era: str, root: Path, servers: Servers, tmp_path: Path) -> None:
    assert root.exists()
    with servers.connect({"sdk": sdk}, era) as plain, servers.connect(make_options(sdk, tmp_path), era) as with_forebay:
        before, after = (
            {tool["name"]: tool for tool in json.loads(wire.request("tools/list"))["result"]["tools"]}
            for wire in (plain, with_forebay)
        )
    properties = after["take"]["inputSchema"]["properties"]
    assert properties["content"]["type"] == properties["note"]["type"] == ["string", "object"]
    assert after["take_rows"]["inputSchema"]["properties"]["rows"]["type"] == ["array", "object"]
    assert after["make_rows"] == before["make_rows"]
    assert '{"$file":path}' in after["output_fetch"]["description"]
    assert "$file" not in json.dumps(before)


@pytest.mark.posix
def test_invalid_options_are_refused(tmp_path: Path) -> None:
    store = (tmp_path / "store").as_uri()
    before = len([*Path("/proc/self/fd").iterdir()])
    mistakes: list[tuple[dict[str, Any], str]] = [
        ({"file_roots": ["/"]}, "file_refs=True"),
        ({"file_refs": True, "file_roots": [tmp_path / "none"]}, "is no folder"),
        ({"file_refs": True, "file_roots": os.fspath(tmp_path)}, "a list of folders"),
        ({"file_refs": True, "file_ref_max_bytes": 0}, "file_ref_max_bytes must be at least 1"),
        ({"file_refs": True, "file_ref_max_bytes": "64M"}, "file_ref_max_bytes must be a whole number"),
    ]
    for options, message in mistakes:
        with pytest.raises(InvalidArgument, match=message):
            OutputPolicy(store, sweep_interval=0, **options)
    assert len([*Path("/proc/self/fd").iterdir()]) == before
