"""The gateway takes at most 64 MiB more than when it is idle, and the size of one message: the rest is refused."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from gateway_harness import StdioClient, connect, parse_text, script, wrap
from peak import bounded_growth

pytestmark = pytest.mark.slow

SIZE = 100_000_000
HUGE = script("huge_server.py")
SHAPE = script("shape_server.py")
FILTER = ["--disable-tools", "other", "--capability", "none=other"]

MAX_IN_MEMORY_BYTES = 8 << 20
"""Larger messages are spooled, so that their size does not count."""

UNSPOOLED = 8_000_000


@contextmanager
def bounded(
    tmp_path: Path, *options: str, server: list[str] = SHAPE, message_bytes: int = 0, message_count: int = 1
) -> Iterator[StdioClient]:
    """Yield a client of a gateway whose memory must stay within its bound, besides that of some messages."""
    with connect(*wrap(tmp_path, *options, server=server)) as talk:
        if not options:
            assert talk.call("measure")["content"]
        with bounded_growth(talk.process.pid, message_count * min(message_bytes, MAX_IN_MEMORY_BYTES)):
            yield talk


def make_call(number: object, text: str) -> dict[str, Any]:
    params = {"name": "measure", "arguments": {"text": text}}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


def call_batch(talk: StdioClient, size: int, before: int = 0) -> dict[str, Any]:
    params = {"name": "batch", "arguments": {"size": size, "before": before}}
    return talk.read_response(talk.send_request("tools/call", params))


@pytest.mark.parametrize("size", [100, 20_000, 2_000_000, SIZE])
def test_an_answer_in_a_batch_of_any_size_is_handled_like_any_other(size: int, tmp_path: Path) -> None:
    with bounded(tmp_path, server=HUGE, message_bytes=size) as talk:
        result = call_batch(talk, size, before=3)["result"]
        if size > 32768:
            assert parse_text(result)["size_bytes"] == size
        else:
            assert result["content"][0]["text"] == "x" * size


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
    with bounded(tmp_path, *options, server=HUGE, message_bytes=size) as talk:
        talk.send(json.dumps([make_call("a", "x" * size), make_call("b", "")]).encode())
        sizes = {}
        for _ in range(2):
            answer = json.loads(talk.read_line())
            sizes[answer["id"]] = int(answer["result"]["content"][0]["text"])
        assert size < sizes["a"] < size + 200
        assert sizes["b"] < 200


@pytest.mark.parametrize("text", ["", "x" * 200])
def test_a_client_s_batch_of_too_many_messages_is_refused(text: str, tmp_path: Path) -> None:
    with connect(*wrap(tmp_path, server=HUGE)) as talk:
        talk.send(json.dumps([make_call(number, text) for number in range(10_001)]).encode())
        error = json.loads(talk.read_line())
        assert error["id"] is None
        assert "at most 10,000" in error["error"]["message"]
        assert talk.call("measure")["content"]


@pytest.mark.parametrize("options", [FILTER, ["--file-refs"], ["--per-call"]])
def test_a_large_argument_stays_on_disk(options: list[str], tmp_path: Path) -> None:
    with bounded(tmp_path, *options, server=HUGE) as talk:
        assert int(talk.call("measure", text="x" * SIZE)["content"][0]["text"]) > SIZE


@pytest.mark.parametrize("options", [[], FILTER])
@pytest.mark.parametrize("shape", [(1_000_000, 1), (20_000, 7)], ids=["one page", "pages"])
def test_a_very_long_list_of_tools_is_refused(shape: tuple[int, int], options: list[str], tmp_path: Path) -> None:
    with bounded(tmp_path, *options, server=[*HUGE, *map(str, shape)]) as talk:
        answer = talk.request("tools/list")
        assert answer["error"]["data"]["code"] == "upstream_failed"
        assert "smaller pages" in answer["error"]["message"]
        result = talk.call("measure")
        if options:
            # The filter does not know the tools, so that none may be called.
            assert parse_text(result)["error"]["code"] == "CAPABILITY_DISABLED"
        else:
            assert result["content"][0]["text"].isdigit()


def list_tools(talk: StdioClient) -> list[dict[str, Any]]:
    """Return the tools on all pages."""
    tools: list[dict[str, Any]] = []
    cursor: dict[str, Any] = {}
    while True:
        page = talk.request("tools/list", cursor)["result"]
        tools += page["tools"]
        if "nextCursor" not in page:
            return tools
        cursor = {"cursor": page["nextCursor"]}


def test_many_pages_of_tools_are_listed_without_a_filter(tmp_path: Path) -> None:
    with bounded(tmp_path, server=[*HUGE, "9000", "7"]) as talk:
        # The server repeats two tools on each page, and forebay adds three tools on the last page.
        assert len(list_tools(talk)) == 7 * (9_000 + 2) + 3


LISTINGS = [FILTER, ["--per-call"], ["--file-refs"], ["--hidden-tools", "unlisted"]]


@pytest.mark.parametrize("options", LISTINGS)
@pytest.mark.parametrize(("count", "size"), [(9_990, 200), (400, 4_000), (7, 500_000)])
def test_a_list_of_tools_below_the_limits_is_read(count: int, size: int, options: list[str], tmp_path: Path) -> None:
    server = [*SHAPE, "text", str(size), str(count)]
    with bounded(tmp_path, *options, server=server, message_bytes=count * (size + 150)) as talk:
        tools = talk.request("tools/list")["result"]["tools"]
        assert [tool["name"] for tool in tools[1 : count + 1]] == [f"shape-{number}" for number in range(count)]
        assert all(len(tool["x"]) == size for tool in tools[1 : count + 1])
        assert talk.call("shape")["content"][0]["text"].isdigit()


@pytest.mark.parametrize("options", LISTINGS[:2])
@pytest.mark.parametrize("shape", ["lists", "numbers", "members", "deep"])
def test_a_definition_of_any_shape_is_read(shape: str, options: list[str], tmp_path: Path) -> None:
    with bounded(tmp_path, *options, server=[*SHAPE, shape, "500000"], message_bytes=500_000) as talk:
        number = talk.send_request("tools/list")
        # Not parsed, because it may be too deep.
        line = talk.read_line()
        assert line.startswith(b'{"jsonrpc":"2.0","id":%d,"result":' % number)
        assert len(line) > 450_000


@pytest.mark.parametrize("options", [[], FILTER, ["--per-call"]])
@pytest.mark.parametrize("shape", ["lists", "numbers", "text"])
def test_a_very_large_definition_is_refused(shape: str, options: list[str], tmp_path: Path) -> None:
    with bounded(tmp_path, *options, server=[*SHAPE, shape, "4000000"]) as talk:
        error = talk.request("tools/list")["error"]
        assert error["data"]["code"] == "upstream_failed"
        assert "describe the tool in less" in error["message"]


def test_lists_of_tools_that_come_at_once_are_read(tmp_path: Path) -> None:
    with bounded(tmp_path, *FILTER, server=[*SHAPE, "lists", "400000", "9"], message_bytes=4_000_000) as talk:
        numbers = [talk.send_request("tools/list") for _ in range(5)]
        starts = {talk.read_line().partition(b',"result"')[0] for _ in numbers}
        assert starts == {b'{"jsonrpc":"2.0","id":%d' % number for number in numbers}


def test_hidden_tools_are_expanded(tmp_path: Path) -> None:
    server = [*SHAPE, "lists", "380", "7000"]
    options = ["--hidden-tools", "shape-*"]
    # The server's list, the result, and the result that is stored.
    with bounded(tmp_path, *options, server=server, message_bytes=4_000_000, message_count=3) as talk:
        meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
        params = {"name": "expand_tools", "arguments": {"capability": "core"}, "_meta": meta}
        numbers = {talk.send_request("tools/call", params) for _ in range(4)}
        responses = [json.loads(talk.read_line()) for _ in numbers]
        assert {response["id"] for response in responses} == numbers
        assert all(parse_text(response["result"])["size_bytes"] > 3_000_000 for response in responses)


@pytest.mark.parametrize("shape", ["lists", "members", "text"])
@pytest.mark.parametrize(
    "method", ["prompts/list", "resources/list", "resources/templates/list", "completion/complete", "server/discover"]
)
def test_other_responses_are_not_parsed(method: str, shape: str, tmp_path: Path) -> None:
    with bounded(tmp_path, message_bytes=UNSPOOLED) as talk:
        number = talk.send_request(method, {"_meta": {"shape": shape, "size": UNSPOOLED}})
        line = talk.read_line()
        assert line.startswith(b'{"jsonrpc":"2.0","id":%d,' % number)
        # A list to which forebay adds something has a limit.
        assert (b"smaller pages" in line) == (method == "resources/templates/list")


@pytest.mark.parametrize("shape", ["lists", "members", "text"])
def test_a_list_of_resources_that_is_too_large_has_no_app(shape: str, tmp_path: Path) -> None:
    apps = {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}}
    with bounded(tmp_path, message_bytes=UNSPOOLED) as talk:
        meta = {"shape": shape, "size": UNSPOOLED, "io.modelcontextprotocol/clientCapabilities": apps}
        talk.send_request("resources/list", {"_meta": meta})
        line = talk.read_line()
        assert len(line) > UNSPOOLED
        assert b"smaller pages" not in line


@pytest.mark.parametrize("shape", ["lists", "numbers", "text"])
@pytest.mark.parametrize("action", ["answer", "fail", "pad"])
def test_results_that_come_at_once_are_stored(action: str, shape: str, tmp_path: Path) -> None:
    arguments = {"do": action, "shape": shape, "size": UNSPOOLED}
    with bounded(tmp_path, message_bytes=UNSPOOLED) as talk:
        numbers = {talk.send_request("tools/call", {"name": "shape", "arguments": arguments}) for _ in range(10)}
        lines = [talk.read_line() for _ in numbers]
        assert {json.loads(line)["id"] for line in lines} == numbers
        assert all(b"output_handle" in line for line in lines)


def send_all(talk: StdioClient, lines: Iterator[bytes]) -> threading.Thread:
    """Send lines in a thread, because the gateway may not read them at once."""

    def send() -> None:
        for line in lines:
            talk.send(line)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    return thread


def make_line(number: int | bytes, arguments: bytes, params: bytes = b"") -> bytes:
    number = number if isinstance(number, bytes) else b"%d" % number
    return (
        b'{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{%s"name":"shape","arguments":{"do":"ignore",%s}}}'
        % (number, params, arguments)
    )


@pytest.mark.parametrize("shape", ["lists", "text"])
def test_calls_that_are_prepared_at_once_wait_in_the_pipe(shape: str, tmp_path: Path) -> None:
    value = {"lists": b"[" + b"[]," * 2_300_000 + b"[]]", "text": b'"' + b"x" * 7_000_000 + b'"'}[shape]
    with bounded(tmp_path, "--per-call", message_bytes=7_000_000, message_count=3) as talk:
        sending = send_all(talk, (make_line(number, b'"x":' + value) for number in range(100, 120)))
        sending.join()
        assert talk.call("shape")["content"]


@pytest.mark.parametrize("kind", ["id", "cursor", "token"])
def test_an_open_request_does_not_keep_its_message(kind: str, tmp_path: Path) -> None:
    def make(number: int) -> bytes:
        large = b"x" * 7_000_000
        if kind == "id":
            # A number that Python cannot represent exactly stays unparsed.
            return make_line(b"%d.%040d" % (number, number), b'"x":"%s"' % large)
        fields = {"cursor": b'"cursor":"%s",', "token": b'"_meta":{"progressToken":"%s"},'}
        return make_line(number, b'"x":1', fields[kind] % large)

    # Besides the messages that wait for the server, one is read, one handled, one written, and one about to be freed.
    with bounded(tmp_path, message_bytes=7_000_000, message_count=4) as talk:
        send_all(talk, (make(number) for number in range(100, 120))).join()
        assert talk.call("shape")["content"]


def test_messages_to_a_server_that_does_not_read_are_bounded(tmp_path: Path) -> None:
    with bounded(tmp_path, message_bytes=7_000_000) as talk:
        talk.send_request("tools/call", {"name": "shape", "arguments": {"do": "sleep", "seconds": 5}})
        errors = 0
        sending = send_all(talk, (make_line(number, b'"x":"%s"' % (b"x" * 7_000_000)) for number in range(100, 120)))
        while b"does not read" not in talk.read_line():
            errors += 1
        sending.join()
        assert errors < 20


@pytest.mark.parametrize("text", [b"x", b'"'])
def test_a_reference_to_a_large_file_is_spooled(text: bytes, tmp_path: Path) -> None:
    file, size = tmp_path / "large", 40_000_000
    file.write_bytes(text * size)
    options = ["--file-refs", "--file-root", str(tmp_path)]
    with connect(*wrap(tmp_path / "store", *options, server=SHAPE)) as talk, bounded_growth(talk.process.pid, size):
        reference = {"x": {"$file": str(file)}}
        numbers = [talk.send_request("tools/call", {"name": "shape", "arguments": reference}) for _ in range(3)]
        sizes = [int(talk.read_response(number)["result"]["content"][0]["text"]) for number in numbers]
        assert all(sent > size * (1 if text == b"x" else 2) for sent in sizes)


def test_a_reference_among_very_many_values_is_refused(tmp_path: Path) -> None:
    with bounded(tmp_path, "--file-refs", message_bytes=7_000_000) as talk:
        values = b"[]," * 2_000_000
        talk.send(make_line(100, b'"x":[%s{"$file":"/x"}]' % values))
        error = parse_text(json.loads(talk.read_line())["result"])["error"]
        assert error["code"] == "invalid_argument"
        assert "put all of that part into a file" in error["message"]
        talk.send(make_line(101, b'"do":"","x":[%s{"$ref":"/x"}]' % values))
        assert b'"isError"' not in talk.read_line()
