"""Each flag of `forebay wrap` takes effect."""

import os
from pathlib import Path

import forebay
import pytest
from gateway_harness import connect, parse_text, wrap

pytestmark = pytest.mark.slow


def test_the_contract(tmp_path: Path) -> None:
    with connect(*wrap(tmp_path, "--contract")) as talk:
        response = parse_text(talk.call("text", size=100_000))
        assert (response["success"], response["hasMore"], response["fetchWith"]) == (True, True, "output_fetch")
        page = parse_text(talk.call("output_fetch", output_handle=response["artifactRef"], offset=99_990))
        assert page["content"] == "x" * 10


def test_every_call_is_counted(tmp_path: Path) -> None:
    with connect(*wrap(tmp_path, "--output-mode", "auto")) as talk:
        talk.call("text", size=100)
        talk.call("text", size=100_000)
        talk.request("tools/call", {"name": "no such tool", "arguments": {}})
        assert talk.close() == 0
    (folder,) = (path.parent for path in tmp_path.rglob("calls"))
    with forebay.open_store(folder, sweep_interval=0) as store:
        rows = {row["tool"]: row for row in store.call_counts.read()}
    assert (rows["text"]["calls"], rows["text"]["handles"], rows["text"]["stored_bytes"]) == (2, 1, 100_000)
    assert rows["no such tool"]["calls"] == 1


def test_redacted_text_is_not_stored(tmp_path: Path) -> None:
    with connect(*wrap(tmp_path, "--redact", "secret-[0-9]+")) as talk:
        handle = parse_text(talk.call("text", of="my secret-123 is ", size=50_000))["output_handle"]
        page = parse_text(talk.call("output_fetch", output_handle=handle))
        assert page["content"].startswith("my [redacted] is my [redacted] is ")
        assert parse_text(talk.call("output_search", output_handle=handle, pattern="secret-"))["matches"] == []


def test_modes_of_tools_and_of_calls(tmp_path: Path) -> None:
    with connect(*wrap(tmp_path, "--tool", "pid=handle", "--tool", "text=inline", "--per-call")) as talk:
        assert "output_handle" in parse_text(talk.call("pid"))
        assert len(talk.call("text", size=100_000)["content"][0]["text"]) == 100_000
        assert parse_text(talk.call("text", size=100, output_mode="handle"))["size_bytes"] == 100


def test_names_and_handles(tmp_path: Path) -> None:
    with connect(*wrap(tmp_path, "--prefix", "oc_", "--journal")) as talk:
        descriptor = parse_text(talk.call("text", size=100_000))
        assert (descriptor["fetch_with"], len(descriptor["output_handle"])) == ("oc_output_fetch", 15)
        assert [event["event"] for event in parse_text(talk.call("oc_journal"))] == [
            "tool_called",
            "output_handle_created",
        ]


def test_the_expiry_of_handles(tmp_path: Path) -> None:
    with connect(*wrap(tmp_path, "--output-handle-ttl-hours", "48")) as talk:
        listed = {tool["name"]: tool for tool in talk.request("tools/list")["result"]["tools"]}
        assert "48 h" in listed["output_fetch"]["description"]


def test_the_inline_limit(tmp_path: Path) -> None:
    with connect(*wrap(tmp_path, "--output-inline-limit-bytes", "5000")) as talk:
        # The other members of the result count, too.
        assert talk.call("text", size=4930)["content"][0]["text"] == "x" * 4930
        assert parse_text(talk.call("text", size=5000))["size_bytes"] == 5000


def test_a_limit_below_the_size_of_a_handle(tmp_path: Path) -> None:
    with connect(*wrap(tmp_path, "--output-inline-limit-bytes", "500")) as talk:
        assert talk.call("text", size=2000)["content"][0]["text"] == "x" * 2000
        assert parse_text(talk.call("text", size=4000))["size_bytes"] == 4000
    with connect(*wrap(tmp_path, "--output-mode", "handle")) as talk:
        assert parse_text(talk.call("text", size=2000))["size_bytes"] == 2000


def test_files_and_handles_by_reference(tmp_path: Path) -> None:
    (tmp_path / "drafts").mkdir()
    (tmp_path / "drafts" / "a.txt").write_text("from a file ✓", encoding="utf-8")
    options = ("--file-refs", "--file-root", str(tmp_path / "drafts"))
    with connect(*wrap(tmp_path / "store", *options)) as talk:
        assert talk.call("text", of={"$file": "a.txt"}, size=13)["content"][0]["text"] == "from a file ✓"
        handle = parse_text(talk.call("text", of="0123456789", size=50_000))["output_handle"]
        part = {"$handle": handle, "offset": 10, "length": 10}
        assert talk.call("text", of=part, size=10)["content"][0]["text"] == "0123456789"
        refused = talk.call("text", of={"$file": "../store"}, size=1)
        assert parse_text(refused)["error"]["code"] == "file_ref_denied"
    with connect(*wrap(tmp_path / "store")) as talk:
        assert talk.request("future/method", {"of": {"$file": "a.txt"}})["result"]["as_told"] == {
            "of": {"$file": "a.txt"}
        }


def test_configuration_file_and_variables_equal_flags(tmp_path: Path) -> None:
    config = tmp_path / "forebay.toml"
    config.write_text('output_mode = "inline"\nprefix = "a_"\n', encoding="utf-8")
    env = {**os.environ, "FOREBAY_PREFIX": "b_"}
    with connect(*wrap(tmp_path, "--config", str(config)), env=env) as talk:
        names = [tool["name"] for tool in talk.request("tools/list")["result"]["tools"]]
        assert "b_output_fetch" in names
        assert len(talk.call("text", size=100_000)["content"][0]["text"]) == 100_000
