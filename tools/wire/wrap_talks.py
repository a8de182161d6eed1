"""Conversations with `wrap`: one client, one server, over stdio and over HTTP."""

import json
import shutil
import time
from typing import Any

from wire.talk import MODERN, NEWEST_HANDSHAKE, StdioClient, Talk, handle_of

Message = dict[str, Any]
ALL_CAPABILITIES: Message = {"elicitation": {"form": {}}, "sampling": {}, "roots": {}}
LARGE = 60_000
ROWS = 900
"""So many rows are about 70 KB."""
STORE_IMAGES = ("--image-mode", "auto")
"""Options with which large images become handles. By default images go inline."""


def call_inline(client: StdioClient) -> None:
    """Small results of every kind."""
    for tool in (
        "text",
        "rows",
        "wrapped",
        "map",
        "structured",
        "result_list",
        "blocks",
        "mixed",
        "image",
        "audio",
        "blob",
        "resource",
        "ndjson",
        "markdown",
        "unicode",
        "long_line",
        "fails",
        "refuses",
        "annotated",
        "echo",
        "no_such_tool",
    ):
        client.call(tool)


def call_large(client: StdioClient) -> dict[str, str]:
    """Large results of every kind. Return the handles by tool; audio goes inline, and images need `STORE_IMAGES`."""
    client.call("audio", "large audio", size=LARGE)
    handles = {}
    for tool in ("text", "mixed", "image", "blob", "resource", "markdown", "unicode", "long_line", "fails"):
        handles[tool] = handle_of(client.call(tool, f"large {tool}", size=LARGE))
    handles["annotated"] = handle_of(client.call("annotated", "large annotated", size=LARGE))
    for tool in ("rows", "wrapped", "map", "structured", "result_list", "ndjson"):
        handles[tool] = handle_of(client.call(tool, f"large {tool}", count=ROWS))
    handles["blocks"] = handle_of(client.call("blocks", "large blocks", count=2000))
    return handles


def fetch_pages(client: StdioClient, handles: dict[str, str], *, fetch: str = "output_fetch") -> None:
    """Pages in every format; each has a limit, so that none fills its budget."""
    pages: list[tuple[str, Message]] = [
        ("rows", {"limit": 3}),
        ("rows", {"offset": 897, "limit": 50}),
        ("rows", {"offset": 5000}),
        ("rows", {"limit": 4, "fields": ["id", "user.city"]}),
        ("rows", {"limit": 2, "fields": ["none"]}),
        ("rows", {"path": "/17"}),
        ("rows", {"path": "/17/tags", "limit": 1}),
        ("rows", {"path": "/17/name"}),
        ("rows", {"format": "text", "limit": 200}),
        ("rows", {"format": "text", "offset": 4, "limit": 100}),
        ("rows", {"format": "lines", "limit": 1}),
        ("rows", {"format": "bytes", "offset": 10, "limit": 30}),
        ("wrapped", {"limit": 2}),
        ("wrapped", {"path": "/total"}),
        ("wrapped", {"path": "/items", "offset": 1, "limit": 1}),
        ("map", {"limit": 2}),
        ("structured", {"limit": 2}),
        ("result_list", {"limit": 2}),
        ("blocks", {"limit": 2, "offset": 7}),
        ("mixed", {"limit": 3}),
        ("text", {"limit": 120}),
        ("text", {"format": "lines", "offset": 3, "limit": 2}),
        ("text", {"format": "bytes", "limit": 16}),
        ("ndjson", {"limit": 2, "offset": 899}),
        ("ndjson", {"format": "lines", "limit": 1}),
        ("unicode", {"limit": 31, "offset": 0}),
        ("long_line", {"format": "lines", "limit": 1}),
        ("image", {"limit": 24}),
        ("blob", {"offset": 59_990}),
        ("annotated", {"limit": 60}),
        ("fails", {"limit": 60}),
    ]
    for number, (tool, arguments) in enumerate(pages):
        client.call(fetch, f"page {number} of {tool}", output_handle=handles[tool], **arguments)


