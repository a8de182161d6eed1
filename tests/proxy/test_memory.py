"""The gateway's memory does not grow with messages: what is too large for a file is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from gateway_harness import StdioClient, connect, parse_text, script, wrap

pytestmark = pytest.mark.slow

MAX_PEAK_BYTES = 112 << 20
SIZE = 100_000_000
HUGE = script("huge_server.py")


def peak_bytes(talk: StdioClient) -> int:
    status = Path(f"/proc/{talk.process.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) << 10


def make_call(number: object, text: str) -> dict[str, Any]:
    params = {"name": "measure", "arguments": {"text": text}}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


def call_batch(talk: StdioClient, size: int, before: int = 0) -> dict[str, Any]:
    params = {"name": "batch", "arguments": {"size": size, "before": before}}
    return talk.read_response(talk.send_request("tools/call", params))


@pytest.mark.parametrize("size", [100, 20_000, 2_000_000, SIZE])
def test_an_answer_in_a_batch_of_any_size_is_handled_like_any_other(size: int, tmp_path: Path) -> None:
    with connect(*wrap(tmp_path, server=HUGE)) as talk:
        result = call_batch(talk, size, before=3)["result"]
        if size > 32768:
            assert parse_text(result)["size_bytes"] == size
        else:
            assert result["content"][0]["text"] == "x" * size
        assert peak_bytes(talk) < MAX_PEAK_BYTES


@pytest.mark.parametrize("size", [10, 2_000_000])
def test_a_batch_of_too_many_answers_is_an_error(size: int, tmp_path: Path) -> None:
    with connect(*wrap(tmp_path, server=HUGE)) as talk:
        error = parse_text(call_batch(talk, size, before=10_000)["result"])["error"]
        assert error["code"] == "upstream_failed"
        assert "10,000" in error["message"]
        assert talk.call("measure")["content"]


@pytest.mark.parametrize("size", [100, 2_000_000, SIZE])
@pytest.mark.parametrize("options", [[], ["--disable-tools", "other", "--capability", "none=other"]])
def test_a_client_s_batch_of_any_size_is_split(size: int, options: list[str], tmp_path: Path) -> None:
    with connect(*wrap(tmp_path, *options, server=HUGE)) as talk:
        talk.send(json.dumps([make_call("a", "x" * size), make_call("b", "")]).encode())
        sizes = {}
        for _ in range(2):
            answer = json.loads(talk.read_line())
            sizes[answer["id"]] = int(answer["result"]["content"][0]["text"])
        assert size < sizes["a"] < size + 200
        assert sizes["b"] < 200
        assert peak_bytes(talk) < MAX_PEAK_BYTES


@pytest.mark.parametrize("text", ["", "x" * 200])
def test_a_client_s_batch_of_too_many_messages_is_refused(text: str, tmp_path: Path) -> None:
    with connect(*wrap(tmp_path, server=HUGE)) as talk:
        talk.send(json.dumps([make_call(number, text) for number in range(10_001)]).encode())
        error = json.loads(talk.read_line())
        assert error["id"] is None
        assert "at most 10,000" in error["error"]["message"]
        assert talk.call("measure")["content"]


def test_a_large_argument_under_a_filter_stays_on_disk(tmp_path: Path) -> None:
    options = ["--disable-tools", "other", "--capability", "none=other"]
    with connect(*wrap(tmp_path, *options, server=HUGE)) as talk:
        assert int(talk.call("measure", text="x" * SIZE)["content"][0]["text"]) > SIZE
        assert peak_bytes(talk) < MAX_PEAK_BYTES
