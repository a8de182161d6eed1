"""References in the arguments of real servers: what one tool made another takes, and no client carries it."""

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
from wires import Servers, Wire, message_of

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
    answer = json.loads(message_of(wire.ask("tools/call", {"name": tool, "arguments": arguments})))
    result = answer["result"]
    return json.loads(result["content"][0]["text"]), bool(result.get("isError"))


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_what_one_tool_made_another_takes_to_the_byte(
    sdk: str, era: str, transport: str, root: Path, servers: Servers, tmp_path: Path
) -> None:
    assert root.exists()
    with servers.wired(make_options(sdk, tmp_path), era, transport) as wire:
        for of in ('"\\\n', "\x01\x1f", "😀é", "</script>"):
            made, _ = call(wire, "make", size=200_000, of=of)
            handle = made["output_handle"]
            for name in (handle, f"ax://made/1~{handle}", f"forebay://output/{handle}"):
                taken, is_error = call(wire, "take", content={"$handle": name}, note="n")
                assert not is_error, taken
                assert taken == {"digest": digest(of * 200_000), "size": len(of.encode()) * 200_000, "note": "n"}


def test_a_part_of_what_one_tool_made(sdk: str, era: str, root: Path, servers: Servers, tmp_path: Path) -> None:
    assert root.exists()
    with servers.wired(make_options(sdk, tmp_path), era) as wire:
        made, _ = call(wire, "make_rows", count=5000)
        handle = made["output_handle"]
        rows = json.loads(make_rows(5000))["rows"]
        taken, _ = call(wire, "take_rows", rows={"$handle": handle, "path": "/rows"})
        assert taken == {"ids": sum(range(5000)), "count": 5000, "options": None}
        taken, _ = call(wire, "take_rows", rows=[rows[0], {"$handle": handle, "path": "/rows/7"}])
        assert taken == {"ids": 7, "count": 2, "options": None}
        taken, _ = call(wire, "take", content={"$handle": handle, "path": "/rows/3/text"})
        assert taken["digest"] == digest(rows[3]["text"])
        told, is_error = call(wire, "take", content={"$handle": handle, "path": "/none"})
        assert is_error
        assert told["error"]["code"] == "path_not_found"
        assert "rows: [" in told["error"]["message"]


def test_a_file_is_as_the_schema_wants_it(sdk: str, era: str, root: Path, servers: Servers, tmp_path: Path) -> None:
    (root / "rows.json").write_text('[{"id": 1},\n {"id": 2}]')
    with servers.wired(make_options(sdk, tmp_path), era) as wire:
        taken, _ = call(wire, "take_rows", rows={"$file": "rows.json"})
        assert (taken["ids"], taken["count"]) == (3, 2)
        taken, _ = call(wire, "take", content={"$file": str(root / "rows.json")})
        assert taken["digest"] == digest('[{"id": 1},\n {"id": 2}]')
        taken, _ = call(wire, "take", content={"$file": "rows.json", "encoding": "base64", "length": 3})
        assert taken["digest"] == digest("W3si")
        taken, _ = call(wire, "take", content={"$file": "rows.json", "lines": [1, 2]})
        assert taken["digest"] == digest(' {"id": 2}]')
        escaped = {"$$file": "x", "$$$handle": [{"$$handle": 1}]}
        taken, _ = call(wire, "take_rows", rows=[], options=escaped)
        assert taken["options"] == {"$file": "x", "$$handle": [{"$handle": 1}]}


def test_a_refusal_is_an_error_and_no_call(sdk: str, era: str, root: Path, servers: Servers, tmp_path: Path) -> None:
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
    with servers.wired(options, era) as wire:
        for path, code in refusals.items():
            told, is_error = call(wire, "take", content={"$file": path})
            assert is_error
            assert told["error"]["code"] == code, path
        told, _ = call(wire, "take", content={"$file": "large", "other": 1})
        assert told["error"]["code"] == "invalid_argument"
        assert '"$$file"' in told["error"]["message"]
        told, _ = call(wire, "take", content={"$handle": "oh_AAAAAAAAAAAA"})
        assert told["error"]["code"] == "output_handle_not_found"
        assert call(wire, "called")[0] == {"called": []}
    with open_store(options["store"], sweep_interval=0) as store:
        denied = [(event["path"], event["code"]) for event in reversed(events(store, "file_ref_denied"))]
    assert denied[: len(refusals)] == list(refusals.items())


def test_switched_off_everything_passes_as_it_is(sdk: str, era: str, servers: Servers, tmp_path: Path) -> None:
    off: dict[str, Any] = {"sdk": sdk, "store": (tmp_path / "store").as_uri(), "sweep_interval": 0}
    options = {"$file": "/etc/passwd", "$$file": 1, "more": [{"$handle": "x", "a": {"$$handle": 2}}]}
    asked = {"name": "take_rows", "arguments": {"rows": [], "options": options}}
    with servers.wired({"sdk": sdk}, era) as plain, servers.wired(off, era) as gated:
        answer = gated.ask("tools/call", asked)
        assert answer == plain.ask("tools/call", asked)
        assert json.loads(json.loads(answer)["result"]["content"][0]["text"])["options"] == options
        before, after = (json.loads(wire.ask("tools/list"))["result"]["tools"] for wire in (plain, gated))
        assert after[: len(before)] == before
        assert "$file" not in json.dumps(after)


def test_a_list_says_where_references_may_stand(
    sdk: str, era: str, root: Path, servers: Servers, tmp_path: Path
) -> None:
    assert root.exists()
    with servers.wired({"sdk": sdk}, era) as plain, servers.wired(make_options(sdk, tmp_path), era) as gated:
        before, after = (
            {tool["name"]: tool for tool in json.loads(wire.ask("tools/list"))["result"]["tools"]}
            for wire in (plain, gated)
        )
    taken = after["take"]["inputSchema"]["properties"]
    assert taken["content"]["type"] == taken["note"]["type"] == ["string", "object"]
    assert after["take_rows"]["inputSchema"]["properties"]["rows"]["type"] == ["array", "object"]
    assert after["make_rows"] == before["make_rows"]
    assert '{"$file": "path"}' in after["output_fetch"]["description"]
    assert "$file" not in json.dumps(before)


def test_what_is_wrong_with_the_options_is_told(tmp_path: Path) -> None:
    store = (tmp_path / "store").as_uri()
    before = len([*Path("/proc/self/fd").iterdir()])
    mistakes: list[tuple[dict[str, Any], str]] = [
        ({"file_roots": ["/"]}, "file_refs=True"),
        ({"file_refs": True, "file_roots": [tmp_path / "none"]}, "is no folder"),
        ({"file_refs": True, "file_roots": os.fspath(tmp_path)}, "a list of folders"),
        ({"file_refs": True, "file_ref_max_bytes": 0}, "file_ref_max_bytes must be at least 1"),
        ({"file_refs": True, "file_ref_max_bytes": "64M"}, "file_ref_max_bytes must be a whole number"),
    ]
    for options, told in mistakes:
        with pytest.raises(InvalidArgument, match=told):
            OutputPolicy(store, sweep_interval=0, **options)
    assert len([*Path("/proc/self/fd").iterdir()]) == before