def fetch_invalid_pages(client: StdioClient, handles: dict[str, str], *, fetch: str = "output_fetch") -> None:
    """Pages that do not exist, and arguments that are refused."""
    handle = handles["rows"]
    wrong: list[Message] = [
        {"output_handle": "oh_AAAAAAAAAAAA"},
        {"output_handle": "nonsense"},
        {"output_handle": ""},
        {"output_handle": 7},
        {},
        {"output_handle": handle, "format": "xml"},
        {"output_handle": handle, "format": 1},
        {"output_handle": handle, "offset": -1},
        {"output_handle": handle, "offset": "1"},
        {"output_handle": handle, "offset": 1.5},
        {"output_handle": handle, "limit": 0},
        {"output_handle": handle, "limit": True},
        {"output_handle": handle, "path": "17"},
        {"output_handle": handle, "path": "/no/such"},
        {"output_handle": handle, "path": 3},
        {"output_handle": handle, "fields": "id"},
        {"output_handle": handle, "fields": [1]},
        {"output_handle": handle, "ofset": 1},
        {"output_handle": handle, "max_bytes": 100},
        {"output_handle": handles["text"], "format": "items"},
        {"output_handle": handles["image"], "format": "text"},
        {"output_handle": handles["image"], "format": "lines"},
        {"output_handle": handles["text"], "path": "/a"},
        {"output_handle": handles["image"], "fields": ["a"]},
        {"output_handle": handle, "offset": None, "limit": 1},
    ]
    for number, arguments in enumerate(wrong):
        client.call(fetch, f"wrong page {number}", **arguments)
    client.ask("tools/call", {"name": fetch, "arguments": [1]}, "arguments that are an array")
    client.ask("tools/call", {"name": fetch}, "no arguments")


def search(client: StdioClient, handles: dict[str, str], *, tool: str = "output_search") -> None:
    """Searches that find something, find nothing, and are refused."""
    searches: list[tuple[str, Message]] = [
        ("rows", {"pattern": "naïve 17", "limit": 3}),
        ("rows", {"pattern": "CITY 3", "ignore_case": True, "limit": 2}),
        ("rows", {"pattern": r'"id": 1\d\d,', "regex": True, "limit": 3}),
        ("rows", {"pattern": "nothing like it"}),
        ("text", {"pattern": "after 59 s", "limit": 2}),
        ("text", {"pattern": "after 59 s", "limit": 2, "start": 5000}),
        ("text", {"pattern": "^line 10[0-9]:", "regex": True, "limit": 2}),
        ("image", {"pattern": "PNG", "limit": 1}),
        ("ndjson", {"pattern": "naïve 899"}),
        ("text", {"pattern": "(", "regex": True}),
        ("text", {"pattern": ""}),
        ("text", {"pattern": 7}),
        ("text", {"pattern": "x", "start": -1}),
        ("text", {"pattern": "x", "limit": 0}),
        ("text", {"pattern": "x", "regex": "yes"}),
        ("text", {"patern": "x"}),
    ]
    for number, (name, arguments) in enumerate(searches):
        client.call(tool, f"search {number} in {name}", output_handle=handles[name], **arguments)
    client.call(tool, "search in nothing", output_handle="oh_AAAAAAAAAAAA", pattern="x")


def read_resources(client: StdioClient, handles: dict[str, str]) -> None:
    """Lists and reads of resources: those of the server, and stored outputs."""
    scheme = f"{client.talk.build.name}://output/"
    client.ask("resources/list")
    client.ask("resources/templates/list")
    for uri in (
        "wire://one",
        "wire://of/40000",
        "other://none",
        f"{scheme}{handles['rows']}?limit=2",
        f"{scheme}{handles['rows']}?offset=898",
        f"{scheme}{handles['text']}?offset=100&limit=50",
        f"{scheme}{handles['image']}?limit=12",
        f"{scheme}{handles['rows']}?limit=none",
        f"{scheme}{handles['rows']}?unknown=1",
        f"{scheme}oh_AAAAAAAAAAAA",
        f"{scheme}",
    ):
        client.ask("resources/read", {"uri": uri}, f"read {client.talk.normalise(uri.encode()).decode()}")


