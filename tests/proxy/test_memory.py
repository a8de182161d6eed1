"""The gateway's memory does not grow with messages: what is too large for a file is refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from gateway_harness import StdioClient, connect, parse_text, script, wrap
from peak import get_peak_bytes

pytestmark = pytest.mark.slow

MAX_PEAK_BYTES = 112 << 20
MAX_LIST_PEAK_BYTES = 192 << 20
"""A list of 4 MiB is parsed in memory."""

SIZE = 100_000_000
HUGE = script("huge_server.py")


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
        assert get_peak_bytes(talk.process.pid) < MAX_PEAK_BYTES


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
        assert get_peak_bytes(talk.process.pid) < MAX_PEAK_BYTES


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
        assert get_peak_bytes(talk.process.pid) < MAX_PEAK_BYTES


@pytest.mark.parametrize("options", [["--file-refs"], ["--per-call"]])
def test_a_large_argument_is_searched_for_references_on_disk(options: list[str], tmp_path: Path) -> None:
    with connect(*wrap(tmp_path, *options, server=HUGE)) as talk:
        assert parse_text(talk.call("measure", text="x" * SIZE)) >= SIZE
        assert get_peak_bytes(talk.process.pid) < MAX_PEAK_BYTES


FILTER = ["--disable-tools", "other", "--capability", "none=other"]


@pytest.mark.parametrize("options", [[], FILTER])
@pytest.mark.parametrize("shape", [(1_000_000, 1), (20_000, 7)], ids=["one page", "pages"])
def test_a_very_long_list_of_tools_is_refused(shape: tuple[int, int], options: list[str], tmp_path: Path) -> None:
    with connect(*wrap(tmp_path, *options, server=[*HUGE, *map(str, shape)])) as talk:
        answer: dict[str, Any] = {}
        cursor: dict[str, str] = {}
        for _ in range(shape[1]):
            answer = talk.request("tools/list", cursor)
            if "error" in answer or not (following := answer["result"].get("nextCursor")):
                break
            cursor = {"cursor": following}
        if shape[1] == 1:
            assert answer["error"]["data"]["code"] == "upstream_failed"
            assert "smaller pages" in answer["error"]["message"]
        result = talk.call("measure")
        if options:
            # The filter does not know the tools, so that none may be called.
            assert parse_text(result)["error"]["code"] == "CAPABILITY_DISABLED"
        else:
            assert result["content"][0]["text"].isdigit()
        assert get_peak_bytes(talk.process.pid) < (MAX_PEAK_BYTES if shape[1] == 1 else MAX_LIST_PEAK_BYTES)


def test_a_list_just_below_the_limit_is_read(tmp_path: Path) -> None:
    with connect(*wrap(tmp_path, *FILTER, server=[*HUGE, "9000"])) as talk:
        assert len(talk.request("tools/list")["result"]["tools"]) == 9000 + 2 + 2
        assert talk.call("measure")["content"][0]["text"].isdigit()
        assert get_peak_bytes(talk.process.pid) < MAX_LIST_PEAK_BYTES
