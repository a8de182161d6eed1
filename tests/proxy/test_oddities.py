"""Malformed and unusual messages: none bypasses the filter, none blocks the gateway, and nothing is lost."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from forebay import open_store
from forebay.errors import UpstreamFailed
from forebay.proxy.pipe_writers import Outbox
from forebay.proxy.workers import CallOrder
from forebay.wire.protocol import PageCursors
from gateway_harness import ADVERSE, TIMEOUT_SECONDS, connect, parse_text, wrap
from hypothesis import given, settings
from hypothesis import strategies as st
from support_paths import SUPPORT

pytestmark = pytest.mark.slow

CALL = '"jsonrpc":"2.0","id":77,"method":"tools/call"'
PADDING = ",".join(f'"p{number}":"{"x" * 1000}"' for number in range(12))
BIG = 123456789012345678901234567890

# Each could be read as a call of a disabled tool.
BYPASSES = [
    f'{{{CALL},"params":{{"name":"pid"}}}}',
    f'{{{CALL},"params":{{"name":"pid","arguments":{{"x":NaN}}}}}}',
    f'{{{CALL},"params":{{"name":"pid",{PADDING}}}}}',
    f'{{{PADDING},{CALL},"params":{{"name":"pid"}}}}',
    f'x\r{{{CALL},"params":{{"name":"pid"}}}}',
    f'{{"x":1}}\r{{{CALL},"params":{{"name":"pid"}}}}',
    f'{{{CALL},"params":{{"name":"pid","\\ud800":1}}}}',
    f'{{{CALL},"params":{{"name":"pid"}},"\\ud800":1}}',
    f'{{{CALL},"params":{{"name":"told","name":"pid"}}}}',
    f'{{{CALL},"params":{{"name":"pid"}},"method":"tools/call"}}',
    f'[{{{CALL},"params":{{"name":"pid"}}}}]',
    f'[[{{{CALL},"params":{{"name":"pid"}}}}]]',
    f'{{{CALL},"params":{{"name":"\\u0070id"}}}}',
    f'{{{CALL},"params":["pid"]}}',
]


@pytest.mark.parametrize("line", BYPASSES)
def test_no_notation_calls_a_disabled_tool(line: str, tmp_path: Path) -> None:
    with connect(*wrap(tmp_path, "--disable-tools", "admin", "--capability", "pid=admin")) as talk:
        talk.send(line.encode())
        assert parse_text(talk.call("told")).count("tools/call") == 1
        listed = talk.request("tools/list")["result"]["tools"]
        assert "pid" not in [tool["name"] for tool in listed]


DEAFENING = [
    b'{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":[]}}',
    b'{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":{"a":1}}}',
    b'{"jsonrpc":"2.0","id":[{}],"method":"tools/call","params":{"name":"pid"}}',
    b'{"jsonrpc":"2.0","id":5,"method":"resources/read","params":{"uri":[]}}',
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":{"a":[]}}}',
    b"[" * 1000 + b"]" * 1000,
    b"[" * 100_000,
    b'{"a":' * 900 + b"1" + b"}" * 900,
    b"\xff\xfe",
    b"null",
]


@pytest.mark.parametrize("options", [(), ("--tools-only", "core"), ("--file-refs",)])
@pytest.mark.parametrize("line", DEAFENING, ids=range(len(DEAFENING)))
def test_no_client_message_stops_the_gateway(line: bytes, options: tuple[str, ...], tmp_path: Path) -> None:
    # This server skips lines that it cannot parse.
    lenient = [sys.executable, str(SUPPORT.joinpath("adverse_server.py")), "lenient"]
    with connect(*wrap(tmp_path, *options, server=lenient)) as talk:
        talk.send(line)
        assert parse_text(talk.call("text", of='"y"', size=3)) == "y"


@pytest.mark.parametrize(
    "line",
    ["[" * 980 + "]" * 980, "[" * 100_000, '{"jsonrpc":"2.0","id":ID,"error":' + "[" * 900 + "]" * 900 + "}", "null"],
)
def test_no_server_message_stops_the_gateway(line: str, tmp_path: Path) -> None:
    with connect(*wrap(tmp_path)) as talk:
        talk.send_request("tools/call", {"name": "writes", "arguments": {"line": line}})
        assert talk.call("pid")["isError"] is False


def test_an_id_may_be_used_again_at_once(tmp_path: Path) -> None:
    with connect(*wrap(tmp_path, "--disable-tools", "admin", "--capability", "pid=admin")) as talk:
        for _ in range(300):
            talk.send({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
            assert b'"pid"' not in talk.read_line()


def test_two_requests_with_one_id_are_both_answered(tmp_path: Path) -> None:
    with connect(*wrap(tmp_path, "--disable-tools", "admin", "--capability", "pid=admin")) as talk:
        talk.request("tools/list")
        for _ in range(50):
            for method in ("tools/list", "ping"):
                talk.send({"jsonrpc": "2.0", "id": 9, "method": method})
            assert not any(b'"pid"' in talk.read_line() for _ in range(2))


@pytest.mark.parametrize("number", ["7", "7.0", "70e-1", "1e2", "-0", "1.10", f"{BIG}", '"7"', '"\\ud83d\\ude00"'])
def test_an_id_is_returned_as_it_was_written(number: str, tmp_path: Path) -> None:
    with connect(*wrap(tmp_path)) as talk:
        call = '"method":"tools/call","params":{"name":"output_fetch","arguments":{"output_handle":"oh_AAAAAAAAAAAA"}}'
        talk.send(f'{{"jsonrpc":"2.0","id":{number},{call}}}'.encode())
        answer = talk.read_line()
        assert f'"id":{number},'.encode() in answer or json.loads(answer)["id"] == json.loads(number)
        # The server writes the id in another notation, which matches all the same.
        large = '"method":"tools/call","params":{"name":"text","arguments":{"size":99999}}'
        talk.send(f'{{"jsonrpc":"2.0","id":{number},{large}}}'.encode())
        assert parse_text(json.loads(talk.read_line())["result"])["size_bytes"] == 99999


def test_numbers_in_a_batch_are_unchanged(tmp_path: Path) -> None:
    params = f'{{"n":{BIG},"v":0.1000000000000000055511151}}'
    line = f'{{"jsonrpc":"2.0","id":3,"method":"future/method","params":{params}}}'
    with connect(*ADVERSE) as talk:
        talk.send(line.encode())
        alone = talk.read_line()
    with connect(*wrap(tmp_path)) as talk:
        talk.send(f"[{line}]".encode())
        assert talk.read_line() == alone
        # And in a response of the server.
        answer = alone.decode().strip().replace('"id": 3', '"id": ID')
        talk.send_request("tools/call", {"name": "writes", "arguments": {"line": f"[{answer}]"}})
        assert str(BIG) in talk.read_line().decode()


def test_a_stored_small_result_is_unchanged(tmp_path: Path) -> None:
    with connect(*wrap(tmp_path, "--output-mode", "handle")) as talk:
        more = {"structuredContent": {"n": BIG, "m": 1.5}}
        handle = parse_text(talk.call("text", more=more))["output_handle"]
    with open_store(tmp_path.as_uri()) as store, store.open(handle) as file:
        assert json.loads(file.read())["structuredContent"] == more["structuredContent"]


LARGE = "z" * 100_000


@pytest.mark.parametrize(
    "line",
    [
        f'{{"jsonrpc":"2.0","id":ID,"\\ud83d\\ude00":1,"result":{{"content":[{{"type":"text","text":"{LARGE}"}}]}}}}',
        f'{{"jsonrpc":"2.0","id":ID,{PADDING},"result":{{"content":[{{"type":"text","text":"{LARGE}"}}]}}}}',
        f'{{"jsonrpc":"2.0","id":ID,"result":{{{PADDING},"content":[{{"type":"text","text":"{LARGE}"}}]}}}}',
        f'{{"jsonrpc":"2.0","id":ID,"result":{{"\\ud83d\\ude00":1,"content":[{{"type":"text","text":"{LARGE}"}}]}}}}',
        f'{{"jsonrpc":"2.0","id":ID,"result":{{"\\ud800":1,"content":[{{"type":"text","text":"{LARGE}"}}]}}}}',
        f'{{"\\ud800":1,"jsonrpc":"2.0","id":ID,"result":{{"content":[{{"type":"text","text":"{LARGE}"}}]}}}}',
    ],
    ids=range(6),
)
def test_a_response_may_have_unusual_fields(line: str, tmp_path: Path) -> None:
    with connect(*wrap(tmp_path)) as talk:
        number = talk.send_request("tools/call", {"name": "writes", "arguments": {"line": line}})
        got = talk.read_line()
        assert len(got) < 50_000
        assert json.loads(got)["id"] == number
        handle = parse_text(json.loads(got)["result"])["output_handle"]
    with open_store(tmp_path.as_uri()) as store, store.open(handle) as file:
        assert LARGE.encode() in file.read()


@pytest.mark.posix
def test_the_end_of_a_server_is_noticed_although_its_child_keeps_the_pipe_open(tmp_path: Path) -> None:
    # Its standard error is redirected, because the test reads that to its end.
    server = ["sh", "-c", 'sleep 60 2>/dev/null & exec "$@"', "sh", *ADVERSE]
    with connect(*wrap(tmp_path, server=server)) as talk:
        assert parse_text(talk.call("dies", after=10))["error"]["code"] == "upstream_failed"
        assert talk.call("pid")["isError"] is False


def test_calls_that_wait_for_the_tool_list_do_not_block_it(tmp_path: Path) -> None:
    changed = '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'
    with connect(*wrap(tmp_path, "--disable-tools", "admin", "--capability", "pid=admin")) as talk:
        talk.request("tools/list")
        large = {"name": "text", "arguments": {"size": 3_000_000}}
        numbers = {talk.send_request("tools/call", large) for _ in range(8)}
        talk.send_request("tools/call", {"name": "writes", "arguments": {"line": changed}})
        numbers |= {talk.send_request("tools/call", {"name": "text"}) for _ in range(8)}
        while numbers:
            numbers.discard(json.loads(talk.read_line()).get("id"))


def test_stored_payloads_are_readable_while_the_server_does_not_read(tmp_path: Path) -> None:
    with open_store(tmp_path.as_uri()) as store:
        handle = store.put(b"kept " * 100).output_handle
    options = ("--call-timeout-seconds", "1", "--shutdown-grace-seconds", "1")
    server = [sys.executable, "-c", "import time; time.sleep(60)"]
    with connect(*wrap(tmp_path, *options, server=server), handshake=False) as talk:
        large = talk.send_request("tools/call", {"name": "text", "arguments": {"of": "x" * 3_000_000}})
        assert parse_text(talk.read_response(large)["result"])["error"]["code"] == "upstream_timeout"
        assert parse_text(talk.call("output_fetch", output_handle=handle))["content"] == "kept " * 100
        assert talk.close() == 0


@settings(max_examples=30, deadline=None)
@given(st.lists(st.binary(max_size=200_000).map(lambda line: line.replace(b"\n", b" ")), max_size=20))
def test_an_outbox_keeps_messages_complete_and_in_order(lines: list[bytes]) -> None:
    ours, theirs = os.pipe()
    got: list[bytes] = []

    def read() -> None:
        while piece := os.read(ours, 7_001):
            got.append(piece)

    reader = threading.Thread(target=read)
    outbox = Outbox(theirs)
    for number, line in enumerate(lines):
        outbox.send(line)
        if number == len(lines) // 2:
            reader.start()
    if not lines:
        reader.start()
    assert outbox.close(TIMEOUT_SECONDS)
    os.close(theirs)
    reader.join(TIMEOUT_SECONDS)
    os.close(ours)
    assert b"".join(got) == b"".join(line + b"\n" for line in lines)


def test_an_outbox_is_limited_behind_a_large_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forebay.proxy.pipe_writers.MAX_QUEUED_BYTES", 9000)
    ours, theirs = os.pipe()
    outbox = Outbox(theirs)
    outbox.send(b"x" * 1_000_000)
    for _ in range(3):
        outbox.send(b"y" * 400)
    with pytest.raises(UpstreamFailed):
        outbox.send(b"z")
    got = b""
    while len(got) < 1_000_001 + 3 * 401:
        got += os.read(ours, 1 << 20)
    assert outbox.close(TIMEOUT_SECONDS)
    for end in (ours, theirs):
        os.close(end)
    assert got == b"x" * 1_000_000 + b"\n" + (b"y" * 400 + b"\n") * 3


def test_calls_run_in_the_order_of_their_slots() -> None:
    order, done = CallOrder(), list[int]()
    first, second, third = order.reserve(), order.reserve(), order.reserve()
    order.run_in_order(second, lambda: done.append(2))
    assert order
    order.run_in_order(first, lambda: done.append(1))
    assert done == [1, 2]
    order.run_in_order(third, lambda: done.append(3))
    assert done == [1, 2, 3]
    assert not order


REPEATER = """
import json, sys
for line in sys.stdin.buffer:
    request = json.loads(line)
    if "id" in request:
        tools = [{"name": "told", "inputSchema": {}}, {"name": "pid", "inputSchema": {}}]
        result = {"tools": tools} if request["method"] == "tools/list" else {"content": [], "got": repr(line)}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"""


def test_with_a_tool_filter_the_server_gets_the_parsed_message(tmp_path: Path) -> None:
    options = ("--disable-tools", "admin", "--capability", "pid=admin")
    with connect(*wrap(tmp_path, *options, server=[sys.executable, "-c", REPEATER])) as talk:
        # A server that uses the first of two equal names would call the disabled tool.
        talk.send(f'{{{CALL},\r"params":{{"name":"pid","name":"told"}}}}'.encode())
        got = json.loads(talk.read_line())["result"]["got"]
        assert "told" in got
        assert "pid" not in got
        assert "\\r" not in got


@pytest.mark.parametrize(
    "line",
    [
        '{"jsonrpc":"2.0","id":77,"method":"ping","Method":"tools/call","params":{"name":"pid"}}',
        '{"jsonrpc":"2.0","id":77,"METHOD":"tools/call","params":{"name":"pid"}}',
        f'{{{CALL},"params":{{"name":"told","Name":"pid"}}}}',
        f'{{{CALL},"params":{{"name":"told"}},"param\u017f":{{"name":"pid"}}}}',
    ],
)
def test_with_a_tool_filter_keys_in_another_case_are_refused(line: str, tmp_path: Path) -> None:
    options = ("--disable-tools", "admin", "--capability", "pid=admin")
    with connect(*wrap(tmp_path, *options, server=[sys.executable, "-c", REPEATER])) as talk:
        # A server that accepts `Name` for `name`, as many in Go do, would call the disabled tool.
        talk.send(line.encode())
        assert json.loads(talk.read_line())["error"]["code"] == -32600


def test_an_empty_batch_is_forwarded_unless_tools_are_filtered(tmp_path: Path) -> None:
    answering = (
        "import sys\nfor line in sys.stdin: print('{\"id\": null, \"error\": ' + line.strip() + '}', flush=True)"
    )
    with connect(*wrap(tmp_path, server=[sys.executable, "-c", answering]), handshake=False) as talk:
        talk.send(b"[]")
        assert json.loads(talk.read_line()) == {"id": None, "error": []}
    with connect(*wrap(tmp_path, "--tools-only", "core")) as talk:
        talk.send(b"[]")
        assert json.loads(talk.read_line())["error"]["code"] == -32700


EMPTY_CURSOR = """
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        result = {"capabilities": {}, "tools": [], "resourceTemplates": [], "nextCursor": ""}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"""


def test_an_empty_cursor_ends_a_list(tmp_path: Path) -> None:
    with connect(*wrap(tmp_path, server=[sys.executable, "-c", EMPTY_CURSOR])) as talk:
        listed = talk.request("tools/list")["result"]["tools"]
        assert [tool["name"] for tool in listed] == ["output_fetch", "output_search", "output_query"]
        assert len(talk.request("resources/templates/list")["result"]["resourceTemplates"]) == 1


CURSOR_LOOP = """
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        page = int((request.get("params") or {}).get("cursor", 0))
        item = {"name": "output_search" if page == 2 else f"tool_{page}", "uriTemplate": f"x://{page}"}
        result = {"capabilities": {}, "nextCursor": str((page + 1) % 3)}
        result |= {key: [item] for key in ("tools", "resourceTemplates")}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"""


def test_a_list_whose_last_page_links_to_an_earlier_one_has_our_items_once(tmp_path: Path) -> None:
    def list_pages(method: str, key: str) -> list[str]:
        items, cursors = [], PageCursors()
        for params in cursors:
            page = talk.request(method, params)["result"]
            items += [item["name"] for item in page[key]]
            cursors.follow(page)
        return items

    with connect(*wrap(tmp_path, server=[sys.executable, "-c", CURSOR_LOOP])) as talk:
        for _ in range(2):
            theirs = ["tool_0", "tool_1", "output_search", "tool_0"]
            ours = ["forebay_output_fetch", "forebay_output_search", "forebay_output_query"]
            assert list_pages("tools/list", "tools") == [*theirs, *ours]
            assert list_pages("resources/templates/list", "resourceTemplates") == [*theirs, "stored_output"]


def test_results_made_by_forebay_have_its_own_server_info(tmp_path: Path) -> None:
    stamp = "io.modelcontextprotocol/serverInfo"
    more = {"_meta": {stamp: {"name": "theirs", "version": "1"}}}
    with connect(*wrap(tmp_path)) as talk:
        assert talk.call("text", more=more)["_meta"][stamp]["name"] == "theirs"
        assert talk.call("text", size=100_000, more=more)["_meta"][stamp]["name"] == "forebay"


def test_standard_output_is_reserved_for_the_protocol() -> None:
    code = (
        "import os; from forebay.proxy.pipe_writers import claim_stdout; fd = claim_stdout(); print('chatter'); "
        "os.system('echo a child'); os.write(fd, b'message')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=TIMEOUT_SECONDS)
    assert done.stdout == b"message"
    assert {b"chatter", b"a child"} == set(done.stderr.splitlines())