def pass_through(client: StdioClient) -> None:
    """Requests that are only forwarded."""
    client.ask("prompts/list")
    client.ask("prompts/get", {"name": "greet"})
    reference = {"type": "ref/prompt", "name": "greet"}
    client.ask("completion/complete", {"ref": reference, "argument": {"name": "a", "value": "o"}})
    client.ask("ping")
    client.ask("future/method", {"a": [1.0, 1e300], "é": "\ud83d\ude00"})
    client.ask("no/such")
    client.call("log")
    client.ask("tools/call", {"name": "progress", "arguments": {}, "_meta": {"progressToken": "p-1"}}, "progress")
    client.ask("tools/call", {"name": "progress", "arguments": {"size": LARGE}, "_meta": {"progressToken": 7}}, "late")


def send_malformed_lines(client: StdioClient) -> None:
    """Malformed lines, and ids of unusual types."""
    line = b'{"jsonrpc": "2.0", "id": %s, "method": "tools/call", "params": {"name": "echo", "arguments": {"a":1.50}}}'
    for request_id in (b'"a string"', b"-3", b"12345678901234567890123", b"1.5", b"null", b"true", b"[1]", b'{"a":1}'):
        client.send_and_record(f"id {request_id.decode()}", line % request_id)
    for name, odd in {
        "not JSON": b"{not json",
        "half a message": b'{"jsonrpc": "2.0", "id": 1',
        "a number": b"17",
        "a text": b'"text"',
        "empty batch": b"[]",
        "method that is a number": b'{"jsonrpc": "2.0", "id": 900, "method": 7}',
        "params that are an array": b'{"jsonrpc": "2.0", "id": 901, "method": "ping", "params": [1]}',
        "name that is a number": b'{"jsonrpc": "2.0", "id": 902, "method": "tools/call", "params": {"name": 7}}',
        "no name": b'{"jsonrpc": "2.0", "id": 903, "method": "tools/call", "params": {}}',
        "no version": b'{"id": 904, "method": "ping"}',
        "escaped method": b'{"jsonrpc": "2.0", "id": 905, "method": "pi\\u006eg"}',
        "key twice": b'{"jsonrpc": "2.0", "id": 1, "id": 906, "method": "ping"}',
        "spaces": b'  { "jsonrpc" : "2.0" , "id" : 907 , "method" : "ping" }  ',
        "invalid UTF-8": b'{"jsonrpc": "2.0", "id": 908, "method": "tools/call", "params": {"name": "\xff"}}',
    }.items():
        client.send_and_record(name, odd)
    batch = [
        {"jsonrpc": "2.0", "id": 910, "method": "ping"},
        {"jsonrpc": "2.0", "method": "notifications/unknown"},
        {"jsonrpc": "2.0", "id": 911, "method": "tools/call", "params": {"name": "text", "arguments": {}}},
    ]
    client.send_and_record("batch", batch, 2)
    client.send(b'{"jsonrpc": "2.0", "id": "no one asked", "result": {}}')
    client.send(b"")
    client.ask("ping", None, "after all of them")


def answer_server_requests(client: StdioClient) -> None:
    """Requests of the server during a call."""
    sampling = {"messages": [{"role": "user", "content": {"type": "text", "text": "Hi"}}], "maxTokens": 7}
    for method, params, reply in (
        ("elicitation/create", None, {"result": {"action": "accept", "content": {"name": "Ann"}}}),
        ("elicitation/create", None, {"error": {"code": -1, "message": "not now"}}),
        ("sampling/createMessage", sampling, {"result": {"role": "assistant", "model": "m", "content": []}}),
        ("roots/list", {}, {"result": {"roots": []}}),
    ):
        arguments: Message = {"method": method} if params is None else {"method": method, "params": params}
        call = client.send_request("tools/call", {"name": "ask", "arguments": arguments})
        (question,) = client.record_lines(f"question {method}", 1)
        client.send({"jsonrpc": "2.0", "id": question["id"], **reply})
        client.record_until(call, f"answer after {method}")


def run_tasks(client: StdioClient) -> None:
    """Calls that are answered by a task."""
    params: Message = {"name": "text", "arguments": {"size": LARGE, "later": True}}
    if client.era == MODERN:
        task = client.ask("tools/call", params, "task")["result"]
        client.ask("tasks/get", {"taskId": task["taskId"]})
        return
    task = client.ask("tools/call", {**params, "task": {"ttl": 60_000}}, "task")["result"]
    client.ask("tasks/get", {"taskId": task["task"]["taskId"]})
    client.ask("tasks/result", {"taskId": task["task"]["taskId"]})
    params["arguments"]["size"] = 100
    task = client.ask("tools/call", {**params, "task": {}}, "small task")["result"]
    client.ask("tasks/result", {"taskId": task["task"]["taskId"]}, "result of a small task")


def cancel(client: StdioClient) -> None:
    """A call that the client cancels."""
    call = client.send_request("tools/call", {"name": "wait", "arguments": {}})
    client.talk.wait_for_upstream(b'"wait"')
    client.notify("notifications/cancelled", {"requestId": call, "reason": "enough"})
    client.ask("ping", None, "ping after a cancelled call")


def grow(client: StdioClient) -> None:
    """A list of tools that changes."""
    call = client.send_request("tools/call", {"name": "grow", "arguments": {}})
    client.record_until(call, "grow")
    client.ask("tools/list", {"cursor": "32"}, "tools/list after it has grown")
    client.call("grown")


def list_all_tools(client: StdioClient) -> None:
    """Every page of the list of tools."""
    cursor: Any = None
    while True:
        answer = client.ask("tools/list", {} if cursor is None else {"cursor": cursor})
        cursor = answer["result"].get("nextCursor")
        if cursor is None:
            return


def wrap_everything(talk: Talk, era: str) -> None:
    with talk.wrap(*STORE_IMAGES, era=era, capabilities=ALL_CAPABILITIES) as client:
        client.initialize()
        list_all_tools(client)
        call_inline(client)
        handles = call_large(client)
        fetch_pages(client, handles)
        fetch_invalid_pages(client, handles)
        search(client, handles)
        read_resources(client, handles)
        pass_through(client)
        send_malformed_lines(client)
        run_tasks(client)
        cancel(client)
        if era == MODERN:
            call: Message = {"name": "ask", "arguments": {}}
            required = client.ask("tools/call", call, "input required")["result"]
            client.ask("tools/call", {**call, "inputResponses": {"who": {}}, "requestState": required["requestState"]})
        else:
            answer_server_requests(client)
        grow(client)
    talk.record_transcript()


def wrap_2025_11_25(talk: Talk) -> None:
    wrap_everything(talk, NEWEST_HANDSHAKE)


def wrap_2026_07_28(talk: Talk) -> None:
    wrap_everything(talk, MODERN)


def wrap_older(talk: Talk) -> None:
    for era in ("2025-06-18", "2025-03-26", "2024-11-05"):
        with talk.wrap(era=era) as client:
            client.initialize()
            client.ask("tools/list")
            handle = handle_of(client.call("rows", f"large rows in {era}", count=ROWS))
            client.call("output_fetch", f"page in {era}", output_handle=handle, limit=2)
            client.call("structured", f"large structured in {era}", count=ROWS)


def wrap_full_pages(talk: Talk) -> None:
    """Pages and matches that fill their budget; what is around them does not name the package."""
    with talk.wrap() as client:
        client.initialize()
        client.ask("tools/list")
        rows = handle_of(client.call("rows", count=ROWS))
        page = client.call("output_fetch", "full page of items", output_handle=rows)
        following = json.loads(page["content"][0]["text"])["next_offset"]
        client.call("output_fetch", "next page of items", output_handle=rows, offset=following)
        client.call("output_fetch", "full page of text", output_handle=rows, format="text")
        client.call("output_fetch", "full page of bytes", output_handle=rows, format="bytes")
        lines = handle_of(client.call("long_line", "long lines", size=LARGE))
        client.call("output_fetch", "full page of lines", output_handle=lines, format="lines")
        client.call("output_search", "many matches", output_handle=rows, pattern="city", limit=1000)
        blocks = handle_of(client.call("mixed", "large item", size=LARGE))
        client.call("output_fetch", "large item", output_handle=blocks)


def wrap_options(talk: Talk) -> None:
    prefix = f"--{talk.build.option('prefix').replace('_', '-')}"
    options = ("--per-call", prefix, "oc_", "--journal", "--tool", "text=handle")
    more = ("--tool", "blocks=inline", "--output-inline-limit-bytes", "8KiB")
    with talk.wrap(*options, *more) as client:
        client.initialize()
        list_all_tools(client)
        client.call("text")
        client.call("blocks", "large blocks inline", count=2000)
        client.call("rows", "handle asked for", output_mode="handle")
        client.call("rows", "inline asked for", count=ROWS, output_mode="inline")
        client.call("rows", "higher limit asked for", count=ROWS, output_inline_limit_bytes=200_000)
        client.call("rows", "wrong mode asked for", output_mode="sometimes")
        handles = {"rows": handle_of(client.call("rows", "large rows through a file", count=4 * ROWS))}
        handles["structured"] = handle_of(client.call("structured", "structured through a file", count=4 * ROWS))
        handles["blob"] = handle_of(client.call("blob", "blob through a file", size=4 * LARGE))
        client.call("oc_output_fetch", output_handle=handles["rows"], limit=2)
        client.call("oc_output_fetch", output_handle=handles["structured"], limit=2)
        client.call("oc_output_fetch", output_handle=handles["blob"], limit=20, offset=100_000)
        client.call("oc_output_search", output_handle=handles["rows"], pattern="naïve 3599")
        client.call("oc_output_fetch", "an error for the journal", output_handle="oh_AAAAAAAAAAAA")
        client.call("oc_journal", "journal", action="recent", count=4)
        client.call("oc_journal", "journal summary", action="summary")
        client.call("oc_journal", "wrong action", action="erase")
        client.call("oc_journal", "wrong count", count=0)
        client.call("output_fetch", "name without the prefix", output_handle=handles["rows"])
    talk.record_transcript()


def wrap_modes(talk: Talk) -> None:
    with talk.wrap("--output-mode", "handle") as client:
        client.initialize()
        for tool in ("text", "rows", "structured", "image", "fails", "echo"):
            client.call(tool, f"{tool} as a handle")
    with talk.wrap("--output-mode", "inline") as client:
        client.initialize()
        client.ask("tools/list", None, "list where all is inline")
        client.call("rows", "large rows inline", count=ROWS)
    with talk.wrap() as client:
        client.initialize()
        client.call("image", "large image inline", size=LARGE)
        client.call("image", "image that is too large", size=20 * LARGE)


def wrap_contract(talk: Talk) -> None:
    for era in (NEWEST_HANDSHAKE, MODERN):
        with talk.wrap("--contract", "--journal", era=era) as client:
            client.initialize()
            list_all_tools(client)
            for tool in ("text", "rows", "wrapped", "structured", "blocks", "image", "fails", "refuses", "ndjson"):
                client.call(tool, f"small {tool} by contract, {era}")
            reference = ""
            for tool, arguments in (
                ("text", {"size": LARGE}),
                ("rows", {"count": ROWS}),
                ("wrapped", {"count": ROWS}),
                ("structured", {"count": ROWS}),
                ("map", {"count": ROWS}),
                ("blocks", {"count": 2000}),
                ("image", {"size": LARGE}),
                ("fails", {"size": LARGE}),
                ("unicode", {"size": LARGE}),
            ):
                result = client.call(tool, f"large {tool} by contract, {era}", **arguments)
                response = json.loads(result["content"][0]["text"])
                reference = response.get("artifactRef", reference) if tool == "rows" else reference
            client.call("output_fetch", f"page by reference, {era}", output_handle=reference, limit=2)
            client.call("journal", f"journal of a contract, {era}", action="recent", count=5)
    with talk.wrap("--contract", "rows", "--contract", "text=list") as client:
        client.initialize()
        client.call("rows", "contract of one tool", count=ROWS)
        client.call("text", "contract with a category", size=LARGE)
        client.call("wrapped", "no contract", count=ROWS)


def wrap_capabilities(talk: Talk) -> None:
    filters = ("--capability", "delete_*=admin", "--capability", "workflow_*=workflow", "--disable-tools", "admin")
    for era in (NEWEST_HANDSHAKE, MODERN):
        with talk.wrap(*filters, "--hidden-tools", "workflow_*,blob", "--journal", era=era) as client:
            client.initialize()
            list_all_tools(client)
            client.call("delete_all", f"tool that is switched off, {era}")
            client.call("workflow_run", f"hidden tool, {era}")
            client.call("expand_tools", f"names of hidden tools, {era}")
            client.call("expand_tools", f"query, {era}", query="workflow stop")
            client.call("expand_tools", f"no match, {era}", query="nothing")
            client.call("expand_tools", f"by capability, {era}", capability="workflow")
            client.call("expand_tools", f"by name, {era}", names=["blob"])
            client.call("expand_tools", f"switched off by name, {era}", name="delete_all")
            client.call("expand_tools", f"switched off by capability, {era}", capability="admin")
            client.call("expand_tools", f"unknown capability, {era}", capability="none")
            client.call("expand_tools", f"unknown name, {era}", names=["none"])
            client.call("expand_tools", f"two ways at once, {era}", name="blob", query="blob")
            client.call("expand_tools", f"wrong type, {era}", names=7)
            list_all_tools(client)
            client.send_and_record("not JSON before a filter", b"{nothing")
            client.send_and_record("array before a filter", b"[1]")
            call = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"Name":"delete_all","name":"text"}}'
            client.send_and_record("name twice before a filter", call)
            client.call("journal", f"journal of refusals, {era}", action="recent", count=3)
    with talk.wrap("--capability", "text=core", "--capability", "*=other", "--tools-only", "core") as client:
        client.initialize()
        client.ask("tools/list", None, "list of what is allowed")
        client.call("text")
        client.call("rows", "not allowed")
    with talk.wrap("--tools-only", "nothing_has_it") as client:
        client.initialize()
        client.ask("tools/list", None, "list where a capability is unknown")
        client.call("text", "call where a capability is unknown")


def wrap_references(talk: Talk) -> None:
    files = talk.folder / "files"
    talk.file("files/note.txt", "one\ntwo ✓\nthree\n")
    talk.file("files/rows.json", json.dumps([{"id": number} for number in range(5)]))
    talk.file("files/binary.bin", bytes(range(64)))
    talk.file("files/large.txt", "x" * 200_000)
    talk.file("secret.txt", "secret")
    (files / "link.txt").symlink_to(talk.folder / "secret.txt")
    options = ("--file-refs", "--file-root", str(files), "--journal", *STORE_IMAGES)
    with talk.wrap(*options) as client:
        client.initialize()
        client.ask("tools/list", {"cursor": "16"})
        rows = handle_of(client.call("rows", count=ROWS))
        image = handle_of(client.call("image", size=LARGE))
        references: list[tuple[str, Message]] = [
            ("file", {"$file": str(files / "note.txt")}),
            ("lines of a file", {"$file": str(files / "note.txt"), "lines": [1, 2]}),
            ("bytes of a file", {"$file": str(files / "note.txt"), "offset": 4, "length": 3}),
            ("binary as base64", {"$file": str(files / "binary.bin"), "encoding": "base64"}),
            ("binary as text", {"$file": str(files / "binary.bin"), "encoding": "utf-8"}),
            ("value of a handle", {"$handle": rows, "path": "/3"}),
            ("text of a handle", {"$handle": rows, "path": "/3/name"}),
            ("bytes of a handle", {"$handle": image, "encoding": "base64", "offset": 0, "length": 12}),
            ("escaped", {"$$file": "literal"}),
            ("file that is missing", {"$file": str(files / "none.txt")}),
            ("file elsewhere", {"$file": str(talk.folder / "secret.txt")}),
            ("file above", {"$file": str(files / ".." / "secret.txt")}),
            ("link", {"$file": str(files / "link.txt")}),
            ("device", {"$file": "/dev/zero"}),
            ("folder", {"$file": str(files)}),
            ("large file", {"$file": str(files / "large.txt")}),
            ("unknown handle", {"$handle": "oh_AAAAAAAAAAAA"}),
            ("path that is missing", {"$handle": rows, "path": "/none"}),
            ("unknown key", {"$file": str(files / "note.txt"), "color": 1}),
            ("wrong lines", {"$file": str(files / "note.txt"), "lines": [2, 1]}),
            ("wrong type", {"$file": 7}),
            ("wrong encoding", {"$file": str(files / "note.txt"), "encoding": "rot13"}),
            ("binary without an encoding", {"$file": str(files / "binary.bin")}),
        ]
        for name, reference in references:
            client.call("echo", f"{name} by reference", value=reference, beside=[1.0, {"inner": reference}])
        client.call("count_rows", "array by reference", rows={"$file": str(files / "rows.json")})
        client.call("count_rows", "array of a handle", rows={"$handle": rows})
        client.call("journal", "journal of references", action="recent", count=4)
    talk.record_transcript()


def wrap_redaction(talk: Talk) -> None:
    with talk.wrap("--redact", r"naïve \d+", "--redact", "timeout after") as client:
        client.initialize()
        client.call("text", "inline is not redacted", size=100)
        rows = handle_of(client.call("rows", "redacted rows", count=ROWS))
        client.call("output_fetch", "redacted page", output_handle=rows, limit=2)
        text = handle_of(client.call("text", "redacted text", size=LARGE))
        client.call("output_fetch", "redacted text page", output_handle=text, limit=100)
        client.call("output_search", "search for what was redacted", output_handle=text, pattern="timeout")


def wrap_full_store(talk: Talk) -> None:
    with talk.wrap("--quota-bytes", "2000", "--journal") as client:
        client.initialize()
        for tool in ("rows", "structured"):
            client.call(tool, f"{tool} in a full store", count=ROWS)
        client.call("image", "image in a full store", size=LARGE)
        client.call("journal", "journal of a full store", action="recent")
    with talk.wrap("--quota-bytes", "2000", "--contract") as client:
        client.initialize()
        client.call("rows", "contract in a full store", count=ROWS)
    with talk.wrap("--quota-bytes", "2000", "--redact", "x", "--redact", "naïve") as client:
        client.initialize()
        client.call("rows", "redaction in a full store", count=ROWS)
    with talk.wrap("--quota-bytes", "150KB", "--on-full", "evict", *STORE_IMAGES) as client:
        client.initialize()
        handles = [handle_of(client.call("image", f"image {number}", size=LARGE)) for number in range(3)]
        for number, handle in enumerate(handles):
            client.call("output_fetch", f"page of image {number} after eviction", output_handle=handle, limit=4)


def wrap_broken_store(talk: Talk) -> None:
    root = talk.folder / "store"
    with talk.wrap() as client:
        client.initialize()
        rows = handle_of(client.call("rows", count=ROWS))
        (file,) = root.rglob(f"{rows}*")
        data = bytearray(file.read_bytes())
        for at in range(40, 60):
            data[at] ^= 0xFF
        file.chmod(0o600)
        file.write_bytes(data)
        client.call("output_fetch", "page of a damaged file", output_handle=rows, limit=2)
        client.call("output_search", "search in a damaged file", output_handle=rows, pattern="x")
        file.write_bytes(data[: len(data) // 2])
        client.call("output_fetch", "page of a torn file", output_handle=rows, limit=2, offset=100)
        file.unlink()
        client.call("output_fetch", "page of a file that is gone", output_handle=rows)
        shutil.rmtree(root)
        root.write_text("not a folder")
        client.call("rows", "rows without a store", count=ROWS)
        client.call("output_fetch", "page without a store", output_handle=rows)


def wrap_expiry(talk: Talk) -> None:
    with talk.wrap("--output-handle-ttl-hours", "0.0002") as client:
        client.initialize()
        client.ask("tools/list", {"cursor": "16"}, "list with a short life of handles")
        rows = handle_of(client.call("rows", count=ROWS))
        time.sleep(1.2)
        client.call("output_fetch", "page of what has expired", output_handle=rows)


def wrap_failures(talk: Talk) -> None:
    """A server that hangs, dies, restarts, and writes invalid messages."""
    with talk.wrap("--call-timeout-seconds", "3") as client:
        client.initialize()
        client.ask("logging/setLevel", {"level": "warning"})
        client.ask("resources/subscribe", {"uri": "wire://one"})
        client.call("wait", "call that takes too long", silent=True)
        talk.wait_for_upstream(b"notifications/cancelled")
        client.call("die")
        client.call("text", "call after a restart")
        client.call("die", "dies again", code=0)
        client.call("text", "call after another restart")
        lines = ["Listening…".encode().decode("latin-1"), "{not json", "", "[1, 2", '{"jsonrpc": "2.0"}']
        answer = '{"jsonrpc":"2.0","id":ID,"result":{"content":[]}}'
        client.call("write", "lines that are no messages", lines=[*lines, answer])
        client.call("write", "answer that is no JSON", lines=['{"jsonrpc":"2.0","id":ID,"result":{"content":NaN}}'])
        client.call("write", "answer without content", lines=['{"jsonrpc":"2.0","id":ID,"result":{"x":1e3}}'])
        client.call("write", "answer of a text", lines=['{"jsonrpc":"2.0","id":ID,"result":"text"}'])
        call = {"name": "write", "arguments": {"lines": [answer, answer]}}
        client.send_request("tools/call", call)
        client.record_lines("two answers to one call", 2)
        client.call("text", "works in the end")
    talk.record_transcript()
    failing = talk.file("failing", "yes")
    for name, server in {
        "server that ends at once": talk.upstream("--fail", str(failing)),
        "server that cannot be started": [str(talk.file("not_executable", "").resolve())],
        "server that is not there": ["no-such-command-here"],
    }.items():
        command = talk.build.command("wrap", "--store", talk.store, "--", *server)
        with talk.stdio(command) as client:
            hello = {"protocolVersion": client.era, "capabilities": {}, "clientInfo": {"name": "w", "version": "1"}}
            if name == "server that ends at once":
                client.ask("initialize", hello, name)
            client.wait_for_end()


def wrap_url(talk: Talk) -> None:
    """`wrap` in front of a server over HTTP, in both eras, with answers as JSON and as event streams."""
    for era in (NEWEST_HANDSHAKE, MODERN):
        for style in ("", "--stream"):
            with talk.http_upstream(*([style] if style else [])) as address:
                command = talk.build.command("wrap", "--store", talk.store, "--url", f"{address}/mcp")
                env = {"SECRET": "s3cret"}
                with talk.stdio(
                    [*command, "--header", "X-Key: ${SECRET}"], era=era, env=env, capabilities=ALL_CAPABILITIES
                ) as client:
                    client.initialize()
                    list_all_tools(client)
                    for tool in ("text", "structured", "refuses", "unicode"):
                        client.call(tool, f"{tool} over HTTP")
                    rows = handle_of(client.call("rows", "large rows over HTTP", count=ROWS))
                    client.call("output_fetch", "page over HTTP", output_handle=rows, limit=2)
                    client.call("blob", "large blob over HTTP", size=LARGE)
                    client.call("log", "log over HTTP")
                    progress = {"name": "progress", "arguments": {}, "_meta": {"progressToken": "p"}}
                    client.ask("tools/call", progress, "progress over HTTP")
                    client.ask("resources/read", {"uri": "wire://one"}, "read over HTTP")
                    client.ask("no/such", None, "unknown method over HTTP")
                    if era != MODERN:
                        answer_server_requests(client)
                        call = client.send_request("tools/call", {"name": "grow", "arguments": {}})
                        client.record_lines("grow over HTTP", 2, is_sorted=True)
                        del call
    talk.record_transcript(has_sdk=True)


def wrap_url_failures(talk: Talk) -> None:
    for status in (400, 401, 403, 404, 429, 500, 503):
        with talk.http_upstream() as address:
            command = talk.build.command("wrap", "--store", talk.store, "--url", f"{address}/mcp?fail={status}")
            with talk.stdio(command) as client:
                client.initialize()
                client.call("text", f"status {status}")
    with talk.http_upstream() as address:
        gone = address
    with talk.stdio(talk.build.command("wrap", "--store", talk.store, "--url", f"{gone}/mcp")) as client:
        hello = {"protocolVersion": client.era, "capabilities": {}, "clientInfo": {"name": "w", "version": "1"}}
        client.ask("initialize", hello, "server that cannot be reached")


WRAP: dict[str, Any] = {
    "wrap 2025-11-25": wrap_2025_11_25,
    "wrap 2026-07-28": wrap_2026_07_28,
    "wrap older versions": wrap_older,
    "wrap full pages": wrap_full_pages,
    "wrap options": wrap_options,
    "wrap modes": wrap_modes,
    "wrap contract": wrap_contract,
    "wrap capabilities": wrap_capabilities,
    "wrap references": wrap_references,
    "wrap redaction": wrap_redaction,
    "wrap full store": wrap_full_store,
    "wrap broken store": wrap_broken_store,
    "wrap expiry": wrap_expiry,
    "wrap failures": wrap_failures,
    "wrap url": wrap_url,
    "wrap url failures": wrap_url_failures,
}
